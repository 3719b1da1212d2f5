"""Real blocks for tests, and a small language to write chains in.

Every block carries the work, the signature and the roots that the rules ask for; the state is replayed in memory:

    genesis: b[1..5]                                five blocks, b1 on the genesis to b5
    b3: c[4..6]                                     a fork: c4 on b3, c5 on c4, c6 on c5
    b2 pays 5000 from alice to bob for order-1      a transfer of 5000 base units; "for ..." may be left out
    b4 is at slot 17                                otherwise the average number of slots after its parent
    b5 is by carol                                  otherwise the letters of its name are its producer
    c6 has an invalid state root                    breaks this rule and no other; see `BREAKABLE`

The same text gives the same blocks in every run. People are names; a name's key is made from the name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from itertools import count
from typing import Any

from attrs import evolve, frozen

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address, key_hash
from svcd.chain.block import Block, Header, transactions_root
from svcd.chain.difficulty import multiplier, next_target
from svcd.chain.errors import Refusal
from svcd.chain.params import DEVNET, NetworkParams, ProducerChange
from svcd.chain.signature import public_key_of, sign
from svcd.chain.state_root import state_root
from svcd.chain.state_tree import Row, Scan
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.chain.transition import (
    ChainHead,
    ChainPoint,
    apply_block,
    consensus_root,
    genesis_accounts,
    genesis_head,
    head_after,
    point_after,
)
from svcd.chain.work import effective_target, work_value
from tests.chain_language import Plan, plans
from tests.validity import Accounts, Verdict, judge

COIN = 10**8


@frozen
class Key:
    """The keys of somebody in a test."""

    seed: bytes
    public: bytes
    hash: bytes
    """The 20 bytes that accounts are kept under."""


@cache
def key_of(name: str) -> Key:
    """The key that belongs to a name."""
    seed = sha256(b"svcd tests: " + name.encode()).digest()
    public = public_key_of(seed)
    return Key(seed, public, key_hash(public))


def address_of(name: str, prefix: str) -> str:
    """The address of a name on the network with ``prefix``."""
    return encode_address(key_of(name).hash, prefix)


TEST_PARAMS = NetworkParams(
    name="test",
    network_id=3,
    chain_id="SVC-TEST",
    address_prefix="svct",
    genesis_time=1_793_491_200_000,
    slot_seconds=1,
    slots_per_block=2,
    half_life_slots=40,
    gap_cap_slots=10,
    drift_slots=5,
    memory_kib=64,
    # One work nonce in four will do, and never more than three in four, so that there is always one that will not.
    initial_target=2**254,
    max_target=2**255,
    min_target=2**250,
    initial_reward=20 * COIN,
    halving_blocks=50,
    minimum_fee=10_000,
    # So little that chains in the language below can move single base units.
    account_minimum=1,
    holding_minimum=10 * COIN,
    multiplier_schedule=((0, 10_000), (10, 10_200), (20, 10_400), (50, 10_700), (100, 11_000)),
    max_block_transactions=2000,
    max_block_bytes=1_310_720,
    transaction_past_seconds=86_400,
    transaction_future_seconds=600,
    producers=(),
    allocations=tuple((address_of(name, "svct"), 1000 * COIN) for name in ("alice", "bob", "carol")),
)
"""A network on which a block is made in a millisecond; alice, bob and carol have 1000 coins each."""

FESTIVAL = evolve(
    DEVNET,
    name="festival",
    network_id=4711,
    chain_id="FESTIVAL",
    address_prefix="fest",
    transaction_future_seconds=600,
)
"""A network of one's own with an easy target, as a network file can have it."""


def with_producers(producers: str, *changes: tuple[int, str]) -> NetworkParams:
    """A network with producers of one letter each, and changes of them: pairs of height and letters."""

    def addresses(letters: str) -> tuple[str, ...]:
        return tuple(address_of(letter, TEST_PARAMS.address_prefix) for letter in letters)

    later = tuple(ProducerChange(height=height, producers=addresses(letters)) for height, letters in changes)
    return evolve(TEST_PARAMS, producers=addresses(producers), changes=later)


