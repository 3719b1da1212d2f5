"""Declarations of routes: what they accept, and that a wrong one is found when it is made."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.address import UNIXAddress
from twisted.web.test.requesthelper import DummyRequest

from svcd.web import routes
from svcd.web.field_types import Custom
from svcd.web.rate_limits import Surcharge
from svcd.web.responses import HttpError, Renderable
from svcd.web.routes import Field, Guard, Route, object_schema, require_bearer, routes_of
from svcd.web.site import Site
from tests.web.conftest import Refused
from tests.web.wire import Response, Wire


def field(name: str) -> Field:
    return Field(name, Custom({"type": "string"}), "a value")


def declare(method: str = "GET", path: str = "/a", **more: Any) -> Route:
    return Route(method, path, "what it does", bucket="read", answers={}, **more)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("height", "height"), ("ttlSeconds", "ttl_seconds"), ("amountBaseUnits", "amount_base_units"), ("from", "from_")],
)
def test_argument_of_a_field(name: str, argument: str) -> None:
    assert field(name).argument == argument


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"path": "/a/{b}"}, "path_fields must be its placeholders"),
        ({"path_fields": (field("b"),)}, "path_fields must be its placeholders"),
        ({"path": "/{a}/{b}", "path_fields": (field("b"), field("a"))}, "path_fields must be its placeholders"),
        ({"body_fields": (field("b"),)}, "a GET request has no body"),
        ({"query_fields": (field("b"), field("b"))}, "two fields have the same name"),
        ({"query_fields": (field("client"),), "with_client": True}, "two fields have the same name"),
        ({"query_fields": (field("charge"),), "with_charge": True}, "two fields have the same name"),
        ({"query_fields": (field("b"),), "one_of": ("b",)}, "one_of must name optional fields"),
        ({"one_of": ("b", "c")}, "one_of must name optional fields"),
        ({"surcharges": (Surcharge(4, "with `b`"),)}, "surcharges need with_charge"),
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
    token = Guard(401, "a token", lambda owner, request: None)
    enabled = Guard(503, "it is on", lambda owner, request: None)

    assert declare(guards=(token, enabled)).guards == (enabled, token)


def test_routes_of_a_room_in_the_order_of_declaration() -> None:
    class Base:
        @declare(path="/z")
        def z(self) -> str:
            return "z"

    class Routes(Base):
        @declare(path="/b")
        def b(self) -> str:
            return "b"

        def no_route(self) -> None: ...

        @declare(path="/a")
        def a(self) -> str:
            return "a"

    assert [(route.path, method()) for route, method in routes_of(Routes())] == [("/z", "z"), ("/b", "b"), ("/a", "a")]


def test_object_schema() -> None:
    schema = object_schema({"a": {"type": "string"}, "b": {"type": "integer"}}, optional=["b"])

    assert schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }


# Bearer tokens: one right way to send one

TOKEN = "t" * 32


def request(*authorization: bytes) -> Any:
    made = DummyRequest([b""])
    made.requestHeaders.setRawHeaders(b"Authorization", list(authorization))
    return made


@pytest.mark.parametrize("header", [b"Bearer " + b"t" * 32, b"bearer  " + b"t" * 32 + b" "])
def test_right_token_passes(header: bytes) -> None:
    require_bearer(request(header), TOKEN)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer " + b"t" * 31,),
        (b"Bearer " + b"T" * 32,),
        (b"Bearer \xff",),
        (b"Basic " + b"t" * 32,),
        (b"t" * 32,),
        (b"Bearer " + b"t" * 32, b"Bearer " + b"t" * 32),
    ],
)
def test_anything_else_is_401(headers: tuple[bytes, ...]) -> None:
    with pytest.raises(HttpError) as refused:
        require_bearer(request(*headers), TOKEN)

    assert refused.value.status == 401
    assert refused.value.headers == ((b"WWW-Authenticate", b"Bearer"),)
    assert TOKEN not in refused.value.sentence


def test_of_several_tokens_the_given_one_is_named() -> None:
    tokens = (TOKEN, "u" * 32, "v" * 40)
    for index, token in enumerate(tokens):
        assert require_bearer(request(b"Bearer " + token.encode()), *tokens) == index
    for other in (b"w" * 32, b"", TOKEN.encode() + b"u" * 32):
        with pytest.raises(HttpError):
            require_bearer(request(b"Bearer " + other), *tokens)
    with pytest.raises(HttpError):
        require_bearer(request(b"Bearer "))


# What a request brings is read as declared; anything else is 400 with a sentence

Serve = Callable[..., Site]


def number(raw: Any) -> int:
    if isinstance(raw, str) and raw.isascii() and raw.isdigit():
        return int(raw)
    raise ValueError(f'must be a decimal string such as "12", not {raw!r:.20}')


def known_thing(raw: str) -> str:
    if raw == "unknown":
        raise Refused("no such thing as unknown")
    return raw


HEIGHT = Field("height", Custom({"type": "string"}, number), "a height")
NAME = Field("name", Custom({"type": "string"}, known_thing), "a name")
LIMIT = Field("limit", Custom({"type": "string"}, number), "at most so many", default=25)
FROM = Field("from", Custom({"type": "string"}, number), "the first one")


class Routes:
    """Answers with what its methods were given."""

    @Route("GET", "/rpc/block/{height}/{name}", "both", bucket="read", answers={}, path_fields=(HEIGHT, NAME))
    def block(self, **values: object) -> dict[str, object]:
        return values

    @Route("GET", "/rpc/list", "some", bucket="read", answers={}, query_fields=(FROM, LIMIT))
    def list_some(self, from_: int, limit: int) -> dict[str, object]:
        return {"from": from_, "limit": limit}

    @Route("POST", "/rpc/send", "sends", bucket="read", answers={}, body_fields=(HEIGHT, NAME, LIMIT))
    def send(self, **values: object) -> dict[str, object]:
        return values

    @Route("POST", "/rpc/cancel", "cancels", bucket="read", answers={})
    def cancel(self) -> dict[str, object]:
        return {}


class Intake:
    """Takes a body as it came, and wants to know who sent it."""

    @Route("POST", "/rpc/raw", "takes", bucket="read", answers={}, body_fields=(HEIGHT,), raw_body=True)
    def take(self, body: bytes) -> dict[str, object]:
        return {"body": body.decode("latin-1")}

    @Route("GET", "/rpc/who/{name}", "tells", bucket="read", answers={}, path_fields=(NAME,), with_client=True)
    def who(self, name: str, client: str | None) -> dict[str, object]:
        return {"name": name, "client": client}


def get(site: Site, path: bytes) -> Response:
    return Wire(site).send(b"GET " + path + b" HTTP/1.1\r\nHost: h\r\n\r\n").response()


def post(site: Site, path: bytes, body: object, *headers: bytes) -> Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    more = b"".join(header + b"\r\n" for header in headers)
    head = b"POST %b HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%b\r\n" % (path, len(data), more)
    return Wire(site).send(head + data).response()


# Paths


def test_path_fields_are_parsed(serve: Serve) -> None:
    assert get(serve(Routes()), b"/rpc/block/12/%C3%A4%20b").json == {"ok": True, "height": 12, "name": "ä b"}


def test_path_field_that_is_wrong(serve: Serve) -> None:
    answer = get(serve(Routes()), b"/rpc/block/x/y")

    assert answer.status == 400
    assert answer.error == "height: must be a decimal string such as \"12\", not 'x'"


def test_exception_of_a_room_in_a_parser_goes_by_the_table(serve: Serve) -> None:
    answer = get(serve(Routes()), b"/rpc/block/1/unknown")

    assert (answer.status, answer.error) == (400, "no such thing as unknown")


# Queries


@pytest.mark.parametrize(
    ("query", "values"),
    [
        (b"from=3", {"from": 3, "limit": 25}),
        (b"limit=5&from=3", {"from": 3, "limit": 5}),
        (b"from=3&unknown=1&unknown=2", {"from": 3, "limit": 25}),
        (b"%66rom=%33&&", {"from": 3, "limit": 25}),
        (b"from=3&x=%FF%zz"[:-6], {"from": 3, "limit": 25}),
    ],
)
def test_query_fields_are_parsed(serve: Serve, query: bytes, values: dict[str, int]) -> None:
    assert get(serve(Routes()), b"/rpc/list?" + query).json == {"ok": True, **values}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        (b"", "from is missing: the first one"),
        (b"limit=1", "from is missing: the first one"),
        (b"form=3&limit=1&x=2", "from is missing: the first one; 'form' in the query is unknown here"),
        (
            b"from=x&" + b"y" * 70,
            f"from: must be a decimal string such as \"12\", not 'x'; '{'y' * 64}' in the query is unknown here",
        ),
        (b"from=", "from: must be a decimal string such as \"12\", not ''"),
        (b"from", "from: must be a decimal string such as \"12\", not ''"),
        (b"from=3&limit=", "limit: must be a decimal string such as \"12\", not ''"),
        (b"from=1&from=1", "from occurs more than once in the query; give it once"),
        (b"from=1;limit=2", "from: must be a decimal string such as \"12\", not '1;limit=2'"),
        (b"from=%FF", "the query must be UTF-8 in percent-encoding"),
        (b"from=1&x=\xa0", "the query must be UTF-8 in percent-encoding"),
        (b"&".join([b"a=1"] * 101), "the query may have at most 100 fields"),
    ],
)
def test_query_that_is_wrong(serve: Serve, query: bytes, sentence: str) -> None:
    answer = get(serve(Routes()), b"/rpc/list?" + query)

    assert (answer.status, answer.error) == (400, sentence)


# Bodies


def test_body_fields_are_parsed(serve: Serve) -> None:
    answer = post(serve(Routes()), b"/rpc/send", {"name": "a", "height": "3"})

    assert answer.json == {"ok": True, "height": 3, "name": "a", "limit": 25}


@pytest.mark.parametrize(("coding", "status"), [(b"gzip", 400), (b"identity", 200), (b"br, gzip", 400)])
def test_an_encoded_body_is_refused_by_the_name_of_its_encoding(serve: Serve, coding: bytes, status: int) -> None:
    answer = post(serve(Routes()), b"/rpc/send", {"name": "a", "height": "3"}, b"Content-Encoding: " + coding)

    assert answer.status == status
    if status == 400:
        refused = f"a body with Content-Encoding {coding.decode()!r} is not accepted here; send it unencoded"
        assert answer.error == refused


@pytest.mark.parametrize("body", [b"", b"{}", b" {} "])
def test_absent_body_is_an_empty_object(serve: Serve, body: bytes) -> None:
    assert post(serve(Routes()), b"/rpc/cancel", body).json == {"ok": True}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"height": "3"}, "name is missing: a name"),
        (b"", "height is missing: a height"),
        ({"height": "3", "nmae": "a"}, "unknown field 'nmae' in the body; the known ones are height, name, limit"),
        ({"x" * 9999: 1}, f"unknown field '{'x' * 64}' in the body; the known ones are height, name, limit"),
        ({"height": 3, "name": "a"}, 'height: must be a decimal string such as "12", not 3'),
        ({"height": "3", "name": "unknown"}, "no such thing as unknown"),
        ([], "the body must be a JSON object"),
        (None, "the body must be a JSON object"),
        (b"{'a': 1}", "this is not JSON"),
        (b"\xff", "this is not JSON"),
        (b'{"height": 1.0}', "1.0 is not a whole number"),
        (b"[" * 16_384, "the body is nested too deeply"),
    ],
)
def test_body_that_is_wrong(serve: Serve, body: object, sentence: str) -> None:
    answer = post(serve(Routes()), b"/rpc/send", body)

    assert (answer.status, answer.error) == (400, sentence)


def test_field_in_the_body_of_a_route_that_has_none(serve: Serve) -> None:
    answer = post(serve(Routes()), b"/rpc/cancel", {"now": True})

    assert (answer.status, answer.error) == (400, "unknown field 'now' in the body; this route has none")


def test_lone_surrogate_in_a_name_is_told_as_json(serve: Serve) -> None:
    answer = post(serve(Routes()), b"/rpc/cancel", b'{"\\ud800": 1}')

    assert answer.status == 400
    assert "\\ud800" in answer.error


def test_body_of_a_get_is_not_read(serve: Serve) -> None:
    head = b"GET /rpc/list?from=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"

    assert Wire(serve(Routes())).send(head + b"{???").response().status == 200


@pytest.mark.parametrize("body", [b"", b'{"height": "3", "x": 1.5}', b"\xff"])
def test_raw_body_is_handed_on_as_it_came(serve: Serve, body: bytes) -> None:
    assert post(serve(Intake()), b"/rpc/raw", body).json["body"] == body.decode("latin-1")


@pytest.mark.parametrize(
    ("peer", "client"),
    [("203.0.113.9", "203.0.113.9"), ("2001:db8::f:1", "2001:db8::f:1"), (UNIXAddress(b"/run/svcd.sock"), None)],
)
def test_route_may_know_who_asks(serve: Serve, peer: Any, client: str | None) -> None:
    wire = Wire(serve(Intake()), peer).send(b"GET /rpc/who/me HTTP/1.1\r\nHost: h\r\n\r\n")

    assert wire.response().json == {"ok": True, "name": "me", "client": client}


def test_content_type_is_not_asked_for(serve: Serve) -> None:
    head = b"POST /rpc/cancel HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-www-form-urlencoded\r\n"

    assert Wire(serve(Routes())).send(head + b"Content-Length: 2\r\n\r\n{}").response().status == 200


@given(st.text("ab=&;?/:.-_~!", max_size=40))
def test_a_query_without_anything_to_decode_is_read_as_by_the_standard_library(text: str) -> None:
    read = [(name, value) for name, _, value in routes._splits(text)]
    assert read == parse_qsl(text, keep_blank_values=True, errors="strict")


OPTIONAL = tuple(Field(name, Custom({"type": "string"}), "a value", default=None) for name in ("a", "b", "c"))


class Choosing:
    @Route("GET", "/rpc/choice", "chooses", bucket="read", answers={}, query_fields=OPTIONAL, one_of=("a", "b", "c"))
    def by_query(self, **values: str | None) -> Renderable:
        return values

    @Route("POST", "/rpc/choice", "chooses", bucket="read", answers={}, body_fields=OPTIONAL, one_of=("a", "b", "c"))
    def by_body(self, **values: str | None) -> Renderable:
        return values


@pytest.mark.parametrize("given_names", [(), ("a",), ("c",), ("a", "b"), ("a", "b", "c")])
def test_a_request_has_exactly_one_of_several_fields(serve_of: Any, given_names: tuple[str, ...]) -> None:
    for uses_fast_path in (True, False):
        site = serve_of(uses_fast_path, Choosing())
        query = b"&".join(b"%b=1" % name.encode() for name in given_names)
        body = json.dumps(dict.fromkeys(given_names, "1")).encode()
        for request in (
            b"GET /rpc/choice%b HTTP/1.1\r\nHost: h\r\n\r\n" % (b"?" + query if query else b""),
            b"POST /rpc/choice HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        ):
            answer = Wire(site).send(request).response()
            if len(given_names) == 1:
                assert answer.json == {"ok": True, **dict.fromkeys("abc"), given_names[0]: "1"}
            else:
                assert (answer.status, answer.error) == (400, "give exactly one of a, b and c")
