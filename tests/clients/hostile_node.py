"""A node, or a proxy in front of one, that does what no honest one does: the cases that every caller must survive.

The server stands in front of a real node. The right answers are recorded from it once; a case then says how an answer
goes out.
"""

import gzip
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from itertools import cycle, islice
from typing import Final
from urllib.parse import parse_qs, urlsplit

from attrs import define, field, frozen

from tests.json_places import DELETED, places, put
from tests.process_level.running import DEADLINE, RunningNode

MAX_ANSWER: Final = 4 * 1024 * 1024
"""Bytes that a caller takes of one answer."""
MAX_PAGES: Final = 1_000
"""Of a list."""
MAX_LIST: Final = 64 * 1024 * 1024
"""Bytes of a list, in all of its pages."""
YEAR: Final = 31_536_000
_JSON: Final = "Content-Type: application/json\r\n"
_HEADER: Final = b"HTTP/1.1 200 OK\r\n"


@frozen
class Answer:
    """A right answer of the node."""

    status: int
    body: bytes


@define
class HostileNode:
    """Where it listens, and how it answers at present: honestly while ``serve`` is None."""

    url: str
    serve: "Serve | None" = None
    asked: list[str] = field(factory=list)
    """Method, path and query of each request."""
    heads: list[bytes] = field(factory=list)
    sent: int = 0
    """Bytes of endless answers that were taken."""
    served: bool = False
    """Whether a changed answer was given since :meth:`begin`."""
    recorded: dict[tuple[str, ...], Answer] = field(factory=dict)

    def begin(self, serve: "Serve | None") -> None:
        """Answer so from now on, and forget what was asked."""
        self.serve, self.sent, self.served = serve, 0, False
        self.asked.clear()
        self.heads.clear()

    def right(self, asked: str) -> Answer:
        """The right answer to a request with this method, path and query."""
        method, target = asked.split(" ")
        return self.recorded.get(_key(method, target), Answer(404, b'{"ok":false,"error":"there is none"}'))


Serve = Callable[[HostileNode, socket.socket, Answer], None]
"""Sends an answer, given the right one, on a connection that is closed afterwards."""


def _key(method: str, target: str) -> tuple[str, ...]:
    """What has one answer: a page of a feed is not the next one."""
    url = urlsplit(target)
    return (method, url.path, *parse_qs(url.query).get("after", ()))


def plain(body: bytes, status: int = 200, headers: str = "") -> bytes:
    """An answer as a node sends it."""
    head = f"HTTP/1.1 {status} OK\r\n{_JSON}{headers}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode("latin-1") + body


def honest(_: HostileNode, connection: socket.socket, right: Answer) -> None:
    """Sends the right answer."""
    connection.sendall(plain(right.body, right.status))


