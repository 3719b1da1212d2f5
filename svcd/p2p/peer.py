"""What is known of a node that we talk to, and of ourselves."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from attrs import define, field, frozen

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node.ledger import Ledger
from svcd.node.status import Neighbourhood
from svcd.p2p.bans import address_name
from svcd.p2p.book import group_of, group_of_endpoint
from svcd.p2p.client import PeerStatus
from svcd.p2p.hello import Hello, NodeKey
from svcd.ports import Clock, milliseconds

RENEW_SECONDS: Final = 300.0
STATUS_FLOOR_SECONDS: Final = 5.0
ACQUAINTANCE_SECONDS: Final = 60.0
ASK_AGAIN_SECONDS: Final = 1.0
GOSSIP_SECONDS: Final = 600.0
HUNGRY_SECONDS: Final = 60.0
"""The same while places of our choice are empty."""
_REMEMBERED: Final = 4_096
LAG_SECONDS: Final = 20.0
"""How long a peer shows the same, less work than we have, until it counts as one that cannot get at our blocks."""
CLAIM_SECONDS: Final = 60.0
"""How long a mere claim of more work holds the node back."""
FIRST_DOUBT: Final = 60.0
LONGEST_DOUBT: Final = 3_600.0


@define(eq=False)
class Peer:
    """A node that we have called and that answered with the key it claims; times are Unix seconds."""

    endpoint: str
    node_key: bytes
    node_id: str
    outbound: bool
    greeted: float
    status: PeerStatus | None = None
    rival: bool = False
    """Whether its tip has as much work as ours and is not known here: the rule for ties has to choose."""
    asked: float = 0.0
    """When its status was last asked for."""
    news: bool = False
    """Whether something has come since then that makes asking again worth while."""
    claimed_since: float | None = None
    """Since when it has shown more work than we have, or when it last delivered some of it."""
    lags_since: float | None = None
    """Since when it has shown less work than we have, and always the same."""
    doubted_until: float = 0.0
    """Until when its claims do not count: it could not deliver what it claimed."""
    doubts: int = 0
    """How often that has happened since it last delivered."""
    kept: bool = False
    """Whether it has delivered new blocks since it was last doubted."""
    asked_peers: float = 0.0
    pool_cursor: int = 0
    failures: int = 0
    """How many questions in a row it has not answered."""
    seen: float = 0.0
    """When it last answered."""
    address: str = ""
    """The IP address at which it was greeted; "" where nobody has told."""
    _has: OrderedDict[bytes, None] = field(factory=OrderedDict)

    def group(self) -> str:
        """The part of the network that it is in: that of its address, not of the name that leads there."""
        return group_of(self.address) if self.address else group_of_endpoint(self.endpoint)

    def is_at(self, address: str) -> bool:
        """Whether it is at an address, or at one of the same /64."""
        return bool(self.address) and address_name(self.address) == address_name(address)

    def status_is_due(self, now: float, slot_seconds: int) -> bool:
        """Whether to ask for its chain: of those of our choice once a slot, of acquaintances now and then.

        A slot counts as none where nobody can call us, so that asking is the only way to hear of anything.
        """
        often = max(float(slot_seconds), STATUS_FLOOR_SECONDS) if self.outbound else ACQUAINTANCE_SECONDS
        return self.asked + (ASK_AGAIN_SECONDS if self.news else often) <= now

    def hello_is_due(self, now: float) -> bool:
        """Whether to greet it again."""
        return self.greeted + RENEW_SECONDS <= now

    def gossip_is_due(self, now: float, *, hungry: bool) -> bool:
        """Whether to ask whom it knows; ``hungry``: we talk to fewer than we would choose."""
        return self.asked_peers + (HUNGRY_SECONDS if hungry else GOSSIP_SECONDS) <= now

    def said(self, status: PeerStatus, home: "Home") -> bool:
        """Note what it claims; whether that is to be followed."""
        work, grew = home.ledger.tip.work, self.status is None or status.work > self.status.work
        since = home.now() if grew or self.lags_since is None else self.lags_since
        self.lags_since = since if status.work < work else None
        self.status, self.failures, self.seen = status, 0, home.now()
        self.note(status.hash)
        self.rival = status.work == work and home.ledger.reader.point(status.hash) is None
        self.claimed_since = (self.claimed_since or home.now()) if status.work > work else None
        return self.rival or status.work > work

    @property
    def lags(self) -> bool:
        """Whether it has less than we and gets no further, though a new block has had time to reach it."""
        return self.lags_since is not None and self.seen - self.lags_since >= LAG_SECONDS

    def is_ahead(self, *, work: int, now: float) -> bool:
        """Whether its chain is to be followed: it shows more than our ``work``, or a rival, and is not doubted."""
        if self.status is None or self.doubted_until > now:
            return False
        return self.status.work > work or (self.rival and self.status.work == work)

    def is_pressing(self, now: float) -> bool:
        """Whether its claim is so new, or so well kept, that it must be followed before anything is built here."""
        return self.claimed_since is not None and now - self.claimed_since < CLAIM_SECONDS

    def delivered(self, now: float, *, gained: bool) -> None:
        """It sent new blocks, so that its claim is more than words; ``gained``: they brought us more work."""
        self.kept = True
        if gained:
            self.doubts = 0
        if self.claimed_since is not None:
            self.claimed_since = now

    def doubt(self, now: float) -> None:
        """It could not deliver what it claimed: its claims do not count for a while, longer each time."""
        self.doubted_until = now + min(FIRST_DOUBT * 2**self.doubts, LONGEST_DOUBT)
        self.doubts, self.kept = min(self.doubts + 1, 32), False

    def has(self, item: bytes) -> bool:
        """Whether the peer is known to have a block or transfer."""
        return item in self._has

    def note(self, item: bytes) -> None:
        """Remember that the peer has it."""
        self._has[item] = None
        if len(self._has) > _REMEMBERED:
            self._has.popitem(last=False)


class Doubts:
    """What is held against peers that did not deliver, and against the parts of the network that they are in.

    One that is gone must not come back as if nothing had been. And endpoints cost nothing: whoever has many in one
    part of the network must not get a minute of our time for each of them (docs/peers.md "Catching up").
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self._parts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, peer: Peer, now: float) -> None:
        """It could not deliver what it claimed."""
        peer.doubt(now)
        _, doubts = self._parts.pop(peer.group(), (0.0, 0))
        self._parts[peer.group()] = (now + min(FIRST_DOUBT * 2**doubts, LONGEST_DOUBT), min(doubts + 1, 32))
        if len(self._parts) > _REMEMBERED:
            self._parts.popitem(last=False)

    def lift(self, peer: Peer) -> None:
        """It has delivered: nothing is held against its part of the network any more."""
        self._parts.pop(peer.group(), None)

    def holds_against(self, peer: Peer, now: float) -> bool:
        """Whether others in its part of the network have not delivered lately, and it has not delivered either."""
        until, _ = self._parts.get(peer.group(), (0.0, 0))
        return until > now and not peer.kept

    def keep(self, peer: Peer) -> None:
        """Remember it of a peer that is being dropped."""
        if peer.doubts:
            self._of[peer.endpoint] = (peer.doubted_until, peer.doubts)
        if len(self._of) > _REMEMBERED:
            self._of.popitem(last=False)

    def bring_back(self, peer: Peer) -> None:
        """Hold it against a peer that has come back."""
        peer.doubted_until, peer.doubts = self._of.pop(peer.endpoint, (0.0, 0))


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


