"""Branches, hosts that may be named, and paths in plain form."""

from collections.abc import Callable
from functools import partial

import pytest

from svcd.web.field_types import Text
from svcd.web.resources import Branch, check_host, host_name
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Route
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi
from tests.web.echoing import Echo
from tests.web.wire import Response, Wire

MakeSite = Callable[..., Site]
FIRST, SECOND = (Field(name, Text(), "Any text.") for name in ("first", "second"))


def get(site: Site, path: bytes, *hosts: bytes) -> Response:
    lines = b"".join(b"Host: " + host + b"\r\n" for host in hosts or (b"h",))
    return Wire(site).send(b"GET " + path + b" HTTP/1.1\r\n" + lines + b"\r\n").response()


def tree() -> Branch:
    inner, root = Branch(), Branch()
    inner.putChild(b"leaf", Echo())
    root.putChild(b"inner", inner)
    return root


@pytest.mark.parametrize("path", [b"/inner/leaf", b"/inner/leaf/below", b"/%69nner/leaf?q=1"])
def test_leaf_is_found(make_site: MakeSite, path: bytes) -> None:
    assert get(make_site(tree()), path).status == 200


@pytest.mark.parametrize(
    "path", [b"/", b"//", b"/inner", b"/inner/", b"/inner//leaf", b"/inner/other", b"/leaf", b"/\xa0"]
)
def test_branches_are_no_pages(make_site: MakeSite, path: bytes) -> None:
    assert get(make_site(tree()), path).status == 404


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (b"Example.COM", "example.com"),
        (b"example.com:8645", "example.com"),
        (b"example.com.", "example.com"),
        (b"example.com.:80", "example.com"),
        (b"[::1]:8645", "[::1]"),
        (b"127.0.0.1", "127.0.0.1"),
        (b"", None),
        (b":80", None),
        (b"::1", None),
        (b"a:b", None),
        (b"[::1", None),
    ],
)
def test_name_in_a_host_header(header: bytes, name: str | None) -> None:
    assert host_name(header) == name


class Shown:
    """One route."""

    @Route("GET", "/shown", "", bucket="read", answers={})
    def show(self) -> Renderable:
        return {}


@pytest.fixture
def pay(make_site: MakeSite, make_api: Callable[..., KleinApi]) -> Site:
    """A site that answers as ``pay.example`` and ``[::1]`` only."""
    return make_site(make_api(Shown(), mount="", check=partial(check_host, hosts={"pay.example", "[::1]"})))


@pytest.mark.parametrize("host", [b"pay.example", b"PAY.example:443", b"[::1]:8645"])
def test_allowed_host_passes(pay: Site, host: bytes) -> None:
    assert [get(pay, path, host).status for path in (b"/shown", b"/hidden")] == [200, 404]


@pytest.mark.parametrize("path", [b"/shown", b"/hidden"])
@pytest.mark.parametrize("hosts", [(b"evil.example",), (b"",), (b"pay.example, pay.example",), (b"pay.example@evil",)])
def test_another_host_is_misdirected(pay: Site, path: bytes, hosts: tuple[bytes, ...]) -> None:
    answer = get(pay, path, *hosts)

    assert answer.status == 421
    assert answer.error == "this site answers only as [::1], pay.example; check the Host header"


def test_request_without_a_host_is_misdirected(pay: Site) -> None:
    assert Wire(pay).send(b"GET /shown HTTP/1.0\r\n\r\n").response().status == 421


