"""What a client can check that knows only the genesis hash of a network, and trusts no node (docs/protocol.md 13).

Of several nodes the one that proves the chain with the most work wins, so that one honest node among them is enough.
Argon2id comes from argon2-cffi, which the extra ``light`` installs. A check takes all processors for some seconds.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any, Final, Generic, TypeVar

from svc_pay._svcd.chain.accounts import Account
from svc_pay._svcd.chain.address import encode_address
from svc_pay._svcd.chain.encoding import exact_fields, parse_json
from svc_pay._svcd.chain.errors import RuleViolation
from svc_pay._svcd.chain.state_root import state_root
from svc_pay._svcd.chain.transition import ChainPoint, genesis_accounts
from svc_pay._svcd.chain.work import check_work
from svc_pay._svcd.light.account_proof import check_account, parse_account_proof
from svc_pay._svcd.light.chain_proof import MAX_PROOF_BYTES, Unproved, check_chain, parse_chain_proof
from svc_pay._svcd.light.chain_proof import ProvenChain as CheckedChain
from svc_pay._svcd.light.payment_proof import Proof, check, check_depth, check_payment, parse_proof
from svc_pay.calls import Blocking, Steps, ask, get
from svc_pay.calls import proof as proof_of
from svc_pay.chain import Network, check_address, check_number, key_hash_of, network_of
from svc_pay.client import AsyncClient, Client
from svc_pay.errors import ApiError, InvalidInput, InvalidProof, SvcPayError
from svc_pay.model import Order

T = TypeVar("T")
C = TypeVar("C")

Progress = Callable[[int, int], None]
"""Called with the number of headers whose work has been checked, and that of all."""

AHEAD: Final = 300_000
"""How far the newest block may be in the future of this computer's clock, in milliseconds."""

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


@contextmanager
def _proving() -> Iterator[None]:
    """Turns what is wrong with a proof into InvalidProof."""
    try:
        yield
    except (Unproved, RuleViolation) as error:
        raise InvalidProof(str(error)) from None


# What one node claims


@dataclass(frozen=True, slots=True)
class _Claim(Generic[C]):
    """A checked chain, and what a node shows on it."""

    url: str | None
    read: CheckedChain
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

    def chain(self, answer: bytes) -> CheckedChain:
        """The chain that an answer proves; raises InvalidProof."""
        with _proving():
            proof = parse_chain_proof(_proof_in(answer), self.network.rules)
            return self.checked(check_chain(proof, self.network.rules, minimum_work=self.minimum_work))

    def checked(self, read: CheckedChain) -> CheckedChain:
        """A chain whose work is right and whose tip is not in the future; raises Unproved or RuleViolation."""
        rules = self.network.rules
        if rules.slot_time(read.tip.slot) > self.now + AHEAD:
            raise Unproved("the newest block is more than five minutes in the future of this computer's clock")
        left = [header for header in read.headers.values() if header.hash not in self.evaluated]
        pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="svc-pay-work")
        try:
            work = pool.map(partial(check_work, params=rules), left)
            for done, (header, _) in enumerate(zip(left, work, strict=True), 1):
                self.evaluated.add(header.hash)
                if self.progress is not None:
                    self.progress(done, len(left))
        finally:
            # After a header without work the rest is of no interest.
            pool.shutdown(cancel_futures=True)
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
    try:
        import argon2.low_level  # noqa: F401
    except ImportError:
        raise InvalidInput("checking a chain needs Argon2id: pip install argon2-cffi") from None
    present = int(time() * 1000) if now is None else check_number(now, "now")
    return _Checks(network, minimum_work, present, progress)


