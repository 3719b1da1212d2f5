"""Pages on the real HTTP stack in memory."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from twisted.internet.task import Clock

from svcd.commerce.looking import Payments
from svcd.node.status import Alone, Neighbourhood
from svcd.pages.resource import Hosts
from svcd.pages.service import pages
from svcd.pages.sources import PeerLine, Sources
from svcd.rpc.commerce import CommerceRoutes
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Public
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients
from svcd.web.site import Site
from tests.handing_in import handed_in
from tests.pages.reading import Document
from tests.rpc.conftest import present
from tests.rpc.node import COMMON, PARAMS, UNLIMITED, Node, Settings
from tests.web.wire import Response, Wire

BROWSER = "text/html,application/xhtml+xml"


@define
class Around:
    """The other nodes, as a test says."""

    here: Neighbourhood = field(factory=lambda: Alone(True).neighbourhood())

    def neighbourhood(self) -> Neighbourhood:
        return self.here


@frozen
class Shown:
    """A node, its public site with pages, and a browser that looks at it."""

    node: Node
    site: Site
    around: Around
    peers: list[PeerLine]

    def ask(self, target: str, method: str = "GET", *, host: str = "localhost", **headers: str) -> Response:
        """The answer to a browser."""
        given = {"Host": host, "Accept": BROWSER, **{name.replace("_", "-"): text for name, text in headers.items()}}
        lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {text}" for name, text in given.items()]]
        wire = Wire(self.site).send("\r\n".join([*lines, "", ""]).encode())
        response = wire.response(head=method == "HEAD")
        wire.close()
        return response

    def see(self, target: str, status: int = 200) -> Document:
        """The page, which is well formed."""
        response = self.ask(target)
        assert response.status == status, response.body
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        return Document(response.body.decode())

    def wait(self, *transfers: Any) -> None:
        """Let transfers wait in the mempool."""
        for transfer in transfers:
            handed_in(self.node.living.transfers, transfer, self.node.clock)


def show(
    node: Node, *, hosts: Hosts | None = None, rates: dict[str, Rate] = UNLIMITED, serves_peers: bool = False
) -> Shown:
    """A node's public site with pages."""
    ledger, transfers, clock = node.living.ledger, node.living.transfers, node.clock
    around, peers = Around(), list[PeerLine]()
    payments = Payments.followed(ledger, transfers)
    sources = Sources(
        ledger=ledger,
        mempool=transfers.mempool,
        payments=payments,
        peers=around,
        sample=lambda: peers,
        clock=clock,
        serves_peers=serves_peers,
    )
    rooms = [
        ChainRoutes(ledger, transfers=transfers, status=node.status, clock=clock),
        CommerceRoutes(ledger, payments, random=bytes, webhooks_enabled=False),
    ]
    public = Public(COMMON, Clients(), Buckets(rates))
    return Shown(node, node.sites.public(rooms, public, pages=pages(sources, hosts)), around, peers)


@pytest.fixture
def clock() -> Clock:
    """The clock of the nodes."""
    return present()


@pytest.fixture
def open_node(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., Node]]:
    """``open_node(**settings)``: a node on a new chain; closed after the test."""
    nodes: list[Node] = []

    def make(**settings: Any) -> Node:
        nodes.append(Node(tmp_path / f"{len(nodes)}.sqlite", clock, Settings(**settings)))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def mainnet(open_node: Callable[..., Node]) -> Shown:
    """The same for a network that calls itself mainnet."""
    return show(open_node(params=evolve(PARAMS, name="mainnet")))


@pytest.fixture
def shown(open_node: Callable[..., Node]) -> Shown:
    """Pages of a node on a new chain."""
    return show(open_node())


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Pages of a node on a chain without blocks that no test changes."""
    node = Node(tmp_path_factory.mktemp("still") / "chain.sqlite", present(), Settings())
    yield show(node)
    node.close()
