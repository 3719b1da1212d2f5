"""Payouts of one key by any number of workers: each is paid once, whatever a node answers (docs/wallets.md).

Two facts carry this. A chain executes one transfer for each nonce of an account, so that transfers of one nonce are
never paid twice. And every transfer is an entry of the journal before it is sent; of all processes one gets each place
in the journal, so that a payout has one nonce, and a nonce one payout.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from time import time
from typing import Final, TypeVar

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from svc_pay import calls
from svc_pay.calls import Blocking, Steps
from svc_pay.chain import MAX_CONFIRMATIONS, Network, check_address, check_amount, check_number, check_reference
from svc_pay.client import AsyncClient, Client
from svc_pay.errors import (
    ApiError,
    BadRequest,
    InvalidAnswer,
    InvalidInput,
    NodeUnreachable,
    PayoutRefused,
)
from svc_pay.journal import Journal
from svc_pay.ledger import (
    Ledger,
    StoredPayout,
    Terms,
    fee_of,
    given_up_at,
    is_void,
    nonce_of,
    paid_entry,
    signed_entry,
)
from svc_pay.members import Members
from svc_pay.model import DEFAULT_CONFIRMATIONS, Account
from svc_pay.wallet import Key, SignedTransfer, sign_transfer

T = TypeVar("T")

_WINDOW: Final = 16
"""Nonces of an account that a mempool holds."""
_ATTEMPTS: Final = 3
"""Transfers of one payout that are sent at once, if the node refuses the newest."""
_FIELDS: Final = "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()
_NODE: Final = (ApiError, NodeUnreachable, InvalidAnswer)


class PayoutState(StrEnum):
    """How far a payout is; only ``paid`` is at an end."""

    WAITING = "waiting"
    """Signed and stored, in no block: it is sent again."""
    CONFIRMING = "confirming"
    """In a block, not yet as deep as required."""
    PAID = "paid"
    """As deep as required."""
    CONFLICTED = "conflicted"
    """Another program has used its nonce: a person has to decide."""


@dataclass(frozen=True, slots=True)
class Payout:
    """A payout, and what the node says of it now."""

    id: str
    """The shop's."""
    state: PayoutState
    recipient: str
    amount: int
    """Base units."""
    reference: str | None
    nonce: int
    txid: str
    """Of the transfer in a block, else of the one that was signed last."""
    transfers: tuple[SignedTransfer, ...]
    """All that were signed for it; at most one of them can be paid."""
    confirmations: int = 0
    problem: str | None = None
    """Why it is not further, in a sentence of the node or of this package; None if it only needs time."""


