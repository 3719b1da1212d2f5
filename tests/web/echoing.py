"""Resources that show what reached them."""

from typing import Any

from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

# Resources have names of Twisted's kind.
# ruff: noqa: N802, N815


class Echo(Resource):
    """Answers with the method, the path and the body of every request, and keeps them."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[bytes, bytes, bytes]] = []

    def render(self, request: Any) -> bytes:
        self.seen.append((request.method, request.path, request.content.read()))
        return b" ".join(self.seen[-1])


class Filled(Resource):
    """Answers every GET with ``size`` bytes."""

    isLeaf = True

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self.asked = 0

    def render_GET(self, request: Any) -> bytes:
        self.asked += 1
        return b"x" * self._size


class Slow(Resource):
    """Answers when the test says so; notes which clients went away."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Any] = []
        self.gone: list[Any] = []

    def render(self, request: Any) -> int:
        self.waiting.append(request)
        request.notifyFinish().addErrback(lambda _: self.gone.append(request))
        return NOT_DONE_YET

    def answer(self) -> None:
        request = self.waiting.pop(0)
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
