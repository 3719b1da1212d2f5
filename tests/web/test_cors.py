"""Pages of every origin may read everything below /rpc, errors included, and nothing else."""

from collections.abc import Callable

import pytest

from svcd.web.cors import Cors
from svcd.web.resources import Branch
from svcd.web.site import Site
from tests.web.echoing import Echo
from tests.web.wire import Response, Wire

MakeSite = Callable[..., Site]


def site_with_both(make_site: MakeSite) -> Site:
    root, branch = Branch(), Branch()
    branch.putChild(b"echo", Echo())
    root.putChild(b"rpc", Cors(branch))
    root.putChild(b"p2p", Echo())
    return make_site(root)


def ask(site: Site, line: bytes) -> Response:
    return Wire(site).send(line + b" HTTP/1.1\r\nHost: h\r\nOrigin: https://shop.example\r\n\r\n").response()


@pytest.mark.parametrize(("path", "status"), [(b"/rpc/echo", 200), (b"/rpc/nowhere", 404), (b"/rpc", 404)])
def test_answers_and_errors_may_be_read(make_site: MakeSite, path: bytes, status: int) -> None:
    answer = ask(site_with_both(make_site), b"GET " + path)

    assert answer.status == status
    assert answer.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", [b"/p2p/status", b"/nowhere"])
def test_nothing_else_may_be_read(make_site: MakeSite, path: bytes) -> None:
    assert "access-control-allow-origin" not in ask(site_with_both(make_site), b"GET " + path).headers


@pytest.mark.parametrize("path", [b"/rpc/echo", b"/rpc/nowhere"])
def test_preflight_is_answered_with_204(make_site: MakeSite, path: bytes) -> None:
    answer = ask(site_with_both(make_site), b"OPTIONS " + path)

    assert answer.status == 204
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["access-control-allow-methods"] == "GET, HEAD, POST, OPTIONS"
    assert answer.headers["access-control-allow-headers"] == "Authorization, Content-Type"
    assert answer.headers["access-control-max-age"] == "86400"
    assert "content-length" not in answer.headers, "RFC 9110 section 8.6 forbids it with 204"
    assert "transfer-encoding" not in answer.headers


def test_connection_goes_on_after_a_preflight(make_site: MakeSite) -> None:
    wire = Wire(site_with_both(make_site))
    for line in (b"OPTIONS /rpc/echo", b"GET /rpc/echo"):
        wire.send(line + b" HTTP/1.1\r\nHost: h\r\n\r\n")

    assert [answer.status for answer in wire.responses()] == [204, 200]
