"""A watch of a merchant as text for people, from what a node answers (docs/webhooks.md)."""

from collections.abc import Iterator
from typing import Final

from svcd.wallet.answer import Answer
from svcd.wallet.show import coins, counted, moment, plain, table

_FATES: Final = {
    "superseded": "not delivered, a newer one took its place",
    "abandoned": "not delivered, given up",
    "dropped": "not delivered, dropped when the watch ended",
}


def watch_text(watch: Answer) -> str:
    """What `svc webhook` says of a watch; raises Failed."""
    events = watch.objects("events") if "events" in watch else []
    payment = watch.object("payment")
    rows = [
        ("watch", watch.text("id")),
        ("active", _active(watch)),
        ("reference", watch.text("reference")),
        ("recipient", watch.text("recipient")),
        ("amount", coins(watch.number("amount"))),
        ("confirmations", f"{watch.count('requiredConfirmations')} required"),
        ("last state", watch.text("lastState")),
        ("payment", _payment(payment)),
    ]
    if "txid" in payment:
        rows.append(("txid", payment.text("txid")))
    rows += [
        ("callback", watch.text("callbackUrl")),
        ("created", moment(watch.number("createdAt"))),
        ("expires", moment(watch.number("expiresAt"))),
    ]
    if "sinceHeight" in watch:
        rows.append(("since height", str(watch.number("sinceHeight"))))
    if "events" in watch:
        rows.append(("events", str(len(events))))
    return "\n".join([table(rows), *(line for event in events for line in _event_lines(event))])


def _active(watch: Answer) -> str:
    if watch.value("active") is True:
        return "yes"
    return f"no, {watch.text('ending')}" if "ending" in watch else "no"


def _payment(payment: Answer) -> str:
    depth, required = payment.count("confirmations"), payment.count("requiredConfirmations")
    return f"{payment.text('state')}, {depth} of {counted(required, 'confirmation')}"


def _event_lines(event: Answer) -> Iterator[str]:
    yield ""
    yield plain(f"  {event.text('event')}, {moment(event.number('createdAt'))}")
    yield plain(f"    {event.text('id')}")
    yield plain(f"    {_delivery(event)}")


def _delivery(event: Answer) -> str:
    attempts = event.count("attempts")
    tries = counted(attempts, "attempt")
    if "deliveredAt" in event:
        return f"delivered {moment(event.number('deliveredAt'))}, {tries}"
    error = f", the last failed: {event.text('lastError')}" if "lastError" in event else ""
    if "nextAttemptAt" in event:
        return f"not delivered: {tries}{error}, the next {moment(event.number('nextAttemptAt'))}"
    fate = next((words for name, words in _FATES.items() if event.members.get(name) is True), "not delivered")
    return f"{fate}: {tries}{error}"
