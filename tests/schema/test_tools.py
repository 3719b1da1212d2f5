"""Linters have nothing to say of the documents, and generated clients compile and work."""

import importlib
import json
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from svcd.chain.encoding import parse_json
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.units import parse_amount
from tests.chains import address_of, key_of
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.schema.documents import DOCS
from tests.schema.order import CALLBACK, PAYER, PRICE, SHOP
from tests.schema.test_live_node import OPTIONS, TOKEN
from tests.schema.tools import SECONDS, npm_tool, python_tool

pytestmark = [pytest.mark.socket, pytest.mark.slow, pytest.mark.deadline(4 * SECONDS)]

SNAPSHOTS = (DOCS / "openapi.json", DOCS / "operator-openapi.json")
CONFIRMATIONS = 3


def test_redocly_finds_nothing(tmp_path: Path) -> None:
    said = npm_tool("redocly", "lint", "--extends=recommended", "--format=json", *SNAPSHOTS, cwd=tmp_path)
    assert re.findall(r'"(errors|warnings)": (\d+)', said) == [("errors", "0"), ("warnings", "0")] * len(SNAPSHOTS)


USE = """
import type { MismatchedEvent, NewPaymentRequestWithAmount, Payment, Status } from "./api/types.gen";

const state: Payment["state"] = "confirmed";
const network: Status["networkId"] = 1;
const order: NewPaymentRequestWithAmount = { recipient: "svc1…", amount: "25" };
const kind: MismatchedEvent["mismatch"]["kind"] = "late";
const event: MismatchedEvent["event"] = "payment.mismatched";
// @ts-expect-error: a state that there is not
const wrong: Payment["state"] = "paid";
export { event, kind, network, order, state, wrong };
"""


def test_client_of_hey_api(tmp_path: Path) -> None:
    npm_tool("openapi-ts", f"--input={SNAPSHOTS[0]}", "--output=api", cwd=tmp_path)
    (tmp_path / "use.ts").write_text(USE)
    options = ("--noEmit", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "preserve")
    npm_tool("tsc", *options, "--lib", "es2022,dom,dom.iterable", "api/index.ts", "use.ts", cwd=tmp_path)
    types = (tmp_path / "api" / "types.gen.ts").read_text(encoding="utf-8")
    assert types.count("export type Subscription = ") == 1


@pytest.fixture
def generated(tmp_path: Path) -> Iterator[Any]:
    """``generated(document)``: the package that openapi-python-client makes of it, every module of it imported."""
    sys.path.insert(0, str(tmp_path))

    def make(document: object) -> ModuleType:
        (tmp_path / "document.json").write_text(json.dumps(document), encoding="utf-8")
        python_tool(
            "openapi-python-client",
            "generate",
            f"--path={tmp_path / 'document.json'}",
            f"--output-path={tmp_path / 'svcd_api'}",
            "--meta=none",
            "--fail-on-warning",
        )
        package = importlib.import_module("svcd_api")
        for module in pkgutil.walk_packages(package.__path__, "svcd_api."):
            importlib.import_module(module.name)
        return package

    yield make
    sys.path.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "svcd_api"]:
        del sys.modules[name]


def test_client_of_openapi_python_client_sells_something(nodes: Nodes, generated: Any) -> None:
    node = nodes.start(*OPTIONS)
    api = generated(node.get("/rpc/openapi.json").json)
    models = importlib.import_module("svcd_api.models")
    client, merchant = api.Client(base_url=node.url), api.AuthenticatedClient(base_url=node.url, token=TOKEN)

    def call(name: str, *arguments: Any, by: Any = client, **named: Any) -> Any:
        tag, operation = name.split(".")
        return importlib.import_module(f"svcd_api.api.{tag}.{operation}").sync(*arguments, client=by, **named)

    shop, payer = address_of(SHOP, "svcd"), address_of(PAYER, "svcd")
    node.ok(node.operator("/operator/faucet", {"recipient": payer, "amount": "1000"}))
    node.mine(1)
    assert call("chain.get_rpc_status").status.chain_id == "SVC-DEVNET"

    order = {"recipient": shop, "amount": PRICE, "reference": "order-1", "confirmations": CONFIRMATIONS}
    asked = call(
        "payments.post_rpc_commerce_payment_request", body=models.NewPaymentRequestWithAmount(**order, label="Tea")
    )
    assert asked.payment.payment_uri.startswith(f"svc:{shop}?amount=25&ref=order-1")
    watch = models.NewSubscriptionWithAmount(**order, callback_url=CALLBACK)
    watched = call("webhooks.post_rpc_commerce_webhooks", body=watch, by=merchant).subscription
    assert call("webhooks.get_rpc_commerce_webhooks_id", watched.id, by=client).ok is False, "without a token"

    def payment() -> Any:
        terms = {"recipient": shop, "amount": PRICE, "confirmations": CONFIRMATIONS}
        return call("payments.get_rpc_commerce_payment_reference", "order-1", **terms).payment

    assert payment().state == models.PaymentState.UNPAID
    draft = Draft(
        recipient=shop,
        amount=parse_amount(PRICE),
        fee=int(call("chain.get_rpc_fees").fees.suggested_fee),
        nonce=int(call("chain.get_rpc_balance_address", payer).account.pending_nonce),
        timestamp=time.time_ns() // 1_000_000,
        reference="order-1",
    )
    transfer = sign_transfer(draft, seed=key_of(PAYER).seed, params=DEVNET)
    signed = models.SignedTransaction.from_dict(parse_json(transfer.wire))
    body = models.PostRpcBroadcastBody(transaction=signed)
    assert call("chain.post_rpc_broadcast", body=body).txid == transfer.txid.hex()
    assert payment().state == models.PaymentState.PENDING
    node.mine(1)
    paid = payment()
    assert (paid.state, paid.confirmations) == (models.PaymentState.CONFIRMING, 1)
    node.mine(CONFIRMATIONS - 1)
    assert payment().state == models.PaymentState.CONFIRMED

    block = call("chain.get_rpc_block_height", int(paid.block_height)).block
    assert [each.payload.payment_reference for each in block.transactions] == ["order-1"]
    assert call("chain.get_rpc_transaction_txid", paid.txid).transaction.block_hash == block.hash_
    received = call("payments.get_rpc_commerce_payments", recipient=shop)
    assert [each.reference for each in received.payments] == ["order-1"]
    proof = call("payments.get_rpc_commerce_payment_reference_proof", "order-1", recipient=shop, amount=PRICE).proof
    assert proof.height == paid.block_height
    missing = call("chain.get_rpc_block_height", 10**6)
    assert isinstance(missing, models.ApiError)
    assert missing.error.startswith("there is no block 1000000 yet")
    cancelled = call("webhooks.post_rpc_commerce_webhooks_id_cancel", watched.id, by=merchant).subscription
    assert (cancelled.active, cancelled.reference) == (False, "order-1")
    assert [each.event for each in cancelled.events]
    for each in (client, merchant):
        each.get_httpx_client().close()
