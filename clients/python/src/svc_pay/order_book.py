"""What happens to the open orders of a shop, from the answers of its feed: no input and output.

The design, which the client for JavaScript follows. A store has three things: where the feed is (:class:`Place`), a
row for each open order (:class:`OpenOrder`), and the events that nobody has been told. The row has the transfers under
the order's reference that blocks of the chain have, and what the events so far have said. An answer of the feed
(:func:`parse_answer`) is used in one of two ways.

- If it has entries, or may not reach the tip, it is only recorded (:func:`record`): transfers above a rewind leave
  their rows, new ones join theirs, and each such row is marked to be evaluated. Nothing is said yet, for what a page
  undoes a later one may bring back.
- If it reaches the tip (:func:`reaches_tip`), the orders that it may affect are evaluated (:func:`evaluate`): the
  marked ones, those that wait in the mempool or have waited there, those whose payment is deeper than before, and
  those whose deadline has come. An evaluation compares what a row has said with what is so now, as a watch of svcd
  does, and gives the row afterwards and its events. To evaluate again without a change says nothing.

Rows and place are stored in one transaction with the events that follow, so that a kill at any instant leaves either
both or none; the same answer comes again then. No step looks at orders that it does not affect: a row says at which
height of the tip (``awaits``) and at which time (``due``) it is to be evaluated, and how far up its transfers are
(``top``). An event has the body of the webhook that a watch would send.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from svc_pay.chain import Network, check_reference, format_amount
from svc_pay.errors import InvalidAnswer, InvalidInput, StoreError
from svc_pay.members import Members
from svc_pay.model import Order, State, Tip
from svc_pay.order_store import StoredOrder

PAGE: Final = 1_000
"""Entries of an answer at most."""
LISTED: Final = 1_000
"""Transfers that an answer lists as waiting, at most."""
_ALL: Final = 65_536
"""A position behind every transfer of a block."""
_BEGINNING: Final = (-1, _ALL)
_CURSOR: Final = 4_096
"""Characters of a cursor at most."""
_MARKED: Final = 0
"""The ``awaits`` of a row that is evaluated with the next answer that reaches the tip."""
_SETTLEMENT_MODEL: Final = "canonical-chain-depth"
_BLOCKS_AFTER_CONFIRMATION: Final = 30
_ON_THE_WAY: Final = 60_000
"""Milliseconds after a deadline for which a block of a time before it is waited for: what has expired stays so."""
_MISMATCHES: Final = 16
"""Events about mismatches of an order, at most: no sender can make a shop read them without end."""
_BEFORE_SMALL: Final = 8
"""After so many, transfers of less than a tenth of the amount get none: they must not hide a mistake of a buyer."""
_KEPT_EXACT: Final = 32
_KEPT_OTHERS: Final = 100
_SHOWN: Final = 10


# The feed


@dataclass(frozen=True, slots=True)
class Paid:
    """A transfer to the shop in a block of the chain."""

    txid: str
    reference: str | None
    amount: int
    sender: str
    height: int
    position: int
    hash: str
    """Of the block."""
    time: int
    """Of the block, in Unix milliseconds."""

    @property
    def place(self) -> tuple[int, int]:
        """Height and position: the order of the chain."""
        return self.height, self.position


@dataclass(frozen=True, slots=True)
class Waiting:
    """A transfer to the shop in the mempool of the node."""

    txid: str
    reference: str | None
    amount: int
    arrival: int
    """When it came to the node, in Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class FeedAnswer:
    """One answer of the feed."""

    rewind: int | None
    """The height above which everything that the feed has told is undone."""
    payments: tuple[Paid, ...]
    waiting: tuple[Waiting, ...]
    next: str
    tip: Tip
    synced: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a shop has read its feed."""

    recipient: str
    genesis: str
    """The hash of the genesis block."""
    since: int = 0
    """The height from which on the shop reads."""
    after: str | None = None
    """The cursor; None before the first answer."""
    told: tuple[int, int] = _BEGINNING
    """Height and position up to which everything has been told."""
    tip: int = -1
    """The height of the tip of the last answer."""
    reached: str | None = None
    """The hash of the tip up to which everything had been told, when that was known last."""
    step: int = 0
    """How often the store was written: two programs that read the feed for one store would lose what the other does."""

    @property
    def text(self) -> str:
        """For the store."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True)

    @classmethod
    def of(cls, text: str) -> "Place":
        """The place in a text of a store; raises StoreError."""
        try:
            given = json.loads(text)
            return cls(**{**given, "told": tuple(given["told"])})
        except (ValueError, KeyError, TypeError):
            raise StoreError("the store of open orders is damaged: the place in the feed cannot be read") from None

    def query(self, wait: int) -> dict[str, str]:
        """The parameters of the next question."""
        query = {"limit": str(PAGE), "sinceHeight": str(self.since)}
        if self.after is not None:
            # A node that is behind would rewind to its own tip.
            query |= {"after": self.after, "minHeight": str(self.tip)}
        return query if wait == 0 else {**query, "wait": str(wait)}


