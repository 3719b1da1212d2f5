"""What peers are asked, and who hears of the answers; whoever does not answer is demoted."""

from collections.abc import Callable
from typing import Protocol

from svcd.p2p.caller import CallFailed, Trouble
from svcd.p2p.client import PeerClient
from svcd.p2p.peer import Home, Peer, PeerSettings


class Curious(Protocol):
    """Whoever wants to know."""

    home: Home
    client: PeerClient
    settings: PeerSettings
    on_claim: Callable[[], None]
    on_transaction: Callable[[Peer, object], None]

    def demote(self, peer: Peer) -> None:
        """Called when a peer does not answer."""

    def hint(self, endpoint: str, *, source: str) -> None:
        """Called with each endpoint that a peer tells of."""


async def ask_status(peer: Peer, curious: Curious) -> None:
    """What chain a peer has, and where nobody can call us, which transfers wait there."""
    peer.asked, peer.news = curious.home.now(), False
    try:
        status = await curious.client.status(peer.endpoint)
    except CallFailed:
        curious.demote(peer)
        return
    if peer.said(status, curious.home):
        curious.on_claim()
    if not curious.settings.public:
        await _ask_transactions(peer, curious)


async def _ask_transactions(peer: Peer, curious: Curious) -> None:
    try:
        transactions, peer.pool_cursor = await curious.client.transactions(peer.endpoint, peer.pool_cursor)
    except CallFailed as failed:
        if failed.trouble is not Trouble.REFUSED:
            curious.demote(peer)
        # Else it is a node that does not know the route, and may be a good peer all the same.
        return
    for transaction in transactions:
        curious.on_transaction(peer, transaction)


async def ask_peers(peer: Peer, curious: Curious) -> None:
    """Whom a peer knows."""
    peer.asked_peers = curious.home.now()
    try:
        endpoints = await curious.client.peers(peer.endpoint)
    except CallFailed:
        curious.demote(peer)
        return
    for endpoint in endpoints:
        curious.hint(endpoint, source=peer.group())
