"""The mempool's transfers by recipient: the transfers on their way to an address."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from svcd.chain.encoding import MAX_INTEGER
from svcd.node.mempool import MempoolEntry
from svcd.node.transaction_pool import TransactionPool

_NONE: Final[dict[int, MempoolEntry]] = {}


class RecipientIndex:
    """Waiting transfers by recipient and order of arrival; a MempoolListener of svcd.node.transaction_pool."""

    def __init__(self, entries: Iterable[MempoolEntry] = ()) -> None:
        self._single: dict[bytes, MempoolEntry] = {}
        """The transfer to a recipient of only one, as nearly all are."""
        self._several: dict[bytes, dict[int, MempoolEntry]] = {}
        """The transfers to recipients that have, or had, more, by sequence number: they are announced in that order."""
        self.pool_changed(list(entries), [])

    @classmethod
    def subscribed(cls, pool: TransactionPool) -> "RecipientIndex":
        """The index of a mempool that has been loaded; it follows the mempool from now on."""
        index = cls(pool.mempool.entries())
        pool.subscribe(index)
        return index

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Iterable[MempoolEntry]) -> None:
        """Follow a change of the mempool."""
        for entry in removed:
            self._remove(entry)
        for entry in added:
            self._add(entry)

    def newest(self, recipient: bytes, *, limit: int, before: int = MAX_INTEGER) -> list[MempoolEntry]:
        """The newest ``limit`` transfers to ``recipient`` with sequence numbers below ``before``, newest first."""
        entries = self._of(recipient)
        return list(islice((entries[number] for number in reversed(entries) if number < before), limit))

    def oldest(self, recipient: bytes, *, after: int = 0) -> Iterator[MempoolEntry]:
        """The transfers to ``recipient`` with sequence numbers above ``after``, oldest first."""
        return (entry for number, entry in self._of(recipient).items() if number > after)

    def _of(self, recipient: bytes) -> dict[int, MempoolEntry]:
        single = self._single.get(recipient)
        return self._several.get(recipient, _NONE) if single is None else {single.sequence: single}

    def _add(self, entry: MempoolEntry) -> None:
        recipient = entry.transfer.recipient
        several = self._several.get(recipient)
        if several is None:
            single = self._single.pop(recipient, None)
            if single is None:
                self._single[recipient] = entry
                return
            several = self._several[recipient] = {single.sequence: single}
        several[entry.sequence] = entry

    def _remove(self, entry: MempoolEntry) -> None:
        recipient = entry.transfer.recipient
        # A transfer may leave before its arrival is announced; then it was never in the index.
        if self._single.get(recipient) is entry:
            del self._single[recipient]
        several = self._several.get(recipient)
        if several is not None and several.get(entry.sequence) is entry:
            del several[entry.sequence]
            if not several:
                del self._several[recipient]
