"""What several nodes prove, of which none is trusted: the chain from the genesis, and claims on it (protocol.md 13).

Of the chains that the nodes prove, the one with the most work counts; a claim counts if it holds on that chain.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Generic, TypeVar

from attrs import define, field, frozen

from svcd.chain.block import Header
from svcd.chain.encoding import exact_fields, parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.work import check_work
from svcd.cli.errors import CommandError
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import format_time
from svcd.cli.session import Session
from svcd.light.chain_proof import ProvenChain, Unproved, check_chain, parse_chain_proof
from svcd.quantities import counted

C = TypeVar("C")
R = TypeVar("R")

CLOCK_TOLERANCE: Final = 300_000
"""How far the newest block may be ahead of this computer's clock, in milliseconds."""
_ANSWER: Final = frozenset(("ok", "proof"))


@frozen
class Claim(Generic[C]):
    """What a node shows: a chain, and what it says of that chain."""

    chain: ProvenChain
    """Checked, with the work of its headers once :meth:`Questions.most_work` has it."""
    content: C | None
    """None if the node does not claim what was asked."""
    problem: str = ""
    """The node's sentence if ``content`` is None."""


@frozen
class Problem:
    """Why a node counts for nothing."""

    url: str
    sentence: str


@frozen(kw_only=True)
class Verified(Generic[R]):
    """What holds on the chain with the most work."""

    result: R
    params: NetworkParams
    chain: ProvenChain
    agreeing: tuple[str, ...]
    """The URLs of the nodes whose claims hold on this chain."""
    problems: tuple[Problem, ...]
    fetched: int
    """Bytes of all answers."""
    age: int
    """Milliseconds since the slot of the tip began, by this computer's clock; negative if it is ahead."""

    def members(self, not_shown: str) -> dict[str, object]:
        """The members that say how much was checked, for JSON; ``not_shown`` is one sentence."""
        tip = self.chain.tip
        nodes: list[dict[str, object]] = [{"url": url, "agrees": True} for url in self.agreeing]
        nodes += [{"url": each.url, "agrees": False, "problem": each.sentence} for each in self.problems]
        return {
            "trustless": True,
            "chainId": self.params.chain_id,
            "tip": {"height": str(tip.height), "hash": tip.hash.hex(), "time": str(self.params.slot_time(tip.slot))},
            "tipAgeSeconds": self.age // 1000,
            "work": str(tip.work),
            "fetchedBytes": self.fetched,
            "nodes": nodes,
            "notShown": not_shown,
        }

    def rows(self, not_shown: str) -> list[tuple[str, str]]:
        """The same as rows of a property table."""
        tip = self.chain.tip
        count = len(self.agreeing) + len(self.problems)
        return [
            ("tip", f"{tip.height}, {tip.hash.hex()}"),
            ("tip time", f"{format_time(self.params.slot_time(tip.slot))}, {_age(self.age)}"),
            ("work", f"{format_work(tip.work)}, checked by samples from the genesis block on"),
            ("fetched", f"{self.fetched:,} bytes"),
            ("agree", f"{len(self.agreeing)} of {counted(count, 'node')}"),
            *[("refused", f"{each.url}: {each.sentence}") for each in self.problems],
            ("not shown", not_shown),
        ]


def format_work(work: int) -> str:
    """An amount of work: the expected number of evaluations of Argon2id."""
    return "1 hash" if work == 1 else f"{work:,} hashes"


def _age(milliseconds: int) -> str:
    seconds = abs(milliseconds) // 1000
    size, unit = next(
        (size, unit)
        for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
        if seconds >= size or size == 1
    )
    return f"{counted(seconds // size, unit)} {'ago' if milliseconds >= 0 else 'ahead of this clock'}"


