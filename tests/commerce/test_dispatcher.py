"""Deliveries with a clock that the test advances: receivers that answer, fail, recover or are gone."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from svcd.commerce.circuit_breaker import DeliveryOutcome
from svcd.commerce.delivery_scheduler import DeliveryScheduler
from svcd.commerce.dispatcher import HOST_BROKEN, DeliveryCounts, ForwardClock, WebhookDispatcher
from svcd.commerce.leadership import DatabaseClock, Leadership, NotLeader
from svcd.commerce.retry_policy import RETRY_DELAYS, RETRY_PERIOD
from svcd.commerce.sender import CALL_LIMITS, SendingMerchant, WebhookSender, interpret_reply
from svcd.commerce.signing import BadSignature, SigningKeys, verify
from svcd.interfaces import milliseconds
from svcd.net.calls import CallFailed, CallLimits, Reply
from svcd.net.targets import Rules
from svcd.node.clock_guard import STEADY_SECONDS, ClockGuard
from svcd.store.webhook_events import BreakerRow, WatchQueue
from tests.commerce.memory_outbox import MemoryOutbox
from tests.commerce.watched import Given
from tests.support import has_result, result_of

START = 1_790_000_000
SECRET = "a-signing-secret-of-thirty-two-characters"
HOUR = 3600


@frozen
class Sent:
    """One call that was made."""

    url: str
    headers: dict[str, str]
    body: bytes
    at: int


def replying(status: int, **headers: str) -> Reply:
    return Reply(status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=b"")


Answer = Reply | Exception | None


@define
class Network:
    """Receivers by host, and port if it is not 443: each answers with a reply, an exception or, for None, later."""

    clock: Clock
    answers: dict[str, Answer | Callable[[], Answer]] = field(factory=dict)
    sent: list[Sent] = field(factory=list)
    open: list["Deferred[Reply]"] = field(factory=list)
    cancelled: int = 0

    def call(
        self, method: str, target: Any, *, headers: Any, body: bytes | None, limits: CallLimits
    ) -> "Deferred[Reply]":
        assert (method, limits) == ("POST", CALL_LIMITS)
        assert body is not None
        self.sent.append(Sent(target.url, dict(headers), body, int(self.clock.seconds())))
        name = target.host.partition(".")[0] + ("" if target.port == 443 else f":{target.port}")
        answer = self.answers.get(name, replying(200))
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            return fail(answer)
        if isinstance(answer, Reply):
            return succeed(answer)
        waiting: Deferred[Reply] = Deferred(self._cancel)
        self.open.append(waiting)
        return waiting

    def _cancel(self, _: object) -> None:
        self.cancelled += 1


@define
class World:
    clock: Clock
    outbox: MemoryOutbox
    network: Network
    dispatcher: WebhookDispatcher
    log: list[LogEvent]

    def send(self, *watches: str, url: str = "") -> None:
        self.dispatcher.enqueue([self.outbox.add(watch, url, now=self.now) for watch in watches])

    @property
    def now(self) -> int:
        return int(self.clock.seconds() * 1000)

    def sent(self) -> int:
        return len(self.network.sent)

    def said(self, level: LogLevel = LogLevel.info) -> list[str]:
        return [formatEvent(event) for event in self.log if event["log_level"] is level]

    def pass_time(self, seconds: float) -> None:
        """Advance the clock from timer to timer, since each may set new ones."""
        until = self.clock.seconds() + seconds
        while (calls := self.clock.getDelayedCalls()) and (at := min(call.getTime() for call in calls)) <= until:
            self.clock.advance(max(0, at - self.clock.seconds()))
        self.clock.advance(until - self.clock.seconds())


MERCHANTS = {"default": SECRET, "books": "the signing secret of a merchant of books"}


def world_of(
    outbox: MemoryOutbox,
    clock: Clock,
    log: list[LogEvent],
    *,
    rules: Rules | None = None,
    merchants: Mapping[str, str] = MERCHANTS,
    leadership: Leadership | None = None,
    database_clock: DatabaseClock | None = None,
    guard: ClockGuard | None = None,
) -> World:
    network = Network(clock)
    sending = {name: SendingMerchant(network, SigningKeys(secret)) for name, secret in merchants.items()}
    sender = WebhookSender(rules or Rules.for_callbacks(), sending)
    told, guard = database_clock or clock, guard or ClockGuard(clock)
    if database_clock is not None:
        guard.second_doubt = database_clock.doubt
    dispatcher = WebhookDispatcher(outbox, sender, clock=told, guard=guard, chance=lambda: 0.5, leadership=leadership)
    return World(clock, outbox, network, dispatcher, log)


@pytest.fixture
def log() -> Iterator[list[LogEvent]]:
    """The log events of svcd."""
    events: list[LogEvent] = []

    def observe(event: LogEvent) -> None:
        if event["log_namespace"].startswith("svcd"):
            events.append(event)

    globalLogPublisher.addObserver(observe)
    yield events
    globalLogPublisher.removeObserver(observe)


@pytest.fixture
def world(log: list[LogEvent]) -> World:
    clock = Clock()
    clock.advance(START)
    return world_of(MemoryOutbox(), clock, log)


def counts(**numbers: int) -> DeliveryCounts:
    return DeliveryCounts(
        **dict.fromkeys(("in_flight", "waiting", "broken_hosts", "delivered", "failed", "abandoned", "refused"), 0)
        | numbers
    )


# What is sent


def test_an_event_is_signed_and_sent_with_its_headers(world: World) -> None:
    world.send("shop/1")
    [sent] = world.network.sent
    row = world.outbox.row("shop/1")
    assert sent.url == "https://shop.example.com/hook?key=secret"
    assert sent.body == row.event.body
    assert sent.headers["Content-Type"] == "application/json"
    assert sent.headers["X-Svc-Event"] == "payment.pending"
    assert sent.headers["X-Svc-Event-Id"] == sent.headers["webhook-id"] == row.event.event_id
    stamp, signature = sent.headers["X-Svc-Timestamp"], sent.headers["X-Svc-Signature"]
    assert stamp == str(START)
    verify(sent.body, timestamp=stamp, signature=signature, secret=SECRET, now=START)
    assert row.state == "delivered"
    assert world.dispatcher.counts() == counts(delivered=1)
    assert world.clock.getDelayedCalls() == []


def test_each_attempt_is_signed_for_its_own_time_and_has_the_same_body(world: World) -> None:
    world.network.answers["shop"] = replying(500)
    world.send("shop/1")
    world.clock.advance(5)
    first, second = world.network.sent
    assert first.body == second.body
    assert (first.headers["X-Svc-Timestamp"], second.headers["X-Svc-Timestamp"]) == (str(START), str(START + 5))
    assert first.headers["X-Svc-Signature"] != second.headers["X-Svc-Signature"]


def test_events_of_a_watch_go_one_after_the_other(world: World) -> None:
    world.network.answers["shop"] = None
    world.send("shop/1", "shop/1", "shop/1")
    for sequence in (1, 2, 3):
        assert world.sent() == sequence
        world.network.open[-1].callback(replying(200))
    assert world.outbox.states("shop/1") == ["delivered"] * 3


def test_the_next_event_of_a_watch_waits_for_the_one_that_fails(world: World) -> None:
    world.network.answers["shop"] = replying(500)
    world.send("shop/1")
    world.send("shop/1")
    assert world.sent() == 1
    world.network.answers["shop"] = replying(200)
    world.clock.advance(5)
    assert world.outbox.states("shop/1") == ["delivered", "delivered"]
    assert world.sent() == 3


def test_queues_of_the_previous_run_are_sent_when_due(world: World) -> None:
    queue = world.outbox.add("shop/1", now=world.now)
    world.outbox.row("shop/1").due += 60_000
    world.dispatcher.enqueue([WatchQueue(queue.watch, queue.receiver, queue.due + 60_000)])
    world.clock.advance(59.9)
    assert world.sent() == 0
    world.clock.advance(0.1)
    assert world.outbox.states("shop/1") == ["delivered"]


def test_many_queues_at_once_leave_the_reactor_time_for_other_work(world: World) -> None:
    world.send(*(f"shop{number}/1" for number in range(2_500)))
    assert world.sent() == 1_000
    world.clock.advance(0)
    assert world.dispatcher.counts() == counts(delivered=2_500)


def test_an_empty_queue_is_forgotten(world: World) -> None:
    world.dispatcher.enqueue([WatchQueue("shop/1", "shop", 0)])
    assert world.dispatcher.counts() == counts()
    assert world.sent() == 0


# What answers mean


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_every_2xx_is_success(status: int) -> None:
    assert interpret_reply(replying(status)).outcome is DeliveryOutcome.ACCEPTED


RETRIED = [300, 301, 302, 304, 307, 308, 408, 409, 425, 429, 500, 502, 503, 504, 599]
BARRED = [401, 403, 404, 405]
REFUSED = [400, 413, 415, 418, 422, 451, 499]


@pytest.mark.parametrize("status", RETRIED)
def test_statuses_that_may_change_are_retried(world: World, status: int) -> None:
    world.network.answers["shop"] = replying(status)
    world.send("shop/1")
    row = world.outbox.row("shop/1")
    assert (row.state, row.errors, row.due) == ("waiting", [f"status {status}"], world.now + 1_000)
    assert interpret_reply(replying(status)).outcome is (
        DeliveryOutcome.FAILED
        if status in (429, 502, 503, 504)
        else DeliveryOutcome.ERROR
        if status >= 500
        else DeliveryOutcome.REJECTED
    )
    world.dispatcher.cancel("shop/1")


@pytest.mark.parametrize("status", REFUSED)
def test_a_refusal_gets_two_more_attempts(world: World, status: int) -> None:
    world.network.answers["shop"] = replying(status)
    world.send("shop/1")
    begun = world.clock.seconds()
    world.pass_time(2 * HOUR)
    row = world.outbox.row("shop/1")
    assert (row.state, row.errors) == ("refused", [f"status {status}"] * 3)
    assert [sent.at - int(begun) for sent in world.network.sent] == [0, 300, 3_900]
    assert world.said(LogLevel.warn) == [f"event {row.event.event_id} of shop/1 for shop is refused: status {status}"]
    assert world.dispatcher.counts() == counts(failed=3, refused=1)


@pytest.mark.parametrize("status", BARRED)
def test_hours_behind_a_firewall_lose_no_event(world: World, status: int) -> None:
    world.network.answers["shop"] = replying(status)
    world.send("shop/1")
    begun = world.clock.seconds()
    world.pass_time(2 * HOUR)
    assert [sent.at - int(begun) for sent in world.network.sent] == [
        *(0, 300, 600, 900, 1_200, 1_500, 1_800, 2_400, 4_200)
    ]
    assert (world.outbox.states("shop/1"), world.said(LogLevel.warn)) == (["waiting"], [])
    world.network.answers["shop"] = replying(204)
    world.pass_time(HOUR)
    assert world.outbox.states("shop/1") == ["delivered"]


def test_an_event_that_never_gets_through_a_firewall_is_abandoned_after_three_days(world: World) -> None:
    world.network.answers["shop"] = replying(403)
    world.send("shop/1")
    world.pass_time(80 * HOUR)
    assert world.outbox.states("shop/1") == ["abandoned"]
    assert world.dispatcher.counts() == counts(failed=16, abandoned=1)


def test_another_event_waits_a_second_for_a_refused_one(world: World) -> None:
    world.network.answers["shop"] = lambda: replying(400 if b"reorged" in world.network.sent[-1].body else 200)
    world.outbox.add("shop/1", event_type="payment.reorged", now=world.now)
    world.dispatcher.enqueue([world.outbox.add("shop/1", event_type="payment.confirmed", now=world.now)])
    world.pass_time(1)
    assert world.outbox.states("shop/1") == ["refused", "delivered"]
    assert world.sent() == 4


def test_refusals_and_failures_are_counted_apart(world: World) -> None:
    answers = [replying(500), replying(400), replying(500), replying(422), replying(503), replying(400), replying(200)]
    world.network.answers["shop"] = lambda: answers.pop(0)
    world.send("shop/1")
    world.pass_time(2 * HOUR)
    assert world.outbox.states("shop/1") == ["refused"]
    assert world.outbox.row("shop/1").event.attempts == 6


@pytest.mark.parametrize("category", ["refused-address", "dns", "connect", "tls", "timeout", "too-large", "protocol"])
def test_a_call_without_an_answer_is_retried_and_recorded_by_category(world: World, category: Any) -> None:
    world.network.answers["shop"] = CallFailed(category, "shop.example.com said: you are an idiot")
    world.send("shop/1")
    assert world.outbox.row("shop/1").errors == [category]
    world.network.answers["shop"] = replying(200)
    world.clock.advance(1)
    assert world.outbox.states("shop/1") == ["delivered"]


def test_410_ends_the_watch(world: World) -> None:
    world.network.answers["shop"] = replying(410)
    world.send("shop/1", "shop/1")
    assert world.sent() == 1
    assert world.outbox.states("shop/1") == ["dropped", "dropped"]
    assert world.outbox.asked == ["head shop/1", "gone shop/1"]
    assert world.dispatcher.counts() == counts()


@pytest.mark.parametrize(
    ("status", "retry_after", "seconds"),
    [(429, "2", 2), (503, "2", 2), (503, "99999999999999999999", 2), (503, "0", 1), (500, "2", 1)],
)
def test_retry_after_is_honoured(world: World, status: int, retry_after: str, seconds: int) -> None:
    world.network.answers["shop"] = replying(status, retry_after=retry_after)
    world.send("shop/1")
    assert world.outbox.row("shop/1").due == world.now + seconds * 1000
    world.dispatcher.cancel("shop/1")


def test_after_sixteen_attempts_an_event_is_abandoned_and_the_next_one_sent(world: World) -> None:
    world.network.answers["shop"] = CallFailed("timeout", "shop.example.com did not answer within 10 s")
    world.send("shop/1")
    begun = world.clock.seconds()
    world.pass_time(80 * HOUR)
    row = world.outbox.row("shop/1")
    assert (row.state, len(row.errors)) == ("abandoned", 16)
    times = [sent.at - int(begun) for sent in world.network.sent]
    assert times == [sum(RETRY_DELAYS[:number]) // 1000 for number in range(16)]
    assert world.said(LogLevel.warn) == [f"event {row.event.event_id} of shop/1 for shop is abandoned: timeout"]
    world.network.answers.clear()
    world.send("shop/1")
    assert world.outbox.states("shop/1") == ["abandoned", "delivered"]
    assert world.dispatcher.counts() == counts(delivered=1, failed=16, abandoned=1)


def test_each_event_is_signed_with_the_secret_of_its_merchant(world: World) -> None:
    world.dispatcher.enqueue([world.outbox.add(f"shop/{name}", merchant=name, now=world.now) for name in MERCHANTS])
    for sent, secret in zip(world.network.sent, MERCHANTS.values(), strict=True):
        signature = {"timestamp": sent.headers["X-Svc-Timestamp"], "signature": sent.headers["X-Svc-Signature"]}
        verify(sent.body, **signature, secret=secret, now=sent.at)
        for other in set(MERCHANTS.values()) - {secret}:
            with pytest.raises(BadSignature):
                verify(sent.body, **signature, secret=other, now=sent.at)


def test_events_of_a_merchant_that_is_not_configured_are_kept_until_its_return(
    world: World, log: list[LogEvent]
) -> None:
    world.dispatcher.enqueue([world.outbox.add(f"shop/{number}", merchant="former", now=world.now) for number in "12"])
    world.dispatcher.enqueue([WatchQueue("shop/1", "shop", world.now, "former")])
    world.pass_time(100 * HOUR)
    assert world.sent() == 0
    assert world.outbox.row("shop/1").errors == []
    assert world.outbox.asked == []
    assert world.dispatcher.counts() == counts()
    (told,) = world.said(LogLevel.warn)
    assert "the configuration has no merchant former" in told

    again = world_of(world.outbox, world.clock, log, merchants={"former": SECRET})
    again.dispatcher.enqueue([WatchQueue("shop/1", "shop", 0, "former")])
    assert again.dispatcher.counts().delivered == 1


def test_a_merchant_that_is_removed_and_configured_again_loses_no_event(log: list[LogEvent]) -> None:
    """Not even while an attempt waits for its time."""
    outbox, clock = MemoryOutbox(), Clock()
    network = Network(clock)
    books = SendingMerchant(network, SigningKeys(SECRET))
    sending = {"books": books}
    sender = WebhookSender(Rules.for_callbacks(), sending)
    dispatcher = WebhookDispatcher(outbox, sender, clock=clock, guard=ClockGuard(clock), chance=lambda: 0.5)
    world = World(clock, outbox, network, dispatcher, log)
    network.answers["shop"] = replying(503)
    queue = evolve(outbox.add("shop/1", "", now=world.now, merchant="books"), merchant="books")
    dispatcher.enqueue([queue])
    assert world.sent() == 1
    sending.clear()
    dispatcher.merchants_changed()
    world.pass_time(24 * HOUR)
    assert world.sent() == 1
    assert any("the configuration has no merchant books" in told for told in world.said(LogLevel.warn))
    assert dispatcher.counts() == evolve(counts(), failed=1)
    network.answers["shop"] = replying(200)
    sending["books"] = books
    dispatcher.merchants_changed()
    dispatcher.resume([queue], [])
    assert dispatcher.counts().delivered == 1


def test_a_url_that_the_rules_no_longer_allow_is_not_called(world: World, log: list[LogEvent]) -> None:
    world.send("shop/1", url="http://shop.example.com/")
    world.send("shop/2", url="https://localhost/")
    assert world.sent() == 0
    assert [world.outbox.row(watch).errors for watch in ("shop/1", "shop/2")] == [["refused-url"], ["refused-url"]]
    # The breaker stays closed: the host's other URLs may be allowed.
    world.pass_time(HOUR)
    assert world.dispatcher.counts().broken_hosts == 0
    lenient = world_of(world.outbox, world.clock, log, rules=Rules.for_callbacks(allow_http=True, allow_private=True))
    lenient.dispatcher.enqueue([WatchQueue("shop/1", "shop", 0), WatchQueue("shop/2", "shop", 0)])
    assert lenient.dispatcher.counts().delivered == 2
    world.dispatcher.cancel("shop/1")
    world.dispatcher.cancel("shop/2")


def test_an_unexpected_error_counts_as_a_failed_attempt(world: World, expected_errors: Any) -> None:
    world.network.answers["shop"] = RuntimeError("a bug")
    world.send("shop/1")
    assert world.outbox.row("shop/1").errors == ["internal"]
    expected_errors(RuntimeError)
    world.dispatcher.cancel("shop/1")


# Hosts


def test_a_dead_host_does_not_delay_another(world: World) -> None:
    world.network.answers["dead"] = None
    world.send(*(f"dead/{number}" for number in range(500)))
    assert world.sent() == 4
    world.send(*(f"shop{number}/1" for number in range(100)))
    assert world.dispatcher.counts() == counts(in_flight=4, waiting=496, delivered=100)


def test_a_failing_host_is_probed_and_gets_everything_once_it_recovers(world: World) -> None:
    world.network.answers["shop"] = CallFailed("connect", "shop.example.com cannot be reached")
    world.send(*(f"shop/{number}" for number in range(40)))
    assert world.dispatcher.counts() == counts(waiting=40, broken_hosts=1, failed=5)
    assert world.said() == ["callbacks to shop keep failing: until one succeeds, only one at a time is tried"]
    world.pass_time(0.9)
    assert world.sent() == 5
    # Probes after 1, 2, 4 and 8 s more.
    world.pass_time(20)
    assert world.sent() == 9
    world.network.answers["shop"] = replying(200)
    world.pass_time(30)
    assert world.dispatcher.counts() == counts(delivered=40, failed=9)
    assert world.said().count("callbacks to shop succeed again") == 1
    delivered = [line for line in world.said() if "is delivered" in line]
    assert 0 < len(delivered) < 20, "the other deliveries are counted"
    assert re.fullmatch(
        r"event svcevt_[0-9a-f]{32} of shop/[0-9]+ for shop is delivered: payment.pending", delivered[0]
    )


def test_a_test_that_a_host_accepts_or_a_request_for_an_event_ends_the_pause_before_a_probe(world: World) -> None:
    world.network.answers["shop"] = CallFailed("connect", "shop.example.com cannot be reached")
    world.send(*(f"shop/{number}" for number in range(20)))
    world.pass_time(1_000)
    before = world.sent()
    world.dispatcher.hurry("books", "shop")
    assert world.sent() == before
    world.pass_time(20)
    world.dispatcher.enqueue([evolve(world.outbox.add("shop/paid", now=world.now), urgent=True)])
    assert world.outbox.row("shop/paid").errors == ["connect"]
    world.network.answers["shop"] = replying(200)
    world.pass_time(14)
    assert world.dispatcher.counts().delivered == 0
    world.dispatcher.hurry("default", "shop")
    world.pass_time(1)
    assert world.dispatcher.counts() == counts(delivered=21, failed=before + 1)


@pytest.mark.parametrize("status", [500, 503])
def test_a_success_wakes_the_other_queues_of_its_host(world: World, status: int) -> None:
    world.network.answers["shop"] = replying(status)
    world.send("shop/1")
    world.pass_time(40)
    assert world.outbox.row("shop/1").due > world.now
    world.network.answers["shop"] = replying(200)
    world.send("shop/2")
    assert world.outbox.states("shop/1") == world.outbox.states("shop/2") == ["delivered"]


def test_a_payment_does_not_wait_for_events_at_which_the_receiver_fails(world: World) -> None:
    """Five answers with 500 say nothing about the host: what a shop acts on goes to it at once."""
    world.network.answers["shop"] = lambda: replying(200 if b"confirmed" in world.network.sent[-1].body else 500)
    for minute in range(20):
        world.send(*(f"shop/{minute}-{number}" for number in range(3)))
        world.pass_time(60)
    world.dispatcher.enqueue([world.outbox.add("shop/paid", event_type="payment.confirmed", now=world.now)])
    assert world.outbox.states("shop/paid") == ["delivered"]
    assert world.dispatcher.counts().broken_hosts == 0
    for watch in world.outbox.rows:
        world.dispatcher.cancel(watch)


def test_an_error_is_a_sign_of_life(world: World) -> None:
    world.network.answers["shop"] = CallFailed("connect", "shop.example.com cannot be reached")
    world.send(*(f"shop/{number}" for number in range(40)))
    world.network.answers["shop"] = replying(500)
    world.pass_time(1)
    assert world.dispatcher.counts().broken_hosts == 0
    assert world.outbox.row("shop/39").errors == ["status 500"]
    for watch in world.outbox.rows:
        world.dispatcher.cancel(watch)


def test_events_for_a_host_that_stays_dead_are_abandoned(world: World) -> None:
    world.network.answers["dead"] = CallFailed("connect", "dead.example.com cannot be reached")
    watches = [f"dead/{number}" for number in range(1_500)]
    world.send(*watches)
    world.pass_time(RETRY_PERIOD // 1000 - 60)
    assert world.dispatcher.counts().waiting > 300
    assert world.outbox.states("dead/1300") == ["waiting"]
    world.pass_time(HOUR)
    assert world.outbox.states("dead/1300") == ["abandoned"]
    # Events that were sent as probes are abandoned after one more retry period.
    world.pass_time(RETRY_PERIOD // 1000 + HOUR)
    assert {world.outbox.row(watch).state for watch in watches} == {"abandoned"}
    untried = [watch for watch in watches if world.outbox.row(watch).errors == [HOST_BROKEN]]
    assert len(untried) > 300
    assert world.sent() < 2_300
    assert world.dispatcher.counts() == counts(failed=world.sent(), abandoned=1_500)


def test_an_event_that_superseded_an_old_one_is_not_abandoned(world: World) -> None:
    world.network.answers["dead"] = CallFailed("connect", "dead.example.com cannot be reached")
    world.send(*(f"dead/{number}" for number in range(1_500)))
    world.pass_time(RETRY_PERIOD // 1000 - HOUR)
    world.outbox.row("dead/1499").state = "superseded"
    world.outbox.add("dead/1499", now=world.now)
    world.pass_time(2 * HOUR)
    assert world.outbox.states("dead/1499") == ["superseded", "waiting"]
    assert world.outbox.row("dead/1498").state == "abandoned"
    for number in range(1_500):
        world.dispatcher.cancel(f"dead/{number}")


def test_a_new_event_for_a_host_that_has_long_failed_is_tried_more_than_once(world: World) -> None:
    world.network.answers["dead"] = CallFailed("connect", "dead.example.com cannot be reached")
    for number in range(RETRY_PERIOD // 1000 // HOUR // 6 + 2):
        world.send(f"dead/{number}")
        world.pass_time(6 * HOUR)
    assert world.dispatcher.counts().broken_hosts == 1
    assert world.outbox.states("dead/0") == ["abandoned"]
    world.send("dead/new")
    world.pass_time(12 * HOUR)
    assert world.outbox.states("dead/new") == ["waiting"]
    assert len(world.outbox.row("dead/new").errors) > 1
    for watch in world.outbox.rows:
        world.dispatcher.cancel(watch)


def test_other_successes_at_a_host_use_up_no_attempts(world: World) -> None:
    """A shop fails for some orders only."""
    bad = [f"shop/bad-{number}" for number in range(6)]
    world.network.answers["shop"] = lambda: replying(500 if "bad" in world.network.sent[-1].url else 200)
    for watch in bad:
        world.send(watch, url="https://shop.example.com/bad")
    for number in range(HOUR // 6):
        world.send(f"shop/{number}")
        world.pass_time(6)
    assert {world.outbox.row(watch).state for watch in bad} == {"waiting"}
    # By the regular pauses an hour has nine attempts.
    assert all(world.outbox.row(watch).event.attempts <= 9 for watch in bad)
    assert sum(len(world.outbox.row(watch).errors) - world.outbox.row(watch).event.attempts for watch in bad) > 12
    world.network.answers["shop"] = replying(200)
    world.pass_time(HOUR)
    assert {world.outbox.row(watch).state for watch in bad} == {"delivered"}


def test_a_shop_that_was_down_for_five_seconds_hears_everything_within_five_more(world: World) -> None:
    world.network.answers["shop"] = CallFailed("connect", "nobody listens")
    orders = [f"shop/{number}" for number in range(20)]
    world.send(*orders)
    world.pass_time(5)
    world.network.answers["shop"] = replying(200)
    world.pass_time(5)
    assert world.dispatcher.counts().delivered == len(orders)


# Ends


def test_a_cancelled_watch_gets_no_further_attempt(world: World) -> None:
    world.network.answers["shop"] = replying(500)
    world.send("shop/1")
    world.dispatcher.cancel("shop/1")
    world.pass_time(100 * HOUR)
    assert world.sent() == 1


def test_an_event_in_flight_when_its_watch_is_cancelled_may_arrive(world: World) -> None:
    world.network.answers["shop"] = None
    world.send("shop/1", "shop/1")
    world.outbox.cancel("shop/1")
    world.dispatcher.cancel("shop/1")
    world.network.open[0].callback(replying(200))
    assert world.sent() == 1
    assert world.dispatcher.counts() == counts(delivered=1)


def test_stopping_with_nothing_in_flight_ends_at_once(world: World) -> None:
    world.network.answers["shop"] = replying(500)
    world.send("shop/1")
    assert has_result(world.dispatcher.stop())
    assert world.clock.getDelayedCalls() == []
    world.send("shop/2")
    assert world.sent() == 1
    assert world.clock.getDelayedCalls() == []


def test_stopping_waits_for_deliveries_in_flight(world: World) -> None:
    world.network.answers["shop"] = None
    world.send("shop/1", "shop/1")
    stopped = world.dispatcher.stop()
    assert not has_result(stopped)
    world.clock.advance(4.9)
    world.network.open[0].callback(replying(200))
    assert has_result(stopped)
    assert world.outbox.states("shop/1") == ["delivered", "waiting"]
    assert world.clock.getDelayedCalls() == []


def test_stopping_aborts_slow_deliveries_which_stay_undelivered(world: World) -> None:
    world.network.answers["shop"] = None
    world.send("shop/1", "shop/2")
    stopped = world.dispatcher.stop()
    world.clock.advance(4.9)
    assert not has_result(stopped)
    world.clock.advance(0.1)
    assert has_result(stopped)
    assert world.network.cancelled == 2
    assert [world.outbox.row(watch).errors for watch in ("shop/1", "shop/2")] == [[], []]
    assert world.outbox.states("shop/1") == ["waiting"]
    assert world.clock.getDelayedCalls() == []


def test_stopping_while_queues_come_in(world: World) -> None:
    world.send(*(f"shop{number}/1" for number in range(1_500)))
    result_of(world.dispatcher.stop())
    assert world.clock.getDelayedCalls() == []


# An outbox that fails


def test_an_outbox_that_cannot_be_read_is_retried(world: World, expected_errors: Any) -> None:
    world.outbox.faults = 3
    world.send("shop/1")
    assert world.outbox.asked == ["head shop/1"]
    world.clock.advance(9.9)
    assert len(world.outbox.asked) == 1
    world.pass_time(30)
    assert world.outbox.states("shop/1") == ["delivered"]
    assert len(expected_errors(OSError)) == 1


def test_an_answer_that_cannot_be_recorded_is_kept_and_the_event_not_sent_again(
    world: World, expected_errors: Any
) -> None:
    world.network.answers["shop"] = None
    world.send("shop/1")
    world.outbox.faults = 2
    world.network.open[0].callback(replying(200))
    assert world.outbox.states("shop/1") == ["waiting"]
    world.pass_time(20)
    assert world.outbox.states("shop/1") == ["delivered"]
    assert world.sent() == 1
    assert len(expected_errors(OSError)) == 1


def test_no_delivery_begins_while_the_outbox_fails(world: World, expected_errors: Any) -> None:
    world.outbox.faults = 100_000
    world.send(*(f"shop{number}/1" for number in range(100)))
    asked = len(world.outbox.asked)
    assert asked == 1
    world.pass_time(HOUR)
    # At most 32 deliveries in flight retry once in 10 s.
    assert len(world.outbox.asked) - asked <= 32 * 360 + 32
    assert world.sent() == 0
    world.outbox.faults = 0
    world.pass_time(20)
    assert world.dispatcher.counts() == counts(delivered=100)
    assert len(expected_errors(OSError)) == 1


def test_one_event_that_cannot_be_recorded_does_not_block_others(
    world: World, expected_errors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = MemoryOutbox._do

    def broken_for_one(self: MemoryOutbox, name: str, watch: str, work: Any) -> Any:
        return fail(ValueError("a row that breaks a rule")) if watch == "bad/1" else do(self, name, watch, work)

    monkeypatch.setattr(MemoryOutbox, "_do", broken_for_one)
    world.send("bad/1")
    world.send(*(f"shop{number}/1" for number in range(100)))
    world.pass_time(20)
    assert world.dispatcher.counts().delivered == 100
    result_of_stop = world.dispatcher.stop()
    world.pass_time(5)
    assert has_result(result_of_stop)
    expected_errors(ValueError)


def test_each_failure_of_the_outbox_is_logged(world: World, expected_errors: Any) -> None:
    for watch in ("shop/1", "shop/2"):
        world.outbox.faults = 2
        world.send(watch)
        world.pass_time(60)
        assert world.outbox.states(watch) == ["delivered"]
    assert len(expected_errors(OSError)) == 2


def test_a_stop_does_not_wait_for_an_outbox_that_fails(world: World, expected_errors: Any) -> None:
    world.outbox.faults = 100
    world.send("shop/1")
    stopped = world.dispatcher.stop()
    world.clock.advance(5)
    assert has_result(stopped)
    assert world.clock.getDelayedCalls() == []
    expected_errors(OSError)


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_stop_begins_nothing_with_an_outbox_that_fails_and_an_open_breaker(world: World, is_cut_off: bool) -> None:
    """The probe that a stop cancels must not have its breaker stored, again and again.

    With a small drainSeconds the deadline of the whole stop comes before that of the deliveries, and cuts it off.
    """
    world.network.answers["shop"] = replying(503)
    world.send(*(f"shop/{number}" for number in range(6)))
    assert world.outbox.breakers
    world.network.answers["shop"] = None
    world.pass_time(HOUR)
    assert world.dispatcher.counts().in_flight == 1, "a probe"
    world.outbox.faults, asked = 10**6, len(world.outbox.asked)
    stopped = world.dispatcher.stop()
    if is_cut_off:
        stopped.cancel()
        with pytest.raises(CancelledError):
            result_of(stopped)
    else:
        world.clock.advance(5)
        assert has_result(stopped)
    assert len(world.outbox.asked) == asked
    assert world.clock.getDelayedCalls() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_stop_ends_what_waits_to_store_a_breaker(world: World, expected_errors: Any, when: str) -> None:
    world.network.answers["shop"] = replying(503)
    world.send(*(f"shop/{number}" for number in range(4)))
    world.network.answers["shop"] = None
    world.send("shop/9")
    world.outbox.faults = 10**6
    stopped = world.dispatcher.stop() if when == "after" else None
    world.network.open[0].callback(replying(503))
    stopped = stopped or world.dispatcher.stop()
    world.clock.advance(5)
    assert has_result(stopped)
    assert world.clock.getDelayedCalls() == []
    expected_errors(OSError)


def test_an_error_of_the_dispatcher_itself_is_logged(
    world: World, expected_errors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error outside of the attempt itself was thrown away with the result of the delivery."""
    world.network.answers["shop"] = replying(503)
    with monkeypatch.context() as patch:
        patch.setattr(DeliveryScheduler, "breaker", lambda *_: {}["lost"])
        world.send(*(f"shop/{number}" for number in range(5)))
    (event,) = expected_errors(KeyError)
    assert formatEvent(event).startswith("a delivery ended in an error")
    assert world.dispatcher.counts().in_flight == 0
    world.network.answers["shop"] = replying(200)
    world.pass_time(HOUR)
    assert world.dispatcher.counts().delivered == 5


