"""The fast path and the slow path give the same bytes, and leave the same things behind."""

import gc
import re
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.web import fast_path
from svcd.web.api import SiteContext
from svcd.web.connections import BodyCaps, SiteLimits, UnreadBudget
from svcd.web.fast_path import MAX_BYTES
from svcd.web.field_types import Custom, Text
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from svcd.web.request import IncomingRequest
from svcd.web.resources import CORS_HEADERS, Branch
from svcd.web.responses import HttpError, Renderable, Response, Tip, tip_of
from svcd.web.routes import Field, Guard, Route, require_bearer
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi
from tests.net.certificates import sign
from tests.web.conftest import Refused, parse_json
from tests.web.wire import SEND_BUFFER, Recording, SecureWire, Wire, behind_haproxy

_DATE = re.compile(rb"Date: [^\r]*")
CERTIFICATE = sign("localhost", by=None)
GET = b"GET /rpc/now HTTP/1.1\r\nHost: h\r\n\r\n"


def check(_room: object, request: IncomingRequest) -> None:
    require_bearer(request, "secret")


def whole(text: str) -> int:
    if text.isdigit():
        return int(text)
    raise ValueError("must be a whole number")


TIP = tip_of(7, bytes(32))
NAME = Field("name", Text(), "a name")


@define
class Routes:
    """Routes of every kind; ``waiting`` are those that wait for the test."""

    waiting: list["Deferred[None]"] = field(factory=list)
    cancelled: int = 0
    tip: Tip = TIP

    def _gone(self, _: object) -> None:
        self.cancelled += 1

    @Route("GET", "/rpc/now", "at once", bucket="read", answers={})
    def now(self) -> Renderable:
        return {"a": 1}

    @Route("GET", "/rpc/chain", "the chain", bucket="read", answers={}, shows_chain=True)
    def chain(self) -> Renderable:
        return Response(b"{}", headers=((b"ETag", b'"1"'),), tip=self.tip)

    @Route("GET", "/rpc/chain/later", "an older chain", bucket="read", answers={}, shows_chain=True)
    async def older_chain(self) -> Renderable:
        await self._wait()
        raise HttpError(404, "there is no such block", tip=tip_of(6, bytes(32)))

    @Route("GET", "/rpc/raw", "a whole body", bucket="read", answers={})
    def raw(self) -> Renderable:
        return Response(b"<x/>", 201, b"text/xml", ((b"ETag", b'"1"'), (b"Cache-Control", b"no-cache")))

    @Route("GET", "/rpc/injected", "a header with a line end", bucket="read", answers={})
    def injected(self) -> Renderable:
        return Response(b"", headers=((b"ETag", b"a\r\nSet-Cookie: b"),))

    @Route("GET", "/rpc/large", "more than a client takes at once", bucket="read", answers={}, by_size=500_000)
    def large(self) -> Renderable:
        return Response(b"x" * (SEND_BUFFER + 1))

    @Route("GET", "/rpc/soon", "from a coroutine", bucket="read", answers={})
    async def soon(self) -> Renderable:
        return {"a": 2}

    @Route("GET", "/rpc/later", "reads in its own time", bucket="read", answers={}, by_size=500_000)
    async def later(self) -> Renderable:
        return await self._wait()

    @Route("POST", "/rpc/later", "writes in its own time", bucket="dear", answers={}, body_fields=(NAME,), seconds=5)
    async def write_later(self, name: str) -> Renderable:
        return {**await self._wait(), "name": name}

    async def _wait(self) -> dict[str, object]:
        later: Deferred[None] = Deferred(self._gone)
        self.waiting.append(later)
        await later
        return {"a": 3}

    @Route("GET", "/rpc/thing/{name}", "a thing", bucket="read", answers={}, path_fields=(NAME,))
    def thing(self, name: str) -> Renderable:
        if name == "broken":
            raise ZeroDivisionError
        if name == "missing":
            raise HttpError(404, "there is no such thing", tokens=2)
        return {"name": name}

    @Route("GET", "/rpc/thing/now", "spelt out", bucket="read", answers={})
    def spelt_out(self) -> Renderable:
        return {"spelt": "out"}

    @Route("GET", "/rpc/thing/{name}/of", "below", bucket="dear", answers={}, path_fields=(NAME,), cost=2)
    def below(self, name: str) -> Renderable:
        return {"below": name}

    @Route(
        "GET",
        "/rpc/list",
        "a list",
        bucket="read",
        answers={},
        query_fields=(Field("limit", Custom({}, whole), "how many"), Field("q", Text(), "what", default=None)),
        malformed_tokens=3,
    )
    def list(self, limit: int, q: str | None) -> Renderable:
        return {"limit": limit, "q": q}

    @Route("POST", "/rpc/send", "sends", bucket="dear", answers={}, body_fields=(NAME,), with_client=True)
    def send(self, name: str, client: str | None) -> Renderable:
        return {"name": name, "client": client}

    @Route(
        "POST", "/rpc/guarded", "guarded", bucket="read", answers={}, guards=(Guard(401, "locked", check, "bearer"),)
    )
    def guarded(self) -> Renderable:
        return {}


