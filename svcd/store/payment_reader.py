"""Questions about payments on the canonical chain: their time does not grow with the chain (docs/operations.md)."""

import sqlite3
from typing import Final

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
_NEAR_MISSES: Final = (
    f"SELECT p.position, x.body, {POINT} FROM (SELECT amount, height, position FROM ("
    "SELECT amount, height, position FROM payment_place WHERE reference = ? AND recipient = ? AND amount {side} ? "
    "ORDER BY amount {order} LIMIT ?) WHERE height >= ? ORDER BY amount {order} LIMIT ?) p " + _JOINED
)
LESS: Final = _NEAR_MISSES.format(side="<", order="DESC")
MORE: Final = _NEAR_MISSES.format(side=">", order="ASC")
LOOKED_AT: Final = 1_000
"""So many transfers of a wrong amount are looked at on either side, however many somebody has sent."""


class PaymentReader:
    """Finds transfers by reference, recipient and amount."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

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
