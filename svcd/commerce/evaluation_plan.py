"""The watches that are still to be evaluated, taken in shares in which every merchant has a part.

So the events of a merchant with few watches do not wait for those of a merchant with thousands.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from attrs import define, field

from svcd.store.webhook_store import WatchName

NEWEST: Final = -1
"""Stands for the height of the newest block, even if blocks arrive before the watch's turn."""

Heights = set[int]
"""Heights of blocks at which a watch is to be evaluated, besides the one at which it is to be woken."""


@define
class EvaluationPlan:
    """Watches by merchant, each merchant's in the order in which they were added."""

    height: int
    """Up to which block the watches that blocks affect have been added."""
    term: int | None
    """The term in which it was begun (svcd.commerce.leadership)."""
    payments: dict[tuple[str, str, int], None] = field(factory=dict, init=False)
    """The payments of the mempool changes whose watches have been added."""
    more_expire: bool = field(default=False, init=False)
    """Whether further watches may have expired when it was begun."""
    _waiting: OrderedDict[str, OrderedDict[str, Heights]] = field(factory=OrderedDict, init=False)
    """By merchant, the least recently served one first, and by id.

    Not a dict: to find its first entry, a dict passes the places of all that were removed before it.
    """

    def __bool__(self) -> bool:
        """Whether a watch is left."""
        return bool(self._waiting)

    def add(self, watches: Iterable[WatchName], *heights: int) -> None:
        """Add watches that are to be evaluated at these heights; those that are there get these heights, too."""
        for watch in watches:
            self._waiting.setdefault(watch.merchant, OrderedDict()).setdefault(watch.id, set()).update(heights)

    def take(self, count: int) -> dict[str, Heights]:
        """Remove at most ``count`` watches, from each merchant in turn; returns their heights by id."""
        share: dict[str, Heights] = {}
        while self._waiting and len(share) < count:
            merchant, watches = self._waiting.popitem(last=False)
            identifier, share[identifier] = watches.popitem(last=False)
            if watches:
                self._waiting[merchant] = watches
        return share
