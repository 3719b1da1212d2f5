"""What is known of a node that we talk to, and of ourselves."""

from collections import OrderedDict
from typing import Final

from attrs import define, field, frozen

from svcd.chain.params import NetworkParams
from svcd.node.ledger import Ledger
from svcd.p2p.client import PeerStatus
from svcd.p2p.hello import Hello, NodeKey
from svcd.ports import Clock, milliseconds

_REMEMBERED: Final = 4_096


@define(eq=False)
class Peer:
    """A node that we have called and that answered with the key it claims; times are Unix seconds."""

    endpoint: str
    node_key: bytes
    node_id: str
    outbound: bool
    greeted: float
    status: PeerStatus | None = None
    asked: float = 0.0
    """When its status was last asked for."""
    claimed_since: float | None = None
    """Since when it has shown more work than we have."""
    doubted_until: float = 0.0
    """Until when its claims do not count: it could not deliver what it claimed."""
    asked_peers: float = 0.0
    pool_cursor: int = 0
    failures: int = 0
    _has: OrderedDict[bytes, None] = field(factory=OrderedDict)

    def has(self, item: bytes) -> bool:
        """Whether the peer is known to have a block or transfer."""
        return item in self._has

    def note(self, item: bytes) -> None:
        """Remember that the peer has it."""
        self._has[item] = None
        if len(self._has) > _REMEMBERED:
            self._has.popitem(last=False)


@frozen(kw_only=True)
class PeerSettings:
    """How many peers, and how diverse."""

    outbound: int
    max_inbound: int
    diverse: bool
    """Whether at most one outbound peer is chosen in each group of addresses."""
    alone: bool
    """Whether a node without any verified peer counts as synced."""
    public: bool
    """Whether others can call us; if not, we ask for waiting transfers too."""


@frozen
class Home:
    """What every part of this room needs to know of the node it belongs to."""

    params: NetworkParams
    ledger: Ledger
    key: NodeKey
    clock: Clock

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.seconds()

    def hello(self) -> Hello:
        """A fresh signed hello."""
        return self.key.hello(self.params, self.ledger.tip, milliseconds(self.clock))
