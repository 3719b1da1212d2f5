"""Reading the configuration again while the node runs: on SIGHUP, and for `svc node reload`.

What can change at run time is in :func:`_taken_over`; other settings that differ are named in the answer and wait for a
restart. A configuration or a certificate that cannot be used changes nothing.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

import attrs
from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from svcd.config.layers import ConfigError, KeyPath, camel, name_of
from svcd.config.schema import Commerce, Config
from svcd.interfaces import Worker
from svcd.node.tasks import TaskGroup
from svcd.process.certificates import CertificateError, LoadedCertificate, ServerCertificates
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
_NO_MERCHANTS: Final[dict[str, object]] = {"added": [], "changed": [], "removed": []}


@frozen(kw_only=True)
class ReloadableParts:
    """The parts of the node that take new settings."""

    merchants: Callable[[Commerce, Commerce], Awaitable[dict[str, object]]]
    """Replaces the merchants that are served, and returns the changes; raises ConfigError and changes nothing."""
    limits: Callable[[Config], object]
    """Applies `[limits]`."""
    log_level: Callable[[str], object] | None
    """Changes the level of the log; None where twistd writes it."""
    certificates: ServerCertificates
    clock: Callable[[], object]
    """Trusts the computer's clock."""


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
        parts: ReloadableParts,
        signal: HangUp,
    ) -> None:
        """``read`` loads the configuration, in ``worker``, where the certificates are loaded, too."""
        self.config = config
        """The configuration in force."""
        self._read = read
        self._worker = worker
        self._parts = parts
        self._signal = signal
        self._lock = DeferredLock()
        self._tasks = TaskGroup()

    def startService(self) -> None:
        """Reload on SIGHUP from now on."""
        super().startService()  # type: ignore[no-untyped-call]
        self._signal.begin(self._hung_up)

    def stopService(self) -> Deferred[None]:
        """Let a reload in progress end."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._signal.end()
        return self._tasks.drained()

    async def reload(self, *, trust_clock: bool = False) -> dict[str, object]:
        """Read the configuration, apply it, and return what has changed.

        With ``trust_clock`` the operator stands by the computer's clock, which is trusted at once, even if the
        configuration cannot be used. A reload alone does not say that: by a wrong clock a certificate may be due, whose
        renewal reloads the node.

        Raises:
            HttpError: 409, the configuration cannot be used; nothing has changed but the trust in the clock.
        """
        unchanged = "nothing has changed"
        if trust_clock:
            self._parts.clock()
            unchanged = "the clock is trusted, and nothing else has changed"
        try:
            return await self._tasks.start(self._reload())
        except ConfigError as error:
            self.log.warn("the configuration is not reloaded: {why}", why=str(error))
            raise HttpError(409, f"{unchanged}: {error}") from error

    async def _reload(self) -> dict[str, object]:
        await self._lock.acquire()
        try:
            new, certificates = await self._worker.run(self._load)
            return await self._apply(new, certificates)
        except CertificateError as error:
            raise ConfigError(str(error)) from error
        finally:
            self._lock.release()

    def _load(self) -> tuple[Config, Sequence[LoadedCertificate]]:
        return self._read(), self._parts.certificates.load()

    async def _apply(self, new: Config, certificates: Sequence[LoadedCertificate]) -> dict[str, object]:
        running, parts = self.config, self._parts
        if new.commerce.webhooks.enabled and new.commerce.problem:
            raise ConfigError(new.commerce.problem)
        target = _taken_over(running, new, log_level=parts.log_level is not None)
        merchants = _NO_MERCHANTS
        if target.commerce != running.commerce:
            merchants = await parts.merchants(running.commerce, target.commerce)
        # From here on nothing can fail.
        renewed = [
            {"file": each.certificate_file, "ends": str(int(each.loaded.ends * 1000))}
            for each in parts.certificates.use(certificates)
        ]
        parts.limits(target)
        if parts.log_level is not None:
            parts.log_level(target.log.level)
        self.config = target
        settings = [name_of(path) for path in _differing(running, target) if path[0] != "commerce"]
        left = list(dict.fromkeys(map(name_of, _differing(target, new))))
        self.log.info("configuration reloaded: {changes}", changes=_changes_text(merchants, settings, renewed))
        if left:
            self.log.warn("these settings change when the node is restarted: {names}", names=", ".join(left))
        return {**merchants, "settings": settings, "certificates": renewed, "left": left}

    def _hung_up(self) -> None:
        def failed(failure: Any) -> None:
            if failure.check(HttpError) is None:
                self.log.failure("reloading the configuration failed", failure)

        Deferred.fromCoroutine(self.reload()).addErrback(failed)


def _changes_text(merchants: dict[str, Any], settings: Sequence[str], certificates: Sequence[dict[str, str]]) -> str:
    """The changes of a reload in one line of the log."""
    parts = [
        *(f"added {name}" for name in merchants["added"]),
        *(f"changed {each['name']} ({', '.join(each['settings'])})" for each in merchants["changed"]),
        *(
            f"removed {each['name']} (active webhooks, which continue: {each['watches']}; webhooks with events, which "
            f"are kept for a week: {each['undelivered']})"
            for each in merchants["removed"]
        ),
        *(f"set {name}" for name in settings),
        *(f"renewed {each['file']}" for each in certificates),
    ]
    return "; ".join(parts) or "nothing has changed"


def _taken_over(running: Config, new: Config, *, log_level: bool) -> Config:
    """The running configuration with those settings of a new one that can change while the node runs."""
    target = attrs.evolve(running, limits=new.limits, pages=new.pages)
    if log_level:
        target = attrs.evolve(target, log=attrs.evolve(running.log, level=new.log.level))
    if not (running.commerce.webhooks.enabled and new.commerce.webhooks.enabled):
        return target
    theirs: Any = {name: getattr(new.commerce.webhooks, name) for name in _OF_MERCHANT}
    hooks = attrs.evolve(running.commerce.webhooks, **theirs)
    commerce = attrs.evolve(running.commerce, webhooks=hooks, merchants=new.commerce.merchants)
    return attrs.evolve(target, commerce=commerce)


def _differing(one: Any, other: Any, at: KeyPath = ()) -> Iterator[KeyPath]:
    for attribute in attrs.fields(type(one)):
        before, after = getattr(one, attribute.name), getattr(other, attribute.name)
        # The content of the network file that the setting `network` names.
        is_file = attribute.name == "own_network"
        path = (*at, "network" if is_file else camel(attribute.name))
        if attrs.has(type(before)) and not is_file:
            yield from _differing(before, after, path)
        elif before != after:
            yield path
