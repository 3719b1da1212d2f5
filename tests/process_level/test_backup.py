"""Backups, checks and repairs with processes: what an operator does, in the order of a bad day."""

import json
import shutil
import stat
import subprocess
import threading
from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.faults.conftest import confirm
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, wait_until
from tests.process_level.test_webhook_story import Shop, authority, certificate, receiver, shop

__all__ = ["authority", "certificate", "receiver", "shop"]

pytestmark = [pytest.mark.socket, pytest.mark.slow, pytest.mark.deadline(300)]

PAID = "pending: pending 0"


def svc(folder: Path, *words: object, status: int = 0) -> str:
    """Standard output of `svc`, or standard error if it is to fail."""
    done = subprocess.run(
        [BIN / "svc", *map(str, words)], capture_output=True, text=True, cwd=folder, env=ENVIRONMENT, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done
    return done.stderr if status else done.stdout


def test_files_that_nothing_waits_for_have_threads_of_their_own(nodes: Nodes, tmp_path: Path) -> None:
    """A slow disk under `peers.json` or a backup holds up no block, and no look-up of a peer."""
    node = nodes.start(*DEVNET)

    def jobs() -> dict[str, float]:
        name = "svcd_threads_work_seconds_count"
        return {threads: node.measured(name, threads=threads) for threads in ("files", "resolver")}

    # Other jobs of these threads come with time: `peers.json` is written every minute.
    before = jobs()["files"]
    node.ok(node.operator("/operator/peers/ban", {"address": "192.0.2.7"}))
    wait_until(lambda: jobs()["files"] > before, "a job for peers.json")
    before = jobs()["files"]
    node.ok(node.operator("/operator/backup", {"path": str(tmp_path / "copy")}))
    wait_until(lambda: jobs()["files"] > before, "a job for the backup")
    assert jobs()["resolver"] == 0


def test_a_backup_is_made_while_blocks_go_on_and_a_node_starts_on_it(nodes: Nodes, tmp_path: Path) -> None:
    secrets = {"manage-token": "m" * 40, "signing-secret": "s" * 40}
    for name, secret in secrets.items():
        (tmp_path / name).write_text(secret)
        (tmp_path / name).chmod(0o600)
    hooks = [
        "--set=commerce.webhooks.enabled=true",
        f"--set=commerce.webhooks.manageTokenFile={tmp_path}/manage-token",
        f"--set=commerce.webhooks.signingSecretFile={tmp_path}/signing-secret",
    ]
    node = nodes.start(*DEVNET, *hooks)
    node.mine(200)
    stop = threading.Event()
    heights: list[int] = []

    def keep_mining() -> None:
        while not stop.is_set():
            node.mine(5)
            heights.append(int(node.status()["height"]))

    miner = threading.Thread(target=keep_mining)
    miner.start()
    try:
        told = [json.loads(svc(tmp_path, "node", "backup", f"copy-{number}", "--json")) for number in range(2)]
        wait_until(lambda: heights[-1:] > [int(told[-1]["height"])], "a block after the backup")
    finally:
        stop.set()
        miner.join()
    assert int(told[-1]["height"]) >= 200
    for answer in told:
        folder = Path(answer["path"])
        assert sorted(answer["files"]) == sorted(path.name for path in folder.iterdir())
        assert sorted(answer["files"]) == ["chain.sqlite", "webhooks.sqlite"]
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
        assert svc(tmp_path, "db", "check", folder).startswith(f"{folder} is sound: {int(answer['height']) + 1} blocks")
    restored = nodes.start(*DEVNET, *hooks, name="copy-1")
    assert (restored.status()["height"], restored.status()["hash"]) == (told[1]["height"], told[1]["hash"])
    restored.mine(1)


def test_a_damaged_chain_is_found_rebuilt_and_used_again(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.start()
    node.mine(50)
    tip = node.status()["hash"]
    sentence = svc(tmp_path, "db", "check", "data", status=1)
    assert f"is in use by another node (process {node.process.pid})" in sentence
    node.kill()
    assert svc(tmp_path, "db", "check", "data") == "data is sound: 51 blocks and all derived data\n"
    again = nodes.start(port=node.port)
    assert again.status()["hash"] == tip
    assert {event["level"] for event in again.events} == {"info"}, "nothing is missed that the check has taken up"
    again.stop()
    with closing(connect(tmp_path / "data" / "chain.sqlite")) as connection, connection:
        connection.execute("UPDATE account_entry SET balance = balance + 1")
    assert "try: svc db rebuild data" in svc(tmp_path, "db", "check", "data", status=1)
    svc(tmp_path, "db", "rebuild", "data")
    svc(tmp_path, "db", "check", "data")
    again = nodes.start(port=node.port)
    assert again.status()["hash"] == tip


def test_a_merchant_hears_of_payments_after_a_backup_was_put_back(shop: Shop, tmp_path: Path) -> None:
    """What the lost node told after the backup must not stand in the way: receivers refuse an id that they know."""
    shop.fund("customer")
    order = shop.order("order-1")
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    # The receiver has an event before the node has its answer: without the note it would be sent again.
    wait_until(lambda: shop.watch(order["watch"])["events"][0]["deliveredAt"] is not None, "the note of the delivery")
    svc(tmp_path, "--data-dir", "shop", "node", "backup", "copy")
    shop.node.mine(1)
    shop.hears(PAID, "confirming: confirming 1")
    shop.node.kill()
    for name in ("chain.sqlite", "webhooks.sqlite"):
        for part in ("", "-wal", "-shm", "-open"):
            (tmp_path / "shop" / f"{name}{part}").unlink(missing_ok=True)
        shutil.copy(tmp_path / "copy" / name, tmp_path / "shop" / name)
    shop.start()
    assert shop.node.status()["height"] == "1"
    confirm(shop, PAID, "confirming: confirming 1")
    assert [event["epoch"] > 1_700_000_000 for event in shop.receiver.events] == [False, False, True, True, True]
    shop.node.stop()
    shop.start()
    assert "those of a backup" not in shop.node.output, "they have become the node's own"
