"""Routes on Klein: answers, errors, limits, deadlines, and clients that go away."""

import sys
from collections.abc import Callable
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest
from klein.resource import KleinResource
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock

from svcd.web import api as svcd_web_api
from svcd.web.api import Router
from svcd.web.field_types import Custom, Text
from svcd.web.rate_limits import Rate
from svcd.web.responses import HttpError, Renderable, Response, tip_of
from svcd.web.routes import Field, Guard, Route
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi
from tests.web.conftest import Refused
from tests.web.echoing import Bound
from tests.web.wire import SEND_BUFFER, Wire
from tests.web.wire import Response as Received

Serve = Callable[..., Site]


def closed(routes: "Routes", _request: Any) -> None:
    if routes.closed:
        raise HttpError(503, "it is closed")


def locked(routes: "Routes", _request: Any) -> None:
    if routes.locked:
        raise HttpError(401, "it is locked", ((b"WWW-Authenticate", b"Bearer"),))


def no_letters(raw: str) -> str:
    if raw.isalpha():
        raise ValueError("must not be letters")
    return raw


class Routes:
    """Answers as the test wants it."""

    tip = tip_of(7, b"\x0a" * 32)

    def __init__(self) -> None:
        self.closed = self.locked = False
        self.answer: Any = {"a": 1}
        self.later: Deferred[Any] = Deferred()
        self.log: list[str] = []

    def _give(self) -> Renderable:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    async def _wait(self) -> Renderable:
        self.log.append("begun")
        try:
            await self.later
        except CancelledError:
            self.log.append("cancelled")
            raise
        self.log.append("done")
        return self._give()

    @Route("GET", "/rpc/now", "at once", bucket="read", answers={})
    def now(self) -> Renderable:
        return self._give()

    @Route("GET", "/rpc/soon", "at once, from a coroutine", bucket="read", answers={})
    async def soon(self) -> Renderable:
        return self._give()

    @Route("GET", "/rpc/chain", "shows the chain", bucket="read", answers={}, shows_chain=True)
    def chain(self) -> Renderable:
        self.log.append("asked")
        return self._give()

    @Route("GET", "/rpc/later", "reads", bucket="read", answers={})
    async def read_later(self) -> Renderable:
        return await self._wait()

    @Route("POST", "/rpc/later", "writes", bucket="broadcast", answers={}, seconds=5)
    async def write_later(self) -> Renderable:
        return await self._wait()

    @Route("POST", "/rpc/dear", "costs much", bucket="broadcast", answers={}, cost=4)
    def dear(self) -> Renderable:
        return {}

    @Route("POST", "/rpc/charged", "costs more afterwards", bucket="broadcast", answers={}, with_charge=True)
    async def charged(self, charge: Callable[[float], None]) -> Renderable:
        try:
            return await self._wait()
        finally:
            charge(4)

    @Route(
        "POST",
        "/rpc/strict",
        "mistakes cost",
        bucket="broadcast",
        answers={},
        body_fields=(Field("id", Custom({}, no_letters), "an id"),),
        malformed_tokens=20,
        on_flood=lambda routes, client: routes.log.append(client),
    )
    async def strict(self, id: str) -> Renderable:  # noqa: A002
        if id == "7":
            raise HttpError(400, "not this one", tokens=5)
        return await self._wait()

    @Route("GET", "/rpc/large", "costs by size", bucket="read", answers={}, by_size=500)
    async def large(self) -> Renderable:
        return await self._wait()

    @Route("GET", "/rpc/large/now", "costs by size", bucket="read", answers={}, by_size=500)
    def large_now(self) -> Renderable:
        return self._give()

    @Route(
        "POST",
        "/rpc/guarded/{id}",
        "guarded",
        bucket="read",
        answers={},
        path_fields=(Field("id", Custom({}, no_letters), "an id"),),
        guards=(Guard(401, "locked", locked, "bearer"), Guard(503, "closed", closed)),
    )
    def guarded(self, id: str) -> Renderable:  # noqa: A002
        raise HttpError(404, f"there is no {id}")


def ask(site: Site, line: bytes, body: bytes = b"") -> Received:
    head = b"%b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (line, len(body))
    return Wire(site).send(head + body).response(head=line.startswith(b"HEAD"))


# Answers


NAMED = f"7:{'0a' * 32}"


