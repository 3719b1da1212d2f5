"""Resources that show what reached them, whichever way it came."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from svcd.web.api import Presentation, Router
from svcd.web.responses import Response
from svcd.web.routes import Route

# Resources have names of Twisted's kind.
# ruff: noqa: N802, N815


@frozen
class Bound:
    """A route that is answered by any callable."""

    route: Route
    respond: Any
    presentation: Presentation = field(factory=Presentation)


class Leaf(Resource):
    """One resource for all paths, of which the fast path knows some."""

    isLeaf = True

    def router(self) -> Router:
        """The paths that the fast path knows."""
        router = Router()
        for method, path in (("GET", "/a"), ("POST", "/a"), ("POST", "/b")):
            router.add(Bound(Route(method, path, "", bucket="read", answers={}), self.respond))
        return router

    def respond(self, request: Any, _values: Mapping[str, str]) -> "Response | Deferred[Response]":
        """What the resource renders."""
        return Response(self.render(request))


class Echo(Leaf):
    """Answers with the method, the path and the body of every request, and keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bytes, bytes, bytes]] = []

    def render(self, request: Any) -> bytes:
        body = b"" if request.content is None else request.content.read()
        self.seen.append((request.method, request.path, body))
        return b" ".join(self.seen[-1])


class Filled(Leaf):
    """Answers every GET with ``size`` bytes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.asked = 0

    def render_GET(self, request: Any) -> bytes:
        self.asked += 1
        return b"x" * self._size


class Slow(Leaf):
    """Answers when the test says so; notes which clients went away."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []
        self.gone: list[Any] = []

    def render(self, request: Any) -> int:
        self.waiting.append(request)
        request.notifyFinish().addErrback(lambda _: self.gone.append(request))
        return NOT_DONE_YET

    def respond(self, request: Any, _values: Mapping[str, str]) -> "Deferred[Response]":
        later: Deferred[Response] = Deferred(self.gone.append)
        self.waiting.append(later)
        request.channel.answer_within(0)
        return later

    def answer(self) -> None:
        request = self.waiting.pop(0)
        if isinstance(request, Deferred):
            request.callback(Response(b"ok"))
            return
        request.setHeader(b"Content-Length", b"2")
        request.write(b"ok")
        request.finish()


class Failing(Resource):
    """Raises an exception, perhaps after a part of the answer."""

    isLeaf = True

    def __init__(self, error: Exception, first: bytes = b"") -> None:
        super().__init__()
        self._error = error
        self._first = first

    def render(self, request: Any) -> bytes:
        if self._first:
            request.write(self._first)
        raise self._error
