"""`svc webhook …`: the requests to a node, its responses as text, and the listener as a process."""

# Twisted's interfaces use camelCase.
# ruff: noqa: N815

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.web.resource import Resource

from tests.cli.merchant.conftest import TOKEN
from tests.cli.merchant.events import OLD_SECRET, SECRET, encoded, event, headers
from tests.cli.merchant.test_listener import write_key
from tests.cli.terminal import OTHER, Terminal, site_of
from tests.cli.test_chain_commands import rows
from tests.commerce.watched import Watched
from tests.net.certificates import sign

SVC = str(Path(sys.executable).parent / "svc")
DEADLINE = 120.0

WATCH_ID = "svcwh_" + "5b1f7d26" * 4
CALLBACK = "https://shop.example.org/paid"
TXID = "ab" * 32


def watch(**changes: Any) -> dict[str, Any]:
    """A subscription in a node's response."""
    payment = {"state": "unpaid", "canonical": False, "confirmations": 0, "requiredConfirmations": 12}
    return {
        "id": WATCH_ID,
        "active": True,
        "reference": "order-17",
        "recipient": OTHER,
        "amount": "2500000000",
        "requiredConfirmations": 12,
        "lastState": "unpaid",
        "callbackUrl": CALLBACK,
        "createdAt": "1795132801000",
        "expiresAt": "1795219201000",
        "payment": payment,
        **changes,
    }


def delivery(**changes: Any) -> dict[str, Any]:
    """An event of a watch in a node's response."""
    return {
        "id": "svcevt_" + "0" * 32,
        "event": "payment.confirming",
        "createdAt": "1795132801000",
        "attempts": 0,
        "deliveredAt": None,
        "nextAttemptAt": None,
        "lastError": None,
        "content": {
            "payment": {"state": "confirming", "confirmations": 1, "blockHash": "aa", "blockHeight": "7"},
            "tip": {"height": "7", "hash": "aa"},
        },
        **changes,
    }