def params_of(rules: Mapping[str, Any]) -> NetworkParams:
    """The network with these rules, the JSON object of docs/protocol.md 1."""
    return NetworkParams(
        name=rules["chainId"],
        network_id=rules["networkId"],
        chain_id=rules["chainId"],
        address_prefix=rules["addressPrefix"],
        genesis_time=int(rules["genesisTime"]),
        slot_seconds=rules["slotSeconds"],
        slots_per_block=rules["slotsPerBlock"],
        half_life_slots=rules["halfLifeSlots"],
        gap_cap_slots=rules["gapCapSlots"],
        drift_slots=5,
        memory_kib=rules["memoryKiB"],
        initial_target=int(rules["initialTarget"], 16),
        max_target=int(rules["maxTarget"], 16),
        min_target=int(rules["minTarget"], 16),
        initial_reward=int(rules["initialReward"]),
        halving_blocks=rules["halvingBlocks"],
        minimum_fee=int(rules["minimumFee"]),
        account_minimum=int(rules["accountMinimum"]),
        holding_minimum=int(rules["holdingMinimum"]),
        multiplier_schedule=tuple((held, points) for held, points in rules["multiplierSchedule"]),
        max_block_transactions=rules["maxBlockTransactions"],
        max_block_bytes=rules["maxBlockBytes"],
        transaction_past_seconds=rules["transactionPastSeconds"],
        transaction_future_seconds=rules["transactionFutureSeconds"],
        producers=tuple(rules["producers"]),
        allocations=tuple((address, int(units)) for address, units in rules["allocations"]),
    )


def rows_of(accounts: Mapping[bytes, Account]) -> list[Row]:
    """Accounts as a disk holds them: in ascending order of key."""
    return sorted((key, account.balance, account.nonce, account.held_since) for key, account in accounts.items())


def scan_of(accounts: Mapping[bytes, Account]) -> Scan:
    """A scan over a dictionary, which sees later changes of it; backwards, since a scan promises no order."""
    return lambda ranges: rows_of(
        {key: accounts[key] for key in accounts if any(first <= key <= last for first, last in ranges)}
    )[::-1]


# How to break one rule and no other


def _changed(digest: bytes) -> bytes:
    return bytes([digest[0] ^ 1]) + digest[1:]


_LIES: dict[Refusal, Callable[[Header, ChainPoint, NetworkParams], Header]] = {
    Refusal.HEIGHT: lambda header, parent, params: evolve(header, height=header.height + 1),
    Refusal.SLOT: lambda header, parent, params: evolve(header, slot=parent.slot),
    Refusal.BASE_TARGET: lambda header, parent, params: evolve(header, base_target=header.base_target - 1),
    Refusal.MULTIPLIER: lambda header, parent, params: evolve(header, multiplier=_unearned(header, params)),
    Refusal.TRANSACTION_COUNT: lambda header, parent, params: evolve(
        header, transaction_count=header.transaction_count + 1
    ),
    Refusal.TRANSACTIONS_ROOT: lambda header, parent, params: evolve(
        header, transactions_root=_changed(header.transactions_root)
    ),
    Refusal.STATE_ROOT: lambda header, parent, params: evolve(header, state_root=_changed(header.state_root)),
    Refusal.CONSENSUS_ROOT: lambda header, parent, params: evolve(
        header, consensus_root=_changed(header.consensus_root)
    ),
}


def _unearned(header: Header, params: NetworkParams) -> int:
    return next(points for _, points in params.multiplier_schedule if points != header.multiplier)


def _forged(transfer: Transfer) -> Transfer:
    forged = sign(key_of("forger").seed, transfer.txid)
    wire = transfer.wire.replace(transfer.signature.hex().encode(), forged.hex().encode())
    return evolve(transfer, signature=forged, wire=wire)


