"""The published description: valid, complete, and in agreement with the specification of the interface."""

import json
import re
from collections.abc import Callable, Iterator
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
from tests.schema.documents import declared, public
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
    ("GET", "/rpc/commerce/feed/{recipient}"),
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
            "4 requests of the rate `read`; for the chain in the proof, as 250 more.",
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
        (
            "get",
            "/rpc/commerce/feed/{recipient}",
            "one request of the rate `read`; for each 250 of `limit` where there is much to read, as 1 more; for each "
            "250 of `pending`, as 1 more.",
        ),
    ],
)
def test_what_some_requests_cost_more_is_announced(document: dict[str, Any], method: str, path: str, cost: str) -> None:
    assert f"Counts as {cost}" in document["paths"][path][method]["description"]


def test_every_route_that_charges_afterwards_says_for_what() -> None:
    found = {route.path: route.surcharges for package in (rpc, p2p) for route in declared(package) if route.with_charge}
    assert len(found) == 6
    assert all(found.values())


def objects(value: Any, around: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Each object in an example, with those that it is in."""
    if isinstance(value, dict):
        yield value, around
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(each, (*around, value))


def contradictions(example: Any) -> list[str]:
    """What an example of an answer or event says that no node does."""
    found = []
    for each, around in objects(example):
        tip = next((one["tip"] for one in (each, *reversed(around)) if isinstance(one, dict) and "tip" in one), {})
        if "blockHeight" in each and "confirmations" in each and isinstance(tip, dict):
            height = int(tip.get("height", 14))
            if height - int(each["blockHeight"]) + 1 != each["confirmations"]:
                found.append(f"the confirmations of {each}")
        if each.get("state") in ("unpaid", "pending") and each.keys() & {"blockHash", "blockHeight", "work"}:
            found.append(f"a block of a payment without one: {each}")
        if "transactionCount" in each and len(each.get("transactions", "1")) != each["transactionCount"]:
            found.append(f"the number of transfers of {each}")
        if "lastState" in each and each["lastState"] != each["payment"]["state"]:
            found.append(f"the state of {each}")
        found += [f"{name}: text" for name, member in each.items() if member == "text"]
    return found


def test_examples_do_not_contradict_the_interface() -> None:
    document = public(MAINNET)
    operations = [each for methods in document["paths"].values() for each in methods.values()]
    answers = [each for operation in operations for status, each in operation["responses"].items() if status < "4"]
    bodies = [each["post"]["requestBody"] for each in document["webhooks"].values()]
    shown = [content["example"] for each in (*answers, *bodies) for content in each.get("content", {}).values()]
    assert len(shown) > 30
    assert [problem for example in shown for problem in contradictions(example)] == []
    block = document["paths"]["/rpc/block/{height}"]["get"]
    asked, found = block["parameters"][0]["example"], block["responses"]["200"]["content"]["application/json"]
    assert found["example"]["block"]["height"] == str(asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"payment": {"blockHeight": "3", "confirmations": 3, "tip": {"height": "14"}}},
        {"payment": {"state": "unpaid", "work": {}}},
        {"block": {"transactionCount": 2, "transactions": [{}]}},
        {"next": "text"},
    ],
)
def test_contradictions_of_examples_are_found(wrong: Any) -> None:
    assert len(contradictions(wrong)) == 1


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
