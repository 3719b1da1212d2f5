"""What every node says of its public routes, without asking one: the same for all, whatever is switched on."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from svcd import p2p, rpc
from svcd.web.openapi import document
from svcd.web.routes import Route
from tests.rpc.description import Asked, Description
from tests.web.wire import Response


def declared(package: Any) -> Iterator[Route]:
    """The routes of all classes in a package."""
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        owners = (each for each in vars(module).values() if isinstance(each, type) and each.__module__ == found.name)
        for method in (method for owner in owners for method in vars(owner).values()):
            yield from (value for value in getattr(method, "__dict__", {}).values() if isinstance(value, Route))


@cache
def description(mount: str) -> Description:
    """Of what is below ``/rpc``, which pages of others may read, or below ``/p2p``."""
    package = rpc if mount == "/rpc" else p2p
    routes = [route for route in declared(package) if route.path.startswith(f"{mount}/")]
    described: Any = document(routes, {"title": "svcd", "version": "0"})
    return Description(described, cors=mount == "/rpc")


def check(asked: Asked, response: Response) -> None:
    """Fail unless an answer of a public route is one that the node announces."""
    mount = "/" + asked.path.split("/")[1]
    if mount in ("/rpc", "/p2p"):
        description(mount).check(asked, response)