class PayoutSteps:
    """What both classes below do, as generators."""

    def __init__(
        self,
        journal: Journal,
        key: Key,
        network: Network,
        *,
        confirmations: int,
        maximum_fee: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._key = key
        self._network = network
        self._address = key.address(network)
        self._depth = check_number(confirmations, "confirmations", least=1, greatest=MAX_CONFIRMATIONS)
        self._maximum_fee = None if maximum_fee is None else check_number(maximum_fee, "maximum_fee")
        self._clock = clock
        self._ledger = Ledger(self._address, network)

    # The journal

    def _refresh(self) -> Steps[None]:
        def read() -> None:
            after = self._ledger.sequence
            self._ledger.add(after, self._journal.read(after))

        yield Blocking(read)

    def _append(self, sequence: int, entry: str) -> Steps[bool]:
        """Store an entry; False if another process was first. The ledger is up to date afterwards."""
        added: list[bool] = []
        yield Blocking(lambda: added.append(self._journal.append(sequence, entry)))
        yield from self._refresh()
        return added[0]

    def _known(self, payout_id: str) -> Steps[StoredPayout]:
        yield from self._refresh()
        stored = self._ledger.get(payout_id)
        if stored is None:
            raise PayoutRefused(f"there is no payout {payout_id}")
        return stored

    # A new payout

    def pay(self, payout_id: str, *, recipient: str, amount: int, reference: str | None) -> Steps[Payout]:
        """See :meth:`Payouts.pay`."""
        if not isinstance(payout_id, str) or not 1 <= len(payout_id) <= 200 or not payout_id.isprintable():
            raise InvalidInput("the id of a payout is 1 to 200 printable characters")
        check_address(recipient, self._network)
        check_amount(amount)
        if reference is not None:
            check_reference(reference)
        terms = Terms(recipient, amount, reference)
        yield from self._refresh()
        stored = self._ledger.get(payout_id)
        if stored is None:
            stored = yield from self._begin(payout_id, terms)
        stored.check_terms(terms)
        return (yield from self._settle([stored]))[0]

    def _begin(self, payout_id: str, terms: Terms) -> Steps[StoredPayout]:
        """The first transfer of a payout, stored, unless another process has stored one."""
        minimum = yield from calls.rules_of(self._network)
        fee = yield from calls.suggested_fee(self._network, self._maximum_fee)
        sender = yield from calls.account_of(self._address)
        yield from self._refresh()
        first = yield from self._first_free(sender)
        available = min(sender.pending_balance, sender.balance - self._ledger.reserved(sender.nonce))
        yield from calls.check_recipient(
            sender, terms.recipient, terms.amount, minimum=minimum, fee=fee, available=available
        )
        while True:
            sequence = self._ledger.sequence
            stored = self._ledger.get(payout_id)
            if stored is not None:
                return stored
            transfer = self._sign(terms, self._ledger.free_nonce(first), fee)
            yield from self._append(sequence + 1, signed_entry(payout_id, transfer))

    def _first_free(self, sender: Account) -> Steps[int]:
        """The nonce from which on the node says that they are free.

        It has to show the transfer before that one, unless the ledger has it: a nonce that is far too high would leave
        a gap, behind which every payout waits. Nobody else can sign that transfer.
        """
        first = max(sender.nonce, sender.pending_nonce)
        if first and not self._ledger.has_nonce(first - 1):
            shown = yield from self._signed_with(first - 1, waiting=first > sender.nonce)
            if shown is None:
                raise InvalidAnswer(
                    f"the node says that the next nonce is {first}, and shows no transfer of this key with nonce "
                    f"{first - 1}"
                )
        return first

    def _sign(self, terms: Terms, nonce: int, fee: int) -> SignedTransfer:
        return sign_transfer(
            self._key,
            self._network,
            recipient=terms.recipient,
            amount=terms.amount,
            reference=terms.reference,
            nonce=nonce,
            fee=fee,
            timestamp=self._now(),
        )

    def _now(self) -> int:
        return int(self._clock() * 1000)

    # What becomes of payouts

    def check(self, payout_id: str) -> Steps[Payout]:
        """See :meth:`Payouts.check`."""
        stored = yield from self._known(payout_id)
        return (yield from self._settle([stored]))[0]

    def advance(self) -> Steps[list[Payout]]:
        """See :meth:`Payouts.advance`."""
        yield from self._refresh()
        return (yield from self._settle(None))

    def stored(self) -> Steps[list[Payout]]:
        """See :meth:`Payouts.stored`."""
        yield from self._refresh()
        return [_payout(each) for each in self._ledger.all()]

    def _settle(self, chosen: Sequence[StoredPayout] | None) -> Steps[list[Payout]]:
        """What the node says of these payouts, after those in no block were sent again; None for all that are open."""
        listed = [each for each in self._ledger.all() if each.paid is None] if chosen is None else chosen
        try:
            sender = yield from calls.account_of(self._address)
        except _NODE as error:
            return [_payout(each, problem=str(error)) for each in listed]
        if chosen is None:
            # A reorganisation has undone a payout that was paid, if its nonce is free again.
            undone = range(sender.nonce, sender.nonce + _WINDOW)
            listed = [each for each in self._ledger.all() if each.paid is None or each.nonce in undone]
        if not listed:
            return []
        try:
            fee: int | None = yield from calls.suggested_fee(self._network, self._maximum_fee)
        except _NODE:
            fee = None
        found: list[Payout] = []
        lost: NodeUnreachable | None = None
        for each in listed:
            try:
                if lost is not None:
                    raise lost
                found.append((yield from self._settle_one(each, sender, fee)))
            except _NODE as error:
                lost = error if isinstance(error, NodeUnreachable) else None
                state = None if each.nonce < sender.nonce else PayoutState.WAITING
                found.append(_payout(self._ledger.get(each.id) or each, state, problem=str(error)))
        return found

    def _settle_one(self, stored: StoredPayout, sender: Account, fee: int | None) -> Steps[Payout]:
        for transfer in reversed(stored.transfers):
            depth = (yield from calls.confirmations(transfer.txid)) if nonce_of(transfer) < sender.nonce else None
            if depth is None:
                continue
            if depth < self._depth:
                return _payout(stored, PayoutState.CONFIRMING, transfer.txid, depth)
            yield from self._record_paid(stored, transfer.txid)
            return _payout(stored, PayoutState.PAID, transfer.txid, depth)
        if stored.nonce < sender.nonce:
            # A block may have been undone between the two questions.
            sender = yield from calls.account_of(self._address)
            if stored.nonce < sender.nonce:
                problem = f"the node says that another transfer of this key has used nonce {stored.nonce}: decide"
                return _payout(stored, PayoutState.CONFLICTED, problem=problem)
        if stored.nonce >= sender.nonce + _WINDOW:
            return _payout(stored, PayoutState.WAITING)
        stored = yield from self._renew(stored, fee)
        refusal = yield from self._send(stored)
        return _payout(stored, PayoutState.WAITING, problem=refusal)

    def _record_paid(self, stored: StoredPayout, txid: str) -> Steps[None]:
        while True:
            sequence = self._ledger.sequence
            known = self._ledger.get(stored.id)
            if known is None or known.paid is not None:
                return
            yield from self._append(sequence + 1, paid_entry(stored.id, txid))

    def _renew(self, stored: StoredPayout, suggested: int | None) -> Steps[StoredPayout]:
        """The payout, signed again under its nonce if no block can include its transfer, or if its fee is too low."""
        fee = fee_of(stored.newest)
        if suggested is not None and 10 * suggested >= 11 * fee:
            fee = suggested
        elif not is_void(stored.newest, self._now(), self._network):
            return stored
        elif suggested is not None:
            fee = suggested
        while True:
            sequence = self._ledger.sequence
            known = self._ledger.get(stored.id) or stored
            if known.newest != stored.newest:
                return known
            transfer = self._sign(stored.terms, stored.nonce, fee)
            yield from self._append(sequence + 1, signed_entry(stored.id, transfer))

    def _send(self, stored: StoredPayout) -> Steps[str | None]:
        """Send the newest transfer, or, where the node refuses it, one before it; gives the first refusal, or None."""
        refusal = None
        for transfer in stored.valid(self._now(), self._network)[:_ATTEMPTS]:
            try:
                yield from calls.broadcast(transfer)
            except BadRequest as error:
                # The node may have relayed it all the same, so it is kept.
                refusal = refusal or str(error)
            else:
                return None
        return refusal

    # A nonce that another program has used

    def reassign(self, payout_id: str) -> Steps[Payout]:
        """See :meth:`Payouts.reassign`."""
        stored = yield from self._known(payout_id)
        sender = yield from calls.account_of(self._address)
        if stored.nonce >= sender.nonce:
            raise PayoutRefused(f"nonce {stored.nonce} of payout {payout_id} is not used: its transfer can be included")
        for transfer in stored.transfers:
            if (yield from calls.confirmations(transfer.txid)) is not None:
                raise PayoutRefused(f"payout {payout_id} is on the chain as {transfer.txid}")
        end = max(given_up_at(each, self._network) for each in stored.transfers)
        if end > self._now():
            raise PayoutRefused(f"until {end} ms (Unix time) a block can include a transfer of payout {payout_id}")
        shown = yield from self._signed_with(stored.nonce, waiting=False)
        if shown is None or shown[0] in [each.txid for each in stored.transfers]:
            raise PayoutRefused(f"the node shows no other transfer of this key with nonce {stored.nonce}")
        if shown[1] < self._depth:
            raise PayoutRefused(
                f"the transfer that has used nonce {stored.nonce} has {shown[1]} of {self._depth} confirmations"
            )
        fee = yield from calls.suggested_fee(self._network, self._maximum_fee)
        first = yield from self._first_free(sender)
        while True:
            sequence = self._ledger.sequence
            known = self._ledger.get(payout_id) or stored
            if known.newest != stored.newest:
                return (yield from self._settle([known]))[0]
            transfer = self._sign(stored.terms, self._ledger.free_nonce(first), fee)
            yield from self._append(sequence + 1, signed_entry(payout_id, transfer, reassigned=True))

    def _signed_with(self, nonce: int, *, waiting: bool) -> Steps[tuple[str, int] | None]:
        """Txid and confirmations of a transfer with this nonce that the key has signed, as the node shows it."""
        before: str | None = None
        pages = calls.Pages()
        while True:
            records, before = yield from calls.transfers_of(self._address, waiting=waiting, before=before, pages=pages)
            for record in records:
                transfer = self._own(record)
                if transfer is not None and nonce_of(transfer) == nonce:
                    return transfer.txid, 0 if waiting else record.count("confirmations")
                if transfer is not None and nonce_of(transfer) < nonce and not waiting:
                    return None
            if before is None:
                return None

    def _own(self, record: Members) -> SignedTransfer | None:
        """The transfer in a record, if this key has signed it."""
        try:
            text = json.dumps({name: record.raw[name] for name in _FIELDS})
            transfer = SignedTransfer.from_text(text, self._network)
            if transfer.transaction["senderPublicKey"] != self._key.public_key.hex():
                return None
            signature = bytes.fromhex(str(transfer.transaction["signature"]))
            VerifyKey(self._key.public_key).verify(bytes.fromhex(transfer.txid), signature)
            nonce_of(transfer)
        except (KeyError, ValueError, TypeError, BadSignatureError):
            return None
        return transfer


def _payout(
    stored: StoredPayout,
    state: PayoutState | None = None,
    txid: str | None = None,
    depth: int = 0,
    *,
    problem: str | None = None,
) -> Payout:
    """A payout with what was found, or else with what the journal says."""
    remembered = PayoutState.WAITING if stored.paid is None else PayoutState.PAID
    terms = stored.terms
    return Payout(
        id=stored.id,
        state=state or remembered,
        recipient=terms.recipient,
        amount=terms.amount,
        reference=terms.reference,
        nonce=stored.nonce,
        txid=txid or stored.paid or stored.newest.txid,
        transfers=stored.transfers,
        confirmations=depth,
        problem=problem,
    )


class Payouts:
    """Pays from one key, with the synchronous client; each payout is paid once, whatever the node answers.

    All processes that sign with ``key`` use the same ``journal``. A payout is paid when its transfer has
    ``confirmations``; fees are at most ``maximum_fee`` base units, by default a hundred times the least one of the
    network; ``clock`` gives the Unix time in seconds. Threads may share an object.
    """

    def __init__(
        self,
        node: Client,
        journal: Journal,
        key: Key,
        network: Network,
        *,
        confirmations: int = DEFAULT_CONFIRMATIONS,
        maximum_fee: int | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._node = node
        self._steps = PayoutSteps(
            journal, key, network, confirmations=confirmations, maximum_fee=maximum_fee, clock=clock
        )

    def pay(self, payout_id: str, *, recipient: str, amount: int, reference: str | None = None) -> Payout:
        """Pay ``amount`` base units once for ``payout_id``: sign, store, then send.

        The same id again sends the same transfer again, and never pays twice; other terms under it raise
        PayoutRefused. An error means that this call has sent nothing. Once a payout is returned it is stored: what the
        node refuses is in ``problem``, and :meth:`advance` sends it again.
        """
        return self._node._run(self._steps.pay(payout_id, recipient=recipient, amount=amount, reference=reference))

    def advance(self) -> list[Payout]:
        """Ask about every payout that is not paid, send again those in no block, and return all of them.

        Call it at the start and then regularly, such as each minute. It signs a payout again, always under its nonce,
        if no block can include its transfer any more, or if the suggested fee has risen by 10 %.
        """
        return self._node._run(self._steps.advance())

    def check(self, payout_id: str) -> Payout:
        """Ask about one payout, even about one that was paid, and send it again if it is in no block.

        Raises PayoutRefused if there is none.
        """
        return self._node._run(self._steps.check(payout_id))

    def stored(self) -> list[Payout]:
        """Every payout of the journal, without asking the node: ``waiting`` or ``paid``, as was last stored."""
        return self._node._run(self._steps.stored())

    def reassign(self, payout_id: str) -> Payout:
        """Pay a ``conflicted`` payout under a new nonce: the decision of a person, who has asked another node, too.

        Raises PayoutRefused unless its node shows a transfer that this key has signed, for something else, with the
        nonce of the payout and as many confirmations as are required, and the time is over in which a block can
        include a transfer of the payout, and an hour more, by which clocks may differ.
        """
        return self._node._run(self._steps.reassign(payout_id))


class AsyncPayouts:
    """Pays from one key, with the asynchronous client; each payout is paid once, whatever the node answers.

    All processes that sign with ``key`` use the same ``journal``, which is called in threads. A payout is paid when its
    transfer has ``confirmations``; fees are at most ``maximum_fee`` base units, by default a hundred times the least
    one of the network; ``clock`` gives the Unix time in seconds.
    """

    def __init__(
        self,
        node: AsyncClient,
        journal: Journal,
        key: Key,
        network: Network,
        *,
        confirmations: int = DEFAULT_CONFIRMATIONS,
        maximum_fee: int | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._node = node
        self._steps = PayoutSteps(
            journal, key, network, confirmations=confirmations, maximum_fee=maximum_fee, clock=clock
        )

    async def pay(self, payout_id: str, *, recipient: str, amount: int, reference: str | None = None) -> Payout:
        """See :meth:`Payouts.pay`."""
        steps = self._steps.pay(payout_id, recipient=recipient, amount=amount, reference=reference)
        return await self._node._run(steps)

    async def advance(self) -> list[Payout]:
        """See :meth:`Payouts.advance`."""
        return await self._node._run(self._steps.advance())

    async def check(self, payout_id: str) -> Payout:
        """See :meth:`Payouts.check`."""
        return await self._node._run(self._steps.check(payout_id))

    async def stored(self) -> list[Payout]:
        """See :meth:`Payouts.stored`."""
        return await self._node._run(self._steps.stored())

    async def reassign(self, payout_id: str) -> Payout:
        """See :meth:`Payouts.reassign`."""
        return await self._node._run(self._steps.reassign(payout_id))
