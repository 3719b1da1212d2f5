"""Whatever bytes arrive: every answer is well-formed, every error is JSON, nothing fails and nothing hangs."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from svcd.web.site import Site
from tests.fuzz.requests import Routes, ask
from tests.web.wire import Wire

Serve = Callable[..., Site]


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
JUNK = st.binary(max_size=20)


@st.composite
def requests(draw: Any) -> bytes:
    """Nearly a request: every part of it is now and then junk."""
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2", b""]))
    lines = [b" ".join([draw(METHODS), draw(TARGETS) + draw(JUNK), version])]
    lines += [draw(NAMES) + b": " + draw(VALUES) for _ in range(draw(st.integers(0, 4)))]
    body = draw(st.one_of(JUNK, st.sampled_from([b"{}", b'{"a":"b"}', b"2\r\n{}\r\n0\r\n\r\n", b"[" * 16_384])))
    return b"\r\n".join(lines) + b"\r\n\r\n" + bytes(body)


@given(data=st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    ask(data)


@given(asked=st.lists(requests(), min_size=1, max_size=3), cut=st.integers(0, 255))
def test_any_requests_in_any_pieces(asked: list[bytes], cut: int) -> None:
    ask(bytes([cut]) + b"".join(asked))


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
