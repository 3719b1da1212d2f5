"""Bodies and requests that no client should send: a written list, and strategies that find what the list forgot."""

import copy
import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

WRONG_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53,
    2**53 + 1,
    2**63,
    2**64,
    10**400,
    0.5,
    1e308,
    "",
    " ",
    "0",
    "-0",
    "-1",
    "+1",
    "1.0",
    "1e5",
    "00",
    "0x10",
    "٣",
    "１",
    "9" * 16,
    "9" * 400,
    "NaN",
    "null",
    "\x00",
    "1\x00",
    "1\n",
    "\ud800",
    "\U0001f4b0",
    "a" * 15_000,
    "'; DROP TABLE block; --",
    "../../etc/passwd",
    "%00",
    "{braces}",
    "{0.__class__}",
    "%s%n",
    "<script>alert(1)</script>",
    [],
    [[]],
    [[[[[[[[[]]]]]]]]],
    {},
    {"": ""},
    {"__proto__": 1},
    {"a": {"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}},
    ["a"] * 2_000,
)
"""What no field may be, and text that some programs stumble over."""

TEXTS: tuple[bytes, ...] = (
    b" ",
    b"\n",
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf{}",
    b"\xff\xfe{\x00}\x00",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"null",
    b"true",
    b"0",
    b"-0",
    b"1e400",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"nul",
    b'"',
    b'"text"',
    b'"\\ud800"',
    b'"\\u"',
    b'"\\x41"',
    b'"tab\there"',
    b"'single'",
    b"[]",
    b"[1,]",
    b"[" * 16_000,
    b"[" * 8_000 + b"]" * 8_000,
    b'{"a":' * 2_500 + b"1" + b"}" * 2_500,
    b"{",
    b"}",
    b"{{}}",
    b"{}{}",
    b"{} {}",
    b"{}x",
    b"{,}",
    b'{"a"}',
    b'{"a":}',
    b'{"a":1,}',
    b"{a:1}",
    b"{1:1}",
    b"{null:1}",
    b'{"a":1 "b":2}',
    b'{"a":0x10}',
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":1e5}',
    b'{"a":' + b"9" * 5_000 + b"}",
    b'{"a":-' + b"9" * 5_000 + b"}",
    b'{"a":1,"a":2}',
    b'{"a":1,"\\u0061":2}',
    b'{"\\ud800":1}',
    b'{"":1}',
    b'{"__proto__":{"ok":true}}',
    b'{"ok":true}',
    b"// comment\n{}",
    b"/* comment */{}",
    b"<?xml version='1.0'?><a/>",
    b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>",
    b"a=1&b=2",
    b"transaction=%7B%7D&blocks=1",
    b'--x\r\nContent-Disposition: form-data; name="blocks"\r\n\r\n1\r\n--x--\r\n',
    b"GET /rpc/status HTTP/1.1\r\nHost: h\r\n\r\n",
    gzip.compress(b"{}" * 100),
    gzip.compress(b" " * 10_000_000),
    zlib.compress(b"{}"),
    b"\x80\x04\x95\x0b\x00\x00\x00",
    b'{"a":"' + b"x" * 16_370 + b'"}',
    b"\xf0\x9f\x92\xb0" * 4_000,
    b'{"\xf0\x9f\x92\xb0":"\xf0\x9f\x92\xb0"}',
    "{“a”: 1}".encode(),
)
"""Bodies that are no JSON, or JSON that the interface does not take."""


compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""JSON as peers write it, for a route that takes no other; everything else reads it too."""


def paths_in(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where something stands in nested objects."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from paths_in(inner, (*path, key))


def changed(body: Any, path: tuple[str, ...], value: Any) -> Any:
    """A copy of ``body`` with ``value`` at ``path``."""
    made = copy.deepcopy(body)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return made


def without(body: Any, path: tuple[str, ...]) -> Any:
    """A copy of ``body`` without what stands at ``path``."""
    made = copy.deepcopy(body)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return made


def malformed_bodies(valid: Any) -> Iterator[bytes]:
    """The written list for a route that would take ``valid``."""
    yield from TEXTS
    text = compact(valid).encode()
    yield from (text[:end] for end in range(1, len(text), max(1, len(text) // 160)))
    yield from (text + tail for tail in (b"x", b"\x00", b"}", b",", text))
    yield b'{"' + text + b'"}'
    yield text.replace(b":", b":" + text[: len(text) // 4], 1)
    yield text.decode().encode("utf-16")
    yield text.decode().encode("utf-32")
    yield gzip.compress(text)
    yield compact([valid]).encode()
    yield compact(compact(valid)).encode()
    for path in paths_in(valid):
        for value in WRONG_VALUES:
            yield compact(changed(valid, path, value)).encode()[:16_384]
        yield compact(without(valid, path)).encode()
        yield compact(changed(valid, (*path[:-1], path[-1] + "x"), 1)).encode()
        yield compact(changed(valid, (*path[:-1], path[-1].upper()), 1)).encode()
        name = f'"{path[-1]}":'.encode()
        yield text.replace(name, name + b"1, " + name, 1)


def malformed_framings(path: str, body: bytes) -> Iterator[bytes]:
    """Requests to ``path`` whose headers and body do not belong together, or that are no requests."""
    post, host, size = f"POST {path} HTTP/1.1\r\n".encode(), b"Host: h\r\n", len(body)

    def request(*lines: bytes, sent: bytes = body, first: bytes = post) -> bytes:
        return first + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + sent

    def length(value: object) -> bytes:
        return f"Content-Length: {value}".encode()

    chunked = b"Transfer-Encoding: chunked"
    for value in (size + 1, size + 10_000, 16_384, 16_385, 10**10, 10**18, 10**400, -1, -size, "+5", "0x10", "1e3"):
        yield request(length(value))
    for value in ("", " ", "a", "5 5", "5,5", "٣", "1_000", "\x00", "5\t"):
        yield request(length(value))
    yield request(length(size), length(size + 1))
    yield request(length(size), chunked)
    yield request(chunked, length(0))
    yield request(length(size - 1))
    yield request(length(0))
    for garbage in (
        b"x\r\n",
        b"-5\r\nhello\r\n",
        b"ffffffffffffffffffff\r\n",
        b"5\r\nhel",
        b"5\r\nhelloworld\r\n0\r\n\r\n",
        b"0\r\n",
        b"0\r\nno trailer\r\n\r\n",
        b"1\r\n{\r\n1\r\n}\r\n0\r\nTrailer: " + b"x" * 70_000 + b"\r\n\r\n",
        b"5;" + b"x" * 70_000 + b"\r\nhello\r\n0\r\n\r\n",
        b"1\r\n{\r\n" * 9_000,
        b"4001\r\n" + b" " * 0x4001 + b"\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"\x00" * 100,
        b"",
    ):
        yield request(chunked, sent=garbage)
    yield request(b"Transfer-Encoding: gzip, chunked", sent=b"0\r\n\r\n")
    yield request(b"Transfer-Encoding: identity", length(size))
    yield request(b"Transfer-Encoding: chunked, chunked", sent=b"0\r\n\r\n")
    yield request(chunked, chunked, sent=b"0\r\n\r\n")
    yield request(b"Transfer-Encoding : chunked", sent=b"0\r\n\r\n")
    yield request(b"Content-Encoding: gzip", length(size))
    yield request(b"Expect: 100-continue", length(size), sent=b"")
    yield request(b"Expect: a miracle", length(size))
    yield request(b"Content-Type: multipart/form-data; boundary=x", length(size))
    yield request(b"Content-Type: multipart/form-data", length(size))
    yield request(b"Content-Type: application/x-www-form-urlencoded; charset=utf-7", length(size))
    yield request(b"X-Long: " + b"x" * 70_000, length(size))
    yield request(*[b"X-Many: 1"] * 1_000, length(size))
    yield request(b"no colon", length(size))
    yield request(b": no name", length(size))
    yield request(b" folded", length(size))
    yield request(b"X-Null: \x00", length(size))
    yield request(b"Connection: close, upgrade", b"Upgrade: h2c", length(size))
    yield post + length(size) + b"\n\n" + body
    yield post + host
    yield post
    yield post[: len(post) // 2]
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200
    yield request(length(size), first=post.replace(b"HTTP/1.1", b"HTTP/9.9"))
    yield request(length(size), first=post.replace(b" HTTP/1.1", b""))
    yield request(length(size), first=post.replace(b"POST", b"POST\x00"))
    yield request(length(size), first=post.replace(b"POST", b"P" * 20_000))
    yield request(length(size), first=post.replace(path.encode(), b"/" * 20_000))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers().filter(lambda number: not 20 < number <= 10_000)
    | st.floats()
    | st.text(max_size=40)
    | st.sampled_from(WRONG_VALUES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON; whole numbers that would have a devnet make thousands of blocks are left out."""


@st.composite
def spoiled(draw: Any, valid: Any) -> bytes:
    """A body that a route would take, spoiled in some places as JSON and perhaps as text."""
    body = valid
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(sorted(paths_in(body)) or [("x",)]))
        if draw(st.booleans()):
            body = changed(body, path, draw(JSON_VALUES))
        elif isinstance(body, dict) and path != ("x",):
            body = without(body, path)
    text = compact(body).encode()[:16_384]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.binary(max_size=6)) + text[at + draw(st.integers(0, 6)) :]
    return text[:16_384]


