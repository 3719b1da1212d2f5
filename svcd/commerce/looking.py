"""Looks for a payment on the chain and in the mempool, in one moment of both."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_transfer, txid_of
from svcd.commerce.payment import (
    MAX_COUNTED,
    MAX_MISMATCHES,
    Mismatch,
    Place,
    Sighting,
    Terms,
    Tip,
    sighting_of,
)
from svcd.commerce.waiting import WaitingPayments
from svcd.node.ledger import Ledger
from svcd.node.transfers import Transfers
from svcd.store import rows
from svcd.store.chain_store import ChainReader

REMEMBERED: Final = 1_024
"""Orders of which is remembered what the chain shows until it changes: shops ask for the same one again and again."""

OnChain = tuple[Tip, tuple[Place, ...], tuple[Mismatch, ...]]
"""What a chain shows of a payment: its tip, the matching transfers, and some of other amounts."""


class Payments:
    """What there is to see of payments now; for the thread that ``reader`` and ``waiting`` belong to.

    ``told`` gives the hash of the tip that everybody has been told of, if there is somebody who tells: while it is the
    same the chain is not asked again for the same payment.
    """

    def __init__(
        self,
        params: NetworkParams,
        reader: ChainReader,
        waiting: WaitingPayments,
        told: Callable[[], bytes] | None = None,
    ) -> None:
        self._params = params
        self._reader = reader
        self._waiting = waiting
        self._told = told
        self._remembered = lru_cache(REMEMBERED)(self._read)

    @classmethod
    def followed(cls, ledger: Ledger, transfers: Transfers) -> "Payments":
        """Of a living chain whose mempool has been loaded; hears of every later change of it."""
        waiting = WaitingPayments(transfers.mempool.entries())
        transfers.subscribe(waiting)
        return cls(ledger.params, ledger.reader, waiting, lambda: ledger.tip.hash)

    def look(self, terms: Terms) -> Sighting:
        """What chain and mempool show of the payment; the time does not grow with the length of either."""
        if self._told is None:
            return self._sighting(terms, *self._read(terms))
        return self._sighting(terms, *self._remembered(terms, self._told()))

    def _read(self, terms: Terms, _told: bytes = b"") -> OnChain:
        seen = self._reader.around_and_tip(
            (terms.reference, terms.key),
            terms.amount,
            since=terms.since_height or 0,
            counted=MAX_COUNTED,
            missed=MAX_MISMATCHES,
        )
        if seen is None:
            with self._reader.snapshot():
                return self._read_from(terms, self.tip())
        height, tip, paid, missed = seen
        return self._on_chain(Tip(height, tip), paid, missed)

    def tip(self) -> Tip:
        """The newest canonical block; the reader knows it a moment before the ledger tells of it."""
        point = self._reader.tip()
        if point is None:
            raise Corrupt("the database has no chain in it")
        return Tip(point.height, point.hash)

    def look_from(self, terms: Terms, tip: Tip) -> Sighting:
        """The same from ``tip``, a canonical block, as if there were none above it; within a snapshot of the chain."""
        return self._sighting(terms, *self._read_from(terms, tip))

    def _read_from(self, terms: Terms, tip: Tip) -> OnChain:
        payee, since = (terms.reference, terms.key), terms.since_height or 0
        paid, missed = self._reader.around(payee, terms.amount, since=since, counted=MAX_COUNTED, missed=MAX_MISMATCHES)
        return self._on_chain(tip, paid, missed)

    def _on_chain(self, tip: Tip, paid: list[rows.Place], missed: list[rows.Place]) -> OnChain:
        return (
            tip,
            tuple([self._place(place) for place in paid if place.point.height <= tip.height]),
            tuple([self._mismatch(place) for place in missed if place.point.height <= tip.height]),
        )

    def _sighting(
        self, terms: Terms, tip: Tip, places: tuple[Place, ...], mismatches: tuple[Mismatch, ...]
    ) -> Sighting:
        return sighting_of(
            terms,
            tip,
            places=places,
            pending=self._waiting.matching(terms),
            mismatches=(*mismatches, *self._waiting.mismatching(terms)),
        )

    def _place(self, place: rows.Place) -> Place:
        point = place.point
        # The chain has checked the transfer: its id can be had without reading all of it again.
        txid = txid_of(place.body, self._params)
        return Place(txid, point.hash, point.height, place.position, self._params.slot_time(point.slot))

    def _mismatch(self, place: rows.Place) -> Mismatch:
        transfer = parse_transfer(json.loads(place.body), self._params)
        return Mismatch(transfer.txid, transfer.amount, place.point.height)
