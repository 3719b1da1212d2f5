"""schemathesis against a live node: no failure, and no answer that the node's own description does not announce."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.encoding import parse_json
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.units import parse_amount
from tests.chains import address_of, key_of
from tests.process_level.conftest import DEVNET as DEVNET_OPTIONS
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.running import DEADLINE, ENVIRONMENT, HTTPConnection, RunningNode, exchange, wait_until
from tests.schema.order import BLOCK, CALLBACK, EVENT, PAID, PAYER, PRICE, SHOP

pytestmark = [pytest.mark.socket, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml")
TOKEN = "the-management-token-of-this-test-long"
OPTIONS = (
    *DEVNET_OPTIONS,
    "--set=participation.alone=true",
    "--set=commerce.webhooks.enabled=true",
    f"--set=commerce.webhooks.manageToken={TOKEN}",
    "--set=commerce.webhooks.signingSecret=the-signing-secret-of-this-test-longer",
    "--set=commerce.webhooks.allowPrivateCallbacks=true",
)


def furnish(node: RunningNode) -> str:
    """Pay the order that the requests ask about, and watch it; gives the ids of the watch and of its event."""
    node.ok(node.operator("/operator/faucet", {"recipient": address_of(PAYER, "svcd"), "amount": "1000"}))
    node.mine(1)
    draft = Draft(
        recipient=address_of(SHOP, "svcd"),
        amount=parse_amount(PRICE),
        fee=DEVNET.minimum_fee,
        nonce=0,
        timestamp=time.time_ns() // 1_000_000,
        reference=PAID,
    )
    transfer = sign_transfer(draft, seed=key_of(PAYER).seed, params=DEVNET)
    node.ok(node.post("/rpc/broadcast", {"transaction": parse_json(transfer.wire)}))
    node.mine(10)
    # No request has these confirmations, so none gets this watch, whose events can be sent again, and cancels it.
    terms = {"recipient": address_of(SHOP, "svcd"), "amount": PRICE, "reference": PAID, "confirmations": 7}
    order = {**terms, "callbackUrl": CALLBACK}
    connection = HTTPConnection("127.0.0.1", node.port, timeout=DEADLINE)
    watched = exchange(connection, "POST", "/rpc/commerce/webhooks", order, Authorization=f"Bearer {TOKEN}")
    assert watched.status == 201, watched
    watch = watched.json["subscription"]["id"]

    def events() -> list[dict[str, Any]]:
        shown = exchange(connection, "GET", f"/rpc/commerce/webhooks/{watch}", Authorization=f"Bearer {TOKEN}")
        found: list[dict[str, Any]] = shown.json["subscription"]["events"]
        return found

    wait_until(lambda: bool(events()), "the event of the payment")
    return f"{watch} {events()[0]['id']}"


SNAPSHOTS = {"GET /p2p/snapshot/{height}", "GET /p2p/snapshot/{height}/{index}"}
"""A chain of a few blocks has none; tests/p2p/test_routes.py holds whole answers to the description."""


def drive(node: RunningNode, report: Path, event: str, *, examples: int, methods: Iterable[str], seconds: float) -> str:
    """Let schemathesis ask, with up to so many examples for each route and phase; what it found wrong, or ""."""
    (block,) = node.get("/p2p/blocks?from=1&limit=1").json["blocks"]
    arguments = [
        f"{node.url}/rpc/openapi.json",
        f"--max-examples={examples}",
        *(f"--include-method={method}" for method in methods),
        "--checks=all",
        f"--header=Authorization: Bearer {TOKEN}",
        "--continue-on-failure",
        "--seed=1",
        "--generation-database=none",
        "--warnings=off",
        "--no-color",
        "--report=ndjson",
        f"--report-ndjson-path={report}",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIG}", "run", *arguments],
        capture_output=True,
        text=True,
        cwd=report.parent,
        env=ENVIRONMENT
        | {"PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.schema.known", BLOCK: json.dumps(block), EVENT: event},
        timeout=seconds,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def statuses(report: Path) -> Counter[tuple[str, int]]:
    """How often each route (such as ``GET /rpc/status``) was answered with each status."""
    found: Counter[tuple[str, int]] = Counter()
    for line in report.read_text(encoding="utf-8").splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for case, interaction in recorder.get("interactions", {}).items():
            asked = recorder["cases"][case]["value"]
            found[f"{asked['method']} {asked['path']}", interaction["response"]["status_code"]] += 1
    return found


@pytest.mark.deadline(900)
def test_a_live_node_answers_as_it_says(nodes: Nodes, tmp_path: Path, torture: bool) -> None:
    node = nodes.start(*OPTIONS)
    event = furnish(node)
    report = tmp_path / "report.ndjson"
    # HEAD and OPTIONS would take as long as the others, and tests/rpc/test_sites.py compares them with GET.
    methods = ("GET", "POST", "HEAD", "OPTIONS") if torture else ("GET", "POST")
    assert drive(node, report, event, examples=100 if torture else 6, methods=methods, seconds=800) == ""
    found = statuses(report)
    assert sum(found.values()) >= (5_000 if torture else 600)
    described = node.get("/rpc/openapi.json").json["paths"]
    routes = {f"{method.upper()} {path}" for path, of in described.items() for method in of}
    assert {route for route, status in found if status in {200, 201, 202, 204}} >= {
        route for route in routes - SNAPSHOTS if route.split()[0] in methods and route != "GET /rpc/openapi.json"
    }
    assert {route for route, status in found if status == 404} >= SNAPSHOTS
