"""Where a peer's chain leaves ours: found with a handful of questions, however long the chains are."""

from svcd.chain.block import parse_block
from svcd.chain.errors import RuleViolation
from svcd.p2p.client import PeerClient
from svcd.p2p.peer import Home


class MalformedBlock(Exception):
    """A peer showed as a block what is none; the text says why."""


async def fork_height(home: Home, client: PeerClient, endpoint: str, height: int) -> int:
    """The height of the last block that we share with the peer at ``endpoint``, whose chain has ``height``.

    Steps back by 1, 2, 4 … until a block is shared, then halves what is left. The genesis always is. Raises CallFailed
    or MalformedBlock.
    """
    high = min(home.ledger.tip.height, height)
    step, low = 1, high
    while low > 0 and not await _shares(home, client, endpoint, low):
        high, low, step = low - 1, max(low - step, 0), step * 2
    while low < high:
        middle = (low + high + 1) // 2
        if await _shares(home, client, endpoint, middle):
            low = middle
        else:
            high = middle - 1
    return low


async def _shares(home: Home, client: PeerClient, endpoint: str, height: int) -> bool:
    ours = home.ledger.reader.canonical(height)
    blocks = await client.blocks(endpoint, height, 1)
    if not blocks:
        return False
    try:
        block = await client.parser.run(parse_block, blocks[0], home.params)
    except RuleViolation as violation:
        raise MalformedBlock(f"its block {height} is malformed: {violation.detail}") from violation
    return ours is not None and block.header.hash == ours.point.hash
