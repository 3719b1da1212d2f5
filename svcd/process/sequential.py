"""Starting services one after the other and stopping them in reverse, each waiting for the one before.

Twisted's MultiService starts its children without waiting for any and stops them all at once: a database would be
closed while requests still use it, and a port that is taken would leave a process running that serves nobody.
"""

from collections.abc import Callable

from twisted.application.service import MultiService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger


class CannotStart(Exception):
    """A service cannot start; the text is one clause that says why: "cannot listen on tcp:80: permission denied"."""


class Sequential(MultiService):
    """A group of services that start in order and stop in reverse order, one at a time.

    A child's `startService` and `stopService` may be coroutines or return Deferreds. A child whose start fails has
    undone what it began; the group stops those that had started, logs one line and ends the process with status 1.
    """

    _log = Logger()

    def __init__(self, leave: Callable[[int], object], *, sentences: tuple[type[Exception], ...] = ()) -> None:
        """Make an empty group.

        Args:
            leave: ends the process with an exit status, as `svcd.process.leaving.leaving_with` does.
            sentences: errors beside CannotStart whose text says it all, so that no traceback is logged.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self._leave = leave
        self._sentences: tuple[type[Exception], ...] = (CannotStart, *sentences)
        self._started: list[Service] = []
        self._starting: Deferred[None] | None = None

    def addService(self, service: Service) -> None:  # noqa: N802
        """Add a child; its place in the order is the place of this call.

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
        """Stop the children; a start under way goes on to the end of the present child's and no further."""
        Service.stopService(self)  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        for service in list(self):
            if not self.running:
                return
            try:
                await maybeDeferred(service.startService)
            except Exception as error:
                self._report(service, error)
                await self._stop_started()
                self._leave(1)
                return
            self._started.append(service)

    async def _stop(self) -> None:
        if self._starting is not None:
            # Never cancelled: what a thread has begun to open could then not be closed any more.
            await self._starting
        await self._stop_started()

    async def _stop_started(self) -> None:
        while self._started:
            service = self._started.pop()
            try:
                await maybeDeferred(service.stopService)
            except Exception:
                # The others must be stopped all the same, the database above all.
                self._log.failure("stopping {service} failed", service=_name(service))

    def _report(self, service: Service, error: Exception) -> None:
        if isinstance(error, self._sentences):
            self._log.critical("svcd: {problem}", problem=str(error))
        else:
            self._log.failure("svcd: {service} cannot start", service=_name(service))


def _name(service: Service) -> str:
    return service.name or type(service).__name__