class Connected:
    """The routes on a site of its own, at a time of its own, and one connection to it."""

    def __init__(
        self,
        *,
        uses_fast_path: bool,
        reads: bool = True,
        peer: str = "203.0.113.9",
        burst: float = 0,
        endpoint: str = "tcp",
    ) -> None:
        self.clock, self.routes, self.noted = Clock(), Routes(), Recording()
        clients = Clients(trusted_proxies=["203.0.113.77"])
        rates = {name: Rate(1 if burst else 0, burst or 1) for name in ("read", "dear")}
        self.limiter = RateLimiter(clients, rates, self.clock)
        ids = iter(f"e{n}" for n in range(1_000_000))
        ports = SiteContext(
            parse_json=parse_json,
            errors={Refused: lambda error: HttpError(400, str(error))},
            limiter=self.limiter,
            clock=self.clock,
            new_id=lambda: next(ids),
        )
        api = KleinApi("/rpc", ports, shared=True)
        api.add(self.routes)
        root = Branch()
        root.putChild(b"rpc", api)
        self.site = Site(
            root,
            limits=SiteLimits(body_caps=BodyCaps({(b"POST", b"/rpc/send"): 40}, 100), bodies_bytes_per_client=60),
            unread=UnreadBudget(),
            clients=clients,
            clock=self.clock,
            new_id=lambda: next(ids),
            headers_by_prefix={b"/rpc": CORS_HEADERS},
            router=ports.router if uses_fast_path else None,
        )
        self.site.recorder = self.noted
        self.wire: Any
        if endpoint == "ssl":
            self.wire = SecureWire(self.site, CERTIFICATE.options(), self.clock, peer)
        elif endpoint == "haproxy":
            self.wire = behind_haproxy(self.site, peer)
        else:
            self.wire = Wire(self.site, peer, reads=reads)

    def do(self, event: bytes | float | str) -> None:
        """Something happens."""
        wire = self.wire
        if isinstance(event, bytes):
            wire.send(event)
        elif isinstance(event, float):
            self.clock.advance(event)
        elif event == "read":
            wire.read()
        elif event == "answer" and self.routes.waiting:
            later = self.routes.waiting.pop(0)
            if not later.called:
                later.callback(None)
        elif event == "end":
            wire.end()
        elif event == "close":
            wire.close()
        elif event == "drain":
            self.site.draining = True
            for connection in self.site.connections:
                connection.drain()

    def seen(self) -> dict[str, Any]:
        """All that must not depend on the way."""
        untrusted = self.site.clients.proxies
        return {
            # The slow path says when the request had come, the fast path when its answer was there.
            "received": _DATE.sub(b"Date: then", self.wire.received),
            "unsent": self.wire.unsent,
            "open": (self.wire.open, self.wire.saw_end, self.wire.disconnecting),
            "noted": self.noted,
            "left": (len(self.site.connections), self.site.unread.bytes, self.site.bodies.bytes),
            "routes": (len(self.routes.waiting), self.routes.cancelled),
            "owed": [bucket.wait("203.0.113.9", 5, self.clock.seconds()) for bucket in self.limiter.buckets.values()],
            "untrusted": untrusted.alarm(self.clock.seconds()),
        }


