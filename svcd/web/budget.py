"""How many bytes of one resource each connection holds, and which connection gives way when there are too many."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from attrs import define

C = TypeVar("C")


@define
class _Share:
    client: str | None
    holder: object
    """The client, or the connection where it has none."""
    size: int = 0


class Budget(Generic[C]):
    """The shares of one resource, in the order in which they began.

    A share belongs to a client group, or to its connection alone where the client is None.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """All shares together."""
        self._shares: dict[C, _Share] = {}
        self._kept: dict[C, _Share] = {}
        self._of_holder: dict[object, int] = {}

    def __bool__(self) -> bool:
        """Whether a share may give way."""
        return bool(self._shares)

    def __iter__(self) -> Iterator[C]:
        """The connections whose share may give way, the oldest share first."""
        return iter(self._shares)

    def add(self, connection: C, client: str | None, size: int) -> None:
        """Let ``connection`` hold ``size`` bytes more for ``client``."""
        share = self._shares.get(connection)
        if share is None:
            share = self._shares[connection] = _Share(client, client or connection)
        share.size += size
        self._count(share.holder, size)

    def keep(self, connection: C) -> None:
        """Let the share of ``connection``, if it has one, count on but give way no more."""
        share = self._shares.pop(connection, None)
        if share is not None:
            self._kept[connection] = share

    def release(self, connection: C) -> str | None:
        """Count the share of ``connection`` no more and return its client; nothing happens if it has no share."""
        share = self._shares.pop(connection, None) or self._kept.pop(connection, None)
        if share is None:
            return None
        self._count(share.holder, -share.size)
        return share.client

    def of_client(self, client: str) -> int:
        """The bytes that all connections of ``client`` hold."""
        return self._of_holder.get(client, 0)

    def oldest_of(self, client: str) -> C:
        """The connection whose share began first among those of ``client`` that may give way; there must be one."""
        return next(connection for connection, share in self._shares.items() if share.client == client)

    def oldest_of_greediest(self, modest: int = 0) -> C:
        """The connection whose share began first among those of the client that holds most; one must give way.

        Clients that hold no more than ``modest`` bytes count as one: of them the oldest share of all comes first.
        """

        def greed(connection: C) -> int:
            return max(self._of_holder.get(self._shares[connection].holder, 0), modest)

        # max() returns the first of several that are equal, which is the oldest.
        return max(self._shares, key=greed)

    def _count(self, holder: object, change: int) -> None:
        self.bytes += change
        held = self._of_holder.get(holder, 0) + change
        if held:
            self._of_holder[holder] = held
        else:
            self._of_holder.pop(holder, None)
