"""Reading the configuration again while the node runs: on SIGHUP, and for `svc node merchants reload`.

The merchants can change; what else differs is named in the answer and waits for a restart. A part of the node that can
take new settings, too, is applied in :meth:`ReloadService._apply`, and its settings are taken over in ``_taken_over``.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from svcd.config.layers import ConfigError, KeyPath, camel, name_of
from svcd.config.schema import Commerce, Config
from svcd.interfaces import Worker
from svcd.node.tasks import TaskGroup
from svcd.process.hangup import HangUp
from svcd.web.responses import HttpError

_OF_MERCHANT: Final = (
    *("manage_token", "manage_token_file"),
    *("previous_manage_token", "previous_manage_token_file", "previous_manage_token_until"),
    *("read_only_token", "read_only_token_file"),
    *("signing_secret", "signing_secret_file"),
    *("previous_signing_secret", "previous_signing_secret_file"),
)
"""The settings of webhooks that belong to the merchant "default"."""


class ReloadService(Service):
    """Applies to the running node what can change of its configuration; the first error leaves all as it is."""

    name = "reload"
    log = Logger()

    def __init__(
        self,
        config: Config,
        *,
        read: Callable[[], Config],
        worker: Worker,
        merchants: Callable[[Commerce, Commerce], Awaitable[dict[str, object]]],
        signal: HangUp,
    ) -> None:
        """``read`` loads the configuration, in ``worker``; ``merchants`` replaces the merchants that are served."""
        self.config = config
        """The configuration in force."""
        self._read = read
        self._worker = worker
        self._merchants = merchants
        self._signal = signal
        self._lock = DeferredLock()
        self._tasks = TaskGroup()

    def startService(self) -> None:
        """Reload on SIGHUP from now on."""
        super().startService()  # type: ignore[no-untyped-call]
        self._signal.begin(self._hung_up)

    async def stopService(self) -> None:
        """Let a reload in progress end."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._signal.end()
        await self._tasks.drained()

    async def reload(self) -> dict[str, object]:
        """Read the configuration, apply it, and return what has changed.

        Raises:
            HttpError: 409, the configuration cannot be used; nothing has changed.
        """
        try:
            return await self._tasks.start(self._reload())
        except ConfigError as error:
            self.log.warn("the configuration is not reloaded, and nothing has changed: {why}", why=str(error))
            raise HttpError(409, f"nothing has changed: {error}") from error

    async def _reload(self) -> dict[str, object]:
        await self._lock.acquire()
        try:
            new = await self._worker.run(self._read)
            return await self._apply(new)
        finally:
            self._lock.release()

    async def _apply(self, new: Config) -> dict[str, object]:
        running = self.config
        if not new.commerce.webhooks.enabled or not running.commerce.webhooks.enabled:
            raise ConfigError(
                "[commerce.webhooks] enabled must be true, before and after, for merchants to be reloaded; "
                "restart the node to switch webhooks on or off"
            )
        if new.commerce.problem:
            raise ConfigError(new.commerce.problem)
        target = _taken_over(running, new)
        changes = await self._merchants(running.commerce, target.commerce)
        self.config = target
        left = [name_of(path) for path in _differing(target, new)]
        self.log.info("merchants reloaded: {changes}", changes=changes_text(changes))
        if left:
            self.log.warn("these settings change when the node is restarted: {names}", names=", ".join(left))
        return {**changes, "left": left}

    def _hung_up(self) -> None:
        def failed(failure: Any) -> None:
            if failure.check(HttpError) is None:
                self.log.failure("reloading the configuration failed", failure)

        Deferred.fromCoroutine(self.reload()).addErrback(failed)


def changes_text(changes: dict[str, Any]) -> str:
    """The changes of a reload in one line of the log."""
    parts = [
        *(f"added {name}" for name in changes["added"]),
        *(f"changed {each['name']} ({', '.join(each['settings'])})" for each in changes["changed"]),
        *(
            f"removed {each['name']} (active webhooks, which go on: {each['watches']}; webhooks with events, which are "
            f"kept for a week: {each['undelivered']})"
            for each in changes["removed"]
        ),
    ]
    return "; ".join(parts) or "nothing has changed"


def _taken_over(running: Config, new: Config) -> Config:
    """The running configuration with the merchants of a new one."""
    theirs: Any = {name: getattr(new.commerce.webhooks, name) for name in _OF_MERCHANT}
    hooks = attrs.evolve(running.commerce.webhooks, **theirs)
    return attrs.evolve(
        running, commerce=attrs.evolve(running.commerce, webhooks=hooks, merchants=new.commerce.merchants)
    )


def _differing(one: Any, other: Any, at: KeyPath = ()) -> Iterator[KeyPath]:
    for attribute in attrs.fields(type(one)):
        before, after = getattr(one, attribute.name), getattr(other, attribute.name)
        path = (*at, camel(attribute.name))
        if attrs.has(type(before)):
            yield from _differing(before, after, path)
        elif before != after:
            yield path
