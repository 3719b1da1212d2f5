"""`svc webhook …`: what is asked of a node and how its answer reads; and the receiver as a process of its own."""

# Twisted's interfaces have names of their own.
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

from svcd.net.addresses import AddressPolicy
from svcd.net.pinned import PinnedCaller
from svcd.net.targets import Rules
from svcd.net.trust import load_trust
from svcd.rpc.webhooks import Offer, WebhookRoutes
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients
from tests.commerce.watched import Watched
from tests.net.certificates import sign
from tests.net.conftest import Answers
from tests.rpc.node import COMMON, UNLIMITED, Public
from tests.wallet.events import OLD_SECRET, SECRET, encoded, event, headers
from tests.wallet.terminal import OTHER, Terminal, site_of
from tests.wallet.test_bind import write_key
from tests.wallet.test_chain_commands import rows

SVC = str(Path(sys.executable).parent / "svc")
DEADLINE = 120.0

TOKEN = "management-token-of-these-tests-0123"
WATCH_ID = "svcwh_" + "5b1f7d26" * 4
CALLBACK = "https://shop.example.org/paid"
TXID = "ab" * 32


def watch(**changes: Any) -> dict[str, Any]:
    """A subscription as a node answers with it."""
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
    """An event of a watch as a node shows it."""
    return {
        "id": "svcevt_" + "0" * 32,
        "event": "payment.confirming",
        "createdAt": "1795132801000",
        "attempts": 0,
        "deliveredAt": None,
        "nextAttemptAt": None,
        "lastError": None,
        **changes,
    }


class Keeping(Resource):
    """A node that answers every request with one subscription, and keeps what was asked."""

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


def test_register_asks_with_the_least(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer = (201, keeping.answer[1])
    told = rows(terminal.ok(*REGISTER, env=ENVIRONMENT).out)
    body = {"reference": "order-17", "recipient": OTHER, "amountBaseUnits": "2500000000", "callbackUrl": CALLBACK}
    assert keeping.asked == [(b"POST", b"/rpc/commerce/webhooks", body)]
    assert keeping.tokens == [f"Bearer {TOKEN}"]
    assert told == {
        "watch": WATCH_ID,
        "active": "yes",
        "reference": "order-17",
        "recipient": OTHER,
        "amount": "25 coins",
        "confirmations": "12 required",
        "last state": "unpaid",
        "payment": "unpaid, 0 of 12 confirmations",
        "callback": CALLBACK,
        "created": "2026-11-20 00:00:01 UTC",
        "expires": "2026-11-21 00:00:01 UTC",
    }


def test_register_asks_for_everything_that_is_given(terminal: Terminal, keeping: Keeping) -> None:
    terminal.ok(*REGISTER, "--confirmations", 1, "--ttl", 60, "--since-height", 7, env=ENVIRONMENT)
    _, _, body = keeping.asked[0]
    assert {name: body[name] for name in ("confirmations", "ttlSeconds", "sinceHeight")} == {
        "confirmations": 1,
        "ttlSeconds": 60,
        "sinceHeight": "7",
    }


def test_as_json_it_is_the_subscription_object(terminal: Terminal, keeping: Keeping) -> None:
    for words in (REGISTER, ("webhook", "show", WATCH_ID), ("webhook", "cancel", WATCH_ID)):
        assert json.loads(terminal.ok(*words, "--json", env=ENVIRONMENT).out) == watch()


def test_show_and_cancel_ask_for_one_watch(terminal: Terminal, keeping: Keeping) -> None:
    terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT)
    keeping.answer = (200, {"ok": True, "subscription": watch(active=False, ending="cancelled")})
    assert rows(terminal.ok("webhook", "cancel", WATCH_ID, env=ENVIRONMENT).out)["active"] == "no, cancelled"
    path = f"/rpc/commerce/webhooks/{WATCH_ID}".encode()
    assert keeping.asked == [(b"GET", path, None), (b"POST", path + b"/cancel", {})]


