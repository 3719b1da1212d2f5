"""The story of a watch as text: what has happened to its payment, what was delivered, and what is next.

Pure functions over a node's answer (docs/webhook-reference.md). Times are Unix milliseconds.
"""

from collections.abc import Callable, Mapping
from typing import Final

from svcd.chain.units import format_coins
from svcd.cli.answers import ResponseObject
from svcd.cli.rendering import confirmations_of, format_time, property_table
from svcd.quantities import counted

KEPT_EVENTS: Final = 32
"""Events of a watch that a node shows at most."""

_OUTCOMES: Final = {
    "superseded": "not delivered, superseded by a newer event",
    "abandoned": "not delivered, given up",
    "refused": "not delivered, refused by the receiver",
    "dropped": "not delivered, dropped when the watch ended",
}
_ENDINGS: Final = {
    "expired": "the watch has expired without a confirmed payment",
    "closed": "the payment is confirmed, and the watch is closed",
    "cancelled": "the watch was cancelled",
    "gone": "the receiver has answered 410, which ends the watch",
}


def watch_text(watch: ResponseObject, now: int, unit: str) -> str:
    """The terms of a watch, its story if the answer has its events, and what is next; raises CommandError."""
    parts = [property_table(_terms(watch, unit))]
    if "events" in watch:
        parts += _story(watch, unit)
    return "\n\n".join([*parts, f"next: {next_step(watch, now)}"])


def event_text(event: ResponseObject, unit: str, required: int | None = None) -> str:
    """An event, its blocks and its delivery, in some lines; ``required`` are the confirmations that it needs.

    Coins are called ``unit``.
    """
    content = event.object("content")
    heading = f"{format_time(event.number('createdAt'))}  {event.text('event')}: {_heading(content, unit, required)}"
    below = [*_details(content), _delivery(event), event.text("id")]
    return "\n".join([heading, *(f"    {line}" for line in below)])


def event_line(event: ResponseObject, watch: ResponseObject, unit: str) -> str:
    """A new event of a watch in one line: time, order, event, state and confirmations; coins are called ``unit``."""
    content = event.object("content")
    state = "" if _is_aside(content) else _short_state(content.object("payment"), watch.count("requiredConfirmations"))
    name = [format_time(event.number("createdAt")), watch.text("reference"), event.text("event")]
    return "  ".join(filter(None, [*name, state, subject_of(content, unit)]))


def standing_line(watch: ResponseObject) -> str:
    """The present state of a watch in one line."""
    payment = watch.object("payment")
    state = _short_state(payment, payment.count("requiredConfirmations"))
    return f"{watch.text('reference')}  {ending_of(watch) or state}"


def ending_line(watch: ResponseObject) -> str:
    """The end of a watch in one line."""
    time = [format_time(watch.number("endedAt"))] if "endedAt" in watch else []
    return "  ".join([*time, watch.text("reference"), ending_of(watch)])


def ending_of(watch: ResponseObject) -> str:
    """How a watch has ended; "" for an active one."""
    if watch.flag("active"):
        return ""
    return f"ended: {watch.text('ending')}" if "ending" in watch else "ended"


def active_text(watch: ResponseObject) -> str:
    """Whether a watch is active, and how it has ended."""
    if watch.flag("active"):
        return "yes"
    return f"no, {watch.text('ending')}" if "ending" in watch else "no"


def subject_of(content: ResponseObject, unit: str) -> str:
    """What an event is about besides the payment: a mismatched transfer, how a payment was dropped, or an alarm.

    Coins are called ``unit``.
    """
    if "mismatch" in content:
        mismatch = content.object("mismatch")
        return f"{mismatch.text('kind')}: {mismatch.text('amountSvc')} {unit}"
    if "dropped" in content:
        return content.object("dropped").text("reason")
    return content.object("alarm").text("kind") if "alarm" in content else ""


def is_waiting(event: ResponseObject) -> bool:
    """Whether an event waits for its delivery."""
    return "nextAttemptAt" in event or not ("deliveredAt" in event or _outcome(event))


def _outcome(event: ResponseObject) -> str:
    """Why an event is not sent any more; "" if it has been delivered or waits."""
    return next((text for name, text in _OUTCOMES.items() if name in event and event.flag(name)), "")


