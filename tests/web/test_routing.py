"""Declarations of routes: what they accept, and that a wrong one is found when it is made."""

from typing import Any

import pytest

from svcd.web.routing import Field, Guard, Route, object_schema, routes_of


def field(name: str) -> Field:
    return Field(name, str, {"type": "string"}, "a value")


def declare(method: str = "GET", path: str = "/a", **more: Any) -> Route:
    return Route(method, path, "what it does", bucket="read", answers={}, **more)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("height", "height"), ("ttlSeconds", "ttl_seconds"), ("amountBaseUnits", "amount_base_units"), ("from", "from_")],
)
def test_argument_of_a_field(name: str, argument: str) -> None:
    assert field(name).argument == argument


def test_rule_is_what_klein_understands() -> None:
    declared = declare(path="/address/{address}/transactions/{page}", path_fields=(field("address"), field("page")))

    assert declared.rule == "/address/<address>/transactions/<page>"


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"path": "/a/{b}"}, "path_fields must be its placeholders"),
        ({"path_fields": (field("b"),)}, "path_fields must be its placeholders"),
        ({"path": "/{a}/{b}", "path_fields": (field("b"), field("a"))}, "path_fields must be its placeholders"),
        ({"body_fields": (field("b"),)}, "a GET request has no body"),
        ({"query_fields": (field("b"), field("b"))}, "two fields have the same name"),
        ({"query_fields": (field("client"),), "with_client": True}, "two fields have the same name"),
        ({"method": "FETCH"}, "must be in"),
        ({"cost": 0}, "must be > 0"),
        ({"seconds": 0}, "must be > 0"),
    ],
)
def test_wrong_declaration_is_refused(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        declare(**more)


def test_route_without_a_bucket_is_refused() -> None:
    with pytest.raises(TypeError, match="bucket"):
        Route("GET", "/a", "what it does", answers={})  # type: ignore[call-arg]


def test_only_reads_are_cancellable_unless_said_otherwise() -> None:
    assert declare("GET").cancellable
    assert not declare("POST").cancellable
    assert declare("POST", cancellable=True).cancellable


def test_guards_are_checked_503_first() -> None:
    token = Guard(401, "a token", lambda room, request: None)
    enabled = Guard(503, "it is on", lambda room, request: None)

    assert declare(guards=(token, enabled)).guards == (enabled, token)


def test_routes_of_a_room_in_the_order_of_declaration() -> None:
    class Base:
        @declare(path="/z")
        def z(self) -> str:
            return "z"

    class Room(Base):
        @declare(path="/b")
        def b(self) -> str:
            return "b"

        def no_route(self) -> None: ...

        @declare(path="/a")
        def a(self) -> str:
            return "a"

    assert [(route.path, method()) for route, method in routes_of(Room())] == [("/z", "z"), ("/b", "b"), ("/a", "a")]


def test_object_schema() -> None:
    schema = object_schema({"a": {"type": "string"}, "b": {"type": "integer"}}, optional=["b"])

    assert schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
