"""The auditor finds what must not happen."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.cluster.auditor import Discrepancy, Order, audit

ORDER = Order("svcwh_1", "order-1", "svcd1shop", 5, 2)


def block(height: int, *references: str) -> dict[str, Any]:
    payloads = [{"paymentReference": name, "recipient": "svcd1shop", "amount": "5"} for name in references]
    return {
        "height": str(height),
        "hash": f"hash-{height}",
        "transactions": [{"payload": payload} for payload in payloads],
    }


def event(sequence: int, name: str, state: str, *, epoch: int = 0, before: str = "unpaid", at: int = 1) -> Any:
    return {
        "id": f"svcevt_{sequence}",
        "event": f"payment.{name}",
        "subscriptionId": "svcwh_1",
        "epoch": epoch,
        "sequence": sequence,
        "previousState": before,
        "payment": {
            "state": state,
            "reference": "order-1",
            "blockHash": f"hash-{at}",
            "blockHeight": str(at),
            "confirmations": 2 if state == "confirmed" else 1,
        },
    }


def story() -> list[Any]:
    """A payment that is confirmed, moved and confirmed again."""
    return [
        event(1, "confirming", "confirming", at=2),
        event(2, "confirmed", "confirmed", before="confirming", at=2),
        event(3, "reorged", "confirming", epoch=1, before="confirmed"),
        event(4, "confirmed", "confirmed", epoch=1, before="confirming"),
    ]


CHAIN = [block(0), block(1, "order-1"), block(2)]


def test_one_story_that_agrees_with_the_chain() -> None:
    events = story()
    assert audit([ORDER], [*events, events[1]], CHAIN) == {"orders": 1, "events": 4, "again": 1, "reorged": 1}
    assert audit([ORDER], [events[0], *events[2:]], CHAIN)["events"] == 3, "an event that was superseded"


def again(events: list[Any]) -> None:
    other = deepcopy(events[1])
    other["payment"]["confirmations"] = 3
    events.append(other)


def twice(events: list[Any]) -> None:
    events[2:] = [event(3, "confirmed", "confirmed", before="confirmed")]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (again, "the second arrival of svcevt_2"),
        (twice, "confirms twice in epoch 0"),
        (list[Any].reverse, "came after event"),
        (list[Any].clear, "nothing was told of order-1, which is paid in block 1"),
        (lambda events: events.pop(), "the last event of order-1"),
        (lambda events: events[3].update(epoch=0), "the epoch of event 4"),
        (lambda events: events[3].update(previousState="unpaid"), "the previous state of event 4"),
        (lambda events: events[3]["payment"].update(blockHash="hash-2"), "the block in the last event"),
        (lambda events: events[3]["payment"].update(confirmations=1), "has 1 confirmations of 2"),
    ],
)
def test_violations_that_the_auditor_finds(spoil: Callable[[list[Any]], object], sentence: str) -> None:
    events = story()
    spoil(events)
    with pytest.raises(Discrepancy, match=sentence):
        audit([ORDER], events, CHAIN)


def test_an_order_that_nobody_paid() -> None:
    with pytest.raises(Discrepancy, match="order-1 is not paid on the chain"):
        audit([ORDER], story(), [block(0), block(1, "order-2")])