def parse_answer(body: bytes, place: Place) -> FeedAnswer:
    """The answer to a question from ``place``; raises InvalidAnswer unless it goes on from there."""
    feed = Members.of(body, "the answer").object("feed")
    tip, node = Tip.parse(feed.object("tip")), feed.object("node")
    entries, waiting = feed.objects("entries"), feed.objects("pending")
    following = feed.text("next")
    if len(entries) > PAGE or len(waiting) > LISTED or not 0 < len(following) <= _CURSOR:
        raise InvalidAnswer("the answer of the feed is longer than a node's")
    rewind, told = None, place.told
    if entries and entries[0].text("type") == "rewind":
        rewind = entries[0].number("height")
        entries[0].hash("hash")
        if rewind >= place.tip:
            raise InvalidAnswer("the feed rewinds to where it has not been")
        told, entries = (rewind, _ALL), entries[1:]
    payments = tuple(_paid(each, place.recipient) for each in entries)
    if tip.height < place.tip or (rewind is not None and rewind >= tip.height):
        raise InvalidAnswer("the chain of the feed is shorter than it was")
    _check_order(payments, (max(told[0], place.since - 1), told[1] if told[0] >= place.since else _ALL), tip)
    if (rewind is not None or payments) and following == place.after:
        raise InvalidAnswer("the feed begins again")
    found = tuple(_waiting(each, place.recipient) for each in waiting)
    for listed in (payments, found):
        if len({each.txid for each in listed}) != len(listed):
            raise InvalidAnswer("the feed has a transfer twice")
    return FeedAnswer(rewind, payments, found, following, tip, node.flag("synced"))


def _paid(members: Members, recipient: str) -> Paid:
    if members.text("type") != "payment":
        raise InvalidAnswer("an entry of the feed must be a payment, or a rewind at the beginning")
    return Paid(
        txid=members.hash("txid"),
        reference=_reference(members),
        amount=_amount(members, recipient),
        sender=members.address("sender", recipient),
        height=members.number("height"),
        position=members.count("position"),
        hash=members.hash("hash"),
        time=members.number("time"),
    )


def _waiting(members: Members, recipient: str) -> Waiting:
    members.address("sender", recipient)
    amount = _amount(members, recipient)
    return Waiting(members.hash("txid"), _reference(members), amount, members.number("arrivalTime"))


def _amount(members: Members, recipient: str) -> int:
    to = members.text_or_none("recipient")
    amount = members.amount()
    if amount < 1 or to not in (None, recipient):
        raise InvalidAnswer("the feed has a transfer that pays the recipient nothing")
    return amount


def _reference(members: Members) -> str | None:
    reference = members.text_or_none("reference")
    try:
        return None if reference is None else check_reference(reference)
    except InvalidInput:
        # Transfers may have these two, and no order can.
        if reference in (".", ".."):
            return None
        raise InvalidAnswer("the feed has a transfer with an impossible reference") from None


def _check_order(payments: Sequence[Paid], told: tuple[int, int], tip: Tip) -> None:
    """Raise InvalidAnswer unless the payments follow ``told`` and each other on one chain that ends at ``tip``."""
    before: Paid | None = None
    for each in payments:
        if each.place <= (told if before is None else before.place) or each.position >= _ALL:
            raise InvalidAnswer("the entries of the feed are not in the order of the chain")
        if before is not None:
            same = before.height == each.height
            in_order = each.time == before.time if same else each.time > before.time
            if (each.hash == before.hash) != same or not in_order:
                raise InvalidAnswer("the entries of the feed are not of one chain")
        if each.height > tip.height or (each.hash == tip.hash) != (each.height == tip.height):
            raise InvalidAnswer("an entry of the feed is not below its tip")
        before = each