def bodies(valid: Any) -> st.SearchStrategy[bytes]:
    """Bodies of every kind for a route that would take ``valid``."""
    return spoiled(valid) | st.binary(max_size=200) | JSON_VALUES.map(lambda value: compact(value).encode()[:16_384])


HEADERS = st.sampled_from(
    [
        b"Host: h",
        b"Content-Length: 2",
        b"Content-Length: 20000",
        b"Content-Length: x",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: x",
        b"Content-Encoding: gzip",
        b"Content-Type: multipart/form-data; boundary=x",
        b"Expect: 100-continue",
        b"Connection: close",
        b"Authorization: Bearer x",
        b"X-Forwarded-For: 1.2.3.4",
    ]
)


@st.composite
def framings(draw: Any, path: str, valid: Any) -> list[bytes]:
    """A request in pieces whose headers may fit its body or not."""
    body = draw(bodies(valid))
    lines = [f"POST {path} HTTP/1.1".encode(), *draw(st.lists(HEADERS | st.binary(max_size=20), max_size=4))]
    if draw(st.booleans()):
        lines.append(b"Content-Length: %d" % max(0, len(body) + draw(st.integers(-2, 2))))
    data = b"\r\n".join(lines) + b"\r\n\r\n" + body
    cut = draw(st.integers(1, 200))
    return [data[at : at + cut] for at in range(0, len(data), cut)]
