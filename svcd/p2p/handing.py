"""Handing a branch to a peer that cannot call us, and so cannot ask for what it lacks (docs/peers.md "Passing on")."""

from functools import partial
from typing import Final

from twisted.logger import Logger

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.p2p.caller import CallFailed
from svcd.p2p.fork import BlockMissing, MalformedBlock, fork_height
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.store.chain_store import ChainReader

MAX_BLOCKS: Final = 1_024
"""Blocks that a peer is handed at a time; more with the next block that it cannot place."""
_PLACED: Final = {"connected", "side", "known"}
"""What a peer says of a block after which it can take the next."""


class Handing:
    """Hands branches in: to each peer one block after the other, and the next time from where it stopped."""

    log = Logger()

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._under_way: set[str] = set()
        """By endpoint, those who are being handed something."""
        self._reached: dict[str, ChainPoint] = {}
        """By endpoint, the last block that a peer has placed: maybe beside its chain, where nobody can ask for it."""

    async def hand_in(self, peer: Peer) -> None:
        """Post our blocks that ``peer`` lacks, in order, as far as it takes them; nothing if that is under way."""
        if peer.endpoint in self._under_way:
            return
        self._under_way.add(peer.endpoint)
        self._reached = {endpoint: point for endpoint, point in self._reached.items() if self._peers.get(endpoint)}
        try:
            taken = await self._hand_in(peer)
            self.log.debug("{endpoint} took {taken} blocks that it lacked", endpoint=peer.endpoint, taken=taken)
        except (CallFailed, MalformedBlock, BlockMissing) as failed:
            self.log.debug("{endpoint} takes no more blocks: {why}", endpoint=peer.endpoint, why=str(failed))
        finally:
            self._under_way.discard(peer.endpoint)

    async def _hand_in(self, peer: Peer) -> int:
        """Gives how many blocks the peer has taken; raises CallFailed, MalformedBlock or BlockMissing."""
        home, client = self._peers.home, self._peers.client
        theirs = await client.status(peer.endpoint)
        if theirs.work > home.ledger.tip.work:
            # We are the ones who lack something, and ask for it.
            return 0
        shared = await fork_height(home, client, peer.endpoint, theirs.height)
        first = max(shared, self._height_reached(peer)) + 1
        for taken in range(MAX_BLOCKS):
            found = await home.ledger.long_reads.ask(partial(_block_at, first + taken, home.params))
            if found is None or self._peers.get(peer.endpoint) is not peer:
                return taken
            point, wire = found
            receipt = await client.send_block(peer.endpoint, wire)
            if not receipt.accepted or receipt.state not in _PLACED:
                # It may have lost what it once had; then the next time begins with the last block that is shared.
                self._reached.pop(peer.endpoint, None)
                return taken
            self._reached[peer.endpoint] = point
        return MAX_BLOCKS

    def _height_reached(self, peer: Peer) -> int:
        """The height of our last block that the peer has placed, as far as that is on our chain still; else 0."""
        point = self._reached.get(peer.endpoint)
        ours = None if point is None else self._peers.home.ledger.reader.canonical(point.height)
        return ours.point.height if ours is not None and ours.point == point else 0


def _block_at(height: int, params: NetworkParams, reader: ChainReader) -> tuple[ChainPoint, bytes] | None:
    """A canonical block as it is posted; None above the tip."""
    stored = reader.canonical(height)
    if stored is None:
        return None
    return stored.point, reader.block_header(stored, params).wire(b",".join(reader.bodies(stored)))
