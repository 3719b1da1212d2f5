"""The stored headers of a chain at rest checked again as synchronisation checks those of a peer, on every core."""

import queue
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from svcd.chain.block import Header
from svcd.chain.errors import Corrupt, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint, check_header
from svcd.chain.work import work_value
from svcd.node.verifier import Verdict, Verifier
from svcd.store.chain_store import ChainReader, StoredBlock

P = ParamSpec("P")
T = TypeVar("T")
BATCH: Final = 2_000
"""Headers that are placed while those before are worked on; as many as an answer of a peer has."""
_RAW_HASHES: Final = 64
"""Argon2 hashes on each core for each of the two measurements of the machine."""


@define
class LocalThreads:
    """A Worker without a reactor: results are handed on in the thread that waits for them."""

    _pool: ThreadPoolExecutor
    _done: "queue.SimpleQueue[Callable[[], None]]" = field(factory=queue.SimpleQueue)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.node.threads.Worker`."""
        result: Deferred[T] = Deferred()

        def hand_on(future: "Future[T]") -> None:
            error = future.exception()
            if error is None:
                result.callback(future.result())
            else:
                result.errback(error)

        self._pool.submit(function, *args, **kwargs).add_done_callback(
            lambda future: self._done.put(lambda: hand_on(future))
        )
        return result

    def finish(self, work: Deferred[T]) -> T:
        """What ``work`` comes to; raises what it raises."""
        outcomes: list[T] = []
        failures: list[Any] = []
        work.addCallbacks(outcomes.append, failures.append)
        while not outcomes and not failures:
            self._done.get()()
        if failures:
            failures[0].raiseException()
        return outcomes[0]


@contextmanager
def local_threads(count: int) -> Iterator[LocalThreads]:
    """``count`` threads; what has not begun when the context ends in an error is left undone."""
    pool = ThreadPoolExecutor(count)
    try:
        yield LocalThreads(pool)
    finally:
        pool.shutdown(cancel_futures=True)


@frozen
class Verified:
    """What came of a verification; rates are those of all cores together."""

    first: int
    """The height of the first header that was verified."""
    count: int
    """Headers that hold."""
    wrong: str
    """Which header does not hold, and why; "" if all do."""
    headers_per_second: float
    raw_per_second: float
    """Argon2 hashes with the network's memory."""

    @property
    def ratio(self) -> float:
        """How much of the machine's Argon2 is used."""
        return self.headers_per_second / self.raw_per_second


def verify_headers(
    reader: ChainReader,
    params: NetworkParams,
    *,
    newest: int | None,
    threads: int,
    step: Callable[[int], object],
) -> Verified:
    """Verify place, producer's signature and participation work of the newest canonical headers, or of all.

    ``step`` is told of every further so many headers that hold. Raises Corrupt where a header cannot be read.
    """
    tip = reader.tip()
    if tip is None:
        raise Corrupt("the database has no chain")
    first = max(1, tip.height + 1 - (tip.height if newest is None else newest))
    with local_threads(threads) as worker:
        raw = _raw_seconds(worker, params, threads)
        began = time.perf_counter()
        count, wrong = _verify(reader, worker, Verifier(params, worker, lanes=threads, capacity=0), params, first, step)
        seconds = time.perf_counter() - began
        raw += _raw_seconds(worker, params, threads)
    hashes = 2 * threads * _RAW_HASHES
    return Verified(first, count, wrong, count / seconds if count else 0.0, hashes / raw)


@frozen
class _Batch:
    """Headers that stand where they should, and the first one after them that does not."""

    headers: list[Header]
    end: ChainPoint
    wrong: str = ""


def _verify(
    reader: ChainReader,
    worker: LocalThreads,
    verifier: Verifier,
    params: NetworkParams,
    first: int,
    step: Callable[[int], object],
) -> tuple[int, str]:
    """How many headers from ``first`` on hold, and what is wrong with the next; "" where they all do."""
    count = 0
    batch = _placed(reader, params, first, _stored(reader, first - 1).point)
    while batch.headers or batch.wrong:
        checking = _started(verifier.check_headers(batch.headers), len(batch.headers), step)
        # The next headers are read and placed while the threads work.
        after = first + count + len(batch.headers)
        following = _Batch([], batch.end) if batch.wrong else _placed(reader, params, after, batch.end)
        verdicts = worker.finish(checking)
        for header, verdict in zip(batch.headers, verdicts, strict=True):
            if verdict is not None:
                return count, f"block {header.height}: {verdict.detail}"
            count += 1
        if batch.wrong:
            return count, batch.wrong
        batch = following
    return count, ""


def _started(work: Coroutine[Any, Any, list[Verdict]], count: int, step: Callable[[int], object]) -> Any:
    def tell(verdicts: list[Verdict]) -> list[Verdict]:
        step(count)
        return verdicts

    return Deferred.fromCoroutine(work).addCallback(tell)


def _stored(reader: ChainReader, height: int) -> StoredBlock:
    stored = reader.canonical(height)
    if stored is None:
        raise Corrupt(f"block {height} is missing")
    return stored


def _placed(reader: ChainReader, params: NetworkParams, first: int, parent: ChainPoint) -> _Batch:
    """The headers from height ``first`` on, at most BATCH, as far as each can stand behind the one before."""
    headers: list[Header] = []
    tip = reader.tip()
    last = min(first + BATCH - 1, tip.height if tip else 0)
    for height in range(first, last + 1):
        try:
            header = reader.block_header(_stored(reader, height), params)
            parent = check_header(params, parent, header)
        except (Corrupt, RuleViolation, ValueError) as error:
            return _Batch(headers, parent, f"block {height}: {error}")
        headers.append(header)
    return _Batch(headers, parent)


def _raw_seconds(worker: LocalThreads, params: NetworkParams, threads: int) -> float:
    """How long every thread takes for its share of Argon2 hashes."""

    def share(number: int) -> None:
        for index in range(_RAW_HASHES):
            work_value(b"raw".ljust(28, b".") + number.to_bytes(4, "big"), index.to_bytes(8, "big"), params.memory_kib)

    began = time.perf_counter()
    jobs: Sequence[Deferred[None]] = [worker.run(share, number) for number in range(threads)]
    for job in jobs:
        worker.finish(job)
    return time.perf_counter() - began
