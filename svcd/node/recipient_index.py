"""The mempool's transfers by recipient and by reference: what is on its way to an address or for an order."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final, Generic, Self, TypeVar

from svcd.chain.encoding import MAX_INTEGER
from svcd.node.mempool import MempoolEntry
from svcd.node.transaction_pool import TransactionPool

_NONE: Final[dict[int, MempoolEntry]] = {}

K = TypeVar("K", bound=Hashable)


class _MempoolIndex(Generic[K]):
    """Waiting transfers by a key and order of arrival; a MempoolListener of svcd.node.transaction_pool."""

    _field: ClassVar[str]
    """The field of a transfer that is its key; a transfer without one is left out."""

    def __init__(self, entries: Iterable[MempoolEntry] = ()) -> None:
        self._single: dict[K, MempoolEntry] = {}
        """The transfer of a key with only one, as nearly all are."""
        self._several: dict[K, dict[int, MempoolEntry]] = {}
        """The transfers of keys that have, or had, more, by sequence number: they are announced in that order."""
        self.pool_changed(list(entries), [])

    @classmethod
    def subscribed(cls, pool: TransactionPool) -> Self:
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

    def newest(self, key: K, *, limit: int, before: int = MAX_INTEGER) -> list[MempoolEntry]:
        """The newest ``limit`` transfers of ``key`` with sequence numbers below ``before``, newest first."""
        entries = self._of(key)
        return list(islice((entries[number] for number in reversed(entries) if number < before), limit))

    def oldest(self, key: K, *, after: int = 0) -> Iterator[MempoolEntry]:
        """The transfers of ``key`` with sequence numbers above ``after``, oldest first."""
        return (entry for number, entry in self._of(key).items() if number > after)

    def _of(self, key: K) -> dict[int, MempoolEntry]:
        single = self._single.get(key)
        return self._several.get(key, _NONE) if single is None else {single.sequence: single}

    def _add(self, entry: MempoolEntry) -> None:
        key: K | None = getattr(entry.transfer, self._field)
        if key is None:
            return
        several = self._several.get(key)
        if several is None:
            single = self._single.pop(key, None)
            if single is None:
                self._single[key] = entry
                return
            several = self._several[key] = {single.sequence: single}
        several[entry.sequence] = entry

    def _remove(self, entry: MempoolEntry) -> None:
        key: K | None = getattr(entry.transfer, self._field)
        if key is None:
            return
        # A transfer may leave before its arrival is announced; then it was never in the index.
        if self._single.get(key) is entry:
            del self._single[key]
        several = self._several.get(key)
        if several is not None and several.get(entry.sequence) is entry:
            del several[entry.sequence]
            if not several:
                del self._several[key]


class RecipientIndex(_MempoolIndex[bytes]):
    """Waiting transfers by the key hash of their recipient."""

    _field = "recipient"


class ReferenceIndex(_MempoolIndex[str]):
    """Waiting transfers by their reference."""

    _field = "reference"
