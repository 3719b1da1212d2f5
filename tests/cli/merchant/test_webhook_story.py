"""`svc webhook show` and `svc webhook watch`: the story of a watch, and its events as they come."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.cli.answers import ResponseObject, dumps
from svcd.cli.merchant.following import PATH, POLL_SECONDS
from svcd.cli.merchant.story import KEPT_EVENTS, event_text, next_step, watch_text
from svcd.cli.merchant.webhooks import EVENTS, STATES
from svcd.commerce.events import EventType
from svcd.commerce.payment import PaymentState
from svcd.interfaces import milliseconds
from svcd.store.webhook_events import BreakerRow
from tests.cli.merchant.conftest import READ_ONLY, TOKEN
from tests.cli.terminal import Fixed, Terminal, site_of
from tests.commerce.watched import Watched
from tests.submitting import submitted

SVC = str(Path(sys.executable).parent / "svc")
DEADLINE = 120.0
READING = {"SVC_MANAGE_TOKEN": READ_ONLY}
MANAGING = {"SVC_MANAGE_TOKEN": TOKEN}
WATCH = "svcwh_" + "5b1f7d26" * 4
EVENT = "svcevt_" + "0" * 32
NOW = 1_795_132_801_000
FORK = """
genesis: b[1..6]
b2: c[3..7]
b3 pays 5000 from alice to bob for order-1
c4 pays 5000 from alice to bob for order-1
"""


def take(watched: Watched, *blocks: Block) -> None:
    for block in blocks:
        watched.node.take(block)
        for _ in range(20):
            watched.clock.advance(0)


def shown(terminal: Terminal, wanted: str = "order-1") -> str:
    return terminal.ok("webhook", "show", wanted, env=READING).out


def heads(text: str) -> list[str]:
    """The first line of each part of a story, without its time."""
    return [re.sub(r"^[0-9-]+ [0-9:]+ UTC  ", "", part.splitlines()[0]) for part in text.split("\n\n")[1:]]


def last(text: str) -> str:
    return text.rstrip("\n").rpartition("\n")[2]


# The story of a watch


def test_a_watch_below_the_blocks_of_the_node_is_refused(terminal: Terminal, watched: Watched) -> None:
    blocks = watched.node.builder.chain(FORK)
    take(watched, *(blocks[f"b{number}"] for number in range(1, 7)))
    watched.node.keep_from(4)
    register = ("webhook", "register", "order-1", watched.node.address("bob"), "0.00005")
    words = (*register, "--callback", "https://shop.example.com/paid", "--since-height")
    told = terminal.failure(*words, 3, env=MANAGING)
    assert "payments from block 3 on: this node has only blocks from height 4 on" in told
    assert "order-1" in terminal.ok(*words, 4, env=MANAGING).out


def test_a_payment_that_is_confirmed_undone_and_confirmed_again(terminal: Terminal, watched: Watched) -> None:
    watched.register()
    blocks = watched.node.builder.chain(FORK)
    take(watched, *(blocks[f"b{number}"] for number in range(1, 4)))
    assert "next: waits for 2 more confirmations, then payment.confirmed; payment.expired if not by " in shown(terminal)
    take(watched, blocks["b4"], blocks["b5"])
    watched.events()
    text = shown(terminal)
    assert re.fullmatch(
        r"next: the watch closes at .* UTC, or at height 35 if that is later; until then payment\.reorged follows if a "
        r"reorganisation undoes the payment",
        last(text),
    )
    take(watched, *(blocks[f"c{number}"] for number in range(3, 8)))
    watched.events()
    text = shown(terminal)
    assert heads(text) == [
        "registered",
        "payment.confirming: confirming, 1 of 3 confirmations",
        "payment.confirming: confirming, 2 of 3 confirmations",
        "payment.confirmed: confirmed, 3 of 3 confirmations",
        "payment.reorged: confirmed, 3 of 3 confirmations",
        "payment.confirmed: confirmed, 3 of 3 confirmations",
        last(text),
    ]
    names = {name: block.header.hash.hex() for name, block in blocks.items()}
    assert f"    block 3 {names['b3']}\n    not delivered, superseded by a newer event: 0 attempts\n" in text
    assert f"    block 3 {names['b3']}\n    tip   5 {names['b5']}\n    delivered " in text
    assert text.count(f"    block 4 {names['c4']}\n    tip   6 {names['c6']}\n    delivered ") == 2
    assert f"\nblock          4 {names['c4']}\n" in text


def test_a_payment_that_a_reorganisation_takes_away(terminal: Terminal, watched: Watched) -> None:
    watched.register(ttl=3600)
    blocks = watched.node.builder.chain(FORK)
    take(watched, *(blocks[f"b{number}"] for number in range(1, 6)))
    watched.events()
    other = watched.node.builder.chain(FORK.replace("c4 pays", "c7 pays"))
    take(watched, *(other[f"c{number}"] for number in range(3, 7)))
    text = shown(terminal)
    assert "payment.reorged: pending, 0 of 3 confirmations" in heads(text)
    assert re.match(
        r"next: waits for a block with the payment, then payment\.confirming; payment\.expired if it is not confirmed "
        r"by .* UTC, or at height 35 if that is later; the next delivery attempt of payment\.reorged is due "
        r"\(1st of 16\)$",
        last(text),
    )


def test_a_deadline_and_what_comes_after_it(terminal: Terminal, watched: Watched) -> None:
    watched.register(pay_within=60)
    deadline = milliseconds(watched.clock) + 60_000
    text = shown(terminal)
    (told,) = re.findall(r"\npay until +(.* UTC)\nexpires ", text)
    assert last(text) == (
        f"next: the payment must be seen by {told}, in the mempool or in a block; otherwise payment.expired"
    )
    watched.clock.advance(120)
    watched.poll()
    watched.events()
    text = shown(terminal)
    assert heads(text)[1:3] == ["payment.expired: unpaid, 0 of 3 confirmations", "ended: expired"]
    assert last(text).startswith(
        "next: the watch has expired without a confirmed payment; a transfer for the order in a block until "
    )
    take(watched, *(watched.node.builder.chain(FORK)[f"b{number}"] for number in (1, 2, 3)))
    assert milliseconds(watched.clock) >= deadline
    late = shown(terminal)
    assert "payment.mismatched: late: 0.00005 SVC" in heads(late)


def test_too_little_is_part_of_the_story(terminal: Terminal, watched: Watched) -> None:
    watched.register(amount=5001)
    blocks = watched.node.builder.chain(FORK)
    take(watched, *(blocks[f"b{number}"] for number in (1, 2, 3)))
    text = shown(terminal)
    assert heads(text)[1] == "payment.mismatched: too-little: 0.00005 SVC"
    (transfer,) = blocks["b3"].transfers
    assert f"\n    txid  {transfer.txid.hex()}\n    tip   3 {blocks['b3'].header.hash.hex()}\n" in text
    assert f"\n    from  {watched.node.address('alice')}\n" in text


def test_a_dropped_payment_is_part_of_the_story(terminal: Terminal, watched: Watched) -> None:
    watched.register(events=["payment.dropped"], ttl=10 * 86_400)
    watched.pay("5000 from alice to bob for order-1")
    text = shown(terminal)
    assert "then payment.confirming (which this watch does not send); payment.expired (which this" in last(text)
    other = watched.node.builder.transfer("alice", "alice", 1, nonce=0, fee=20_000)
    submitted(watched.node_context.transaction_pool, other, watched.clock)
    for _ in range(20):
        watched.clock.advance(0)
    text = shown(terminal)
    assert heads(text)[1] == "payment.dropped: unpaid, 0 of 3 confirmations"
    assert f"\n    left the mempool: replaced by {other.txid.hex()}\n" in text


def test_a_failing_receiver_and_its_breaker(terminal: Terminal, watched: Watched) -> None:
    watched.register()
    watched.pay("5000 from alice to bob for order-1")
    assert last(shown(terminal)).endswith("; the next delivery attempt of payment.pending is due (1st of 16)")
    watched.attempt(lambda _: "fail")
    text = shown(terminal)
    (due,) = re.findall(
        r"\n    not delivered: 1 attempt, last error: status 500, next attempt (.*) \(2nd of 16\)", text
    )
    assert last(text).endswith(f"; the next delivery attempt of payment.pending at {due} (2nd of 16)")
    repository = watched.database.operations.repository
    now = milliseconds(watched.clock)
    with repository.watches.commit():
        repository.events.keep_breaker(BreakerRow("default", "shop.example.com:443", now, now + 90_000, 2))
    text = shown(terminal)
    assert re.search(r"\nbreaker +open since .* UTC, next probe not before .* UTC\n", text)
    assert due not in text
    assert re.search(r"; the circuit breaker of the receiver is open since .* UTC$", last(text))


def test_while_the_node_is_not_in_step_nothing_ends(terminal: Terminal, watched: Watched) -> None:
    watched.register()
    unsynced: Any = {**json.loads(terminal.ok("webhook", "show", "order-1", "--json", env=READING).out)}
    unsynced["payment"]["node"]["synced"] = False
    text = next_step(ResponseObject("watch", unsynced), NOW)
    assert text.endswith("; the node is not in sync, and until it is, it confirms no payment and ends no watch")


def test_an_order_without_a_watch_and_one_with_several(terminal: Terminal, watched: Watched) -> None:
    assert terminal.failure("webhook", "show", "order-1", env=READING) == (
        "the merchant of this token has no watch of the order order-1; `svc webhook list` shows the watches"
    )
    first, second = (watched.register(ttl=ttl)["id"] for ttl in (60, 90))
    told = terminal.ok("webhook", "show", "order-1", env=READING)
    assert f"watch          {second}\n" in told.out
    assert told.err == f"order-1 has several watches; the newest is {second}, give an id for another\n"
    assert f"watch          {first}\n" in shown(terminal, first)


# From an answer alone


def watch(**changes: Any) -> ResponseObject:
    payment = {"state": "unpaid", "confirmations": 0, "requiredConfirmations": 12}
    members = {
        "id": WATCH,
        "active": True,
        "reference": "order-17",
        "recipient": "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc",
        "amount": "2500000000",
        "requiredConfirmations": 12,
        "lastState": "unpaid",
        "callbackUrl": "https://shop.example.org/paid",
        "createdAt": str(NOW),
        "expiresAt": str(NOW + 86_400_000),
        "payment": payment,
        "events": [],
        **changes,
    }
    return ResponseObject("subscription", members)


CONTENT = {
    "payment": {"state": "confirming", "confirmations": 1, "blockHash": "aa", "blockHeight": "7"},
    "tip": {"height": "7", "hash": "aa"},
}


def delivery(**changes: Any) -> dict[str, Any]:
    """An event of a watch in the answer of a node."""
    common = {"id": EVENT, "event": "payment.confirming", "createdAt": str(NOW), "attempts": 0, "content": CONTENT}
    return {**common, "deliveredAt": None, "nextAttemptAt": None, "lastError": None, **changes}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"attempts": 3, "lastError": "status 500", "nextAttemptAt": str(NOW + 120_000)},
            "not delivered: 3 attempts, last error: status 500, next attempt 2026-11-20 00:02:01 UTC",
        ),
        (
            {"attempts": 3, "lastError": "timeout", "nextAttemptAt": str(NOW + 120_000), "attemptsLeft": 13},
            "not delivered: 3 attempts, last error: timeout, next attempt 2026-11-20 00:02:01 UTC (4th of 16)",
        ),
        (
            {"attempts": 1, "deliveredAt": str(NOW + 1000), "lastStatus": 204},
            "delivered 2026-11-20 00:00:02 UTC, 1 attempt, last answer 204",
        ),
        ({"superseded": True, "attempts": 2}, "not delivered, superseded by a newer event: 2 attempts"),
        (
            {"abandoned": True, "attempts": 13, "lastError": "timeout"},
            "not delivered, given up: 13 attempts, last error: timeout",
        ),
        (
            {"refused": True, "attempts": 3, "lastError": "status 400"},
            "not delivered, refused by the receiver: 3 attempts, last error: status 400",
        ),
        ({"dropped": True}, "not delivered, dropped when the watch ended: 0 attempts"),
        ({}, "not delivered, waits for another event of the watch: 0 attempts"),
    ],
)
def test_the_delivery_of_an_event(changes: dict[str, Any], line: str) -> None:
    event = ResponseObject("event", delivery(**changes))
    heading = "2026-11-20 00:00:01 UTC  payment.confirming: confirming, 1 confirmation\n    block 7 aa"
    assert event_text(event, "SVC") == f"{heading}\n    {line}\n    {EVENT}"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"lastState": "pending", "requiredConfirmations": 1},
            "waits for a block with the payment, then payment.confirmed; payment.expired if it is not confirmed by "
            "2026-11-21 00:00:01 UTC",
        ),
        (
            {"lastState": "pending", "payUntil": str(NOW + 60_000)},
            "waits for a block with the payment, then payment.confirming; payment.expired if it leaves the mempool "
            "after 2026-11-20 00:01:01 UTC or is not confirmed by 2026-11-21 00:00:01 UTC",
        ),
        (
            {"lastState": "confirming", "payment": {"state": "confirming", "confirmations": 11}},
            "waits for 1 more confirmation, then payment.confirmed; payment.expired if not by 2026-11-21 00:00:01 UTC",
        ),
        (
            {"lastState": "confirming", "payment": {"state": "confirmed", "confirmations": 12}},
            "the payment has its confirmations, and payment.confirmed follows",
        ),
        (
            {"lastState": "confirmed", "closesAtHeight": "40", "payment": {"tip": {"height": "41", "hash": ""}}},
            "the watch closes at 2026-11-21 00:00:01 UTC; until then payment.reorged follows if a reorganisation "
            "undoes the payment",
        ),
        (
            {"lastState": "confirmed", "payUntil": str(NOW + 60_000), "wantedEvents": ["payment.confirmed"]},
            "the watch closes at 2026-11-20 00:01:01 UTC; until then payment.reorged (which this watch does not send) "
            "follows if a reorganisation undoes the payment",
        ),
        ({"ending": "closed"}, "nothing, the payment is confirmed, and the watch is closed"),
        ({"ending": "cancelled"}, "nothing, the watch was cancelled"),
        ({"ending": "gone"}, "nothing, the receiver has answered 410, which ends the watch"),
        (
            {"ending": "expired", "events": [delivery(nextAttemptAt=str(NOW + 1000), attemptsLeft=1, attempts=10)]},
            "the watch has expired without a confirmed payment; the next delivery attempt of payment.confirming at "
            "2026-11-20 00:00:02 UTC (11th of 11)",
        ),
        (
            {"ending": "closed", "events": [delivery(nextAttemptAt=str(NOW), attemptsLeft=15, attempts=21)]},
            "the payment is confirmed, and the watch is closed; the next delivery attempt of payment.confirming is due "
            "(22nd of 36)",
        ),
    ],
)
def test_the_sentence_about_the_next_event(changes: dict[str, Any], sentence: str) -> None:
    assert next_step(watch(**changes), NOW) == sentence


def test_a_long_story_says_that_its_beginning_may_be_missing() -> None:
    text = watch_text(watch(events=[delivery()] * KEPT_EVENTS, moreMismatches=True, warning="too short"), NOW, "SVC")
    assert "(the node shows the newest 32 events; there may have been others before)" in text
    assert "(the watch has reported as many mismatches as it may, and reports no more of them)" in text
    assert "\nwarning        too short" in text


def test_the_names_for_shells_are_those_of_the_node() -> None:
    assert sorted(EVENTS) == sorted(EventType)
    assert (*(state.value for state in PaymentState), "expired") == STATES


# Following


def at(clock: Clock, *actions: Callable[[], object]) -> None:
    """Do these things one after the other, with a round of the command between two of them."""
    for number, action in enumerate(actions):
        clock.callLater(POLL_SECONDS * (3 * number + 1.5), action)


def test_watch_prints_each_event_until_all_watches_have_ended(terminal: Terminal, watched: Watched) -> None:
    first, second = watched.register("order-1", ttl=60)["id"], watched.register("order-2", ttl=90)["id"]
    blocks = watched.node.builder.chain(FORK)

    def blocks_of_the_payment() -> None:
        watched.node.take(*(blocks[f"b{number}"] for number in (1, 2, 3)))

    at(
        terminal.clock,
        blocks_of_the_payment,
        lambda: watched.node.take(blocks["b4"]),
        lambda: watched.cancel(first),
    )
    terminal.clock.callLater(90, watched.poll)
    told = terminal.ok("webhook", "watch", "order-1", second, "order-1", env=READING)
    assert told.err == "order-1  unpaid 0 of 3\norder-2  unpaid 0 of 3\n"
    assert [line.partition(" UTC  ")[2] for line in told.out.splitlines()] == [
        "order-1  payment.confirming  confirming 1 of 3",
        "order-1  payment.confirming  confirming 2 of 3",
        "order-1  ended: cancelled",
        "order-2  payment.expired  unpaid 0 of 3",
        "order-2  ended: expired",
    ]
    # All have ended.
    again = terminal.ok("webhook", "watch", "order-1", "order-2", env=READING)
    assert (again.out, again.err) == ("", "order-1  ended: cancelled\norder-2  ended: expired\n")


def test_watch_as_json_is_an_object_in_each_line(terminal: Terminal, watched: Watched) -> None:
    identifier = watched.register(amount=5001, ttl=60)["id"]
    blocks = watched.node.builder.chain(FORK)
    at(terminal.clock, lambda: watched.node.take(*(blocks[f"b{number}"] for number in (1, 2, 3))))
    terminal.clock.callLater(61, watched.poll)
    lines = list(map(json.loads, terminal.ok("webhook", "watch", "order-1", "--json", env=READING).out.splitlines()))
    assert [line.get("event") for line in lines] == ["payment.mismatched", "payment.expired", None]
    assert {(line["subscriptionId"], line["reference"]) for line in lines} == {(identifier, "order-1")}
    assert lines[0]["content"]["mismatch"]["kind"] == "too-little"
    assert (lines[2]["ending"], lines[2]["active"]) == ("expired", False)


def test_watch_survives_a_node_that_is_away(terminal: Terminal, watched: Watched) -> None:
    watched.register(ttl=60)

    def away() -> None:
        terminal.public.failure = ConnectionRefusedError()

    def back() -> None:
        terminal.public.failure = None
        watched.pay("5000 from alice to bob for order-1")

    at(terminal.clock, away)
    terminal.clock.callLater(30, back)
    terminal.clock.callLater(61, watched.poll)
    told = terminal.ok("webhook", "watch", "order-1", env=READING)
    started, gone, again = told.err.splitlines()
    assert started == "order-1  unpaid 0 of 3"
    assert gone.startswith("no answer, asking again until there is one: cannot connect to http://127.0.0.1:8645: ")
    assert again == "the node answers again"
    assert "  payment.pending  pending 0 of 3\n" in told.out


def test_watch_fails_at_once_where_the_first_request_does(terminal: Terminal, watched: Watched) -> None:
    watched.register()
    assert "with the right token" in terminal.failure("webhook", "watch", "order-1", env={"SVC_MANAGE_TOKEN": "wrong"})
    terminal.public.failure = ConnectionRefusedError()
    assert "is the node running?" in terminal.failure("webhook", "watch", "order-1", env=READING)


def test_watch_ends_when_its_token_is_withdrawn(terminal: Terminal, watched: Watched) -> None:
    watched.register()
    at(terminal.clock, lambda: setattr(terminal.public, "site", Answering401(terminal).site))
    result = terminal.invoke("webhook", "watch", "order-1", env=READING)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "Error: no such token"


def test_watch_asks_a_fifth_of_the_orders_each_second_at_most(terminal: Terminal, watched: Watched) -> None:
    for number in range(20):
        watched.register(f"order-{number}", ttl=60)
    terminal.clock.callLater(61, watched.poll)
    counted = Counted(terminal.public.site)
    terminal.public.site = counted
    began = terminal.clock.seconds()
    terminal.ok("webhook", "watch", *(f"order-{number}" for number in range(20)), env=READING)
    seconds = terminal.clock.seconds() - began
    # One look at each to begin with, and five a second from then on.
    assert 20 < counted.connections <= 20 + 5 * seconds


class Counted:
    """A site that counts its connections: each request of `svc` has its own."""

    def __init__(self, site: Any) -> None:
        self.site = site
        self.connections = 0

    def buildProtocol(self, address: Any) -> Any:  # noqa: N802
        self.connections += 1
        return self.site.buildProtocol(address)


class Answering401:
    """A node that knows no token."""

    def __init__(self, terminal: Terminal) -> None:
        self.site = site_of(Fixed((401, b'{"ok":false,"error":"no such token"}')), terminal.clock)


def test_a_read_only_token_changes_nothing_and_says_so(terminal: Terminal, watched: Watched) -> None:
    identifier = watched.register()["id"]
    sentence = "this token is read-only: it lists and shows webhooks; use the management token"
    for words in (
        ("cancel", identifier),
        ("redeliver", identifier, EVENT),
        ("trigger", "webhook.test", "--callback", "https://shop.example.com/paid"),
        ("register", "order-9", watched.node.address("bob"), "1", "--callback", "https://shop.example.com/paid"),
    ):
        assert terminal.failure("webhook", *words, env=READING) == sentence
    for words in (("show", identifier), ("events", "order-1"), ("list",)):
        terminal.ok("webhook", *words, env=READING)


# As a process


class OneWatch(BaseHTTPRequestHandler):
    """A node with one watch without events, which answers the first request alone."""

    def do_GET(self) -> None:
        if self.server.answered.locked():  # type: ignore[attr-defined]
            self.server.waiting.release()  # type: ignore[attr-defined]
            self.rfile.read(1)  # until the client closes the connection
            return
        self.server.answered.acquire()  # type: ignore[attr-defined]
        body = dumps({"ok": True, "subscription": watch()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[tuple[str, threading.Semaphore]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OneWatch)
    waiting = threading.Semaphore(0)
    server.answered, server.waiting = threading.Lock(), waiting  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", waiting
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.socket
def test_ctrl_c_ends_it_quietly_with_the_status_of_an_interrupted_program(
    url: tuple[str, threading.Semaphore],
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "SVCD_"))}
    process = subprocess.Popen(
        [SVC, "webhook", "watch", WATCH, "--url", url[0]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "SVC_MANAGE_TOKEN": READ_ONLY},
    )
    try:
        # The request of the first round has no answer yet.
        assert url[1].acquire(timeout=DEADLINE)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    assert (process.returncode, out, err) == (130, "", "order-17  unpaid 0 of 12\n")


def test_the_path_is_the_merchants_route() -> None:
    assert PATH == "/rpc/commerce/webhooks"
