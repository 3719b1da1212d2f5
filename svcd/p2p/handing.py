"""Handing a branch to a peer that cannot call us, and so cannot ask for what it lacks (docs/peers.md "Passing on")."""

from functools import partial
from typing import Final

from svcd.chain.params import NetworkParams
from svcd.p2p.client import PeerClient
from svcd.p2p.fork import fork_height
from svcd.p2p.peer import Home
from svcd.store.chain_store import ChainReader

MAX_BLOCKS: Final = 1_024
"""Blocks that a peer is handed at a time; more with the next block that it cannot place."""
_PLACED: Final = {"connected", "side", "known"}
"""What a peer says of a block after which it can take the next."""


async def hand_in(home: Home, client: PeerClient, endpoint: str) -> int:
    """Post our blocks above the last one that we share with a peer, in order; gives how many it has taken.

    Raises svcd.p2p.caller.CallFailed, svcd.p2p.fork.MalformedBlock or svcd.p2p.fork.BlockMissing.
    """
    theirs = await client.status(endpoint)
    if theirs.work > home.ledger.tip.work:
        # We are the ones who lack something, and ask for it.
        return 0
    shared = await fork_height(home, client, endpoint, theirs.height)
    for taken in range(MAX_BLOCKS):
        wire = await home.ledger.long_reads.ask(partial(_block_at, shared + 1 + taken, home.params))
        if wire is None:
            return taken
        receipt = await client.send_block(endpoint, wire)
        if not receipt.accepted or receipt.state not in _PLACED:
            return taken
    return MAX_BLOCKS


def _block_at(height: int, params: NetworkParams, reader: ChainReader) -> bytes | None:
    """A canonical block as it is posted; None above the tip."""
    stored = reader.canonical(height)
    return None if stored is None else reader.block_header(stored, params).wire(b",".join(reader.bodies(stored)))
