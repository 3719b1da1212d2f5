"""What a node answers about the story of a watch: blocks, attempts, ends, and the state of the receiver's breaker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.commerce.retry_policy import MAX_ATTEMPTS, MAX_REFUSALS, attempts_left
from svcd.commerce.watch_operations import ENDED_KEPT_MS
from svcd.interfaces import milliseconds
from svcd.store.webhook_events import BreakerRow
from tests.commerce.watched import Watched
from tests.rpc.conftest import present
from tests.rpc.node import Client
from tests.rpc.test_webhook_routes import PATH, TOKEN, client_of

FORK = """
genesis: b[1..6]
b2: c[3..7]
b3 pays 5000 from alice to bob for order-1
c4 pays 5000 from alice to bob for order-1
"""


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    clock: Clock = present()
    watched = Watched(tmp_path, clock)
    yield watched
    watched.close()


@pytest.fixture
def client(watched: Watched) -> Client:
    return client_of(watched)


def shown(client: Client, identifier: str) -> dict[str, Any]:
    """The subscription, in an answer that agrees with the published schema."""
    answer = client.get(f"{PATH}/{identifier}", Authorization=f"Bearer {TOKEN}")
    assert answer.status == 200
    subscription: dict[str, Any] = answer.json["subscription"]
    return subscription


def take(watched: Watched, *blocks: Block) -> None:
    for block in blocks:
        watched.node.take(block)
        for _ in range(20):
            watched.clock.advance(0)


def story(subscription: dict[str, Any]) -> list[tuple[str, str, int, str | None, str]]:
    """Event, state, confirmations, the payment's block and the tip, oldest first."""
    told = []
    for event in reversed(subscription["events"]):
        payment, tip = event["content"]["payment"], event["content"]["tip"]
        block = payment.get("blockHash")
        told.append((event["event"], payment["state"], payment["confirmations"], block, tip["hash"]))
    return told


def test_every_event_has_the_blocks_that_brought_it(watched: Watched, client: Client) -> None:
    identifier = watched.register()["id"]
    blocks = watched.node.builder.chain(FORK)
    take(watched, *(blocks[f"b{number}"] for number in range(1, 6)))
    take(watched, *(blocks[f"c{number}"] for number in range(3, 8)))
    # The confirmations of the first branch were never sent, and have lost their bodies.
    hashes = {name: block.header.hash.hex() for name, block in blocks.items()}
    subscription = shown(client, identifier)
    assert story(subscription) == [
        ("payment.confirming", "confirming", 1, hashes["b3"], hashes["b3"]),
        ("payment.confirming", "confirming", 2, hashes["b3"], hashes["b4"]),
        ("payment.confirmed", "confirmed", 3, hashes["b3"], hashes["b5"]),
        ("payment.reorged", "confirmed", 3, hashes["c4"], hashes["c6"]),
        ("payment.confirmed", "confirmed", 3, hashes["c4"], hashes["c6"]),
    ]
    events = subscription["events"][::-1]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert [event["epoch"] for event in events] == [0, 0, 0, 1, 1]
    assert [event.get("superseded") for event in events[:3]] == [True] * 3
    assert (events[4]["content"]["payment"]["blockHeight"], events[4]["content"]["tip"]["height"]) == ("4", "6")