# The log


def test_no_secret_no_url_and_no_body_is_logged(world: World) -> None:
    world.network.answers["shop"] = CallFailed("connect", "shop.example.com cannot be reached")
    world.send(*(f"shop/{number}" for number in range(20)))
    world.pass_time(200 * HOUR)
    text = repr(world.log) + "\n".join(world.said() + world.said(LogLevel.warn))
    assert world.said(LogLevel.warn)
    for part in (SECRET, "/hook", "key=", "payment."):
        assert part not in text
    assert "secret" not in repr(world.outbox.row("shop/1").event)


class Settable(Clock):
    """A clock whose Unix time can be set, while its seconds run evenly."""

    ahead = 0.0

    def unix_seconds(self) -> float:
        return float(self.seconds()) + self.ahead


def test_the_forward_clock_follows_forward_but_not_back() -> None:
    clock = Settable()
    clock.advance(1000)
    guard = ClockGuard(clock)
    time = ForwardClock(clock, guard)
    assert time.now() == 1_000_000
    clock.ahead = -3600
    guard.confirm()
    clock.advance(1)
    assert time.now() == 1_001_000, "set back: it goes on evenly"
    clock.ahead = 3600
    clock.advance(1)
    assert time.now() == 1_002_000, "in doubt: it goes on evenly"
    guard.confirm()
    assert time.now() == 4_602_000, "set forward: it follows"
    clock.ahead = 0
    clock.advance(1)
    assert time.now() == 4_603_000


