"""Finds a payment on the chain and in the mempool, both as of one moment (docs/payments.md)."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final, TypeVar, cast

from attrs import define

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.commerce.payment import (
    MAX_COUNTED,
    MAX_MISMATCHES,
    ChainTip,
    Mismatch,
    Observation,
    PaymentLocation,
    observe,
)
from svcd.commerce.payment_list import GIVE_SINCE_HEIGHT
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.reorg_cost import ReorgCosts
from svcd.node.chain_manager import ChainManager
from svcd.node.mempool import MempoolEntry, arrival_of
from svcd.node.transaction_pool import TransactionPool
from svcd.store.chain_store import ChainReader, PlacedTransfer
from svcd.store.packed_transfer import txid_of_stored

_CACHED: Final = 1_024
"""Orders whose result is kept until the tip changes, since shops ask for the same order repeatedly."""

_SEARCHED: Final = 100
"""Transfers of an address that are searched for the one with a nonce; some milliseconds' work."""

OnChain = tuple[ChainTip, tuple[PaymentLocation, ...], tuple[Mismatch, ...]]
"""A payment on the chain: the tip, the matching transfers, and some of other amounts."""


T = TypeVar("T")


@define(eq=False)
class _Found:
    """A payment on the chain, what is observed of it where nothing waits in the mempool, and that as it is shown."""

    on_chain: OnChain
    observation: Observation
    shown: object = None


def _always() -> bool:
    return True


