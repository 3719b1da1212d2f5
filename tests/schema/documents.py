"""The OpenAPI documents that every node serves, made without one; their snapshots are in docs/.

`python -m tests.schema.documents` writes the snapshots again.
"""

import json
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final

from svcd import metrics, p2p, rpc
from svcd.chain.params import MAINNET, NetworkParams
from svcd.chain_schemas import of_network
from svcd.rpc.sites import PeersOpenApiRoute, operator_document, public_document
from svcd.web.routes import Route, routes_of

DOCS: Final = Path(__file__).parents[2] / "docs"
_ELSEWHERE: Final = [route.path for route, _ in routes_of(PeersOpenApiRoute(dict))]


def declared(package: Any) -> Iterator[Route]:
    """The routes of all classes in a package."""
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        owners = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == found.name)
        for method in (method for owner in owners for method in vars(owner).values()):
            yield from (value for value in getattr(method, "__dict__", {}).values() if isinstance(value, Route))


def public(params: NetworkParams | None) -> Any:
    """Of the public interface of a node of a network, or of any."""
    routes = [
        route for package in (rpc, p2p) for route in declared(package) if route.path.startswith(("/rpc/", "/p2p/"))
    ]
    here = [route for route in routes if route.path not in _ELSEWHERE]
    return _as_served(public_document(here, of_network(params) if params else {}))


def operator(params: NetworkParams) -> Any:
    """Of the operator's interface of a node, with the routes that only a devnet has."""
    routes = [route for package in (rpc, metrics) for route in declared(package)]
    here = [route for route in routes if not route.path.startswith(("/rpc/", "/p2p/"))]
    return _as_served(operator_document(here, of_network(params)))


def _as_served(document: dict[str, object]) -> Any:
    return json.loads(json.dumps(document))


def snapshots() -> dict[Path, str]:
    """The text of each snapshot: the documents of a mainnet node."""
    documents = {"openapi.json": public(MAINNET), "operator-openapi.json": operator(MAINNET)}
    return {DOCS / name: json.dumps(document, indent=1) + "\n" for name, document in documents.items()}


if __name__ == "__main__":
    for path, text in snapshots().items():
        path.write_text(text, encoding="utf-8")
