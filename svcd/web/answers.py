"""How answers are rendered: one JSON encoder, and the same headers whichever way the request was read."""

import json
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from attrs import define, frozen
from twisted.web.server import Request

from svcd.web.errors import Headers, HttpError, reason

JSON = b"application/json"

T = TypeVar("T")

# One encoder for all: json.dumps with options builds a new one for every call. No answer contains itself.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


@frozen
class Rendered:
    """An answer whose whole body exists already, such as a stored block: nothing is added to it."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON
    headers: Headers = ()

    @property
    def fields(self) -> Headers:
        """Its headers in order; a later one of the same name replaces an earlier one."""
        length = b"%d" % len(self.body)
        own = ((b"Content-Type", self.content_type), (b"Cache-Control", b"no-store"), (b"Content-Length", length))
        return (*own, *self.headers)


@define
class Kept(Generic[T]):
    """What is the same for everybody until something changes, made once for each change."""

    _of: object = None
    _made: T | None = None

    def get(self, of: object, make: Callable[[], T]) -> T:
        """What ``make`` has made of ``of``, which is compared; not None."""
        if self._made is None or self._of != of:
            self._of, self._made = of, make()
        return self._made


Answer = Mapping[str, object] | tuple[int, Mapping[str, object]] | Rendered
"""What a route returns: the members of the JSON object beside ``"ok": true``, perhaps with a status, or a body."""


def json_body(members: Mapping[str, object]) -> bytes:
    """The JSON text of a success."""
    return _encode({"ok": True, **members}).encode("ascii")


def rendered(answer: Answer) -> Rendered:
    """``answer`` with its whole body."""
    if isinstance(answer, Rendered):
        return answer
    status, members = answer if isinstance(answer, tuple) else (200, answer)
    return Rendered(json_body(members), status)


def rendered_error(error: HttpError) -> Rendered:
    """The JSON that tells ``error``."""
    return Rendered(error.body, error.status, headers=error.headers)


def put_on(request: Request, answer: Rendered) -> bytes:
    """Set ``answer``'s status and headers on ``request`` and return its body."""
    request.setResponseCode(answer.status, reason(answer.status))
    for name, value in answer.fields:
        request.responseHeaders.setRawHeaders(name, [value])
    return answer.body


def written_out(status: int, headers: Headers, body: bytes) -> bytes:
    """The bytes of a whole HTTP/1.1 answer; a later header of the same name replaces an earlier one."""
    fields = b"".join([b"%b: %b\r\n" % field for field in dict(headers).items()])
    return b"HTTP/1.1 %d %b\r\n%b\r\n%b" % (status, reason(status), fields, body)
