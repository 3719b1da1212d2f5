"""The pages, put together."""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.web.resource import Resource

from svcd.commerce.looking import Payments
from svcd.composition.node import Foundation
from svcd.config.schema import LOOPBACK_HOSTS, Config
from svcd.net.endpoint import Endpoint
from svcd.node.status import Peers
from svcd.p2p.service import Network
from svcd.pages.resource import Hosts
from svcd.pages.service import pages
from svcd.pages.sources import PeerLine, Sources
from svcd.web.api import Ports

SAMPLED: Final = 100


def pages_of(
    base: Foundation, payments: Payments, *, peers: Peers, network: Network | None
) -> Callable[[Ports], Resource]:
    """The pages on an open chain."""
    living, config = base.living, base.config
    sources = Sources(
        ledger=living.ledger,
        mempool=living.transfers.mempool,
        payments=payments,
        peers=peers,
        sample=lambda: [] if network is None else _sample(network),
        clock=base.reactor,
        serves_peers=network is not None and not config.p2p.listen,
    )
    return pages(sources, page_hosts(config))


def _sample(network: Network) -> Sequence[PeerLine]:
    return [
        PeerLine(entry.node_id, entry.endpoint, entry.height, int(entry.last_seen * 1000))
        for entry in network.peers.book.sample(SAMPLED)
    ]


def page_hosts(config: Config) -> Hosts:
    """Under what names pages may be asked: as set; else those of the loopback and the public URL, and IP addresses."""
    public = [Endpoint(config.http.public_url).host] if config.http.public_url else []
    names = config.http.allowed_hosts or (*LOOPBACK_HOSTS, *public)
    return Hosts(
        frozenset(f"[{name}]" if ":" in name else name for name in names), addresses=not config.http.allowed_hosts
    )