def neighbourhood(
    peers: list[Peer], *, tip: ChainPoint, now: float, trouble: str, suspects: Collection[Peer]
) -> Neighbourhood:
    """What ``peers`` show, against our own ``tip``; ``trouble`` is what is wrong anyway, or "".

    The claims of ``suspects`` are followed, but hold nothing up.
    """
    ahead = [peer for peer in peers if peer.is_ahead(work=tip.work, now=now) and not peer.rival]
    pressing = [peer for peer in ahead if peer.is_pressing(now) and peer not in suspects]
    # A claim that nobody has made good counts for nothing once it has had its time.
    believed = [peer.status.height for peer in pressing if peer.status]
    # Of a chain with no more work than ours the height above our tip says nothing, and costs nothing to make up.
    beside = [peer for peer in peers if peer not in ahead and peer.doubted_until <= now]
    believed += [min(peer.status.height, tip.height) for peer in beside if peer.status]
    best = max(believed, default=0)
    behind = f"a verified peer shows more work than the chain here: {pressing[0].endpoint}" if pressing else ""
    heights = sorted((peer.status.height if peer.status else 0 for peer in peers if peer.outbound), reverse=True)
    usual = heights[len(heights) // 2] if heights else 0
    return Neighbourhood(len(peers), best, trouble or behind, usual)
