"""The reader of HTTP requests as a target: bytes on a connection to a site in memory."""

import json
import re
from functools import cache

from twisted.internet.task import Clock

from svcd.chain.encoding import parse_json
from svcd.chain.errors import RuleViolation
from svcd.web.api import Router, SiteContext
from svcd.web.channel import HTTP2_REFUSAL
from svcd.web.connections import SiteLimits, UnreadBudget
from svcd.web.field_types import Custom, Text
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from svcd.web.resources import Branch
from svcd.web.responses import HttpError, Renderable
from svcd.web.routes import Field, Route
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi
from tests.web.wire import Recording, Wire

ANSWERS = {200, 204, 400, 404, 405, 408, 413, 505}


class Routes:
    """Routes with every kind of field."""

    @Route("GET", "/rpc/thing/{name}", "a thing", bucket="read", answers={}, path_fields=(Field("name", Text(), "n"),))
    def thing(self, name: str) -> Renderable:
        return {"name": name}

    @Route(
        "GET", "/rpc/list", "a list", bucket="read", answers={}, query_fields=(Field("limit", Custom({}, int), "n"),)
    )
    def things(self, limit: int) -> Renderable:
        return {"limit": limit}

    @Route("POST", "/rpc/send", "sends", bucket="read", answers={}, body_fields=(Field("a", Text(), "n"),))
    async def send(self, a: str) -> Renderable:
        return {"a": a}


_CLOCK = Clock()
_DATE = re.compile(rb"\r\nDate: [^\r]*")


@cache
def _root() -> tuple[Branch, Router]:
    """The routes and the router that finds them, made once: that takes far longer than a request."""
    ports = SiteContext(
        parse_json=parse_json,
        errors={RuleViolation: lambda error: HttpError(400, str(error))},
        limiter=RateLimiter(Clients(), {"read": Rate(per_second=0, burst=1)}, _CLOCK),
        clock=_CLOCK,
        new_id=lambda: "e1",
    )
    api = KleinApi("/rpc", ports)
    api.add(Routes())
    root = Branch()
    root.putChild(b"rpc", api)
    return root, ports.router


def ask(data: bytes) -> None:
    """Send the bytes in two pieces, cut where the first byte says: announced answers only, and nothing is left over.

    They are answered in the same way with and without a fast path.
    """
    assert _answers_to(data, uses_fast_path=True) == _answers_to(data, uses_fast_path=False)


def _answers_to(data: bytes, *, uses_fast_path: bool) -> bytes:
    root, router = _root()
    site = Site(
        root,
        limits=SiteLimits(),
        unread=UnreadBudget(),
        clients=Clients(),
        clock=_CLOCK,
        new_id=lambda: "e2",
        router=router if uses_fast_path else None,
    )
    site.recorder = noted = Recording()
    wire = Wire(site)
    cut, sent = (data[0], data[1:]) if data else (0, b"")
    wire.send(sent[:cut]).send(sent[cut:])
    _CLOCK.pump([1] * 100)
    assert not wire.open, "the connection outlives every deadline"
    assert not _CLOCK.getDelayedCalls(), "a timer is left behind"
    assert len(site.connections) == site.bodies.bytes == 0
    assert set(noted.statuses) <= ANSWERS, noted.statuses
    # Bodies of answers to HEAD are left out, so that only the first is read here where there may be some.
    if b"HEAD" not in sent:
        for answer in _answers(bytes(wire.received)):
            assert isinstance(answer, dict)
    return _DATE.sub(b"", bytes(wire.received))


def _answers(received: bytes) -> list[object]:
    answers = []
    received = received.removesuffix(HTTP2_REFUSAL)
    while received:
        head, end, rest = received.partition(b"\r\n\r\n")
        assert end, "headers without an end"
        if head.startswith(b"HTTP/1.1 100"):
            received = rest
            continue
        assert b"\r\nServer: svcd" in head
        size = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
        if b" 204 " not in head[:14]:
            assert b"\r\nContent-Type: application/json" in head
            answers.append(json.loads(rest[:size]))
        received = rest[size:]
    return answers


SEEDS = (
    b"\xffGET /rpc/thing/a%20b HTTP/1.1\r\nHost: h\r\n\r\n",
    b"\x20GET /rpc/list?limit=5&a=b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    b'\x40POST /rpc/send HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{"a":"b"}GET /rpc/list HTTP/1.0\r\n\r\n',
    b'\x60POST /rpc/send HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"a":"b"}\r\n0\r\n\r\n',
    b"\x10POST /rpc/send HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
    b"\x03PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x10HEAD http://h/rpc/list?limit=1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\n\r\n",
)
