"""The receivers to copy, run as a merchant would run them, and what docs/webhook-reference.md says of events."""

import ast
import hmac
import http.client
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, get_args

import pytest
from attrs import evolve, frozen

from svcd.chain.params import DEVNET
from svcd.commerce import circuit_breaker, delivery_scheduler, dispatcher, retry_policy, sender, signing
from svcd.commerce.events import DEFAULT_EVENTS, EVENT_RULES, ChainIdentity, EventType, event_body
from svcd.commerce.payment import ChainTip, Observation, PaymentLocation
from svcd.commerce.payment_request import MAX_CONFIRMATIONS, PaymentTerms
from svcd.commerce.watch import EvaluationContext, Watch, evaluate
from svcd.config.schema import Limits
from svcd.net.calls import Category
from tests.process_level.running import DEADLINE, free_port
from tests.programs import NODE_OPTIONS, needs

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "webhooks.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "webhook-reference.md").read_text(encoding="utf-8")
CLIENT = (ROOT / "clients" / "javascript" / "README.md").read_text(encoding="utf-8")
EVENTS = json.loads((ROOT / "tests" / "vectors" / "webhook_events.json").read_text(encoding="utf-8"))
SIGNED = EVENTS["signed"]
CASES = json.loads((ROOT / "tests" / "vectors" / "webhook_signature.json").read_text(encoding="utf-8"))["cases"]

node_only = needs("node")


def block(text: str, language: str, mark: str) -> str:
    """The only code block of a language with this in it."""
    (found,) = [
        each for each in re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if mark in each
    ]
    return str(found)


