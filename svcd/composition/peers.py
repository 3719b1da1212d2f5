"""The room of peers, put together."""

import secrets

from svcd.composition.node import Foundation
from svcd.p2p import service as p2p
from svcd.p2p.address_book import AddressBook
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peers import PeerSettings
from svcd.p2p.transport import reach
from svcd.web.clients import Clients


def network_of(base: Foundation, key: NodeKey, clients: Clients) -> p2p.Network | None:
    """The other nodes; None where peers are switched off."""
    config, living = base.config, base.living
    if not config.p2p.enabled:
        return None
    params = living.ledger.params
    dialling = reach(base.reactor, base.pools.resolver.worker, allow_private=config.p2p.allow_private)
    clients.counted = dialling.untranslated
    settings = PeerSettings(
        outbound=config.p2p.outbound,
        max_inbound=config.p2p.max_inbound,
        diverse=config.network == "mainnet",
        alone=config.participation.alone,
    )
    home = LocalNode(params, living.ledger, key, base.reactor)
    client = PeerClient(params, dialling, base.pools.verifier.worker)
    book = AddressBook(secrets.token_bytes(32), secrets.SystemRandom().random)
    return p2p.join(
        home,
        client,
        transfers=living.transfers,
        book=book,
        settings=settings,
        forwards=clients.untrusted.forwards,
    )


def notes_of(base: Foundation, network: p2p.Network | None) -> p2p.PeersService | None:
    """What is kept of them from one run to the next."""
    if network is None:
        return None
    path, files = base.config.data_dir / "peers.json", base.pools.files.worker
    return p2p.PeersService(network, path, base.config.p2p.seeds, files)
