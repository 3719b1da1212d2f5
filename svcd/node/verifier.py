"""The expensive checks, in threads of their own: parsing, signatures, participation work (docs/protocol.md 10)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore, FirstError, gatherResults

from svcd.bounded_dict import BoundedDict
from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Known, Transfer
from svcd.chain.work import check_work
from svcd.interfaces import Worker

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Verdict = RuleViolation | None
Parser = Callable[[bytes, NetworkParams, Known | None], Block]
"""Parses a block, but not its known transfers; raises RuleViolation."""

_SIGNATURES: Final = (64, 256)
"""The least and the greatest size of a chunk of signatures, if there are so many."""
_HASHES: Final = (1, 8)
"""The same for hashes of participation work."""
_REMEMBERED: Final = 50_000
REMEMBERED_HEADERS: Final = 16_384
"""Verified headers that are remembered until their blocks come; synchronisation fetches fewer ahead."""


class Verifier:
    """Checks blocks and transfers on ``threads`` threads; at most ``capacity`` blocks wait for the check of their work.

    The work is cut into small chunks, of which few are given to the threads at a time. Chunks of submitted transfers
    have places of their own beside those of blocks and headers: a payment never waits for a flood of blocks.
    """

    def __init__(
        self, params: NetworkParams, worker: Worker, *, threads: int, capacity: int, known: Known | None = None
    ) -> None:
        self._params = params
        self._worker = worker
        self._known = known
        self.threads = threads
        """How many threads there are."""
        self.capacity = capacity
        """How many blocks may wait for the check of their work."""
        self.waiting = 0
        """How many do."""
        # One more than threads: no thread is idle while the reactor prepares its next chunk.
        self._of_blocks, self._of_transfers = DeferredSemaphore(threads + 1), DeferredSemaphore(threads + 1)
        self._verified: BoundedDict[tuple[bytes, bytes], None] = BoundedDict(_REMEMBERED)
        self._verified_headers: BoundedDict[bytes, bytes] = BoundedDict(REMEMBERED_HEADERS)
        """By hash the signatures of headers whose signature and work have been verified."""

    def parse_and_check(
        self, batch: Sequence[bytes | Block], parser: Parser
    ) -> Deferred[list[tuple[Block | None, Verdict]]]:
        """Each block, or None for a text that is none, and the violation that shows in the block alone.

        That is: it is malformed, the producer's signature is wrong, or the transactions are not those that the header
        commits to.
        """
        return self._worker.run(lambda: [self._parse(data, parser) for data in batch])

    def _parse(self, data: bytes | Block, parser: Parser) -> tuple[Block | None, Verdict]:
        block: Block | None = None
        try:
            block = data if isinstance(data, Block) else parser(data, self._params, self._known)
            if not self.is_verified(block.header):
                block.header.check_signature()
            block.check_body()
        except RuleViolation as violation:
            return block, violation
        return block, None

    async def check_work_and_signatures(self, blocks: Sequence[Block]) -> list[Verdict]:
        """Verify each block's participation work and the signatures of its transfers.

        Raises NotYet(BUSY) if more blocks than ``capacity`` would wait.
        """
        if self.waiting + len(blocks) > self.capacity:
            raise NotYet(Wait.BUSY, f"{self.waiting} blocks wait to be verified; send this one again later")
        verdicts: list[Verdict] = [None] * len(blocks)
        # The hash covers the work, so it suffices to recognise what has been verified.
        unknown = [index for index, block in enumerate(blocks) if block.header.hash not in self._verified_headers]
        self.waiting += len(blocks)
        try:
            headers = [blocks[index].header for index in unknown]
            found = await self._in_chunks(self._of_blocks, headers, self._check_work, _HASHES)
        finally:
            self.waiting -= len(blocks)
        for index, verdict in zip(unknown, found, strict=True):
            verdicts[index] = verdict
        owners = [
            (index, transfer)
            for index, (block, verdict) in enumerate(zip(blocks, verdicts, strict=True))
            if verdict is None
            for transfer in block.transfers
            if (transfer.txid, transfer.signature) not in self._verified
        ]
        transfers = [transfer for _, transfer in owners]
        found = await self._in_chunks(self._of_blocks, transfers, Transfer.check_signature, _SIGNATURES)
        for (index, _), verdict in zip(owners, found, strict=True):
            verdicts[index] = verdicts[index] or verdict
        return verdicts

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """Run ``function`` in a thread of the verifier; a Deferred of its result."""
        return self._worker.run(function, *args, **kwargs)

    async def check_headers(self, headers: Sequence[Header]) -> list[Verdict]:
        """Verify each header's signature and participation work.

        Valid headers are remembered, so that their blocks are not verified again. The check ends soon after the first
        invalid header; later ones then get the same verdict.
        """
        verdicts: list[Verdict] = [None] * len(headers)
        unknown = [index for index, header in enumerate(headers) if not self.is_verified(header)]
        chain = [headers[index] for index in unknown]
        found = await self._in_chunks(self._of_blocks, chain, self._check_header, _HASHES, as_chain=True)
        for index, verdict in zip(unknown, found, strict=True):
            verdicts[index] = verdict
        for header, verdict in zip(headers, verdicts, strict=True):
            if verdict is None:
                self._verified_headers[header.hash] = header.signature
        return verdicts

    def is_verified(self, header: Header) -> bool:
        """Whether signature and work of exactly this header have been verified."""
        return self._verified_headers.get(header.hash) == header.signature

    def _check_header(self, header: Header) -> None:
        header.check_signature()
        self._check_work(header)

    def _check_work(self, header: Header) -> None:
        check_work(header, self._params)

    async def check_transfers(self, transfers: Sequence[Transfer]) -> list[Verdict]:
        """Verify each transfer's signature, in the places for transfers; valid ones are remembered with it."""
        verdicts = await self._in_chunks(self._of_transfers, transfers, Transfer.check_signature, _SIGNATURES)
        self.trust([transfer for transfer, verdict in zip(transfers, verdicts, strict=True) if verdict is None])
        return verdicts

    def check_in_this_thread(self, transfer: Transfer) -> Verdict:
        """Verify the signature of one transfer at once, in the caller's thread."""
        if (transfer.txid, transfer.signature) in self._verified:
            return None
        (verdict,) = _verdicts(Transfer.check_signature, [transfer])
        if verdict is None:
            self.trust([transfer])
        return verdict

    def trust(self, transfers: Iterable[Transfer]) -> None:
        """Remember transfers whose signatures have been verified."""
        for transfer in transfers:
            self._verified[transfer.txid, transfer.signature] = None

    async def _in_chunks(
        self,
        turn: DeferredSemaphore,
        items: Sequence[S],
        check: Callable[[S], None],
        sizes: tuple[int, int],
        *,
        as_chain: bool = False,
    ) -> list[Verdict]:
        """The verdict of ``check`` on every item; in a chain all items after an invalid one share its verdict."""
        size = min(max(sizes[0], -(-len(items) // self.threads)), sizes[1])
        chunks = enumerate([items[start : start + size] for start in range(0, len(items), size)])
        found: dict[int, list[Verdict]] = {}

        async def take_turns() -> None:
            for number, chunk in chunks:
                found[number] = await turn.run(self._worker.run, _verdicts, check, chunk)
                bad = next(filter(None, found[number]), None)
                if as_chain and bad is not None:
                    found.update({later: [bad] * len(remaining) for later, remaining in chunks})

        turns = [Deferred.fromCoroutine(take_turns()) for _ in range(self.threads + 1)]
        try:
            await gatherResults(turns, consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()
        return [verdict for number in sorted(found) for verdict in found[number]]


def _verdicts(check: Callable[[S], None], items: Sequence[S]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for item in items:
        try:
            check(item)
        except RuleViolation as violation:
            verdicts.append(violation)
        else:
            verdicts.append(None)
    return verdicts
