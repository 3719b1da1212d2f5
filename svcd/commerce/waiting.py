"""The waiting transfers by what they pay: a question about a payment does not go through the whole mempool."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from svcd.commerce.payment import MAX_COUNTED, MAX_MISMATCHES, Mismatch, Terms
from svcd.node.mempool import Entry


class WaitingPayments:
    """Which transfers with a reference wait, told by the mempool as they come and go (see PoolListener)."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_payee: dict[tuple[str, bytes], dict[int, list[tuple[int, bytes]]]] = {}
        """By reference and recipient, then by amount: local number and txid in order of arrival."""
        self.pool_changed(list(entries), [])

    def __len__(self) -> int:
        return sum(len(entries) for amounts in self._by_payee.values() for entries in amounts.values())

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
        amounts = self._by_payee.setdefault((transfer.reference, transfer.recipient), {})
        insort(amounts.setdefault(transfer.amount, []), (entry.sequence, transfer.txid))

    def _remove(self, entry: Entry) -> None:
        transfer = entry.transfer
        payee = (transfer.reference or "", transfer.recipient)
        amounts = self._by_payee.get(payee, {})
        entries = amounts.get(transfer.amount, [])
        place = (entry.sequence, transfer.txid)
        at = bisect_left(entries, place)
        # What leaves before its arrival was told was never here.
        if at == len(entries) or entries[at] != place:
            return
        del entries[at]
        if not entries:
            del amounts[transfer.amount]
        if not amounts:
            del self._by_payee[payee]

    def matching(self, terms: Terms) -> list[bytes]:
        """The txids of transfers that pay the order, in order of arrival; no more than are counted."""
        entries = self._by_payee.get((terms.reference, terms.key), {}).get(terms.amount, [])
        return [txid for _, txid in entries[:MAX_COUNTED]]

    def mismatching(self, terms: Terms) -> list[Mismatch]:
        """Some transfers to the recipient under the reference, but of other amounts."""
        return list(islice(self._others(terms), MAX_MISMATCHES))

    def _others(self, terms: Terms) -> Iterator[Mismatch]:
        for amount, entries in self._by_payee.get((terms.reference, terms.key), {}).items():
            if amount != terms.amount:
                for _, txid in entries:
                    yield Mismatch(txid, amount, None)