_CRIMES: dict[Refusal, Callable[["ChainBuilder", int], Transfer]] = {
    Refusal.TRANSACTION_SIGNATURE: lambda chain, time: _forged(
        chain.transfer("mallory", "bob", 1, nonce=0, timestamp=time)
    ),
    Refusal.TIMESTAMP: lambda chain, time: chain.transfer(
        "mallory", "bob", 1, nonce=0, timestamp=time + 1000 * chain.params.transaction_future_seconds + 1
    ),
    Refusal.NONCE: lambda chain, time: chain.transfer("mallory", "bob", 1, nonce=1, timestamp=time),
    Refusal.BALANCE: lambda chain, time: chain.transfer("mallory", "bob", 1, nonce=0, timestamp=time),
}
"""Transfers by somebody who must not have any coins."""

BREAKABLE = frozenset({*_LIES, *_CRIMES, Refusal.WORK, Refusal.BLOCK_SIGNATURE})
"""The rules that `ChainBuilder.block` can break."""


@frozen
class _After:
    """The chain after a block."""

    head: ChainHead
    accounts: dict[bytes, Account]

    @property
    def point(self) -> ChainPoint:
        """The chain variables."""
        return self.head.point


@lru_cache(16_384)
def first_nonce(core_hash: bytes, target: int, memory_kib: int, worked: bool) -> bytes:
    """The first work nonce that is below the target, or is not, if ``worked`` is False.

    It is looked up where many tests make the same blocks, of which one on devnet takes sixteen tries.
    """
    nonces = (number.to_bytes(8, "big") for number in count())
    return next(nonce for nonce in nonces if (work_value(core_hash, nonce, memory_kib) < target) is worked)


