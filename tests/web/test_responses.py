"""What a client is told: JSON with one sentence, and headers that say what to do."""

import json

import pytest

from svcd.web.responses import (
    HttpError,
    error_response,
    header_lines,
    internal_error,
    method_not_allowed,
    reason_phrase,
    too_many_requests,
    translate,
    unauthorized,
)


def test_body_is_ascii_json() -> None:
    body = error_response(HttpError(400, 'not "ä"')).body

    assert body.isascii()
    assert json.loads(body) == {"ok": False, "error": 'not "ä"'}


@pytest.mark.parametrize(("seconds", "told"), [(0.02, b"1"), (1.0, b"1"), (1.5, b"2")])
def test_seconds_to_wait_are_rounded_up(seconds: float, told: bytes) -> None:
    assert too_many_requests(seconds).headers == ((b"Retry-After", told),)


def test_allowed_methods() -> None:
    assert method_not_allowed(["POST", "GET"]).headers == ((b"Allow", b"GET, POST"),)


def test_challenge() -> None:
    assert unauthorized("who are you?").headers == ((b"WWW-Authenticate", b"Bearer"),)


def test_internal_error_tells_only_the_id() -> None:
    assert str(internal_error("abc")) == "500: the node failed to answer; its log has the details under abc"


def test_nearest_base_class_is_what_counts() -> None:
    table = {
        LookupError: lambda error: HttpError(404, "lookup"),
        KeyError: lambda error: HttpError(400, f"key {error.args[0]}"),
    }

    key, index, other = (translate(error, table) for error in (KeyError("k"), IndexError(), ValueError()))

    assert (key and key.sentence, index and index.sentence, other) == ("key k", "lookup", None)


def test_http_error_stands_for_itself() -> None:
    error = HttpError(404, "nothing")

    assert translate(error, {HttpError: lambda error: HttpError(500, "never")}) is error


@pytest.mark.parametrize(
    ("status", "phrase"),
    [(200, b"OK"), (413, b"Content Too Large"), (421, b"Misdirected Request"), (429, b"Too Many Requests")],
)
def test_reason_phrases_do_not_depend_on_the_version_of_python(status: int, phrase: bytes) -> None:
    assert reason_phrase(status) == phrase


def test_members_of_an_error_stand_beside_the_sentence() -> None:
    body = error_response(HttpError(404, "no", members={"mempool": True})).body
    assert json.loads(body) == {"ok": False, "error": "no", "mempool": True}


@pytest.mark.parametrize("injected", [b"a\r\nSet-Cookie: b", b"a\rb", b"a\nb", b"\r\n\r\n<script>"])
def test_a_header_with_a_line_end_is_refused(injected: bytes) -> None:
    for headers in (((b"Location", injected),), ((injected, b"a"),)):
        with pytest.raises(ValueError, match="CR or LF"):
            header_lines(headers)
