"""What a client is told when a request fails: always JSON, one sentence, never a traceback (docs/http.md)."""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from math import ceil
from typing import Any

Headers = tuple[tuple[bytes, bytes], ...]
"""Names and values of HTTP headers, in the order in which they are sent."""

ErrorTable = Mapping[type[Exception], Callable[[Any], "HttpError | None"]]
"""How exceptions of the rooms behind the routes are told: the nearest listed base class of an exception wins.

None says that this very exception was not expected after all.
"""

# One encoder for all: json.dumps with options builds a new one for every call.
_encode = json.JSONEncoder(separators=(",", ":")).encode
_PHRASES = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}

NO_ROUTE = "there is no such path here; paths are case-sensitive and have no slash at the end"


class HttpError(Exception):
    """A request is answered with an error: ``status``, one ``sentence`` for the client, and further ``headers``.

    ``tokens`` are drawn from the client's bucket beside the cost of the route (:attr:`svcd.web.routing.Route.bucket`).
    """

    def __init__(self, status: int, sentence: str, headers: Headers = (), *, tokens: float = 0.0) -> None:
        super().__init__(status, sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers
        self.tokens = tokens

    def __str__(self) -> str:
        return f"{self.status}: {self.sentence}"

    @property
    def body(self) -> bytes:
        """The JSON text ``{"ok": false, "error": sentence}``."""
        return _encode({"ok": False, "error": self.sentence}).encode("ascii")


def method_not_allowed(allowed: list[str]) -> HttpError:
    """405 with ``Allow`` (RFC 9110 section 15.5.6)."""
    methods = ", ".join(sorted(allowed))
    return HttpError(405, f"this path answers {methods} only", ((b"Allow", methods.encode("ascii")),))


def unauthorized(sentence: str) -> HttpError:
    """401 with ``WWW-Authenticate: Bearer`` (RFC 6750 section 3)."""
    return HttpError(401, sentence, ((b"WWW-Authenticate", b"Bearer"),))


def too_many(seconds: float) -> HttpError:
    """429 with ``Retry-After`` in whole seconds, rounded up from more than none (RFC 9110 section 10.2.3)."""
    wait = ceil(seconds)
    return HttpError(429, f"too many requests; try again in {wait} s", ((b"Retry-After", b"%d" % wait),))


def crowded_out(sentence: str, seconds: int) -> HttpError:
    """503 for a request that gives way to others, with ``Retry-After`` in ``seconds`` (RFC 9110 section 10.2.3)."""
    return HttpError(503, sentence, ((b"Retry-After", b"%d" % seconds),))


def too_late(part: str, seconds: float) -> HttpError:
    """408 for a request of which ``part`` took longer than ``seconds``."""
    return HttpError(408, f"the request's {part} did not arrive within {seconds:g} seconds")


def internal(error_id: str) -> HttpError:
    """500 that tells nothing but the id under which the log has the details."""
    return HttpError(500, f"the node failed to answer; its log has the details under {error_id}")


def translate(error: BaseException | None, table: ErrorTable) -> HttpError | None:
    """What ``table`` says of ``error``; an HttpError stands for itself; None for an exception nobody expected."""
    if isinstance(error, HttpError):
        return error
    for cls in type(error).__mro__:
        if cls in table:
            return table[cls](error)
    return None


def reason(status: int) -> bytes:
    """The reason phrase of ``status``: Twisted's own table does not know 421 and 429."""
    return _PHRASES[status]
