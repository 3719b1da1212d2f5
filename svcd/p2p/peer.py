"""A peer, and this node's record of it: the chain that it claims, and what it did not answer, prove or take in time."""

from functools import partial
from typing import Final

from attrs import define, field

from svcd.bounded_dict import BoundedDict
from svcd.interfaces import Clock
from svcd.net.targets import Endpoint
from svcd.p2p.address_book import group_of, group_of_endpoint
from svcd.p2p.bans import address_name
from svcd.p2p.client import PeerStatus

LAG_SECONDS: Final = 20.0
"""How long a peer shows the same tip with less work than there is here until it counts as lagging."""
_REMEMBERED: Final = 4_096
"""How many blocks and transfers of a peer are remembered."""


@define
class Backoff:
    """A pause after failures, twice as long after each further failure in a row."""

    _clock: Clock
    until: float = 0.0
    """When the last pause ends, or ended (the clock's seconds)."""
    failures: int = 0

    @property
    def seconds_left(self) -> float:
        """How long the pause still lasts; 0.0 if there is none."""
        return max(self.until - self._clock.seconds(), 0.0)

    def pause(self, seconds: float) -> None:
        """Pause for so long from now on; this is no failure."""
        self.until = self._clock.seconds() + seconds

    def fail(self, *, first: float, longest: float) -> None:
        """Pause for ``first`` seconds after the first failure, and for ``longest`` at most."""
        self.pause(min(first * 2 ** min(self.failures, 32), longest))
        self.failures += 1


@define(eq=False)
class Peer:
    """A node that answered our call with the key that it claims; times are the node's seconds.

    It has its own record of what it did not answer, prove or take in time. The download of a chain notes what the peer
    lacks of that chain, and how fast it delivers; the download of a snapshot notes its pauses, its false chunks, and
    whether it delivers any, and the start from a snapshot a chain without the expected block; the address book notes
    how calls to its endpoint end.
    """

    _clock: Clock
    endpoint: Endpoint
    node_key: bytes
    node_id: str
    outbound: bool
    """Whether this node has chosen it; an inbound peer called first."""
    handshake_at: float
    status: PeerStatus | None = None
    """The chain that it claims."""
    polled_at: float = 0.0
    """When its status was last requested."""
    polling: bool = False
    """Whether the last poll is still under way."""
    has_news: bool = False
    """Whether there has been a reason since to poll it again at once."""
    disputed: str = ""
    """Why its chain was refused last, if that was for the producer of a block; "" if it was not."""
    proven_work: int = 0
    """The greatest cumulative work that its headers have proven."""
    checked_tip: bytes = b""
    """The hash of the last claimed tip that was checked."""
    delivered: bool = False
    """Whether it has sent blocks, or proved a chain whose blocks were then fetched, since its last unproven claim."""
    lags_since: float | None = None
    """Since when it has shown the same tip with less work than there is here."""
    gossiped_at: float = 0.0
    """When it was last asked for endpoints."""
    mempool_cursor: int = 0
    failures: int = 0
    """Requests in a row that it has not answered."""
    last_seen: float = 0.0
    """When it last answered."""
    address: str = ""
    """The IP address at which it answered the handshake; "" if unknown."""
    _paused_until: float = 0.0
    _claims: Backoff = field(init=False)
    """Until when its claims are not checked, and how many in a row it did not prove."""
    _known: BoundedDict[bytes, None] = field(factory=partial(BoundedDict, _REMEMBERED))

    @_claims.default
    def _no_claim_yet(self) -> Backoff:
        return Backoff(self._clock)

    @property
    def changes_hash(self) -> bytes:
        """The hash of the changes of producers that it has; b"" if it has told none."""
        return b"" if self.status is None else self.status.changes_hash

    def group(self) -> str:
        """Its network group: that of its address, not of the name that leads there."""
        return group_of(self.address) if self.address else group_of_endpoint(self.endpoint)

    def is_at(self, address: str) -> bool:
        """Whether it is at an address, or at one of the same /64."""
        return bool(self.address) and address_name(self.address) == address_name(address)

    def may_be_at(self, client: str | None) -> bool:
        """Whether a request from the address of ``client`` may be this peer's; None is an exempt client."""
        return client is None or not self.address or self.is_at(client)

    def take_status(self, status: PeerStatus, work: int, now: float) -> None:
        """Take the chain that it claims; ``work`` is that of the chain here."""
        grew = self.status is None or status.work > self.status.work
        since = now if grew or self.lags_since is None else self.lags_since
        self.lags_since = since if status.work < work else None
        self.status, self.failures, self.last_seen = status, 0, now
        self.mark_known(status.hash)

    @property
    def is_paused(self) -> bool:
        """Whether it is asked nothing at present."""
        return self._paused_until > self._clock.seconds()

    def pause(self, seconds: float) -> None:
        """Ask it nothing for so long: it has answered 429 or 503."""
        self._paused_until = self._clock.seconds() + seconds

    @property
    def claims_are_paused(self) -> bool:
        """Whether its claims are not checked at present."""
        return self._claims.seconds_left > 0

    @property
    def unproven_claims(self) -> int:
        """How many claims in a row it did not prove."""
        return self._claims.failures

    def pause_claims(self, seconds: float) -> None:
        """Check no claim of it for so long, through no fault of it."""
        self._claims.pause(seconds)

    def reject_claim(self, *, first: float, longest: float) -> None:
        """Check no claim of it for ``first`` seconds, twice as long each time in a row, and for ``longest`` at most."""
        self._claims.fail(first=first, longest=longest)
        self.delivered = False

    def accept_claim(self, work: int) -> None:
        """Keep the cumulative work that its headers have proven, and forget its unproven claims."""
        self.proven_work = max(self.proven_work, work)
        self._claims.failures, self.disputed = 0, ""

    def forget_claims(self) -> None:
        """Check its claims again: it has the same changes of producers as this node now, and had others before."""
        self._claims, self.disputed = Backoff(self._clock), ""

    def credit_delivery(self) -> None:
        """It has sent blocks which were requested from it."""
        self.failures, self.delivered = 0, True

    @property
    def lags(self) -> bool:
        """Whether its chain has less work and has not grown for long enough that a new block should have reached it."""
        return self.lags_since is not None and self.last_seen - self.lags_since >= LAG_SECONDS

    @property
    def may_have_restarted(self) -> bool:
        """Whether it began to lag after the last handshake: it may have forgotten this node, and hear of no block."""
        return self.lags and self.lags_since is not None and self.lags_since > self.handshake_at

    def knows(self, item: bytes) -> bool:
        """Whether the peer is known to have a block or transfer."""
        return item in self._known

    def mark_known(self, item: bytes) -> None:
        """Remember that the peer has a block or transfer, by its hash."""
        self._known[item] = None
