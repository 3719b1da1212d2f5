"""Questions about payments on the canonical chain: their time does not grow with the chain (docs/operations.md)."""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from svcd.store.rows import POINT, Place, place_of

_JOINED: Final = (
    "JOIN canonical c ON c.height = p.height JOIN block b ON b.id = c.block "
    "JOIN block_transaction x ON x.block = b.id AND x.position = p.position"
)
PAYMENTS: Final = (
    f"SELECT p.position, x.body, {POINT} FROM payment_place p {_JOINED} "
    "WHERE p.reference = ? AND p.recipient = ? AND p.amount = ? AND p.height >= ? "
    "ORDER BY p.height, p.position LIMIT ?"
)
ALL: Final = (
    f"SELECT p.amount, p.position, x.body, {POINT} FROM (SELECT amount, height, position FROM payment_place "
    f"WHERE reference = ? AND recipient = ? ORDER BY amount, height, position LIMIT ?) p {_JOINED}"
)
ALL_AND_TIP: Final = (
    f"SELECT t.height, t.hash, p.amount, p.position, x.body, {POINT} FROM canonical n JOIN block t ON t.id = n.block "
    "LEFT JOIN payment_place p ON p.reference = ? AND p.recipient = ? LEFT JOIN canonical c ON c.height = p.height "
    "LEFT JOIN block b ON b.id = c.block LEFT JOIN block_transaction x ON x.block = b.id AND x.position = p.position "
    "WHERE n.height = (SELECT max(height) FROM canonical) LIMIT ?"
)
"""One row at least, for the tip; nothing is sorted, for what is more than a few rows is asked for in another way."""
_NEAR_MISSES: Final = (
    f"SELECT p.position, x.body, {POINT} FROM (SELECT amount, height, position FROM ("
    "SELECT amount, height, position FROM payment_place WHERE reference = ? AND recipient = ? AND amount {side} ? "
    "ORDER BY amount {order} LIMIT ?) WHERE height >= ? ORDER BY amount {order} LIMIT ?) p " + _JOINED
)
LESS: Final = _NEAR_MISSES.format(side="<", order="DESC")
MORE: Final = _NEAR_MISSES.format(side=">", order="ASC")
UNDER_REFERENCE: Final = (
    f"SELECT p.position, x.body, {POINT} FROM payment_place p {_JOINED} "
    "WHERE p.reference = ? ORDER BY p.recipient, p.amount, p.height, p.position LIMIT ?"
)
LOOKED_AT: Final = 1_000
"""So many transfers of a wrong amount are looked at on either side, however many somebody has sent."""

FEW: Final = 10
"""No more transfers than these under one reference are read with one statement, whatever their amounts."""


class PaymentReader:
    """Finds transfers by reference, recipient and amount."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def around_and_tip(
        self, payee: tuple[str, bytes], amount: int, *, since: int, counted: int, missed: int
    ) -> tuple[int, bytes, list[Place], list[Place]] | None:
        """Height and hash of the tip, and what :meth:`around` gives, all of one commit and in one statement.

        None where there are too many for that, or no chain.
        """
        rows = self._db.execute(ALL_AND_TIP, (*payee, FEW + 1)).fetchall()
        if not rows or len(rows) > FEW:
            return None
        height, tip = rows[0][:2]
        places = [row[2:] for row in rows if row[2] is not None]
        return height, tip, *_parted(places, amount, since=since, counted=counted, missed=missed)

    def around(
        self, payee: tuple[str, bytes], amount: int, *, since: int, counted: int, missed: int
    ) -> tuple[list[Place], list[Place]]:
        """What :meth:`payments` gives with the limit ``counted``, and :meth:`near_misses` with the limit ``missed``.

        Most orders are paid once: one statement finds that out, where the two would need three.
        """
        rows = self._db.execute(ALL, (*payee, FEW + 1)).fetchall()
        if len(rows) > FEW:
            return (
                self.payments(payee, amount, since=since, limit=counted),
                self.near_misses(payee, amount, since=since, limit=missed),
            )
        return _parted(rows, amount, since=since, counted=counted, missed=missed)

    def payments(self, payee: tuple[str, bytes], amount: int, *, since: int, limit: int) -> list[Place]:
        """The transfers to ``payee`` (reference and key hash) of exactly ``amount``, the first ones first.

        Only those in blocks at height ``since`` and above.
        """
        rows = self._db.execute(PAYMENTS, (*payee, amount, since, limit))
        return [place_of(row) for row in rows]

    def near_misses(self, payee: tuple[str, bytes], amount: int, *, since: int, limit: int) -> list[Place]:
        """The transfers to ``payee`` of other amounts: at most ``limit`` below and ``limit`` above, the nearest."""
        return [
            place_of(row)
            for statement in (LESS, MORE)
            for row in self._db.execute(statement, (*payee, amount, LOOKED_AT, since, limit))
        ]

    def under_reference(self, reference: str, *, limit: int) -> list[Place]:
        """Transfers to anybody under ``reference``, by recipient, amount and age."""
        return [place_of(row) for row in self._db.execute(UNDER_REFERENCE, (reference, limit))]


def _parted(
    rows: list[Sequence[Any]], amount: int, *, since: int, counted: int, missed: int
) -> tuple[list[Place], list[Place]]:
    """The payments of ``amount``, and the nearest others, from rows that begin with an amount."""
    places = [(row[0], place) for row in rows if (place := place_of(row[1:])).point.height >= since]
    places.sort(key=_amount_and_place)
    less = [place for paid, place in places if paid < amount]
    more = [place for paid, place in places if paid > amount]
    return [place for paid, place in places if paid == amount][:counted], less[-missed:] + more[:missed]


def _amount_and_place(row: tuple[int, Place]) -> tuple[int, int, int]:
    amount, place = row
    return amount, place.point.height, place.position