class ChainBuilder:
    """Makes blocks on any block it made before; ``None`` stands for the genesis wherever a block is asked for."""

    def __init__(self, params: NetworkParams = TEST_PARAMS) -> None:
        self.params: NetworkParams = params
        self._after = {params.genesis_hash: _After(genesis_head(params), genesis_accounts(params))}
        self._signed: dict[str, int] = {}

    def _behind(self, block: Block | None) -> _After:
        return self._after[self.params.genesis_hash if block is None else block.header.hash]

    def point_after(self, block: Block | None) -> ChainPoint:
        """The chain variables after ``block``."""
        return self._behind(block).point

    def head_after(self, block: Block | None) -> ChainHead:
        """``block`` as the one to build on."""
        return self._behind(block).head

    def accounts_after(self, block: Block | None) -> dict[bytes, Account]:
        """All accounts after ``block`` by key hash; after an invalid block, those without what made it invalid."""
        return dict(self._behind(block).accounts)

    def account_after(self, block: Block | None, name: str) -> Account:
        """The account of ``name`` after ``block``."""
        return self._behind(block).accounts.get(key_of(name).hash, Account())

    def address(self, name: str) -> str:
        """The address of ``name`` on this network."""
        return address_of(name, self.params.address_prefix)

    def verdict(self, parent: Block | None, block: Block) -> Verdict | None:
        """The verdict on ``block`` behind ``parent``; None if it is valid."""
        before = self._behind(parent)
        return judge(self.params, block.wire(), parent=before.head, before=before.accounts)

    def transfer(
        self,
        sender: str,
        recipient: str,
        amount: int,
        *,
        nonce: int | None = None,
        fee: int | None = None,
        timestamp: int | None = None,
        reference: str | None = None,
    ) -> Transfer:
        """A signed transfer: minimum fee, as old as the genesis, the nonce after the last one that was signed here."""
        nonce = self._signed.get(sender, 0) if nonce is None else nonce
        self._signed[sender] = nonce + 1
        draft = Draft(
            recipient=self.address(recipient),
            amount=amount,
            fee=self.params.minimum_fee if fee is None else fee,
            nonce=nonce,
            timestamp=self.params.genesis_time if timestamp is None else timestamp,
            reference=reference,
        )
        return sign_transfer(draft, seed=key_of(sender).seed, params=self.params)

    def block(
        self,
        parent: Block | None = None,
        *,
        slot: int | None = None,
        producer: str = "p",
        transfers: Iterable[Transfer] = (),
        break_: Refusal | None = None,
    ) -> Block:
        """A block on ``parent`` that is valid but for the rule ``break_``; raises RuleViolation for invalid transfers.

        A transfer that breaks a rule is added behind ``transfers``.
        """
        before = self._behind(parent)
        slot = before.point.slot + self.params.slots_per_block if slot is None else slot
        honest, after = self._honest(before, slot, producer=producer, transfers=tuple(transfers))
        body = honest.transfers
        header = honest.header
        if break_ in _CRIMES:
            body += (_CRIMES[break_](self, self.params.slot_time(slot)),)
            header = evolve(header, transaction_count=len(body), transactions_root=transactions_root(body))
        if break_ in _LIES:
            header = _LIES[break_](header, before.point, self.params)
        if break_ is not None and break_ not in BREAKABLE:
            raise ValueError(f"a block cannot break {break_!r}; it can break {', '.join(sorted(BREAKABLE))}")
        signer = "forger" if break_ is Refusal.BLOCK_SIGNATURE else producer
        header = self._sealed(header, signer, worked=break_ is not Refusal.WORK)
        self._after[header.hash] = _After(head_after(self.params, before.head, header), after)
        return Block(header, body)

    def _honest(
        self, before: _After, slot: int, *, producer: str, transfers: tuple[Transfer, ...]
    ) -> tuple[Block, dict[bytes, Account]]:
        params, point, key = self.params, before.point, key_of(producer)
        header = Header(
            network_id=params.network_id,
            height=point.height + 1,
            slot=slot,
            parent_hash=point.hash,
            producer_key=key.public,
            multiplier=multiplier(params, before.accounts.get(key.hash), slot),
            base_target=next_target(params, height=point.height + 1, clock=point.difficulty_clock),
            transactions_root=transactions_root(transfers),
            transaction_count=len(transfers),
            state_root=bytes(32),
            consensus_root=bytes(32),
        )
        effect = apply_block(params, Block(header, transfers), Accounts(before.accounts))
        after = before.accounts | effect.after
        header = evolve(
            header,
            state_root=state_root(after.items()),
            consensus_root=consensus_root(params, point_after(params, point, header), before.head.history.root),
        )
        return Block(header, transfers), after

    def _sealed(self, header: Header, signer: str, *, worked: bool) -> Header:
        target = effective_target(header.base_target, header.multiplier)
        nonce = first_nonce(header.core_hash, target, self.params.memory_kib, worked)
        unsigned = header.sealed(work_nonce=nonce, signature=bytes(64))
        return unsigned.sealed(work_nonce=nonce, signature=sign(key_of(signer).seed, unsigned.hash))

    def chain(self, text: str) -> dict[str, Block]:
        """The blocks that ``text`` describes, by name and in the order in which it first names them."""
        blocks: dict[str, Block] = {}
        for name, plan in plans(text).items():
            parent = None if plan.parent == "genesis" else blocks[plan.parent]
            blocks[name] = self.block(
                parent,
                slot=plan.slot,
                producer=plan.producer,
                transfers=self._payments(plan, parent),
                break_=plan.break_,
            )
        return blocks

    def _payments(self, plan: Plan, parent: Block | None) -> list[Transfer]:
        nonces: dict[str, Iterator[int]] = {}
        return [
            self.transfer(
                sender,
                recipient,
                amount,
                nonce=next(nonces.setdefault(sender, count(self.account_after(parent, sender).nonce))),
                reference=reference,
            )
            for sender, recipient, amount, reference in plan.payments
        ]
