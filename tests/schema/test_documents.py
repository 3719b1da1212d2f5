"""The OpenAPI documents: one definition for each type, and examples everywhere."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import OpenAPIV31SpecValidator

from svcd.chain.params import DEVNET, MAINNET
from svcd.commerce.events import EventType
from svcd.commerce.payment_request import parse_uri
from svcd.commerce.sender import TEST_EVENT
from tests.schema.documents import operator, public
from tests.web.examples import examples

FESTIVAL = evolve(MAINNET, name="festival", network_id=4711, chain_id="FESTIVAL", address_prefix="fest")
DOCUMENTS = {
    "public": public(MAINNET),
    "devnet": public(DEVNET),
    "festival": public(FESTIVAL),
    "operator": operator(MAINNET),
}
every_document = pytest.mark.parametrize("name", list(DOCUMENTS))


@every_document
def test_document_is_valid(name: str) -> None:
    OpenAPIV31SpecValidator(DOCUMENTS[name]).validate()


@every_document
def test_every_example_is_what_its_schema_describes(name: str) -> None:
    document = DOCUMENTS[name]
    found = list(examples(document))
    assert len(found) > 20
    for schema, example in found:
        Draft202012Validator({**schema, "components": document["components"]}).validate(example)


def test_a_network_of_ones_own_has_its_own_constants_and_addresses() -> None:
    document = DOCUMENTS["festival"]
    schemas = document["components"]["schemas"]
    assert schemas["NetworkId"]["const"] == 4711
    assert schemas["ChainId"]["const"] == "FESTIVAL"
    assert schemas["GenesisHash"]["const"] == FESTIVAL.genesis_hash.hex()
    assert schemas["Address"]["pattern"].startswith("^fest1q")
    uri = schemas["PaymentRequest"]["properties"]["paymentUri"]["examples"][0]
    assert parse_uri(uri, FESTIVAL).terms.recipient == schemas["Address"]["examples"][0]
    text = json.dumps(document)
    assert "svc1q" not in text
    assert "SVC-MAINNET" not in text


def objects(value: Any) -> Iterator[str]:
    """The schemas of objects that are written out where they are used, without what people read, as JSON."""
    if isinstance(value, list):
        for each in value:
            yield from objects(each)
    elif isinstance(value, dict):
        if value.get("type") == "object" and value.get("properties"):
            yield json.dumps({name: value.get(name) for name in ("properties", "required")}, sort_keys=True)
        for name, each in value.items():
            if name not in ("example", "examples"):
                yield from objects(each)


@every_document
def test_a_type_occurs_once(name: str) -> None:
    document = DOCUMENTS[name]
    assert [text for text, times in Counter(objects(document)).items() if times > 1] == []


def test_types_have_the_names_that_clients_use() -> None:
    named = {
        "Status",
        "Block",
        "Transfer",
        "Account",
        "PaymentRequest",
        "Payment",
        "Subscription",
        "PaymentEvent",
        "Hello",
    }
    assert named <= DOCUMENTS["public"]["components"]["schemas"].keys()
    assert "Error" not in DOCUMENTS["public"]["components"]["schemas"], "a type of most languages"


def test_every_event_is_a_webhook() -> None:
    assert DOCUMENTS["public"]["webhooks"].keys() == {*EventType, TEST_EVENT}
    for name, methods in DOCUMENTS["public"]["webhooks"].items():
        assert methods["post"]["requestBody"]["content"]["application/json"]["example"]["event"] == name


@pytest.mark.parametrize("name", ["public", "devnet"])
def test_network_and_chain_are_constants(name: str) -> None:
    params = {"public": MAINNET, "devnet": DEVNET}[name]
    components = DOCUMENTS[name]["components"]["schemas"]
    assert components["NetworkId"] == {"type": "integer", "const": params.network_id}
    assert components["ChainId"] == {"type": "string", "const": params.chain_id}
    assert components["GenesisHash"]["const"] == params.genesis_hash.hex()
    assert components["Address"]["pattern"] == f"^{params.address_prefix}1q[02-9ac-hj-np-z]{{38}}$"
    assert components["Address"]["minLength"] == components["Address"]["maxLength"] == len(params.address_prefix) + 40
