"""The OpenAPI document of every public route, from the declarations that also read the requests."""

import json
from collections.abc import Callable, Iterable
from typing import Final

from svcd.node.status import SOFTWARE_VERSION
from svcd.rpc import schemas
from svcd.web.openapi import document
from svcd.web.responses import Cached, Renderable, Response, to_response
from svcd.web.routes import Route, object_schema

MEDIA_TYPE: Final = "application/vnd.oai.openapi+json;version=3.1"


class OpenApiRoute:
    """Serves the document of the routes that ``routes`` returns on the first request."""

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
    def openapi(self) -> Renderable:
        """Answer GET /rpc/openapi.json."""
        if self._document is None:
            info = {"title": "svcd", "version": SOFTWARE_VERSION, "description": "A node's public interface."}
            self._document = json.dumps(document(self._routes(), info)).encode()
        return Response(self._document, content_type=MEDIA_TYPE.encode("ascii"))


_PREFIX: Final = "/rpc/commerce/"


class CatalogRoute:
    """Lists those of the routes that ``routes`` gives, when first asked, which are for merchants."""

    def __init__(self, routes: Callable[[], Iterable[Route]]) -> None:
        self._routes = routes
        self._kept: Cached[Response] = Cached()

    @Route(
        "GET",
        "/rpc/commerce/catalog",
        "This list of the routes for merchants",
        bucket="read",
        answers={200: object_schema({"catalog": schemas.CATALOG})},
    )
    def catalog(self) -> Renderable:
        """Answer GET /rpc/commerce/catalog."""
        return self._kept.get(None, self._render)

    def _render(self) -> Response:
        return to_response({"catalog": [_entry(route) for route in self._routes() if route.path.startswith(_PREFIX)]})


def _entry(route: Route) -> dict[str, str]:
    schemes = [guard.scheme for guard in route.guards if guard.scheme]
    return {
        "method": route.method,
        "path": route.path,
        "description": route.summary,
        "authentication": schemes[0] if schemes else "none",
    }
