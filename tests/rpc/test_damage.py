"""A damaged page of a database: whoever meets it gets 503, and the node stops with one alarm."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svcd.node.backups import Backups
from svcd.node.threads import InlineWorker
from svcd.rpc.operator_routes import BackupRoutes
from svcd.store.database import WEBHOOKS, open_writer
from svcd.web.connections import SiteLimits
from tests.process_level.test_damage import spoil
from tests.rpc.conftest import description_of
from tests.rpc.node import OPERATOR_SOCKET, Client, Node

Alarms = Callable[..., list[Any]]
SENTENCE = "the node's database is damaged, and the node stops"
ORDER = "recipient={bob}&amountBaseUnits=5000"


def alarm(expected_errors: Alarms) -> str:
    """What the only error in the log says of the database."""
    (line,) = expected_errors()
    return f"{line['what']} is damaged: {line['why']}"


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/rpc/block/1", "block_transaction"),
        ("/rpc/balance/{bob}", "account_entry"),
        ("/rpc/transaction/{txid}", "transfer_entry"),
        ("/rpc/address/{bob}/transactions", "block_transaction"),
        ("/rpc/address/{bob}/statement", "transfer_entry"),
        ("/rpc/commerce/payments?recipient={bob}", "block_transaction"),
        ("/rpc/commerce/feed/{bob}", "block_transaction"),
        (f"/rpc/commerce/payment/order-1?{ORDER}", "transfer_entry"),
        (f"/rpc/commerce/payment/order-1/proof?{ORDER}", "block_transaction"),
        (f"/rpc/commerce/payment/order-1/proof?{ORDER}&chain=1", "block"),
        ("/rpc/proof/account/{bob}", "account_entry"),
        ("/rpc/proof/chain?tip={hash}", "block"),
    ],
)
def test_an_answer(node: Node, client: Client, path: str, table: str, expected_errors: Alarms) -> None:
    blocks = node.grow("genesis: b[1..5]\nb1 pays 5000 from alice to bob for order-1")
    (payment,) = blocks["b1"].transfers
    spoil(node.path, table)
    values = {"bob": node.address("bob"), "txid": payment.txid.hex(), "hash": blocks["b5"].header.hash.hex()}
    response = client.get(path.format(**values))
    assert (response.status, response.error) == (503, SENTENCE)
    assert (node.stops, alarm(expected_errors)) == (1, "the database is damaged: a page fails its checksum")


@pytest.mark.parametrize("damaged", ["chain", "webhooks"])
def test_a_backup(node: Node, tmp_path: Path, damaged: str, expected_errors: Alarms) -> None:
    webhooks = tmp_path / "webhooks.sqlite"
    open_writer(webhooks, WEBHOOKS).close()
    routes = BackupRoutes(Backups(node.path, webhooks, InlineWorker(), node.health), token=None)
    site = node.sites.operator([routes], SiteLimits())
    operator = Client(site, description_of([routes]), node.clock, OPERATOR_SOCKET)
    spoil(*((node.path, "block") if damaged == "chain" else (webhooks, "watch")))
    response = operator.post("/operator/backup", {"path": str(tmp_path / "copy")})
    assert (response.status, response.error) == (503, SENTENCE)
    name = "the database" if damaged == "chain" else "the webhooks' database"
    assert (node.stops, alarm(expected_errors)) == (1, f"{name} is damaged: a page fails its checksum")
    assert not list(tmp_path.glob("copy*"))
