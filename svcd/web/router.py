"""Finds what answers a request, by its method and path: one table for every way in which requests are read."""

from collections.abc import Callable, Mapping, Sequence

from attrs import define, field, frozen
from twisted.internet.defer import Deferred

from svcd.web.answers import Rendered
from svcd.web.errors import Headers
from svcd.web.routing import Asked, Route

Respond = Callable[[Asked, Mapping[str, str]], "Rendered | Deferred[Rendered]"]
"""Answers a request by what stands at the placeholders of its path, errors included; raises nothing."""


@frozen
class Served:
    """A declared route, what answers it, and the headers that every answer under its mount has."""

    route: Route
    respond: Respond
    headers: Headers = ()


@define
class _Node:
    """What begins with the same segments."""

    children: dict[str, "_Node"] = field(factory=dict)
    placeholder: "_Node | None" = None
    served: dict[bytes, Served] = field(factory=dict)
    """By method, the routes that end here."""


class Router:
    """The routes of one site."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, served: Served) -> None:
        """Let a route be found; raises ValueError for a second one of the same method and form of path."""
        node, method = self._root, served.route.method.encode("ascii")
        for segment in served.route.path.split("/")[1:]:
            if segment.startswith("{"):
                node.placeholder = node.placeholder or _Node()
                node = node.placeholder
            else:
                node = node.children.setdefault(segment, _Node())
        if method in node.served:
            raise ValueError(f"{served.route.path}: {node.served[method].route.path} is the same path")
        node.served[method] = served

    def find(self, method: bytes, segments: Sequence[str]) -> tuple[Served, dict[str, str]] | None:
        """The route of a path in decoded segments, and what stands at its placeholders; None where there is none.

        What is spelt out in a declared path goes before a placeholder, which nothing empty can fill.
        """
        return self._find(self._root, method, segments, ())

    def _find(
        self, node: _Node, method: bytes, segments: Sequence[str], values: tuple[str, ...]
    ) -> tuple[Served, dict[str, str]] | None:
        for at, segment in enumerate(segments):
            child = node.children.get(segment)
            if node.placeholder is not None and segment:
                spelt_out = child and self._find(child, method, segments[at + 1 :], values)
                if spelt_out:
                    return spelt_out
                child, values = node.placeholder, (*values, segment)
            if child is None:
                return None
            node = child
        served = node.served.get(method)
        if served is None:
            return None
        return served, dict(zip([field.name for field in served.route.path_fields], values, strict=True))
