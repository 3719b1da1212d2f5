"""Files that are damaged or removed, while the node runs and while it does not: it stops with one line, or is right."""

from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.faults.conftest import confirm, loud
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode, refused, wait_until
from tests.process_level.test_damage import spoil
from tests.process_level.test_devnet import FAUCET
from tests.process_level.test_webhook_story import Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

REMEDY = "try `svc db rebuild`, restore it from a backup, or move it away and the node fetches the chain again"
DAMAGED = f"the database is damaged: a page fails its checksum. The node stops; {REMEDY}"
REMOVED = (
    "{path} was removed or replaced while the node uses it. The node stops, and saves what it can to the database "
    "that it has open; check the disk, then start it again"
)
PAID = "pending: pending 0"


def ends_with(node: RunningNode, line: str) -> None:
    """Fail unless the node ends by itself with exit status 1 and this as its only complaint."""
    assert node.wait_ended() == 1, node.output
    assert loud(node) == [line]
    assert "Traceback" not in node.output


def all_evaluated(database: Path) -> bool:
    """Whether each watch has been evaluated since its registration."""
    with closing(connect(database)) as connection:
        (new,) = connection.execute("SELECT count(*) FROM watch WHERE evaluated_height IS NULL").fetchone()
    return new == 0


# Pages that are overwritten


def test_a_page_that_is_overwritten_and_read(nodes: Nodes) -> None:
    """Of a running node; tests/faults/test_flips.py has every table of one that was stopped."""
    node = nodes.start()
    node.mine(3)
    spoil(node.data_dir / "chain.sqlite", "block_transaction")
    answer = node.get("/rpc/block/2")
    assert (answer.status, answer.error) == (503, "the node's database is damaged, and the node stops")
    ends_with(node, DAMAGED)


def test_a_page_of_the_webhooks_that_is_overwritten(shop: Shop) -> None:
    """The watches are lost with it; whoever registers anew is told how the payment stands."""
    shop.fund("customer")
    order = shop.order("order-1")
    database = shop.node.data_dir / "webhooks.sqlite"
    # The evaluation after the registration would find the damage, and the node would be gone before the payment.
    wait_until(lambda: all_evaluated(database), "the first evaluation of the watch")
    spoil(database, "watch")
    shop.pay("customer", order["request"])
    ends_with(
        shop.node,
        "the webhooks' database is damaged: a page fails its checksum. The node stops; move it away and "
        "register the webhooks still open anew",
    )
    for path in database.parent.glob("webhooks.sqlite*"):
        path.unlink()
    shop.start()
    shop.order("order-1")
    shop.hears(PAID)
    confirm(shop, PAID)


def test_a_journal_of_the_waiting_transfers_that_is_overwritten(nodes: Nodes) -> None:
    """Wallets and peers send the waiting transfers again, so the file may go; the chain does not need it."""
    node = nodes.start()
    for _ in range(3):
        node.ok(node.operator("/operator/faucet", {"recipient": FAUCET, "amount": "1"}))
    node.stop()
    journal = node.data_dir / "mempool.journal"
    whole = bytearray(journal.read_bytes())
    whole[len(whole) // 2] ^= 0x10
    journal.write_bytes(whole)
    node = nodes.start()
    (warning,) = node.logged(f"{journal} is damaged in 1 place, ")
    assert warning["level"] == "warn"
    assert warning["message"].endswith(
        " bytes in all: the transfers there are lost, unless wallets and peers send them again"
    )
    assert len(node.ok(node.get("/p2p/transactions"))["transactions"]) == 2
    node.stop()
    journal.write_bytes(bytes(64) + journal.read_bytes())
    end = refused(nodes.folder, *DEVNET, "--data-dir=data", "--listen=tcp:0:interface=127.0.0.1")
    assert (end.status, end.sentence) == (
        1,
        f"svcd: {journal} is damaged at its beginning, or no mempool journal of this svcd; move it away: "
        "wallets and peers send the waiting transfers again",
    )
    journal.unlink()
    node = nodes.start()
    node.mine(1)


# Files that are removed


@pytest.mark.parametrize("name", ["chain.sqlite-wal", "webhooks.sqlite-wal"])
def test_a_log_that_is_removed_while_the_node_runs(shop: Shop, name: str) -> None:
    """The node still has it open, and by stopping brings all of it into the database."""
    shop.fund("customer")
    order = shop.order("order-1")
    path = shop.node.data_dir / name
    path.unlink()
    ends_with(shop.node, REMOVED.format(path=path))
    shop.start()
    assert shop.node.status()["height"] == "1"
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    confirm(shop, PAID)


@pytest.mark.parametrize("name", ["chain.sqlite", "mempool.journal"])
def test_a_file_that_is_replaced_while_the_node_runs(nodes: Nodes, name: str) -> None:
    node = nodes.start()
    node.mine(3)
    path = node.data_dir / name
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    ends_with(node, REMOVED.format(path=path))


def test_a_log_of_the_chain_that_is_removed_while_the_node_is_off(shop: Shop) -> None:
    """After a kill the newest blocks are in it: the node begins where the database ends, and fetches them again.

    The payment is still in the mempool's journal: nothing was written to it since the block.
    """
    shop.fund("customer")
    order = shop.order("order-1")
    shop.node.stop()
    shop.start()
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    shop.node.mine(1)
    shop.hears(PAID, "confirming: confirming 1")
    shop.node.kill()
    log = shop.node.data_dir / "chain.sqlite-wal"
    log.unlink()
    shop.start()
    assert shop.node.status()["height"] == "1"
    (warning,) = shop.node.logged(f"{log} is missing ")
    assert (warning["level"], warning["message"]) == (
        "warn",
        f"{log} is missing although the last run did not shut down cleanly: the newest blocks are lost with it, and "
        "are fetched again",
    )
    # Alone, it can fetch them from nobody: another block takes its place, and the merchant hears of that.
    shop.node.mine(1)
    told = (PAID, "confirming: confirming 1", "reorged: confirming 1")
    shop.hears(*told)
    shop.node.mine(2)
    shop.hears(*told, "confirmed: confirmed 3")
    shop.receiver.check()


def test_a_log_of_the_webhooks_that_is_removed_while_the_node_is_off(shop: Shop) -> None:
    """The watches in it are lost, so the node does not start as if nobody had been promised anything."""
    shop.fund("customer")
    order = shop.order("order-1")
    shop.node.kill()
    log = shop.node.data_dir / "webhooks.sqlite-wal"
    kept = log.read_bytes()
    log.unlink()
    end = refused(shop.nodes.folder, *shop.options, "--data-dir=shop", "--listen=tcp:0:interface=127.0.0.1")
    database = log.with_name("webhooks.sqlite")
    assert (end.status, end.sentence) == (
        1,
        f"svcd: {log} is missing although the last run did not shut down cleanly: the newest watches and events "
        f"are lost with it. Restore it, or move {database} away and register the open orders again",
    )
    log.write_bytes(kept)
    shop.start()
    shop.pay("customer", order["request"])
    shop.hears(PAID)
    confirm(shop, PAID)