class Keeping(Resource):
    """A node that responds to every request with one subscription, and records the requests."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[bytes, bytes, Any]] = []
        self.tokens: list[bytes | None] = []
        self.answer: tuple[int, dict[str, Any]] = (200, {"ok": True, "subscription": watch()})

    def render(self, request: Any) -> bytes:
        body = request.content.read()
        self.asked.append((request.method, request.path, json.loads(body) if body else None))
        self.tokens.append(request.getHeader("Authorization"))
        status, answer = self.answer
        request.setResponseCode(status)
        return json.dumps(answer).encode()


@pytest.fixture
def keeping(terminal: Terminal) -> Keeping:
    """The node behind the terminal."""
    keeping = Keeping()
    terminal.public.site = site_of(keeping, terminal.clock)
    return keeping


ENVIRONMENT = {"SVC_MANAGE_TOKEN": TOKEN}
REGISTER = ("webhook", "register", "order-17", OTHER, "25", "--callback", CALLBACK)


def test_register_sends_only_required_fields_by_default(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer = (201, keeping.answer[1])
    table, end = terminal.ok(*REGISTER, env=ENVIRONMENT).out.split("\n\n")
    told = rows(table)
    body = {"reference": "order-17", "recipient": OTHER, "amountBaseUnits": "2500000000", "callbackUrl": CALLBACK}
    assert keeping.asked == [(b"POST", b"/rpc/commerce/webhooks", body)]
    assert keeping.tokens == [f"Bearer {TOKEN}"]
    assert told == {
        "watch": WATCH_ID,
        "active": "yes",
        "reference": "order-17",
        "recipient": OTHER,
        "amount": "25 SVC",
        "confirmations": "12 required",
        "last state": "unpaid",
        "payment": "unpaid, 0 of 12 confirmations",
        "callback": CALLBACK,
        "created": "2026-11-20 00:00:01 UTC",
        "expires": "2026-11-21 00:00:01 UTC",
    }
    assert end == "next: the payment must be confirmed by 2026-11-21 00:00:01 UTC; otherwise payment.expired\n"


def test_register_sends_every_given_option(terminal: Terminal, keeping: Keeping) -> None:
    names = ("--event", "payment.confirmed", "--event", "payment.reorged")
    since = ("--since-height", 7)
    keeping.answer = (201, {"ok": True, "subscription": watch(requiredConfirmations=1, sinceHeight="7")})
    terminal.ok(*REGISTER, "--confirmations", 1, "--ttl", 600, "--pay-within", 60, *since, *names, env=ENVIRONMENT)
    _, _, body = keeping.asked[0]
    assert body["events"] == ["payment.confirmed", "payment.reorged"]
    assert {name: body[name] for name in ("confirmations", "ttlSeconds", "payWithinSeconds", "sinceHeight")} == {
        "confirmations": 1,
        "ttlSeconds": 600,
        "payWithinSeconds": 60,
        "sinceHeight": "7",
    }


def test_register_as_json_is_the_subscription_object(terminal: Terminal, keeping: Keeping) -> None:
    for words in (REGISTER, ("webhook", "show", WATCH_ID), ("webhook", "cancel", WATCH_ID)):
        assert json.loads(terminal.ok(*words, "--json", env=ENVIRONMENT).out) == watch()


def test_show_and_cancel_request_one_watch(terminal: Terminal, keeping: Keeping) -> None:
    terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT)
    keeping.answer = (200, {"ok": True, "subscription": watch(active=False, ending="cancelled")})
    assert rows(terminal.ok("webhook", "cancel", WATCH_ID, env=ENVIRONMENT).out)["active"] == "no, cancelled"
    path = f"/rpc/commerce/webhooks/{WATCH_ID}".encode()
    assert keeping.asked == [(b"GET", path, None), (b"POST", path + b"/cancel", {})]


def test_a_node_cannot_drive_the_terminal(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer[1]["subscription"] = watch(
        lastState="\x1b[2J", events=[delivery(lastError="\x1b[2J", event="\x1b]0;")]
    )
    assert "\x1b" not in terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT).out


def test_the_token_comes_from_a_private_file_or_the_environment(terminal: Terminal, keeping: Keeping) -> None:
    file = terminal.folder / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    terminal.ok("webhook", "show", WATCH_ID, "--token-file", file, env={"SVC_MANAGE_TOKEN": "another"})
    terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT)
    assert keeping.tokens == [f"Bearer {TOKEN}"] * 2
    file.chmod(0o644)
    assert "is open to others" in terminal.failure("webhook", "show", WATCH_ID, "--token-file", file)
    file.write_bytes(b"\xff")
    file.chmod(0o600)
    assert "must be UTF-8 text; the byte at offset 0 is not" in terminal.failure(
        "webhook", "show", WATCH_ID, "--token-file", file
    )


@pytest.mark.parametrize(
    "words",
    [
        ("show", WATCH_ID),
        ("cancel", WATCH_ID),
        ("watch", "order-17"),
        ("list",),
        ("events", WATCH_ID),
        ("redeliver", WATCH_ID, "svcevt_" + "9c145d42" * 4),
        ("trigger", "webhook.test", "--callback", CALLBACK),
        ("register", "order-17", OTHER, "2.5", "--callback", CALLBACK),
    ],
    ids=lambda words: words[0],
)
def test_a_token_does_not_cross_a_network_unencrypted(
    terminal: Terminal, keeping: Keeping, words: tuple[str, ...]
) -> None:
    away = ("webhook", *words, "--url", "http://node.example.org")
    assert terminal.failure(*away, env=ENVIRONMENT) == (
        "the token would cross the network unencrypted to http://node.example.org: use https://, or a tunnel to this"
        " computer; --insecure-http sends it anyway"
    )
    assert keeping.tokens == []
    if words[0] == "watch":
        return  # It would follow the order for ever.
    told = terminal.invoke(*away, "--insecure-http", env=ENVIRONMENT)
    assert told.stderr.startswith("Warning: http://node.example.org is not encrypted")
    assert keeping.tokens == [f"Bearer {TOKEN}"]


def test_without_a_token_no_request_is_sent(terminal: Terminal, keeping: Keeping) -> None:
    missing = "is missing: give --token-file, or set SVC_MANAGE_TOKEN"
    for words in (
        REGISTER,
        ("webhook", "cancel", WATCH_ID),
        ("webhook", "trigger", "webhook.test", "--callback", CALLBACK),
    ):
        assert terminal.misuse(*words) == f"the management token {missing}"
    for name in ("show", "watch", "events", "list"):
        words = ("webhook", name, *([] if name == "list" else [WATCH_ID]))
        assert terminal.misuse(*words) == f"the management token or read-only token {missing}"
    split = {"SVC_MANAGE_TOKEN": "one\r\nX-Other: two"}
    assert "printable ASCII" in terminal.failure("webhook", "show", WATCH_ID, env=split)
    assert keeping.asked == []


def test_without_a_response_the_command_can_be_repeated(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer = (201, {})
    assert terminal.failure(*REGISTER, env=ENVIRONMENT).endswith(
        "The watch may still have been created; repeating the command shows it and creates no second one"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "a b"), ": reference must be 1 to 64"),
        (("events", "a/b"), ": reference must be 1 to 64"),
        (("watch",), "Missing argument 'ORDER...'"),
        (
            ("watch", "order-1", "a b"),
            ": reference must be 1 to 64",
        ),
        (("redeliver", "svcwh_1", "svcevt_1"), "the id of a watch is svcwh_ and 32 lower-case hex digits"),
        (("cancel", "../status"), "the id of a watch is svcwh_ and 32 lower-case hex digits"),
        (
            ("register", "a b", OTHER, "1", "--callback", CALLBACK),
            ": reference must be 1 to 64",
        ),
        (("register", "a", OTHER, "-1", "--callback", CALLBACK), "amount must be a decimal"),
        (("register", "a", "nobody", "1", "--callback", CALLBACK), "an address begins with"),
        (("register", "a", OTHER, "1"), "Missing option '--callback'"),
        (("register", "a", OTHER, "1", "--callback", CALLBACK, "--confirmations", "1001"), "from 1 to 1000"),
        (("register", "a", OTHER, "1", "--callback", CALLBACK, "--ttl", "59"), "from 60 to 604800"),
        (("listen", "--secret-file", "s", "--listen", "8080"), "must be an address and a port"),
        (("listen",), "Missing option '--secret-file'"),
        (("listen", "--secret-file", "s", "--tls-key", "k"), "--tls-cert and --tls-key go together"),
    ],
)
def test_a_wrong_call(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.misuse("webhook", *words, env=ENVIRONMENT)


def secret_file(folder: Path, secret: str = SECRET) -> Path:
    path = folder / f"secret-{len(secret)}-{secret[-1]}"
    path.write_text(f" {secret} \n")
    path.chmod(0o600)
    return path


def test_a_short_secret_is_rejected(terminal: Terminal) -> None:
    file = secret_file(terminal.folder, "short")
    assert terminal.failure("webhook", "listen", "--secret-file", file).endswith(
        "has 5 characters; a node's secret has at least 32"
    )


# Against the routes of a node


def test_the_life_of_a_watch(terminal: Terminal, watched: Watched) -> None:
    bob = watched.node.address("bob")
    words = (
        "webhook",
        "register",
        "order-1",
        bob,
        "0.00005",
        "--callback",
        CALLBACK,
        "--confirmations",
        2,
        "--ttl",
        60,
    )
    begun = json.loads(terminal.ok(*words, "--since-height", 0, "--json", env=ENVIRONMENT).out)
    assert (begun["amount"], begun["requiredConfirmations"], begun["sinceHeight"]) == ("5000", 2, "0")
    assert int(begun["expiresAt"]) - int(begun["createdAt"]) == 60_000
    again = json.loads(terminal.ok(*words, "--since-height", 0, "--json", env=ENVIRONMENT).out)
    assert again == begun | {"existing": True}

    watched.pay("5000 from alice to bob for order-1")
    text = terminal.ok("webhook", "show", begun["id"], env=ENVIRONMENT).out
    told = rows(text.partition("\n\n")[0])
    assert (told["active"], told["payment"]) == ("yes", "pending, 0 of 2 confirmations")
    assert "  payment.pending: pending, 0 of 2 confirmations\n" in text

    text = terminal.ok("webhook", "cancel", begun["id"], env=ENVIRONMENT).out
    assert rows(text)["active"] == "no, cancelled"
    assert "\n    not delivered, dropped when the watch ended: 0 attempts\n" in text
    assert text.endswith("\nnext: nothing, the watch was cancelled\n")


def test_deliveries_are_listed_and_repeated(terminal: Terminal, watched: Watched) -> None:
    assert terminal.ok("webhook", "list", env=ENVIRONMENT).out == "no watches\n"
    ids = [watched.register(f"order-{number}")["id"] for number in (1, 2)]
    assert terminal.ok("webhook", "events", ids[0], env=ENVIRONMENT).out == "no events\n"
    watched.pay("5000 from alice to bob for order-1")

    text = terminal.ok("webhook", "list", "--limit", 1, env=ENVIRONMENT).out
    assert text.splitlines()[1:] == [f"{ids[1]}  order-2    unpaid      yes               0", f"more: --after {ids[1]}"]
    words = ("webhook", "list", "--after", ids[1], "--state", "pending", "--host", "shop.example.com")
    text = terminal.ok(*words, env=ENVIRONMENT).out
    assert text.splitlines() == [
        "watch                                   reference  last state  active  undelivered",
        f"{ids[0]}  order-1    pending     yes               1",
    ]
    listed = json.loads(terminal.ok(*words, "--json", env=ENVIRONMENT).out)
    assert ([each["id"] for each in listed["subscriptions"]], listed["next"]) == (ids[:1], None)

    (body,) = watched.events()
    text = terminal.ok("webhook", "events", ids[0], env=ENVIRONMENT).out
    assert re.search(r"\n    delivered .*, 1 attempt\n", text)
    assert text.endswith(f"    {body['id']}\n")
    assert terminal.ok("webhook", "events", "order-1", env=ENVIRONMENT).out == text
    text = terminal.ok("webhook", "redeliver", ids[0], body["id"], env=ENVIRONMENT).out
    assert re.search(r"\n    to be delivered again: 1 attempt, next attempt .* \(2nd of 17\)\n", text)
    assert watched.events() == [body]
    refused = terminal.failure("webhook", "redeliver", ids[1], body["id"], env=ENVIRONMENT)
    assert refused == "this node has no event with that id for a watch with that id"


def test_a_callback_is_tested(terminal: Terminal, watched: Watched) -> None:
    words = ("webhook", "trigger", "webhook.test", "--callback", "https://shop.example.com/paid")
    assert terminal.ok(*words, env=ENVIRONMENT).out == "the callback answered 204 after 0.042 s\n"
    assert json.loads(terminal.ok(*words, "--json", env=ENVIRONMENT).out)["status"] == 204
    words = ("webhook", "trigger", "webhook.test", "--callback", "https://shop.example.com/broken")
    assert terminal.failure(*words, env=ENVIRONMENT) == "the callback failed after 0.042 s: status 500"


def test_errors_of_the_routes_are_reported(terminal: Terminal, watched: Watched) -> None:
    show = ("webhook", "show", WATCH_ID)
    assert terminal.failure(*show, env=ENVIRONMENT) == "this node has no watch with that id"
    assert "with the right token" in terminal.failure(*show, env={"SVC_MANAGE_TOKEN": "wrong"})
    words = ("webhook", "register", "order-1", watched.node.address("bob"), "1", "--callback", "http://localhost/")
    assert terminal.failure(*words, env=ENVIRONMENT) == "callbackUrl must begin with https://"


# As a process


class Listening:
    """One `svc webhook listen` at a free port."""

    def __init__(self, folder: Path, *words: object) -> None:
        self.process = subprocess.Popen(
            [SVC, "webhook", "listen", "--listen", "127.0.0.1:0", *map(str, words)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "SVCD_"))},
        )
        self.timer = threading.Timer(DEADLINE, self.process.kill)
        self.timer.start()
        said = self.err()
        match = re.fullmatch(r"listening on (https?)://127\.0\.0\.1:([0-9]+)/ until Ctrl-C", said)
        assert match, said
        self.scheme, self.port = match[1], int(match[2])

    def out(self) -> str:
        """The next line of standard output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def err(self) -> str:
        """The next line of standard error."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().rstrip("\n")

    def send(self, body: bytes, sent: dict[str, str] | None = None, method: str = "POST") -> int:
        """The HTTP status of the response to a callback."""
        if self.scheme == "https":
            context = ssl.create_default_context(cafile=None)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            secure = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=DEADLINE, context=context)
            return self._send(secure, body, sent, method)
        return self._send(http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE), body, sent, method)

    def _send(self, connection: http.client.HTTPConnection, body: bytes, sent: Any, method: str) -> int:
        try:
            connection.request(method, "/paid", body, headers(body, int(time.time())) if sent is None else sent)
            return connection.getresponse().status
        finally:
            connection.close()

    def stop(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """Send a signal; returns the exit status and the remaining output."""
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err

    def close(self) -> None:
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()


Listen = Callable[..., Listening]


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Listen]:
    """Starts a listener with these arguments and the tests' secret."""
    started: list[Listening] = []

    def start(*words: object) -> Listening:
        started.append(Listening(tmp_path, "--secret-file", secret_file(tmp_path), *words))
        return started[-1]

    yield start
    for listening in started:
        listening.close()