def reaches_tip(place: Place, answer: FeedAnswer) -> bool:
    """Whether it is certain that the feed has nothing more to tell up to the tip of the answer.

    An answer with entries may be followed by more, and so may one without, where the address has sent many transfers.
    """
    nothing = answer.rewind is None and not answer.payments
    return nothing and (answer.next == place.after or answer.tip.hash == place.reached)


def moved(place: Place, answer: FeedAnswer) -> Place:
    """The place after ``answer``."""
    told, reached = place.told, None
    if answer.rewind is not None:
        told = (answer.rewind, _ALL)
    if answer.payments:
        told = answer.payments[-1].place
    if reaches_tip(place, answer):
        told, reached = (answer.tip.height, _ALL), answer.tip.hash
    return replace(place, after=answer.next, told=told, tip=answer.tip.height, reached=reached)


# Orders


@dataclass(frozen=True, slots=True)
class Told:
    """The payment of an order as the newest event has it: a transfer in a block."""

    txid: str
    hash: str
    """Of the block."""
    confirmations: int


@dataclass(frozen=True, slots=True)
class OpenOrder:
    """An order, its transfers on the chain, and what events have said of it."""

    order: Order
    pay_until: int | None
    """The buyer's deadline, in Unix milliseconds."""
    added: int
    """When the shop has added it, in Unix milliseconds."""
    state: State = State.UNPAID
    """The state that events have said."""
    told: Told | None = None
    epoch: int = 0
    """How often the payment was reorganised."""
    sequence: int = 0
    """Of the newest event."""
    close_height: int | None = None
    """Below this height a confirmed payment that was undone can return: the order does not expire."""
    expired: bool = False
    reported: tuple[str, ...] = ()
    """The txids that have had a `payment.mismatched`."""
    transfers: tuple[Paid, ...] = ()
    """Those under its reference on the chain, in the order of the chain; the first ones, if there are very many."""
    awaits: int | None = None
    """The height of the tip from which on it is to be evaluated; None if no height matters."""
    due: int | None = None
    """When it is to be evaluated, in Unix milliseconds; None if no time matters."""

    @property
    def ends(self) -> int | None:
        """When it expires without a payment, in Unix milliseconds; None for never."""
        return None if self.pay_until is None else self.pay_until + _ON_THE_WAY

    @property
    def stored(self) -> StoredOrder:
        """The row for a store."""
        order = self.order
        content = {
            "terms": [order.amount, order.confirmations, order.since_height],
            "payUntil": self.pay_until,
            "added": self.added,
            "state": self.state.value,
            "told": None if self.told is None else [self.told.txid, self.told.hash, self.told.confirmations],
            "counts": [self.epoch, self.sequence],
            "closeHeight": self.close_height,
            "expired": self.expired,
            "reported": self.reported,
            "transfers": [[p.txid, p.amount, p.sender, p.height, p.position, p.hash, p.time] for p in self.transfers],
        }
        top = self.transfers[-1].height if self.transfers else None
        return StoredOrder(order.reference, json.dumps(content), awaits=self.awaits, due=self.due, top=top)

    @classmethod
    def of(cls, stored: StoredOrder, recipient: str, network: Network) -> "OpenOrder":
        """The order in a row of a store; raises StoreError."""
        try:
            given: Any = json.loads(stored.text)
            reference, told = stored.reference, given["told"]
            amount, confirmations, since = given["terms"]
            return cls(
                order=Order(reference, recipient, amount, confirmations, since, network),
                pay_until=given["payUntil"],
                added=given["added"],
                state=State(given["state"]),
                told=None if told is None else Told(*told),
                epoch=given["counts"][0],
                sequence=given["counts"][1],
                close_height=given["closeHeight"],
                expired=given["expired"],
                reported=tuple(given["reported"]),
                transfers=tuple(Paid(txid, reference, *more) for txid, *more in given["transfers"]),
                awaits=stored.awaits,
                due=stored.due,
            )
        except (ValueError, KeyError, TypeError, IndexError):
            raise StoreError(f"the store of open orders is damaged: {stored.reference!r} cannot be read") from None

    def counts(self, paid: Paid) -> bool:
        """Whether a transfer under the reference can matter."""
        return paid.height >= (self.order.since_height or 0)


