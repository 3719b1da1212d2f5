"""The waiting transfers by what they pay: a question about a payment does not go through the whole mempool."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from svcd.commerce.payment import MAX_COUNTED, MAX_MISMATCHES, Mismatch, Terms
from svcd.node.mempool import Entry


class WaitingPayments:
    """Which transfers with a reference wait, told by the mempool as they come and go (see PoolListener)."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._only: dict[_Payee, Entry] = {}
        """Where one waits; nearly always that is all there is, and an index of its own would be larger than it."""
        self._several: dict[_Payee, dict[int, list[tuple[int, bytes]]]] = {}
        """Where more wait, or did, by amount: local number and txid in order of arrival."""
        self.pool_changed(list(entries), [])

    def __len__(self) -> int:
        several = sum(len(entries) for amounts in self._several.values() for entries in amounts.values())
        return len(self._only) + several

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Follow the mempool."""
        for entry in removed:
            self._remove(entry)
        for entry in added:
            self._add(entry)

    def _add(self, entry: Entry) -> None:
        transfer = entry.transfer
        if transfer.reference is None:
            return
        payee = (transfer.reference, transfer.recipient)
        amounts = self._several.get(payee)
        if amounts is None:
            only = self._only.pop(payee, None)
            if only is None:
                self._only[payee] = entry
                return
            amounts = self._several[payee] = {only.transfer.amount: [_place(only)]}
        insort(amounts.setdefault(transfer.amount, []), _place(entry))

    def _remove(self, entry: Entry) -> None:
        transfer = entry.transfer
        payee, place = (transfer.reference or "", transfer.recipient), _place(entry)
        only = self._only.get(payee)
        if only is not None and _place(only) == place:
            del self._only[payee]
            return
        amounts = self._several.get(payee, {})
        entries = amounts.get(transfer.amount, [])
        at = bisect_left(entries, place)
        # What leaves before its arrival was told was never here.
        if at == len(entries) or entries[at] != place:
            return
        del entries[at]
        if not entries:
            del amounts[transfer.amount]
        if not amounts:
            del self._several[payee]

    def _amounts(self, terms: Terms) -> dict[int, list[tuple[int, bytes]]]:
        payee = (terms.reference, terms.key)
        only = self._only.get(payee)
        return self._several.get(payee, {}) if only is None else {only.transfer.amount: [_place(only)]}

    def matching(self, terms: Terms) -> list[bytes]:
        """The txids of transfers that pay the order, in order of arrival; no more than are counted."""
        entries = self._amounts(terms).get(terms.amount, [])
        return [txid for _, txid in entries[:MAX_COUNTED]]

    def mismatching(self, terms: Terms) -> list[Mismatch]:
        """Some transfers to the recipient under the reference, but of other amounts."""
        return list(islice(self._others(terms), MAX_MISMATCHES))

    def _others(self, terms: Terms) -> Iterator[Mismatch]:
        for amount, entries in self._amounts(terms).items():
            if amount != terms.amount:
                for _, txid in entries:
                    yield Mismatch(txid, amount, None)


_Payee = tuple[str, bytes]
"""Reference and recipient."""


def _place(entry: Entry) -> tuple[int, bytes]:
    return entry.sequence, entry.transfer.txid
