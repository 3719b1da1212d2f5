"""The state transition: the only way in which a block changes the state (docs/protocol.md 8, 9)."""

from collections.abc import Collection, Mapping
from typing import Protocol

from attrs import frozen

from .accounts import Account
from .address import decode_address, encode_address, key_hash
from .block import EMPTY_ROOT, Block, Header
from .difficulty import multiplier, next_clock, next_target
from .encoding import tagged_hash
from .errors import ProducerViolation, Refusal, RuleViolation
from .history import History, Node, pack_node
from .params import NetworkParams
from .transaction import Transfer
from .work import block_work


@frozen(kw_only=True)
class ChainPoint:
    """The chain variables after a block: what follows from the headers up to it, unlike the accounts."""

    hash: bytes
    height: int
    slot: int
    difficulty_clock: int
    work: int
    """Cumulative work."""
    issued: int
    """Base units that exist."""


@frozen(kw_only=True)
class ChainHead:
    """A block to build on, canonical or not: all that the header of its child is checked against."""

    point: ChainPoint
    history: History
    """The tree over all blocks up to this one."""
    producers: tuple[bytes, ...] = ()
    """The 20-byte key hashes of the last producers, the newest last; as many as any list of the network looks at.

    Empty on a network on which everybody may make blocks. The header of a payment proof may follow blocks of unknown
    producers; then it is shorter.
    """


class StateView(Protocol):
    """The source of the accounts before a block."""

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """Those accounts of ``keys`` (20-byte key hashes) that exist."""


@frozen
class Effect:
    """The changes that a block makes to the accounts."""

    before: dict[bytes, Account | None]
    """Every touched account as it was; None if it did not exist."""
    after: dict[bytes, Account]
    fees: int


def genesis_point(params: NetworkParams) -> ChainPoint:
    """The chain variables of the genesis."""
    issued = sum(units for _, units in params.allocations)
    return ChainPoint(hash=params.genesis_hash, height=0, slot=0, difficulty_clock=0, work=0, issued=issued)


def genesis_accounts(params: NetworkParams) -> dict[bytes, Account]:
    """The accounts that exist from the beginning."""
    return {decode_address(address, params.address_prefix): Account(units) for address, units in params.allocations}


def genesis_head(params: NetworkParams) -> ChainHead:
    """The genesis as the block to build on."""
    point = genesis_point(params)
    return ChainHead(point=point, history=History().append(history_leaf(point, work=0)))


def history_leaf(point: ChainPoint, *, work: int) -> Node:
    """The leaf of a block in the history tree; ``work`` is the block's own."""
    return pack_node(point.hash, work=work, slot=point.slot, clock=point.difficulty_clock)


def point_after(params: NetworkParams, parent: ChainPoint, header: Header) -> ChainPoint:
    """The chain variables after the block of ``header`` on ``parent``."""
    gap = header.slot - parent.slot
    return ChainPoint(
        hash=header.hash,
        height=parent.height + 1,
        slot=header.slot,
        difficulty_clock=next_clock(params, parent_height=parent.height, parent_clock=parent.difficulty_clock, gap=gap),
        work=parent.work + block_work(header.base_target),
        issued=parent.issued + params.reward(parent.height + 1),
    )


def head_after(params: NetworkParams, parent: ChainHead, header: Header) -> ChainHead:
    """The block of ``header`` on ``parent`` as the block to build on; no rule is checked."""
    point = point_after(params, parent.point, header)
    producers: tuple[bytes, ...] = ()
    if params.most_blocks_between:
        producers = (*parent.producers, key_hash(header.producer_key))[-params.most_blocks_between :]
    leaf = history_leaf(point, work=block_work(header.base_target))
    return ChainHead(point=point, history=parent.history.append(leaf), producers=producers)


def consensus_root(params: NetworkParams, point: ChainPoint, history_root: bytes) -> bytes:
    """The 32-byte commitment to the rules, to the chain variables of ``point`` and to the blocks before it."""
    target = next_target(params, height=point.height + 1, clock=point.difficulty_clock)
    numbers = b"".join(number.to_bytes(8, "big") for number in (point.height, point.slot, point.difficulty_clock))
    work = point.work.to_bytes(32, "big") + target.to_bytes(32, "big")
    rest = point.issued.to_bytes(8, "big") + history_root
    return tagged_hash("svc/consensus/v1", params.rules_hash + params.genesis_hash + numbers + work + rest)