def test_the_content_of_an_event_outlives_its_body(watched: Watched, client: Client) -> None:
    identifier = watched.register(amount=5001)["id"]
    take(watched, *(watched.node.builder.chain(FORK)[f"b{number}"] for number in (1, 2, 3)))
    before = shown(client, identifier)["events"]
    assert watched.events()[0]["event"] == "payment.mismatched"
    watched.database.operations.clean_up(0, 0, milliseconds(watched.clock) + 1)
    (event,) = shown(client, identifier)["events"]
    assert event["content"] == before[0]["content"]
    mismatch = event["content"]["mismatch"]
    assert (mismatch["kind"], mismatch["amount"]) == ("too-little", "5000")
    redelivery = client.send(
        "POST",
        f"{PATH}/{identifier}/events/{event['id']}/redeliver",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    assert redelivery.status == 409


def test_a_waiting_event_has_attempts_left(watched: Watched, client: Client) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")

    def left() -> tuple[int, int]:
        (event,) = shown(client, identifier)["events"]
        return event["attempts"], event["attemptsLeft"]

    assert left() == (0, MAX_ATTEMPTS)
    watched.attempt(lambda _: "fail")
    assert left() == (1, MAX_ATTEMPTS - 1)
    watched.clock.advance(60)
    watched.attempt(lambda _: "take")
    (event,) = shown(client, identifier)["events"]
    assert (event["attempts"], event.get("attemptsLeft")) == (2, None)
    watched.redeliver(identifier, event["id"])
    assert left() == (2, MAX_ATTEMPTS)


@pytest.mark.parametrize(
    ("attempts", "refusals", "left"),
    [
        (0, 0, MAX_ATTEMPTS),
        (15, 0, 1),
        (16, 0, 1),
        (1, 1, MAX_REFUSALS - 1),
        (15, 1, 1),
    ],
)
def test_attempts_left(attempts: int, refusals: int, left: int) -> None:
    assert attempts_left(attempts, refusals) == left


def test_a_confirmed_watch_says_when_it_may_close(watched: Watched, client: Client) -> None:
    identifier = watched.register()["id"]
    assert "closesAtHeight" not in shown(client, identifier)
    take(watched, *(watched.node.builder.chain(FORK)[f"b{number}"] for number in range(1, 6)))
    assert shown(client, identifier)["closesAtHeight"] == str(5 + 30)


def test_an_ended_watch_says_since_when_and_what_it_still_reports(watched: Watched, client: Client) -> None:
    first = watched.register(ttl=60)["id"]
    silent = watched.register("order-2", ttl=60, events=["payment.confirmed"])["id"]
    cancelled = watched.register("order-3")["id"]
    assert "endedAt" not in shown(client, first)
    watched.clock.advance(61)
    watched.poll()
    now = milliseconds(watched.clock)
    watched.cancel(cancelled)
    expired = shown(client, first)
    assert (expired["ending"], expired["endedAt"]) == ("expired", str(now))
    assert expired["mismatchesUntil"] == str(now + ENDED_KEPT_MS)
    assert (shown(client, silent)["endedAt"], "mismatchesUntil" in shown(client, silent)) == (str(now), False)
    assert shown(client, cancelled)["ending"] == "cancelled"
    assert "mismatchesUntil" not in shown(client, cancelled)
    # A new watch of the order takes over.
    watched.register(ttl=120)
    assert "mismatchesUntil" not in shown(client, first)


def test_an_open_breaker_is_shown_and_moves_the_next_attempt(watched: Watched, client: Client) -> None:
    identifier = watched.register()["id"]
    watched.pay("5000 from alice to bob for order-1")
    assert "breaker" not in shown(client, identifier)
    now = milliseconds(watched.clock)
    repository = watched.database.operations.repository
    with repository.watches.commit():
        repository.events.keep_breaker(BreakerRow("default", "shop.example.com:443", now - 9, now + 9000, 2))
        repository.events.keep_breaker(BreakerRow("books", "shop.example.com:443", now, now + 99_000, 2))
    subscription = shown(client, identifier)
    assert subscription["breaker"] == {"openedAt": str(now - 9), "nextProbeAt": str(now + 9000)}
    assert subscription["events"][0]["nextAttemptAt"] == str(now + 9000)


def test_watches_are_listed_by_the_reference_of_the_order(watched: Watched, client: Client) -> None:
    ids = [watched.register(reference, ttl=ttl)["id"] for reference, ttl in (("a", 60), ("b", 60), ("a", 90))]
    watched.register("a", merchant="books")

    def listed(query: str) -> tuple[list[str], str | None]:
        answer = client.get(f"{PATH}?{query}", Authorization=f"Bearer {TOKEN}")
        assert answer.status == 200, answer.json
        return [each["id"] for each in answer.json["subscriptions"]], answer.json["next"]

    assert listed("reference=a") == ([ids[2], ids[0]], None)
    assert listed("reference=a&limit=1") == ([ids[2]], ids[2])
    assert listed(f"reference=a&limit=1&after={ids[2]}") == ([ids[0]], ids[0])
    assert listed("reference=c") == ([], None)
    refused = client.get(f"{PATH}?reference=a%20b", Authorization=f"Bearer {TOKEN}")
    assert refused.status == 400
