"""The checks that cost time, in threads of their own: parsing, signatures, participation work (docs/protocol.md 10)."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, ParamSpec, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults, succeed

from svcd.chain.block import Block, Header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.work import check_work
from svcd.node.threads import Worker

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Verdict = RuleViolation | None
Reading = Callable[[bytes, NetworkParams], Block]
"""Takes the block from a text; raises RuleViolation."""

_SMALLEST_CHUNK: Final = 64
_HEADER_CHUNK: Final = 8
_REMEMBERED: Final = 50_000
REMEMBERED_HEADERS: Final = 16_384
"""Headers with good work whose blocks are still to come; synchronisation fetches fewer ahead."""


class Verifier:
    """Checks blocks and transfers on ``lanes`` threads; at most ``capacity`` blocks may wait for their work check."""

    def __init__(self, params: NetworkParams, worker: Worker, *, lanes: int, capacity: int) -> None:
        self._params = params
        self._worker = worker
        self._lanes = lanes
        self._capacity = capacity
        self._waiting = 0
        self._verified: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._sealed: OrderedDict[bytes, bytes] = OrderedDict()
        """By hash the signature of headers whose signature and work hold."""

    @property
    def waiting(self) -> int:
        """How many blocks wait for their work to be checked."""
        return self._waiting

    @property
    def capacity(self) -> int:
        """How many may."""
        return self._capacity

    def parse(self, batch: Sequence[tuple[Reading, bytes | Block]]) -> Deferred[list[Block | RuleViolation]]:
        """The blocks in ``batch``, each in the reading it comes with, or why one is none.

        A block that is parsed already stays as it is.
        """
        if all(isinstance(data, Block) for _, data in batch):
            return succeed([data for _, data in batch if isinstance(data, Block)])
        params = self._params
        return self._worker.run(lambda: [_parsed(read, data, params) for read, data in batch])

    def check_seals(self, blocks: Sequence[Block]) -> Deferred[list[Verdict]]:
        """For each block whether its producer signed it and its transactions are those it commits to."""
        sealed = [self.is_sealed(block.header) for block in blocks]
        return self._worker.run(
            lambda: [
                _verdict(Block.check_body if known else _check_seal, block)
                for block, known in zip(blocks, sealed, strict=True)
            ]
        )

    async def check_work(self, blocks: Sequence[Block]) -> list[Verdict]:
        """For each block whether its participation work and the signatures of its transfers are good.

        Raises NotYet(BUSY) where more blocks wait than the queue takes.
        """
        if self._waiting + len(blocks) > self._capacity:
            raise NotYet(Wait.BUSY, f"{self._waiting} blocks wait to be verified; send this one again later")
        params = self._params
        verdicts: list[Verdict] = [None] * len(blocks)
        # The work is done on what the hash commits to, so the hash is enough to know that it was checked.
        unknown = [index for index, block in enumerate(blocks) if block.header.hash not in self._sealed]
        self._waiting += len(blocks)
        try:
            headers = [blocks[index].header for index in unknown]
            found = await self._spread(headers, lambda header: check_work(header, params), smallest=1)
        finally:
            self._waiting -= len(blocks)
        for index, verdict in zip(unknown, found, strict=True):
            verdicts[index] = verdict
        owners = [
            (index, transfer)
            for index, (block, verdict) in enumerate(zip(blocks, verdicts, strict=True))
            if verdict is None
            for transfer in block.transfers
            if (transfer.txid, transfer.signature) not in self._verified
        ]
        found = await self._spread([transfer for _, transfer in owners], Transfer.check_signature)
        for (index, _), verdict in zip(owners, found, strict=True):
            verdicts[index] = verdicts[index] or verdict
        return verdicts

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """A Deferred of what ``function`` returns, which a thread of the verifier runs."""
        return self._worker.run(function, *args, **kwargs)

    async def check_headers(self, headers: Sequence[Header]) -> list[Verdict]:
        """For each header whether its producer signed it and its participation work is good.

        Headers that hold are remembered, so that their blocks are not checked for the same again. The check stops soon
        after the first header that does not hold: later ones then have the same verdict. Few headers at a time wait in
        the queue of the threads, so that a payment's signature never waits behind a long chain of headers.
        """
        verdicts: list[Verdict] = [None] * len(headers)
        unknown = [index for index, header in enumerate(headers) if not self.is_sealed(header)]
        chunks = [unknown[start : start + _HEADER_CHUNK] for start in range(0, len(unknown), _HEADER_CHUNK)]
        waiting = iter(chunks)
        failed: list[Verdict] = []

        async def take_turns() -> None:
            while not failed and (chunk := next(waiting, None)) is not None:
                found = await self._worker.run(_verdicts, self._check_header, [headers[index] for index in chunk])
                for index, verdict in zip(chunk, found, strict=True):
                    verdicts[index] = verdict
                failed.extend(verdict for verdict in found if verdict is not None)

        turns = [Deferred.fromCoroutine(take_turns()) for _ in range(self._lanes)]
        try:
            await gatherResults(turns, consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()
        for chunk in waiting:
            for index in chunk:
                verdicts[index] = failed[0]
        for header, verdict in zip(headers, verdicts, strict=True):
            if verdict is None:
                self._sealed[header.hash] = header.signature
        while len(self._sealed) > REMEMBERED_HEADERS:
            self._sealed.popitem(last=False)
        return verdicts

    def is_sealed(self, header: Header) -> bool:
        """Whether signature and work of exactly this header have been checked and hold."""
        return self._sealed.get(header.hash) == header.signature

    def _check_header(self, header: Header) -> None:
        header.check_signature()
        check_work(header, self._params)

    async def check_transfers(self, transfers: Sequence[Transfer]) -> list[Verdict]:
        """For each transfer whether its sender signed it; those that pass are remembered by (txid, signature)."""
        verdicts = await self._spread(transfers, Transfer.check_signature)
        self.trust([transfer for transfer, verdict in zip(transfers, verdicts, strict=True) if verdict is None])
        return verdicts

    def check_here(self, transfer: Transfer) -> Verdict:
        """The same for one transfer, in the reactor's turn."""
        if (transfer.txid, transfer.signature) in self._verified:
            return None
        verdict = _verdict(Transfer.check_signature, transfer)
        if verdict is None:
            self.trust([transfer])
        return verdict

    def trust(self, transfers: Iterable[Transfer]) -> None:
        """Remember transfers whose signatures are known to be good."""
        for transfer in transfers:
            self._verified[transfer.txid, transfer.signature] = None
        while len(self._verified) > _REMEMBERED:
            self._verified.popitem(last=False)

    async def _spread(
        self, items: Sequence[S], check: Callable[[S], None], *, smallest: int = _SMALLEST_CHUNK
    ) -> list[Verdict]:
        """The verdict of ``check`` on every item, in chunks that keep every lane busy."""
        size = max(smallest, -(-len(items) // self._lanes))
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
        if not chunks:
            return []
        jobs = [self._worker.run(_verdicts, check, chunk) for chunk in chunks]
        return [verdict for part in await gatherResults(jobs, consumeErrors=True) for verdict in part]


def _parsed(read: Reading, data: bytes | Block, params: NetworkParams) -> Block | RuleViolation:
    if isinstance(data, Block):
        return data
    try:
        return read(data, params)
    except RuleViolation as violation:
        return violation


def _check_seal(block: Block) -> None:
    block.header.check_signature()
    block.check_body()


def _verdicts(check: Callable[[S], None], items: Sequence[S]) -> list[Verdict]:
    return [_verdict(check, item) for item in items]


def _verdict(check: Callable[[S], None], item: S) -> Verdict:
    try:
        check(item)
    except RuleViolation as violation:
        return violation
    return None
