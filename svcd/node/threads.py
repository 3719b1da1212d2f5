"""Where work runs that would hold up the reactor: pools of threads behind a port that a simulation replaces."""

import gc
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from threading import Lock, Thread
from typing import Final, ParamSpec, Protocol, TypeVar, cast

from attrs import define, field, frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, execute
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from svcd.chain.errors import NotYet, RuleViolation
from svcd.ports import Clock

P = ParamSpec("P")
T = TypeVar("T")
_LOG = Logger()
_SWITCH_SECONDS = 0.0005
_COLLECTIONS: Final = (5_000, 3, 20)
"""How many new objects, and how many collections of younger ones, bring on one of each generation.

With 20,000 transfers waiting, collecting takes 3 % of the time instead of 12, and no pause but the rare ones of the
oldest generation is longer than 5 ms.
"""


class Worker(Protocol):
    """A place where a function may run while the reactor goes on."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """A Deferred of what ``function`` returns; cancelling it does not stop the work."""


class Here:
    """A worker that does its work at once, in the thread that asks."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`Worker`."""
        return execute(function, *args, **kwargs)


class Load:
    """What a pool of threads has to do, and how long that takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._waiting = 0
        self.on_done: Callable[[float, float], object] = _nothing
        """Called in a thread of the pool for each job: the seconds that it waited, and those that it took."""

    @property
    def waiting(self) -> int:
        """How many jobs no thread has begun."""
        return self._waiting

    def job(self, function: Callable[P, T]) -> Callable[P, T]:
        """``function`` as a job that waits from now on; to be called once."""
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
                # What is for ending a program or a thread must not get past those who wait for work that may fail.
                raise RuntimeError(f"work in a thread raised {error!r}") from error
            finally:
                self.on_done(began - came, self._clock.seconds() - began)

        return work

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change


def _nothing(_: float, __: float) -> None:
    """Nobody has asked to be told."""


@frozen
class PoolWorker:
    """A worker on a pool of threads; a pool of one thread does its work in order."""

    reactor: IReactorFromThreads
    pool: ThreadPool
    load: Load = field(init=False)

    @load.default
    def _no_load(self) -> Load:
        return Load(cast(Clock, self.reactor))

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`Worker`."""
        return deferToThreadPool(self.reactor, self.pool, self.load.job(function), *args, **kwargs)


class ThreadsService(Service):
    """Starts a pool of ``size`` threads and, when it stops, waits for the work they have taken on.

    With ``patience`` it waits so many seconds at most, and what is still under way ends with the process. That is for
    questions that change nothing, and that somebody else may leave without an answer for minutes.
    """

    def __init__(self, reactor: IReactorFromThreads, *, size: int, name: str, patience: float | None = None) -> None:
        self.name = name
        self._pool = ThreadPool(minthreads=size, maxthreads=size, name=name)
        self._patience = patience
        if patience is not None:
            self._pool.threadFactory = partial(Thread, daemon=True)  # type: ignore[assignment]
        self.size = size
        self.worker = PoolWorker(reactor, self._pool)

    @property
    def dead(self) -> int:
        """How many of its threads have ended although nobody stopped them."""
        return sum(not thread.is_alive() for thread in self._pool.threads) if self.running else 0

    def startService(self) -> None:
        """Start the threads."""
        super().startService()  # type: ignore[no-untyped-call]
        self._pool.start()

    def stopService(self) -> None:
        """Let the threads finish what they were given, and end them."""
        super().stopService()  # type: ignore[no-untyped-call]
        threads = list(self._pool.threads)
        if self._patience is not None:
            # Else the pool would wait for them.
            self._pool.threads.clear()
        self._pool.stop()
        until = time.monotonic() + (self._patience or 0.0)
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))


@define
class ThreadsWatch:
    """Sees that a thread has died: the jobs given to it would wait for ever, the closing of the database with them.

    What a job raises kills no thread, whatever it is; running out of memory between two jobs can.
    """

    pools: Iterable[ThreadsService]
    end: Callable[[], object]
    """Ends the process at once: there is nothing left that could be put to rest."""

    def look(self) -> None:
        """Look at the threads; to be called now and then."""
        for pool in self.pools:
            if pool.dead:
                _LOG.critical(
                    "a thread of the pool {pool} has died, and its work waits in vain. The node ends at once; what was "
                    "committed is on disk, so start it again",
                    pool=pool.name,
                )
                self.end()
                return


def kept_going(work: Coroutine[Deferred[object], object, T]) -> Deferred[T]:
    """A Deferred of what ``work`` returns; cancelling it leaves the work alone.

    A web framework cancels what a route waits for when the client goes away; what changes state must not stop half-way.
    An error of ours that nobody waits for any more goes to the log.
    """
    result: Deferred[T] = Deferred()

    def failed(failure: Failure) -> None:
        if not result.called:
            result.errback(failure)
        elif failure.check(RuleViolation, NotYet) is None:  # type: ignore[no-untyped-call]
            _LOG.failure("work went wrong after whoever wanted it had gone", failure)

    Deferred.fromCoroutine(work).addCallbacks(result.callback, failed)
    return result


def share_the_interpreter() -> None:
    """Let a thread that waits for the interpreter have it within half a millisecond.

    CPython's default is 5 ms: a request that must take it several times while a block is being connected would then
    wait for tens of milliseconds, and a signature checked meanwhile would take a hundred times as long.

    The garbage collector lets no other thread in while it works. What exists by now, all modules above all, stays for
    good and is hidden from it, or it would walk over that for 30 ms every few blocks. And it comes less often than by
    default: requests that are under way when it comes are taken for old ones, which only its longest walks look at.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECTIONS)
    gc.collect()
    gc.freeze()