METHODS = [b"GET"] * 6 + [b"POST"] * 4 + [b"HEAD", b"OPTIONS", b"PUT", b"get"]
TARGETS = [
    b"/rpc/now",
    b"/rpc/raw",
    b"/rpc/chain",
    b"/rpc/chain?minHeight=7",
    b"/rpc/chain?minHeight=8",
    b"/rpc/chain?minHeight=07",
    b"/rpc/chain/later",
    b"/rpc/chain/later?minHeight=7",
    b"/rpc/large",
    b"/rpc/soon",
    b"/rpc/later",
    b"/rpc/thing/a",
    b"/rpc/thing/now",
    b"/rpc/thing/now/of",
    b"/rpc/thing/missing",
    b"/rpc/thing/a%20b",
    b"/rpc/thing/..",
    b"/rpc/thing/%2e",
    b"/rpc/thing/a:b~c.d",
    b"/rpc/thing/",
    b"/rpc/thing//of",
    b"/rpc/list?limit=5",
    b"/rpc/list?limit=5&q=a%20b+c;d",
    b"/rpc/list?limit=5&limit=6",
    b"/rpc/list?limit=many",
    b"/rpc/list?q=%ff",
    b"/rpc/list",
    b"/rpc/list?",
    b"/rpc/list?limit=5?&q==",
    b"/rpc/send",
    b"/rpc/guarded",
    b"/rpc",
    b"/rpc/",
    b"/",
    b"//rpc/now",
    b"/rpc/now#x",
    b"/rpc/now/",
    b"/rpc/thing/a\xa0",
    b"http://h/rpc/now",
    b"*",
    b"/rpc/thing/" + b"a" * MAX_BYTES,
]
HEADERS = [
    b"Host: h",
    b"Host:",
    b"host:   h:80\t",
    b"Connection: keep-alive",
    b"Connection: Keep-Alive, Upgrade",
    b"Connection: close",
    b"connection: keep-alive",
    b"Accept: text/html, */*;q=0.1",
    b"X-Forwarded-For: 198.51.100.1",
    b"X-Forwarded-For: 198.51.100.2, 203.0.113.77",
    b"X-Forwarded-For: nobody",
    b"Authorization: Bearer secret",
    b"Authorization: Bearer wrong",
    b"Cookie: a=b; c",
    b"Access-Control-Request-Headers: traceparent, authorization",
    b"Content-Type: application/x-www-form-urlencoded",
    b"Expect: 100-continue",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: identity",
    b"Upgrade: websocket",
    b"Content-Length: 0",
    b"Content-Length: 00",
    b"Content-Length: +1",
    b"Content-Length: 2, 2",
    b"Content-Length: 999999999999999999999",
    b" folded",
    b"A : b",
    b"A: \x00",
    b"A: b\nC: d",
    b"A: \xe9",
    b"A_b: c",
    b":",
    b"A",
    b"A: " + b"b" * MAX_BYTES,
    b"\r\n".join([b"a:"] * 501),
]
UNREAD = b"GET /rpc/large HTTP/1.1\r\nHost: h\r\n\r\n"
BODIES = [b"", b"{}", b'{"name":"b"}', b'{"name":"' + b"x" * 20 + b'"}', b"1.5", b"[", b"x" * 41, b"x" * 101]