def check_place(params: NetworkParams, parent: ChainHead, header: Header) -> None:
    """Raise RuleViolation unless the header can follow ``parent``.

    The codes are HEIGHT, SLOT, BASE_TARGET, PRODUCER and MULTIPLIER.
    """
    point = parent.point
    if header.height != point.height + 1:
        raise RuleViolation(Refusal.HEIGHT, f"height must be {point.height + 1} here, not {header.height}")
    if header.slot <= point.slot:
        raise RuleViolation(Refusal.SLOT, f"slot must be greater than the parent's {point.slot}, not {header.slot}")
    if header.base_target != next_target(params, height=header.height, clock=point.difficulty_clock):
        raise RuleViolation(Refusal.BASE_TARGET, f"baseTarget is not the target due at height {header.height}")
    check_producer(params, header, producers_before(params, parent))
    check_multiplier(params, header)


def producers_before(params: NetworkParams, parent: ChainHead) -> tuple[bytes, ...]:
    """The 20-byte key hashes of those that may not make the block on ``parent`` because they made a recent one."""
    between = params.blocks_between_at(parent.point.height + 1)
    return parent.producers[-between:] if between else ()


def producer_fault(params: NetworkParams, *, height: int, producer: bytes, before: Collection[bytes]) -> str:
    """Why the list in force at ``height``, if there is one, does not let ``producer`` make the block; "" if it does.

    ``producer`` is a 20-byte key hash, ``before`` are those of the producers of the last ``blocks_between_at(height)``
    blocks, as far as they are known.
    """
    keys = params.producer_keys_at(height)
    if not keys or (producer in keys and producer not in before):
        return ""
    address = encode_address(producer, params.address_prefix)
    if producer not in keys:
        return f"the producer {address} is not one of the {len(keys)} that may make the block at height {height}"
    between = params.blocks_between_at(height)
    recent = "the block" if between == 1 else f"one of the {between} blocks"
    return f"the producer {address} made {recent} before height {height}: another one must make the block there"


def check_producer(params: NetworkParams, header: Header, before: Collection[bytes]) -> None:
    """Raise ProducerViolation unless :func:`producer_fault` has nothing against the producer of ``header``."""
    fault = producer_fault(params, height=header.height, producer=key_hash(header.producer_key), before=before)
    if fault:
        raise ProducerViolation(Refusal.PRODUCER, fault)


def check_multiplier(params: NetworkParams, header: Header) -> None:
    """Raise RuleViolation(MULTIPLIER) unless the schedule has the multiplier; whether it was earned is not checked."""
    if all(header.multiplier != points for _, points in params.multiplier_schedule):
        raise RuleViolation(Refusal.MULTIPLIER, f"multiplier {header.multiplier} is not in the schedule")


def check_transaction_count(params: NetworkParams, header: Header) -> None:
    """Raise RuleViolation (SIZE, TRANSACTIONS_ROOT) if no transactions can have the header's count and root."""
    if header.transaction_count > params.max_block_transactions:
        raise RuleViolation(
            Refusal.SIZE,
            f"a block has at most {params.max_block_transactions} transactions, not {header.transaction_count}",
        )
    if (header.transaction_count == 0) != (header.transactions_root == EMPTY_ROOT):
        raise RuleViolation(Refusal.TRANSACTIONS_ROOT, "transactionsRoot is not that of so many transactions")


def check_header(params: NetworkParams, parent: ChainHead, header: Header) -> ChainHead:
    """``header`` on ``parent`` as the block to build on, if it keeps every rule for headers but work and signature.

    Raises RuleViolation: ANCESTOR, what :func:`check_place` raises, SIZE, TRANSACTIONS_ROOT or CONSENSUS_ROOT.
    """
    if header.parent_hash != parent.point.hash:
        raise RuleViolation(Refusal.ANCESTOR, f"parentHash must be {parent.point.hash.hex()} here")
    check_place(params, parent, header)
    check_transaction_count(params, header)
    head = head_after(params, parent, header)
    if header.consensus_root != consensus_root(params, head.point, parent.history.root):
        raise RuleViolation(Refusal.CONSENSUS_ROOT, "consensusRoot is not that of the chain after this block")
    return head


