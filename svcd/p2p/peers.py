"""The peers of this node: which to talk to, handshakes by our own call, polling (docs/peers.md "Who is talked to")."""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Final

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_transfer
from svcd.net.endpoint import Endpoint
from svcd.net.targets import BadTarget
from svcd.node.recent import Recent
from svcd.node.status import LONELY, Neighbourhood
from svcd.node.transfers import Transfers
from svcd.p2p.address_book import AddressBook, choose, group_of, group_of_endpoint, is_welcome, pick_to_try
from svcd.p2p.bans import Bans, address_name, key_name
from svcd.p2p.client import PeerClient, PeerStatus
from svcd.p2p.handshake import HandshakeFailed, HandshakeResult, Handshakes, Hello, LocalNode
from svcd.p2p.transport import CallFailed, Trouble

RENEW_SECONDS: Final = 300.0
STATUS_FLOOR_SECONDS: Final = 5.0
INBOUND_STATUS_SECONDS: Final = 60.0
ASK_AGAIN_SECONDS: Final = 1.0
GOSSIP_SECONDS: Final = 600.0
HUNGRY_SECONDS: Final = 60.0
"""The same while places of our choice are empty."""
_REMEMBERED: Final = 4_096
LAG_SECONDS: Final = 20.0
"""How long a peer shows the same, less work than we have, until it counts as one that cannot get at our blocks."""
FIRST_DOUBT: Final = 60.0
LONGEST_DOUBT: Final = 3_600.0


@define(eq=False)
class Peer:
    """A node that this node has called and that answered with the key it claims; times are Unix seconds."""

    endpoint: Endpoint
    node_key: bytes
    node_id: str
    outbound: bool
    greeted: float
    called_back: float = 0.0
    """When it was last called because it asked to be."""
    status: PeerStatus | None = None
    """The chain that it claims."""
    asked: float = 0.0
    """When its status was last asked for."""
    news: bool = False
    """Whether something has come since then that makes asking again worth while."""
    rests_until: float = 0.0
    """Until when it has had enough of our questions: it answered 429 or 503."""
    serves_headers: bool | None = None
    """Whether it answers questions for headers; None while unknown."""
    look_after: float = 0.0
    """Until when its claims are not looked into."""
    doubts: int = 0
    """How many claims in a row it did not make good."""
    settled: bytes = b""
    """The hash of the last tip that it claimed and that was looked into."""
    delivered: bool = False
    """Whether it has sent blocks since it last failed to make a claim good."""
    lags_since: float | None = None
    """Since when it has shown less work than there is here, and always the same."""
    asked_peers: float = 0.0
    pool_cursor: int = 0
    failures: int = 0
    """How many questions in a row it has not answered."""
    seen: float = 0.0
    """When it last answered."""
    address: str = ""
    """The IP address at which it was greeted; "" if unknown."""
    announces: bool | None = None
    """Whether it takes announcements of blocks by header; None while unknown."""
    _has: Recent[bytes, None] = field(factory=partial(Recent, _REMEMBERED))

    def group(self) -> str:
        """The part of the network that it is in: that of its address, not of the name that leads there."""
        return group_of(self.address) if self.address else group_of_endpoint(self.endpoint)

    def is_at(self, address: str) -> bool:
        """Whether it is at an address, or at one of the same /64."""
        return bool(self.address) and address_name(self.address) == address_name(address)

    def status_is_due(self, now: float, slot_seconds: int) -> bool:
        """Whether to poll its chain: of an outbound peer once a slot, of an inbound one once a minute.

        A slot counts as none where this node cannot be called, so that polling is the only way to hear of anything.
        """
        often = max(float(slot_seconds), STATUS_FLOOR_SECONDS) if self.outbound else INBOUND_STATUS_SECONDS
        return max(self.asked + (ASK_AGAIN_SECONDS if self.news else often), self.rests_until) <= now

    def hello_is_due(self, now: float) -> bool:
        """Whether to renew the handshake."""
        return max(self.greeted + RENEW_SECONDS, self.rests_until) <= now

    def gossip_is_due(self, now: float, *, hungry: bool) -> bool:
        """Whether to ask for the nodes that it knows; ``hungry``: outbound peers are missing."""
        return max(self.asked_peers + (HUNGRY_SECONDS if hungry else GOSSIP_SECONDS), self.rests_until) <= now

    def note_status(self, status: PeerStatus, work: int, now: float) -> None:
        """Note the chain that it claims; ``work`` is that of the chain here."""
        grew = self.status is None or status.work > self.status.work
        since = now if grew or self.lags_since is None else self.lags_since
        self.lags_since = since if status.work < work else None
        self.status, self.failures, self.seen = status, 0, now
        self.note(status.hash)

    @property
    def lags(self) -> bool:
        """Whether it has less work and gets no further, though a new block has had time to reach it."""
        return self.lags_since is not None and self.seen - self.lags_since >= LAG_SECONDS

    def doubt(self, now: float, *, first: float = FIRST_DOUBT, longest: float = LONGEST_DOUBT) -> None:
        """It did not make a claim good: look into no claim of it for ``first`` seconds, twice as long each time."""
        self.look_after = now + min(first * 2**self.doubts, longest)
        self.doubts, self.delivered = min(self.doubts + 1, 32), False

    def has(self, item: bytes) -> bool:
        """Whether the peer is known to have a block or transfer."""
        return item in self._has

    def note(self, item: bytes) -> None:
        """Remember that the peer has it."""
        self._has[item] = None