def new_order(order: Order, pay_until: int | None, now: int) -> OpenOrder:
    """An order of which nothing is known yet."""
    opened = OpenOrder(order, pay_until, now)
    return replace(opened, due=opened.ends)


def record(orders: Mapping[str, OpenOrder], answer: FeedAnswer) -> list[OpenOrder]:
    """The orders that the entries of an answer change, marked to be evaluated.

    ``orders`` has by reference those with a payment in the answer, and those with one above its rewind. Raises
    InvalidAnswer if a transfer comes a second time.
    """
    changed: dict[str, OpenOrder] = {}
    if answer.rewind is not None:
        for reference, order in orders.items():
            kept = tuple(paid for paid in order.transfers if paid.height <= answer.rewind)
            if kept != order.transfers:
                changed[reference] = replace(order, transfers=kept, awaits=_MARKED)
    for paid in answer.payments:
        found = None if paid.reference is None else changed.get(paid.reference) or orders.get(paid.reference)
        if found is None or not found.counts(paid):
            continue
        if any(paid.txid == known.txid for known in found.transfers):
            raise InvalidAnswer("the feed tells a transfer a second time")
        exact = paid.amount == found.order.amount
        alike = sum((known.amount == found.order.amount) == exact for known in found.transfers)
        if alike < (_KEPT_EXACT if exact else _KEPT_OTHERS):
            changed[found.order.reference] = replace(found, transfers=(*found.transfers, paid), awaits=_MARKED)
    return list(changed.values())