@st.composite
def requests(draw: Any) -> bytes:
    """A request that is plain, but for something odd now and then."""
    line = b"%b %b %b\r\n" % (
        draw(st.sampled_from(METHODS)),
        draw(st.sampled_from(TARGETS)),
        draw(st.sampled_from([b"HTTP/1.1"] * 9 + [b"HTTP/1.0"])),
    )
    body = draw(st.sampled_from(BODIES))
    headers = [b"Host: h"] if draw(st.integers(0, 9)) else []
    headers += draw(st.lists(st.sampled_from(HEADERS), max_size=2))
    if body or draw(st.booleans()):
        headers.append(b"Content-Length: %d" % max(0, len(body) + draw(st.sampled_from([0] * 9 + [1]))))
    return line + b"".join(header + b"\r\n" for header in headers) + b"\r\n" + bytes(body)


@st.composite
def happenings(draw: Any) -> list[bytes | float | str]:
    """Requests, one after the other and cut anywhere, and what happens in between."""
    data = b"".join(draw(st.lists(requests(), min_size=1, max_size=5)))
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=3)))
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    other = st.sampled_from(["read", "answer", "answer", "end", "close", "drain", 0.0, 0.0, 3.0, 6.0, 70.0])
    happens: list[bytes | float | str] = []
    for piece in pieces:
        happens += [piece, *draw(st.lists(other, max_size=2))]
    return [*happens, *[0.0] * 5, "answer", "read", 0.0, "answer", "read", *draw(st.lists(other, max_size=4))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    happens=happenings(),
    reads=st.booleans(),
    peer=st.sampled_from(["203.0.113.9", "203.0.113.77"]),
    burst=st.sampled_from([0, 0, 3]),
)
@example(happens=[UNREAD, *[0.0] * 5, "read"], reads=False, peer="203.0.113.9", burst=0)
def test_fast_and_slow_path_answer_alike(
    happens: list[bytes | float | str], reads: bool, peer: str, burst: float
) -> None:
    ways = [
        Connected(uses_fast_path=uses_fast_path, reads=reads, peer=peer, burst=burst)
        for uses_fast_path in (True, False)
    ]
    compare(ways, happens)


def compare(ways: list[Connected], happens: list[bytes | float | str]) -> None:
    """Whatever happens, both ways must show the same, and leave nothing behind."""
    for event in happens:
        for way in ways:
            way.do(event)
        fast, long = (way.seen() for way in ways)
        assert fast == long, event
    for way in ways:
        way.clock.pump([1.0] * 300)
    fast, long = (way.seen() for way in ways)
    assert fast == long
    assert fast["left"] == (0, 0, 0)
    assert all(not way.clock.getDelayedCalls() for way in ways)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    happens=happenings(),
    endpoint=st.sampled_from(["ssl", "haproxy"]),
    peer=st.sampled_from(["203.0.113.9", "203.0.113.77"]),
    burst=st.sampled_from([0, 0, 3]),
)
def test_the_answers_are_the_same_on_other_endpoints(
    happens: list[bytes | float | str], endpoint: str, peer: str, burst: float
) -> None:
    compare(
        [
            Connected(uses_fast_path=uses_fast_path, peer=peer, burst=burst, endpoint=endpoint)
            for uses_fast_path in (True, False)
        ],
        happens,
    )


@pytest.mark.parametrize("endpoint", ["tcp", "ssl", "haproxy"])
def test_requests_take_the_fast_path_on_every_endpoint(endpoint: str) -> None:
    way = Connected(uses_fast_path=True, endpoint=endpoint)
    way.site.resource = Branch()
    way.do(GET)
    assert way.wire.response().json == {"ok": True, "a": 1}


def test_a_failure_is_told_and_logged_on_both_ways(expected_errors: Callable[..., object]) -> None:
    ways = [Connected(uses_fast_path=uses_fast_path) for uses_fast_path in (True, False)]
    for way in ways:
        way.do(GET.replace(b"now", b"thing/broken"))

    expected_errors(ZeroDivisionError, ZeroDivisionError)
    assert ways[0].seen() == ways[1].seen()
    assert ways[0].wire.response().status == 500


