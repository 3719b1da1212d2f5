"""The life of a devnet: the faucet, a transfer by a program that shares no code with us, a reorganisation."""

import json
import re
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from select import select
from typing import Any

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, LocalConnection, RunningNode, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "wallets.md").read_text(encoding="utf-8")
COIN = 10**8
FAUCET = "svcd1qkkdc74lsmkrzphngq8gkl3pygr82umndcxleht"
ALICE_SEED = sha256(b"alice of the end-to-end test").hexdigest()
BOB = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
WORTHLESS = {"network": "devnet", "nonce": "0", "amount": "1", "fee": "10000", "timestamp": "0", "recipient": BOB}


class Wallet:
    """The signer of docs/wallets.md, run as its readers run it."""

    def __init__(self, folder: Path) -> None:
        (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        self._program = folder / "sign_transfer.py"
        self._program.write_text(program, encoding="utf-8")

    def sign(self, **values: str) -> tuple[Any, str]:
        """The body to broadcast, and the txid."""
        done = subprocess.run(
            [sys.executable, "-I", str(self._program)],
            input=json.dumps(WORTHLESS | values),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), done.stderr.strip()

    def address(self, seed: str) -> str:
        """The address of a seed."""
        return str(self.sign(seed=seed)[0]["transaction"]["senderAddress"])


@pytest.fixture(scope="module")
def wallet(tmp_path_factory: pytest.TempPathFactory) -> Wallet:
    """The wallet of the page."""
    return Wallet(tmp_path_factory.mktemp("wallet"))


def now() -> str:
    return str(int(time.time() * 1000))


def found(node: RunningNode, txid: str) -> Any:
    return node.ok(node.get(f"/rpc/transaction/{txid}"))["transaction"]


def listed(node: RunningNode, address: str) -> list[str]:
    answer = node.ok(node.get(f"/rpc/address/{address}/transactions"))
    return [record["txid"] for record in answer["transactions"]]


def test_a_transfer_lives_through_a_reorganisation(devnet: RunningNode, wallet: Wallet) -> None:
    alice = wallet.address(ALICE_SEED)
    devnet.ok(devnet.operator("/operator/faucet", {"recipient": alice, "amount": "30"}))
    devnet.mine(100)
    assert devnet.account(alice)["balanceSvc"] == "30"

    body, txid = wallet.sign(
        seed=ALICE_SEED, amount="2500000000", fee="12345", timestamp=now(), paymentReference="order-1"
    )
    assert devnet.get(f"/rpc/transaction/{txid}").error.endswith("is in no block and not in the mempool")
    assert devnet.post("/rpc/broadcast", body).json == {"ok": True, "txid": txid, "state": "accepted"}
    assert devnet.post("/rpc/broadcast", body).json["state"] == "known"
    assert devnet.get(f"/rpc/transaction/{txid}").error.endswith("is in no block but waits in the mempool")

    (block,) = devnet.mine(1)
    record = found(devnet, txid)
    assert record == found(devnet, txid.upper())
    assert {name: record[name] for name in body["transaction"]} == body["transaction"]
    assert (record["blockHash"], record["confirmations"], record["amountSvc"]) == (block, 1, "25")
    assert listed(devnet, alice)[0] == listed(devnet, BOB)[0] == txid
    devnet.mine(2)
    assert found(devnet, txid)["confirmations"] == 3

    devnet.ok(devnet.operator("/operator/reorganise", {"depth": 3}))
    answer = devnet.get(f"/rpc/transaction/{txid}")
    assert (answer.status, answer.error) == (
        404,
        f"transaction {txid} is in no block but waits in the mempool",
    )
    assert listed(devnet, BOB) == []
    assert devnet.account(alice)["balanceSvc"] == "30"

    devnet.mine(1)
    assert found(devnet, txid)["confirmations"] == 1
    assert devnet.account(alice)["balance"] == str(30 * COIN - 2_500_000_000 - 12_345)
    assert devnet.account(BOB)["balanceSvc"] == "25"


def heights_while_mining(devnet: RunningNode) -> list[int]:
    """The heights that somebody reads while a hundred blocks are made."""
    before = int(devnet.status()["height"])
    connection = LocalConnection(devnet.socket)
    connection.request("POST", "/operator/mine", json.dumps({"blocks": 100}))
    heights = []
    while not select([connection.sock], [], [], 0)[0]:
        heights.append(int(devnet.status()["height"]))
    assert connection.getresponse().status == 200
    connection.close()
    assert heights == sorted(heights)
    assert int(devnet.status()["height"]) == before + 100
    return heights


def test_reads_go_on_while_blocks_are_made(devnet: RunningNode) -> None:
    # Where the machine is busy, whoever reads may have to wait for it, but not each time.
    assert any(len(set(heights_while_mining(devnet))) > 2 for _ in range(5))


@pytest.mark.parametrize(("every", "only_on_demand"), [(0, 1), (1, 0)])
def test_whether_there_is_a_block_that_nobody_asks_for_is_measured(
    nodes: Nodes, every: int, only_on_demand: int
) -> None:
    node = nodes.start(*DEVNET, f"--set=participation.every={every}")
    if every:
        wait_until(lambda: int(node.status()["height"]) > 0, "a block that nobody has asked for")
    assert node.measured("svcd_chain_on_demand") == only_on_demand