def next_step(watch: ResponseObject, now: int) -> str:
    """What happens next to a watch, in one sentence without its stop; raises CommandError."""
    events = watch.objects("events") if "events" in watch else []
    deliveries = [_next_delivery(event, watch, now) for event in events if "nextAttemptAt" in event]
    if "ending" in watch:
        sentence = _ENDINGS.get(watch.text("ending"), f"the watch has ended: {watch.text('ending')}")
        late = []
        if "mismatchesUntil" in watch:
            until = format_time(watch.number("mismatchesUntil"))
            late = [f"a transfer for the order in a block until {until} is reported as payment.mismatched"]
        return "; ".join([sentence if deliveries or late else f"nothing, {sentence}", *late, *deliveries])
    payment = watch.object("payment")
    step = _NEXT.get(watch.text("lastState"), _next_of_unpaid)(watch, payment)
    if not _synced(payment):
        step += "; the node is not in sync, and until it is, it confirms no payment and ends no watch"
    return "; ".join([step, *deliveries])


def _next_of_unpaid(watch: ResponseObject, payment: ResponseObject) -> str:
    end = _end(watch, payment, "payUntil" if "payUntil" in watch else "expiresAt")
    expired = _named(watch, "payment.expired")
    if "payUntil" in watch:
        return f"the payment must be seen by {end}, in the mempool or in a block; otherwise {expired}"
    return f"the payment must be confirmed by {end}; otherwise {expired}"


def _next_of_pending(watch: ResponseObject, payment: ResponseObject) -> str:
    first = "payment.confirmed" if watch.count("requiredConfirmations") == 1 else "payment.confirming"
    expired = _named(watch, "payment.expired")
    gone = f"leaves the mempool after {format_time(watch.number('payUntil'))} or " if "payUntil" in watch else ""
    end = _end(watch, payment, "expiresAt")
    return (
        f"waits for a block with the payment, then {_named(watch, first)}; {expired} if it {gone}is not confirmed by "
        f"{end}"
    )


def _next_of_confirming(watch: ResponseObject, payment: ResponseObject) -> str:
    missing = watch.count("requiredConfirmations") - payment.count("confirmations")
    confirmed = _named(watch, "payment.confirmed")
    if missing <= 0:
        return f"the payment has its confirmations, and {confirmed} follows"
    expired, end = _named(watch, "payment.expired"), _end(watch, payment, "expiresAt")
    return f"waits for {counted(missing, 'more confirmation')}, then {confirmed}; {expired} if not by {end}"


def _next_of_confirmed(watch: ResponseObject, payment: ResponseObject) -> str:
    end = _end(watch, payment, "payUntil" if "payUntil" in watch else "expiresAt")
    reorged = _named(watch, "payment.reorged")
    return f"the watch closes at {end}; until then {reorged} follows if a reorganisation undoes the payment"


_NEXT: Final[Mapping[str, Callable[[ResponseObject, ResponseObject], str]]] = {
    "pending": _next_of_pending,
    "confirming": _next_of_confirming,
    "confirmed": _next_of_confirmed,
}


def _end(watch: ResponseObject, payment: ResponseObject, member: str) -> str:
    """When the watch ends: at the time in ``member``, and after a confirmation not before its height."""
    time = format_time(watch.number(member))
    if "closesAtHeight" not in watch:
        return time
    height = watch.number("closesAtHeight")
    reached = "tip" in payment and payment.object("tip").number("height") >= height
    return time if reached else f"{time}, or at height {height} if that is later"


def _named(watch: ResponseObject, event: str) -> str:
    """An event, with a note if the watch does not send it."""
    if "wantedEvents" in watch and event not in watch.texts("wantedEvents"):
        return f"{event} (which this watch does not send)"
    return event


def _synced(payment: ResponseObject) -> bool:
    return "node" not in payment or payment.object("node").flag("synced")


def _next_delivery(event: ResponseObject, watch: ResponseObject, now: int) -> str:
    due = event.number("nextAttemptAt")
    again = "repeated " if "deliveredAt" in event else ""
    when = f"at {format_time(due)}" if due > now else "is due"
    text = f"the next {again}delivery attempt of {event.text('event')} {when}{_attempt(event)}"
    if "breaker" in watch:
        opened = format_time(watch.object("breaker").number("openedAt"))
        text += f"; the circuit breaker of the receiver is open since {opened}"
    return text


def _attempt(event: ResponseObject) -> str:
    """Which of its attempts is next, such as " (4th of 16)"."""
    if "attemptsLeft" not in event:
        return ""
    made = event.count("attempts")
    return f" ({_ordinal(made + 1)} of {made + event.count('attemptsLeft')})"


def _ordinal(number: int) -> str:
    last, teens = number % 10, number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(last, 'th')}"


