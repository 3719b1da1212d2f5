"""What svcd/web uses of Twisted that has no public name: where a new Twisted changes it, these tests say what broke."""

import ast
from pathlib import Path

import pytest
from twisted.internet.testing import StringTransport
from twisted.web.http import HTTPChannel, Request

import svcd.web
from svcd.web.channel import Channel

USED = {
    "_command": "the method of the request whose headers come; caps of bodies and refusals to HEAD depend on it",
    "_path": "its target; caps of bodies and the headers of refusals depend on it",
    "_respondToBadRequestAndDisconnect": "called for all that is malformed; overridden, so that the answer is JSON",
}
"""Every such name, and what it is used for."""


def names_from_elsewhere(source: Path) -> set[str]:
    """The names with an underscore that the classes of ``source`` use of themselves without having made them."""
    used, made = set(), set()
    for node in ast.walk(ast.parse(source.read_text())):
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                made.add(name)
            case ast.Attribute(ast.Name("self") | ast.Call(ast.Name("super")), name):
                used.add(name)
            case ast.Call(ast.Name("getattr"), [ast.Name("self"), ast.Constant(str(name)), *_]):
                used.add(name)
            case ast.FunctionDef(name) | ast.AnnAssign(ast.Name(name)) | ast.Assign([ast.Name(name)]):
                made.add(name)
    inherited = {name for name in made if name in vars(HTTPChannel) or name in vars(Request)}
    return {name for name in (used - made) | inherited if name.startswith("_") and not name.startswith("__")}


def test_nothing_else_of_the_kind_is_used() -> None:
    folder = Path(svcd.web.__file__).parent
    found = {name: names_from_elsewhere(folder / name) for name in ("channel.py", "request.py", "site.py")}

    # Request has a logger of its own, under the name that Twisted gives its own one.
    assert found == {"channel.py": set(USED), "request.py": {"_log"}, "site.py": set()}


@pytest.mark.parametrize(("name", "value"), [("_command", b"PUT"), ("_path", b"/a?b")])
def test_the_request_line_is_there_while_the_headers_come(name: str, value: bytes) -> None:
    channel = HTTPChannel()
    channel.requestFactory = Request
    channel.makeConnection(StringTransport())
    told = f"Twisted's HTTPChannel has no {name} any more where svcd/web/channel.py looks for it: {USED[name]}"

    assert not hasattr(channel, name), told
    channel.dataReceived(b"PUT /a?b HTTP/1.1\r\nHost: h\r\n")
    assert getattr(channel, name, None) == value, told


@pytest.mark.parametrize(
    "malformed", [b"NONSENSE\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 502]
)
def test_twisted_calls_what_is_overridden(malformed: bytes) -> None:
    name = "_respondToBadRequestAndDisconnect"
    calls = []
    channel = type("Heard", (HTTPChannel,), {name: lambda self: calls.append(self)})()
    channel.requestFactory = Request
    channel.makeConnection(StringTransport())

    channel.dataReceived(malformed)

    assert calls, f"Twisted's HTTPChannel does not call {name} any more, which Channel overrides: {USED[name]}"
    assert getattr(Channel, name) is not getattr(HTTPChannel, name, None)


def test_what_is_read_ahead_is_handed_over_while_the_channel_is_paused() -> None:
    """Public names, but no page of Twisted's documentation says that they work together like this."""
    handed: list[bytes] = []

    class Heard(HTTPChannel):
        def dataReceived(self, data: bytes) -> None:  # noqa: N802
            if self.paused:
                handed.append(data)
            else:
                super().dataReceived(data)

        def requestDone(self, request: Request) -> None:  # noqa: N802
            self.paused = True
            super().requestDone(request)
            handed.append(self.clearLineBuffer())

    class Asked(Request):
        def process(self) -> None:
            self.finish()

    channel = Heard()
    channel.requestFactory = Asked
    channel.makeConnection(StringTransport())

    channel.dataReceived(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nahead")
    assert handed == [b"ahead"], "what is left in the buffer of lines: svcd/web/channel.py, requestDone"
    channel.paused, handed[:] = False, []
    channel.dataReceived(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcahead")
    assert handed == [b"ahead", b""], "what came with a body's last bytes: svcd/web/channel.py, requestDone"