@contextmanager
def hostile_node(node: RunningNode | None = None) -> Iterator[HostileNode]:
    """A server in front of ``node``; without one it has no right answers."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    given = HostileNode(f"http://127.0.0.1:{listening.getsockname()[1]}")

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            head, end, body = _received(connection).partition(b"\r\n\r\n")
            if not end:
                return
            method, target, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ")
            given.asked.append(f"{method} {target}")
            given.heads.append(head.lower())
            key = _key(method, target)
            if given.serve is None and node is not None and key not in given.recorded:
                given.recorded[key] = _asked(node, method, target, head, body)
            (given.serve or honest)(given, connection, given.right(f"{method} {target}"))

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield given
    # Wakes the thread that accepts, which closing the socket alone does not.
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def _received(connection: socket.socket) -> bytes:
    """A whole request."""
    data = b""
    while b"\r\n\r\n" not in data and (part := connection.recv(65_536)):
        data += part
    length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", data)
    end = data.find(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(data) < end and (part := connection.recv(65_536)):
        data += part
    return data


def _asked(node: RunningNode, method: str, target: str, head: bytes, body: bytes) -> Answer:
    lines = [line.split(": ", 1) for line in head.decode("latin-1").split("\r\n")[1:]]
    names = ("authorization", "content-type")
    with closing(HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE)) as connection:
        connection.request(method, target, body or None, {name: text for name, text in lines if name.lower() in names})
        answer = connection.getresponse()
        return Answer(answer.status, answer.read())


# How answers go out


def instead(data: bytes) -> Serve:
    """Sends the same to everybody."""
    return lambda _, connection, __: connection.sendall(data)


def of_json(change: Callable[[bytes], bytes]) -> Serve:
    """Sends the text of the right answer, changed."""
    return lambda _, connection, right: connection.sendall(plain(change(right.body), right.status))


def with_headers(lines: str) -> Serve:
    """Sends the right answer with more lines among its headers."""
    return lambda _, connection, right: connection.sendall(plain(right.body, right.status, lines))


def with_member(text: bytes) -> Serve:
    """Sends the right answer with one more member, of whose value this is the JSON."""
    return of_json(lambda body: body.replace(b"{", b'{"more":' + text + b",", 1))


def drip(head: bytes, part: bytes) -> Serve:
    """Sends ``head``, and then ``part`` without end, a piece every 50 ms: no single read takes long."""

    def serve(_: HostileNode, connection: socket.socket, __: Answer) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(part)
            threading.Event().wait(0.05)

    return serve


def flood(head: bytes, part: bytes) -> Serve:
    """Sends ``head``, and then ``part`` without end, as fast as it is taken."""

    def serve(node: HostileNode, connection: socket.socket, _: Answer) -> None:
        connection.sendall(head)
        while True:
            node.sent += connection.send(part)

    return serve


def silent(_: HostileNode, connection: socket.socket, __: Answer) -> None:
    """Takes the request, and says nothing until the caller goes."""
    connection.settimeout(DEADLINE)
    connection.recv(1)


def twice(body: bytes) -> bytes:
    """The JSON of an answer in whose innermost first object the first member stands twice, the second time empty."""
    return re.sub(rb'("[A-Za-z]+":)(?=[^{])', rb"\1null,\1", body, count=1)


def escaped_twice(body: bytes) -> bytes:
    """As :func:`twice`, with an escape in the first of the two names."""
    return re.sub(
        rb'"([A-Za-z])([A-Za-z]+":)(?=[^{])', lambda m: b'"\\u%04x%sfalse,%s' % (ord(m[1]), m[2], m[0]), body, count=1
    )


_BOMB: Final = gzip.compress(b" " * 300_000)
_CHUNKED: Final = _HEADER + b"Transfer-Encoding: chunked\r\n\r\n"
LATE: Final[Mapping[str, Serve]] = {
    "says nothing": silent,
    "an endless header": drip(_HEADER + b"X-A: ", b"a"),
    "endless headers": drip(_HEADER, b"X: a\r\n"),
    "a byte now and then": drip(_HEADER + b"Content-Length: 4000\r\n\r\n", b" "),
    "a chunk now and then": drip(_CHUNKED, b"1\r\n \r\n"),
    "endless informational answers": drip(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "comes back in a year": instead(plain(b'{"ok":false,"error":"later"}', 503, f"Retry-After: {YEAR}\r\n")),
}
"""Answers that do not come in time: a call ends with its timeout all the same."""
TEXTS: Final[Mapping[str, Serve]] = {
    "a member twice": of_json(twice),
    "a member twice, once with an escape": of_json(escaped_twice),
    "nesting": with_member(b"[" * 100_000 + b"]" * 100_000),
    "NaN": with_member(b"NaN"),
    "Infinity": with_member(b"-Infinity"),
    "half of the answer": of_json(lambda body: body[: len(body) // 2]),
    "an array": instead(plain(b"[]")),
    "a number": instead(plain(b"9" * 5_000)),
    "nothing": instead(plain(b"")),
    "a page for people": instead(plain(b"<html>Welcome to nginx!</html>")),
    "no UTF-8": of_json(lambda body: body.replace(b"{", b'{"more":"\xff\xfe",', 1)),
    "a mark of the byte order": of_json(lambda body: b"\xef\xbb\xbf" + body),
}
"""Texts that are no JSON, or are read by programs in different ways."""
REFUSED: Final[Mapping[str, Serve]] = {
    "more bytes than announced may be": flood(_HEADER + b"Content-Length: 99999999999\r\n\r\n", b" " * 65_536),
    "bytes without end": flood(_HEADER + b"\r\n", b" " * 65_536),
    "chunks without end": flood(_CHUNKED, b"10000\r\n" + b" " * 65_536 + b"\r\n"),
    "a header of megabytes": flood(_HEADER + b"X-A: ", b"a" * 65_536),
    "headers without end": flood(_HEADER, b"X-A: a\r\n" * 8_000),
    "gzip": instead(plain(_BOMB, 200, "Content-Encoding: gzip\r\n")),
    "an unknown coding": instead(plain(_BOMB, 200, "Content-Encoding: zstd\r\n")),
    **{
        f"a redirect {status}": instead(plain(b"", status, "Location: /elsewhere\r\n"))
        for status in (301, 302, 303, 307, 308)
    },
    **TEXTS,
    "a header that is none": with_headers("What comes after it is not read by all\r\n"),
    "no HTTP": instead(b"SSH-2.0-OpenSSH_9.2\r\n"),
}
"""Answers that every caller must refuse."""


# What a right answer says, changed

_KINDS: Final[tuple[object, ...]] = (None, True, -1, 10**400, "", "\x1b[2J\u202e\u2028", [{}])
"""One of each type, and of the values that programs stumble over."""
_AT_ONE_PLACE: Final = 3


def mutations(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Each member of a JSON text with values of some other kinds, in turn, and each of them missing, with its place."""
    kinds = cycle(_KINDS)
    for place, _ in places(json.loads(body)):
        for kind in (*islice(kinds, _AT_ONE_PLACE), DELETED):
            value = json.loads(body)
            put(value, place, kind)
            yield f"{place} is {'missing' if kind is DELETED else repr(kind)}"[:120], json.dumps(value).encode()


def another(body: bytes, name: str, value: object) -> bytes:
    """A JSON text in which every member ``name`` has another value."""

    def changed(part: object) -> object:
        if isinstance(part, dict):
            return {each: value if each == name else changed(inner) for each, inner in part.items()}
        return [changed(inner) for inner in part] if isinstance(part, list) else part

    return json.dumps(changed(json.loads(body))).encode()
