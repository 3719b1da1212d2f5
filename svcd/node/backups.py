"""Backups of a running node: one at a time, in a thread of their own."""

from contextlib import closing
from pathlib import Path

from attrs import frozen
from twisted.application.service import Service
from twisted.logger import Logger

from svcd.chain.errors import Corrupt, NotYet, Wait
from svcd.chain.transition import ChainPoint
from svcd.node.threads import Worker
from svcd.store.chain_store import ChainReader
from svcd.store.copying import copy_databases
from svcd.store.database import open_reader
from svcd.store.mempool_store import FILE
from svcd.store.unfinished import remove_left
from svcd.store.webhook_store import mark_as_copy


@frozen
class Backup:
    """What a backup holds."""

    tip: ChainPoint
    """The newest block in it."""
    sizes: dict[str, int]
    """Bytes by the name of the file."""


class Backups(Service):
    """Makes copies of the node's databases; what is not done when the service stops is given up."""

    name = "backups"
    log = Logger()

    def __init__(self, chain: Path, webhooks: Path | None, worker: Worker) -> None:
        """``chain`` is the chain's database, beside the mempool's; ``webhooks``, where there are any, follows it."""
        self._chain = chain
        self._webhooks = webhooks
        self._worker = worker
        self._busy = False
        self._ending = False

    def stopService(self) -> None:
        """Give up a copy that is being made, so that nobody has to wait for it."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._ending = True

    async def make(self, folder: Path) -> Backup:
        """Copy everything into a new ``folder``; raises CopyError.

        Raises NotYet while another copy is being made, and where the node is being stopped.
        """
        if self._busy:
            raise NotYet(Wait.BUSY, "another backup is being made; wait until it is done")
        self._busy = True
        try:
            return await self._worker.run(self._copy, folder)
        finally:
            self._busy = False

    def _copy(self, folder: Path) -> Backup:
        for left in remove_left(folder):
            self.log.info("{path}, left by a backup that did not end, has been removed", path=str(left))
        # The chain last: what follows it may have seen less of it than the copy holds, and never more.
        sources = [self._chain.with_name(FILE), self._chain]
        if self._webhooks is not None:
            sources.insert(0, self._webhooks)
        tips: list[ChainPoint] = []
        sizes = copy_databases(
            sources, folder, progress=self._go_on, look=lambda copies: tips.append(self._finish(copies))
        )
        return Backup(tips[0], sizes)

    def _finish(self, copies: Path) -> ChainPoint:
        """The newest block in the copies, of which those of webhooks are marked as such."""
        if self._webhooks is not None:
            mark_as_copy(copies / self._webhooks.name)
        with closing(open_reader(copies / self._chain.name)) as connection:
            tip = ChainReader(connection).tip()
        if tip is None:
            raise Corrupt(f"{self._chain} holds no block")
        return tip

    def _go_on(self, _left: int, _total: int) -> None:
        if self._ending:
            raise NotYet(Wait.BUSY, "the node is being stopped, and no backup was made; make it when it runs again")
