"""Looks for a payment on the chain and in the mempool, in one moment of both."""

import json

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


class Payments:
    """What there is to see of payments now; for the thread that ``reader`` and ``waiting`` belong to."""

    def __init__(self, params: NetworkParams, reader: ChainReader, waiting: WaitingPayments) -> None:
        self._params = params
        self._reader = reader
        self._waiting = waiting

    @classmethod
    def followed(cls, ledger: Ledger, transfers: Transfers) -> "Payments":
        """Of a living chain whose mempool has been loaded; hears of every later change of it."""
        waiting = WaitingPayments(transfers.mempool.entries())
        transfers.subscribe(waiting)
        return cls(ledger.params, ledger.reader, waiting)

    def look(self, terms: Terms) -> Sighting:
        """What chain and mempool show of the payment; the time does not grow with the length of either."""
        seen = self._reader.around_and_tip(
            (terms.reference, terms.key),
            terms.amount,
            since=terms.since_height or 0,
            counted=MAX_COUNTED,
            missed=MAX_MISMATCHES,
        )
        if seen is None:
            with self._reader.snapshot():
                return self.look_from(terms, self.tip())
        height, tip, paid, missed = seen
        return self._sighting(terms, Tip(height, tip), paid, missed)

    def tip(self) -> Tip:
        """The newest canonical block; the reader knows it a moment before the ledger tells of it."""
        point = self._reader.tip()
        if point is None:
            raise Corrupt("the database has no chain in it")
        return Tip(point.height, point.hash)

    def look_from(self, terms: Terms, tip: Tip) -> Sighting:
        """The same from ``tip``, a canonical block, as if there were none above it; within a snapshot of the chain."""
        payee, since = (terms.reference, terms.key), terms.since_height or 0
        paid, missed = self._reader.around(payee, terms.amount, since=since, counted=MAX_COUNTED, missed=MAX_MISMATCHES)
        return self._sighting(terms, tip, paid, missed)

    def _sighting(self, terms: Terms, tip: Tip, paid: list[rows.Place], missed: list[rows.Place]) -> Sighting:
        return sighting_of(
            terms,
            tip,
            places=[self._place(place) for place in paid if place.point.height <= tip.height],
            pending=self._waiting.matching(terms),
            mismatches=[
                *(self._mismatch(place) for place in missed if place.point.height <= tip.height),
                *self._waiting.mismatching(terms),
            ],
        )

    def _place(self, place: rows.Place) -> Place:
        point = place.point
        # The chain has checked the transfer: its id can be had without reading all of it again.
        txid = txid_of(place.body, self._params)
        return Place(txid, point.hash, point.height, place.position, self._params.slot_time(point.slot))

    def _mismatch(self, place: rows.Place) -> Mismatch:
        transfer = parse_transfer(json.loads(place.body), self._params)
        return Mismatch(transfer.txid, transfer.amount, place.point.height)