@dataclass(frozen=True, slots=True)
class Moment:
    """What there is besides the transfers on the chain when orders are evaluated."""

    tip: Tip
    now: int
    """Unix milliseconds."""
    waiting: Mapping[str, Sequence[Waiting]]
    """The transfers in the mempool by reference, the oldest first."""
    all_waiting: bool
    """Whether these are all: otherwise one that is not among them may wait all the same."""
    may_end: bool = True
    """Whether what is over by ``now`` may expire for good: the clock was not set lately."""

    @property
    def awaited(self) -> int:
        """Unix milliseconds up to which deadlines are due; -1, so that none is, unless they may end."""
        return self.now if self.may_end else -1

    @classmethod
    def of(cls, answer: FeedAnswer, now: int, *, may_end: bool = True) -> "Moment":
        """The moment of an answer that reaches the tip."""
        by_reference: dict[str, list[Waiting]] = {}
        for each in answer.waiting:
            if each.reference is not None:
                by_reference.setdefault(each.reference, []).append(each)
        return cls(answer.tip, now, by_reference, len(answer.waiting) < LISTED, may_end)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The payment of an order at one moment."""

    moment: Moment
    exact: tuple[Paid, ...] = ()
    """The transfers of the right amount on the chain, of which the first is the payment."""
    others: tuple[Paid, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """Those of the right amount in the mempool."""
    other_waiting: tuple[Waiting, ...] = ()
    late: bool = False
    """Whether the payment came after the deadline, and does not count."""

    @property
    def paid(self) -> Paid | None:
        return None if self.late or not self.exact else self.exact[0]

    @property
    def pending(self) -> Waiting | None:
        return None if self.late or self.exact or not self.waiting else self.waiting[0]

    @property
    def confirmations(self) -> int:
        return 0 if self.paid is None else self.moment.tip.height - self.paid.height + 1

    def state(self, order: Order) -> State:
        if self.paid is None:
            return State.UNPAID if self.pending is None else State.PENDING
        return State.CONFIRMED if self.confirmations >= order.confirmations else State.CONFIRMING


def _see(open_order: OpenOrder, moment: Moment) -> _Seen:
    amount = open_order.order.amount
    known = {paid.txid for paid in open_order.transfers}
    listed = [each for each in moment.waiting.get(open_order.order.reference, ()) if each.txid not in known]
    seen = _Seen(
        moment,
        tuple(paid for paid in open_order.transfers if paid.amount == amount),
        tuple(paid for paid in open_order.transfers if paid.amount != amount),
        tuple(each for each in listed if each.amount == amount),
        tuple(each for each in listed if each.amount != amount),
    )
    return replace(seen, late=not open_order.expired and _is_late(open_order, seen))


def _is_late(open_order: OpenOrder, seen: _Seen) -> bool:
    """Whether a payment that was not seen before came after the deadline: to the mempool, or in a block."""
    is_known = open_order.state is not State.UNPAID or open_order.told is not None or open_order.epoch > 0
    if open_order.pay_until is None or is_known:
        return False
    if seen.exact:
        return seen.exact[0].time >= open_order.pay_until
    return bool(seen.waiting) and min(seen.waiting[0].arrival, seen.moment.now) >= open_order.pay_until


@dataclass(slots=True)
class _Evaluation:
    """An order, and the events of this evaluation."""

    order: OpenOrder
    seen: _Seen
    bodies: list[str] = field(default_factory=list)

    def emit(self, name: str, state: State, **more: object) -> None:
        """Say that the payment is now in ``state``."""
        tip = self.seen.moment.tip.height
        close_height = self.order.close_height
        if name == "payment.confirmed":
            close_height = tip + max(_BLOCKS_AFTER_CONFIRMATION, 2 * self.order.order.confirmations)
        before, epoch = self.order.state, self.order.epoch + (name == "payment.reorged")
        sequence = self.order.sequence + 1
        self.order = replace(self.order, state=state, epoch=epoch, sequence=sequence, close_height=close_height)
        self.bodies.append(_body(self.order, name, self.seen, before, self.seen.state(self.order.order), more))

    def report(self, paid: Paid, kind: str, *, last: bool) -> None:
        """Say that a transfer does not pay the order, whose state stays as it is."""
        self.order = replace(self.order, sequence=self.order.sequence + 1, reported=(*self.order.reported, paid.txid))
        mismatch = {"txid": paid.txid, "sender": paid.sender, "kind": kind, **_amounts(paid.amount)}
        more = {"mismatch": {**mismatch, "more": True} if last else mismatch}
        self.bodies.append(_body(self.order, "payment.mismatched", self.seen, self.order.state, self.order.state, more))


def evaluate(open_order: OpenOrder, moment: Moment) -> tuple[OpenOrder, list[str]]:
    """The order afterwards, and the bodies of its events, as svcd/commerce/watch.py has them for a watch."""
    seen = _see(open_order, moment)
    evaluation = _Evaluation(open_order, seen)
    if not open_order.expired:
        _evaluate_payment(evaluation)
        _evaluate_deadline(evaluation)
    # A late payment does not count, but it is there.
    evaluation.seen = replace(seen, late=False)
    _report_mismatches(evaluation)
    return _scheduled(evaluation.order, moment), evaluation.bodies


def _evaluate_payment(evaluation: _Evaluation) -> None:
    before, seen = evaluation.order, evaluation.seen
    state, paid, told = seen.state(before.order), seen.paid, before.told
    if told is None:
        if paid is not None:
            evaluation.emit("payment.confirmed" if state is State.CONFIRMED else "payment.confirming", state)
        elif state is State.PENDING and before.state is State.UNPAID:
            evaluation.emit("payment.pending", state)
        elif state is State.UNPAID and before.state is State.PENDING:
            if seen.moment.all_waiting:
                evaluation.emit("payment.dropped", state, dropped={"reason": "unknown"})
        else:
            evaluation.order = replace(before, state=state)
    elif paid is None or (paid.txid, paid.hash) != (told.txid, told.hash):
        # What is confirmed again gets a second event, because shops hand out goods on `confirmed`.
        confirmed = state is State.CONFIRMED
        evaluation.emit("payment.reorged", State.CONFIRMING if confirmed else state)
        if confirmed:
            evaluation.emit("payment.confirmed", state)
    elif before.state is State.CONFIRMING and state is State.CONFIRMED:
        evaluation.emit("payment.confirmed", state)
    elif before.state is State.CONFIRMING and seen.confirmations > told.confirmations:
        evaluation.emit("payment.confirming", state)
    now_told = None if paid is None else Told(paid.txid, paid.hash, seen.confirmations)
    evaluation.order = replace(evaluation.order, told=now_told)


def _evaluate_deadline(evaluation: _Evaluation) -> None:
    order, moment = evaluation.order, evaluation.seen.moment
    if order.ends is None or order.state is not State.UNPAID or moment.now < order.ends:
        return
    if moment.may_end and moment.all_waiting and moment.tip.height >= (order.close_height or 0):
        evaluation.emit("payment.expired", order.state)
        evaluation.order = replace(evaluation.order, expired=True)


def _report_mismatches(evaluation: _Evaluation) -> None:
    order, seen = evaluation.order, evaluation.seen
    amount, first = order.order.amount, seen.exact[0].txid if seen.exact else None
    less = sorted((each for each in seen.others if each.amount < amount), key=lambda each: (each.amount, each.place))
    more = sorted((each for each in seen.others if each.amount > amount), key=lambda each: (each.amount, each.place))
    nearest = (*less[-_MISMATCHES - 1 :], *more[: _MISMATCHES + 1])
    for paid in sorted((*seen.exact, *nearest), key=lambda each: each.place):
        kind = "too-little" if paid.amount < amount else "too-much" if paid.amount > amount else None
        if kind is None and paid.txid != first:
            kind = "duplicate"
        elif kind is None and order.expired:
            kind = "late"
        number = len(evaluation.order.reported)
        most = _BEFORE_SMALL if paid.amount * 10 < amount else _MISMATCHES
        if kind is not None and number < most and paid.txid not in evaluation.order.reported:
            evaluation.report(paid, kind, last=number + 1 == _MISMATCHES)


def _scheduled(order: OpenOrder, moment: Moment) -> OpenOrder:
    """The order with the height and the time at which it is to be evaluated although no transfer comes or goes."""
    awaits = due = None
    if not order.expired:
        if order.state is State.PENDING:
            awaits = _MARKED
        elif order.state is State.CONFIRMING:
            awaits = moment.tip.height + 1
        elif order.state is State.UNPAID and order.ends is not None:
            closed = moment.tip.height >= (order.close_height or 0)
            due = order.ends if moment.now < order.ends or closed else None
            awaits = None if closed else order.close_height
    return replace(order, awaits=awaits, due=due)


# Events


def _body(
    open_order: OpenOrder, name: str, seen: _Seen, before: State, state: State, more: Mapping[str, object]
) -> str:
    """The body of an event, as that of a webhook; its `subscriptionId` is the order's reference."""
    order, moment = open_order.order, seen.moment
    tip = {"height": str(moment.tip.height), "hash": moment.tip.hash}
    identity = f"{order.recipient}.{order.reference}.{open_order.added}.{open_order.epoch}.{open_order.sequence}"
    return json.dumps(
        {
            "id": "svcevt_" + sha256(identity.encode("ascii")).hexdigest()[:32],
            "event": name,
            "createdAt": str(moment.now),
            "networkId": order.network.network_id,
            "chainId": order.network.chain_id,
            "genesisHash": order.network.genesis_hash,
            "subscriptionId": order.reference,
            "epoch": open_order.epoch,
            "sequence": open_order.sequence,
            "initial": False,
            "previousState": before.value,
            "payment": _payment(order, seen, state),
            "tip": tip,
            "node": {**tip, "synced": True},
            **more,
        }
    )