class PaymentLookup:
    """Looks payments up; for the thread that owns ``reader`` and ``mempool``.

    With a ``chain_manager``, to which ``reader`` belongs, results from the chain are cached until its tip changes;
    without it, nothing is cached.
    """

    def __init__(
        self,
        params: NetworkParams,
        reader: ChainReader,
        mempool: "MempoolPaymentIndex",
        chain_manager: ChainManager | None = None,
        *,
        synced: Callable[[], bool] = _always,
    ) -> None:
        self._params = params
        self._reader = reader
        self._mempool = mempool
        self._chain_manager = chain_manager
        self.synced = synced
        """Whether the node's chain is the network's, as far as it knows."""
        self.costs = ReorgCosts(params, reader)
        self._found: dict[PaymentTerms, _Found] = {}
        """Results as of ``_found_at``, the hash of a tip."""
        self._found_at = b""
        self._asked, self._asked_before = set[int](), set[int]()
        """The hashes of the newest orders that were looked up once: only a second question for an order is cached.

        The result of a single question would take the place of one that is asked for again, and freeing it later, when
        no processor cache has it any more, takes longer than to keep it.
        """

    @classmethod
    def subscribed(
        cls, chain_manager: ChainManager, pool: TransactionPool, *, synced: Callable[[], bool] = _always
    ) -> "PaymentLookup":
        """The lookup of a running node whose mempool has been loaded; it follows the mempool from now on."""
        mempool = MempoolPaymentIndex(pool.mempool.entries())
        pool.subscribe(mempool)
        return cls(chain_manager.params, chain_manager.reader, mempool, chain_manager, synced=synced)

    def find(self, terms: PaymentTerms) -> Observation:
        """The observation of the payment, in time that does not grow with chain and mempool.

        Raises Pruned if no transfer is found, and one may be in a block that this node does not have any more.
        """
        observation = self._find(terms)
        if observation.txid is None:
            # After the search: blocks may be deleted in between.
            self.check_kept(terms)
        return observation

    def show(self, terms: PaymentTerms, show: Callable[[PaymentTerms, Observation], T]) -> T:
        """What ``show``, always the same function, makes of the result of :meth:`find`; cached with it."""
        if self._chain_manager is None or terms in self._mempool or not self.synced():
            return show(terms, self.find(terms))
        found = self._look_up(terms, self._chain_manager.tip.hash)
        if found.observation.txid is None:
            self.check_kept(terms)
        if found.shown is None:
            found.shown = show(terms, found.observation)
        return cast(T, found.shown)

    def check_kept(self, terms: PaymentTerms) -> None:
        """Raise Pruned if the payment may be in a block that this node does not have any more."""
        asked = f"whether an earlier block has the payment of {terms.reference}"
        self._reader.check_kept(terms.since_height or 0, asked, GIVE_SINCE_HEIGHT)

    def find_watched(self, terms: PaymentTerms, seen: PaymentLocation | None) -> Observation:
        """The observation of a payment that was ``seen`` on the chain, where it stays after its block is deleted.

        Otherwise the payment seems to be gone once its block is.
        """
        tip, locations, mismatches = self._read(terms)
        return self._observe(terms, tip, self._with_deleted(locations, seen, tip), mismatches)

    def _find(self, terms: PaymentTerms) -> Observation:
        if self._chain_manager is None:
            return self._observe(terms, *self._read(terms))
        found = self._look_up(terms, self._chain_manager.tip.hash)
        if terms in self._mempool:
            return self._observe(terms, *found.on_chain)
        return found.observation if self.synced() else found.observation._replace(synced=False)

    def _look_up(self, terms: PaymentTerms, tip_hash: bytes) -> _Found:
        if tip_hash != self._found_at:
            self._found_at = tip_hash
            self._found.clear()
        found = self._found.get(terms)
        if found is None:
            on_chain = tip, locations, mismatches = self._read(terms)
            observation = observe(terms, tip, locations=locations, mismatches=mismatches, work_of=self.costs.of)
            found = _Found(on_chain, observation)
            if self._is_asked_again(hash(terms)):
                if len(self._found) >= _CACHED:
                    del self._found[next(iter(self._found))]
                self._found[terms] = found
        return found

    def _is_asked_again(self, order: int) -> bool:
        if order in self._asked or order in self._asked_before:
            return True
        if len(self._asked) >= _CACHED:
            self._asked, self._asked_before = set(), self._asked
        self._asked.add(order)
        return False

    def find_at(self, terms: PaymentTerms, tip: ChainTip, seen: PaymentLocation | None = None) -> Observation:
        """The same as if ``tip``, a canonical block, were the newest; inside a snapshot of the chain."""
        _, locations, mismatches = self._read_at(terms, tip)
        return self._observe(terms, tip, self._with_deleted(locations, seen, tip), mismatches)

    def _with_deleted(
        self, locations: tuple[PaymentLocation, ...], seen: PaymentLocation | None, tip: ChainTip
    ) -> tuple[PaymentLocation, ...]:
        """``locations`` and ``seen``, if its block is canonical and its transfers are not here any more."""
        if seen is None or seen in locations or seen.height > tip.height or seen.height >= self._reader.prune_height():
            return locations
        # The hash of the block, whose header is kept, stands for all of its transfers.
        block = self._reader.canonical(seen.height)
        return (seen, *locations) if block is not None and block.point.hash == seen.block_hash else locations

    def received_at(self, terms: PaymentTerms, tip: ChainTip, limit: int) -> list[Transfer]:
        """The canonical transfers under the reference up to ``tip``, of any amount, in the order of the chain.

        At most ``limit`` of the right amount, the oldest, and ``limit`` below and above, the nearest.
        """
        payee, since = (terms.reference, terms.key), terms.since_height or 0
        paid, missed = self._reader.around(payee, terms.amount, since=since, counted=limit, missed=limit)
        places = [place for place in (*paid, *missed) if place.height <= tip.height]
        places.sort(key=lambda place: (place.height, place.position))
        return [parse_canonical_transfer(place.body, self._params) for place in places]

    def spent_by(self, transfer: Transfer) -> bytes | None:
        """The txid of the canonical transfer that has the nonce of this one.

        None if it is not among the newest transfers of the sender's address, whose number is limited.
        """
        before = self._reader.existing_tip().height + 1, 0
        for place in self._reader.address_transactions(transfer.sender, before=before, limit=_SEARCHED):
            found = parse_canonical_transfer(place.body, self._params)
            if (found.sender, found.nonce) == (transfer.sender, transfer.nonce):
                return found.txid
        return None

    def _read(self, terms: PaymentTerms) -> OnChain:
        if self._chain_manager is not None:
            # The chain manager mostly knows the tip without another statement.
            (paid, missed), point = self._chain_manager.read(lambda _: self._around(terms))
            return self._on_chain(ChainTip(point.height, point.hash), paid, missed)
        with self._reader.snapshot():
            point = self._reader.existing_tip()
            return self._read_at(terms, ChainTip(point.height, point.hash))

    def _read_at(self, terms: PaymentTerms, tip: ChainTip) -> OnChain:
        return self._on_chain(tip, *self._around(terms))

    def _around(self, terms: PaymentTerms) -> tuple[list[PlacedTransfer], list[PlacedTransfer]]:
        payee, since = (terms.reference, terms.key), terms.since_height or 0
        return self._reader.around(payee, terms.amount, since=since, counted=MAX_COUNTED, missed=MAX_MISMATCHES)

    def _on_chain(self, tip: ChainTip, paid: list[PlacedTransfer], missed: list[PlacedTransfer]) -> OnChain:
        return (
            tip,
            tuple([self._location(place) for place in paid if place.height <= tip.height]),
            tuple([self._mismatch(place) for place in missed if place.height <= tip.height]),
        )

    def _observe(
        self,
        terms: PaymentTerms,
        tip: ChainTip,
        locations: tuple[PaymentLocation, ...],
        mismatches: tuple[Mismatch, ...],
    ) -> Observation:
        return observe(
            terms,
            tip,
            locations=locations,
            pending=self._mempool.matching(terms),
            mismatches=(*mismatches, *self._mempool.mismatching(terms)),
            synced=self.synced(),
            work_of=self.costs.of,
        )

    def _location(self, place: PlacedTransfer) -> PaymentLocation:
        block_time = self._params.slot_time(place.slot)
        return PaymentLocation(self._txid(place), place.block_hash, place.height, place.position, block_time)

    def _mismatch(self, place: PlacedTransfer) -> Mismatch:
        return Mismatch(self._txid(place), place.amount, place.height)

    def _txid(self, place: PlacedTransfer) -> bytes:
        # The chain has validated the transfer, so its id needs no full parse.
        return txid_of_stored(place.stored, self._params)