@pytest.mark.parametrize(
    ("answer", "status"),
    [(Response(b"{}", tip=Routes.tip), 200), (HttpError(404, "there is no such block", tip=Routes.tip), 404)],
)
def test_an_answer_names_the_tip_on_which_it_rests(serve: Serve, answer: Any, status: int) -> None:
    routes = Routes()
    routes.answer = answer
    for line in (b"GET /rpc/chain", b"HEAD /rpc/chain", b"GET /rpc/chain?minHeight=7"):
        received = ask(serve(routes), line)
        assert (received.status, received.headers["svc-tip"]) == (status, NAMED)
        assert "Svc-Tip" in received.headers["access-control-expose-headers"]


def test_answers_apart_from_the_chain_have_no_tip(serve: Serve) -> None:
    for line in (b"GET /rpc/now", b"GET /rpc/chain?minHeight=-1", b"POST /rpc/chain", b"GET /rpc/nothing"):
        assert "svc-tip" not in ask(serve(Routes()), line).headers


def test_a_chain_that_is_too_low_is_not_asked(serve: Serve) -> None:
    routes = Routes()
    received = ask(serve(routes), b"GET /rpc/chain?minHeight=8")
    assert (received.status, received.headers["retry-after"], received.headers["svc-tip"]) == (503, "1", NAMED)
    sentence = "the chain of this node ends at height 7, below minHeight 8; try again in 1 s, or ask another node"
    assert (received.error, routes.log) == (sentence, [])


LOWER = tip_of(6, bytes(32))


@pytest.mark.parametrize("answer", [Response(b"{}", tip=LOWER), HttpError(404, "there is no such block", tip=LOWER)])
def test_a_chain_that_has_become_lower_is_too_low(serve: Serve, answer: Any) -> None:
    # A branch with more work can have fewer blocks.
    routes = Routes()
    routes.answer = answer
    received = ask(serve(routes), b"GET /rpc/chain?minHeight=7")
    assert (received.status, received.headers["svc-tip"], routes.log) == (503, f"6:{'00' * 32}", ["asked"])
    assert received.error.startswith("the chain of this node ends at height 6, below minHeight 7; ")


def test_a_route_about_the_chain_needs_an_owner_with_a_tip(make_api: Callable[..., KleinApi]) -> None:
    class Tipless:
        @Route("GET", "/rpc/chain", "shows the chain", bucket="read", answers={}, shows_chain=True)
        def chain(self) -> Renderable:
            return {}

    with pytest.raises(TypeError, match="/rpc/chain shows the chain, and its owner has no tip"):
        make_api(Tipless())


@pytest.mark.parametrize("path", [b"/rpc/now", b"/rpc/soon"])
def test_object_becomes_json(serve: Serve, path: bytes) -> None:
    answer = ask(serve(Routes()), b"GET " + path)

    assert answer.status == 200
    assert answer.body == b'{"ok":true,"a":1}'
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["access-control-allow-origin"] == "*"


def test_status_beside_the_object(serve: Serve) -> None:
    routes = Routes()
    routes.answer = (201, {"id": "x"})

    answer = ask(serve(routes), b"GET /rpc/soon")

    assert (answer.status, answer.json) == (201, {"ok": True, "id": "x"})


def test_rendered_body_is_sent_as_it_is(serve: Serve) -> None:
    routes = Routes()
    routes.answer = Response(b"up 1\n", content_type=b"text/plain; version=0.0.4", headers=((b"X-A", b"b"),))

    answer = ask(serve(routes), b"GET /rpc/now")

    assert answer.body == b"up 1\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    assert answer.headers["x-a"] == "b"


@pytest.mark.parametrize("path", [b"/rpc/now", b"/rpc/soon", b"/rpc/nowhere", b"/rpc/dear"])
def test_head_is_get_without_the_body(serve: Serve, path: bytes) -> None:
    site = serve(Routes())

    got, headed = ask(site, b"GET " + path), ask(site, b"HEAD " + path)

    assert (headed.status, headed.headers) == (got.status, got.headers)


# Errors


