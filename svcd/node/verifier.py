"""The checks that cost time, in threads of their own: parsing, signatures, participation work (docs/protocol.md 10)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore, FirstError, gatherResults

from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.work import check_work
from svcd.node.recent import Recent
from svcd.node.threads import Worker

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Verdict = RuleViolation | None
Reading = Callable[[bytes, NetworkParams], Block]
"""Takes the block from a text; raises RuleViolation."""

_SIGNATURES: Final = (64, 256)
"""How many are checked in one piece, at least where there are so many, and at most."""
_HASHES: Final = (1, 8)
"""The same for participation work."""
_REMEMBERED: Final = 50_000
REMEMBERED_HEADERS: Final = 16_384
"""Headers with good work whose blocks are still to come; synchronisation fetches fewer ahead."""


class Verifier:
    """Checks blocks and transfers on ``lanes`` threads; at most ``capacity`` blocks may wait for their work check.

    Both in small pieces, of which few at a time wait in the queue of the threads: those of blocks and headers, and
    beside them those of transfers, so that a payment never waits for a flood of blocks.
    """

    def __init__(self, params: NetworkParams, worker: Worker, *, lanes: int, capacity: int) -> None:
        self._params = params
        self._worker = worker
        self.lanes = lanes
        """How many threads there are."""
        self.capacity = capacity
        """How many blocks may wait for their work to be checked."""
        self.waiting = 0
        """How many do."""
        # One more than there are threads: none is idle until the reactor has brought the next.
        self._of_blocks, self._of_transfers = DeferredSemaphore(lanes + 1), DeferredSemaphore(lanes + 1)
        self._verified: Recent[tuple[bytes, bytes], None] = Recent(_REMEMBERED)
        self._sealed: Recent[bytes, bytes] = Recent(REMEMBERED_HEADERS)
        """By hash the signature of headers whose signature and work hold."""

    def read(self, batch: Sequence[bytes | Block], reading: Reading) -> Deferred[list[tuple[Block | None, Verdict]]]:
        """Each block, or None where a text holds none, and what can be seen to be wrong with it by itself.

        That is: its producer did not sign it, or its transactions are not those it commits to.
        """
        return self._worker.run(lambda: [self._read(data, reading) for data in batch])

    def _read(self, data: bytes | Block, reading: Reading) -> tuple[Block | None, Verdict]:
        block: Block | None = None
        try:
            block = data if isinstance(data, Block) else reading(data, self._params)
            if not self.is_sealed(block.header):
                block.header.check_signature()
            block.check_body()
        except RuleViolation as violation:
            return block, violation
        return block, None

    async def check_work(self, blocks: Sequence[Block]) -> list[Verdict]:
        """For each block whether its participation work and the signatures of its transfers are good.

        Raises NotYet(BUSY) where more blocks wait than the queue takes.
        """
        if self.waiting + len(blocks) > self.capacity:
            raise NotYet(Wait.BUSY, f"{self.waiting} blocks wait to be verified; send this one again later")
        verdicts: list[Verdict] = [None] * len(blocks)
        # The work is done on what the hash commits to, so the hash is enough to know that it was checked.
        unknown = [index for index, block in enumerate(blocks) if block.header.hash not in self._sealed]
        self.waiting += len(blocks)
        try:
            headers = [blocks[index].header for index in unknown]
            found = await self._in_pieces(self._of_blocks, headers, self._check_work, _HASHES)
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
        found = await self._in_pieces(self._of_blocks, transfers, Transfer.check_signature, _SIGNATURES)
        for (index, _), verdict in zip(owners, found, strict=True):
            verdicts[index] = verdicts[index] or verdict
        return verdicts

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """A Deferred of what ``function`` returns, which a thread of the verifier runs."""
        return self._worker.run(function, *args, **kwargs)

    async def check_headers(self, headers: Sequence[Header]) -> list[Verdict]:
        """For each header whether its producer signed it and its participation work is good.

        Headers that hold are remembered, so that their blocks are not checked for the same again. The check stops soon
        after the first header that does not hold: later ones then have the same verdict.
        """
        verdicts: list[Verdict] = [None] * len(headers)
        unknown = [index for index, header in enumerate(headers) if not self.is_sealed(header)]
        chain = [headers[index] for index in unknown]
        found = await self._in_pieces(self._of_blocks, chain, self._check_header, _HASHES, as_chain=True)
        for index, verdict in zip(unknown, found, strict=True):
            verdicts[index] = verdict
        for header, verdict in zip(headers, verdicts, strict=True):
            if verdict is None:
                self._sealed[header.hash] = header.signature
        return verdicts

    def is_sealed(self, header: Header) -> bool:
        """Whether signature and work of exactly this header have been checked and hold."""
        return self._sealed.get(header.hash) == header.signature

    def _check_header(self, header: Header) -> None:
        header.check_signature()
        self._check_work(header)

    def _check_work(self, header: Header) -> None:
        check_work(header, self._params)

    async def check_transfers(self, transfers: Sequence[Transfer]) -> list[Verdict]:
        """For each transfer whether its sender signed it; those that pass are remembered by (txid, signature).

        However many blocks wait, the threads are given these beside them.
        """
        verdicts = await self._in_pieces(self._of_transfers, transfers, Transfer.check_signature, _SIGNATURES)
        self.trust([transfer for transfer, verdict in zip(transfers, verdicts, strict=True) if verdict is None])
        return verdicts

    def check_here(self, transfer: Transfer) -> Verdict:
        """The same for one transfer, in the reactor's turn."""
        if (transfer.txid, transfer.signature) in self._verified:
            return None
        (verdict,) = _verdicts(Transfer.check_signature, [transfer])
        if verdict is None:
            self.trust([transfer])
        return verdict

    def trust(self, transfers: Iterable[Transfer]) -> None:
        """Remember transfers whose signatures are known to be good."""
        for transfer in transfers:
            self._verified[transfer.txid, transfer.signature] = None

    async def _in_pieces(
        self,
        room: DeferredSemaphore,
        items: Sequence[S],
        check: Callable[[S], None],
        sizes: tuple[int, int],
        *,
        as_chain: bool = False,
    ) -> list[Verdict]:
        """The verdict of ``check`` on every item, from all threads; of a chain what follows on a bad one has its."""
        size = min(max(sizes[0], -(-len(items) // self.lanes)), sizes[1])
        chunks = enumerate([items[start : start + size] for start in range(0, len(items), size)])
        found: dict[int, list[Verdict]] = {}

        async def take_turns() -> None:
            for number, chunk in chunks:
                found[number] = await room.run(self._worker.run, _verdicts, check, chunk)
                bad = next(filter(None, found[number]), None)
                if as_chain and bad is not None:
                    found.update({later: [bad] * len(left) for later, left in chunks})

        turns = [Deferred.fromCoroutine(take_turns()) for _ in range(self.lanes + 1)]
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
