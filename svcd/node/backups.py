"""Backups of a running node: one at a time, in a thread of their own."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from attrs import frozen
from twisted.application.service import Service

from svcd.chain.errors import Corrupt, NotYet, Wait
from svcd.chain.transition import ChainPoint
from svcd.node.threads import Worker
from svcd.store.chain_store import ChainReader
from svcd.store.copying import CopyError, copy_databases
from svcd.store.database import open_reader


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

    def __init__(self, chain: Path, others: Sequence[Path], worker: Worker) -> None:
        """``chain`` is the chain's database; ``others`` follow it, and are copied as they were a moment before."""
        self._chain = chain
        self._others = others
        self._worker = worker
        self._busy = False
        self._ending = False

    def stopService(self) -> None:
        """Give up a copy that is being made, so that nobody has to wait for it."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._ending = True

    async def make(self, folder: Path) -> Backup:
        """Copy everything into a new ``folder``; raises CopyError, or NotYet while another copy is being made."""
        if self._busy:
            raise NotYet(Wait.BUSY, "another backup is being made; wait until it is done")
        self._busy = True
        try:
            return await self._worker.run(self._copy, folder)
        finally:
            self._busy = False

    def _copy(self, folder: Path) -> Backup:
        # The chain last: what follows it may have seen less of it than the copy holds, and never more.
        sizes = copy_databases([*self._others, self._chain], folder, progress=self._go_on)
        with closing(open_reader(folder / self._chain.name)) as connection:
            tip = ChainReader(connection).tip()
        if tip is None:
            raise Corrupt(f"{folder / self._chain.name} holds no block")
        return Backup(tip, sizes)

    def _go_on(self, _left: int, _total: int) -> None:
        if self._ending:
            raise CopyError("the node is being stopped, and no backup was made; make it when it runs again")