@pytest.mark.parametrize("path", [b"/rpc/now", b"/rpc/soon"])
@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [(HttpError(404, "no such block"), 404, "no such block"), (Refused("not so"), 400, "not so")],
)
def test_expected_exceptions_are_told(serve: Serve, path: bytes, error: Exception, status: int, sentence: str) -> None:
    routes = Routes()
    routes.answer = error

    answer = ask(serve(routes), b"GET " + path)

    assert (answer.status, answer.error) == (status, sentence)
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [b"/rpc/now", b"/rpc/soon"])
@pytest.mark.parametrize("wrong", [ZeroDivisionError("secret"), {"a": object()}, {"a": float("nan")}, None])
def test_unexpected_exceptions_are_logged_under_an_id(
    serve: Serve, expected_errors: Any, path: bytes, wrong: Any
) -> None:
    routes = Routes()
    routes.answer = wrong

    answer = ask(serve(routes), b"GET " + path)

    assert answer.status == 500
    assert answer.error == "the node failed to answer; its log has the details under a1"
    (event,) = expected_errors()
    assert event["error_id"] == "a1"
    assert event["log_failure"].getTraceback()


@pytest.mark.parametrize(
    "path", [b"/rpc", b"/rpc/", b"/rpc/now/", b"/rpc//now", b"//rpc/now", b"/rpc/Now", b"/rpc/now/x", b"/rpc/./now"]
)
def test_unknown_path(serve: Serve, path: bytes) -> None:
    answer = ask(serve(Routes()), b"GET " + path)

    assert answer.status == 404
    assert answer.error == "there is no such path here; paths are case-sensitive and have no slash at the end"


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        (b"POST /rpc/now", "GET, HEAD, OPTIONS"),
        (b"GET /rpc/dear", "OPTIONS, POST"),
        (b"PUT /rpc/later", "GET, HEAD, OPTIONS, POST"),
        (b"TRACE /rpc/now", "GET, HEAD, OPTIONS"),
        (b"BREW /rpc/now", "GET, HEAD, OPTIONS"),
    ],
)
def test_unknown_method(serve: Serve, line: bytes, allowed: str) -> None:
    answer = ask(serve(Routes()), line)

    assert answer.status == 405
    assert answer.headers["allow"] == allowed


def test_several_errors_503_before_401_before_400_before_404(serve: Serve) -> None:
    routes = Routes()
    routes.closed = routes.locked = True
    site = serve(routes)
    bad = b"POST /rpc/guarded/letters"

    closed = ask(site, bad, b"{")
    routes.closed = False
    locked = ask(site, bad, b"{")
    routes.locked = False

    assert [closed.status, locked.status, ask(site, bad).status] == [503, 401, 400]
    assert locked.headers["www-authenticate"] == "Bearer"
    assert ask(site, b"POST /rpc/guarded/1", b"{").status == 400
    assert ask(site, b"POST /rpc/guarded/1").status == 404


# Rates


def test_each_route_draws_its_cost_from_its_bucket(serve: Serve, clock: Clock) -> None:
    site = serve(Routes(), rates={"read": Rate(1, 2), "broadcast": Rate(0.5, 4)})

    assert [ask(site, b"GET /rpc/now").status for _ in range(3)] == [200, 200, 429]
    assert [ask(site, b"POST /rpc/dear").status for _ in range(2)] == [200, 429]
    refused = ask(site, b"POST /rpc/dear")
    assert refused.headers["retry-after"] == "8"
    assert refused.error == "too many requests; try again in 8 s"
    clock.advance(1)
    assert ask(site, b"GET /rpc/now").status == 200


def test_retry_after_is_one_second_at_least(serve: Serve) -> None:
    site = serve(Routes(), rates={"read": Rate(50, 1), "broadcast": Rate(0, 1)})
    ask(site, b"GET /rpc/now")

    assert ask(site, b"GET /rpc/now").headers["retry-after"] == "1"


