"""What a client can check that knows only the genesis hash of a network, and trusts no node (docs/protocol.md 13).

Of several nodes the one that proves the chain with the most work wins, so that one honest node among them is enough.
Argon2id comes from argon2-cffi, which the extra ``light`` installs. A check takes all processors for some seconds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final, Generic, TypeVar

from svc_pay.account_proof import Leaf, check_account, parse_account_proof
from svc_pay.calls import Blocking, Steps, ask, get
from svc_pay.calls import proof as proof_of
from svc_pay.chain import Network, check_address, check_number, network_of
from svc_pay.chain_proof import (
    MAX_PROOF_BYTES,
    RECENT,
    SAMPLES,
    Head,
    ReadChain,
    ShownHeader,
    check_chain,
    check_network,
    check_work,
    parse_chain_proof,
    parse_chain_section,
    work_values,
)
from svc_pay.client import AsyncClient, Client
from svc_pay.errors import ApiError, InvalidAnswer, InvalidInput, InvalidProof, SvcPayError
from svc_pay.members import Members
from svc_pay.model import Order
from svc_pay.proof import check_terms, check_transfer
from svc_pay.strict_json import decimal, elements, exact_fields, hex_bytes, must, strict_json, whole

T = TypeVar("T")
C = TypeVar("C")

Progress = Callable[[int, int], None]
"""Called with the number of headers whose work has been checked, and that of all."""

AHEAD: Final = 300_000
"""How far the newest block may be in the future of this computer's clock, in milliseconds."""

_PAYMENT: Final = ("chainId", "genesisHash", "transaction", "index", "path", "height", "chain")
_TRANSFER: Final = tuple(
    "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()
)
_MAX_PATH: Final = 64
_HASH: Final = re.compile("[0-9a-fA-F]{64}")
_ABSENT: Final = (404, 410)


@dataclass(frozen=True, slots=True)
class ProvenTip:
    """The last block of a proven chain."""

    hash: str
    height: int
    slot: int
    time: int
    """When its slot began, in Unix milliseconds: compare it with your clock."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A node whose proof does not count, and why."""

    url: str
    error: SvcPayError


@dataclass(frozen=True, slots=True)
class ProvenChain:
    """A chain from the genesis block to its tip."""

    tip: ProvenTip
    work: int
    """Cumulative: give it to the next check as ``minimum_work``."""
    fetched_bytes: int
    """Of all answers that were read."""
    evaluations: int
    """How often Argon2id was computed; headers that an earlier node has shown do not count again."""
    url: str | None = None
    """The node that has proved it; None if no node was asked."""
    refused: tuple[Refused, ...] = ()
    """The nodes whose proofs do not count."""


@dataclass(frozen=True, slots=True)
class ProvenAccount:
    """An account after the tip of a chain, whose stateRoot is the word of one producer until blocks are built on it."""

    address: str
    exists: bool
    balance: int
    """Base units."""
    nonce: int
    held_since: int | None
    """A slot."""
    chain: ProvenChain


@dataclass(frozen=True, slots=True)
class ProvenPayment:
    """A payment on a chain from the genesis block."""

    txid: str
    sender: str
    block_hash: str
    block_height: int
    confirmations: int
    """Blocks from the block of the transfer to the tip of the chain, including both."""
    chain: ProvenChain


# What one node claims


@dataclass(frozen=True, slots=True)
class _Claim(Generic[C]):
    """A checked chain, and what a node shows on it."""

    url: str | None
    read: ReadChain
    content: C | SvcPayError
    """An error if the node shows nothing but its chain."""


@dataclass(slots=True)
class _Checks:
    """What the caller demands, and what has been checked so far."""

    network: Network
    minimum_work: int
    now: int
    """Unix milliseconds."""
    progress: Progress | None
    fetched: int = 0
    evaluated: set[bytes] = field(default_factory=set)
    """The hashes of the headers whose work was checked."""

    def chain(self, answer: bytes) -> ReadChain:
        """The chain that an answer proves; raises InvalidProof."""
        proof = parse_chain_proof(_proof_in(answer), self.network)
        return self.checked(check_chain(proof, self.network, minimum_work=self.minimum_work))

    def checked(self, read: ReadChain) -> ReadChain:
        """A chain whose work is right and whose tip is not in the future; raises InvalidProof."""
        ahead = "the newest block is more than five minutes in the future of this computer's clock"
        must(self.network.rules.slot_time(read.head.slot) <= self.now + AHEAD, ahead)
        check_work(read.headers, self.network, checked=self.evaluated, progress=self.progress)
        return read

    def fetch(self, path: str, query: dict[str, str] | None = None) -> Steps[bytes]:
        """The body of an answer; raises ApiError, NodeUnreachable or InvalidAnswer."""
        answer = yield from ask(get(path, query))
        self.fetched += len(answer)
        return answer