class Workspace:
    """The accounts while the transfers of one block are applied one by one.

    ``slot`` is the block's; every account that the transfers or the producer touch must be in ``before``.
    """

    def __init__(self, params: NetworkParams, *, slot: int, before: Mapping[bytes, Account]) -> None:
        time = params.slot_time(slot)
        self._params = params
        self._slot = slot
        self._before = before
        self._oldest = time - 1000 * params.transaction_past_seconds
        self._newest = time + 1000 * params.transaction_future_seconds
        self._now: dict[bytes, tuple[int, int]] = {}
        self._senders: set[bytes] = set()
        self._fees = 0

    def _standing(self, key: bytes) -> tuple[int, int]:
        standing = self._now.get(key)
        if standing is None:
            account = self._before.get(key)
            standing = (account.balance, account.nonce) if account else (0, 0)
        return standing

    def transfer(self, transfer: Transfer) -> None:
        """Apply one transfer, or raise RuleViolation and change nothing.

        The codes are TIMESTAMP, NONCE, BALANCE, SENDER_MINIMUM and RECIPIENT_MINIMUM.
        """
        if not self._oldest <= transfer.timestamp <= self._newest:
            raise RuleViolation(
                Refusal.TIMESTAMP,
                f"timestamp must be from {self._oldest} to {self._newest} in this block, not {transfer.timestamp}",
            )
        balance, nonce = self._standing(transfer.sender)
        if transfer.nonce != nonce:
            raise RuleViolation(Refusal.NONCE, f"nonce must be {nonce}, not {transfer.nonce}")
        total = transfer.amount + transfer.fee
        if balance < total:
            raise RuleViolation(Refusal.BALANCE, f"the balance is {total - balance} base units short")
        to_itself = transfer.recipient == transfer.sender
        kept = balance - (transfer.fee if to_itself else total)
        received, received_nonce = (kept, nonce) if to_itself else self._standing(transfer.recipient)
        received += 0 if to_itself else transfer.amount
        check_minimums(self._params, transfer, sender=kept, recipient=received)
        self._now[transfer.recipient] = (received, received_nonce)
        self._now[transfer.sender] = (kept, nonce + 1)
        self._senders.add(transfer.sender)
        self._fees += transfer.fee

    def finish(self, producer: bytes, reward: int) -> Effect:
        """Pay the producer (20-byte key hash), and record since when each changed account has held the minimum."""
        balance, nonce = self._standing(producer)
        self._now[producer] = (balance + reward + self._fees, nonce)
        minimum = self._params.holding_minimum
        after = {}
        for key, (balance, nonce) in self._now.items():
            held: int | None = None
            if balance >= minimum:
                account = self._before.get(key)
                held = account.held_since if account else None
                if held is None or key in self._senders:
                    held = self._slot
            after[key] = Account(balance, nonce, held)
        return Effect({key: self._before.get(key) for key in after}, after, self._fees)


def check_minimums(params: NetworkParams, transfer: Transfer, *, sender: int, recipient: int) -> None:
    """Raise RuleViolation unless both balances after ``transfer`` reach the account minimum (docs/protocol.md 4).

    ``sender`` and ``recipient`` are these balances in base units; the codes are SENDER_MINIMUM and RECIPIENT_MINIMUM.
    """
    minimum = params.account_minimum
    if sender < minimum:
        short = minimum - sender
        most = 0 if transfer.recipient == transfer.sender else transfer.amount - short
        at_most = f"the amount can be at most {most} base units"
        advice = at_most if most > 0 else f"the balance is {short} base units short"
        raise RuleViolation(
            Refusal.SENDER_MINIMUM,
            f"the sender must keep {minimum} base units, and {sender} would remain; {advice}",
        )
    if recipient < minimum:
        least = transfer.amount + minimum - recipient
        raise RuleViolation(
            Refusal.RECIPIENT_MINIMUM,
            f"the recipient must have {minimum} base units after the transfer; the amount must be at least {least} base"
            " units",
        )


def touched(transfers: Collection[Transfer], producer: bytes) -> set[bytes]:
    """The key hashes of every account that a block of ``transfers`` touches."""
    keys = {transfer.sender for transfer in transfers}
    keys.update(transfer.recipient for transfer in transfers)
    keys.add(producer)
    return keys


def apply_block(params: NetworkParams, block: Block, view: StateView) -> Effect:
    """The effect of ``block`` on the accounts in ``view``, which must be those after its parent.

    Raises RuleViolation: MULTIPLIER, or what :meth:`Workspace.transfer` raises. :func:`check_state_root` checks the
    accounts after it.
    """
    header = block.header
    producer = key_hash(header.producer_key)
    before = view.accounts(touched(block.transfers, producer))
    earned = multiplier(params, before.get(producer), header.slot)
    if header.multiplier != earned:
        raise RuleViolation(Refusal.MULTIPLIER, f"multiplier must be {earned}, what the producer has earned")
    workspace = Workspace(params, slot=header.slot, before=before)
    for transfer in block.transfers:
        workspace.transfer(transfer)
    return workspace.finish(producer, params.reward(header.height))


def check_state_root(header: Header, state_root: bytes) -> None:
    """Raise RuleViolation(STATE_ROOT) unless the header commits to the accounts after it."""
    if header.state_root != state_root:
        raise RuleViolation(Refusal.STATE_ROOT, f"stateRoot must be {state_root.hex()} after this block")
