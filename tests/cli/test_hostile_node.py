"""Every command of `svc` that reads from a node, in front of a node that lies, or a proxy that answers for it.

A command that asks a node stands in `SUBJECTS` with what an honest node answers it; each of them meets every case.
False proofs for --trustless are in test_trustless.py.
"""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from http.client import HTTPMessage
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import click
import pytest
from attrs import define, evolve, field, frozen
from click.testing import Result
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from svcd.chain.encoding import parse_wire_object
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, parse_transfer, sign_transfer
from svcd.cli import export as export_module
from svcd.cli.errors import NoValidResponse
from svcd.cli.http_client import MAX_RESPONSE_BYTES, Fetched, ListLimits, NodeClient, public_endpoint
from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc
from svcd.commerce.payment_request import PaymentRequest, PaymentTerms, request_record
from svcd.config.network_file import render_network_file
from svcd.visible_text import visible
from tests.chains import COIN, FESTIVAL, ChainBuilder, address_of
from tests.cli.conftest import START_SLOT
from tests.cli.merchant.conftest import TOKEN
from tests.cli.merchant.test_webhooks import CALLBACK, WATCH_ID, delivery, watch
from tests.cli.operator.test_reload import CHANGES
from tests.cli.terminal import ADDRESS, OTHER, PASSWORD, Terminal, site_of
from tests.json_places import DELETED, Place, places, put
from tests.rpc.node import FAUCET

NOW = DEVNET.slot_time(START_SLOT)
HASH = "ab" * 32
EVENT_ID = "svcevt_" + "0" * 32
YEAR = 365 * 24 * 3600
ENVIRONMENT = {"SVC_MANAGE_TOKEN": TOKEN, "SVC_WALLET_PASSWORD": PASSWORD}
Members = dict[str, Any]
Answer = Members | Callable[[Any], Members]
"""The members of an answer beside `ok`, or what makes them of a request."""


# What an honest node answers

NAMED = {"chainId": DEVNET.chain_id, "networkId": DEVNET.network_id, "genesisHash": DEVNET.genesis_hash.hex()}
STATUS = {
    **NAMED,
    "height": "9",
    "slot": str(START_SLOT),
    "hash": HASH,
    "nodeId": "svcnode_" + "d" * 32,
    "softwareVersion": "0.0.1",
    "protocolVersion": "1.0",
    "syncState": "synced",
    "syncLagBlocks": "1",
    "endpoint": "https://node.example",
    "knownPeerCount": 3,
    "stateRoot": HASH,
    "pruneHeight": "2",
    "time": str(NOW),
}
ACCOUNT = {
    "address": ADDRESS,
    "balance": "1000000000",
    "nonce": "0",
    "pendingNonce": "0",
    "pendingBalance": "1000000000",
    "heldSince": "7",
}
PAID = sign_transfer(
    Draft(recipient=ADDRESS, amount=2 * COIN, fee=10_000, nonce=0, timestamp=NOW - 60_000, reference="order-17"),
    seed=FAUCET_SEED,
    params=DEVNET,
)
TXID = PAID.txid.hex()
RECORD = {
    **parse_wire_object(PAID.wire),
    "txid": TXID,
    "blockHash": HASH,
    "blockHeight": "3",
    "blockTime": str(NOW),
    "confirmations": 20,
}
MADE = ChainBuilder(DEVNET).chain("genesis: b1")["b1"]
BLOCK = {
    **json.loads(MADE.wire()),
    "hash": MADE.header.hash.hex(),
    "confirmations": 1,
    "transactions": [parse_wire_object(PAID.wire)],
}
PAYMENT = {
    "state": "confirmed",
    "recipient": OTHER,
    "amount": "250000000",
    "reference": "order-1",
    "confirmations": 20,
    "requiredConfirmations": 12,
    "matchCount": 1,
    "mismatches": [{"txid": HASH, "amount": "5", "confirmations": 1}],
    "tip": {"height": "9", "hash": HASH},
    "node": {"synced": True},
    "txid": HASH,
    "blockHash": HASH,
    "blockHeight": "8",
    "blockTime": str(NOW),
    "work": {"hashesToUndo": "7", "coreHoursToUndo": "0.1", "workConfirmations": "12"},
}
ENTRY = {
    "type": "received",
    "time": str(NOW),
    "height": "3",
    "index": 0,
    "txid": HASH,
    "counterparty": OTHER,
    "reference": "order-17",
    "amount": "5",
    "fee": "0",
    "confirmations": 1,
}
BOOKS = {"address": ADDRESS, "balance": "5", "entries": [ENTRY], "next": None}
ADVICE = {
    "confirmations": 12,
    "capped": False,
    "amount": "25000000000",
    "coinPrice": "1",
    "hashPrice": "0.01",
    "costToUndo": "300",
    "hashesPerBlock": "9",
    "hashesPerSecond": "1",
    "hashesPerCoreSecond": 200,
    "blocks": 100,
}
REQUEST = request_record(
    DEVNET, PaymentRequest(PaymentTerms("order-1", OTHER, 250_000_000), "Tea"), tip_height=0, warning="nobody can pay"
)
PEER = {
    "endpoint": "http://192.0.2.1:8645",
    "address": "192.0.2.1",
    "nodeId": "svcnode_" + "d" * 32,
    "direction": "outbound",
    "height": "9",
    "work": "77",
    "lastSeen": str(NOW),
    "failures": 0,
    "otherChanges": True,
}
BAN = {"kind": "address", "name": "192.0.2.7", "until": str(NOW), "reason": "it lied", "own": True}
LIMIT = {"name": "requests", "value": 2.5, "unit": "a second", "setting": "[limits] reads", "stops": "too many"}
FOLLOWED = watch(events=[delivery()], active=False, ending="closed", endedAt=str(NOW), wantedEvents=["payment.expired"])
SHOWN = watch(
    events=[delivery(nextAttemptAt=str(NOW), lastError="timeout", attemptsLeft=3, lastStatus=500)],
    breaker={"openedAt": str(NOW), "nextProbeAt": str(NOW)},
    warning="it may end early",
    moreMismatches=True,
)
WATCHES = "/rpc/commerce/webhooks"