@frozen(kw_only=True)
class PeerSettings:
    """How many peers, and how diverse."""

    outbound: int
    max_inbound: int
    diverse: bool
    """Whether at most one outbound peer is chosen in each group of addresses."""
    alone: bool
    """Whether a node without any verified peer counts as synced."""


class PolledTransfers:
    """Submits the waiting transfers that were polled from peers, because no peer can call this node."""

    log = Logger()

    def __init__(self, params: NetworkParams, transfers: Transfers) -> None:
        self._params = params
        self._transfers = transfers

    def take(self, peer: Peer, value: object) -> None:
        """Hand in one; what is refused is no fault of the peer's that a price would mend: pools differ."""
        try:
            transfer = parse_transfer(value, self._params)
        except RuleViolation as violation:
            self.log.debug("{endpoint} showed a bad transfer: {why}", endpoint=peer.endpoint, why=violation.detail)
            return
        peer.note(transfer.txid)
        submitted: Deferred[object] = self._transfers.submit(transfer)  # type: ignore[assignment]
        submitted.addErrback(self._refused, peer)

    def _refused(self, failure: Failure, peer: Peer) -> None:
        failure.trap(RuleViolation)  # type: ignore[no-untyped-call]
        self.log.debug("a transfer of {endpoint} is not taken: {why}", endpoint=peer.endpoint, why=str(failure.value))


ALARM_SECONDS: Final = 3_600.0
FEELER_SECONDS: Final = 120.0
CALL_BACK_SECONDS: Final = 60.0
CALLED_SECONDS: Final = 900.0
"""How long a call by another node shows that this one can be reached: three renewals of a handshake."""
UNREACHABLE_SECONDS: Final = 600.0
"""How long a node with peers and an endpoint may go without a call until its operator is told."""
ASK_FOR_CALL_SECONDS: Final = 240.0
"""How long a node waits for a call until it asks the next peer that it greets to call back."""
MAX_FAILURES: Final = 3
_CALL_BACKS_AT_ONCE: Final = 4
"""Fewer, so that strangers who keep us waiting leave room for peers of our own choice."""


def promote(peers: Iterable[Peer], count: int, groups: set[str] | None) -> None:
    """Make at most ``count`` acquaintances peers of our choice: for when nobody else is left to choose from.

    While others are known, who called us must not fill the places of those whom we would call (docs/threats.md).
    """
    for peer in peers:
        if count > 0 and not peer.outbound and is_welcome(peer.group(), groups):
            peer.outbound = True
            count -= 1


