"""A server between the browser and a node that may answer in its place: a liar, as a test in a page cannot be one."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from attrs import define, field

from tests.process_level.running import DEADLINE, RunningNode

_HOP: Final = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@define
class Reply:
    """An answer over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def json(cls, status: int, body: object) -> "Reply":
        """One of the node's kind."""
        return cls(status, {"Content-Type": "application/json"}, json.dumps(body).encode())


def about(target: str) -> dict[str, object]:
    """What a record says that it is about, when it answers a request of the wallet's page for this path and query."""
    parts = urlsplit(target)
    [*_, before, last], given = parts.path.split("/"), dict(parse_qsl(parts.query))
    if parts.path.startswith("/rpc/commerce/payment/"):
        amount, confirmations = given["amountBaseUnits"], int(given["confirmations"])
        terms = {"reference": unquote(last), "recipient": given["recipient"], "amount": amount}
        return {**terms, "requiredConfirmations": confirmations}
    return {"address": before if parts.path.startswith("/rpc/address/") else last}


Lie = Callable[[str, Callable[[], Reply]], Reply | None]
"""Gets path and query, and what asks the node; None for the node's own answer."""


@define
class Between:
    """Where it listens, and what it answers at present."""

    url: str
    lie: Lie | None = None
    asked: list[str] = field(factory=list)
    """Path and query of every request, as they arrived."""


@contextmanager
def between(node: RunningNode) -> Iterator[Between]:
    """A server that passes everything on to a node, until it is told to lie."""

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            given.asked.append(self.path)
            reply = None if given.lie is None else given.lie(self.path, lambda: self._ask_node(body))
            reply = reply or self._ask_node(body)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def _ask_node(self, body: bytes) -> Reply:
            connection = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            try:
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                passed = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
                return Reply(answer.status, passed, answer.read())
            finally:
                connection.close()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A browser that goes away while it is answered is no fault."""

    server = Server(("127.0.0.1", 0), Passing)
    given = Between(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield given
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
