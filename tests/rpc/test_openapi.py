"""The OpenAPI document is valid, complete, and says what the routes do."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from openapi_spec_validator import validate

from svcd.rpc.openapi import ERRORS, About, Tag, Webhook, document
from svcd.web.field_types import Custom, Text, component, or_null
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Guard, Route, object_schema, routes_of
from tests.web.examples import examples

INFO = {"title": "svcd", "version": "0.0.1"}
THING = component(
    "Thing", {"type": "object", "properties": {"size": {"type": "integer"}}, "additionalProperties": False}
)
ABOUT = About(
    info=INFO,
    tags=(
        Tag("all", "/", "Everything."),
        Tag("shared", "/rpc/", "For pages."),
        Tag("unused", "/rpc/unused", "Nothing."),
    ),
    narrowed={"Place": {"type": "string", "pattern": "^svc1q", "examples": ["svc1qxyz"]}},
    shared_below="/rpc",
)
PLACE = component("Place", {"type": "string", "pattern": "^svc"})
ADDRESS = Field("address", Custom(PLACE), "An address.")
LIMIT = Field("limit", Custom({"type": "integer", "minimum": 1}, int), "At most so many.", default=25)
URL = Field("callbackUrl", Custom({"type": "string", "format": "uri"}), "Where to call.")
SIZE = Field("size", Custom({"type": "integer"}), "In metres.", default=None)
WEIGHT = Field("weight", Custom({"type": "integer"}), "In grams.", default=None)
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
        answers={200: object_schema({"transactions": {"type": "array", "items": THING}})},
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
        answers={201: object_schema({"id": {"type": "string"}, "thing": or_null(THING)})},
        cost=2,
        by_size=1,
        seconds=5,
    )
    def register(self, callback_url: str, limit: int) -> Renderable:
        return {}

    @Route("POST", "/rpc/cancel", "Cancel", bucket="read", answers={200: component("Cancelled", {"type": "object"})})
    def cancel(self) -> Renderable:
        return {}

    @Route(
        "POST",
        "/rpc/choose",
        "Choose",
        bucket="read",
        body_fields=(ADDRESS, SIZE, WEIGHT),
        one_of=("size", "weight"),
        body_name="Chosen",
        answers={200: {"type": "object"}},
    )
    def choose(self, address: str, size: int, weight: int) -> Renderable:
        return {}

    @Route("GET", "/metrics", "Metrics", bucket="read", answers={200: {"type": "string"}}, media_type="text/plain")
    def metrics(self) -> Renderable:
        return {}


HOOK = Webhook(
    name="thing.moved",
    summary="A thing has moved",
    tag="all",
    body=object_schema({"thing": THING, "why": {"type": "string"}}, optional=["why"]),
    headers=(Field("X-Signature", Text(), "Who says so."),),
    responses={"2XX": "Heard."},
    values={"thing": {"size": 7}, "why": None},
)


@pytest.fixture
def described() -> Any:
    # As clients get it.
    return json.loads(json.dumps(document([route for route, _ in routes_of(Routes())], ABOUT, [HOOK])))


def test_document_is_valid(described: Any) -> None:
    validate(described)


def test_document_of_nothing_is_valid() -> None:
    validate(document([], ABOUT))  # type: ignore[arg-type]


def test_the_info_of_the_document(described: Any) -> None:
    assert described["openapi"] == "3.1.1"
    assert described["info"] == INFO
    assert described["servers"] == [{"url": "/", "description": "The node that answers with this document."}]
    assert [tag["name"] for tag in described["tags"]] == ["all", "shared"]
    assert list(described["paths"]) == sorted(described["paths"])


def test_a_component_is_there_once_and_referred_to_elsewhere(described: Any) -> None:
    components = described["components"]["schemas"]
    assert list(components) == sorted(components)
    assert components.keys() == {
        "ApiError",
        "Cancelled",
        "ChosenWithSize",
        "ChosenWithWeight",
        "NotFoundError",
        "Place",
        "Thing",
    }
    listing = described["paths"]["/rpc/address/{address}/transactions"]["get"]
    (content,) = listing["responses"]["200"]["content"].values()
    assert content["schema"]["properties"]["transactions"]["items"] == {"$ref": "#/components/schemas/Thing"}


def test_two_components_of_one_name_are_refused() -> None:
    class Twice:
        @Route(
            "GET", "/one", "One", bucket="read", answers={200: object_schema({"a": component("A", {"type": "null"})})}
        )
        def one(self) -> Renderable:
            return {}

        @Route("GET", "/two", "Two", bucket="read", answers={200: object_schema({"a": component("A", {})})})
        def two(self) -> Renderable:
            return {}

    with pytest.raises(ValueError, match="there are two schemas named A"):
        document([route for route, _ in routes_of(Twice())], ABOUT)


def test_a_server_narrows_a_component(described: Any) -> None:
    assert described["components"]["schemas"]["Place"] == ABOUT.narrowed["Place"]
    listing = described["paths"]["/rpc/address/{address}/transactions"]["get"]
    assert listing["parameters"][0]["example"] == "svc1qxyz"


def test_parameters(described: Any) -> None:
    operation = described["paths"]["/rpc/address/{address}/transactions"]["get"]

    assert operation["operationId"] == "getRpcAddressAddressTransactions"
    assert operation["parameters"] == [
        {
            "name": "address",
            "in": "path",
            "required": True,
            "description": "An address.",
            "schema": {"$ref": "#/components/schemas/Place"},
            "example": "svc1qxyz",
        },
        {
            "name": "limit",
            "in": "query",
            "required": False,
            "description": "At most so many.",
            "schema": {"type": "integer", "minimum": 1, "default": 25},
            "example": 25,
        },
    ]
    assert "requestBody" not in operation


def test_head_is_described_with_get_and_options_where_pages_may_read(described: Any) -> None:
    methods = {path: {*of} for path, of in described["paths"].items()}
    assert methods == {
        "/metrics": {"get", "head"},
        "/rpc/address/{address}/transactions": {"get", "head", "options"},
        "/rpc/cancel": {"post", "options"},
        "/rpc/choose": {"post", "options"},
        "/rpc/webhooks": {"post", "options"},
    }
    listing = described["paths"]["/rpc/address/{address}/transactions"]
    assert listing["head"]["parameters"] == listing["get"]["parameters"]
    (placeholder,) = listing["options"]["parameters"]
    assert (placeholder["name"], placeholder["in"], placeholder["schema"]["type"]) == ("address", "path", "string")
    assert listing["head"]["responses"].keys() == {"200", "4XX", "5XX"}
    assert listing["options"]["responses"].keys() == {"204", "4XX", "5XX"}
    assert described["paths"]["/rpc/webhooks"]["options"]["security"] == []


def test_an_operation_tells_its_tag_and_what_it_costs(described: Any) -> None:
    metrics, registering = described["paths"]["/metrics"]["get"], described["paths"]["/rpc/webhooks"]["post"]
    assert (metrics["tags"], registering["tags"]) == (["all"], ["shared"])
    assert metrics["description"] == "Metrics. Counts as one request of the rate `read`. The node answers within 25 s."
    assert registering["description"] == (
        "Register a webhook. Counts as 2 requests of the rate `read`, or as one for each 64 KiB of the answer, if that "
        "is more. The node answers within 5 s."
    )


def test_one_field_of_several(described: Any) -> None:
    body = described["paths"]["/rpc/choose"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {
        "oneOf": [{"$ref": f"#/components/schemas/ChosenWith{name}"} for name in ("Size", "Weight")]
    }
    components = described["components"]["schemas"]
    assert components["ChosenWithSize"]["required"] == ["address", "size"]
    assert components["ChosenWithWeight"]["properties"].keys() == {"address", "weight"}
    assert body["example"].keys() == {"address", "size"}


def test_every_example_is_what_its_schema_describes(described: Any) -> None:
    places = list(examples(described))
    assert len(places) > 20
    for schema, example in places:
        Draft202012Validator({**schema, "components": described["components"]}).validate(example)


def test_webhooks(described: Any) -> None:
    operation = described["webhooks"]["thing.moved"]["post"]
    assert operation["operationId"] == "receiveThingMoved"
    assert [(each["name"], each["in"]) for each in operation["parameters"]] == [("X-Signature", "header")]
    content = operation["requestBody"]["content"]["application/json"]
    assert content["example"] == {"thing": {"size": 7}}
    assert operation["responses"] == {"2XX": {"description": "Heard."}}


def test_members_of_an_error_beside_the_sentence(described: Any) -> None:
    answer = described["paths"]["/rpc/address/{address}/transactions"]["get"]["responses"]["404"]
    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/NotFoundError"}
    schema = described["components"]["schemas"]["NotFoundError"]
    assert schema["properties"].keys() == {"ok", "error", "suspended"}
    assert schema["required"] == ["ok", "error", "suspended"]


def test_body(described: Any) -> None:
    body = described["paths"]["/rpc/webhooks"]["post"]["requestBody"]

    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {
        "type": "object",
        "properties": {
            "callbackUrl": {"type": "string", "format": "uri", "description": "Where to call."},
            "limit": {"type": "integer", "minimum": 1, "default": 25, "description": "At most so many."},
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
    assert schema["properties"]["ok"] == {"type": "boolean", "const": True}
    assert schema["required"] == ["ok", "id", "thing"]
    assert described["components"]["schemas"]["Cancelled"]["properties"] == {"ok": {"type": "boolean", "const": True}}


def test_answer_that_is_no_json(described: Any) -> None:
    answer = described["paths"]["/metrics"]["get"]["responses"]["200"]

    assert answer["content"] == {"text/plain": {"schema": {"type": "string"}, "example": "text"}}


def test_every_operation_tells_its_errors(described: Any) -> None:
    for item in described["paths"].values():
        for operation in (item[method] for method in ("get", "post") if method in item):
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
    assert listing["security"] == []
    assert "401" not in listing["responses"]
    assert listing["responses"]["404"]["description"] == "Nobody has heard of this address."
    assert described["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
