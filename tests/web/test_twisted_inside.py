"""What svcd uses of Twisted that has no public name: where a new Twisted changes it, these tests say what broke."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from OpenSSL import SSL
from twisted.application.service import MultiService, Service
from twisted.internet.base import ReactorBase
from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.ssl import CertificateOptions, optionsForClientTLS, trustRootFromCertificates
from twisted.internet.tcp import Port
from twisted.internet.testing import StringTransport
from twisted.protocols.policies import ProtocolWrapper
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.threadpool import ThreadPool
from twisted.web.client import ProxyAgent
from twisted.web.http import HTTPChannel, Request

import svcd
from svcd.web.channel import Channel
from twisted import version

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


ROOT = Path(svcd.__file__).parent
PACKAGES = ("web", "net", "process", "node", "p2p", "commerce", "rpc", "pages", "metrics", "composition", "cli")
VERSION = "Twisted 26.10.0"
"""The version in which everything below was read."""

REPLACED = {
    "process/listener.py:port.doRead": "accepts no more than ACCEPTED_AT_ONCE connections",
    "process/timers.py:reactor.seconds": "counts monotonic time",
}
"""Every method of an object of Twisted that is replaced, and what for; the module names VERSION."""

ASSUMED = {
    "net/http_client.py": "an agent uses persistent and getConnection of its pool",
    "net/trust.py": "TLS verifies by a callback of the connection, which set_context keeps",
    "process/listener.py": "doRead reads numberAccepts first",
    "process/timers.py": "the reactor takes the time of its timers from seconds",
}
"""Every module that depends on what no documentation says."""

BASES = {
    "net/meter.py": ProtocolWrapper,
    "process/listener.py": Service,
    "process/sequential.py": MultiService,
    "process/timers.py": Service,
    "node/threads.py": Service,
}
"""Modules with subclasses of Twisted's classes, and the class whose private names they must not use."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def replaced_methods(tree: ast.AST) -> set[str]:
    """Attributes that are set of a variable other than self, and have the names of methods of Twisted's objects."""
    bases = (Port, ReactorBase, HTTPChannel, Request, ThreadPool)
    targets = [
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return {
        f"{target.value.id}.{target.attr}"
        for target in targets
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id != "self"
        and any(callable(getattr(base, target.attr, None)) for base in bases)
    }


def private_names(tree: ast.AST) -> set[str]:
    """Modules and names of Twisted with an underscore that are imported, or used of an imported module or class."""
    imported: set[str] = set()
    private: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("twisted", "klein", "treq"):
            imported |= {alias.asname or alias.name for alias in node.names}
            private |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            private |= {alias.name for alias in node.names if alias.name.startswith(("twisted.", "klein.", "treq."))}
    private = {
        name for name in private if any(part.startswith("_") and not part.endswith("__") for part in name.split("."))
    }
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in imported
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    }
    return private | used


def test_no_method_of_twisted_is_replaced_but_those_named_here() -> None:
    assert {f"{name}:{each}" for name, tree in modules() for each in replaced_methods(tree)} == set(REPLACED)


def test_no_private_name_of_twisted_is_imported() -> None:
    assert {f"{name}:{each}" for name, tree in modules() for each in private_names(tree)} == set()


@pytest.mark.parametrize("name", ASSUMED)
def test_each_assumption_names_the_version_of_twisted(name: str) -> None:
    assert VERSION in " ".join((ROOT / name).read_text().split()), ASSUMED[name]


def test_a_new_version_is_read_again() -> None:
    """Read the places of ASSUMED in the source of the new version; then change VERSION and the modules."""
    assert f"Twisted {version.base()}" == VERSION


def test_private_names_of_base_classes_are_not_used() -> None:
    for name, base in BASES.items():
        tree = ast.parse((ROOT / name).read_text())
        private = {each for each in dir(base) if each.startswith("_") and not each.startswith("__")}
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        made = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not private & (used | made), name


def test_the_searches_find_what_they_look_for() -> None:
    assert replaced_methods(ast.parse("port.doRead = few\nreactor.seconds = now\nport.numberAccepts = 3")) == {
        "port.doRead",
        "reactor.seconds",
    }
    code = "from twisted.web.client import Agent\nfrom twisted.web._newclient import Request\nAgent._private(x)"
    assert private_names(ast.parse(code)) == {"twisted.web._newclient.Request", "Agent._private"}


def test_an_agent_needs_nothing_else_of_its_pool() -> None:
    """svcd/net/http_client.py hands it a stand-in."""
    asked: list[Any] = []

    class StandIn:
        persistent = False

        def getConnection(self, key: object, endpoint: object) -> "Deferred[Any]":  # noqa: N802
            asked.append(endpoint)
            return Deferred()

    ProxyAgent("endpoint", object(), StandIn()).request(b"GET", b"//path?a=b")

    assert asked == ["endpoint"]


def test_a_connection_keeps_its_verification_in_another_context() -> None:
    """svcd/net/trust.py gives a connection the shared context."""
    creator: Any = optionsForClientTLS("shop.example.com", trustRoot=trustRootFromCertificates([]))
    factory: Any = TLSMemoryBIOFactory(creator, True, Factory.forProtocol(Protocol))
    made = creator.clientConnectionForTLS(factory.buildProtocol(None))
    made.set_context(CertificateOptions().getContext())

    assert made.get_verify_mode() == SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT
    assert made.get_servername() == b"shop.example.com"


def test_nothing_else_of_the_kind_is_used_in_the_server() -> None:
    folder = ROOT / "web"
    found = {
        name: names_from_elsewhere(folder / name) for name in ("channel.py", "slow_path.py", "site_state.py", "site.py")
    }

    # Request has a logger of its own, under the name that Twisted gives its own one.
    assert found == {"channel.py": set(USED), "slow_path.py": {"_log"}, "site_state.py": set(), "site.py": set()}


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


def test_bytes_read_ahead_are_delivered_while_the_channel_is_paused() -> None:
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