@pytest.mark.parametrize("days", [2, 4])
def test_a_clock_that_is_days_ahead_for_two_seconds_abandons_and_delays_no_event(
    log: list[LogEvent], days: int
) -> None:
    clock = Settable()
    clock.advance(START)
    guard = ClockGuard(clock)
    world = world_of(MemoryOutbox(), clock, log, guard=guard)
    world.network.answers["shop"] = CallFailed("connect", "shop.example.com cannot be reached")
    world.send(*(f"shop/{number}" for number in range(40)))
    world.pass_time(60)
    clock.ahead = days * 24 * HOUR
    world.dispatcher.enqueue([world.outbox.add("other/1", now=milliseconds(clock))])
    assert world.outbox.states("other/1") == ["delivered"]
    world.dispatcher.enqueue([world.outbox.add("shop/40", now=milliseconds(clock))])
    world.pass_time(2)
    clock.ahead = 0.0
    guard.check()
    world.pass_time(STEADY_SECONDS)
    guard.check()
    assert guard.is_trusted()
    world.pass_time(60)
    assert world.dispatcher.counts().abandoned == 0
    failed = [row for rows in world.outbox.rows.values() for row in rows if row.errors]
    assert all(row.due < world.now + 1000 * HOUR for row in failed)
    world.network.answers.clear()
    world.pass_time(300)
    assert world.dispatcher.counts().delivered == 42


