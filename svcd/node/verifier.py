"""The checks that cost time, in threads of their own: parsing, signatures, participation work (docs/protocol.md 10)."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from twisted.internet.defer import Deferred, gatherResults

from svcd.chain.block import Block, parse_block
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.work import check_work
from svcd.node.gathering import Gathering
from svcd.node.threads import Worker

S = TypeVar("S")
T = TypeVar("T")
Verdict = RuleViolation | None

_SMALLEST_CHUNK: Final = 64
_REMEMBERED: Final = 50_000


class Verifier:
    """Checks blocks and transfers on ``lanes`` threads; at most ``capacity`` blocks may wait for their work check."""

    def __init__(self, params: NetworkParams, worker: Worker, *, lanes: int, capacity: int) -> None:
        self._params = params
        self._worker = worker
        self._lanes = lanes
        self._capacity = capacity
        self._waiting = 0
        self._verified: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._single: Gathering[Transfer, Verdict] = Gathering(
            lambda transfers: Deferred.fromCoroutine(self.check_transfers(transfers))
        )

    @property
    def waiting(self) -> int:
        """How many blocks wait for their work to be checked."""
        return self._waiting

    @property
    def capacity(self) -> int:
        """How many may."""
        return self._capacity

    def parse(self, batch: Sequence[bytes]) -> Deferred[list[Block | RuleViolation]]:
        """The blocks in ``batch``, or why one is none."""
        params = self._params
        return self._worker.run(lambda: [_parsed(data, params) for data in batch])

    def check_seals(self, blocks: Sequence[Block]) -> Deferred[list[Verdict]]:
        """For each block whether its producer signed it and its transactions are those it commits to."""
        return self._worker.run(lambda: [_verdict(_check_seal, block) for block in blocks])

    async def check_work(self, blocks: Sequence[Block]) -> list[Verdict]:
        """For each block whether its participation work and the signatures of its transfers are good.

        Raises NotYet(BUSY) where more blocks wait than the queue takes.
        """
        if self._waiting + len(blocks) > self._capacity:
            raise NotYet(Wait.BUSY, f"{self._waiting} blocks wait to be verified; send this one again later")
        params = self._params
        self._waiting += len(blocks)
        try:
            verdicts = await self._spread(blocks, lambda block: check_work(block.header, params), smallest=1)
        finally:
            self._waiting -= len(blocks)
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

    async def check_transfers(self, transfers: Sequence[Transfer]) -> list[Verdict]:
        """For each transfer whether its sender signed it; those that pass are remembered by (txid, signature)."""
        verdicts = await self._spread(transfers, Transfer.check_signature)
        for transfer, verdict in zip(transfers, verdicts, strict=True):
            if verdict is None:
                self._verified[transfer.txid, transfer.signature] = None
        while len(self._verified) > _REMEMBERED:
            self._verified.popitem(last=False)
        return verdicts

    def check_transfer(self, transfer: Transfer) -> Deferred[Verdict]:
        """The same for one transfer; those that come while others are being checked share one job."""
        return self._single.add(transfer)

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


def _parsed(data: bytes, params: NetworkParams) -> Block | RuleViolation:
    try:
        return parse_block(data, params)
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