@define
class Questions:
    """The questions of one command to several nodes of one network."""

    session: Session
    params: NetworkParams
    minimum_work: int = 0
    """A chain with less work, in hashes, is refused."""
    fetched: int = 0
    """Bytes of all answers so far."""
    _checked: set[bytes] = field(factory=set)
    """The hashes of the headers whose work has been checked: nodes of one chain show many of the same."""

    def proof(self, node: NodeClient, path: str, *, members: frozenset[str] = _ANSWER) -> object:
        """The member ``proof`` of an answer, which is strict JSON with ``members``; raises CommandError, Unproved."""
        fetched = node.fetch("GET", path)
        self.fetched += len(fetched.body)
        node.parse(fetched)
        try:
            return exact_fields(parse_json(fetched.body, counted=False), members, "the answer")["proof"]
        except RuleViolation as violation:
            raise Unproved(f"this is not a proof: {violation.detail}") from None

    def chain(self, node: NodeClient, tip: bytes | None = None) -> ProvenChain:
        """The chain that a node proves, but for the work of its headers; raises CommandError or Unproved.

        With ``tip``, the hash of a block, the chain up to that one.
        """
        path = "/rpc/proof/chain" if tip is None else f"/rpc/proof/chain?tip={tip.hex()}"
        proof = parse_chain_proof(self.proof(node, path), self.params)
        chain = check_chain(proof, self.params, minimum_work=self.minimum_work)
        if tip is not None and chain.tip.hash != tip:
            raise Unproved(f"it proves the chain up to {chain.tip.hash.hex()}, and {tip.hex()} was asked for")
        return chain

    def most_work(
        self, claim: Callable[[NodeClient], Claim[C]], check: Callable[[C, ProvenChain], R], what: str
    ) -> Verified[R]:
        """What holds of the claims on the chain with the most work; ``what`` names it if nothing does.

        ``claim`` asks a node, and ``check`` raises Unproved for what does not hold. Raises CommandError.
        """
        claims: dict[str, Claim[C]] = {}
        problems: list[Problem] = []
        for url, node in self.session.nodes():
            try:
                found = claim(node)
                self.check_time_and_work(found.chain)
                claims[url] = found
            except (CommandError, RuleViolation, Unproved) as error:
                problems.append(Problem(url, str(error)))
        if claims:
            best = max((each.chain for each in claims.values()), key=lambda chain: chain.tip.work)
            results: list[tuple[str, R]] = []
            for url, found in sorted(claims.items(), key=lambda item: -item[1].chain.tip.work):
                try:
                    results.append((url, _checked(found, best, check, self.params)))
                except Unproved as error:
                    problems.append(Problem(url, str(error)))
            if results:
                return Verified(
                    result=results[0][1],
                    params=self.params,
                    chain=best,
                    agreeing=tuple(url for url, _ in results),
                    problems=tuple(problems),
                    fetched=self.fetched,
                    age=self._age(best),
                )
        if len(problems) == 1:
            raise CommandError(f"{what} is not proved: {problems[0].sentence}")
        told = "; ".join(f"{each.url}: {each.sentence}" for each in problems)
        raise CommandError(f"no node proves {what}: {told}")

    def _age(self, chain: ProvenChain) -> int:
        return self.session.runtime.clock.milliseconds() - self.params.slot_time(chain.tip.slot)

    def check_time_and_work(self, chain: ProvenChain) -> None:
        """Raise Unproved for a tip that lies in the future, and RuleViolation for a header without work."""
        if self._age(chain) < -CLOCK_TOLERANCE:
            raise Unproved("its newest block is more than five minutes ahead of this computer's clock")
        headers = [header for header in chain.headers.values() if header.hash not in self._checked]
        _check_headers_work(self.session, headers, self.params)
        self._checked.update(header.hash for header in headers)


def _checked(claim: Claim[C], best: ProvenChain, check: Callable[[C, ProvenChain], R], params: NetworkParams) -> R:
    """What a claim says, if it is on the chain ``best`` and holds; raises Unproved."""
    tip = claim.chain.tip
    if tip.hash not in {params.genesis_hash, *(header.hash for header in best.headers.values())}:
        raise Unproved(
            f"its chain is another one, or far behind: it ends at height {tip.height} with the work of"
            f" {format_work(tip.work)}, less than {format_work(best.tip.work)}"
            if tip.work < best.tip.work
            else f"its chain ends in another block of the same work at height {tip.height}"
        )
    if claim.content is None:
        raise Unproved(claim.problem)
    return check(claim.content, best)


def _check_headers_work(session: Session, headers: Sequence[Header], params: NetworkParams) -> None:
    """Check the work of every header on all processors, with a progress bar; raises RuleViolation."""
    if not headers:
        return
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="work")
    with session.progress_bar(len(headers), "Checking the work") as bar:
        try:
            for _ in pool.map(partial(check_work, params=params), headers):
                bar.update(1)
        finally:
            # After a bad header or Ctrl-C, do not wait for the rest.
            pool.shutdown(cancel_futures=True)


def network_of(address: str, networks: Iterable[NetworkParams]) -> NetworkParams:
    """The network of a valid address of one of ``networks``."""
    return next(params for params in networks if address.startswith(f"{params.address_prefix}1"))
