"""What clients send and what only the node may know is in no line of its log, at the level that writes most."""

import importlib
import inspect
import json
import os
import pkgutil
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from attrs import frozen

import svcd.metrics
import svcd.p2p
import svcd.rpc
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.web.routes import Route
from tests.process_level.conftest import DEVNET as OPTIONS
from tests.process_level.conftest import Nodes, nodes
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode, exchange, free_port

__all__ = ["nodes"]

pytestmark = [pytest.mark.socket, pytest.mark.slow]

MARK = "s3cr3tmarkofaclient"
TOKEN, SIGNING = "manage-token-that-nobody-may-read-1", "signing-secret-that-nobody-may-read"
BOB = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


def routes() -> Iterator[Route]:
    """Every route that any package declares."""
    for package in (svcd.rpc, svcd.p2p, svcd.metrics):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                declared = [getattr(member, "_svcd_route", None) for member in vars(cls).values()]
                if cls.__module__ == module.name:
                    yield from (route for route in declared if isinstance(route, Route))


ROUTES = list(routes())


@frozen
class Door:
    """Where requests go in."""

    name: str
    node: RunningNode
    port: int
    token: str

    def send(self, method: str, target: str, body: bytes, token: str) -> int:
        """The status of an answer; mark everything that a client may choose."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        headers = {"Authorization": f"Bearer {token}", "User-Agent": MARK, "Referer": f"http://h/?{MARK}"}
        headers |= {"Cookie": MARK, "X-Forwarded-For": MARK, f"X-{MARK}": MARK}
        try:
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()


def start(nodes: Nodes, *options: str) -> tuple[RunningNode, Door, Door]:
    """A devnet with webhooks whose operator listens at a port, and both of its doors."""
    hooks = {"enabled": "true", "manageToken": TOKEN, "signingSecret": SIGNING, "allowHttpCallbacks": "true"}
    hooks["allowPrivateCallbacks"] = "true"
    settings = [f"--set=commerce.webhooks.{key}={value}" for key, value in hooks.items()]
    port = free_port()
    listen = f"--operator-listen=tcp:{port}:interface=127.0.0.1"
    node = nodes.start(*OPTIONS, *settings, "--set=log.level=debug", listen, *options)
    token = (node.data_dir / "operator.token").read_text().strip()
    return node, Door("public", node, node.port, TOKEN), Door("operator", node, port, token)


def bodies(route: Route) -> Iterator[bytes]:
    """What a client may send: nothing, no JSON, and the route's fields with the mark in them."""
    yield b""
    if route.method != "GET":
        yield MARK.encode()
        yield json.dumps({MARK: MARK}).encode()
        for field in route.body_fields:
            yield json.dumps({each.name: MARK if each is field else "1" for each in route.body_fields}).encode()
        yield json.dumps({field.name: MARK for field in route.body_fields}).encode()


def drive(door: Door) -> set[int]:
    """Send everything to every route, by its right token and by the mark; the statuses that came."""
    statuses = set()
    for route in ROUTES:
        path = route.path
        for field in route.path_fields:
            path = path.replace(f"{{{field.name}}}", MARK)
        for target in (f"{path}?token={MARK}&{MARK}={MARK}", f"{path}/{MARK}", path):
            for body in bodies(route):
                for token in (door.token, MARK):
                    statuses.add(door.send(route.method, target, body, token))
    statuses.add(door.send("GET", f"/{MARK}?{MARK}", b"", MARK))
    statuses.add(door.send("DELETE", f"/rpc/{MARK}", b"", MARK))
    return statuses


def owe_callbacks(node: RunningNode, public: Door, operator: Door) -> None:
    """Register callbacks whose URL has a secret in it, and pay: the receiver is nobody, and that is logged."""
    url = f"http://127.0.0.1:{free_port()}/{MARK}?key={MARK}"
    for number in range(6):
        reference = f"{MARK}-{number}"
        order = {"callbackUrl": url, "recipient": BOB, "amount": "0.5", "reference": reference}
        assert public.send("POST", "/rpc/commerce/webhooks", json.dumps(order).encode(), TOKEN) in {200, 201}
        draft = Draft(
            recipient=BOB,
            amount=50_000_000,
            fee=DEVNET.minimum_fee,
            nonce=number,
            timestamp=int(node.status()["time"]),
            reference=reference,
        )
        wire = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET).wire
        assert public.send("POST", "/rpc/broadcast", b'{"transaction":' + wire + b"}", TOKEN) == 200
    assert operator.send("POST", "/operator/mine", b'{"blocks": 2}', operator.token) == 200
    assert node.logged("callbacks to ")


def secrets_of(folder: Path) -> list[str]:
    """What is in the node's key files."""
    names = ("node.key", "operator.key", "operator.token")
    return [(folder / name).read_text().split()[0] for name in names]


def test_there_are_routes() -> None:
    paths = {route.path for route in ROUTES}
    assert {"/rpc/status", "/p2p/hello", "/metrics", "/operator/participation", "/rpc/commerce/webhooks"} <= paths


def test_nothing_of_a_request_and_no_secret_is_in_the_log(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a kind of line the node writes 20 in ten seconds: here it must write all of them.
    (tmp_path / "sitecustomize.py").write_text("import svcd.process.logs\nsvcd.process.logs.REPEATS = 1_000_000\n")
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    node, public, operator = start(nodes)
    owe_callbacks(node, public, operator)
    statuses = drive(public) | drive(operator)
    assert {200, 400, 401, 404, 405} <= statuses
    assert 500 not in statuses
    node.process.terminate()
    assert node.wait_ended() == 0
    log = node.output
    assert len(node.events) > 5
    for secret in (MARK, TOKEN, SIGNING, *secrets_of(node.data_dir)):
        assert secret not in log, [line for line in log.splitlines() if secret in line]
    assert all(event["message"].count("\n") == 0 for event in node.events)


def test_the_password_of_the_database_is_told_to_nobody(nodes: Nodes) -> None:
    """While it does not answer, which the log, the operator and merchants are told."""
    password = nodes.folder / "database"
    password.write_text(f"postgresql://shop:{MARK}@127.0.0.1:{free_port()}/svcd")
    password.chmod(0o600)
    node, *_ = start(nodes, f"--set=commerce.webhooks.databaseFile={password}")
    answers = [node.operator(path) for path in ("/ready", "/operator/status", "/operator/peers")]
    assert "the PostgreSQL database svcd on 127.0.0.1 does not answer" in answers[0].error
    order = {
        "callbackUrl": f"http://127.0.0.1:{free_port()}/",
        "recipient": BOB,
        "amount": "0.5",
        "reference": "order-1",
    }
    asked = ("POST", "/rpc/commerce/webhooks", order)
    answers.append(exchange(node.connection(), *asked, Authorization=f"Bearer {TOKEN}"))
    assert (answers[-1].status, answers[-1].headers.get("retry-after")) == (503, "5"), answers[-1]
    for answer in answers:
        assert MARK not in json.dumps(answer.json)
    told = subprocess.run(
        [BIN / "svc", "--data-dir", node.data_dir, "node", "status"], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert "does not answer" in told.stdout + told.stderr
    assert node.logged("webhooks begin when their database answers")
    assert MARK not in told.stdout + told.stderr + node.output
    node.terminate()
    node.wait_ended()
