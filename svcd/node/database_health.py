"""Watches the node's databases: damage ends the node; a full disk, or a failing one, is reported until it works again.

Every thread that writes a database reports its errors here (:class:`ReportingWorker`, :meth:`DatabaseHealth.report`).
The status has the alarm ``disk`` from then on, a request to write gets 503 (svcd/rpc/sites.py), and :class:`DiskProbe`
tries every 10 s whether the disk works again.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Final, ParamSpec, Protocol, TypeVar

import apsw
from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Corrupt
from svcd.interfaces import Worker
from svcd.store.database import (
    CHAIN,
    DatabaseUnavailable,
    DiskError,
    describe,
    disk_remedy,
    is_damage,
    is_disk_trouble,
)
from svcd.store.pruned import ReorganisationBelowPruneHeight

P = ParamSpec("P")
T = TypeVar("T")

_LOG: Final = Logger()


class StoreKind(Protocol):
    """What is said of a database, or of the mempool's journal (svcd.store.database.DatabaseKind)."""

    @property
    def name(self) -> str:
        """What the operator knows it by."""

    @property
    def refused(self) -> str:
        """The alarm while it cannot be written."""

    @property
    def remedy(self) -> str:
        """What the operator can do if it is damaged."""


@define(eq=False)
class DatabaseHealth:
    """Recognizes damage and disk trouble by the errors of one database, or of the journal; for any thread.

    Damage calls ``stop``, once for all databases of the node, in the thread that has met it.
    """

    stop: Callable[[], object]
    kind: StoreKind = CHAIN
    _stopped: Lock = field(factory=Lock)
    """Acquired for good by the first thread that meets damage."""
    trouble: str = field(default="", init=False)
    """The last error of the disk, or of PostgreSQL; "" once a write has succeeded."""

    def of(self, kind: StoreKind) -> "DatabaseHealth":
        """The health of another database of the same node."""
        return DatabaseHealth(self.stop, kind, self._stopped)

    def has_told(self, error: BaseException) -> bool:
        """Whether the error means damage, and the operator has been told of damage: one line is enough."""
        return self._stopped.locked() and _means_damage(error)

    def is_damage(self, error: BaseException | None) -> bool:
        """Whether the error means that the database is damaged; if so the node ends."""
        if not _means_damage(error):
            return False
        if self._stopped.acquire(blocking=False):
            # Work on the webhooks reads the chain too, and only the chain's data are found to contradict themselves.
            kind = CHAIN if isinstance(error, Corrupt) else self.kind
            _LOG.critical(
                "{what} is damaged: {why}. The node stops; {remedy}",
                what=kind.name,
                why=describe(error),
                remedy=kind.remedy,
            )
            self.stop()
        return True

    def report(self, error: BaseException | None, *, log: bool = True) -> None:
        """Take note of an error of this database; disk trouble is logged unless ``log`` is false."""
        if isinstance(error, ReorganisationBelowPruneHeight) and self._stopped.acquire(blocking=False):
            _LOG.critical(
                "alarm: {why}. The node stops. Ask other operators whether that chain is the network's; if it is, move "
                "chain.sqlite away and start the node, which then fetches that chain",
                why=str(error),
            )
            self.stop()
        if self.is_damage(error) or not is_disk_trouble(error):
            return
        # Once, until a write succeeds: a line for each error would fill what is left of the disk.
        is_news, self.trouble = not self.trouble, str(error)
        if log and is_news:
            _LOG.error(
                "{what} cannot be written: {why}. The change was not made; {remedy}, and the node then "
                "continues without a restart",
                what=self.kind.name,
                why=str(error),
                remedy=disk_remedy(error),
            )


def _means_damage(error: BaseException | None) -> bool:
    return isinstance(error, Corrupt) or is_damage(error)


@frozen
class ReportingWorker:
    """Passes work on to ``worker``, and reports its errors to ``health``."""

    worker: Worker
    health: DatabaseHealth
    log: bool = True
    """Whether disk trouble is logged; False where the caller does that."""
    recovers: bool = False
    """Whether any success ends the trouble, as that of a server does, or only one of :class:`DiskProbe`."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.interfaces.Worker`."""
        return self.worker.run(function, *args, **kwargs).addCallbacks(self._succeeded, self._report)

    def _succeeded(self, result: T) -> T:
        if self.recovers:
            self.health.trouble = ""
        return result

    def _report(self, failure: Failure) -> Failure:
        self.health.report(failure.value, log=self.log)
        return failure


@frozen
class DiskProbe:
    """Finds out whether the disk under a database works again."""

    health: DatabaseHealth
    worker: Worker
    """The thread that writes the database."""
    probe: Callable[[], None]
    """Rewrites what the database has; raises apsw.Error, DatabaseUnavailable or DiskError."""

    @property
    def trouble(self) -> str:
        """Why the last write failed; "" if it succeeded."""
        why = self.health.trouble
        return f"{self.health.kind.refused}: {why}" if why else ""

    async def try_again(self) -> None:
        """After a failed write see whether the disk works by now; called now and then."""
        if self.health.trouble:
            with suppress(apsw.Error, DatabaseUnavailable, DiskError):
                await self.worker.run(self.probe)
                self.health.trouble = ""
