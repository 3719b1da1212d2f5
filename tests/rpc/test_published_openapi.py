"""The published description: valid, complete, and in agreement with the specification of the interface."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.internet.task import Clock

from svcd import p2p, rpc
from svcd.chain.params import DEVNET, MAINNET
from svcd.chain.transition import genesis_point
from svcd.rpc import schemas
from svcd.rpc.chain_routes import consensus_record
from tests.rpc.conftest import published
from tests.rpc.node import PARAMS, Client, Node
from tests.schema.documents import declared
from tests.web.examples import inlined

ROUTES = {
    ("GET", "/rpc/status"),
    ("GET", "/rpc/consensus"),
    ("GET", "/rpc/rules"),
    ("GET", "/rpc/block/{height}"),
    ("GET", "/rpc/balance/{address}"),
    ("GET", "/rpc/address/{address}/transactions"),
    ("GET", "/rpc/address/{address}/statement"),
    ("GET", "/rpc/proof/chain"),
    ("GET", "/rpc/proof/account/{address}"),
    ("GET", "/rpc/transaction/{txid}"),
    ("POST", "/rpc/broadcast"),
    ("GET", "/rpc/mempool/{address}"),
    ("GET", "/rpc/fees"),
    ("GET", "/rpc/commerce/catalog"),
    ("GET", "/rpc/commerce/info"),
    ("GET", "/rpc/commerce/confirmations"),
    ("POST", "/rpc/commerce/payment-request"),
    ("GET", "/rpc/commerce/payment/{reference}"),
    ("GET", "/rpc/commerce/payments"),
    ("GET", "/rpc/commerce/payment/{reference}/proof"),
    ("GET", "/rpc/openapi.json"),
}


@pytest.fixture
def document(node: Node) -> dict[str, Any]:
    """What the node serves."""
    return published(node.public).document


def test_description_is_valid_openapi(document: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.1"


def test_description_has_every_route(document: dict[str, Any]) -> None:
    found = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    heads = {("HEAD", path) for method, path in ROUTES if method == "GET"}
    assert found == ROUTES | heads | {("OPTIONS", path) for _, path in ROUTES}


def test_description_has_the_routes_between_nodes_where_they_are(open_node: Callable[..., Node]) -> None:
    described = published(open_node(peers=True).public).document
    OpenAPIV31SpecValidator(described).validate()
    names = {
        "status",
        "hello",
        "headers",
        "header",
        "blocks",
        "block",
        "branch",
        "transactions",
        "transaction",
        "peers",
        "snapshot/{height}",
        "snapshot/{height}/{index}",
    }
    assert {path for _, path in ROUTES} | {f"/p2p/{name}" for name in names} == described["paths"].keys()


def test_every_route_announces_the_errors_it_may_answer(document: dict[str, Any]) -> None:
    for methods in document["paths"].values():
        for operation in (methods[method] for method in methods.keys() & {"get", "post"}):
            # A page of a statement may belong to a chain that was replaced, or begin below the blocks that are here.
            announced = operation["responses"].keys() - {"409", "410"}
            assert announced == {"200", "400", "404", "405", "408", "413", "429", "500", "503"}
            assert operation["summary"]


@pytest.mark.parametrize(
    ("method", "path", "cost"),
    [
        (
            "get",
            "/rpc/commerce/payment/{reference}/proof",
            "4 requests of the rate `read`; with `chain=1`, as 250 more.",
        ),
        (
            "get",
            "/rpc/proof/chain",
            "2 requests of the rate `proofs`; with a `tip` before the newest block, unless its proof is cached, as 20 "
            "more.",
        ),
        (
            "post",
            "/rpc/broadcast",
            "one request of the rate `broadcast`; with a signed transfer whose nonce is used, as 4 more.",
        ),
    ],
)
def test_what_some_requests_cost_more_is_announced(document: dict[str, Any], method: str, path: str, cost: str) -> None:
    assert f"Counts as {cost}" in document["paths"][path][method]["description"]


def test_every_route_that_charges_afterwards_says_for_what() -> None:
    found = {route.path: route.surcharges for package in (rpc, p2p) for route in declared(package) if route.with_charge}
    assert len(found) == 5
    assert all(found.values())


def test_description_is_sent_with_its_own_media_type(still: Client) -> None:
    response = still.get("/rpc/openapi.json")
    assert response.headers["content-type"] == "application/vnd.oai.openapi+json;version=3.1"
    info = json.loads(response.body)["info"]
    assert info.pop("description").startswith("The public interface of a node: ")
    assert info == {
        "title": "svcd",
        "version": "0.0.1",
        "contact": {"name": "The developers of svcd"},
        "license": {"name": "MIT", "identifier": "MIT"},
    }


def test_limit_and_its_default_are_announced(document: dict[str, Any]) -> None:
    operation = document["paths"]["/rpc/address/{address}/transactions"]["get"]
    parameters = {each["name"]: each for each in operation["parameters"]}
    assert parameters["limit"]["schema"] == {"type": "integer", "minimum": 1, "maximum": 100, "default": 25}
    assert {name: each["required"] for name, each in parameters.items()} == {
        "address": True,
        "limit": False,
        "before": False,
        "minHeight": False,
    }


def test_signed_transaction_has_the_patterns_of_the_interface(document: dict[str, Any]) -> None:
    body = document["paths"]["/rpc/broadcast"]["post"]["requestBody"]
    reference = body["content"]["application/json"]["schema"]["properties"]["transaction"]["$ref"]
    assert body["required"] is True
    assert reference == "#/components/schemas/SignedTransaction"
    components = document["components"]["schemas"]
    transaction = components["SignedTransaction"]
    assert transaction["properties"]["senderPublicKey"]["pattern"] == "^[0-9a-fA-F]{64}$"
    assert transaction["properties"]["signature"]["pattern"] == "^[0-9a-fA-F]{128}$"
    assert set(transaction["required"]) == {
        "version",
        "networkId",
        "type",
        "senderPublicKey",
        "senderAddress",
        "nonce",
        "fee",
        "timestamp",
        "payload",
        "signature",
    }
    assert transaction["properties"]["payload"] == {"$ref": "#/components/schemas/TransferPayload"}
    assert components["TransferPayload"]["required"] == ["recipient", "amount"]


COINS = str(inlined(schemas.COINS)["pattern"])


@pytest.mark.parametrize("text", ["25", "0.5", "0", "0.00000001", "90071992.54740991"])
def test_pattern_of_coins_takes_the_shortest_form(text: str) -> None:
    assert re.search(COINS, text)


@pytest.mark.parametrize("text", ["25.0", "0.50", "1e3", "00.5", ".5", "5.", "0.000000001", "-1"])
def test_pattern_of_coins_takes_no_other_form(text: str) -> None:
    assert not re.search(COINS, text)


# The consensus parameters of the real networks


def test_consensus_of_mainnet() -> None:
    record: Any = consensus_record(MAINNET, genesis_point(MAINNET), MAINNET.genesis_time + 25_000)
    assert record["chainId"] == "SVC-MAINNET"
    assert record["networkId"] == 1
    assert record["currentSlot"] == "2"
    assert record["slotSeconds"] == 10
    assert record["targetSlotsPerBlock"] == 6
    assert record["nextTarget"] == f"{2**242:064x}"
    assert record["nextBlockReward"] == "2000000000"
    assert record["rewardSchedule"] == {
        "initialReward": "2000000000",
        "halvingBlocks": 2_100_000,
        "supplyLimit": "8399999972700000",
    }
    assert record["participationWork"]["memoryKiB"] == 8192
    assert record["holdingMultiplier"]["minimumBalance"] == "100000000000"
    assert record["holdingMultiplier"]["schedule"][-1] == {"heldSlots": 777_600, "multiplier": 11_000}
    assert record["minimumFee"] == "10000"
    assert record["transactionFutureSeconds"] == 600


def test_consensus_of_devnet() -> None:
    record: Any = consensus_record(DEVNET, genesis_point(DEVNET), DEVNET.genesis_time)
    assert record["chainId"] == "SVC-DEVNET"
    assert record["rewardSchedule"]["supplyLimit"] == "139999999870000"
    assert record["transactionFutureSeconds"] == 315_360_000


def test_description_stays_the_same(client: Client, node: Node, clock: Clock) -> None:
    first = client.get("/rpc/openapi.json").body
    node.grow("genesis: b1")
    clock.advance(PARAMS.slot_seconds)
    assert client.get("/rpc/openapi.json").body == first
