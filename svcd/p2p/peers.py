"""Who is talked to: greeting, verifying by our own call, keeping in touch (docs/protocol.md 11)."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.node.status import LONELY, Neighbourhood
from svcd.p2p.asking import ask_peers, ask_status
from svcd.p2p.bans import Bans, key_name
from svcd.p2p.book import Book, group_of, group_of_endpoint
from svcd.p2p.choosing import choose, pick_to_try, promote
from svcd.p2p.client import PeerClient
from svcd.p2p.greeting import Greeted, Greetings, NotGreeted
from svcd.p2p.hello import Hello, is_endpoint
from svcd.p2p.peer import ASK_AGAIN_SECONDS, RENEW_SECONDS, Doubts, Home, Peer, PeerSettings, neighbourhood

ALARM_SECONDS: Final = 3_600.0
FEELER_SECONDS: Final = 120.0
CALL_BACK_SECONDS: Final = 60.0
MAX_FAILURES: Final = 3
_CALL_BACKS_AT_ONCE: Final = 4
"""Fewer, so that strangers who keep us waiting leave room for peers of our own choice."""


def _nothing(*_: object) -> None:
    """Nobody has asked to be told."""


class Peers:
    """The nodes that we talk to: those of our own choice, and acquaintances that called us first."""

    log = Logger()

    def __init__(self, home: Home, client: PeerClient, *, book: Book, bans: Bans, settings: PeerSettings) -> None:
        self.home = home
        self.client = client
        self.book = book
        self.bans = bans
        self.settings = settings
        self.met = False
        """Whether any peer has been verified since the start."""
        self._alarm = (0.0, "")
        """Until when (Unix seconds) something is wrong, and what."""
        self._doubts = Doubts()
        self.on_claim: Callable[[], None] = _nothing
        """Called when a peer shows more work than we have."""
        self.on_met: Callable[[Peer], None] = _nothing
        """Called with each new peer."""
        self.on_transaction: Callable[[Peer, object], None] = _nothing
        """Called with each waiting transfer that a peer told us of."""
        self.first: list[str] = []
        """Endpoints to be called before any other: the anchors of the last run, and the operator's seeds."""
        self._peers: dict[str, Peer] = {}
        self._greetings = Greetings(home, client, bans)
        self._last_feeler = home.now()

    @property
    def alarm(self) -> str:
        """Why blocks must not be made at present; "" if nothing is wrong. It ends an hour after its last cause."""
        until, why = self._alarm
        return why if self.home.now() < until else ""

    def all(self) -> list[Peer]:
        """Every verified peer."""
        return list(self._peers.values())

    def get(self, endpoint: str) -> Peer | None:
        """A verified peer by its endpoint."""
        return self._peers.get(endpoint)

    def outbound(self) -> list[Peer]:
        """The peers of our own choice."""
        return [peer for peer in self._peers.values() if peer.outbound]

    def ahead(self) -> list[Peer]:
        """The peers that show more work than we have and are not doubted, the greatest first."""
        work, now = self.home.ledger.tip.work, self.home.now()
        found = [peer for peer in self._peers.values() if peer.is_ahead(work=work, now=now)]
        suspects = self._suspects()
        # Who has never failed to deliver comes before who has, whatever that one claims.
        return sorted(
            found, key=lambda peer: (peer in suspects, peer.doubts, -(peer.status.work if peer.status else 0))
        )

    def _suspects(self) -> list[Peer]:
        """Those who are in one part of the network with somebody that did not deliver; not where all are neighbours."""
        now = self.home.now()
        return [peer for peer in self.all() if self.settings.diverse and self._doubts.holds_against(peer, now)]

    def doubt(self, peer: Peer) -> None:
        """A peer could not deliver what it claimed."""
        self._doubts.add(peer, self.home.now())

    def is_banned(self, node_key: bytes) -> bool:
        """Whether the node with this key is banned."""
        return self.bans.is_banned(key_name(node_key), self.home.now())

    def neighbourhood(self) -> Neighbourhood:
        """The present state, for the status."""
        lonely = not self.met and not self.settings.alone
        trouble = self.alarm or (LONELY if lonely else "")
        tip, now = self.home.ledger.tip, self.home.now()
        return neighbourhood(self.all(), tip=tip, now=now, trouble=trouble, suspects=self._suspects())

    def beat(self) -> None:
        """Do what is due by now; to be called once a second."""
        now = self.home.now()
        self._choose(now)
        hungry = len(self.outbound()) < self.settings.outbound
        for peer in self.all():
            if peer.status_is_due(now, self.home.params.slot_seconds if self.settings.public else 0):
                self._begin(self.ask_status(peer))
            if peer.hello_is_due(now):
                self._begin(self.greet(peer.endpoint, outbound=peer.outbound))
            if peer.gossip_is_due(now, hungry=hungry):
                self._begin(ask_peers(peer, self))

    def called_by(self, hello: Hello, client: str) -> None:
        """Somebody has greeted us: their endpoint is a hint, and counts once we have called it ourselves."""
        endpoint, now = hello.endpoint, self.home.now()
        if not endpoint or self.book.is_ours(endpoint, now):
            return
        known = self._peers.get(endpoint)
        if known is not None and known.node_key == hello.node_key:
            return
        self.book.hint(endpoint, source=group_of(client), now=now)
        entry = self.book.get(endpoint)
        # Not one that was called a moment ago: others must not be able to make us call it as often as they like.
        due = entry is not None and entry.next_try <= now and now - entry.last_seen >= CALL_BACK_SECONDS
        if due and self._has_room() and len(self._greetings) < _CALL_BACKS_AT_ONCE:
            self._begin(self.greet(endpoint, outbound=False))

    def _has_room(self) -> bool:
        return sum(not peer.outbound for peer in self._peers.values()) < self.settings.max_inbound

    async def greet(self, endpoint: str, *, outbound: bool, keep: bool = True) -> Peer | None:
        """Call an endpoint and exchange hellos; gives the peer if its key answered and named this very endpoint."""
        try:
            return await self.meet(endpoint, outbound=outbound, keep=keep)
        except NotGreeted:
            return None

    async def meet(self, endpoint: str, *, outbound: bool, keep: bool = True) -> Peer | None:
        """Greet an endpoint; None where whoever answered is not kept. Raises NotGreeted with the reason."""
        if not self._greetings.may_begin(endpoint):
            raise NotGreeted("it or eight others are being greeted at present")
        try:
            greeted = await self._greetings.exchange(endpoint)
        except NotGreeted as why:
            self._not_greeted(endpoint, why)
            raise
        peer = self._greeted(endpoint, greeted, outbound=outbound, keep=keep)
        if endpoint not in self._peers:
            self.client.caller.forget(endpoint)
        return peer

    def _not_greeted(self, endpoint: str, why: NotGreeted) -> None:
        if why.is_ours:
            self.book.is_mine(endpoint, self.home.now())
            self.client.caller.forget(endpoint)
            return
        if why.elsewhere:
            self.hint(why.elsewhere, source=group_of_endpoint(endpoint))
        peer = self._peers.get(endpoint)
        if peer is not None and why.is_lost and self.home.now() - peer.greeted < 2 * RENEW_SECONDS:
            self.demote(peer)
            return
        self._failed(endpoint)

    def _greeted(self, endpoint: str, greeted: Greeted, *, outbound: bool, keep: bool) -> Peer | None:
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
            self._doubts.bring_back(peer)
            self.log.info("met {node_id} at {endpoint}", node_id=hello.node_id, endpoint=endpoint)
            self._begin(self.ask_status(peer))
            self._begin(ask_peers(peer, self))
            self.on_met(peer)
        peer.outbound = peer.outbound and chosen
        peer.address, peer.greeted, peer.seen = greeted.address, now, now
        self.met = True
        return peer

    def _is_crowded(self, group: str, *, beside: str) -> bool:
        """Whether there is a peer of our choice in a part of the network already, other than at one endpoint."""
        others = [peer for peer in self.outbound() if peer.endpoint != beside]
        return self.settings.diverse and any(peer.group() == group for peer in others)

    def _failed(self, endpoint: str) -> None:
        self.book.failed(endpoint, self.home.now())
        peer = self._peers.get(endpoint)
        if peer is not None:
            self.drop(peer)
        self.client.caller.forget(endpoint)

    def drop(self, peer: Peer) -> None:
        """Talk to a peer no more, for now."""
        if self._peers.get(peer.endpoint) is peer:
            del self._peers[peer.endpoint]
            self._doubts.keep(peer)
            self.client.caller.forget(peer.endpoint)

    def demote(self, peer: Peer) -> None:
        """A peer was slow or did not deliver: others are preferred; it is never banned for that."""
        peer.failures += 1
        if peer.failures >= MAX_FAILURES:
            self.log.info("{endpoint} does not answer; talking to others", endpoint=peer.endpoint)
            self._failed(peer.endpoint)

    def progressed(self, senders: Iterable[str], *, gained: bool) -> None:
        """The blocks of ``senders`` brought more work."""
        for endpoint in set(senders):
            if endpoint in self._peers:
                self._peers[endpoint].delivered(self.home.now(), gained=gained)
                if gained:
                    self._doubts.lift(self._peers[endpoint])

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
        """Ask every peer what chain it has: now, or a second after it was asked last, however often this is called."""
        for peer in self.all():
            peer.news = True
            if peer.asked + ASK_AGAIN_SECONDS <= self.home.now():
                self._begin(self.ask_status(peer))

    async def ask_status(self, peer: Peer) -> None:
        """Ask what chain a peer has, and say so to whoever synchronises."""
        await ask_status(peer, self)

    def hint(self, endpoint: str, *, source: str, trusted: bool = False) -> None:
        """Note an endpoint somebody told us of."""
        if is_endpoint(endpoint) and endpoint != self.home.key.endpoint:
            self.book.hint(endpoint, source=source, now=self.home.now(), trusted=trusted)

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
