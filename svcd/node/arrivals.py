"""Transfers on their way from the mempool to the disk: known only when they are there (docs/protocol.md 12)."""

from collections.abc import Callable, Sequence

from attrs import define, field
from twisted.internet.defer import Deferred

from svcd.node.journal import PoolJournal
from svcd.node.mempool import Admission, Entry, Mempool


@define(eq=False)
class _Arrival:
    """What depends on one commit."""

    removed: list[Entry]
    """What the transfer took the place of: back again if the commit fails."""
    waiting: list[Deferred[None]] = field(factory=list)


class Arrivals:
    """Writes admissions down, and undoes in the mempool what could not be written.

    ``readmit`` takes an entry into the mempool again and says whether that was possible; ``let_go`` removes entries
    that have left it from the disk, and tells everybody.
    """

    def __init__(
        self,
        mempool: Mempool,
        journal: PoolJournal,
        *,
        readmit: Callable[[Entry], bool],
        let_go: Callable[[Sequence[Entry]], None],
    ) -> None:
        self._mempool = mempool
        self._journal = journal
        self._readmit = readmit
        self._let_go = let_go
        self._under_way: dict[Entry, _Arrival] = {}

    async def committed(self, txid: bytes) -> None:
        """Wait until a waiting transfer is on disk; raises what its commit fails with."""
        entry = self._mempool.get(txid)
        arrival = self._under_way.get(entry) if entry else None
        if arrival is not None:
            done: Deferred[None] = Deferred()
            arrival.waiting.append(done)
            await done

    async def write(self, admission: Admission) -> list[Entry]:
        """What has left for the admission, when all of it is on disk; raises what the disk says."""
        arrival = self._under_way[admission.entry] = _Arrival(list(admission.removed))
        try:
            await self._journal.record([admission.entry], admission.removed)
        except Exception as error:
            del self._under_way[admission.entry]
            try:
                self._undo(admission.entry, arrival.removed)
            finally:
                for done in arrival.waiting:
                    done.errback(error)
            raise
        del self._under_way[admission.entry]
        self._let_go([entry for entry in arrival.removed if entry not in admission.removed])
        for done in arrival.waiting:
            done.callback(None)
        return [entry for entry in arrival.removed if entry in admission.removed]

    def _undo(self, failed: Entry, removed: Sequence[Entry]) -> None:
        if self._mempool.get(failed.transfer.txid) is failed:
            self._mempool.drop([failed.transfer.txid])
        superseded = [entry for entry in removed if not self._readmit(entry)]
        # Whoever took the place of the one that failed has taken theirs: what becomes of it decides about them.
        heirs = [arrival for arrival in self._under_way.values() if failed in arrival.removed]
        for heir in heirs:
            heir.removed.remove(failed)
            heir.removed += superseded
        if not heirs:
            self._let_go(superseded)
