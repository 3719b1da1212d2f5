"""How answers are put on a request: one JSON encoder, and headers set once."""

import json
from collections.abc import Mapping

from attrs import frozen
from twisted.web.server import Request

from svcd.web.errors import Headers, HttpError, reason

JSON = b"application/json"

# One encoder for all: json.dumps with options builds a new one for every call.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@frozen
class Rendered:
    """An answer whose whole body exists already, such as a stored block: nothing is added to it."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()


Answer = Mapping[str, object] | tuple[int, Mapping[str, object]] | Rendered
"""What a route returns: the members of the JSON object beside ``"ok": true``, perhaps with a status, or a body."""


def fill(request: Request, answer: Answer) -> bytes:
    """Set ``answer``'s status and headers on ``request`` and return its body."""
    if isinstance(answer, Rendered):
        return _fill(request, answer)
    status, members = answer if isinstance(answer, tuple) else (200, answer)
    return _fill(request, Rendered(_encode({"ok": True, **members}).encode("ascii"), status))


def fill_error(request: Request, error: HttpError) -> bytes:
    """Set ``error``'s status and headers on ``request`` and return its body."""
    return _fill(request, Rendered(error.body, error.status, headers=error.headers))


def _fill(request: Request, answer: Rendered) -> bytes:
    request.setResponseCode(answer.status, reason(answer.status))
    headers = request.responseHeaders
    headers.setRawHeaders(b"Content-Type", [answer.content_type])
    headers.setRawHeaders(b"Cache-Control", [b"no-store"])
    headers.setRawHeaders(b"Content-Length", [b"%d" % len(answer.body)])
    for name, value in answer.headers:
        headers.setRawHeaders(name, [value])
    return answer.body
