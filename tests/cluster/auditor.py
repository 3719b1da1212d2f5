"""An auditor who shares no code with svcd: compares what receivers got with what the chain says.

Written from docs/webhooks.md and docs/payments.md alone. Blocks are the JSON of `GET /rpc/block/{height}`, events the
JSON of the bodies that a receiver answered 200 to, in the order of their arrival.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PROMOTED = 1_000_000_000


class Discrepancy(Exception):
    """What a receiver got is not what it should have got; the text says what."""


@dataclass(frozen=True)
class Order:
    """What a shop waits for."""

    subscription: str
    reference: str
    recipient: str
    amount: int
    required: int


@dataclass(frozen=True)
class Place:
    """Where an order is paid on the chain."""

    block: str
    height: int
    confirmations: int


def agree(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Discrepancy(f"{what}: found {found!r}, expected {expected!r}")


def places(orders: Iterable[Order], blocks: Sequence[Mapping[str, Any]]) -> dict[str, Place]:
    """The first transfer that pays each order, by subscription."""
    wanted = {(order.reference, order.recipient, order.amount): order.subscription for order in orders}
    found: dict[str, Place] = {}
    tip = len(blocks) - 1
    for height, block in enumerate(blocks):
        agree(int(block["height"]), height, "the height of a block")
        for transfer in block["transactions"]:
            payload = transfer["payload"]
            key = (payload.get("paymentReference"), payload["recipient"], int(payload["amount"]))
            if key in wanted:
                found.setdefault(wanted[key], Place(block["hash"], height, tip - height + 1))
    return found


def check_story(events: Sequence[Mapping[str, Any]]) -> None:
    """What was told of one watch, in the order in which each event came first, is one story without holes."""
    before = None
    for event in events:
        name, payment = event["event"].removeprefix("payment."), event["payment"]
        what = f"event {event['sequence']} of {event['subscriptionId']} ({name})"
        if before is not None:
            if event["sequence"] <= before["sequence"]:
                raise Discrepancy(f"{what} came after event {before['sequence']}")
            # A promoted standby begins new epochs, which are times in seconds.
            promoted = before["epoch"] < PROMOTED <= event["epoch"]
            if event["sequence"] == before["sequence"] + 1 and not promoted:
                agree(event["epoch"], before["epoch"] + (name == "reorged"), f"the epoch of {what}")
            if event["epoch"] < before["epoch"]:
                raise Discrepancy(f"{what} is of epoch {event['epoch']}, the one before of {before['epoch']}")
            gone = _state_after(before) == "pending" and event["previousState"] == "unpaid"
            if event["sequence"] == before["sequence"] + 1 and not gone:
                # That a transfer has left the mempool is not told.
                agree(event["previousState"], _state_after(before), f"the previous state of {what}")
        if name == "confirmed":
            agree(payment["state"], "confirmed", f"the state of {what}")
            told = (before or {}).get("event", "").removeprefix("payment.")
            if told == "confirmed" and (before or {})["epoch"] == event["epoch"]:
                raise Discrepancy(f"{what} confirms twice in epoch {event['epoch']}")
        before = event


def _state_after(event: Mapping[str, Any]) -> str:
    name, state = event["event"].removeprefix("payment."), event["payment"]["state"]
    # A payment that a reorganisation has moved and that is confirmed all the same gets a second event for that.
    return "confirming" if name == "reorged" and state == "confirmed" else str(state)


def audit(
    orders: Sequence[Order], events: Sequence[Mapping[str, Any]], blocks: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Check everything; returns figures about what was found. Every order must have been paid and confirmed."""
    contents: dict[str, Mapping[str, Any]] = {}
    stories: dict[str, list[Mapping[str, Any]]] = {order.subscription: [] for order in orders}
    for event in events:
        if event["id"] in contents:
            agree(event, contents[event["id"]], f"the second arrival of {event['id']}")
            continue
        contents[event["id"]] = event
        if event["subscriptionId"] in stories:
            stories[event["subscriptionId"]].append(event)
    paid = places(orders, blocks)
    for order in orders:
        story = stories[order.subscription]
        check_story(story)
        place = paid.get(order.subscription)
        if place is None:
            raise Discrepancy(f"{order.reference} is not paid on the chain")
        if not story:
            raise Discrepancy(f"nothing was told of {order.reference}, which is paid in block {place.height}")
        last = story[-1]
        what = f"the last event of {order.reference}"
        agree(last["event"], "payment.confirmed", what)
        agree(last["payment"]["reference"], order.reference, f"the reference in {what}")
        agree(last["payment"]["blockHash"], place.block, f"the block in {what}")
        agree(int(last["payment"]["blockHeight"]), place.height, f"the height in {what}")
        if last["payment"]["confirmations"] < order.required:
            raise Discrepancy(f"{what} has {last['payment']['confirmations']} confirmations of {order.required}")
    return {
        "orders": len(orders),
        "events": len(contents),
        "again": len(events) - len(contents),
        "reorged": sum(event["event"] == "payment.reorged" for event in contents.values()),
    }
