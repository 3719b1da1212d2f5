"""Pages on the real HTTP stack in memory."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.node.fees import Fees
from svcd.node.network_view import NetworkView, NoPeers
from svcd.node.recipient_index import RecipientIndex, ReferenceIndex
from svcd.node.work_rate import WorkRate
from svcd.pages.link_policy import LinkPolicy, LinkPolicySource
from svcd.pages.resource import PageHosts, pages_resource
from svcd.pages.sources import PeerRow, Sources
from svcd.pages.texts import Catalogues
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.payment_routes import CommerceRoutes
from svcd.rpc.proof_routes import ProofRoutes
from svcd.rpc.sites import PublicSite
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from svcd.web.site import Site
from tests.pages.reading import Document
from tests.rpc.conftest import clock as clock
from tests.rpc.conftest import open_node as open_node
from tests.rpc.conftest import present
from tests.rpc.node import COMMON, PARAMS, UNLIMITED, Node, Settings
from tests.submitting import submitted
from tests.support import SettableClock
from tests.web.wire import Response, Wire

BROWSER = "text/html,application/xhtml+xml"


@define
class Around:
    """The state of the network that a test sets."""

    here: NetworkView = field(factory=lambda: NoPeers(True).network_view())
    synced: bool = True

    def network_view(self) -> NetworkView:
        return self.here

    def behind(self) -> str:
        return self.here.behind

    why_no_block = behind


@frozen
class Shown:
    """A node, its public site with pages, and a client that sends a browser's headers."""

    node: Node
    site: Site
    around: Around
    peers: list[PeerRow]

    def ask(self, target: str, method: str = "GET", *, host: str = "localhost", **headers: str) -> Response:
        """The response to a browser's request."""
        given = {"Host": host, "Accept": BROWSER, **{name.replace("_", "-"): text for name, text in headers.items()}}
        lines = [f"{method} {target} HTTP/1.1", *[f"{name}: {text}" for name, text in given.items()]]
        wire = Wire(self.site).send("\r\n".join([*lines, "", ""]).encode())
        response = wire.response(head=method == "HEAD")
        wire.close()
        return response

    def see(self, target: str, status: int = 200) -> Document:
        """The parsed page; fails unless it is well-formed HTML."""
        response = self.ask(target)
        assert response.status == status, response.body
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        return Document(response.body.decode())

    def come_to_tip(self, *, seconds: float = 0) -> None:
        """Set the computer's clock to so many seconds after the newest block."""
        node = self.node
        assert isinstance(node.clock, SettableClock)
        made = node.params.slot_time(node.node_context.chain_manager.tip.slot) / 1000
        node.clock.ahead = made + seconds - node.clock.seconds()

    def wait(self, *transfers: Any) -> None:
        """Add transfers to the mempool."""
        for transfer in transfers:
            submitted(self.node.node_context.transaction_pool, transfer, self.node.clock)


def show(
    node: Node,
    *,
    hosts: PageHosts | None = None,
    rates: dict[str, Rate] = UNLIMITED,
    serves_peers: bool = False,
    catalogues: Catalogues | None = None,
    links: LinkPolicySource = LinkPolicy,
    public_url: str = "",
    work_rate: Callable[[], WorkRate | None] = lambda: None,
    on_demand: bool = False,
    every: int = 0,
) -> Shown:
    """A node's public site with pages."""
    chain_manager, transaction_pool, clock = (
        node.node_context.chain_manager,
        node.node_context.transaction_pool,
        node.clock,
    )
    around, peers = Around(), list[PeerRow]()
    payments = PaymentLookup.subscribed(chain_manager, transaction_pool, synced=lambda: around.synced)
    waiters = PaymentWaiters.subscribed(payments, chain_manager, transaction_pool, clock=clock)
    sources = Sources(
        chain_manager=chain_manager,
        mempool=transaction_pool.mempool,
        fees=Fees(chain_manager, transaction_pool.mempool),
        incoming=RecipientIndex.subscribed(transaction_pool),
        referenced=ReferenceIndex.subscribed(transaction_pool),
        payments=payments,
        peers=around,
        sample=lambda: peers,
        clock=clock,
        serves_peers=serves_peers,
        links=links,
        public_url=public_url,
        work_rate=work_rate,
        on_demand=on_demand,
        every=every,
    )
    routes = [
        ChainRoutes(chain_manager, transaction_pool=transaction_pool, status=node.status, clock=clock),
        CommerceRoutes(chain_manager, payments, waiters, random=bytes, webhooks_enabled=False),
        ProofRoutes(node.node_context, payments),
    ]
    public = PublicSite(COMMON, RateLimiter(Clients(), UNLIMITED | rates, clock))
    return Shown(
        node, node.sites.public(routes, public, pages=pages_resource(sources, hosts, catalogues)), around, peers
    )


@pytest.fixture
def mainnet(open_node: Callable[..., Node]) -> Shown:
    """Pages of a node on a network called mainnet."""
    return show(open_node(params=evolve(PARAMS, name="mainnet")))


@pytest.fixture
def shown(open_node: Callable[..., Node]) -> Shown:
    """Pages of a node on a new chain."""
    return show(open_node())


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Pages of a node on an empty chain, shared by tests that do not change it."""
    node = Node(tmp_path_factory.mktemp("still") / "chain.sqlite", present(), Settings())
    yield show(node)
    node.close()
