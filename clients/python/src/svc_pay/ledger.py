"""The payouts that the entries of a journal describe: no input and output."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import Lock

from svc_pay.chain import Network
from svc_pay.errors import InvalidInput, JournalError, PayoutRefused
from svc_pay.wallet import SignedTransfer

_FUTURE_MILLISECONDS = 600_000
_MARGIN_MILLISECONDS = 3_600_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What is paid."""

    recipient: str
    amount: int
    """Base units."""
    reference: str | None

    def __str__(self) -> str:
        reference = "without a reference" if self.reference is None else f"with the reference {self.reference}"
        return f"{self.amount} base units to {self.recipient} {reference}"


@dataclass(frozen=True, slots=True)
class StoredPayout:
    """A payout as the journal has it."""

    id: str
    terms: Terms
    transfers: tuple[SignedTransfer, ...]
    """All that were ever signed for it, the newest last; all with these terms, and with one nonce until reassigned."""
    paid: str | None = None
    """The txid of the transfer that was seen as deep as required."""

    @property
    def newest(self) -> SignedTransfer:
        """The transfer that was signed last."""
        return self.transfers[-1]

    @property
    def nonce(self) -> int:
        """The nonce of the newest transfer."""
        return nonce_of(self.newest)

    def valid(self, now: int, network: Network) -> list[SignedTransfer]:
        """The transfers with the present nonce that a block can still include, by the own clock, the newest first."""
        present = [each for each in reversed(self.transfers) if nonce_of(each) == self.nonce]
        return [each for each in present if not is_void(each, now, network)]

    def check_terms(self, asked: Terms) -> None:
        """Raise PayoutRefused unless the payout has these terms."""
        if asked != self.terms:
            raise PayoutRefused(f"payout {self.id} pays {self.terms}; to pay {asked}, give it another id")


def nonce_of(transfer: SignedTransfer) -> int:
    """The nonce of a transfer."""
    return int(str(transfer.transaction["nonce"]))


def fee_of(transfer: SignedTransfer) -> int:
    """The fee of a transfer, in base units."""
    return int(str(transfer.transaction["fee"]))


def void_at(transfer: SignedTransfer, network: Network) -> int:
    """From when on no block at its time can include a transfer (docs/protocol.md 4), in Unix milliseconds."""
    return int(str(transfer.transaction["timestamp"])) + 1000 * network.rules.transaction_past_seconds


def given_up_at(transfer: SignedTransfer, network: Network) -> int:
    """From when on another nonce may be used, in Unix milliseconds: clocks of blocks and of this computer differ."""
    return void_at(transfer, network) + _MARGIN_MILLISECONDS


def is_void(transfer: SignedTransfer, now: int, network: Network) -> bool:
    """Whether a transfer has to be signed again at ``now``: its time is over, or it is dated into the future."""
    left = void_at(transfer, network) - now
    return not 0 < left <= 1000 * network.rules.transaction_past_seconds + _FUTURE_MILLISECONDS


def terms_of(transfer: SignedTransfer) -> Terms:
    """The terms that a transfer has signed."""
    payload = transfer.transaction["payload"]
    if not isinstance(payload, dict):
        raise InvalidInput("a transfer has a payload")
    reference = payload.get("paymentReference")
    return Terms(str(payload["recipient"]), int(payload["amount"]), None if reference is None else str(reference))


def signed_entry(payout_id: str, transfer: SignedTransfer, *, reassigned: bool = False) -> str:
    """The entry for a transfer that was signed for a payout."""
    more = {"reassigned": True} if reassigned else {}
    return json.dumps({"id": payout_id, "transaction": transfer.transaction, **more}, sort_keys=True)


def paid_entry(payout_id: str, txid: str) -> str:
    """The entry for a payout whose transfer is as deep as required."""
    return json.dumps({"id": payout_id, "paid": txid}, sort_keys=True)


@dataclass
class Ledger:
    """All payouts of one key. Several threads may use it."""

    address: str
    network: Network
    sequence: int = 0
    """The number of entries that were read."""
    _payouts: dict[str, StoredPayout] = field(default_factory=dict)
    _owners: dict[int, str] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def add(self, after: int, entries: Iterable[str]) -> None:
        """Take the entries that follow number ``after``, without those that are known; raises JournalError."""
        with self._lock:
            for number, entry in enumerate(entries, after + 1):
                if number == self.sequence + 1:
                    self._take(entry)
                    self.sequence = number

    def _take(self, entry: str) -> None:
        try:
            given = json.loads(entry)
            payout_id = given["id"]
            known = self._payouts.get(payout_id)
            if "transaction" not in given:
                if known is None or given["paid"] not in [each.txid for each in known.transfers]:
                    raise ValueError
                self._payouts[payout_id] = replace(known, paid=given["paid"])
                return
            transfer = SignedTransfer.from_text(json.dumps(given["transaction"]), self.network)
            if transfer.transaction["senderAddress"] != self.address:
                raise JournalError(f"the journal has payouts of another key than that of {self.address}")
            terms, nonce = terms_of(transfer), nonce_of(transfer)
            if known is None:
                known = StoredPayout(payout_id, terms, ())
            elif terms != known.terms or (nonce != known.nonce and given.get("reassigned") is not True):
                raise ValueError
            if self._owners.setdefault(nonce, payout_id) != payout_id:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise JournalError(f"entry {self.sequence + 1} of the journal is damaged: restore it") from None
        self._payouts[payout_id] = replace(known, transfers=(*known.transfers, transfer))

    def get(self, payout_id: str) -> StoredPayout | None:
        """A payout."""
        return self._payouts.get(payout_id)

    def all(self) -> list[StoredPayout]:
        """Every payout, the lowest nonce first."""
        with self._lock:
            return sorted(self._payouts.values(), key=lambda each: each.nonce)

    def has_nonce(self, nonce: int) -> bool:
        """Whether a transfer with this nonce was signed for a payout."""
        return nonce in self._owners

    def free_nonce(self, first: int) -> int:
        """The lowest nonce for a new payout, from ``first`` on and behind those of payouts that were paid."""
        with self._lock:
            paid = (each.nonce for each in self._payouts.values() if each.paid is not None)
            nonce = max([first - 1, *paid]) + 1
            while nonce in self._owners:
                nonce += 1
            return nonce

    def reserved(self, nonce: int) -> int:
        """What the payouts cost whose nonces, from ``nonce`` on, no block has used, in base units."""
        return sum(each.terms.amount + max(map(fee_of, each.transfers)) for each in self.all() if each.nonce >= nonce)
