"""Services that stand on something that must be opened first and closed last, such as a database."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from svcd.process.sequential import Sequential

T = TypeVar("T")


class Opened(Service, Generic[T]):
    """Opens it, starts the services that stand on it, and in the end stops them one by one and closes it."""

    def __init__(
        self,
        group: Sequential,
        *,
        opening: Callable[[], Awaitable[T]],
        services: Callable[[T], Iterable[Service]],
        closing: Callable[[T], Awaitable[object]],
    ) -> None:
        """Make the service.

        Args:
            group: an empty group, in which the services will run.
            opening: opens it; what it raises is what the start raises.
            services: what stands on it, in the order of the start.
            closing: closes it.
        """
        self._group = group
        self._opening = opening
        self._services = services
        self._closing = closing
        self._open: list[T] = []

    def startService(self) -> Deferred[None]:
        """Open it and start the services."""
        super().startService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._start())

    def stopService(self) -> Deferred[None]:
        """Stop the services, then close it."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        opened = await self._opening()
        try:
            for service in self._services(opened):
                self._group.addService(service)
        except BaseException:
            await self._closing(opened)
            raise
        self._open.append(opened)
        await self._group.startService()

    async def _stop(self) -> None:
        await self._group.stopService()
        while self._open:
            await self._closing(self._open.pop())
