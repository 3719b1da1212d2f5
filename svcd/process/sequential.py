"""Starting services one after the other and stopping them in reverse, each waiting for the one before.

Twisted's MultiService starts its children without waiting for any, and stops them all at once: a database would be
closed while requests still use it, and a port in use would leave a process that runs and serves no client.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized

from svcd.process.logs import Observer
from svcd.process.shutdown import CLOSE_SECONDS, CutOff, StopDeadline

T = TypeVar("T")


class CannotStart(Exception):
    """A service cannot start; the text is one clause that says why: "cannot listen on tcp:80: permission denied"."""


@runtime_checkable
class StopsAccepting(Protocol):
    """A service with work from outside, which it can refuse before its turn to stop has come."""

    def stop_accepting(self) -> None:
        """Accept no new work from now on, and begin to finish the work in progress; `stopService` waits for that."""


class Sequential(MultiService):
    """A group of services that start in order and stop in reverse order, one at a time.

    A child's `startService` and `stopService` may be coroutines or return Deferreds. A child whose start fails has
    undone what it began; the group stops those that had started, logs one line and ends the process with status 1.

    A stop begins with `stop_accepting` of all children that have it: they finish their work in parallel. A child that
    has not stopped by the deadline is cut off, and the log names it.
    """

    _log = Logger()

    def __init__(
        self,
        exit_process: Callable[[int], object],
        deadline: StopDeadline,
        *,
        operator_errors: tuple[type[Exception], ...] = (),
        more: float = 0.0,
    ) -> None:
        """Make an empty group.

        Args:
            exit_process: ends the process with an exit status, as `svcd.process.shutdown.graceful_exit` does.
            deadline: of the stop, which groups within groups share.
            operator_errors: errors beside CannotStart whose text tells the operator enough, without a traceback.
            more: by how many seconds the children may miss the deadline.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._exit_process = exit_process
        self._deadline = deadline
        self._more = more
        self._operator_errors: tuple[type[Exception], ...] = (CannotStart, *operator_errors)
        self._started: list[Service] = []
        self._starting: Deferred[None] | None = None

    def addService(self, service: Service) -> None:  # noqa: N802
        """Add a child; children start in the order of these calls.

        Raises:
            RuntimeError: the group runs already.
        """
        if self.running:
            raise RuntimeError("services are added before the group starts")
        super().addService(service)  # type: ignore[no-untyped-call]

    def startService(self) -> Deferred[None]:
        """Start the children; the Deferred fires when all run, or when a failure has been dealt with."""
        Service.startService(self)  # type: ignore[no-untyped-call]
        self._starting = Deferred.fromCoroutine(self._start())
        return self._starting

    def stopService(self) -> Deferred[None]:
        """Stop the children; a group that is still starting finishes the current child's start and starts no other."""
        Service.stopService(self)  # type: ignore[no-untyped-call]
        self._deadline.begin()
        self.stop_accepting()
        return Deferred.fromCoroutine(self._stop())

    def stop_accepting(self) -> None:
        """Let all children that have started accept no new work, the last one first; see :class:`StopsAccepting`."""
        for service in reversed(self._started):
            if isinstance(service, StopsAccepting):
                try:
                    service.stop_accepting()
                except Exception:
                    self._log.failure("stopping {service} failed", service=_name(service))

    async def _start(self) -> None:
        for service in list(self):
            if not self.running:
                return
            try:
                await maybeDeferred(service.startService)
            except Exception as error:
                self._report(service, error)
                await self._stop_started()
                self._exit_process(1)
                return
            self._started.append(service)

    async def _stop(self) -> None:
        if self._starting is not None:
            # Never cancelled: what a thread has begun to open could then not be closed any more.
            await self._bounded(self._starting, "the start", cancel=False)
        await self._stop_started()

    async def _stop_started(self) -> None:
        while self._started:
            service = self._started.pop()
            await self._bounded(maybeDeferred(service.stopService), _name(service))

    async def _bounded(self, work: Deferred[Any], what: str, *, cancel: bool = True) -> None:
        """Wait for a part of the stop; the others must be stopped all the same, the database above all."""
        try:
            await self._deadline.bound(work, more=self._more, cancel=cancel)
        except CutOff:
            seconds = round(self._deadline.elapsed)
            self._log.warn("{service} had not stopped after {seconds} s and is cut off", service=what, seconds=seconds)
        except Exception:
            self._log.failure("stopping {service} failed", service=what)

    def _report(self, service: Service, error: Exception) -> None:
        if isinstance(error, self._operator_errors):
            self._log.critical("svcd: {problem}", problem=str(error))
        else:
            self._log.failure("svcd: {service} cannot start", service=_name(service))


class RootService(Sequential):
    """The group that twistd runs; it brings its own log observer.

    twistd asks its application for an observer before it writes the first line and replays to it what was logged until
    then, so the configured form holds from the first line to the last.
    """

    def __init__(
        self,
        exit_process: Callable[[int], object],
        deadline: StopDeadline,
        *,
        observer: Observer | None,
        operator_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        """Make an empty group; see `Sequential`. Without an observer, twistd writes the log in its own form."""
        super().__init__(exit_process, deadline, operator_errors=operator_errors, more=CLOSE_SECONDS)
        self._observer = observer

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802
        """Join the application and give it the observer."""
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)  # type: ignore[no-untyped-call]
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]


class ScopedServices(Service, Generic[T]):
    """Opens something (a database), runs the services that use it, and closes it after the last of them has stopped."""

    def __init__(
        self,
        group: Sequential,
        *,
        acquire: Callable[[], Awaitable[T]],
        services: Callable[[T], Iterable[Service]],
        release: Callable[[T], Awaitable[object]],
    ) -> None:
        """Make the service.

        Args:
            group: an empty group, in which the services will run.
            acquire: opens; the start raises what it raises.
            services: makes the services, in the order of their start.
            release: closes.
        """
        self._group = group
        self._acquire = acquire
        self._services = services
        self._release = release
        self._acquired: list[T] = []

    def startService(self) -> Deferred[None]:
        """Open, then start the services."""
        super().startService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._start())

    def stopService(self) -> Deferred[None]:
        """Stop the services, then release what they use."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    def stop_accepting(self) -> None:
        """See :class:`StopsAccepting`."""
        self._group.stop_accepting()

    async def _start(self) -> None:
        acquired = await self._acquire()
        try:
            for service in self._services(acquired):
                self._group.addService(service)
        except BaseException:
            await self._release(acquired)
            raise
        self._acquired.append(acquired)
        await self._group.startService()

    async def _stop(self) -> None:
        await self._group.stopService()
        while self._acquired:
            await self._release(self._acquired.pop())


def _name(service: Service) -> str:
    return service.name or type(service).__name__
