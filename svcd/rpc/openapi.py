"""The OpenAPI document of every public route, from the declarations that also read the requests."""

import json
from collections.abc import Callable, Iterable
from typing import Final

from svcd.node.status import SOFTWARE_VERSION
from svcd.web.answers import Answer, Rendered
from svcd.web.openapi import document
from svcd.web.routing import Route

MEDIA_TYPE: Final = "application/vnd.oai.openapi+json;version=3.1"


class OpenApiRoute:
    """Serves the document of the routes that ``routes`` gives when it is first asked for."""

    def __init__(self, routes: Callable[[], Iterable[Route]]) -> None:
        self._routes = routes
        self._document: bytes | None = None

    @Route(
        "GET",
        "/rpc/openapi.json",
        "This description, in OpenAPI 3.1",
        bucket="read",
        answers={200: {"type": "object", "properties": {"openapi": {"type": "string"}}, "required": ["openapi"]}},
        media_type=MEDIA_TYPE,
    )
    def openapi(self) -> Answer:
        """Answer GET /rpc/openapi.json."""
        if self._document is None:
            info = {"title": "svcd", "version": SOFTWARE_VERSION, "description": "A node's public interface."}
            self._document = json.dumps(document(self._routes(), info)).encode()
        return Rendered(self._document, content_type=MEDIA_TYPE.encode("ascii"))
