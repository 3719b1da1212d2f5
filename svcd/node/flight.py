"""A block that is on its way into the chain."""

from attrs import define, field
from twisted.internet.defer import Deferred

from svcd.chain.transition import ChainPoint


@define(eq=False)
class Flight:
    """A block between its place in the chain and its commit: its children may be checked, and wait for it to land."""

    point: ChainPoint
    _over: bool = False
    _waiting: list[Deferred[None]] = field(factory=list)

    async def landed(self) -> None:
        """Return once it is committed, or is not going to be."""
        if not self._over:
            landed: Deferred[None] = Deferred()
            self._waiting.append(landed)
            await landed

    def land(self) -> None:
        """Let those go on who wait."""
        self._over = True
        for landed in self._waiting:
            landed.callback(None)
