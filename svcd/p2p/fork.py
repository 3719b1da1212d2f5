"""Where a peer's chain leaves ours: found with a handful of questions, however long the chains are."""

from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred

from svcd.chain.block import parse_block
from svcd.chain.errors import RuleViolation
from svcd.p2p.caller import CallFailed, Trouble
from svcd.p2p.client import PeerClient
from svcd.p2p.peer import Home

SEARCH_SECONDS: Final = 30.0
"""How long a search may take before it asks nothing more: whoever answers slowly must not hold us up for long."""
FIRST_WAIT: Final = 5.0
"""Seconds after which a question is asked again; on a bad line one lost answer in seven must not be the end of it."""


class MalformedBlock(Exception):
    """A peer showed as a block what is none; the text says why."""


class BlockMissing(Exception):
    """A peer does not show a block that its chain must have: it has changed, or never was."""


async def fork_height(home: Home, client: PeerClient, endpoint: str, height: int) -> int:
    """The height of the last block that we share with the peer at ``endpoint``, whose chain has ``height``.

    Steps back by 1, 2, 4 … until a block is shared, then halves what is left. The genesis always is.
    Raises CallFailed, MalformedBlock or BlockMissing.
    """
    search = _Search(home, client, endpoint, home.now())
    high = min(home.ledger.tip.height, height)
    step, low = 1, high
    while low > 0 and not await search.shares(low):
        high, low, step = low - 1, max(low - step, 0), step * 2
    while low < high:
        middle = (low + high + 1) // 2
        if await search.shares(middle):
            low = middle
        else:
            high = middle - 1
    return low


@frozen
class _Search:
    """One search, from a moment on in Unix seconds."""

    home: Home
    client: PeerClient
    endpoint: str
    began: float

    async def shares(self, height: int) -> bool:
        """Whether the peer has the same block at ``height`` as we."""
        ours = self.home.ledger.reader.canonical(height)
        blocks = await self._ask(height)
        if not blocks:
            raise BlockMissing(f"it does not show block {height}, which is below the tip that it claims")
        try:
            block = await self.client.parser.run(parse_block, blocks[0], self.home.params)
        except RuleViolation as violation:
            raise MalformedBlock(f"its block {height} is malformed: {violation.detail}") from violation
        return ours is not None and block.header.hash == ours.point.hash

    async def _ask(self, height: int) -> list[bytes]:
        """The peer's block, asked for again, with more patience, where no answer comes, or where it has had enough."""
        wait = FIRST_WAIT
        while (left := self.began + SEARCH_SECONDS - self.home.now()) > 0:
            try:
                return await self.client.blocks(self.endpoint, height, 1, seconds=min(wait, left))
            except CallFailed as failed:
                if failed.rest:
                    await self._pause(min(failed.rest, left))
                    continue
                if failed.trouble is not Trouble.TIMEOUT:
                    raise
            wait *= 2
        raise CallFailed(Trouble.TIMEOUT, f"the last shared block was not found within {SEARCH_SECONDS:g} s")

    async def _pause(self, seconds: float) -> None:
        over: Deferred[None] = Deferred(lambda _: call.cancel())
        call = self.home.clock.callLater(seconds, over.callback, None)
        await over