PROGRAMS = {
    "receive.py": block(GUIDE, "python", "def genuine"),
    "receive.mjs": block(CLIENT, "js no-run", "createServer"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the page under their names."""
    folder = tmp_path_factory.mktemp("programs")
    for name, text in PROGRAMS.items():
        assert f"`{name}`" in GUIDE
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "svc-pay").symlink_to(ROOT / "clients" / "javascript")
    return folder


def test_the_programs_need_nothing_else() -> None:
    script, program = PROGRAMS["receive.mjs"], PROGRAMS["receive.py"]
    assert all(name.startswith(("node:", "svc-pay")) for name in re.findall(r'from "([^"]+)"', script))
    assert not re.search(r"require|import\(", script)
    statements = [each for each in ast.walk(ast.parse(program)) if isinstance(each, ast.Import | ast.ImportFrom)]
    names = {
        name.split(".")[0]
        for each in statements
        for name in ([alias.name for alias in each.names] if isinstance(each, ast.Import) else [str(each.module)])
    }
    assert len(names) > 5
    assert names <= sys.stdlib_module_names
    assert all(len(line) <= 120 for text in PROGRAMS.values() for line in text.splitlines())
    assert f'GENESIS = "{DEVNET.genesis_hash.hex()}"' in program


# Verification


@frozen
class Case:
    """One question to a verifier, and the right answer."""

    secret: str
    timestamp: str
    signature: str
    body: str
    """In base64."""
    now: float
    right: bool


def encoded(body: bytes) -> str:
    return b64encode(body).decode()


def signed(secret: str, timestamp: str, body: bytes) -> str:
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()


def shown() -> Case:
    """The signed event of the vectors."""
    timestamp = SIGNED["X-Svc-Timestamp"]
    body = encoded(SIGNED["body"].encode())
    return Case(SIGNED["secret"], timestamp, SIGNED["X-Svc-Signature"], body, float(timestamp), True)


def questions() -> Iterator[Case]:
    """The vectors, and what the page says a verifier must refuse."""
    given = shown()
    yield from [evolve(given, now=given.now + away) for away in (0, -300, 300, 0.5)]
    yield evolve(given, signature=given.signature.replace("v1=", "V1="))
    yield evolve(given, signature=given.signature.upper())
    for case in CASES:
        timestamp = str(case["timestamp"])
        body = encoded(case["body"].encode())
        yield Case(case["secret"], timestamp, case["xSvcSignature"], body, float(timestamp), True)
    wrong = evolve(given, right=False)
    digest = given.signature[3:]
    yield evolve(wrong, secret=given.secret + "x")
    yield evolve(wrong, secret="")
    yield from [evolve(wrong, now=given.now + away) for away in (-301, 301, 10**9)]
    body = b64decode(given.body)
    changed = [body + b"\n", body[:-1], b" " + body, body.replace(b"25", b"26", 1), b""]
    yield from [evolve(wrong, body=encoded(each)) for each in changed]
    later = str(int(given.timestamp) + 1)
    times = [later, "", "now", f" {given.timestamp}", f"{given.timestamp}\n", f"0{given.timestamp}", "1e9", "9" * 16]
    yield from [evolve(wrong, timestamp=each) for each in times]
    forms = ["", "v1=", digest, f"v2={digest}", f"v1={digest[:-1]}", f"v1={digest}0"]
    forms += [
        f"v1={digest[:-1]}\ud800",
        f"v1={digest} ",
        f"v1=v1={digest}",
        f"v1={digest[:-1]}ü",
        f"{given.signature},{given.signature}",
    ]
    yield from [evolve(wrong, signature=each) for each in forms]


QUESTIONS = list(questions())
ASKING_PYTHON = """
import base64, json, sys
from receive import genuine
for line in sys.stdin:
    c = json.loads(line)
    print(json.dumps(genuine(c["secret"], c["timestamp"], c["signature"], base64.b64decode(c["body"]), c["now"])))
"""


def test_the_verifier_answers_every_question_right(folder: Path) -> None:
    lines = "".join(json.dumps({name: getattr(case, name) for name in Case.__slots__[:5]}) + "\n" for case in QUESTIONS)
    words = [sys.executable, "-c", ASKING_PYTHON]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, cwd=folder, timeout=DEADLINE, check=False)
    assert done.stderr == ""
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(QUESTIONS) > 30
    wrong = [case for case, answer in zip(QUESTIONS, answers, strict=True) if answer is not case.right]
    assert wrong == []


def test_the_signed_event_is_what_a_node_sends() -> None:
    case = shown()
    body = b64decode(case.body)
    assert signed(case.secret, case.timestamp, body) == case.signature
    sent = signing.signed_headers(
        signing.SigningKeys(case.secret),
        event_id=SIGNED["webhook-id"],
        event="payment.confirmed",
        body=body,
        timestamp=int(case.timestamp),
    )
    assert {name: SIGNED[name] for name in sent if name in SIGNED} == {
        name: sent[name] for name in sent if name in SIGNED
    }
    assert len(SIGNED.keys() & sent.keys()) == 5
    assert json.loads(body)["id"] == SIGNED["webhook-id"]
    assert f"accept it at `{case.timestamp}` and" in PAGE


def test_the_table_of_headers_is_what_a_node_sends() -> None:
    sent = signing.signed_headers(signing.SigningKeys("s"), event_id="i", event="e", body=b"", timestamp=0)
    for name in sent:
        assert f"`{name}`" in PAGE, name


@needs("sh", "base64", "tr")
def test_the_command_for_whsec_makes_the_key_of_standard_webhooks(tmp_path: Path) -> None:
    (tmp_path / "devnet").mkdir()
    (tmp_path / "devnet" / "signing-secret").write_text(SIGNED["secret"] + "\n")
    command = block(PAGE, "sh", "whsec_")
    done = subprocess.run(["sh", "-euc", command], capture_output=True, text=True, cwd=tmp_path, check=True)
    key = done.stdout.strip()
    message = f"{SIGNED['webhook-id']}.{SIGNED['webhook-timestamp']}.{SIGNED['body']}".encode()
    digest = hmac.new(b64decode(key.removeprefix("whsec_")), message, sha256).digest()
    assert SIGNED["webhook-signature"] == f"v1,{b64encode(digest).decode()}"


# The bodies of events

CHAIN = ChainIdentity(network_id=DEVNET.network_id, chain_id=DEVNET.chain_id, genesis_hash=DEVNET.genesis_hash)
EXAMPLES = EVENTS["events"]


def test_there_is_an_example_of_every_event_that_tells_the_state_of_the_payment() -> None:
    wanted = {name for name in DEFAULT_EVENTS if not EVENT_RULES[name].aside}
    assert [example["event"] for example in EXAMPLES] == [event.value for event in EventType if event in wanted]


def test_the_table_has_every_event() -> None:
    table = GUIDE.split("\n## Events\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", table, re.MULTILINE) == [event.value for event in EventType]


def watch_of(example: dict[str, Any]) -> Watch:
    payment = example["payment"]
    terms = PaymentTerms(
        payment["reference"], payment["recipient"], int(payment["amount"]), payment["requiredConfirmations"]
    )
    created = int(EXAMPLES[0]["createdAt"])
    expires = created + 10**9 if payment["reference"] == "order-17" else int(example["createdAt"])
    return Watch(
        id=example["subscriptionId"],
        merchant="default",
        terms=terms,
        callback_url="https://shop.example.org/paid",
        host="shop.example.org",
        created_at=created,
        expires_at=expires,
    )


def observation_of(example: dict[str, Any]) -> Observation:
    payment = example["payment"]
    tip = ChainTip(int(example["tip"]["height"]), bytes.fromhex(example["tip"]["hash"]))
    txid = bytes.fromhex(payment.get("txid", ""))
    if payment["canonical"]:
        block = bytes.fromhex(payment["blockHash"])
        location = PaymentLocation(txid, block, int(payment["blockHeight"]), 0, int(payment["blockTime"]))
        return Observation(tip, location=location, match_count=payment["matchCount"])
    return Observation(tip, pending=txid or None, match_count=payment["matchCount"])


def test_the_page_shows_one_of_the_examples() -> None:
    assert json.loads(block(PAGE, "json", '"sequence": 4')) == EXAMPLE


def test_the_examples_are_what_a_watch_says() -> None:
    """A watch is shown what the examples say was there to see, and must say the examples, byte for byte."""
    said: list[bytes] = []
    for _, story in itertools.groupby(EXAMPLES, key=lambda example: example["subscriptionId"]):
        examples = list(story)
        watch, before = watch_of(examples[0]), int(examples[0]["tip"]["height"])
        for example in examples:
            sight, now = observation_of(example), int(example["createdAt"])
            # One event, of the second of three blocks, is left out there.
            for height in range(min(before + 1, sight.tip.height), sight.tip.height + 1):
                at = sight if height == sight.tip.height else sight._replace(tip=ChainTip(height, bytes(32)))
                context = EvaluationContext(now=now, tip_before=before, may_end=True)
                watch, events = evaluate(watch, at, context)
                said += [
                    event_body(event, chain=CHAIN, watch_id=watch.id, terms=watch.terms, now=now) for event in events
                ]
                before = height
    assert [body for body in said if json.loads(body)["sequence"] != 3] == [
        json.dumps(example, sort_keys=True, separators=(",", ":")).encode() for example in EXAMPLES
    ]
    assert b64decode(shown().body) in said


def test_the_table_of_members_is_complete() -> None:
    (table,) = re.findall(r"^## The body\n(.*?)^Here with", PAGE, re.MULTILINE | re.DOTALL)
    for example in EXAMPLES:
        assert {name for name in example if f"`{name}`" not in table} == set()
        assert len(json.dumps(example)) <= 4096


# The receiver


EXAMPLE = next(example for example in EXAMPLES if example["event"] == "payment.confirmed")


class Receiver:
    """A receiver to copy as a process, with the secret of the vectors."""

    def __init__(self, words: list[str], port: int, folder: Path) -> None:
        self.port = port
        environment = {**os.environ, "NODE_OPTIONS": NODE_OPTIONS}
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(words, cwd=folder, stdout=pipe, stderr=nothing, text=True, env=environment)

    def send(self, body: bytes, *, secret: str, at: int | None = None, **sent: str) -> int:
        """The status of the answer to a body that is signed as a node does."""
        timestamp = int(time.time()) if at is None else at
        keys = signing.SigningKeys(secret)
        event_id, event = EXAMPLE["id"], EXAMPLE["event"]
        headers = signing.signed_headers(keys, event_id=event_id, event=event, body=body, timestamp=timestamp) | sent
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("POST", "/paid", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def wait(self) -> None:
        """Return when it listens."""
        give_up_at = time.monotonic() + DEADLINE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE).close()
                return
            except OSError:
                assert self.process.poll() is None, "the receiver has ended"
                assert time.monotonic() < give_up_at, "the receiver does not listen"

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def takes_only_what_is_genuine(self) -> None:
        secret, body = SIGNED["secret"], json.dumps(EXAMPLE).encode()
        assert self.send(body, secret="forged" * 6) == 401
        assert self.send(body, secret=secret, at=int(time.time()) - 400) == 401
        unsigned = {"webhook-signature": "", "X-Svc-Signature": ""}
        assert self.send(body, secret=secret, **unsigned) == 401
        assert self.send(b"x" * 20_000, secret=secret) == 413
        with socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE) as broken:
            broken.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        assert self.send(body, secret=secret) == 200


@pytest.fixture
def start(folder: Path, tmp_path: Path) -> Iterator[Callable[..., Receiver]]:
    """Starts a receiver with these words, in which SECRET_FILE and PORT stand for its own."""
    (tmp_path / "secret").write_text(SIGNED["secret"] + "\n")
    started: list[Receiver] = []

    def start(*words: str) -> Receiver:
        port = free_port()
        own = {"SECRET_FILE": str(tmp_path / "secret"), "PORT": str(port)}
        started.append(Receiver([own.get(word, word) for word in words], port, folder))
        started[-1].wait()
        return started[-1]

    yield start
    for receiver in started:
        receiver.close()


@pytest.mark.socket
@node_only
def test_the_receiver_in_javascript_takes_what_is_genuine_and_nothing_else(start: Callable[..., Receiver]) -> None:
    receiver = start("node", "receive.mjs", "SECRET_FILE", "PORT")
    receiver.takes_only_what_is_genuine()
    assert receiver.line() == f"{EXAMPLE['id']} payment.confirmed order-17 confirmed"


@pytest.mark.socket
def test_the_receiver_in_python_ships_an_order_once_and_only_while_it_is_paid(
    start: Callable[..., Receiver], folder: Path, tmp_path: Path
) -> None:
    database = str(tmp_path / "orders.sqlite")

    def shop(*words: str) -> str:
        command = [sys.executable, "receive.py", database, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=DEADLINE, check=True).stdout

    payment, secret = EXAMPLE["payment"], SIGNED["secret"]
    receiver = start(sys.executable, "receive.py", database, "serve", "SECRET_FILE", "PORT")

    def told(event: str, place: tuple[int, int], **changes: object) -> str:
        epoch, sequence = place
        body = {**EXAMPLE, "event": event, "epoch": epoch, "sequence": sequence, "payment": {**payment, **changes}}
        assert receiver.send(json.dumps(body).encode(), secret=secret) == 200
        return receiver.line()

    receiver.takes_only_what_is_genuine()
    assert receiver.line() == "payment.confirmed order-17 no such order"
    shop("add", "order-17", payment["recipient"], payment["amount"])
    assert told("payment.confirmed", (0, 5), amount="2500000001") == "payment.confirmed order-17 no such order"
    assert told("payment.confirmed", (0, 6), confirmations=2) == "payment.confirmed order-17 confirming"
    assert shop("ship", "order-17") == "not paid, or shipped already\n"
    assert told("payment.confirmed", (0, 7)) == "payment.confirmed order-17 confirmed"
    assert told("payment.reorged", (1, 8), state="pending") == "payment.reorged order-17 pending"
    assert told("payment.confirmed", (0, 7)) == "payment.confirmed order-17 seen before"
    assert shop("ship", "order-17") == "not paid, or shipped already\n"
    assert told("payment.confirmed", (1, 9)) == "payment.confirmed order-17 confirmed"
    assert told("payment.mismatched", (1, 10)) == "payment.mismatched order-17 for a person to read"
    assert [shop("ship", "order-17") for _ in range(2)] == ["shipped\n", "not paid, or shipped already\n"]
    elsewhere = json.dumps({**EXAMPLE, "sequence": 99, "epoch": 1, "genesisHash": "00" * 32}).encode()
    assert receiver.send(elsewhere, secret=secret) == 200
    assert receiver.line() == "payment.confirmed order-17 no such order"


# Numbers


def in_words(milliseconds: int) -> str:
    for unit, length in (("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if milliseconds % length == 0:
            return f"{milliseconds // length} {unit}"
    raise AssertionError(milliseconds)


def test_the_pauses_are_those_of_the_node() -> None:
    text = " ".join(PAGE.split())
    assert f"by chance: {', '.join(map(in_words, retry_policy.RETRY_DELAYS))}." in text
    hours = round(sum(retry_policy.RETRY_DELAYS) / 3_600_000)
    assert f"That is {retry_policy.MAX_ATTEMPTS} attempts in about {hours} hours" in text
    per_host = delivery_scheduler.MAX_IN_FLIGHT_PER_RECEIVER
    assert f"Up to {delivery_scheduler.MAX_IN_FLIGHT} deliveries are in flight at once, {per_host} of them" in text
    assert f"After {circuit_breaker.FAILURES_TO_OPEN} consecutive failures" in text
    assert f"growing pauses of at most {in_words(retry_policy.MAX_PROBE_DELAY)}." in text
    assert f"more than {signing.TOLERANCE_SECONDS} seconds away" in text


def test_every_kind_of_failure_is_told() -> None:
    (table,) = re.findall(r"^\| `lastError` \| what failed \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    cells = [cell for line in table.splitlines()[2:] if (cell := line.split("|")[1:2])]
    told = {name for (cell,) in cells for name in re.findall("`([^`]+)`", cell)}
    own = {dispatcher.HOST_BROKEN, "refused-url", "internal"}
    assert told == {*get_args(Category), *own, "status 500"}
    assert f"longer than {sender.CALL_LIMITS.max_bytes} bytes" in table
    assert f"more than {sender.CALL_LIMITS.seconds:g} seconds" in table


def test_the_limits_are_those_of_the_node() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([a-z][A-Za-z `]+[a-z`]) \| ([^|]+) \|$", PAGE, re.MULTILINE))
    rate = limits.webhooks_per_second
    assert rows["requests to these routes"].startswith(
        f"{rate} a second for each client, {rate * limits.burst_seconds} "
    )
    assert f"confirmations that a confirmed payment needs, 1 to {MAX_CONFIRMATIONS}" in PAGE
