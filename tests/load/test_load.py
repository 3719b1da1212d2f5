"""A node under every kind of attack at once serves the clients that keep to the limits, and its memory stays small."""

import json
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from attrs import define, field

from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.config.loader import load
from tests.chains import address_of
from tests.load.clients import CONNECTIONS, KINDS, SENDERS
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.running import RunningNode, wait_until
from tests.process_level.test_devnet import FAUCET

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.socket, pytest.mark.deadline(900)]

ROOT = Path(__file__).parents[2]
SLOWEST_MS = 100.0
"""Of a hundred answers ninety-nine come within this, on a machine that does nothing else."""
STUCK_MS = 3_000.0
"""And within this on one that does: who waits longer has been shut out."""
PATIENCE = 30.0
"""Seconds after which there is no answer."""
START_SECONDS = 180.0
"""Seconds that the hostile clients may take to start, on a machine that is busy with other tests."""
MEMORY_MIB = 300
"""See docs/operations.md, what a node needs."""
FULL_POOL_MIB = 120
"""What a mempool of the default capacity takes; the one here is small, so that it can be filled."""
POOL = 300
# Everybody has limits here: nothing is exempt.
OPTIONS = (
    "--network=devnet",
    "--set=participation.onDemand=true",
    f"--set=mempool.maxTransactions={POOL}",
)


@define
class Polite:
    """Asks for the status 20 times a second, from an address of its own, and notes how long each answer took."""

    node: RunningNode
    millis: list[float] = field(factory=list)
    statuses: list[int | None] = field(factory=list)
    reconnects: int = 0
    largest_mib: float = 0.0
    done: bool = False
    connection: HTTPConnection = field(init=False)

    def run(self) -> None:
        while not self.done:
            began = time.perf_counter()
            # One that is cut off asks again at once, and has not been answered until it is.
            while (status := self._asked()) is None and time.perf_counter() - began < PATIENCE:
                self.reconnects += 1
            self.millis.append((time.perf_counter() - began) * 1000)
            self.statuses.append(status)
            self.largest_mib = max(self.largest_mib, resident_mib(self.node))
            time.sleep(max(0, 0.05 - (time.perf_counter() - began)))
        self.connection.close()

    def _asked(self) -> int | None:
        """The status of the answer; None if there was none."""
        try:
            self.connection.request("GET", "/rpc/status")
            response = self.connection.getresponse()
            response.read()
        except (OSError, HTTPException):
            # Between two requests it is among those who wait, and may have to give way.
            self.connection.close()
            return None
        return response.status

    def percentile(self, share: float) -> float:
        return sorted(self.millis)[min(int(len(self.millis) * share), len(self.millis) - 1)]

    @connection.default
    def _own_address(self) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.node.port, timeout=30, source_address=("127.9.0.1", 0))


def resident_mib(node: RunningNode) -> float:
    """VmRSS of the node."""
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class HostileClients:
    """Hostile clients of one kind, which attack a node until the process is ended."""

    def __init__(self, kind: str, node: RunningNode, niceness: int) -> None:
        self.kind = kind
        command = [sys.executable, "-m", "tests.load.clients", kind, str(node.port), str(niceness)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._lines: deque[str] = deque(maxlen=1)
        self._reading = Thread(target=self._lines.extend, args=(iter(self._process.stdout),))
        self._reading.start()

    @property
    def said(self) -> Counter[str]:
        """What came back to them, as they last said."""
        assert self._process.poll() is None, f"{self.kind} has ended by itself"
        return Counter(json.loads(self._lines[0]) if self._lines else {})

    def __enter__(self) -> "HostileClients":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reading.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


def all_attack(node: RunningNode, attackers: Sequence[HostileClients]) -> bool:
    """Whether all kinds are there, and were refused where they went too far."""
    said = {each.kind: each.said for each in attackers}
    return (
        said["drip"]["connected"] > CONNECTIONS
        and said["drip"]["cut off"] > 0
        # More came than there are places.
        and node.measured("svcd_http_connections_evicted_total", site="public") > 0
        and said["hurry"]["200"] > 1000
        and min(said["lie"]["400 the work"], said["lie"]["400 stateRoot must"]) > 10
        and said["flood"]["200"] > POOL
        # More was valid than the pool takes.
        and said["flood"]["400 the pool"] > 0
    )


def give_coins(node: RunningNode) -> None:
    """Let every sender of the flood have something: the faucet pays 16 of them with a block."""
    nonce = int(node.account(FAUCET)["nonce"])
    for first in range(0, SENDERS, 16):
        for number in range(first, first + 16):
            draft = Draft(
                recipient=address_of(f"sender-{number}", DEVNET.address_prefix),
                amount=10**11,
                fee=DEVNET.minimum_fee,
                nonce=nonce + number,
                timestamp=int(time.time() * 1000),
            )
            transfer = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
            answer = node.post("/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}")
            while answer.status == 429:
                time.sleep(float(answer.headers["retry-after"]))
                answer = node.post("/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}")
            node.ok(answer)
        node.mine(1)


def window(node: RunningNode, seconds: float) -> dict[str, Any]:
    """What a polite client meets for so long, while honest blocks come once a second."""
    polite, heights, waiting = Polite(node), [], 0
    asking = Thread(target=polite.run)
    asking.start()
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            node.mine(1)
            status = node.ok(node.operator("/operator/status"))["status"]
            heights.append(int(status["height"]))
            waiting = max(waiting, status["mempool"]["transactions"])
            time.sleep(1)
    finally:
        polite.done = True
        asking.join()
    assert heights == list(range(heights[0], heights[0] + len(heights))), "honest blocks connect"
    assert set(polite.statuses) == {200}
    assert waiting <= POOL
    return {
        "answers": len(polite.millis),
        "p50 ms": round(polite.percentile(0.5), 1),
        "p99 ms": round(polite.percentile(0.99), 1),
        "slowest ms": round(max(polite.millis), 1),
        "MiB": round(polite.largest_mib),
        "blocks": len(heights),
        "waiting": waiting,
        "reconnects": polite.reconnects,
    }


def test_everything_at_once(nodes: Nodes, torture: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """The long form holds the node to its figure; in the short one the machine may be busy with other tests."""
    node = nodes.start(*OPTIONS)
    give_coins(node)
    with ExitStack() as stack:
        # On a busy machine those of nice 19 would hardly ever run.
        attackers = [stack.enter_context(HostileClients(kind, node, 19 if torture else 5)) for kind in KINDS]
        wait_until(partial(all_attack, node, attackers), "all kinds of clients attack", seconds=START_SECONDS)
        figures = window(node, 300 if torture else 15)
        said = {each.kind: each.said for each in attackers}
    with capsys.disabled():
        sys.stdout.write(f"\nload: {json.dumps([figures, said])}\n")
    assert figures["p99 ms"] < (SLOWEST_MS if torture else STUCK_MS), figures
    assert figures["MiB"] + FULL_POOL_MIB < MEMORY_MIB, figures


def test_a_full_mempool() -> None:
    """In a process of its own, where nothing else has left room in memory."""
    done = subprocess.run([sys.executable, "-m", "tests.load.full_pool"], cwd=ROOT, capture_output=True, text=True)
    waiting, mib = map(int, done.stdout.split())
    assert waiting == load().mempool.max_transactions
    assert 20 < mib < FULL_POOL_MIB
