"""Requests: every error is JSON, whatever made it; HEAD, targets in absolute form, and methods nobody knows."""

from collections.abc import Callable
from typing import Any

import pytest

from svcd.web.resources import Branch
from svcd.web.responses import HttpError
from svcd.web.site import Site
from tests.web.echoing import Echo, Failing, Filled, Slow
from tests.web.wire import Response, Wire

MakeSite = Callable[..., Site]


def ask(site: Site, line: bytes, headers: bytes = b"Host: h\r\n") -> Response:
    wire = Wire(site).send(line + b" HTTP/1.1\r\n" + headers + b"\r\n")
    return wire.response(head=line.startswith(b"HEAD"))


def test_resource_that_raises_is_told_without_details(make_site: MakeSite, expected_errors: Any) -> None:
    answer = ask(make_site(Failing(ZeroDivisionError("secret"))), b"GET /")

    assert answer.status == 500
    assert answer.error == "the node failed to answer; its log has the details under e1"
    (event,) = expected_errors(ZeroDivisionError)
    assert event["error_id"] == "e1"


def test_resource_may_raise_what_the_client_is_told(make_site: MakeSite) -> None:
    answer = ask(make_site(Failing(HttpError(503, "not yet", ((b"Retry-After", b"7"),)))), b"GET /")

    assert (answer.status, answer.error, answer.headers["retry-after"]) == (503, "not yet", "7")


def test_answer_that_fails_half_way_is_cut_off(make_site: MakeSite, expected_errors: Any) -> None:
    wire = Wire(make_site(Failing(ZeroDivisionError(), first=b"half"))).send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")

    assert not wire.open
    assert b"ok" not in wire.received
    assert not wire.received.endswith(b"0\r\n\r\n"), "it would look whole"
    expected_errors(ZeroDivisionError)


def test_error_for_a_client_that_went_away_is_dropped(make_site: MakeSite) -> None:
    slow = Slow()
    wire = Wire(make_site(slow)).send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    wire.close()

    slow.waiting[0].refuse(HttpError(503, "too late"))

    assert not wire.received


def test_path_that_is_not_there(make_site: MakeSite) -> None:
    answer = ask(make_site(Branch()), b"GET /nowhere/at/all")

    assert answer.status == 404
    assert answer.error == "there is no such path here; paths are case-sensitive and have no slash at the end"


@pytest.mark.parametrize("method", [b"POST", b"PUT", b"DELETE", b"TRACE", b"PATCH", b"BREW"])
def test_method_that_a_resource_does_not_answer(make_site: MakeSite, method: bytes) -> None:
    answer = ask(make_site(Filled(3)), method + b" /")

    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"
    assert answer.error == "this path answers GET, HEAD only"


def test_connect_is_not_answered(make_site: MakeSite) -> None:
    answer = ask(make_site(Echo()), b"CONNECT example.com:443")

    assert answer.status == 405
    assert "CONNECT" not in answer.headers["allow"]


@pytest.mark.parametrize("target", [b"example.com", b"ftp://example.com/", b"*"])
def test_target_that_is_no_path(make_site: MakeSite, target: bytes) -> None:
    answer = ask(make_site(Echo()), b"GET " + target)

    assert answer.status == 400
    assert answer.error == "the request's target must be a path that starts with a slash"


@pytest.mark.parametrize(
    ("target", "path"), [(b"http://h:80/a/b", b"/a/b"), (b"HTTPS://h", b"/"), (b"http://h?q=1", b"/")]
)
def test_target_in_absolute_form_is_its_path(make_site: MakeSite, target: bytes, path: bytes) -> None:
    echo = Echo()

    assert ask(make_site(echo), b"GET " + target).status == 200
    assert echo.seen == [(b"GET", path, b"")]


def test_head_is_get_without_the_body(make_site: MakeSite) -> None:
    site = make_site(Filled(1234))

    got, headed = ask(site, b"GET /"), ask(site, b"HEAD /")

    assert headed.status == 200
    assert headed.headers == got.headers
    assert headed.headers["content-length"] == "1234"


def test_head_of_an_error_has_no_body(make_site: MakeSite) -> None:
    answer = ask(make_site(Branch()), b"HEAD /nowhere")

    assert answer.status == 404
    assert int(answer.headers["content-length"]) > 0


def test_nothing_is_called_html_by_accident(make_site: MakeSite) -> None:
    assert "content-type" not in ask(make_site(Echo()), b"GET /").headers


def test_server_header_does_not_tell_the_version(make_site: MakeSite) -> None:
    assert ask(make_site(Echo()), b"GET /").headers["server"] == "svcd"


@pytest.mark.parametrize("host", [b"", b"\xff\xfe", b"a" * 70 + b".com", b"a..b", b"[::1", b"x:y:z"])
def test_host_is_no_reason_to_fail(serve: Any, host: bytes) -> None:
    assert ask(serve(), b"GET /rpc/x", b"Host: " + host + b"\r\n").status == 404


def test_forms_are_not_parsed(make_site: MakeSite) -> None:
    echo = Echo()
    headers = b"Host: h\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 5\r\n"

    Wire(make_site(echo)).send(b"POST / HTTP/1.1\r\n" + headers + b"\r\nhello")

    assert echo.seen == [(b"POST", b"/", b"hello")]


@pytest.mark.parametrize("headers", [b"", b"Host: h\r\nHost: h\r\n"])
def test_one_host_header_is_asked_for(make_site: MakeSite, headers: bytes) -> None:
    answer = ask(make_site(Echo()), b"GET /", headers)

    assert answer.status == 400
    assert answer.error == f"a request of HTTP/1.1 has one Host header, not {headers.count(b'Host')}"


def test_clients_of_old_need_no_host(make_site: MakeSite) -> None:
    assert Wire(make_site(Echo())).send(b"GET / HTTP/1.0\r\n\r\n").response().status == 200


@pytest.mark.parametrize("method", [b"get", b"Post", b"hEAD"])
def test_methods_are_in_capitals(make_site: MakeSite, method: bytes) -> None:
    answer = ask(make_site(Echo()), method + b" /")

    assert (answer.status, "in capital letters" in answer.error) == (400, True)
