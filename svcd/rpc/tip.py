"""The tip of the chain that the public routes name in their responses (docs/http.md "The tip")."""

from svcd.chain.transition import ChainPoint
from svcd.node.chain_manager import ChainManager
from svcd.web.responses import Tip, tip_of


def tip_at(point: ChainPoint) -> Tip:
    """The tip at ``point``."""
    return tip_of(point.height, point.hash)


class ShowsChain:
    """The base of routes that show the chain."""

    _chain_manager: ChainManager

    @property
    def tip(self) -> Tip:
        """The tip that the chain manager last announced, to which mempool and status belong."""
        return tip_at(self._chain_manager.tip)
