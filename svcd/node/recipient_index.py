"""The mempool's transfers by recipient and by reference: what is on its way to an address or for an order."""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final, Generic, Self, TypeVar

from attrs import define, field

from svcd.chain.encoding import MAX_INTEGER
from svcd.node.mempool import MempoolEntry
from svcd.node.transaction_pool import TransactionPool

K = TypeVar("K", bound=Hashable)


@define(eq=False)
class _Arrivals:
    """The transfers of one key, which may be all that wait: to find or to remove one must not pass all others."""

    entries: dict[int, MempoolEntry] = field(factory=dict)
    """By sequence number."""
    _numbers: list[int] = field(factory=list)
    """Their sequence numbers in ascending order, and some of transfers that have left: at most one in nine, and 64."""

    def add(self, entry: MempoolEntry) -> None:
        """Add a transfer, which nearly always is the newest one."""
        self.entries[entry.sequence] = entry
        place = bisect_left(self._numbers, entry.sequence)
        if self._numbers[place : place + 1] != [entry.sequence]:
            self._numbers.insert(place, entry.sequence)

    def remove(self, entry: MempoolEntry) -> bool:
        """Remove a transfer; False if it is not there."""
        if self.entries.get(entry.sequence) is not entry:
            return False
        del self.entries[entry.sequence]
        if len(self._numbers) > len(self.entries) * 9 // 8 + 64:
            self._numbers = sorted(self.entries)
        return True

    def before(self, number: int) -> Iterator[MempoolEntry]:
        """The transfers with sequence numbers below ``number``, newest first."""
        return self._present(range(bisect_left(self._numbers, number) - 1, -1, -1))

    def after(self, number: int) -> Iterator[MempoolEntry]:
        """The transfers with sequence numbers above ``number``, oldest first."""
        return self._present(range(bisect_right(self._numbers, number), len(self._numbers)))

    def _present(self, places: range) -> Iterator[MempoolEntry]:
        numbers, entries = self._numbers, self.entries
        return (entries[numbers[place]] for place in places if numbers[place] in entries)


_NONE: Final = _Arrivals()


def _only(entry: MempoolEntry) -> _Arrivals:
    arrivals = _Arrivals()
    arrivals.add(entry)
    return arrivals


class _MempoolIndex(Generic[K]):
    """Waiting transfers by a key and order of arrival; a MempoolListener of svcd.node.transaction_pool."""

    _field: ClassVar[str]
    """The field of a transfer that is its key; a transfer without one is left out."""

    def __init__(self, entries: Iterable[MempoolEntry] = ()) -> None:
        self._single: dict[K, MempoolEntry] = {}
        """The transfer of a key with only one, as nearly all are."""
        self._several: dict[K, _Arrivals] = {}
        """The transfers of keys that have, or had, more."""
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

    def __contains__(self, key: K) -> bool:
        """Whether a transfer of ``key`` waits."""
        return key in self._single or key in self._several

    def newest(self, key: K, *, limit: int, before: int = MAX_INTEGER) -> list[MempoolEntry]:
        """The newest ``limit`` transfers of ``key`` with sequence numbers below ``before``, newest first."""
        return list(islice(self._of(key).before(before), limit))

    def oldest(self, key: K, *, after: int = 0) -> Iterator[MempoolEntry]:
        """The transfers of ``key`` with sequence numbers above ``after``, oldest first."""
        return self._of(key).after(after)

    def _of(self, key: K) -> _Arrivals:
        single = self._single.get(key)
        return self._several.get(key, _NONE) if single is None else _only(single)

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
            several = self._several[key] = _only(single)
        several.add(entry)

    def _remove(self, entry: MempoolEntry) -> None:
        key: K | None = getattr(entry.transfer, self._field)
        if key is None:
            return
        # A transfer may leave before its arrival is announced; then it was never in the index.
        if self._single.get(key) is entry:
            del self._single[key]
        several = self._several.get(key)
        if several is not None and several.remove(entry) and not several.entries:
            del self._several[key]


class RecipientIndex(_MempoolIndex[bytes]):
    """Waiting transfers by the key hash of their recipient."""

    _field = "recipient"


class ReferenceIndex(_MempoolIndex[str]):
    """Waiting transfers by their reference."""

    _field = "reference"