@pytest.fixture
def without_klein(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, whatever reaches Klein fails the test."""

    def klein_is_asked(_resource: Any, request: Any) -> bytes:
        raise AssertionError(f"Klein is asked for {request.uri}")

    return lambda: monkeypatch.setattr(KleinResource, "render", klein_is_asked)


@pytest.mark.parametrize(
    ("line", "cost"),
    [
        (b"GET /rpc/now", 1),
        (b"HEAD /rpc/now", 1),
        (b"GET /rpc/now?a=b", 1),
        (b"GET /rpc/%6eow", 1),
        (b"POST /rpc/guarded/1", 1),
        (b"POST /rpc/guarded/abc", 1),
        (b"POST /rpc/guarded/%C3%A9", 1),
        (b"POST /rpc/dear", 4),
    ],
)
def test_an_empty_bucket_is_refused_before_klein_is_called(
    serve: Serve, clock: Clock, without_klein: Callable[[], None], line: bytes, cost: int
) -> None:
    site = serve(Routes(), rates={"read": Rate(0.5, 1), "broadcast": Rate(0.5, 4)})
    ask(site, b"GET /rpc/now")
    ask(site, b"POST /rpc/dear")
    assert ask(site, line).status == 429

    without_klein()
    refused = ask(site, line)

    assert (refused.status, refused.headers["retry-after"]) == (429, str(2 * cost))
    assert refused.headers["access-control-allow-origin"] == "*"
    assert refused.headers["cache-control"] == "no-store"
    assert line.startswith(b"HEAD") or refused.error == f"too many requests; try again in {2 * cost} s"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /rpc/none", 404),
        (b"GET /rpc/Now", 404),
        (b"GET /rpc", 404),
        (b"GET /rpc//now", 404),
        (b"GET /rpc/now/", 404),
        (b"POST /rpc/guarded", 404),
        (b"POST /rpc/now", 405),
        (b"DELETE /rpc/guarded/1", 405),
    ],
)
def test_unknown_paths_are_charged_as_reads(
    serve: Serve, line: bytes, status: int, without_klein: Callable[[], None]
) -> None:
    site = serve(Routes(), rates={"read": Rate(1, 2), "broadcast": Rate(0.5, 1)})

    assert [ask(site, line).status for _ in range(3)] == [status, status, 429]
    without_klein()
    refused = ask(site, line)

    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert ask(site, b"GET /rpc/now").status == 429


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"\xffGET /rpc/now", 400),
        (b"GET /rpc/%FF", 400),
        (b"GET /rpc/guarded/a%2Fb", 400),
        (b"OPTIONS /rpc/now", 204),
    ],
)
def test_malformed_requests_are_refused_with_any_bucket(serve: Serve, line: bytes, status: int) -> None:
    site = serve(Routes(), rates={"read": Rate(0.5, 1), "broadcast": Rate(0.5, 1)})
    before = ask(site, line)
    ask(site, b"GET /rpc/now")

    after = ask(site, line)

    assert (before.status, after.status) == (status, status)
    assert (after.headers, after.body) == (before.headers, before.body)
    assert ask(site, b"POST /rpc/dear", b"x" * 20_000).status == 413


def test_a_refusal_takes_clearly_less_than_an_answer(serve_of: Serve) -> None:
    """Counted in calls of Python functions, which are the same however busy the machine is."""
    rates = {"read": Rate(1, 3), "broadcast": Rate(1, 1)}

    def calls(site: Site, status: int) -> int:
        wire, counted = Wire(site), list[str]()
        sys.setprofile(lambda _frame, event, _argument: counted.append(event) if event == "call" else None)
        wire.send(b"GET /rpc/now HTTP/1.1\r\nHost: h\r\n\r\n")
        sys.setprofile(None)
        assert wire.response().status == status
        return len(counted)

    # The first of each kind fills what is remembered.
    site = serve_of(False, Routes(), rates=rates)
    answers, refusals = [calls(site, 200) for _ in range(3)], [calls(site, 429) for _ in range(2)]
    assert refusals[-1] < 0.8 * answers[-1], (answers, refusals)
    site = serve_of(True, Routes(), rates=rates)
    answers, refusals = [calls(site, 200) for _ in range(3)], [calls(site, 429) for _ in range(2)]
    assert max(answers[-1], refusals[-1]) < 100, "on the fast path neither takes long"


# Costs by size


@pytest.fixture
def small_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svcd_web_api, "BYTES_PER_TOKEN", 100)


@pytest.mark.usefixtures("small_tokens")
@pytest.mark.parametrize(("size", "wait"), [(10, None), (100, None), (500, None), (700, 2), (1_000, 5), (9_000, 7)])
def test_large_answers_are_charged_before_the_next(serve: Serve, clock: Clock, size: int, wait: int | None) -> None:
    routes = Routes()
    routes.answer = Response(b"x" * size)
    site = serve(routes, rates={"read": Rate(1, 6), "broadcast": Rate(1, 1)})

    assert ask(site, b"GET /rpc/large/now").status == 200
    following = ask(site, b"GET /rpc/now")

    assert following.headers.get("retry-after") == (None if wait is None else str(wait))


@pytest.mark.usefixtures("small_tokens")
def test_many_large_answers_at_once_are_paid_for_afterwards(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    routes.answer = Response(b"x" * 300)
    site = serve(routes, rates={"read": Rate(1, 6), "broadcast": Rate(1, 1)})
    wires = [Wire(site).send(b"GET /rpc/large HTTP/1.1\r\nHost: h\r\n\r\n") for _ in range(3)]

    routes.later.callback(None)

    assert [wire.response().status for wire in wires] == [200] * 3
    assert ask(site, b"GET /rpc/now").headers["retry-after"] == "4"


@pytest.mark.usefixtures("small_tokens")
def test_a_client_that_disconnects_is_charged_for_the_largest_answer(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    site = serve(routes, rates={"read": Rate(1, 3), "broadcast": Rate(1, 1)})
    Wire(site).send(b"GET /rpc/large HTTP/1.1\r\nHost: h\r\n\r\n").close()

    assert routes.log == ["begun", "cancelled"]
    assert ask(site, b"GET /rpc/now").headers["retry-after"] == "3"


@pytest.mark.usefixtures("small_tokens")
def test_a_read_that_takes_too_long_is_paid_for_like_the_largest_answer(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    site = serve(routes, rates={"read": Rate(0.1, 3), "broadcast": Rate(1, 1)})
    wire = Wire(site).send(b"GET /rpc/large HTTP/1.1\r\nHost: h\r\n\r\n")

    clock.advance(25)

    assert wire.response().status == 503
    assert ask(site, b"GET /rpc/now").headers["retry-after"] == "20"


# Work that only some requests cause


@pytest.mark.parametrize("outcome", ["success", "refusal", "disconnection"])
def test_a_route_charges_for_work_whatever_becomes_of_the_request(serve: Serve, outcome: str) -> None:
    routes = Routes()
    routes.answer = HttpError(400, "not this one") if outcome == "refusal" else {}
    site = serve(routes, rates={"read": Rate(1, 1), "broadcast": Rate(1, 6)})
    wire = Wire(site).send(b"POST /rpc/charged HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    if outcome == "disconnection":
        wire.close()
    routes.later.callback(None)

    # The request cost one token, its work four; another route costs four.
    assert ask(site, b"POST /rpc/dear").headers["retry-after"] == "3"


# Mistakes that cost


def post_strict(site: Site, body: bytes) -> int:
    wire = Wire(site).send(b"POST /rpc/strict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    status = wire.response().status
    wire.close()
    return status


@pytest.mark.parametrize(
    ("body", "tokens"),
    [(b"", 21), (b"[]", 21), (b"1.5", 21), (b'{"id":"x"}', 21), (b'{"other":1}', 21), (b'{"id":"7"}', 6)],
)
def test_a_malformed_request_costs_what_its_route_says(serve: Serve, clock: Clock, body: bytes, tokens: int) -> None:
    site = serve(Routes(), rates={"read": Rate(0, 1), "broadcast": Rate(1, 100)})
    sent = 0
    while post_strict(site, body) == 400:
        sent += 1
    assert sent == -(-100 // tokens)


def test_a_mistake_of_ours_costs_nothing(serve: Serve, expected_errors: Any) -> None:
    routes = Routes()
    routes.answer = RuntimeError("ours")
    routes.later.callback(None)
    site = serve(routes, rates={"read": Rate(0, 1), "broadcast": Rate(1, 100)})
    assert [post_strict(site, b'{"id":"1"}') for _ in range(20)] == [500] * 20
    assert len(expected_errors(RuntimeError)) == 20


def test_a_room_is_told_of_a_client_that_goes_on(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    site = serve(routes, rates={"read": Rate(0, 1), "broadcast": Rate(10, 100)})
    for _ in range(65):
        while post_strict(site, b"") == 400:
            pass
        assert (routes.log == []) is (clock.seconds() < 60)
        clock.advance(1)
    assert set(routes.log) == {"203.0.113.9"}


# Deadlines


def test_read_that_takes_too_long_is_given_up(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"GET /rpc/later HTTP/1.1\r\nHost: h\r\n\r\n")

    clock.advance(24.9)
    assert not wire.received
    clock.advance(0.2)

    assert wire.response().status == 503
    assert wire.response().error == "the node did not answer within 25 seconds; try again later"
    assert routes.log == ["begun", "cancelled"]
    assert wire.open


def test_write_that_takes_too_long_goes_on(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"POST /rpc/later HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")

    clock.advance(5.1)

    assert wire.response().status == 503
    assert "within 5 seconds; it continues the request" in wire.response().error
    routes.later.callback(None)
    assert routes.log == ["begun", "done"]
    assert len(wire.responses()) == 1


@pytest.mark.parametrize("answer_seconds", [5, 1], ids=["equal", "shorter"])
def test_refusal_of_the_route_comes_before_the_end_of_the_connection(
    serve: Serve, clock: Clock, answer_seconds: float
) -> None:
    wire = Wire(serve(Routes(), answer_seconds=answer_seconds))
    wire.send(b"POST /rpc/later HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")

    clock.advance(5)

    assert wire.response().status == 503
    assert wire.open


def test_time_to_take_an_answer_starts_with_the_answer(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes, answer_seconds=10), reads=False).send(b"GET /rpc/later HTTP/1.1\r\nHost: h\r\n\r\n")
    routes.answer = {"a": "x" * 2 * SEND_BUFFER}
    clock.advance(20)
    routes.later.callback(None)

    clock.advance(9.9)
    assert wire.open
    clock.advance(0.2)
    assert not wire.open


def test_answer_in_time_leaves_no_timer(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"GET /rpc/later HTTP/1.1\r\nHost: h\r\n\r\n")

    routes.later.callback(None)

    assert wire.response().json == {"ok": True, "a": 1}
    assert len(clock.getDelayedCalls()) == 1, "that of the connection"


def test_read_that_somebody_else_cancels_is_told(serve: Serve) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"GET /rpc/later HTTP/1.1\r\nHost: h\r\n\r\n")

    routes.later.cancel()

    assert wire.response().status == 503


# Clients that go away


def test_read_of_a_client_that_goes_away_is_cancelled(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"GET /rpc/later HTTP/1.1\r\nHost: h\r\n\r\n")

    wire.close()

    assert routes.log == ["begun", "cancelled"]
    assert clock.getDelayedCalls() == []


def test_write_of_a_client_that_goes_away_goes_on(serve: Serve, clock: Clock) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"POST /rpc/later HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")

    wire.close()
    routes.later.callback(None)

    assert routes.log == ["begun", "done"]
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize("error", [HttpError(404, "nothing"), Refused("no")])
def test_refusal_that_nobody_waits_for_is_dropped(serve: Serve, error: Exception) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"POST /rpc/later HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    wire.close()

    routes.later.errback(error)

    assert routes.log == ["begun"]


def test_failure_that_nobody_waits_for_is_logged(serve: Serve, expected_errors: Any) -> None:
    routes = Routes()
    wire = Wire(serve(routes)).send(b"POST /rpc/later HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
    wire.close()

    routes.later.errback(ZeroDivisionError())

    expected_errors(ZeroDivisionError)


# Binding


def test_route_outside_the_mount_is_refused(make_api: Callable[..., KleinApi]) -> None:
    with pytest.raises(ValueError, match="/rpc/now is not below /p2p"):
        make_api(Routes(), mount="/p2p")


def test_a_rate_for_what_has_no_route_is_asked_for(make_api: Callable[..., KleinApi]) -> None:
    with pytest.raises(ValueError, match="there is no rate named 'read'"):
        make_api(rates={"broadcast": Rate(1, 1)})


def test_route_that_draws_from_no_known_bucket_is_refused(make_api: Callable[..., KleinApi]) -> None:
    with pytest.raises(ValueError, match="/rpc/later: there is no rate named 'broadcast'"):
        make_api(Routes(), rates={"read": Rate(1, 1)})


def test_route_whose_method_lacks_a_field_is_refused(make_api: Callable[..., KleinApi]) -> None:
    class Forgetful:
        @Route("GET", "/rpc/a/{b}", "a", bucket="read", answers={}, path_fields=(Field("b", Text(), "b"),))
        def a(self) -> Renderable:
            return {}

    with pytest.raises(TypeError, match="unexpected keyword argument 'b'"):
        make_api(Forgetful())


def test_routes_at_the_root_that_pages_of_other_origins_may_not_read(
    make_api: Callable[..., KleinApi], make_site: Callable[..., Site]
) -> None:
    class Operator:
        @Route("GET", "/health", "is it alive", bucket="read", answers={})
        def health(self) -> Renderable:
            return {}

    site = make_site(make_api(Operator(), mount=""))

    assert ask(site, b"GET /health").json == {"ok": True}
    assert ask(site, b"GET /").status == 404
    for method in (b"OPTIONS", b"PUT"):
        assert ask(site, method + b" /health").headers["allow"] == "GET, HEAD"


# Finding a route by its method and the segments of its path

PATHS = ("/", "/a", "/a/{x}", "/a/{x}/b", "/a/now", "/a/now/{y}/c", "/{z}/d")


def served(path: str, method: str = "GET") -> Any:
    names = [segment[1:-1] for segment in path.split("/") if segment.startswith("{")]
    fields = tuple(Field(name, Text(), "") for name in names)
    route = Route(method, path, "", bucket="read", answers={}, path_fields=fields)
    return Bound(route, lambda _request, _values: Response(b""))


@pytest.fixture
def router() -> Router:
    router = Router()
    for path in PATHS:
        router.add(served(path))
    router.add(served("/a", "POST"))
    return router


@pytest.mark.parametrize(
    ("asked", "path", "values"),
    [
        ("/", "/", {}),
        ("/a", "/a", {}),
        ("/a/1", "/a/{x}", {"x": "1"}),
        ("/a/1/b", "/a/{x}/b", {"x": "1"}),
        ("/a/now", "/a/now", {}),
        ("/a/now/b", "/a/{x}/b", {"x": "now"}),
        ("/a/now/2/c", "/a/now/{y}/c", {"y": "2"}),
        ("/a/d", "/a/{x}", {"x": "d"}),
        ("/b/d", "/{z}/d", {"z": "b"}),
    ],
)
def test_literal_paths_go_before_placeholders(router: Router, asked: str, path: str, values: dict[str, str]) -> None:
    found = router.find(b"GET", asked.split("/")[1:])
    assert found is not None
    assert (found[0].route.path, found[1]) == (path, values)


@pytest.mark.parametrize("asked", ["/b", "/a/", "/a//b", "/a/1/b/c", "/a/now/2", "//d", "/A"])
def test_paths_without_a_route(router: Router, asked: str) -> None:
    assert router.find(b"GET", asked.split("/")[1:]) is None


def test_both_ways_of_finding_a_route_give_the_same(router: Router) -> None:
    for count in range(1, 5):
        for segments in product(["", "a", "b", "c", "d", "now", "1", ".."], repeat=count):
            for method in (b"GET", b"POST"):
                assert router.find_plain(method, "/" + "/".join(segments)) == router.find(method, segments)


class Shadowed:
    """A literal path with another method than the placeholder in its place."""

    @Route("GET", "/rpc/things/{name}", "", bucket="read", answers={}, path_fields=(Field("name", Text(), ""),))
    def show(self, name: str) -> Any:
        return {"name": name}

    @Route("POST", "/rpc/things/test", "", bucket="read", answers={})
    def test(self) -> Any:
        return {"tested": True}


def test_a_literal_path_does_not_answer_the_methods_of_a_placeholder(serve: Callable[..., Site]) -> None:
    site = serve(Shadowed())
    assert ask(site, b"GET /rpc/things/other").json == {"ok": True, "name": "other"}
    assert ask(site, b"POST /rpc/things/test").json == {"ok": True, "tested": True}
    for method in (b"GET", b"HEAD", b"PUT"):
        refused = ask(site, method + b" /rpc/things/test")
        assert (refused.status, refused.headers["allow"]) == (405, "OPTIONS, POST")
    assert ask(site, b"POST /rpc/things/other").headers["allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("value", ["a\nb", "<name>", "a|b", "%2F", "é", "..", "a;b", "a b"])
def test_a_route_gets_what_stands_in_its_path_whatever_that_means_elsewhere(
    serve: Callable[..., Site], value: str
) -> None:
    received = ask(serve(Shadowed()), b"GET /rpc/things/" + quote(value, safe="").encode("ascii"))
    assert received.json == {"ok": True, "name": value}


def test_a_route_answers_its_own_method(router: Router) -> None:
    found = router.find(b"POST", ["a"])
    assert found is not None
    assert found[0].route.method == "POST"
    assert router.find(b"POST", ["a", "1"]) is None
    assert router.find(b"HEAD", ["a"]) is None


def test_no_two_routes_have_the_same_path() -> None:
    router = Router()
    router.add(served("/a/{x}"))
    with pytest.raises(ValueError, match=r"/a/\{y\}: /a/\{x\} is the same path"):
        router.add(served("/a/{y}"))
