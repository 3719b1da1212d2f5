"""The OpenAPI document is valid, complete, and says what the routes do."""

from typing import Any

import pytest
from openapi_spec_validator import validate

from svcd.web.field_types import Custom
from svcd.web.openapi import ERRORS, document
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Guard, Route, object_schema, routes_of

INFO = {"title": "svcd", "version": "0.0.1"}
ADDRESS = Field("address", Custom({"type": "string", "pattern": "^svc1"}), "an address")
LIMIT = Field("limit", Custom({"type": "integer", "default": 25}, int), "at most so many", default=None)
URL = Field("callbackUrl", Custom({"type": "string", "format": "uri"}), "where to call")
TOKEN = Guard(401, "The token is wrong.", lambda owner, request: None, "bearer")
ENABLED = Guard(503, "Webhooks are disabled.", lambda owner, request: None)


class Routes:
    @Route(
        "GET",
        "/rpc/address/{address}/transactions",
        "Transfers of an address",
        bucket="read",
        path_fields=(ADDRESS,),
        query_fields=(LIMIT,),
        answers={200: object_schema({"transactions": {"type": "array", "items": {"$ref": "#/components/schemas/T"}}})},
        errors={404: "Nobody has heard of this address."},
        error_members={404: {"suspended": {"type": "boolean"}}},
    )
    def transactions(self, address: str, limit: int) -> Renderable:
        return {}

    @Route(
        "POST",
        "/rpc/webhooks",
        "Register a webhook",
        bucket="read",
        body_fields=(URL, LIMIT),
        guards=(TOKEN, ENABLED),
        answers={201: object_schema({"id": {"type": "string"}})},
    )
    def register(self, callback_url: str, limit: int) -> Renderable:
        return {}

    @Route("POST", "/rpc/cancel", "Cancel", bucket="read", answers={200: {"type": "object"}})
    def cancel(self) -> Renderable:
        return {}

    @Route("GET", "/metrics", "Metrics", bucket="read", answers={200: {"type": "string"}}, media_type="text/plain")
    def metrics(self) -> Renderable:
        return {}


@pytest.fixture
def described() -> Any:
    routes = [route for route, _ in routes_of(Routes())]
    return document(routes, INFO, schemas={"T": {"type": "object"}}, servers=["https://node.example"])


def test_document_is_valid(described: Any) -> None:
    validate(described)


def test_document_of_nothing_is_valid() -> None:
    validate(document([], INFO))  # type: ignore[arg-type]


def test_what_it_is_about(described: Any) -> None:
    assert described["openapi"] == "3.1.1"
    assert described["info"] == INFO
    assert described["servers"] == [{"url": "https://node.example"}]
    assert described["components"]["schemas"].keys() == {"Error", "T"}


def test_parameters(described: Any) -> None:
    operation = described["paths"]["/rpc/address/{address}/transactions"]["get"]

    assert operation["operationId"] == "getRpcAddressAddressTransactions"
    assert operation["parameters"] == [
        {
            "name": "address",
            "in": "path",
            "required": True,
            "description": "an address",
            "schema": {"type": "string", "pattern": "^svc1"},
        },
        {
            "name": "limit",
            "in": "query",
            "required": False,
            "description": "at most so many",
            "schema": {"type": "integer", "default": 25},
        },
    ]
    assert "requestBody" not in operation


def test_members_of_an_error_beside_the_sentence(described: Any) -> None:
    answer = described["paths"]["/rpc/address/{address}/transactions"]["get"]["responses"]["404"]
    schema = answer["content"]["application/json"]["schema"]
    assert schema["properties"].keys() == {"ok", "error", "suspended"}
    assert schema["required"] == ["ok", "error", "suspended"]


def test_body(described: Any) -> None:
    body = described["paths"]["/rpc/webhooks"]["post"]["requestBody"]

    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {
        "type": "object",
        "properties": {
            "callbackUrl": {"type": "string", "format": "uri", "description": "where to call"},
            "limit": {"type": "integer", "default": 25, "description": "at most so many"},
        },
        "required": ["callbackUrl"],
        "additionalProperties": False,
    }


def test_body_without_fields(described: Any) -> None:
    body = described["paths"]["/rpc/cancel"]["post"]["requestBody"]

    assert body["required"] is False
    assert body["content"]["application/json"]["schema"]["additionalProperties"] is False


def test_successes_say_ok(described: Any) -> None:
    answer = described["paths"]["/rpc/webhooks"]["post"]["responses"]["201"]

    assert answer["description"] == "Created"
    schema = answer["content"]["application/json"]["schema"]
    assert schema["properties"] == {"ok": {"const": True}, "id": {"type": "string"}}
    assert schema["required"] == ["ok", "id"]


def test_answer_that_is_no_json(described: Any) -> None:
    answer = described["paths"]["/metrics"]["get"]["responses"]["200"]

    assert answer["content"] == {"text/plain": {"schema": {"type": "string"}}}


def test_every_operation_tells_its_errors(described: Any) -> None:
    for item in described["paths"].values():
        for operation in item.values():
            assert {str(status) for status in ERRORS} <= operation["responses"].keys()
            assert list(operation["responses"]) == sorted(operation["responses"])
    assert ERRORS.keys() == {400, 404, 405, 408, 413, 429, 500, 503}
    headers = {
        name: response.get("headers", {}).keys() for name, response in described["components"]["responses"].items()
    }
    assert headers["TooManyRequests"] == {"Retry-After"}
    assert headers["MethodNotAllowed"] == {"Allow"}


def test_guards_and_special_errors(described: Any) -> None:
    registering = described["paths"]["/rpc/webhooks"]["post"]
    listing = described["paths"]["/rpc/address/{address}/transactions"]["get"]

    assert registering["security"] == [{"bearer": []}]
    assert registering["responses"]["401"]["description"] == "The token is wrong."
    assert registering["responses"]["401"]["headers"].keys() == {"WWW-Authenticate"}
    assert registering["responses"]["503"]["description"] == "Webhooks are disabled."
    assert "security" not in listing
    assert "401" not in listing["responses"]
    assert listing["responses"]["404"]["description"] == "Nobody has heard of this address."
    assert described["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
