"""A response that is made once for many requests: as it is and compressed by gzip, whichever the client takes."""

import gzip
from hashlib import sha256
from typing import Final

from attrs import field, frozen
from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header, parse_etags

from svcd.web.request import IncomingRequest
from svcd.web.responses import Headers, Response

_VARY: Final = b"Vary"
_ENCODING: Final = b"Accept-Encoding"
GZIP: Final[Headers] = ((b"Content-Encoding", b"gzip"),)


@frozen
class _Representation:
    """One form of the content, with the headers that only this form has."""

    body: bytes
    headers: Headers = ()
    etag: str = field(init=False)

    @etag.default
    def _hash(self) -> str:
        return sha256(self.body).hexdigest()[:32]


@frozen
class Negotiated:
    """The ``content`` in the form that a request asks for by ``Accept-Encoding`` (RFC 9110 section 12.5.3).

    With ``revalidated``, each form has an ETag, and a request that names it in ``If-None-Match`` gets 304 (section
    13.1.2).
    """

    content: bytes
    content_type: bytes
    headers: Headers = ()
    revalidated: bool = field(default=False, kw_only=True)
    packed: bytes = field(default=b"", kw_only=True)
    """The content by gzip, if it is at hand."""
    _vary: bytes = field(init=False)
    _plain: _Representation = field(init=False)
    _gzipped: _Representation = field(init=False)

    @_vary.default
    def _with_encoding(self) -> bytes:
        return b", ".join([*[value for name, value in self.headers if name == _VARY], _ENCODING])

    @_plain.default
    def _as_it_is(self) -> _Representation:
        return _Representation(self.content)

    @_gzipped.default
    def _compressed(self) -> _Representation:
        return _Representation(self.packed or compressed(self.content), GZIP)

    def respond(self, request: IncomingRequest) -> Response:
        """The response to ``request``."""
        chosen = self._gzipped if takes_gzip(request) else self._plain
        headers: Headers = (*self.headers, (_VARY, self._vary))
        if self.revalidated:
            headers = (*headers, (b"ETag", b'"%b"' % chosen.etag.encode("ascii")))
            if parse_etags(_joined(request, b"If-None-Match")).contains_weak(chosen.etag):
                return Response(b"", 304, content_type=self.content_type, headers=headers)
        return Response(chosen.body, content_type=self.content_type, headers=(*headers, *chosen.headers))


def compressed(content: bytes) -> bytes:
    """``content`` by gzip, without the time, so that the same content has the same ETag after every start."""
    return gzip.compress(content, mtime=0)


def takes_gzip(request: IncomingRequest) -> bool:
    """Whether ``Accept-Encoding`` admits gzip."""
    return parse_accept_header(_joined(request, b"Accept-Encoding"), Accept).quality("gzip") > 0


def _joined(request: IncomingRequest, name: bytes) -> str:
    """The value of a header that may have several lines (RFC 9110 section 5.3)."""
    return ", ".join(line.decode("latin-1") for line in request.requestHeaders.getRawHeaders(name) or ())