def test_host_of_an_absolute_target_is_what_counts(pay: Site) -> None:
    assert get(pay, b"http://evil.example/shown", b"pay.example").status == 421
    assert get(pay, b"http://pay.example/shown", b"evil.example").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"/a/b", 200),
        (b"/%C3%A4", 200),
        (b"/a/", 404),
        (b"/a//b", 404),
        (b"//a", 404),
        (b"/a%2Fb", 400),
        (b"/%FF", 400),
        (b"/\xa0", 400),
        (b"/%zz", 200),
    ],
)
def test_only_plain_paths_reach_a_route(
    make_site: MakeSite, make_api: Callable[..., KleinApi], path: bytes, status: int
) -> None:
    class Anywhere:
        @Route("GET", "/{first}", "", bucket="read", answers={}, path_fields=(FIRST,))
        def one(self, first: str) -> Renderable:
            return {"found": [first]}

        @Route("GET", "/{first}/{second}", "", bucket="read", answers={}, path_fields=(FIRST, SECOND))
        def two(self, first: str, second: str) -> Renderable:
            return {"found": [first, second]}

    assert get(make_site(make_api(Anywhere(), mount="")), path).status == status


# Pages of every origin may read everything below /rpc, errors included, and nothing else


class Read:
    """One route of an interface that pages of other origins may read."""

    @Route("GET", "/rpc/echo", "", bucket="read", answers={})
    def echo(self) -> Renderable:
        return {}


@pytest.fixture
def both(make_site: MakeSite, make_api: Callable[..., KleinApi]) -> Site:
    root = Branch()
    root.putChild(b"rpc", make_api(Read(), shared=True))
    root.putChild(b"p2p", Echo())
    return make_site(root)


def ask(site: Site, line: bytes) -> Response:
    return Wire(site).send(line + b" HTTP/1.1\r\nHost: h\r\nOrigin: https://shop.example\r\n\r\n").response()


@pytest.mark.parametrize(("path", "status"), [(b"/rpc/echo", 200), (b"/rpc/nowhere", 404), (b"/rpc", 404)])
def test_answers_and_errors_may_be_read(both: Site, path: bytes, status: int) -> None:
    answer = ask(both, b"GET " + path)

    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-expose-headers"] == "Allow, Date, Retry-After, Svc-Tip, WWW-Authenticate"


@pytest.mark.parametrize("path", [b"/p2p/status", b"/nowhere"])
def test_nothing_else_may_be_read(both: Site, path: bytes) -> None:
    assert "access-control-allow-origin" not in ask(both, b"GET " + path).headers


@pytest.mark.parametrize("path", [b"/rpc/echo", b"/rpc/nowhere"])
def test_preflight_is_answered_with_204(both: Site, path: bytes) -> None:
    answer = ask(both, b"OPTIONS " + path)

    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "Content-Type"
    assert answer.headers["access-control-max-age"] == "86400"
    assert "content-length" not in answer.headers, "RFC 9110 section 8.6 forbids it with 204"
    assert "transfer-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (b"traceparent", "traceparent"),
        (b"content-type,traceparent, X-Requested-With", "content-type, traceparent, X-Requested-With"),
        (b"Authorization", "Content-Type"),
        (b"content-type , AUTHORIZATION\t,traceparent", "content-type, traceparent"),
        (b"x-a\r\nAccess-Control-Request-Headers: authorization, x-b", "x-a, x-b"),
        (b"*, authorization", "*"),
        (b"no name, :, caf\xe9, x-a", "x-a"),
        (b"", "Content-Type"),
        (b",,", "Content-Type"),
    ],
)
def test_preflight_allows_every_header_but_authorization(both: Site, asked: bytes, allowed: str) -> None:
    wire = Wire(both)
    wire.send(b"OPTIONS /rpc/echo HTTP/1.1\r\nHost: h\r\nAccess-Control-Request-Headers: " + asked + b"\r\n\r\n")

    assert wire.response().headers["access-control-allow-headers"] == allowed


def test_connection_goes_on_after_a_preflight(both: Site) -> None:
    wire = Wire(both)
    for line in (b"OPTIONS /rpc/echo", b"GET /rpc/echo"):
        wire.send(line + b" HTTP/1.1\r\nHost: h\r\n\r\n")

    assert [answer.status for answer in wire.responses()] == [204, 200]
