"""A mapping of bounded size for entries that strangers can cause: a new entry replaces the oldest."""

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """The ``capacity`` entries that were set last, in that order."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    def __setitem__(self, key: K, value: V) -> None:
        """Set an entry, which becomes the newest; the oldest is removed if there is no room."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._capacity:
            self.popitem(last=False)