PLAIN = [
    GET,
    GET.replace(b"now", b"soon"),
    GET.replace(b"now", b"thing/a:b~c.d"),
    GET.replace(b"now", b"list?limit=5&q=%20+;"),
    GET.replace(b"Host", b"Connection: Keep-Alive\r\nAccept: */*\r\nhost"),
    GET.replace(b"Host", b"Content-Length: 0\r\nHost"),
    b"POST /rpc/send HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\n" + b'{"name":"b"}',
]
UNUSUAL = [
    GET.replace(b"1.1", b"1.0"),
    GET.replace(b"GET", b"HEAD"),
    GET.replace(b"/rpc", b"http://h/rpc"),
    GET.replace(b"now", b"%6eow"),
    GET.replace(b"now", b"nowhere"),
    GET.replace(b"Host: h\r\n", b""),
    GET.replace(b"Host", b"Host: h\r\nHost"),
    GET.replace(b"Host", b"Connection: close\r\nHost"),
    GET.replace(b"Host", b"Connection: Upgrade\r\nHost"),
    GET.replace(b"Host", b"Upgrade: websocket\r\nHost"),
    GET.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    GET.replace(b"Host", b"Transfer-Encoding: identity\r\nHost"),
    GET.replace(b"Host", b"Content-Length: 0\r\nContent-Length: 0\r\nHost"),
    GET.replace(b"Host", b"Content-Length: 00\r\nHost"),
    GET.replace(b"Host: h", b"Host: h\r\n folded"),
    GET.replace(b"Host: h", b"Host: h\r\nA: " + b"x" * MAX_BYTES),
    GET.replace(b"now", b"thing/" + b"x" * MAX_BYTES),
    b"POST /rpc/send HTTP/1.1\r\nHost: h\r\nContent-Length: 42\r\n\r\n" + b'{"name":"%b"}' % (b"x" * 31),
]


def answered_fast(*pieces: bytes) -> bool:
    """Whether a request is answered without the resources of its site being asked."""
    way = Connected(uses_fast_path=True)
    way.site.resource = Branch()
    for piece in pieces:
        way.do(piece)
    return way.noted.statuses == {200: 1}


@pytest.mark.parametrize("request_bytes", PLAIN)
def test_plain_requests_take_the_fast_path(request_bytes: bytes) -> None:
    assert answered_fast(request_bytes)


@pytest.mark.parametrize("request_bytes", UNUSUAL)
def test_unusual_requests_take_the_slow_path(request_bytes: bytes) -> None:
    assert not answered_fast(request_bytes)


@pytest.mark.parametrize("at", [1, len(GET) - 1])
def test_requests_in_pieces_take_the_slow_path(at: int) -> None:
    assert not answered_fast(GET[:at], GET[at:])


def cached() -> str:
    """All that the caches of the fast path hold."""
    caches = [each for each in vars(fast_path).values() if hasattr(each, "cache_info")]
    return repr([gc.get_referents(each) for each in caches])


@pytest.mark.parametrize("header", [b"Authorization: Bearer", b"cookie:", b"X-Token:", b"Host: h\r\nA:"])
def test_no_secret_outlives_its_request(header: bytes) -> None:
    way = Connected(uses_fast_path=True)
    way.do(GET.replace(b"Host", header + b" never-kept\r\nHost"))

    assert way.wire.received
    assert "never-kept" not in cached()


def test_harmless_headers_are_kept_for_the_next_request() -> None:
    assert answered_fast(GET.replace(b"Host", b"accept: text/kept\r\nHost"))

    assert "text/kept" in cached()


def test_a_header_with_a_line_end_is_sent_by_neither_way(expected_errors: Callable[..., object]) -> None:
    for uses_fast_path in (True, False):
        way = Connected(uses_fast_path=uses_fast_path)
        way.do(GET.replace(b"now", b"injected"))
        assert b"\nSet-Cookie" not in way.wire.received
    expected_errors(ValueError)
