"""Whatever bytes arrive: every answer is well-formed, every error is JSON, nothing fails and nothing hangs."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.web.field_types import Custom, Text
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Route
from svcd.web.site import Site
from tests.web.wire import Wire

Serve = Callable[..., Site]


class Routes:
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


METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"OPTIONS", b"TRACE", b"CONNECT", b"BREW", b"get"])
TARGETS = st.sampled_from(
    [b"/rpc/thing/", b"/rpc/list?limit=", b"/rpc/send", b"/rpc", b"/", b"*", b"http://h/rpc/list?limit=1", b"//", b"/%"]
)
NAMES = st.sampled_from(
    [b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"Authorization", b"X-Forwarded-For"]
)
VALUES = st.one_of(
    st.sampled_from([b"0", b"2", b"chunked", b"close", b"100-continue", b"-1", b"9" * 5000, b"h"]),
    st.binary(max_size=12),
)
HEAD = re.compile(rb"HTTP/1\.[01] (?!100)([0-9]{3}) [A-Za-z ]+((?:\r\n[^\r\n]+)*)\r\n\r\n")
JUNK = st.binary(max_size=20)


@st.composite
def requests(draw: Any) -> bytes:
    """Nearly a request: every part of it is now and then junk."""
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b""]))
    lines = [b" ".join([draw(METHODS), draw(TARGETS) + draw(JUNK), version])]
    lines += [draw(NAMES) + b": " + draw(VALUES) for _ in range(draw(st.integers(0, 4)))]
    body = draw(st.one_of(JUNK, st.sampled_from([b"{}", b'{"a":"b"}', b"2\r\n{}\r\n0\r\n\r\n", b"[" * 16_384])))
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(body)


def judge(site: Site, clock: Clock, pieces: list[bytes]) -> None:
    wire = Wire(site)
    for piece in pieces:
        wire.send(piece)
    clock.pump([1] * 100)
    assert not wire.open, "the connection outlives every deadline"
    assert clock.getDelayedCalls() == []
    assert len(site.connections) == site.bodies.bytes == 0
    statuses = set(site.answers)
    assert statuses <= {200, 204, 400, 404, 405, 408, 413}
    assert b"<html" not in wire.received.lower()
    heads = HEAD.findall(wire.received)
    assert len(heads) == sum(site.answers.values())
    for status, headers in heads:
        assert b"\r\nServer: svcd" in headers
        if status != b"204":
            assert b"\r\nContent-Type: application/json" in headers


@pytest.fixture
def hostile(serve_of: Serve, clock: Clock) -> Callable[[list[bytes]], None]:
    def both_ways(pieces: list[bytes]) -> None:
        for uses_fast_path in (True, False):
            judge(serve_of(uses_fast_path, Routes()), clock, pieces)

    return both_ways


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_any_bytes(hostile: Callable[[list[bytes]], None], data: bytes) -> None:
    hostile([data])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(requests(), min_size=1, max_size=3), cut=st.integers(1, 400))
def test_any_requests_in_any_pieces(hostile: Callable[[list[bytes]], None], asked: list[bytes], cut: int) -> None:
    data = b"".join(asked)
    hostile([data[:cut], data[cut : 2 * cut], data[2 * cut :]])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.binary(max_size=40), uses_fast_path=st.booleans())
def test_any_path(serve_of: Serve, path: bytes, uses_fast_path: bool) -> None:
    target = b"".join(b"%%%02X" % byte for byte in path)
    wire = Wire(serve_of(uses_fast_path, Routes())).send(b"GET /rpc/thing/" + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")

    answer = wire.response()

    assert answer.status in {200, 400, 404}
    if answer.status == 200:
        assert answer.json["name"].encode() == path
    else:
        assert answer.error