def _terms(watch: ResponseObject, unit: str) -> list[tuple[str, str]]:
    payment = watch.object("payment")
    rows = [
        ("watch", watch.text("id")),
        ("active", active_text(watch)),
        ("reference", watch.text("reference")),
        ("recipient", watch.text("recipient")),
        ("amount", format_coins(watch.number("amount"), unit)),
        ("confirmations", f"{watch.count('requiredConfirmations')} required"),
        ("last state", watch.text("lastState")),
        ("payment", _state(payment, payment.count("requiredConfirmations"))),
    ]
    if "txid" in payment:
        rows.append(("txid", payment.text("txid")))
    if "blockHash" in payment:
        rows.append(("block", _block(payment, "blockHeight", "blockHash")))
    rows += [("callback", watch.text("callbackUrl")), ("created", format_time(watch.number("createdAt")))]
    if "payUntil" in watch:
        rows.append(("pay until", format_time(watch.number("payUntil"))))
    rows.append(("expires", format_time(watch.number("expiresAt"))))
    if "sinceHeight" in watch:
        rows.append(("since height", str(watch.number("sinceHeight"))))
    if "breaker" in watch:
        breaker = watch.object("breaker")
        opened, probe = (format_time(breaker.number(name)) for name in ("openedAt", "nextProbeAt"))
        rows.append(("breaker", f"open since {opened}, next probe not before {probe}"))
    if "warning" in watch:
        rows.append(("warning", watch.text("warning")))
    return rows


def _story(watch: ResponseObject, unit: str) -> list[str]:
    """The registration, the events, oldest first, and the end."""
    events, required = watch.objects("events"), watch.count("requiredConfirmations")
    told = [f"{format_time(watch.number('createdAt'))}  registered"]
    if len(events) == KEPT_EVENTS:
        told.append(f"(the node shows the newest {KEPT_EVENTS} events; there may have been others before)")
    told += [event_text(event, unit, required) for event in reversed(events)]
    if "endedAt" in watch:
        told.append(f"{format_time(watch.number('endedAt'))}  {ending_of(watch)}")
    if "moreMismatches" in watch and watch.flag("moreMismatches"):
        told.append("(the watch has reported as many mismatches as it may, and reports no more of them)")
    return told


def _is_aside(content: ResponseObject) -> bool:
    """Whether an event is not about the order's own payment, whose state it does not change."""
    return "mismatch" in content or "alarm" in content


def _heading(content: ResponseObject, unit: str, required: int | None) -> str:
    return subject_of(content, unit) if _is_aside(content) else _state(content.object("payment"), required)


def _short_state(payment: ResponseObject, required: int) -> str:
    return f"{payment.text('state')} {confirmations_of(payment.count('confirmations'), required)}"


def _state(payment: ResponseObject, required: int | None) -> str:
    confirmations = payment.count("confirmations")
    if required is None:
        return f"{payment.text('state')}, {counted(confirmations, 'confirmation')}"
    if confirmations > required:
        return f"{payment.text('state')}, {counted(confirmations, 'confirmation')}, {required} required"
    return f"{payment.text('state')}, {confirmations:,} of {counted(required, 'confirmation')}"


def _block(record: ResponseObject, height: str, block_hash: str) -> str:
    return f"{record.number(height)} {record.text(block_hash)}"


def _details(content: ResponseObject) -> list[str]:
    """What an event says besides the state: the transfer that it is about, the payment's block, and the newest one."""
    lines, payment, tip = [], content.object("payment"), content.object("tip")
    if "mismatch" in content:
        mismatch = content.object("mismatch")
        lines.append(f"from  {mismatch.text('sender')}")
        lines.append(f"txid  {mismatch.text('txid')}")
    if "dropped" in content:
        dropped = content.object("dropped")
        by = f" by {dropped.text('replacedBy')}" if "replacedBy" in dropped else ""
        lines.append(f"left the mempool: {dropped.text('reason')}{by}")
    if "alarm" in content:
        lines.append(content.object("alarm").text("sentence"))
    in_block = "blockHash" in payment and not _is_aside(content)
    if in_block:
        lines.append(f"block {_block(payment, 'blockHeight', 'blockHash')}")
    if not in_block or payment.text("blockHash") != tip.text("hash"):
        lines.append(f"tip   {_block(tip, 'height', 'hash')}")
    return lines


def _delivery(event: ResponseObject) -> str:
    attempts = counted(event.count("attempts"), "attempt")
    if "lastStatus" in event:
        attempts += f", last answer {event.count('lastStatus')}"
    if "deliveredAt" in event and "nextAttemptAt" not in event:
        return f"delivered {format_time(event.number('deliveredAt'))}, {attempts}"
    error = f", last error: {event.text('lastError')}" if "lastError" in event else ""
    if "nextAttemptAt" in event:
        again = "to be delivered again" if "deliveredAt" in event else "not delivered"
        due = format_time(event.number("nextAttemptAt"))
        return f"{again}: {attempts}{error}, next attempt {due}{_attempt(event)}"
    return f"{_outcome(event) or 'not delivered, waits for another event of the watch'}: {attempts}{error}"