def _checks(network: Network, minimum_work: int, now: int | None, progress: Progress | None) -> _Checks:
    given: object = network
    if not isinstance(given, Network):
        raise InvalidInput("network must be MAINNET, DEVNET or a network that read_network has returned")
    if type(minimum_work) is not int or minimum_work < 0:
        raise InvalidInput("minimum_work must be an integer from 0 on")
    work_values(network)
    present = int(time() * 1000) if now is None else check_number(now, "now")
    return _Checks(network, minimum_work, present, progress)


def _proof_in(answer: bytes, *without_value: str) -> object:
    """The member ``proof`` of an answer that has ``ok`` besides, and the others as null; raises InvalidProof."""
    given: object = answer
    if not isinstance(given, bytes):
        raise InvalidInput("give the answer of the node as bytes")
    value = strict_json(answer, MAX_PROOF_BYTES)
    fields = exact_fields(value, ("ok", "proof", *without_value), "the answer")
    must(fields["ok"] is True, "ok must be true")
    for name in without_value:
        must(fields[name] is None, f"{name} must be null")
    return fields["proof"]


def _threaded(check: Callable[[], T]) -> Steps[T]:
    """The result of a check that takes long; the asynchronous client runs it in a thread."""
    found: list[T] = []
    yield Blocking(lambda: found.append(check()))
    return found[0]


# What is asked


class _Question(ABC, Generic[C, T]):
    """A question to one or several nodes, of whose claims the one on the chain with the most work counts."""

    def __init__(self, checks: _Checks) -> None:
        self.checks = checks
        self._claims: list[_Claim[C]] = []
        self._refused: list[Refused] = []

    @abstractmethod
    def claim(self, url: str | None) -> Steps[_Claim[C]]:
        """What a node claims; raises SvcPayError."""

    @abstractmethod
    def result(self, content: C, head: Head, chain: ProvenChain) -> T:
        """What was asked, for a claim on a chain that ends in ``head``."""

    def confirm(self, content: C, head: Head) -> None:
        """Raise InvalidProof unless a claim meets what was asked, on a chain that ends in ``head``."""

    def take(self, claim: _Claim[C]) -> None:
        """Keep what a node claims."""
        self._claims.append(claim)

    def refuse(self, url: str, error: SvcPayError) -> None:
        """Keep why a node does not count."""
        self._refused.append(Refused(url, error))

    def answer(self) -> T:
        """What holds on the chain with the most work; raises SvcPayError."""
        claims = sorted(self._claims, key=lambda claim: -claim.read.head.work)
        counting: list[tuple[str | None, C]] = []
        refused: list[Refused] = []
        for claim in claims:
            try:
                counting.append((claim.url, self._confirmed(claim, claims[0].read)))
            except SvcPayError as error:
                refused.append(Refused(claim.url or "", error))
        refused += self._refused
        if not counting:
            raise refused[0].error
        (url, content), head = counting[0], claims[0].read.head
        return self.result(content, head, self._chain(head, url, tuple(refused)))

    def _confirmed(self, claim: _Claim[C], best: ReadChain) -> C:
        """What a node claims, if it holds on the chain with the most work; raises SvcPayError."""
        head = claim.read.head
        if head.hash.hex() != self.checks.network.genesis_hash and all(head.hash != each.hash for each in best.headers):
            raise InvalidProof(
                f"its chain is another one, or far behind: it ends at height {head.height} with the work of"
                f" {head.work:,} hashes, where another node proves {best.head.work:,}"
            )
        if isinstance(claim.content, SvcPayError):
            raise claim.content
        self.confirm(claim.content, best.head)
        return claim.content

    def _chain(self, head: Head, url: str | None, refused: tuple[Refused, ...]) -> ProvenChain:
        checks = self.checks
        began = checks.network.rules.slot_time(head.slot)
        tip = ProvenTip(head.hash.hex(), head.height, head.slot, began)
        return ProvenChain(tip, head.work, checks.fetched, len(checks.evaluated), url, refused)