def test_show_tells_payment_and_deliveries(terminal: Terminal, keeping: Keeping) -> None:
    payment = {"state": "confirming", "txid": TXID, "confirmations": 1, "requiredConfirmations": 1}
    events = [
        delivery(attempts=3, lastError="status 500", nextAttemptAt="1795132921000"),
        delivery(attempts=1, deliveredAt="1795132802000"),
        delivery(superseded=True),
        delivery(superseded=True, attempts=2),
        delivery(abandoned=True, attempts=13, lastError="timeout"),
        delivery(dropped=True),
        delivery(),
    ]
    keeping.answer[1]["subscription"] = watch(payment=payment, events=events, sinceHeight="40")
    text = terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT).out
    told = rows(text.partition("\n\n")[0])
    assert (told["payment"], told["txid"]) == ("confirming, 1 of 1 confirmation", TXID)
    assert (told["since height"], told["events"]) == ("40", "7")
    heads, ids, ends = (text.partition("\n\n")[2].replace("\n\n", "\n").splitlines()[n::3] for n in range(3))
    assert set(heads) == {"  payment.confirming, 2026-11-20 00:00:01 UTC"}
    assert set(ids) == {"    svcevt_" + "0" * 32}
    assert ends == [
        "    not delivered: 3 attempts, the last failed: status 500, the next 2026-11-20 00:02:01 UTC",
        "    delivered 2026-11-20 00:00:02 UTC, 1 attempt",
        "    not delivered, a newer one took its place: 0 attempts",
        "    not delivered, a newer one took its place: 2 attempts",
        "    not delivered, given up: 13 attempts, the last failed: timeout",
        "    not delivered, dropped when the watch ended: 0 attempts",
        "    not delivered: 0 attempts",
    ]