@pytest.mark.socket
def test_listen_prints_events_rejects_forgeries_and_ends_at_ctrl_c(listen: Listen) -> None:
    listening, body = listen(), encoded(event())
    assert listening.send(body) == 200
    assert listening.out().endswith(f"  payment.confirming  order-17  confirming 3 of 12  {event()['id']}")
    assert listening.send(body, headers(body, int(time.time()), "forged" * 6)) == 401
    assert listening.err().startswith("rejected: X-Svc-Signature must be")
    assert listening.send(body, headers(body, int(time.time()) - 301)) == 401
    assert listening.err().startswith("rejected: X-Svc-Timestamp must be within 300 s")
    assert listening.send(body) == 200
    assert listening.out().endswith(f"{event()['id']}  again")
    assert listening.stop() == (0, "", "")


@pytest.mark.socket
def test_listen_survives_junk(listen: Listen) -> None:
    listening = listen()
    assert listening.send(b"not JSON") == 400
    assert (
        listening.err() == "rejected: the body is signed but is not an event: not JSON: expecting value at character 0"
    )
    assert listening.send(b"x" * 100_000) == 413
    assert listening.send(b"", {}, "GET") == 405
    for junk in (b"\x16\x03\x01\r\n\r\n", b"junk\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", listening.port), timeout=DEADLINE) as connection:
            connection.sendall(junk)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert listening.send(encoded(event())) == 200
    assert listening.stop(signal.SIGTERM)[::2] == (0, "")


