"""The chain's state in memory, for blocks that are not stored."""

from attrs import define

from svcd.chain.params import NetworkParams
from svcd.chain.state_tree import Overlay
from svcd.chain.transition import ChainHead, ChainPoint


@define
class ChainView:
    """A copy of the chain's state in memory, for blocks that are not stored; nothing here is written to disk."""

    params: NetworkParams
    head: ChainHead
    state: Overlay
    """The accounts after ``head``."""
    base: ChainPoint
    """The tip on disk from which the view was made; once there is another one, the accounts are wrong."""