# Several nodes, of which one leads


def test_a_leader_whose_computer_is_an_hour_ahead_goes_by_the_time_of_the_database(log: list[LogEvent]) -> None:
    clock = Settable()
    clock.advance(START)
    clock.ahead = HOUR
    database = DatabaseClock(clock)
    world = world_of(MemoryOutbox(), clock, log, database_clock=database)
    # The lease tells the time only after the dispatcher was made.
    database.set_unix_time(1000 * START, clock.seconds())
    world.dispatcher.restore([])
    world.network.answers["shop"] = replying(503)
    world.send(*(f"shop/{number}" for number in range(5)))
    world.pass_time(1)
    (kept,) = world.outbox.breakers.values()
    times = {"opened": kept.opened_at, "probe": kept.probe_at}
    times |= {watch: queue.due for watch in world.outbox.rows if (queue := world.outbox.queue(watch)) is not None}
    assert len(times) == 7
    assert all(0 <= at - 1000 * START < 60_000 for at in times.values()), times


@pytest.mark.parametrize("probe_in", [0, 60])
def test_a_leader_abandons_no_old_event_by_a_database_that_is_days_ahead(log: list[LogEvent], probe_in: int) -> None:
    """Neither without an attempt, while the receiver waits for its probe, nor after one."""
    clock = Clock()
    clock.advance(START)
    database = DatabaseClock(clock)
    world = world_of(MemoryOutbox(), clock, log, database_clock=database)
    ahead = START + 4 * 24 * HOUR
    database.set_unix_time(1000 * ahead, clock.seconds())
    world.network.answers["shop"] = replying(503)
    world.dispatcher.restore([BreakerRow("default", "shop", 1000 * START, 1000 * (ahead + probe_in), 1)])
    world.send("shop/1")
    assert world.sent() == (0 if probe_in else 1)
    assert world.outbox.states("shop/1") == ["waiting"]
    database.set_unix_time(1000 * START, clock.seconds())
    world.pass_time(60)
    assert world.outbox.states("shop/1") == ["waiting"]
    assert world.dispatcher.counts().abandoned == 0
    world.dispatcher.cancel("shop/1")


