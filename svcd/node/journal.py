"""The waiting transfers on disk: many changes to the mempool share one database transaction."""

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svcd.chain.transaction import Transfer
from svcd.node.mempool import Entry
from svcd.node.threads import Worker
from svcd.store.chain_store import ChainWriter


class PoolJournal:
    """Writes what enters and leaves the mempool, in order, while the next changes gather."""

    def __init__(self, writer: Worker, store: ChainWriter) -> None:
        self._writer = writer
        self._store = store
        self._added: dict[bytes, tuple[int, Transfer]] = {}
        """By txid: thousands gather during one commit, and each record must not look at them all."""
        self._removed: list[bytes] = []
        """What has left."""
        self._displaced: list[bytes] = []
        """What has left for something that came in: one is not to be committed without the other."""
        self._waiting: list[Deferred[None]] = []
        self._writing = False

    def record(self, added: Sequence[Entry], removed: Sequence[Entry]) -> Deferred[None]:
        """A Deferred that fires when the changes are committed; it fails with what the disk says.

        Then nothing of ``added`` is on disk and nothing that it displaced has gone; what was only removed goes with the
        next change.
        """
        gone = [entry.transfer.txid for entry in removed]
        for txid in gone:
            # What came and went before it was ever written need not be written.
            self._added.pop(txid, None)
        (self._displaced if added else self._removed).extend(gone)
        self._added |= {entry.transfer.txid: (entry.sequence, entry.transfer) for entry in added}
        committed: Deferred[None] = Deferred()
        self._waiting.append(committed)
        if not self._writing:
            self._write()
        return committed

    def _write(self) -> None:
        added, self._added = list(self._added.values()), {}
        removed, self._removed = self._removed, []
        displaced, self._displaced = self._displaced, []
        waiting, self._waiting = self._waiting, []
        self._writing = True

        def done(result: object) -> None:
            self._writing = False
            if isinstance(result, Failure):
                # What is still on disk is let go of with the next change.
                self._removed = removed + self._removed
            for committed in waiting:
                committed.callback(result)  # type: ignore[arg-type]
            if self._waiting and not self._writing:
                self._write()

        self._writer.run(self._commit, added, removed + displaced).addBoth(done)

    def _commit(self, added: list[tuple[int, Transfer]], removed: list[bytes]) -> None:
        with self._store.commit():
            self._store.write_pool(added, removed)
