"""Bearer tokens (RFC 6750): read from the request, compared in constant time."""

import hmac

from svcd.web.errors import unauthorized
from svcd.web.routing import Asked


def require_bearer(request: Asked, token: str) -> None:
    """Raise HttpError 401 unless the request has exactly one ``Authorization`` header: ``Bearer`` with ``token``."""
    lines = request.requestHeaders.getRawHeaders(b"Authorization") or []
    scheme, _, given = lines[0].partition(b" ") if len(lines) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), token.encode("utf-8")):
        raise unauthorized("this needs the header Authorization: Bearer <token> with the right token")