class _ChainQuestion(_Question[None, ProvenChain]):
    """Which chain has the most work?"""

    def claim(self, url: str | None) -> Steps[_Claim[None]]:
        answer = yield from self.checks.fetch("/rpc/proof/chain")
        read = yield from _threaded(lambda: self.checks.chain(answer))
        return _Claim(url, read, None)

    def result(self, content: None, head: Head, chain: ProvenChain) -> ProvenChain:
        return chain


class _AccountQuestion(_Question[Leaf | None, ProvenAccount]):
    """What does the account of an address have?"""

    def __init__(self, checks: _Checks, address: str) -> None:
        super().__init__(checks)
        self._address = address

    def claim(self, url: str | None) -> Steps[_Claim[Leaf | None]]:
        answer = yield from self.checks.fetch(f"/rpc/proof/account/{self._address}")
        tip = parse_account_proof(_proof_in(answer), self.checks.network).block.hex()
        chain_answer = yield from self.checks.fetch("/rpc/proof/chain", {"tip": tip})
        return (yield from _threaded(lambda: self.check(url, answer, chain_answer)))

    def check(self, url: str | None, answer: bytes, chain_answer: bytes) -> _Claim[Leaf | None]:
        """What two answers prove; raises InvalidProof."""
        network = self.checks.network
        proof = parse_account_proof(_proof_in(answer), network)
        read = self.checks.chain(chain_answer)
        # No proof shows the header of the genesis, whose accounts are in the rules.
        root = read.headers[-1].header.state_root if read.headers else network.rules.genesis_state_root
        head = read.head
        leaf = check_account(proof, self._address, network, block=head.hash, height=head.height, state_root=root)
        return _Claim(url, read, leaf)

    def result(self, content: Leaf | None, head: Head, chain: ProvenChain) -> ProvenAccount:
        leaf = content or Leaf(0, balance=0, nonce=0, held_since=None)
        exists = content is not None
        return ProvenAccount(self._address, exists, leaf.balance, leaf.nonce, leaf.held_since, chain)


@dataclass(frozen=True, slots=True)
class _Payment:
    """A transfer in a block, as its proof shows it."""

    transaction: Members
    txid: bytes
    block: ShownHeader


class _PaymentQuestion(_Question[_Payment, ProvenPayment]):
    """Is an order paid?"""

    def __init__(self, checks: _Checks, order: Order) -> None:
        super().__init__(checks)
        self._order = order

    def claim(self, url: str | None) -> Steps[_Claim[_Payment]]:
        try:
            answer = yield from proof_of(self._order)
        except ApiError as error:
            if error.status not in _ABSENT:
                raise
            # Its chain may have more work than one with the payment.
            chain_answer = yield from self.checks.fetch("/rpc/proof/chain")
            read = yield from _threaded(lambda: self.checks.chain(chain_answer))
            return _Claim(url, read, error)
        self.checks.fetched += len(answer)
        return (yield from _threaded(lambda: self.check(url, answer)))

    def check(self, url: str | None, answer: bytes, *, tip: str | None = None) -> _Claim[_Payment]:
        """What an answer proves, and that its chain ends in ``tip``, the hash of a block; raises InvalidProof."""
        checks = self.checks
        proof = _proof_in(answer, "next")
        read, payment = payment_in(proof, checks.network, minimum_work=checks.minimum_work)
        last = read.head.hash.hex()
        must(tip is None or last == tip.lower(), f"the proof ends in block {last}, not in {tip}")
        return _Claim(url, checks.checked(read), payment)

    def confirm(self, content: _Payment, head: Head) -> None:
        height = content.block.header.height
        try:
            check_terms(content.transaction, height, head.height - height + 1, self._order)
        except InvalidAnswer as error:
            raise InvalidProof(f"this is not a proof: {error}") from None

    def result(self, content: _Payment, head: Head, chain: ProvenChain) -> ProvenPayment:
        block, height = content.block.hash.hex(), content.block.header.height
        sender = content.transaction.text("senderAddress")
        return ProvenPayment(content.txid.hex(), sender, block, height, head.height - height + 1, chain)


