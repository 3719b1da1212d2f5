"""Ends the node when its data turn out to be damaged: better no answer than a wrong one."""

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Final, ParamSpec, TypeVar

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Corrupt
from svcd.node.threads import Worker
from svcd.store.database import CHAIN, Kind, is_damage, is_disk_trouble

P = ParamSpec("P")
T = TypeVar("T")

_LOG: Final = Logger()


@define(eq=False)
class Guard:
    """Sees from errors that a database is damaged, says so once, and calls ``stop``; for any thread.

    Damage shows in the thread that meets it, so ``stop`` is one that any thread may call.
    """

    stop: Callable[[], object]
    kind: Kind = CHAIN
    _told: Lock = field(factory=Lock)
    """Taken for good by the first that sees damage, of whichever file: two threads may see it at once."""
    trouble: str = field(default="", init=False)
    """What SQLite said when the disk last refused to take something; "" once it has taken something again."""

    def of(self, kind: Kind) -> "Guard":
        """The guard of another file of the same node, which ends once."""
        return Guard(self.stop, kind, self._told)

    def is_damage(self, error: BaseException | None) -> bool:
        """Whether the disk or our own data contradict themselves; then the node ends."""
        if not (isinstance(error, Corrupt) or is_damage(error)):
            return False
        if self._told.acquire(blocking=False):
            _LOG.critical(
                "{what} is damaged: {why}. The node stops; {remedy}",
                what=self.kind.name,
                why=str(error),
                remedy=self.kind.remedy,
            )
            self.stop()
        return True

    def look(self, error: BaseException | None, *, tells_trouble: bool = True) -> None:
        """See what an error of the file says about it, and say so."""
        if self.is_damage(error) or not is_disk_trouble(error):
            return
        # Once until something was written again: a line for each refusal would fill what is left of the disk.
        is_news, self.trouble = not self.trouble, str(error)
        if tells_trouble and is_news:
            _LOG.error(
                "{what} cannot be written: {why}. What was to be written has not happened; free the disk or mend it, "
                "and the node goes on by itself",
                what=self.kind.name,
                why=str(error),
            )


@frozen
class GuardedWorker:
    """Passes work on to ``worker``, and shows every error to ``guard``."""

    worker: Worker
    guard: Guard
    tells_trouble: bool = True
    """Whether it says that the disk fails; False where whoever gives it work does."""

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        """See :class:`svcd.node.threads.Worker`."""
        return self.worker.run(function, *args, **kwargs).addErrback(self._look)

    def _look(self, failure: Failure) -> Failure:
        self.guard.look(failure.value, tells_trouble=self.tells_trouble)
        return failure


@frozen
class Disk:
    """What is known of the disk under one file of the node."""

    guard: Guard
    """That of the file."""
    worker: Worker
    """The thread that writes the file."""
    probe: Callable[[], None]
    """Writes what is there already; raises sqlite3.Error."""

    @property
    def trouble(self) -> str:
        """Why the file cannot be written, as far as it has been tried; "" if it can."""
        why = self.guard.trouble
        return f"{self.guard.kind.refused}: {why}" if why else ""

    async def try_again(self) -> None:
        """See whether a disk that has refused something takes anything by now; to be called now and then."""
        if self.guard.trouble:
            with suppress(sqlite3.Error):
                await self.worker.run(self.probe)
                self.guard.trouble = ""