def test_a_node_cannot_drive_the_terminal(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer[1]["subscription"] = watch(
        lastState="\x1b[2J", events=[delivery(lastError="\x1b[2J", event="\x1b]0;")]
    )
    assert "\x1b" not in terminal.ok("webhook", "show", WATCH_ID, env=ENVIRONMENT).out


def test_the_token_comes_from_a_file_of_its_owner_or_the_environment(terminal: Terminal, keeping: Keeping) -> None:
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
    assert "must hold UTF-8 text, the token alone" in terminal.failure(
        "webhook", "show", WATCH_ID, "--token-file", file
    )


def test_without_a_token_nothing_is_asked(terminal: Terminal, keeping: Keeping) -> None:
    for words in (REGISTER, ("webhook", "show", WATCH_ID), ("webhook", "cancel", WATCH_ID)):
        sentence = "the management token is missing: give --token-file, or set SVC_MANAGE_TOKEN"
        assert terminal.misuse(*words) == sentence
    split = {"SVC_MANAGE_TOKEN": "one\r\nX-Other: two"}
    assert "printable ASCII" in terminal.failure("webhook", "show", WATCH_ID, env=split)
    assert keeping.asked == []


def test_a_refusal_is_told_in_the_node_s_words(terminal: Terminal, keeping: Keeping) -> None:
    for status, sentence in ((401, "this needs the right token"), (503, "webhooks are switched off")):
        keeping.answer = (status, {"ok": False, "error": sentence})
        assert terminal.failure(*REGISTER, env=ENVIRONMENT) == sentence


def test_where_no_answer_comes_the_command_can_be_repeated(terminal: Terminal, keeping: Keeping) -> None:
    keeping.answer = (201, {})
    assert terminal.failure(*REGISTER, env=ENVIRONMENT).endswith(
        "The watch may have been made all the same; the same command again shows it and makes no second one"
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("show", "svcwh_1"), "the id of a watch is svcwh_ and 32 lower-case hex digits"),
        (("cancel", "../status"), "the id of a watch is svcwh_ and 32 lower-case hex digits"),
        (("register", "a b", OTHER, "1", "--callback", CALLBACK), "paymentReference must be 1 to 64"),
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


def test_a_short_secret_is_no_node_s(terminal: Terminal) -> None:
    file = secret_file(terminal.folder, "short")
    assert terminal.failure("webhook", "listen", "--secret-file", file).endswith(
        "has 5 characters; that of a node has at least 32"
    )


# Against the routes of a node


@pytest.fixture
def watched(terminal: Terminal, tmp_path: Path) -> Iterator[Watched]:
    """A node in memory with webhooks, behind the terminal."""
    watched = Watched(tmp_path, terminal.clock)
    reactor: Any = terminal.clock
    policy = AddressPolicy(allow_private=False)
    caller = PinnedCaller(reactor, resolver=Answers(["93.184.215.14"]), policy=policy, trust=load_trust())
    offer = Offer(problem="", token=TOKEN, default_ttl=86_400, max_ttl=604_800)
    rules = Rules.for_callbacks()
    routes = WebhookRoutes(watched.node.params, offer, webhooks=watched.webhooks, rules=rules, caller=caller)
    public = Public(COMMON, Clients(), Buckets({**UNLIMITED, "webhooks": Rate(0, 1)}))
    terminal.public.site = watched.node.sites.public([routes], public)
    yield watched
    watched.close()


def test_a_watch_from_its_beginning_to_its_end(terminal: Terminal, watched: Watched) -> None:
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
    assert (told["active"], told["payment"], told["events"]) == ("yes", "pending, 0 of 2 confirmations", "1")
    assert "  payment.pending, " in text

    text = terminal.ok("webhook", "cancel", begun["id"], env=ENVIRONMENT).out
    assert rows(text)["active"] == "no, cancelled"
    assert text.endswith("    not delivered, dropped when the watch ended: 0 attempts\n")


def test_what_the_routes_refuse(terminal: Terminal, watched: Watched) -> None:
    show = ("webhook", "show", WATCH_ID)
    assert terminal.failure(*show, env=ENVIRONMENT) == "there is no webhook of that id here"
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
        """The status of the answer to this."""
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
        """Exit status after a signal, and what else was said."""
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
    """Starts a receiver with these words and the tests' secret."""
    started: list[Listening] = []

    def start(*words: object) -> Listening:
        started.append(Listening(tmp_path, "--secret-file", secret_file(tmp_path), *words))
        return started[-1]

    yield start
    for listening in started:
        listening.close()


@pytest.mark.socket
def test_listen_prints_good_events_refuses_forged_ones_and_ends_at_ctrl_c(listen: Listen) -> None:
    listening, body = listen(), encoded(event())
    assert listening.send(body) == 200
    assert listening.out().endswith(f"  payment.confirming  order-17  confirming 3 of 12  {event()['id']}")
    assert listening.send(body, headers(body, int(time.time()), "forged" * 6)) == 401
    assert listening.err().startswith("refused: X-Svc-Signature must be")
    assert listening.send(body, headers(body, int(time.time()) - 301)) == 401
    assert listening.err().startswith("refused: X-Svc-Timestamp must be within 300 s")
    assert listening.send(body) == 200
    assert listening.out().endswith(f"{event()['id']}  again")
    assert listening.stop() == (0, "", "")


@pytest.mark.socket
def test_listen_is_not_moved_by_junk(listen: Listen) -> None:
    listening = listen()
    assert listening.send(b"not JSON") == 400
    assert listening.err() == "refused: the body is signed but no JSON object"
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
def test_listen_takes_two_secrets_while_one_is_being_replaced(listen: Listen, tmp_path: Path) -> None:
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
def test_listen_ends_when_nobody_reads_it(listen: Listen) -> None:
    listening = listen()
    assert listening.process.stdout is not None
    listening.process.stdout.close()
    assert listening.send(encoded(event())) == 503
    assert listening.process.wait(DEADLINE) == 1
    assert "Traceback" not in listening.err()


@pytest.mark.socket
def test_listen_fails_where_the_port_is_taken(listen: Listen, tmp_path: Path) -> None:
    taken = listen().port
    done = subprocess.run(
        [SVC, "webhook", "listen", "--secret-file", secret_file(tmp_path), "--listen", f"127.0.0.1:{taken}"],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    sentence = f"cannot listen at 127.0.0.1 port {taken}: address already in use; choose another place with --listen"
    assert done.stderr == f"Error: {sentence}\n"
