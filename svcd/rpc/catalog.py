"""The list of the routes for merchants, from the declarations that also read the requests."""

from collections.abc import Callable, Iterable
from typing import Final

from svcd.rpc import schemas
from svcd.web.answers import Answer, Kept, Rendered, rendered
from svcd.web.routing import Route, object_schema

_PREFIX: Final = "/rpc/commerce/"


class CatalogRoute:
    """Lists those of the routes that ``routes`` gives, when first asked, which are for merchants."""

    def __init__(self, routes: Callable[[], Iterable[Route]]) -> None:
        self._routes = routes
        self._kept: Kept[Rendered] = Kept()

    @Route(
        "GET",
        "/rpc/commerce/catalog",
        "This list of the routes for merchants",
        bucket="read",
        answers={200: object_schema({"catalog": schemas.CATALOG})},
    )
    def catalog(self) -> Answer:
        """Answer GET /rpc/commerce/catalog."""
        return self._kept.get(None, self._render)

    def _render(self) -> Rendered:
        return rendered({"catalog": [_entry(route) for route in self._routes() if route.path.startswith(_PREFIX)]})


def _entry(route: Route) -> dict[str, str]:
    schemes = [guard.scheme for guard in route.guards if guard.scheme]
    return {
        "method": route.method,
        "path": route.path,
        "description": route.summary,
        "authentication": schemes[0] if schemes else "none",
    }