def accepted(request: Any) -> Members:
    """The answer to a broadcast."""
    transfer = parse_transfer(json.loads(request.content.read())["transaction"], DEVNET)
    return {"txid": transfer.txid.hex(), "state": "accepted"}


def received(request: Any) -> Members:
    """The list of the payments under the reference that is asked for: one of an order, and no refund."""
    reference = request.args[b"reference"][0].decode()
    sent = {"txid": TXID, "sender": FAUCET, "reference": reference, "amount": str(2 * COIN), "canonical": True}
    listed = [sent] if reference == "order-17" else []
    return {"payments": listed, "next": None, "tip": {"height": "9", "hash": HASH}}


def copied(request: Any) -> Members:
    """The answer to an order for a backup."""
    path = json.loads(request.content.read())["path"]
    return {"path": path, "height": "9", "hash": HASH, "files": {"chain.sqlite": "1000"}}


WALLET: Mapping[str, Answer] = {
    "/rpc/status": {"status": STATUS},
    "/rpc/consensus": {"consensus": {**NAMED, "minimumFee": "10000", "accountMinimum": "1000000"}},
    "/rpc/fees": {"fees": {"suggestedFee": "10000"}},
    f"/rpc/balance/{ADDRESS}": {"account": ACCOUNT},
    "/rpc/broadcast": accepted,
}


@frozen
class Subject:
    """A command, what an honest node answers it, and the answers to something that was not asked for."""

    words: tuple[object, ...]
    answers: Mapping[str, Answer] = field(factory=dict)
    others: tuple[tuple[str, str, object], ...] = ()
    """Path, member and value of each lie: everything else of the answer stays as it is."""
    reads_json: bool = True

    @property
    def name(self) -> str:
        return " ".join(map(str, self.words))


BALANCE = f"/rpc/balance/{ADDRESS}"
WRONG_ACCOUNT = (BALANCE, "account.address", OTHER)
WRONG_GENESIS = ("/rpc/status", "status.genesisHash", HASH)
WRONG_NETWORK = ("/rpc/status", "status.chainId", "SVC-MAINNET")
FUTURE = ("/rpc/status", "status.time", str(NOW + 3_600_000))
WRONG_NODE = (WRONG_ACCOUNT, WRONG_GENESIS, WRONG_NETWORK, FUTURE)
SHOP = ("order-1", OTHER, "2.5")
OWN = evolve(FESTIVAL, allocations=((address_of("alice", "fest"), 10**10),))
OWN_STATUS = {
    "chainId": OWN.chain_id,
    "genesisHash": OWN.genesis_hash.hex(),
    "changesHash": OWN.changes_hash.hex(),
    "nodeId": "svcnode_" + "d" * 32,
    "endpoint": "https://festival.example.org",
    "alarms": {},
}