def test_a_new_leader_goes_on_with_the_circuit_breakers_of_the_last_one(world: World, log: list[LogEvent]) -> None:
    world.network.answers["shop"] = replying(503)
    world.send(*(f"shop/{number}" for number in range(5)))
    assert world.dispatcher.counts().broken_hosts == 1
    world.pass_time(4)
    (kept,) = world.outbox.breakers.values()
    assert (kept.merchant, kept.receiver, kept.opened_at) == ("default", "shop", 1000 * START)
    assert kept.probes > 0
    queues = [queue for watch in world.outbox.rows if (queue := world.outbox.queue(watch)) is not None]

    following = world_of(world.outbox, world.clock, log)
    world.dispatcher.forget()
    following.dispatcher.restore([kept])
    following.dispatcher.enqueue(queues)
    assert following.dispatcher.counts().broken_hosts == 1
    assert following.sent() == 0
    world.pass_time(kept.probe_at / 1000 - world.clock.seconds() - 1)
    assert following.sent() == 0
    world.pass_time(1)
    assert following.sent() == 5
    assert world.outbox.breakers == {}
    assert following.dispatcher.counts() == counts(delivered=5)


def test_a_node_that_leads_no_longer_forgets_what_it_had_to_send(world: World) -> None:
    world.network.answers["slow"] = None
    world.network.answers["shop"] = replying(500)
    world.send("slow/1", "shop/1")
    world.dispatcher.forget()
    assert world.network.cancelled == 1
    assert world.dispatcher.counts() == counts(failed=1)
    world.pass_time(HOUR)
    assert world.sent() == 2
    world.network.answers.clear()
    world.send("shop/2")
    assert world.outbox.states("shop/2") == ["delivered"]


