"""Thread pools for work that would block the reactor, behind an interface that the simulation replaces."""

import gc
import sys
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Final, ParamSpec, TypeVar, cast

from twisted.application.service import Service
from twisted.internet.defer import Deferred, execute, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.interfaces import Clock

P = ParamSpec("P")
T = TypeVar("T")
_LOG = Logger()
_SWITCH_SECONDS = 0.0005
_COLLECTIONS: Final = (5_000, 3, 20)
"""The thresholds of the garbage collector: new objects, and collections of the generation below.

With 20,000 transfers waiting, collecting takes 3 % of the time instead of 12, and no pause but the rare ones of the
oldest generation is longer than 5 ms.
"""


class InlineWorker:
    """A worker that runs functions at once, in the caller's thread."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.interfaces.Worker`."""
        return execute(function, *args, **kwargs)


class PoolLoad:
    """Counts the queued jobs of a thread pool, and measures their times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self.waiting = 0
        """How many jobs are queued."""
        self.on_done: Callable[[float, float], object] = lambda waited, ran: None
        """Called in a thread of the pool after each job, with the seconds that it was queued and that it ran."""

    def job(self, function: Callable[P, T]) -> Callable[P, T]:
        """``function`` as a job that is queued from now on; to be called once."""
        self._count(1)
        came = self._clock.seconds()

        def work(*args: P.args, **kwargs: P.kwargs) -> T:
            self._count(-1)
            began = self._clock.seconds()
            try:
                return function(*args, **kwargs)
            except Exception:
                raise
            except BaseException as error:
                # SystemExit, for instance, is not for ending the pool's thread: the caller must get an error.
                raise RuntimeError(f"work in a thread raised {error!r}") from error
            finally:
                self.on_done(began - came, self._clock.seconds() - began)

        return work

    def _count(self, change: int) -> None:
        with self._lock:
            self.waiting += change


class PoolStopped(Exception):
    """The threads of a pool have ended, or finish the last jobs: no other job can run there."""


class ThreadPoolService(Service):
    """A worker on ``size`` threads, which finish their jobs when it stops; one thread runs its jobs in order.

    Jobs that arrive before the start are queued. The threads are daemons: what does not end by the deadline of the stop
    ends with the process. With ``patience`` a stop waits for so many seconds at most, for queries that change nothing
    and that another host may leave unanswered for minutes.
    """

    def __init__(self, reactor: IReactorFromThreads, *, size: int, name: str, patience: float | None = None) -> None:
        self.name = name
        self.load = PoolLoad(cast(Clock, reactor))
        self.size = size
        self._reactor = reactor
        self._patience = patience
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._stopped = False
        self._ended: Deferred[None] = Deferred()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.interfaces.Worker`; fails with PoolStopped after the beginning of the stop."""
        if self._stopped:
            return fail(PoolStopped(f"the threads of the pool {self.name} have stopped: no other job can run there"))
        result: Deferred[T] = Deferred()
        job = self.load.job(function)

        def work() -> None:
            try:
                value = job(*args, **kwargs)
            except Exception:
                self._reactor.callFromThread(result.errback, Failure())  # type: ignore[no-untyped-call]
            else:
                self._reactor.callFromThread(result.callback, value)

        self._jobs.put(work)
        return result

    def grow(self, size: int) -> None:
        """Have at least ``size`` threads; a pool never gets smaller."""
        self.size = max(self.size, size)
        if self.running:
            self._start_threads()

    @property
    def dead(self) -> int:
        """How many threads have died."""
        return sum(not thread.is_alive() for thread in self._threads) if self.running else 0

    def startService(self) -> None:
        """Start the threads."""
        super().startService()  # type: ignore[no-untyped-call]
        self._start_threads()

    def stopService(self) -> Deferred[None]:
        """Accept no more jobs; the Deferred fires when the threads have finished theirs, or the patience is over."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopped = True
        for _ in self._threads:
            self._jobs.put(None)
        # A thread of its own waits for the others, so that the reactor does not.
        Thread(target=self._wait_for_threads, name=f"{self.name}-end", daemon=True).start()
        return self._ended

    def _start_threads(self) -> None:
        for number in range(len(self._threads), self.size):
            thread = Thread(target=self._work, name=f"{self.name}-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _wait_for_threads(self) -> None:
        until = None if self._patience is None else time.monotonic() + self._patience
        for thread in self._threads:
            thread.join(None if until is None else max(until - time.monotonic(), 0))
        self._reactor.callFromThread(self._ended.callback, None)


def check_threads(pools: Iterable[ThreadPoolService], end: Callable[[], object]) -> None:
    """End the process by ``end`` if a thread has died: its jobs would wait for ever, as would an orderly stop.

    No exception of a job kills a thread; running out of memory between two jobs can. Called now and then.
    """
    for pool in pools:
        if pool.dead:
            _LOG.critical(
                "a thread of the pool {pool} has died, so its jobs cannot finish. The node exits now; committed data "
                "is on disk. Start the node again",
                pool=pool.name,
            )
            end()
            return


def tune_interpreter() -> None:
    """Set the interpreter's thread switch interval to half a millisecond, and have the garbage collector do less.

    With CPython's 5 ms, a request that needs the interpreter several times while a block is being connected would wait
    for tens of milliseconds, and a signature checked meanwhile would take a hundred times as long.

    The garbage collector blocks all threads. All objects that exist now, modules above all, are frozen, or it would
    traverse them for 30 ms every few blocks. And it runs less often than by default: each run moves the requests in
    process to an older generation, which only its longest runs collect.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECTIONS)
    gc.collect()
    gc.freeze()