def _payment(order: Order, seen: _Seen, state: State) -> dict[str, object]:
    paid, pending = seen.paid, seen.pending
    record: dict[str, object] = {
        "state": state.value,
        "canonical": paid is not None,
        "recipient": order.recipient,
        "reference": order.reference,
        **_amounts(order.amount),
        "confirmations": seen.confirmations,
        "requiredConfirmations": order.confirmations,
        "hardFinality": False,
        "settlementModel": _SETTLEMENT_MODEL,
        "matchCount": min(len(seen.exact) + len(seen.waiting), _KEPT_EXACT),
        "mismatches": _mismatches(order, seen),
    }
    if paid is not None:
        record |= {"txid": paid.txid, "blockHash": paid.hash, "blockHeight": str(paid.height)}
        record["blockTime"] = str(paid.time)
    elif pending is not None:
        record["txid"] = pending.txid
    if order.since_height is not None:
        record["sinceHeight"] = str(order.since_height)
    return record


def _mismatches(order: Order, seen: _Seen) -> list[dict[str, object]]:
    """The transfers of other amounts, those with the nearest amounts."""
    others: Iterable[Paid | Waiting] = (*seen.others, *seen.other_waiting)
    nearest = sorted(others, key=lambda each: (abs(each.amount - order.amount), each.txid))[:_SHOWN]
    depth = {paid.txid: seen.moment.tip.height - paid.height + 1 for paid in seen.others}
    return [{"txid": each.txid, **_amounts(each.amount), "confirmations": depth.get(each.txid, 0)} for each in nearest]


def _amounts(units: int) -> dict[str, object]:
    return {"amount": str(units), "amountSvc": format_amount(units)}