def _never(_: bytes) -> bool:
    return False


def _nothing(*_: object) -> None:
    """Nobody has asked to be told."""


class Peers:
    """The nodes that we talk to: those of our own choice, and acquaintances that called us first."""

    log = Logger()

    def __init__(
        self, home: LocalNode, client: PeerClient, *, book: AddressBook, bans: Bans, settings: PeerSettings
    ) -> None:
        self.home = home
        self.client = client
        self.book = book
        self.bans = bans
        self.settings = settings
        self.met = False
        """Whether any peer has been verified since the start."""
        self._alarm = (0.0, "")
        """Until when (Unix seconds) something is wrong, and what."""
        self.on_status: Callable[[], None] = _nothing
        """Called when a peer has shown its chain."""
        self.behind: Callable[[], str] = str
        """Tells why the tip may not be the network's; "" if nothing speaks against it."""
        self.is_coming: Callable[[bytes], bool] = _never
        """Tells whether a new block, by its hash, is being fetched or sent already."""
        self.best_height: Callable[[], int] = int
        """Tells the height of a chain that is proven to have more work; 0 if there is none."""
        self.on_met: Callable[[Peer], None] = _nothing
        """Called with each new peer."""
        self.on_transaction: Callable[[Peer, object], None] = _nothing
        """Called with each waiting transfer that a peer told us of."""
        self.first: list[Endpoint] = []
        """Endpoints to be called before any other: the anchors of the last run, and the operator's seeds."""
        self._peers: dict[str, Peer] = {}
        self._greetings = Handshakes(home, client, bans)
        self._last_feeler = home.now()
        self._called: float | None = None
        """When another node last called this one (Unix seconds)."""
        self._in_touch_since: float | None = None
        """Since when (Unix seconds) there has always been a peer; None if there is none."""

    @property
    def alarm(self) -> str:
        """Why blocks must not be made at present; "" if nothing is wrong. It ends an hour after its last cause."""
        until, why = self._alarm
        return why if self.home.now() < until else ""

    @property
    def reachable(self) -> bool:
        """Whether other nodes can call this one: it names an endpoint, and one has called it lately."""
        called = self._called
        return bool(self.home.key.endpoint) and called is not None and self.home.now() - called < CALLED_SECONDS

    def unreachable(self) -> str:
        """What the operator must know if no node reaches the endpoint that this one names; "" if nothing is wrong."""
        endpoint, now = self.home.key.endpoint, self.home.now()
        # Without a peer there is no node that could call: the time of an outage does not count.
        since = max(self._in_touch_since or now, self._called or 0.0)
        if not endpoint or now - since < UNREACHABLE_SECONDS:
            return ""
        return (
            f"no node has called {endpoint} for {(now - since) // 60:.0f} minutes: check that [http] publicUrl "
            "leads here from outside (port, proxy, certificate), or leave it empty"
        )

    def all(self) -> list[Peer]:
        """Every verified peer."""
        return list(self._peers.values())

    def get(self, endpoint: str) -> Peer | None:
        """A verified peer by its endpoint."""
        return self._peers.get(endpoint)

    def outbound(self) -> list[Peer]:
        """The peers of our own choice."""
        return [peer for peer in self._peers.values() if peer.outbound]

    def part_of(self, peer: Peer) -> str:
        """The name under which a peer's record is kept: its part of the network, or its endpoint.

        Endpoints cost nothing: where peers are to be diverse, those in one part of the network share a record.
        """
        return peer.group() if self.settings.diverse else peer.endpoint

    def is_banned(self, node_key: bytes) -> bool:
        """Whether the node with this key is banned."""
        return self.bans.is_banned(key_name(node_key), self.home.now())

    def neighbourhood(self) -> Neighbourhood:
        """The present state, for the status.

        A peer's word about more work counts for nothing here; what its headers prove is told by :attr:`behind`.
        """
        lonely = not self.met and not self.settings.alone
        behind = self.alarm or (LONELY if lonely else self.behind())
        tip = self.home.ledger.tip
        shown = [peer.status.height for peer in self.all() if peer.status]
        best = max([self.best_height(), *(min(height, tip.height) for height in shown)])
        heights = sorted((peer.status.height if peer.status else 0 for peer in self.outbound()), reverse=True)
        usual = heights[len(heights) // 2] if heights else 0
        return Neighbourhood(len(self.all()), best, behind, usual, self.unreachable())

    def beat(self) -> None:
        """Do what is due by now; to be called once a second."""
        now = self.home.now()
        self._in_touch_since = (self._in_touch_since or now) if self._peers else None
        self._choose(now)
        hungry = len(self.outbound()) < self.settings.outbound
        for peer in self.all():
            if peer.status_is_due(now, self.home.params.slot_seconds if self.reachable else 0):
                self._begin(self.ask_status(peer))
            if peer.hello_is_due(now):
                self._begin(self.greet(peer.endpoint, outbound=peer.outbound))
            if peer.gossip_is_due(now, hungry=hungry):
                self._begin(self._ask_peers(peer))

    def called_by(self, hello: Hello, client: str, *, call_back: bool = False) -> None:
        """Another node has greeted this one: its endpoint is a hint, and counts once this node has called it.

        With ``call_back`` it wants to be called even if it is known here, to learn whether it can be.
        """
        endpoint, now = hello.place, self.home.now()
        self._called = now
        if endpoint is None or self.book.is_ours(endpoint, now):
            return
        known = self._peers.get(endpoint)
        if known is not None and known.node_key == hello.node_key:
            if call_back and now - known.called_back >= CALL_BACK_SECONDS:
                known.called_back = now
                self._call_back(endpoint, outbound=known.outbound)
            return
        self.book.hint(endpoint, source=group_of(client), now=now)
        entry = self.book.get(endpoint)
        # Not one that was called a moment ago: others must not be able to make us call it as often as they like.
        due = entry is not None and entry.next_try <= now and now - entry.last_seen >= CALL_BACK_SECONDS
        if due and (call_back or self._has_room()):
            self._call_back(endpoint, outbound=False)

    def _call_back(self, endpoint: Endpoint, *, outbound: bool) -> None:
        if len(self._greetings) < _CALL_BACKS_AT_ONCE:
            self._begin(self.greet(endpoint, outbound=outbound))

    def _has_room(self) -> bool:
        return sum(not peer.outbound for peer in self._peers.values()) < self.settings.max_inbound

    async def greet(self, endpoint: Endpoint, *, outbound: bool, keep: bool = True) -> Peer | None:
        """Call an endpoint and exchange hellos; gives the peer if its key answered and named this very endpoint."""
        try:
            return await self.meet(endpoint, outbound=outbound, keep=keep)
        except HandshakeFailed:
            return None

    async def meet(self, endpoint: Endpoint, *, outbound: bool, keep: bool = True) -> Peer | None:
        """Greet an endpoint; None where whoever answered is not kept. Raises HandshakeFailed with the reason."""
        if not self._greetings.may_begin(endpoint):
            raise HandshakeFailed("it or eight others are being greeted at present")
        try:
            greeted = await self._greetings.exchange(endpoint, call_back=self._misses_calls())
        except HandshakeFailed as why:
            self._not_greeted(endpoint, why)
            raise
        peer = self._greeted(endpoint, greeted, outbound=outbound, keep=keep)
        if endpoint not in self._peers:
            self.client.caller.forget(endpoint)
        return peer

    def _misses_calls(self) -> bool:
        """Whether no node has called for so long that one should be asked to."""
        called, now = self._called, self.home.now()
        return bool(self.home.key.endpoint) and (called is None or now - called >= ASK_FOR_CALL_SECONDS)

    def _not_greeted(self, endpoint: Endpoint, why: HandshakeFailed) -> None:
        if why.is_ours:
            self.book.is_mine(endpoint, self.home.now())
            self.client.caller.forget(endpoint)
            return
        if why.elsewhere:
            self.hint(why.elsewhere, source=group_of_endpoint(endpoint))
        peer = self._peers.get(endpoint)
        if peer is not None and (why.is_lost or why.rest) and self.home.now() - peer.greeted < 2 * RENEW_SECONDS:
            self._not_answered(peer, why.rest)
            return
        self._failed(endpoint, rest=why.rest)

    def _greeted(self, endpoint: Endpoint, greeted: HandshakeResult, *, outbound: bool, keep: bool) -> Peer | None:
        now, hello = self.home.now(), greeted.hello
        group = group_of(greeted.address) if greeted.address else group_of_endpoint(endpoint)
        self.book.succeeded(endpoint, node_id=hello.node_id, height=hello.height, now=now, group=group)
        for other in self.all():
            if other.node_key == hello.node_key and other.endpoint != endpoint:
                self.drop(other)
        peer = self._peers.get(endpoint)
        # Only now is it known where a name leads: whoever has many names must not get many places.
        chosen = outbound and not self._is_crowded(group, beside=endpoint)
        if not keep or (peer is None and not chosen and not self._has_room()):
            return None
        if peer is None or peer.node_key != hello.node_key:
            peer = Peer(endpoint, hello.node_key, hello.node_id, chosen, now)
            self._peers[endpoint] = peer
            self.log.info("met {node_id} at {endpoint}", node_id=hello.node_id, endpoint=endpoint)
            self._begin(self.ask_status(peer))
            self._begin(self._ask_peers(peer))
            self.on_met(peer)
        peer.outbound = peer.outbound and chosen
        peer.address, peer.greeted, peer.seen = greeted.address, now, now
        self.met = True
        return peer

    def _is_crowded(self, group: str, *, beside: str) -> bool:
        """Whether there is a peer of our choice in a part of the network already, other than at one endpoint."""
        others = [peer for peer in self.outbound() if peer.endpoint != beside]
        return self.settings.diverse and any(peer.group() == group for peer in others)

    def _failed(self, endpoint: str, *, rest: float = 0.0) -> None:
        self.book.failed(endpoint, self.home.now(), rest=rest)
        peer = self._peers.get(endpoint)
        if peer is not None:
            self.drop(peer)
        self.client.caller.forget(endpoint)

    def drop(self, peer: Peer) -> None:
        """Talk to a peer no more, for now."""
        if self._peers.get(peer.endpoint) is peer:
            del self._peers[peer.endpoint]
            self.client.caller.forget(peer.endpoint)

    def demote(self, peer: Peer) -> None:
        """A peer was slow or did not deliver: others are preferred; it is never banned for that."""
        peer.failures += 1
        if peer.failures >= MAX_FAILURES:
            self.log.info("{endpoint} does not answer; talking to others", endpoint=peer.endpoint)
            self._failed(peer.endpoint)

    def _not_answered(self, peer: Peer, rest: float) -> None:
        """A question came to nothing: no fault of a peer that has had enough for now, which is asked again later."""
        if rest:
            peer.rests_until = self.home.now() + rest
        else:
            self.demote(peer)

    def punish(self, peer: Peer, *, seconds: float, why: str) -> None:
        """A peer broke a rule of the chain under its own key: ban it, unless too many would be banned."""
        now = self.home.now()
        if peer.outbound and not self.bans.may_ban_outbound(len(self.outbound()), now):
            what = f"most peers send blocks that break a rule, last {peer.endpoint}: {why}"
            self._alarm = (now + ALARM_SECONDS, what)
            self.log.error("{alarm}", alarm=self.alarm)
            return
        address = peer.address if self.settings.diverse else ""
        self.bans.ban_node(peer.node_key, peer.endpoint, address=address, seconds=seconds, now=now, why=why)
        self.log.warn("banned {endpoint} for {seconds} s: {why}", endpoint=peer.endpoint, seconds=seconds, why=why)
        self._failed(peer.endpoint)

    def leave_banned(self) -> list[Peer]:
        """Talk no more to those who are banned by now; gives who they were."""
        now = self.home.now()
        banned = [peer for peer in self.all() if self.bans.forbids(peer.node_key, peer.endpoint, peer.address, now)]
        for peer in banned:
            self._failed(peer.endpoint)
        return banned

    def ask_all(self) -> None:
        """Ask every peer what chain it has: now, or a second after it was asked last, however often this is called.

        A peer that has had enough of questions is asked when it has rested.
        """
        for peer in self.all():
            peer.news = True
            if max(peer.asked + ASK_AGAIN_SECONDS, peer.rests_until) <= self.home.now():
                self._begin(self.ask_status(peer))

    async def ask_status(self, peer: Peer) -> None:
        """Poll the chain of ``peer`` and, where this node cannot be called, its waiting transfers."""
        peer.asked, peer.news = self.home.now(), False
        try:
            status = await self.client.status(peer.endpoint)
        except CallFailed as failed:
            self._not_answered(peer, failed.rest)
            return
        peer.note_status(status, self.home.ledger.tip.work, self.home.now())
        self.on_status()
        if not self.reachable:
            await self._ask_transactions(peer)

    async def _ask_transactions(self, peer: Peer) -> None:
        try:
            transactions, peer.pool_cursor = await self.client.transactions(peer.endpoint, peer.pool_cursor)
        except CallFailed as failed:
            if failed.rest or failed.trouble is not Trouble.REFUSED:
                self._not_answered(peer, failed.rest)
            # Another refusal: the peer does not know the route, and may be a good peer all the same.
            return
        for transaction in transactions:
            self.on_transaction(peer, transaction)

    async def _ask_peers(self, peer: Peer) -> None:
        peer.asked_peers = self.home.now()
        try:
            endpoints = await self.client.peers(peer.endpoint)
        except CallFailed as failed:
            self._not_answered(peer, failed.rest)
            return
        for endpoint in endpoints:
            self.hint(endpoint, source=peer.group())

    def hint(self, endpoint: str, *, source: str, trusted: bool = False) -> None:
        """Note an endpoint by the text that names it; what cannot be one is left out."""
        try:
            place = Endpoint(endpoint)
        except BadTarget:
            return
        if place != self.home.key.endpoint:
            self.book.hint(place, source=source, now=self.home.now(), trusted=trusted)

    def _choose(self, now: float) -> None:
        """Greet new outbound peers while there are too few, and now and then a hint that nobody has tried."""
        outbound = self.outbound()
        missing = self.settings.outbound - len(outbound) - len(self._greetings)
        feel = now - self._last_feeler >= FEELER_SECONDS
        if missing <= 0 and not feel:
            return
        for endpoint in self.first:
            # A flood of hints may have pushed it out of the book while it did not answer.
            self.hint(endpoint, source="operator", trusted=True)
        busy = self._greetings.endpoints.union(self._peers)
        groups = {peer.group() for peer in outbound} if self.settings.diverse else None
        chosen = choose(self.book, missing, now=now, busy=busy, groups=groups, first=self.first)
        for endpoint in chosen:
            self._begin(self.greet(endpoint, outbound=True))
        if all(entry.endpoint in busy or entry.is_hopeless(now) for entry in self.book.entries()):
            promote(self.all(), missing, groups)
        if feel:
            self._last_feeler = now
            tried = pick_to_try(self.book, now=now, busy=busy.union(chosen))
            if tried is not None:
                self._begin(self.greet(tried, outbound=False, keep=False))

    def _begin(self, work: Coroutine[Deferred[object], object, object]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._say_failed)

    def _say_failed(self, failure: Failure) -> None:
        self.log.failure("keeping in touch with peers failed", failure)