SUBJECTS = [
    Subject(("status",), {"/rpc/status": {"status": STATUS}}),
    Subject(
        ("status", "--network", "devnet"),
        {"/rpc/status": {"status": STATUS}},
        (WRONG_GENESIS,),
    ),
    Subject(
        ("block", 1),
        {"/rpc/block/1": {"block": BLOCK}},
        (
            ("/rpc/block/1", "block.height", "2"),
            ("/rpc/block/1", "block.networkId", 9),
            ("/rpc/block/1", "block.networkId", 1),
        ),
    ),
    Subject(("balance", ADDRESS), {BALANCE: {"account": ACCOUNT}}, (WRONG_ACCOUNT,)),
    Subject(("balance", ADDRESS, "--trustless")),
    Subject(
        ("tx", TXID),
        {f"/rpc/transaction/{TXID}": {"transaction": RECORD}},
        (
            (f"/rpc/transaction/{TXID}", "transaction.txid", HASH),
            (f"/rpc/transaction/{TXID}", "transaction.payload.amount", "1"),
            (f"/rpc/transaction/{TXID}", "transaction.payload.recipient", OTHER),
            (f"/rpc/transaction/{TXID}", "transaction.payload.paymentReference", "order-18"),
            (f"/rpc/transaction/{TXID}", "transaction.networkId", 1),
        ),
    ),
    Subject(
        ("export", ADDRESS, "--from", "2026-11-01"),
        {f"/rpc/address/{ADDRESS}/statement": BOOKS},
        (
            (f"/rpc/address/{ADDRESS}/statement", "address", OTHER),
            (f"/rpc/address/{ADDRESS}/statement", "entries.0.time", "1"),
        ),
    ),
    Subject(
        ("pay-request", OTHER, "2.5", "--reference", "order-1", "--label", "Tea"),
        {"/rpc/commerce/payment-request": {"payment": REQUEST}},
        tuple(
            ("/rpc/commerce/payment-request", f"payment.{name}", value)
            for name, value in {
                "recipient": ADDRESS,
                "amount": "1",
                "reference": "order-2",
                "requiredConfirmations": 1,
                "networkId": 1,
                "paymentUri": f"svc:{ADDRESS}?amount=2.5&ref=order-1&confirmations=12&label=Tea",
                "checkoutPath": "/pay/?reference=order-2",
                "walletPath": "//evil.example/",
                "statusPath": "@evil.example/",
            }.items()
        ),
    ),
    Subject(
        ("verify", *SHOP),
        {"/rpc/commerce/payment/order-1": {"payment": PAYMENT}},
        tuple(
            ("/rpc/commerce/payment/order-1", f"payment.{name}", value)
            for name, value in {
                "recipient": ADDRESS,
                "amount": "1",
                "reference": "order-2",
                "requiredConfirmations": 1,
                "sinceHeight": "5",
            }.items()
        ),
    ),
    Subject(("verify", *SHOP, "--trustless")),
    Subject(
        ("confirmations", 250),
        {"/rpc/commerce/confirmations": {"confirmations": ADVICE}},
        tuple(
            ("/rpc/commerce/confirmations", f"confirmations.{name}", "7")
            for name in ("amount", "coinPrice", "hashPrice")
        )
        + tuple(("/rpc/commerce/confirmations", "confirmations.confirmations", count) for count in (0, 11, 1001)),
    ),
    Subject(("wallet", "send", OTHER, 1, "--yes"), WALLET, (*WRONG_NODE, ("/rpc/broadcast", "txid", HASH))),
    Subject(
        ("wallet", "send", OTHER, "0.001", "--yes"),
        {**WALLET, f"/rpc/balance/{OTHER}": {"account": {**ACCOUNT, "address": OTHER}}},
        ((f"/rpc/balance/{OTHER}", "account.address", ADDRESS),),
    ),
    Subject(
        ("wallet", "pay", f"svc:{OTHER}?amount=2.5&ref=order-1", "--yes"),
        {**WALLET, "/rpc/commerce/payment/order-1": {"payment": {**PAYMENT, "state": "unpaid"}}},
        (*WRONG_NODE, ("/rpc/commerce/payment/order-1", "payment.reference", "order-2")),
    ),
    Subject(
        ("wallet", "refund", TXID, "--yes"),
        {**WALLET, f"/rpc/transaction/{TXID}": {"transaction": RECORD}, "/rpc/commerce/payments": received},
        (
            *WRONG_NODE,
            (f"/rpc/transaction/{TXID}", "transaction.txid", HASH),
            (f"/rpc/transaction/{TXID}", "transaction.payload.amount", str(3 * COIN)),
            ("/rpc/commerce/payments", "payments.0.reference", "order-18"),
        ),
    ),
    Subject(("wallet", "balance"), {BALANCE: {"account": ACCOUNT}}, (WRONG_ACCOUNT,)),
    Subject(
        ("wallet", "history"),
        {
            **WALLET,
            f"/rpc/address/{ADDRESS}/transactions": {
                "address": ADDRESS,
                "transactions": [RECORD],
                "next": "120-3",
                "pruneHeight": "2",
            },
        },
        (
            *WRONG_NODE,
            (f"/rpc/address/{ADDRESS}/transactions", "address", OTHER),
            (f"/rpc/address/{ADDRESS}/transactions", "transactions.0.txid", HASH),
            (f"/rpc/address/{ADDRESS}/transactions", "transactions.0.payload.amount", "1"),
        ),
    ),
    Subject(("wallet", "page-check", "http://127.0.0.1:8645", "--hashes", "hashes"), reads_json=False),
    Subject(
        ("webhook", "register", "order-17", OTHER, 25, "--callback", CALLBACK, "--confirmations", 12),
        {WATCHES: {"subscription": SHOWN}},
        tuple(
            (WATCHES, f"subscription.{name}", value)
            for name, value in {
                "reference": "order-18",
                "recipient": ADDRESS,
                "amount": "1",
                "requiredConfirmations": 1,
            }.items()
        ),
    ),
    Subject(
        ("webhook", "show", WATCH_ID),
        {f"{WATCHES}/{WATCH_ID}": {"subscription": SHOWN}},
        ((f"{WATCHES}/{WATCH_ID}", "subscription.id", "svcwh_" + "0" * 32),),
    ),
    Subject(
        ("webhook", "show", "order-17"),
        {WATCHES: {"subscriptions": [SHOWN, FOLLOWED], "next": WATCH_ID}},
        (
            (WATCHES, "subscriptions.0.reference", "order-18"),
            (WATCHES, "subscriptions.1.reference", "order-18"),
            (WATCHES, "subscriptions.0.id", "../../operator/stop"),
        ),
    ),
    Subject(
        ("webhook", "watch", "order-17"),
        {WATCHES: {"subscriptions": [FOLLOWED], "next": None}},
        (
            (WATCHES, "subscriptions.0.reference", "order-18"),
            (WATCHES, "subscriptions.0.id", "../../operator/stop"),
        ),
    ),
    Subject(
        ("webhook", "cancel", WATCH_ID),
        {f"{WATCHES}/{WATCH_ID}/cancel": {"subscription": FOLLOWED}},
        ((f"{WATCHES}/{WATCH_ID}/cancel", "subscription.id", "svcwh_" + "0" * 32),),
    ),
    Subject(
        ("webhook", "list", "--state", "unpaid"),
        {WATCHES: {"subscriptions": [SHOWN, FOLLOWED], "next": WATCH_ID}},
        (
            (WATCHES, "subscriptions.1.lastState", "pending"),
            (WATCHES, "subscriptions.0.id", "x; rm -rf ~"),
            (WATCHES, "next", "x; rm -rf ~"),
        ),
    ),
    Subject(
        ("webhook", "list", "--host", "shop.example"),
        {
            WATCHES: {
                "subscriptions": [{**each, "callbackUrl": "https://shop.example/paid"} for each in (SHOWN, FOLLOWED)]
            }
        },
        (
            (WATCHES, "subscriptions.1.callbackUrl", "https://other.example/"),
            (WATCHES, "subscriptions.0.callbackUrl", "https://[shop.example/"),
        ),
    ),
    Subject(
        ("webhook", "events", "order-17"),
        {WATCHES: {"subscriptions": [FOLLOWED], "next": None}},
        ((WATCHES, "subscriptions.0.reference", "order-18"),),
    ),
    Subject(
        ("webhook", "redeliver", WATCH_ID, EVENT_ID),
        {f"{WATCHES}/{WATCH_ID}/events/{EVENT_ID}/redeliver": {"event": delivery()}},
        ((f"{WATCHES}/{WATCH_ID}/events/{EVENT_ID}/redeliver", "event.id", "svcevt_" + "1" * 32),),
    ),
    Subject(
        ("webhook", "trigger", "webhook.test", "--callback", CALLBACK),
        {f"{WATCHES}/test": {"test": {"id": EVENT_ID, "status": 204, "error": None, "milliseconds": 7}}},
    ),
    Subject(
        ("network", "invite", "festival.toml"),
        {"/operator/status": {"status": OWN_STATUS}, "/p2p/status": {"status": OWN_STATUS}},
        (
            ("/operator/status", "status.genesisHash", HASH),
            ("/operator/status", "status.nodeId", "svcnode_" + "e" * 32),
            ("/p2p/status", "status.genesisHash", HASH),
            ("/p2p/status", "status.endpoint", "https://other.example.org"),
            ("/p2p/status", "status.nodeId", "$(reboot)"),
        ),
    ),
    Subject(("node", "status"), {"/operator/status": {"status": {**STATUS, "alarms": {"a": ["b"]}, "on": True}}}),
    Subject(("node", "mine", 1), {"/operator/mine": {"hashes": [HASH]}}, (("/operator/mine", "hashes", 2 * [HASH]),)),
    Subject(("node", "faucet", OTHER, 1), {"/operator/faucet": {"txid": HASH}}),
    Subject(
        ("node", "reorganise", 1),
        {"/operator/reorganise": {"hashes": 2 * [HASH]}},
        (("/operator/reorganise", "hashes", [HASH]),),
    ),
    Subject(
        ("node", "participation", "on"),
        {"/operator/participation": {"enabled": True, "waitsFor": "a peer"}},
        (("/operator/participation", "enabled", False),),
    ),
    Subject(("node", "limits"), {"/operator/limits": {"limits": [LIMIT]}}),
    Subject(("node", "peers"), {"/operator/peers": {"peers": [PEER], "bans": [BAN]}}),
    Subject(("node", "peers", "add", "http://192.0.2.1"), {"/operator/peers/add": {"peer": PEER, "why": None}}),
    Subject(("node", "peers", "ban", "192.0.2.7"), {"/operator/peers/ban": {"ban": BAN, "dropped": ["http://a.b"]}}),
    Subject(("node", "peers", "unban", "192.0.2.7"), {"/operator/peers/unban": {}}),
    Subject(("node", "backup", "copy"), {"/operator/backup": copied}, (("/operator/backup", "path", "/elsewhere"),)),
    Subject(("node", "reload"), {"/operator/reload": CHANGES}),
    Subject(("node", "merchants", "reload"), {"/operator/reload": CHANGES}),
]
ASKS_NO_NODE = {
    *("help", "devnet", "network new", "network show"),
    *("wallet new", "wallet import", "wallet export", "wallet address"),
    # It is called by a node, and takes what that has signed: tests/cli/merchant/test_listener.py.
    "webhook listen",
    *("webhook move", "webhook restored"),
    *("db check", "db verify", "db compact", "db rebuild"),
    *("node key new", "node key import", "node key encrypt", "node key address"),
}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands that do something."""
    for name, command in group.commands.items():
        loaded = command.load() if isinstance(command, LazyCommand) else command
        if not isinstance(loaded, click.Group) or loaded.invoke_without_command:
            yield " ".join((*path, name))
        if isinstance(loaded, click.Group):
            yield from commands(loaded, (*path, name))


def test_every_command_stands_in_the_table() -> None:
    there = set(commands(svc))
    met = {name for name in there if any(re.match(rf"{name}(?: |$)", subject.name) for subject in SUBJECTS)}
    assert there - met - ASKS_NO_NODE == set(), "what asks a node must be a subject of the cases below"
    assert there - met >= ASKS_NO_NODE
    deeper = {name for name in met if any(other.startswith(f"{name} ") for other in there)}
    assert all(any(subject.name == name for subject in SUBJECTS) for name in deeper)


# The server


@define
class Scripted(Resource):
    """Answers by path, after a change of the members; after too many requests it refuses all."""

    answers: Mapping[str, Answer]
    change: Callable[[str, Members], object] = lambda path, members: None
    left: int = 40
    isLeaf = True  # noqa: N815

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def render(self, request: Any) -> bytes:
        path = request.path.decode()
        answer = self.answers.get(path)
        self.left -= 1
        if answer is None or self.left < 0:
            request.setResponseCode(404)
            return b'{"ok":false,"error":"there is nothing here"}'
        members = answer(request) if callable(answer) else deepcopy(answer)
        self.change(path, members)
        return json.dumps({"ok": True, **members}).encode()


@define
class Bench:
    """A terminal between whose commands nothing stays behind."""

    terminal: Terminal
    kept: set[Path] = field(init=False)

    def __attrs_post_init__(self) -> None:
        folder = self.terminal.folder
        (folder / "festival.toml").write_text(render_network_file(OWN))
        lines = [f"{HASH}  /wallet/ Content-Security-Policy", f"{HASH}  /wallet/ en"]
        (folder / "hashes").write_text("".join(f"{line}\n" for line in lines))
        self.kept = {*folder.iterdir()}

    def serve(self, site: Any) -> None:
        self.terminal.public.site = self.terminal.operator.site = site

    def run(self, subject: Subject, *more: str) -> Result:
        """Run a command that must end in order: with status 0, or with 1 and one sentence."""
        for path in self.terminal.folder.iterdir():
            if path not in self.kept:
                path.unlink()
        for network in (self.terminal.public, self.terminal.operator):
            network.pumps.clear()
        began = self.terminal.clock.seconds()
        result = self.terminal.invoke(*subject.words, *more, env=ENVIRONMENT)
        self.terminal.clock.rightNow = began
        assert result.exit_code in (0, 1), result.output
        for line in result.output.split("\n"):
            assert visible(line) == line, "nothing of a node is invisible or drives the terminal"
        if result.exit_code == 1:
            assert result.stderr.splitlines()[-1].startswith("Error: "), result.output
        return result

    def script(self, subject: Subject, change: Callable[[str, Members], object] = lambda path, members: None) -> None:
        self.serve(site_of(Scripted(subject.answers, change), self.terminal.clock))


@pytest.fixture
def bench(terminal: Terminal, wallet: Path) -> Bench:
    return Bench(terminal)


subjects = pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name[:60] for subject in SUBJECTS])
SCRIPTED = [subject for subject in SUBJECTS if subject.answers]
scripted = pytest.mark.parametrize("subject", SCRIPTED, ids=[subject.name[:60] for subject in SCRIPTED])


@scripted
def test_an_honest_node_is_believed(bench: Bench, subject: Subject) -> None:
    """Without this, the cases below could pass for another reason."""
    bench.script(subject)
    for more in ((), ("--json",)):
        result = bench.run(subject, *more)
        assert result.exit_code == 0, result.output


# Bytes


class Hostile(Protocol):
    """Sends `said` once a request is there, then `again` each second of the clock, or at once and without an end."""

    said = b""
    again = b""
    pause = 1.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timer: Any = None

    def dataReceived(self, _data: bytes) -> None:  # noqa: N802
        if self._timer is None:
            self.transport.write(self.said)
            self._timer = self._clock.callLater(self.pause, self._go_on)

    def _go_on(self) -> None:
        if self.connected and self.again:
            self.transport.write(self.again)
            self._timer = self._clock.callLater(self.pause, self._go_on)

    def connectionLost(self, *_reason: object) -> None:  # noqa: N802
        if self._timer is not None and self._timer.active():
            self._timer.cancel()


def answered(status: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers, b"", body]
    return b"\r\n".join(lines)


OK = b"HTTP/1.1 200 OK\r\n"
SLOW = "did not answer within [0-9]+ s"
TOO_LARGE = "has more than [0-9]+ bytes"
NOT_HTTP = "what it sent is not HTTP"
REDIRECT = "is a redirect, which svc does not follow"
LATER = answered(b"429 Later", b'{"ok":false,"error":"later"}', b"Retry-After: %d" % YEAR)
BYTES: dict[str, tuple[bytes, bytes, str]] = {
    "nothing": (b"", b"", SLOW),
    "a byte a second": (OK + b"Content-Length: 100000\r\n\r\n", b" ", SLOW),
    "a header a second": (OK, b"X: a\r\n", f"{SLOW}|{NOT_HTTP}"),
    "a byte of a header a second": (OK + b"X: ", b"a", SLOW),
    "an interim answer a second": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", SLOW),
    "endless headers": (OK + 1_000 * b"X: a\r\n", b"", NOT_HTTP),
    "an endless header": (OK + b"X: " + 100_000 * b"a", b"", NOT_HTTP),
    "a giant": (OK + b"Content-Length: 99999999999\r\n\r\n" + b" " * (2 * MAX_RESPONSE_BYTES), b"", TOO_LARGE),
    "a giant without a length": (OK + b"\r\n" + b" " * (2 * MAX_RESPONSE_BYTES), b"", TOO_LARGE),
    "a bomb": (answered(b"200 OK", gzip.compress(bytes(10_000_000)), b"Content-Encoding: gzip"), b"", "is compressed"),
    "a bomb of an unknown kind": (answered(b"200 OK", b"{}", b"Content-Encoding: zstd"), b"", "is compressed"),
    **{
        f"a redirect {status}": (answered(b"%d Moved" % status, b"", b"Location: http://127.0.0.1/"), b"", REDIRECT)
        for status in (301, 302, 303, 307, 308)
    },
    "no HTTP": (b"220 mail.example.org ESMTP\r\n", b"", NOT_HTTP),
}
JSON: dict[str, tuple[bytes, str]] = {
    "nesting": (b'{"ok":true,"a":' + b"[" * 100_000, "is nested more than 16 levels deep"),
    "some nesting": (b'{"ok":true,"a":' + b"[" * 17 + b"]" * 17 + b"}", "is nested more than 16 levels deep"),
    "a member twice": (b'{"ok":true,"ok":true}', 'the key "ok" occurs twice'),
    "a member twice, escaped": (rb'{"ok":true,"\u006fk":true}', 'the key "ok" occurs twice'),
    "NaN": (b'{"ok":true,"a":NaN}', "NaN is not JSON"),
    "Infinity": (b'{"ok":true,"a":Infinity}', "Infinity is not JSON"),
    "a huge number": (b'{"ok":true,"a":1e999}', "is too large for a number"),
    "a huge integer": (b'{"ok":true,"a":' + b"9" * 5_000 + b"}", r"an integer over 2\^53"),
    "half of a character": (rb'{"ok":true,"a":"\udead"}', "half of a surrogate pair"),
    "no UTF-8": (b'{"ok":true,"a":"\xff"}', "does not answer as an svcd node does"),
    "UTF-16": ('{"ok":true}'.encode("utf-16"), "does not answer as an svcd node does"),
    "HTML": (b"<html>", "does not answer as an svcd node does"),
    "an escape sequence in an error": (rb'{"ok":false,"error":"\u001b[2J\u202e\u200b\n"}', r"Error: .*\\u\{1b\}\[2J"),
    "an endless error": (b'{"ok":false,"error":"' + b"x" * 5_000 + b'"}', "has 5000 characters, more than 4096"),
}


def refused(bench: Bench, subject: Subject, said: bytes, again: bytes, sentence: str) -> None:
    kind = type("Sending", (Hostile,), {"said": said, "again": again})
    bench.serve(Factory.forProtocol(lambda: kind(bench.terminal.clock)))
    result = bench.run(subject)
    assert result.exit_code == 1, result.output
    assert re.search(sentence, result.stderr), result.stderr


def each_with(cases: Iterable[str], among: Iterable[Subject]) -> list[Any]:
    """Each subject with each case; quick ones are each case for one command, and each command in one case."""
    chosen = list(among)
    quick = [(chosen[0], case) for case in cases] + [(subject, next(iter(cases))) for subject in chosen[1:]]
    return [
        pytest.param(subject, case, id=f"{subject.name[:60]}-{case}", marks=marks)
        for subject in chosen
        for case in cases
        for marks in [() if (subject, case) in quick else pytest.mark.slow]
    ]


@pytest.mark.parametrize(("subject", "case"), each_with(BYTES, SUBJECTS))
def test_no_answer_takes_longer_or_is_larger_than_an_answer_may(bench: Bench, subject: Subject, case: str) -> None:
    refused(bench, subject, *BYTES[case])


@pytest.mark.parametrize(("subject", "case"), each_with(JSON, [each for each in SUBJECTS if each.reads_json]))
def test_json_that_programs_read_in_different_ways(bench: Bench, subject: Subject, case: str) -> None:
    body, sentence = JSON[case]
    refused(bench, subject, answered(b"200 OK", body), b"", sentence)


@subjects
def test_no_command_waits_because_a_node_says_so(bench: Bench, subject: Subject) -> None:
    kind = type("Later", (Hostile,), {"said": LATER})
    bench.serve(Factory.forProtocol(lambda: kind(bench.terminal.clock)))
    ended: list[float] = []
    bench.terminal.clock.callLater(150, lambda: ended.append(0))
    assert bench.run(subject).exit_code == 1
    assert ended == []


# Members

EVIL = "\x1b[2J\x1b]0;x\x07\u202e\u2066\u200b\ufeff\r\n\x9b31m\x00\u2028"
WRONG: tuple[object, ...] = (None, True, -1, 1.5, 2**63, "x", "9" * 17, [], {})


def seen(bench: Bench, subject: Subject) -> list[tuple[str, Place, object]]:
    """Path, place and value of everything that an honest node answers to a command."""
    found: dict[tuple[str, Place], object] = {}

    def look(path: str, members: Members) -> None:
        found.update({(path, place): value for place, value in places(deepcopy(members))})

    bench.script(subject, look)
    assert bench.run(subject).exit_code == 0
    return [(*each, value) for each, value in found.items()]


def lie(bench: Bench, subject: Subject, path: str, place: Place, value: object, *more: str) -> Result:
    bench.script(subject, lambda asked, members: put(members, place, value) if asked == path else None)
    return bench.run(subject, *more)


@scripted
def test_nothing_that_a_node_says_drives_a_terminal(bench: Bench, subject: Subject) -> None:
    for path, place, value in seen(bench, subject):
        if isinstance(value, str):
            lie(bench, subject, path, place, value + EVIL)


@pytest.mark.slow
@scripted
def test_neither_does_it_in_json(bench: Bench, subject: Subject) -> None:
    for path, place, value in seen(bench, subject):
        for evil in (EVIL, str(value) + EVIL) if isinstance(value, str) else ():
            lie(bench, subject, path, place, evil)
            assert lie(bench, subject, path, place, evil, "--json").stdout.isascii()


@pytest.mark.slow
@scripted
def test_a_name_of_a_member_drives_no_terminal(bench: Bench, subject: Subject) -> None:
    for path, place, value in seen(bench, subject):
        for evil in ("\x1b[2J", "\u202e") if isinstance(value, dict) else ():
            for more in ((), ("--json",)):
                lie(bench, subject, path, (*place, evil), "7", *more)


@pytest.mark.slow
@scripted
def test_a_member_of_another_type_or_value_is_shown_or_refused(bench: Bench, subject: Subject) -> None:
    """Three of the wrong values for each member, in turn."""
    wrongs = cycle(WRONG)
    for path, place, _ in seen(bench, subject):
        for wrong in (*islice(wrongs, 3), DELETED):
            lie(bench, subject, path, place, wrong if wrong is DELETED else deepcopy(wrong))


LIES = [(subject, *other) for subject in SUBJECTS for other in subject.others]


@pytest.mark.parametrize(
    ("subject", "path", "member", "value"), LIES, ids=[f"{each[0].name[:40]} {each[2]}" for each in LIES]
)
def test_an_answer_about_another_thing_is_refused(
    bench: Bench, subject: Subject, path: str, member: str, value: object
) -> None:
    place = tuple(int(part) if part.isdigit() else part for part in member.split("."))
    result = lie(bench, subject, path, place, value)
    assert result.exit_code == 1, result.output
    assert result.stdout == ""


# Lists


@define
class Endless:
    """A node whose list of pages has no end."""

    clock: Clock
    cursor: Callable[[int], str] = str
    size: int = 0
    asked: int = 0
    slept: float = 0

    def milliseconds(self) -> int:
        return 0

    def monotonic(self) -> float:
        return float(self.asked)

    def sleep(self, seconds: float, /) -> None:
        self.slept += seconds

    def client(self) -> NodeClient:
        def no_network(*_: object) -> Any:
            raise AssertionError("asked")

        client = NodeClient(no_network, public_endpoint("http://127.0.0.1:8645"), clock=self)
        client.fetch = self.fetch  # type: ignore[method-assign, assignment]
        return client

    def fetch(self, _method: str, path: str) -> Fetched:
        self.asked += 1
        page = {"ok": True, "next": self.cursor(self.asked), "padding": "x" * self.size}
        return Fetched(200, HTTPMessage(), json.dumps(page).encode())


PATIENT = ListLimits(seconds=10**9)


@pytest.mark.parametrize(
    ("node", "limits", "asked", "sentence"),
    [
        (Endless(Clock()), PATIENT, 1_000, "more than 1000 pages"),
        (Endless(Clock(), size=1024 * 1024), PATIENT, 64, "or 67108864 bytes"),
        (Endless(Clock(), cursor=lambda number: "7-7"), PATIENT, 2, "has no end: its page 7-7 comes again"),
        (Endless(Clock(), cursor=lambda number: f"{number % 3}-7"), PATIENT, 4, "has no end: its page"),
        (Endless(Clock(), cursor=lambda number: "../x?a=1&b"), PATIENT, 1, "must be the position of a page"),
        (Endless(Clock(), cursor=lambda number: "x" * 101), PATIENT, 1, "must be the position of a page"),
        (Endless(Clock()), ListLimits(), 301, "or takes more than 300 s"),
    ],
)
def test_a_list_has_an_end(node: Endless, limits: ListLimits, asked: int, sentence: str) -> None:
    with pytest.raises(NoValidResponse, match=re.escape(sentence)):
        for _ in node.client().pages("/rpc/list?limit=1", limits):
            pass
    assert node.asked == asked


def test_an_export_has_an_end_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_module, "_LIMITS", evolve(export_module._LIMITS, pages=20))
    pages = iter(range(1_000))

    def page(_request: Any) -> Members:
        return {**BOOKS, "entries": [], "next": f"{next(pages)}-0-0123456789abcdef"}

    subject = Subject(("export", ADDRESS), {f"/rpc/address/{ADDRESS}/statement": page})
    bench.script(subject)
    result = bench.run(subject)
    assert result.exit_code == 1
    assert "more than 20 pages" in result.stderr
    assert "export a shorter period with --from and --to" in result.stderr
    assert next(pages) == 20