def payment_in(
    proof: object, network: Network, *, minimum_work: int = 0, recent: int = RECENT, samples: int = SAMPLES
) -> tuple[ReadChain, _Payment]:
    """The transfer in the member ``proof`` of an answer, and its chain but for the work; raises InvalidProof.

    The arguments are those of :func:`svc_pay.chain_proof.check_chain`.
    """
    fields = exact_fields(proof, _PAYMENT, "proof")
    check_network(fields, network)
    transaction = exact_fields(fields["transaction"], _TRANSFER, "transaction")
    index, height = whole(fields["index"], "index"), decimal(fields["height"], "height")
    path = elements(fields["path"], "path")
    must(len(path) <= _MAX_PATH, f"path must be an array of at most {_MAX_PATH} hashes")
    steps = [hex_bytes(step, 32, f"path[{at}]").hex() for at, step in enumerate(path)]
    section = parse_chain_section(fields["chain"])
    read = check_chain(section, network, minimum_work=minimum_work, recent=recent, samples=samples)
    block = next((shown for shown in read.headers if shown.header.height == height), None)
    if block is None:
        raise InvalidProof(f"the chain section does not show the block at height {height}")
    _check_form(transaction, network, block.header.slot)
    header = block.header
    committed: dict[str, object] = {
        "transactionCount": header.transaction_count,
        "transactionsRoot": header.transactions_root.hex(),
    }
    signed = Members(transaction, "transaction")
    try:
        placed = Members({"index": index, "path": steps}, "proof")
        return read, _Payment(signed, check_transfer(placed, signed, Members(committed, "the header"), network), block)
    except (InvalidAnswer, UnicodeEncodeError) as error:
        raise InvalidProof(f"this is not a proof: {error}") from None


def _check_form(fields: dict[str, object], network: Network, slot: int) -> None:
    """Raise InvalidProof unless a transfer has the form of its network, and may be in a block of this slot."""
    # True and 1 are equal in Python.
    constants = [whole(fields[name], name) for name in ("version", "networkId", "type")]
    must(constants == [2, network.network_id, 1], f"the transaction is not a transfer of {network.chain_id}")
    hex_bytes(fields["senderPublicKey"], 32, "senderPublicKey")
    hex_bytes(fields["signature"], 64, "signature")
    decimal(fields["nonce"], "nonce")
    rules = network.rules
    must(decimal(fields["fee"], "fee") >= rules.minimum_fee, f"fee must be at least {rules.minimum_fee}")
    payload = fields["payload"]
    named = ("paymentReference",) if isinstance(payload, dict) and "paymentReference" in payload else ()
    exact_fields(payload, ("recipient", "amount", *named), "payload")
    time, signed_at = rules.slot_time(slot), decimal(fields["timestamp"], "timestamp")
    oldest, newest = time - 1000 * rules.past_seconds, time + 1000 * rules.future_seconds
    must(oldest <= signed_at <= newest, f"timestamp must be from {oldest} to {newest} in this block")


def _network_of(address: str, network: Network | None) -> Network:
    """The network of an address: ``network``, or else mainnet or devnet; raises InvalidInput."""
    if network is None:
        return network_of(address)
    check_address(address, network)
    return network


# Without a node


