"""Backups of a running node, one at a time, in a thread (docs/operations.md "Backup")."""

from contextlib import closing
from pathlib import Path

from attrs import frozen
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.chain.errors import NotYet, Wait
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Worker
from svcd.node.database_health import DatabaseHealth
from svcd.store.chain_store import ChainReader
from svcd.store.database import WEBHOOKS, open_reader
from svcd.store.database_copy import SourceDamaged, copy_databases, remove_partial_copies
from svcd.store.sql_connection import mark_as_copy


@frozen
class Backup:
    """A finished backup."""

    tip: ChainPoint
    """The newest block in it."""
    sizes: dict[str, int]
    """Bytes by the name of the file."""


class Backups(Service):
    """Copies the node's databases; a copy that is not finished when the service stops is abandoned."""

    name = "backups"
    log = Logger()

    def __init__(self, chain: Path, webhooks: Path | None, worker: Worker, health: DatabaseHealth) -> None:
        """``chain`` is the chain's database, of which ``health`` is; ``webhooks`` that of webhooks, if any."""
        self._chain = chain
        self._health = health
        self._webhooks = webhooks
        self._worker = worker
        self._busy = False
        self._stopping = False

    def stopService(self) -> None:
        """Abandon a copy that is being made, so that the node stops at once."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True

    async def make(self, folder: Path) -> Backup:
        """Copy everything into a new ``folder``; raises CopyError, and SourceDamaged, which ends the node.

        Raises NotYet while another copy is being made, or if the node is being stopped.
        """
        if self._busy:
            raise NotYet(Wait.BUSY, "another backup is being made; wait until it is done")
        self._busy = True
        try:
            return await self._worker.run(self._copy, folder)
        finally:
            self._busy = False

    def _copy(self, folder: Path) -> Backup:
        for copy in remove_partial_copies(folder):
            self.log.info("{path}, left by a backup that did not end, has been removed", path=str(copy))
        # The chain last: the webhooks may have seen an earlier tip than that of the copy, and never a later one.
        sources = [self._chain] if self._webhooks is None else [self._webhooks, self._chain]
        tips: list[ChainPoint] = []
        try:
            sizes = copy_databases(
                sources, folder, progress=self._check_stopping, look=lambda copies: tips.append(self._finish(copies))
            )
        except SourceDamaged as damage:
            health = self._health if damage.source == self._chain else self._health.of(WEBHOOKS)
            health.report(damage.__cause__)
            raise
        return Backup(tips[0], sizes)

    def _finish(self, copies: Path) -> ChainPoint:
        """Mark the copy of the webhooks as a copy; gives the newest block in the copies."""
        if self._webhooks is not None:
            mark_as_copy(copies / self._webhooks.name)
        with closing(open_reader(copies / self._chain.name)) as connection:
            return ChainReader(connection).existing_tip()

    def _check_stopping(self, _remaining: int, _total: int) -> None:
        if self._stopping:
            raise NotYet(Wait.BUSY, "the node is being stopped, and no backup was made; make it when it runs again")