@pytest.mark.socket
def test_listen_as_json_prints_each_body_once(listen: Listen) -> None:
    listening = listen("--json")
    for number in (1, 1, 2):
        assert listening.send(encoded(event(number))) == 200
    assert json.loads(listening.out()) == event(1)
    assert json.loads(listening.out()) == event(2)
    assert listening.err().endswith("  again")
    assert listening.stop() == (0, "", "")


@pytest.mark.socket
def test_listen_accepts_two_secrets_during_rotation(listen: Listen, tmp_path: Path) -> None:
    listening, body = listen("--secret-file", secret_file(tmp_path, OLD_SECRET)), encoded(event())
    assert listening.send(body) == 200
    assert listening.send(body, headers(body, int(time.time()), OLD_SECRET)) == 200


@pytest.mark.socket
def test_listen_over_tls(listen: Listen, tmp_path: Path) -> None:
    signed = sign("127.0.0.1", by=None)
    (tmp_path / "certificate.pem").write_bytes(signed.pem)
    key = write_key(tmp_path / "key.pem", signed)
    listening = listen("--tls-cert", "certificate.pem", "--tls-key", key)
    assert listening.scheme == "https"
    assert listening.send(encoded(event())) == 200
    assert listening.stop()[0] == 0


@pytest.mark.socket
def test_listen_ends_when_its_output_is_closed(listen: Listen) -> None:
    listening = listen()
    assert listening.process.stdout is not None
    listening.process.stdout.close()
    assert listening.send(encoded(event())) == 503
    assert listening.process.wait(DEADLINE) == 128 + signal.SIGPIPE
    assert "Traceback" not in listening.err()


@pytest.mark.socket
def test_listen_fails_if_the_port_is_in_use(listen: Listen, tmp_path: Path) -> None:
    taken = listen().port
    done = subprocess.run(
        [SVC, "webhook", "listen", "--secret-file", secret_file(tmp_path), "--listen", f"127.0.0.1:{taken}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    sentence = f"cannot listen at 127.0.0.1 port {taken}: address already in use; choose another address with --listen"
    assert done.stderr == f"Error: {sentence}\n"