def _proof_in(answer: bytes, *without_value: str) -> object:
    """The member ``proof`` of an answer that has ``ok`` besides, and the others as null.

    Raises Unproved or RuleViolation.
    """
    given: object = answer
    if not isinstance(given, bytes):
        raise InvalidInput("give the answer of the node as bytes")
    if len(answer) > MAX_PROOF_BYTES:
        raise Unproved(f"the answer has {len(answer)} bytes, more than {MAX_PROOF_BYTES}")
    fields = exact_fields(parse_json(answer, counted=False), frozenset(("ok", "proof", *without_value)), "the answer")
    if fields["ok"] is not True:
        raise Unproved("ok must be true")
    for name in without_value:
        if fields[name] is not None:
            raise Unproved(f"{name} must be null")
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
    def result(self, content: C, head: ChainPoint, chain: ProvenChain) -> T:
        """What was asked, for a claim on a chain that ends in ``head``."""

    def confirm(self, content: C, head: ChainPoint) -> None:
        """Raise InvalidProof unless a claim meets what was asked, on a chain that ends in ``head``."""

    def take(self, claim: _Claim[C]) -> None:
        """Keep what a node claims."""
        self._claims.append(claim)

    def refuse(self, url: str, error: SvcPayError) -> None:
        """Keep why a node does not count."""
        self._refused.append(Refused(url, error))

    def answer(self) -> T:
        """What holds on the chain with the most work; raises SvcPayError."""
        claims = sorted(self._claims, key=lambda claim: -claim.read.tip.work)
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
        (url, content), head = counting[0], claims[0].read.tip
        return self.result(content, head, self._chain(head, url, tuple(refused)))

    def _confirmed(self, claim: _Claim[C], best: CheckedChain) -> C:
        """What a node claims, if it holds on the chain with the most work; raises SvcPayError."""
        head = claim.read.tip
        shown = {self.checks.network.rules.genesis_hash, *(each.hash for each in best.headers.values())}
        if head.hash not in shown:
            raise InvalidProof(
                f"its chain is another one, or far behind: it ends at height {head.height} with the work of"
                f" {head.work:,} hashes, where another node proves {best.tip.work:,}"
            )
        if isinstance(claim.content, SvcPayError):
            raise claim.content
        self.confirm(claim.content, best.tip)
        return claim.content

    def _chain(self, head: ChainPoint, url: str | None, refused: tuple[Refused, ...]) -> ProvenChain:
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

    def result(self, content: None, head: ChainPoint, chain: ProvenChain) -> ProvenChain:
        return chain


class _AccountQuestion(_Question[Account | None, ProvenAccount]):
    """What does the account of an address have?"""

    def __init__(self, checks: _Checks, address: str) -> None:
        super().__init__(checks)
        self._address = address

    def claim(self, url: str | None) -> Steps[_Claim[Account | None]]:
        answer = yield from self.checks.fetch(f"/rpc/proof/account/{self._address}")
        with _proving():
            tip = parse_account_proof(_proof_in(answer), self.checks.network.rules).block.hex()
        chain_answer = yield from self.checks.fetch("/rpc/proof/chain", {"tip": tip})
        return (yield from _threaded(lambda: self.check(url, answer, chain_answer)))

    def check(self, url: str | None, answer: bytes, chain_answer: bytes) -> _Claim[Account | None]:
        """What two answers prove; raises InvalidProof."""
        network = self.checks.network
        with _proving():
            proof = parse_account_proof(_proof_in(answer), network.rules)
            if proof.key != key_hash_of(self._address, network):
                raise Unproved("the proof is for another address")
            read = self.checks.chain(chain_answer)
            tip = read.tip
            # No proof shows the header of the genesis, whose accounts are in the rules.
            root = (
                read.headers[tip.height].state_root
                if tip.height
                else state_root(genesis_accounts(network.rules).items())
            )
            return _Claim(url, read, check_account(proof, block=tip.hash, height=tip.height, state_root=root))

    def result(self, content: Account | None, head: ChainPoint, chain: ProvenChain) -> ProvenAccount:
        account = content or Account()
        exists = content is not None
        return ProvenAccount(self._address, exists, account.balance, account.nonce, account.held_since, chain)


@dataclass(frozen=True, slots=True)
class _Payment:
    """A transfer in a block, as its proof shows it."""

    proof: Proof
    block_hash: bytes


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
        with _proving():
            proof = parse_proof(_proof_in(answer, "next"), checks.network.rules)
            read = check(proof, minimum_work=checks.minimum_work).chain
            last = read.tip.hash.hex()
            if tip is not None and last != tip.lower():
                raise Unproved(f"the proof ends in block {last}, not in {tip}")
            return _Claim(url, checks.checked(read), _Payment(proof, read.headers[proof.height].hash))

    def confirm(self, content: _Payment, head: ChainPoint) -> None:
        with _proving():
            check_payment(self._order, content.proof)
            check_depth(self._order.confirmations, head.height - content.proof.height + 1)

    def result(self, content: _Payment, head: ChainPoint, chain: ProvenChain) -> ProvenPayment:
        transfer, height = content.proof.transfer, content.proof.height
        sender, block = encode_address(transfer.sender, self.checks.network.prefix), content.block_hash.hex()
        return ProvenPayment(transfer.txid.hex(), sender, block, height, head.height - height + 1, chain)


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