def check_chain_proof(
    answer: bytes,
    network: Network,
    *,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenChain:
    """The chain that the answer of ``GET /rpc/proof/chain`` proves; raises InvalidProof.

    A chain with less than ``minimum_work`` is refused. ``now`` is the time in Unix milliseconds, by default that of
    this computer.
    """
    question = _ChainQuestion(_checks(network, minimum_work, now, progress))
    question.checks.fetched += len(answer)
    question.take(_Claim(None, question.checks.chain(answer), None))
    return question.answer()


def check_account_proof(
    answer: bytes,
    address: str,
    chain_answer: bytes,
    *,
    network: Network | None = None,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenAccount:
    """The account that the answer of ``GET /rpc/proof/account/{address}`` proves; raises InvalidProof.

    ``chain_answer`` is that of ``GET /rpc/proof/chain`` for the same tip. ``network`` is that of the address, and must
    be given unless that is mainnet or devnet. The other arguments are those of :func:`check_chain_proof`.
    """
    question = _AccountQuestion(_checks(_network_of(address, network), minimum_work, now, progress), address)
    question.checks.fetched += len(answer) + len(chain_answer)
    question.take(question.check(None, answer, chain_answer))
    return question.answer()


def check_payment_proof(
    answer: bytes,
    order: Order,
    *,
    tip: str | None = None,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenPayment:
    """The payment of ``order`` that a proof proves; raises InvalidProof.

    ``answer`` is what ``Client.proof`` returns. With ``tip``, the hash of a block that you trust, the proof must end in
    that block. The other arguments are those of :func:`check_chain_proof`. The order decides how many confirmations are
    enough.
    """
    if tip is not None and not (isinstance(tip, str) and _HASH.fullmatch(tip)):
        raise InvalidInput("tip must be the hash of a block, 64 hex digits")
    question = _PaymentQuestion(_checks(order.network, minimum_work, now, progress), order)
    question.checks.fetched += len(answer)
    question.take(question.check(None, answer, tip=tip))
    return question.answer()


# With one or several nodes


def _several(nodes: Any, kind: type[T]) -> Sequence[T]:
    several = [nodes] if isinstance(nodes, kind) else list(nodes) if isinstance(nodes, Iterable) else []
    if not several or not all(isinstance(node, kind) for node in several):
        raise InvalidInput(f"give {kind.__name__} objects, at least one")
    return several


def _asked(nodes: Client | Iterable[Client], question: _Question[C, T]) -> T:
    # One after the other: they share what was computed, and a check takes all processors.
    for node in _several(nodes, Client):
        try:
            question.take(node._run(question.claim(node.url)))
        except InvalidInput:
            raise
        except SvcPayError as error:
            question.refuse(node.url, error)
    return question.answer()


async def _asked_async(nodes: AsyncClient | Iterable[AsyncClient], question: _Question[C, T]) -> T:
    for node in _several(nodes, AsyncClient):
        try:
            question.take(await node._run(question.claim(node.url)))
        except InvalidInput:
            raise
        except SvcPayError as error:
            question.refuse(node.url, error)
    return question.answer()


def verify_chain(
    nodes: Client | Iterable[Client],
    network: Network,
    *,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenChain:
    """The chain with the most work that a node, or any of several, proves; raises SvcPayError if none does.

    The last arguments are those of :func:`check_chain_proof`.
    """
    return _asked(nodes, _ChainQuestion(_checks(network, minimum_work, now, progress)))


def proven_balance(
    nodes: Client | Iterable[Client],
    address: str,
    *,
    network: Network | None = None,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenAccount:
    """The account of an address after the tip of the chain with the most work; raises SvcPayError.

    ``network`` is by default that of the nodes. The last arguments are those of :func:`check_account_proof`.
    """
    several = _several(nodes, Client)
    checks = _checks(_network_of(address, network or several[0].network), minimum_work, now, progress)
    return _asked(several, _AccountQuestion(checks, address))


def proven_payment(
    nodes: Client | Iterable[Client],
    order: Order,
    *,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenPayment:
    """The payment of an order on the chain with the most work; raises SvcPayError.

    A node that does not have the payment must prove its chain too, so that none with less work hides it. The last
    arguments are those of :func:`check_chain_proof`.
    """
    return _asked(nodes, _PaymentQuestion(_checks(order.network, minimum_work, now, progress), order))


async def async_verify_chain(
    nodes: AsyncClient | Iterable[AsyncClient],
    network: Network,
    *,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenChain:
    """See :func:`verify_chain`; checks run in a thread, which calls ``progress``."""
    return await _asked_async(nodes, _ChainQuestion(_checks(network, minimum_work, now, progress)))


async def async_proven_balance(
    nodes: AsyncClient | Iterable[AsyncClient],
    address: str,
    *,
    network: Network | None = None,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenAccount:
    """See :func:`proven_balance`; checks run in a thread, which calls ``progress``."""
    several = _several(nodes, AsyncClient)
    checks = _checks(_network_of(address, network or several[0].network), minimum_work, now, progress)
    return await _asked_async(several, _AccountQuestion(checks, address))


async def async_proven_payment(
    nodes: AsyncClient | Iterable[AsyncClient],
    order: Order,
    *,
    minimum_work: int = 0,
    now: int | None = None,
    progress: Progress | None = None,
) -> ProvenPayment:
    """See :func:`proven_payment`; checks run in a thread, which calls ``progress``."""
    checks = _checks(order.network, minimum_work, now, progress)
    return await _asked_async(nodes, _PaymentQuestion(checks, order))