_Payee = tuple[str, bytes]
"""Reference and recipient's key hash."""


class MempoolPaymentIndex:
    """The mempool's transfers by reference, recipient and amount; a MempoolListener of svcd.node.transaction_pool."""

    def __init__(self, entries: Iterable[MempoolEntry] = ()) -> None:
        self._single: dict[_Payee, MempoolEntry] = {}
        """The transfer of a payee with only one, as nearly all have: a nested index would be larger than the entry."""
        self._several: dict[_Payee, dict[int, list[tuple[int, bytes]]]] = {}
        """The transfers of payees that have, or had, more: by amount, (arrival number, txid) in order."""
        self.pool_changed(list(entries), [])

    def __len__(self) -> int:
        several = sum(len(entries) for amounts in self._several.values() for entries in amounts.values())
        return len(self._single) + several

    def __contains__(self, terms: PaymentTerms) -> bool:
        """Whether a transfer with the order's reference and recipient waits."""
        payee = (terms.reference, terms.key)
        return payee in self._single or payee in self._several

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Iterable[MempoolEntry]) -> None:
        """Follow a change of the mempool."""
        for entry in removed:
            self._remove(entry)
        for entry in added:
            self._add(entry)

    def payments(self, params: NetworkParams) -> Iterator[tuple[str, str, int]]:
        """Reference, recipient's address and amount of each transfer."""
        single = ((payee, (entry.transfer.amount,)) for payee, entry in self._single.items())
        for (reference, recipient), amounts in chain(single, self._several.items()):
            for amount in amounts:
                yield reference, encode_address(recipient, params.address_prefix), amount

    def matching(self, terms: PaymentTerms) -> list[bytes]:
        """The txids of transfers that pay the order, in order of arrival; at most MAX_COUNTED."""
        entries = self._by_amount(terms).get(terms.amount, [])
        return [txid for _, txid in entries[:MAX_COUNTED]]

    def arrival(self, terms: PaymentTerms, txid: bytes) -> int | None:
        """When a transfer that pays the order arrived, in Unix milliseconds; None if it does not wait."""
        entries = self._by_amount(terms).get(terms.amount, [])
        return next((arrival_of(sequence) for sequence, other in entries if other == txid), None)

    def mismatching(self, terms: PaymentTerms) -> list[Mismatch]:
        """Transfers with the order's reference and recipient but another amount; at most MAX_MISMATCHES."""
        return list(islice(self._other_amounts(terms), MAX_MISMATCHES))

    def _other_amounts(self, terms: PaymentTerms) -> Iterator[Mismatch]:
        for amount, entries in self._by_amount(terms).items():
            if amount != terms.amount:
                for _, txid in entries:
                    yield Mismatch(txid, amount, None)

    def _by_amount(self, terms: PaymentTerms) -> dict[int, list[tuple[int, bytes]]]:
        payee = (terms.reference, terms.key)
        single = self._single.get(payee)
        return self._several.get(payee, {}) if single is None else {single.transfer.amount: [_sort_key(single)]}

    def _add(self, entry: MempoolEntry) -> None:
        transfer = entry.transfer
        if transfer.reference is None:
            return
        payee = (transfer.reference, transfer.recipient)
        amounts = self._several.get(payee)
        if amounts is None:
            single = self._single.pop(payee, None)
            if single is None:
                self._single[payee] = entry
                return
            amounts = self._several[payee] = {single.transfer.amount: [_sort_key(single)]}
        insort(amounts.setdefault(transfer.amount, []), _sort_key(entry))

    def _remove(self, entry: MempoolEntry) -> None:
        transfer = entry.transfer
        payee, key = (transfer.reference or "", transfer.recipient), _sort_key(entry)
        single = self._single.get(payee)
        if single is not None and _sort_key(single) == key:
            del self._single[payee]
            return
        amounts = self._several.get(payee, {})
        entries = amounts.get(transfer.amount, [])
        at = bisect_left(entries, key)
        # A transfer may leave before its arrival is announced; then it was never in the index.
        if at == len(entries) or entries[at] != key:
            return
        del entries[at]
        if not entries:
            del amounts[transfer.amount]
        if not amounts:
            del self._several[payee]


def _sort_key(entry: MempoolEntry) -> tuple[int, bytes]:
    return entry.sequence, entry.transfer.txid