def test_nothing_is_sent_after_another_node_has_begun_to_lead(log: list[LogEvent]) -> None:
    clock, given = Clock(), Given(1)
    clock.advance(START)

    class Stopping(MemoryOutbox):
        """The node is stopped while it reads what it has to send."""

        def head(self, watch: str, _term: int = 0) -> Any:
            given.term = None
            return super().head(watch, _term)

    world = world_of(Stopping(), clock, log, leadership=given)
    world.send("shop/1")
    assert world.sent() == 0
    given.term = None
    world.send("shop/2")
    assert world.sent() == 0
    assert world.outbox.asked == ["head shop/1"]


def test_a_delivery_that_another_leader_has_recorded_is_not_recorded_again(log: list[LogEvent]) -> None:
    clock, given = Clock(), Given(1)
    clock.advance(START)

    class Fenced(MemoryOutbox):
        """Another node leads since the event was read."""

        def delivered(self, event: Any, now: int, status: int | None = None) -> Any:
            return fail(NotLeader(event.term or 1))

    world = world_of(Fenced(), clock, log, leadership=given)
    world.send("shop/1")
    assert (world.sent(), given.losses) == (1, 1)
    assert world.dispatcher.counts() == counts()
    world.pass_time(HOUR)
    assert world.sent() == 1
    assert world.said(LogLevel.critical) == []
