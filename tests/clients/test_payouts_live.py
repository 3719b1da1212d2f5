"""Four workers with one key, killed again and again, against a devnet: each payout is paid once."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from svc_pay import DEVNET, Client, Key

from tests.browser.chain import COIN, FAUCET
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


@pytest.mark.parametrize(
    "program",
    [pytest.param(PYTHON, marks=pytest.mark.story, id="python"), pytest.param(NODE, marks=needs("node"), id="node")],
)
def test_four_workers_that_are_killed_pay_each_payout_once(
    shop_node: RunningNode, tmp_path: Path, program: list[str]
) -> None:
    key, recipient = Key(secrets.token_bytes(32)), Key(secrets.token_bytes(32)).address(DEVNET)
    with Client(shop_node.url) as client:
        funded = client.sign(
            Key(FAUCET.seed), DEVNET, recipient=key.address(DEVNET), amount=2 * PAYOUTS * COIN, reference=None
        )
        client.broadcast(funded)
        shop_node.mine(1)
        given = [shop_node.url, str(tmp_path / "payouts"), key.seed.hex(), recipient, str(PAYOUTS)]

        def work(_: int) -> None:
            """Read what a worker does, and kill it while it pays, some times; then let it end."""
            for lives in range(KILLS // WORKERS, -1, -1):
                with working([*program, *given, "pay"]) as process:
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
        shop_node.mine(2)
        shop_node.ok(shop_node.operator("/operator/reorganise", {"depth": 2}))
        for _ in range(PAYOUTS):
            if output_of([*program, *given, "advance"]) == "0\n":
                break
            shop_node.mine(1)
        received = client.payments(recipient)
        assert sorted((each.reference or "", each.amount) for each in received) == sorted(
            (f"payout-{place}", COIN + place) for place in range(PAYOUTS)
        )
        assert all(each.confirmations >= 3 for each in received)
        assert client.account(key.address(DEVNET)).nonce == PAYOUTS
