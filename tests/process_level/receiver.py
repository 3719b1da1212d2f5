"""A merchant's receiver: a real HTTPS server that checks every event with the program of docs/webhooks.md."""

import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from tests.net.certificates import Signed

PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"


def published_verifier() -> Callable[[str, str, str, bytes, float], bool]:
    """`genuine` of receive.py, as merchants copy it."""
    (text,) = re.findall(r"^```python\n([^`]*?def genuine.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(text, "receive.py", "exec"), names)  # noqa: S102
    genuine: Callable[[str, str, str, bytes, float], bool] = names["genuine"]
    return genuine


class Behaviour:
    """What the receiver does with a request, one after the other; the last one goes on for ever."""

    def __init__(self, *names: str) -> None:
        self._names = list(names) or ["take"]
        self._lock = threading.Lock()

    def next(self) -> str:
        with self._lock:
            return self._names.pop(0) if len(self._names) > 1 else self._names[0]


class Receiver:
    """Takes events in; what it has answered 200 to is in `events`, in order of arrival."""

    def __init__(self, secret: str, behaviour: Behaviour | None = None) -> None:
        self.secret = secret
        self.behaviour = behaviour or Behaviour()
        self.events: list[dict[str, Any]] = []
        self.bodies: dict[str, set[bytes]] = {}
        self.faults: list[str] = []
        self.requests = 0
        self.port = 0
        self.taken: frozenset[str] | None = None
        """The only events that are taken, by name; the others are answered with ``refusal``. None for all."""
        self.refusal = 400
        self.refused: dict[str, int] = {}
        """How often each event was refused, by id."""
        self._genuine = published_verifier()
        self._lock = threading.Lock()

    @contextmanager
    def serving(self, certificate: Signed, folder: Path, port: int = 0) -> Iterator[None]:
        """Listen on loopback with this certificate."""
        server = ThreadingHTTPServer(("127.0.0.1", port), self._requests())
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        pem = folder / "receiver.pem"
        key = certificate.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pem.write_bytes(key + certificate.pem)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    @property
    def names(self) -> list[str]:
        """What was told, without repetitions: event, state and depth."""
        seen: dict[str, str] = {}
        for event in list(self.events):
            payment = event["payment"]
            name = event["event"].removeprefix("payment.")
            seen.setdefault(event["id"], f"{name}: {payment['state']} {payment['confirmations']}")
        return list(seen.values())

    def take(self, headers: Any, body: bytes) -> None:
        """Check one event as the docs ask for, and keep it."""
        genuine = self._genuine(
            self.secret, headers["X-Svc-Timestamp"] or "", headers["X-Svc-Signature"] or "", body, time.time()
        )
        event = json.loads(body)
        with self._lock:
            if not genuine:
                self.faults.append(f"not genuine: {body!r}")
            if (headers["X-Svc-Event-Id"], headers["X-Svc-Event"]) != (event["id"], event["event"]):
                self.faults.append(f"headers differ from the body: {body!r}")
            bodies = self.bodies.setdefault(event["id"], set())
            bodies.add(body)
            if len(bodies) > 1:
                self.faults.append(f"another body under the same id: {bodies}")
            self.events.append(event)

    def check(self) -> None:
        """Fail if anything was not as promised: forged, changed, or out of order within a watch."""
        assert self.faults == []
        firsts: dict[str, list[tuple[int, int]]] = {}
        for event in list(self.events):
            places = firsts.setdefault(event["subscriptionId"], [])
            place = (event["epoch"], event["sequence"])
            if place not in places:
                places.append(place)
        for watch, places in firsts.items():
            assert places == sorted(places), (watch, places)

    def _requests(receiver) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Requests(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests += 1
                name, identifier = self.headers["X-Svc-Event"], self.headers["X-Svc-Event-Id"]
                if receiver.taken is not None and name not in receiver.taken:
                    receiver.refused[identifier] = receiver.refused.get(identifier, 0) + 1
                    self._answer(receiver.refusal)
                    return
                behaviour = receiver.behaviour.next()
                if behaviour == "take":
                    receiver.take(self.headers, body)
                getattr(self, "_" + behaviour.replace(" ", "_"))()

            def _answer(self, status: int, *headers: tuple[str, str], body: bytes = b"") -> None:
                self.send_response(status)
                for name, value in (("Content-Length", str(len(body))), *headers):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def _take(self) -> None:
                self._answer(200)

            def _fail(self) -> None:
                self._answer(500)

            def _redirect(self) -> None:
                self._answer(302, ("Location", "http://169.254.169.254/"))

            def _hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

            def handle(self) -> None:
                # Who hangs up on us is no fault of ours.
                try:
                    super().handle()
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Requests
