"""Payouts against a devnet: by four workers with one key that are killed, and through a node that lies."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from attrs import frozen
from svc_pay import DEVNET, Client, Key

from tests.browser.chain import COIN, FAUCET
from tests.lying_node import BROADCAST_LIES, Lie, lying_proxy
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, RunningNode
from tests.programs import NODE_OPTIONS, needs

pytestmark = [pytest.mark.socket, pytest.mark.slow]

HERE = Path(__file__).parent
PYTHON = [sys.executable, str(HERE / "payout_worker.py")]
NODE = ["node", str(HERE / "js" / "payout-worker.mjs")]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT / "clients" / "python" / "src"),
    "NODE_OPTIONS": NODE_OPTIONS,
    "no_proxy": "*",
}
PAYOUTS, WORKERS, KILLS = 30, 4, 12


@contextmanager
def working(command: list[str]) -> Iterator["subprocess.Popen[str]"]:
    """A worker, which is killed at the end."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=HERE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def output_of(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=HERE, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@frozen
class Shop:
    """A key with coins that pays ``count`` payouts to a new address, and its journal."""

    node: RunningNode
    key: Key
    recipient: str
    journal: Path
    program: list[str]

    def command(self, task: str, *, count: int = PAYOUTS, url: str | None = None) -> list[str]:
        """A worker that pays all of them, or goes on with them."""
        given = [url or self.node.url, str(self.journal), self.key.seed.hex(), self.recipient, str(count), task]
        return [*self.program, *given]

    def check_paid_once(self, count: int) -> None:
        """Go on until all are deep, and see that the chain has each of them once."""
        for _ in range(PAYOUTS):
            if output_of(self.command("advance")) == "0\n":
                break
            self.node.mine(1)
        with Client(self.node.url) as client:
            received = client.payments(self.recipient)
            assert client.account(self.key.address(DEVNET)).nonce == count
        assert sorted((each.reference or "", each.amount) for each in received) == sorted(
            (f"payout-{place}", COIN + place) for place in range(count)
        )
        assert all(each.confirmations >= 3 for each in received)


@pytest.fixture
def shop(shop_node: RunningNode, tmp_path: Path, program: list[str]) -> Shop:
    """A shop with coins of the faucet."""
    key, recipient = Key(secrets.token_bytes(32)), Key(secrets.token_bytes(32)).address(DEVNET)
    with Client(shop_node.url) as client:
        funds = {"recipient": key.address(DEVNET), "amount": 2 * PAYOUTS * COIN}
        client.broadcast(client.sign(Key(FAUCET.seed), DEVNET, **funds))  # type: ignore[arg-type]
    shop_node.mine(1)
    return Shop(shop_node, key, recipient, tmp_path / "payouts", program)


@pytest.mark.parametrize(
    "program",
    [pytest.param(PYTHON, marks=pytest.mark.story, id="python"), pytest.param(NODE, marks=needs("node"), id="node")],
)
def test_four_workers_that_are_killed_pay_each_payout_once(shop: Shop) -> None:
    def work(_: int) -> None:
        """Read what a worker does, and kill it while it pays, some times; then let it end."""
        for lives in range(KILLS // WORKERS, -1, -1):
            with working(shop.command("pay")) as process:
                assert process.stdout is not None
                wanted = PAYOUTS + 1 if lives == 0 else 1 + secrets.randbelow(PAYOUTS // 2)
                lines = [line for line, _ in zip(process.stdout, range(wanted), strict=False)]
                if lives == 0:
                    assert process.stderr is not None
                    assert (lines[-1:], process.stderr.read()) == (["end\n"], "")
                else:
                    process.kill()

    with ThreadPoolExecutor(WORKERS) as threads:
        list(threads.map(work, range(WORKERS)))
    shop.node.mine(2)
    shop.node.ok(shop.node.operator("/operator/reorganise", {"depth": 2}))
    shop.check_paid_once(PAYOUTS)


@pytest.mark.parametrize(
    "program", [pytest.param(PYTHON, id="python"), pytest.param(NODE, marks=needs("node"), id="node")]
)
def test_a_node_that_lies_makes_no_payout_two(shop: Shop) -> None:
    """A further payout for each lie: the program pays all of them, and is started again, before and after a block."""
    # The others change only the status of the node, for which Payouts does not ask.
    lies = [*BROADCAST_LIES, Lie.UNKNOWN, Lie.INCLUDED, Lie.NONCE_AHEAD, Lie.NONCE_BEHIND, Lie.NONE_WAITING]
    with lying_proxy(shop.node.url) as (url, liar):
        for count, lie in enumerate(lies, 1):
            liar.lies = {lie}
            output_of(shop.command("pay", count=count, url=url))
            output_of(shop.command("pay", count=count, url=url))
            liar.relay_late()
            shop.node.mine(1)
            output_of(shop.command("pay", count=count, url=url))
    assert liar.relayed
    assert "error" not in output_of(shop.command("pay", count=len(lies)))
    shop.check_paid_once(len(lies))
