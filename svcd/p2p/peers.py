"""The peers of this node: outbound and inbound ones, handshakes, and polling (docs/peers.md "Peer selection")."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.bounded_dict import BoundedDict
from svcd.chain.errors import RuleViolation
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.interfaces import milliseconds
from svcd.limits import ORPHANS, limit
from svcd.net.targets import BadTarget, Endpoint
from svcd.node.news import Topic
from svcd.node.tasks import CancellableTasks
from svcd.node.transaction_pool import TransactionPool
from svcd.p2p.address_book import (
    ANCHOR,
    OPERATOR,
    AddressBook,
    choose_feeler,
    choose_outbound,
    draw_by_group,
    group_of,
    group_of_endpoint,
    take_group,
)
from svcd.p2p.bans import INVALID_BAN_SECONDS, Bans, address_in, node_name
from svcd.p2p.call_budget import CallReason
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import Fault, Hello, HelloRefused, LatestHellos, LocalNode, check_hello
from svcd.p2p.peer import Peer
from svcd.p2p.producer_changes import changes_alarm
from svcd.p2p.transport import FailureKind, PeerCallFailed
from svcd.store.database import is_disk_trouble

RENEW_SECONDS: Final = 300.0
"""Between two handshakes with a peer."""
MIN_POLL_SECONDS: Final = 5.0
"""Between two polls of an outbound peer's status, where a slot is shorter or this node cannot be called."""
INBOUND_POLL_SECONDS: Final = 60.0
ASK_AGAIN_SECONDS: Final = limit(1.0, "time between two requests for the parents of an orphan", "seconds", ORPHANS)
"""Replaces MIN_POLL_SECONDS and INBOUND_POLL_SECONDS for a peer that lacks a block or has one not known here."""
GOSSIP_SECONDS: Final = 600.0
"""Between two requests for the endpoints that a peer knows."""
HUNGRY_SECONDS: Final = 60.0
"""Replaces GOSSIP_SECONDS while outbound peers are missing."""
FIRST_CLAIM_BACKOFF: Final = 60.0
MAX_CLAIM_BACKOFF: Final = 3_600.0
"""How long the claims of a peer that did not prove one are not checked, the first time and at most."""
FIRST_RETRY: Final = 5.0
MAX_RETRY: Final = 300.0
"""How long no claim of a peer that did not answer is checked, the first time and at most."""
ALARM_SECONDS: Final = 3_600.0
FIRST_PEER_SECONDS: Final = 10.0
"""How long after its start a node with ``[participation] alone`` waits, at most, for one of the nodes that it knows."""
MAX_SEEDS: Final = 8
"""Outbound places for the operator's seeds, beside those for the peers that the node chooses."""
FEELER_SECONDS: Final = 120.0
"""Between two calls that test a hint."""
CALL_BACK_SECONDS: Final = limit(
    60.0,
    "time between two calls back",
    "seconds",
    "Naming a third party's host, also under many names, to have nodes call it again and again",
)
CALLED_SECONDS: Final = 900.0
"""How long a hello from another node shows that this one can be reached: three renewals of a handshake."""
UNREACHABLE_SECONDS: Final = 600.0
"""How long a node with peers and an endpoint may go without such a hello until its operator is alarmed."""
ASK_FOR_CALL_SECONDS: Final = 240.0
"""How long a node waits for a hello until its own hellos ask peers to call back."""
ONLINE_SECONDS: Final = 10.0
"""How long after the last answer of a peer this node counts as online.

Not long enough for a peer to fail to prove a claim three times in a row.
"""
MAX_FAILURES: Final = 3
_HANDSHAKES_AT_ONCE: Final = 8
_CALL_BACKS_AT_ONCE: Final = 4
"""Fewer than handshakes in all, so that inbound hellos leave room for outbound handshakes."""
_REMEMBERED: Final = 4_096
"""How many calls back are remembered."""


@frozen(kw_only=True)
class PeerSettings:
    """How many peers, and how diverse."""

    outbound: int
    max_inbound: int
    diverse: bool
    """Whether each network group has at most one outbound peer, and at most a quarter of the inbound ones."""
    alone: bool
    """Whether a node without any peer may make its own chain."""


def _nothing(*_: object) -> None:
    """The default of a callback."""


class HandshakeFailed(Exception):
    """There is no acceptable peer at an endpoint; the text says why."""


class Peers:
    """The nodes that this node talks to: outbound peers, which it chose, and inbound ones, which called first."""

    log = Logger()

    def __init__(
        self,
        node: LocalNode,
        client: PeerClient,
        *,
        transaction_pool: TransactionPool,
        book: AddressBook,
        bans: Bans,
        settings: PeerSettings,
    ) -> None:
        self.node = node
        self.client = client
        self.book = book
        self.bans = bans
        self.settings = settings
        self.ever_verified = False
        """Whether any peer has been verified since the start."""
        self.waits_until = 0.0
        """Until when (the node's seconds) a node that may be alone waits for one of those that it knew at the start."""
        self.online_seconds = 0.0
        """How long this node has been online since its start, up to the last tick: a clock that an outage stops."""
        self.on_status: Callable[[], None] = _nothing
        """Called when a peer has shown its chain."""
        self.on_added: Callable[[Peer], None] = _nothing
        """Called with each new peer."""
        self.on_verified: Callable[[], None] = _nothing
        """Called when an endpoint has become a verified one."""
        self._anchors: list[Endpoint] = []
        self._seeds: list[Endpoint] = []
        self._transaction_pool = transaction_pool
        self._peers: dict[str, Peer] = {}
        self._handshakes: dict[Endpoint, bool] = {}
        """The endpoints that have not answered our hello yet, and whether each is called to be an outbound peer."""
        self._hellos = LatestHellos()
        """The newest hello with which each key has answered."""
        self._called_back: BoundedDict[Endpoint, float] = BoundedDict(_REMEMBERED)
        """When an endpoint was last called because of a hello (the node's seconds)."""
        client.caller.answered_at, client.caller.is_operators = self._answered_at, self._is_operators
        self._last_feeler = node.now()
        self._alarm = (0.0, "")
        """Until when (the node's seconds) something is wrong, and what."""
        self._called_at: float | None = None
        """When another node last called the endpoint of this one (the node's seconds)."""
        self._tasks = CancellableTasks(self._log_failure)
        self._ticked_at = node.now()
        self._connected_since: float | None = None
        """Since when (the node's seconds) there has always been a peer; None if there is none."""

    def call_first(self, anchors: Sequence[Endpoint], seeds: Sequence[Endpoint]) -> None:
        """Call the operator's ``seeds``, the ``anchors`` of the last run and verified endpoints, before others."""
        self._anchors, self._seeds = list(anchors), list(seeds)
        for seed in seeds:
            self.hint(seed, source=OPERATOR)
        known = [*anchors, *seeds, *(entry.endpoint for entry in self.book.verified())]
        for endpoint in known:
            # An operator who restarts the node wants them called now, however often calls have failed.
            self.book.try_again(endpoint)
        if known:
            self.waits_until = self.node.now() + FIRST_PEER_SECONDS

    def stop(self) -> None:
        """Cancel all handshakes and requests, and begin none any more."""
        self._tasks.stop()

    # State

    @property
    def alarm(self) -> str:
        """Why blocks must not be made at present; "" if nothing is wrong. It ends an hour after its last cause."""
        until, why = self._alarm
        return why if why and self.node.now() < until else ""

    @property
    def reachable(self) -> bool:
        """Whether other nodes can call this one: it has an endpoint, which another node has called lately."""
        called = self._called_at
        return bool(self.node.key.endpoint) and called is not None and self.node.now() - called < CALLED_SECONDS

    @property
    def is_online(self) -> bool:
        """Whether a peer has answered lately; always on a node that may be alone."""
        now = self.node.now()
        return self.settings.alone or any(now - peer.last_seen < ONLINE_SECONDS for peer in self.all())

    def agreeing_clocks(self, since: float) -> int:
        """How many outbound peers, or inbound ones without them, have sent a hello that was accepted after ``since``.

        Such a hello is signed, and its time is at most a minute from this computer's clock. ``since`` is in the node's
        seconds.
        """
        return sum(peer.handshake_at >= since for peer in self.outbound() or self.all())

    def unreachable(self) -> str:
        """The alarm that no node reaches the endpoint which this one names; "" if nothing is wrong."""
        endpoint, now = self.node.key.endpoint, self.node.now()
        # Without a peer there is no node that could call: the time of an outage does not count.
        since = max(self._connected_since or now, self._called_at or 0.0)
        if not endpoint or now - since < UNREACHABLE_SECONDS:
            return ""
        return (
            f"no node has called {endpoint} for {(now - since) // 60:.0f} minutes: check that [http] publicUrl "
            "leads here from outside (port, proxy, certificate), or leave it empty"
        )

    @property
    def has_any(self) -> bool:
        """Whether there is a peer."""
        return bool(self._peers)

    def all(self) -> list[Peer]:
        """Every verified peer."""
        return list(self._peers.values())

    def get(self, endpoint: str) -> Peer | None:
        """A verified peer by its endpoint."""
        return self._peers.get(endpoint)

    def has(self, peer: Peer) -> bool:
        """Whether ``peer`` has not been dropped."""
        return self._peers.get(peer.endpoint) is peer

    def outbound(self) -> list[Peer]:
        """The outbound peers."""
        return [peer for peer in self._peers.values() if peer.outbound]

    def missing(self) -> int:
        """How many outbound peers are missing; the operator's seeds have places of their own beside these."""
        return self.settings.outbound - sum(peer.endpoint not in self._seeds for peer in self.outbound())

    def in_relay_order(self) -> list[Peer]:
        """Every peer, outbound ones first, each half in a new random order.

        With a fixed order a few inbound peers could keep what is new to themselves.
        """
        random = self.book.random
        return sorted(self._peers.values(), key=lambda peer: (not peer.outbound, random()))

    def reputation_key(self, peer: Peer) -> str:
        """The name under which a peer's record is kept: its network group, or its endpoint.

        Endpoints cost nothing: where peers are to be diverse, those in one network group share a record.
        """
        return peer.group() if self.settings.diverse else peer.endpoint

    def mark_sender(self, client: str | None, item: bytes) -> None:
        """Mark ``item`` as known to its sender: the only peer at the address of ``client``, if there is one.

        ``item`` is a txid, or the SHA-256 of a block's canonical JSON. A post is not signed by a node, so the address
        is all there is to go by; where several peers share it, the item is relayed to all of them.
        """
        if (sender := self._sender(client)) is not None:
            sender.mark_known(item)

    def name_of(self, client: str | None) -> str:
        """The endpoint of the only peer at the address of ``client``, or else that address; "" for None."""
        sender = self._sender(client)
        return (client or "") if sender is None else sender.endpoint

    def _sender(self, client: str | None) -> Peer | None:
        there = [] if client is None else [peer for peer in self._peers.values() if peer.is_at(client)]
        return there[0] if len(there) == 1 else None

    # Handshakes

    def hello_received(self, hello: Hello, client: str, *, host: str = "", call_back: bool = False) -> None:
        """Take the hello of a node that called: its endpoint is a hint until this node has called it.

        ``host`` is the ``Host`` that it called. A call to another address of this node does not show that its endpoint
        leads here.
        With ``call_back`` it wants to be called even if it is known here, to learn whether it can be.
        """
        endpoint, now = hello.canonical_endpoint, self.node.now()
        if self.node.key.is_at(host):
            self._called_at = now
        if endpoint is None or self.book.is_own(endpoint, now):
            return
        known = self._peers.get(endpoint)
        if known is not None and known.node_key == hello.node_key:
            if call_back:
                self._call_back(endpoint, client, outbound=known.outbound)
            return
        self.book.hint(endpoint, source=group_of(client), now=now)
        entry = self.book.get(endpoint)
        if entry is None or not (call_back or self._has_room(group_of_endpoint(endpoint))):
            return
        # A node that has answered there before, and was lost, is back: its next try may be far away.
        returned = known is None and entry.node_id == hello.node_id
        if returned or (entry.next_try <= now and now - entry.last_seen >= CALL_BACK_SECONDS):
            self._call_back(endpoint, client, outbound=False)

    def _call_back(self, endpoint: Endpoint, client: str, *, outbound: bool) -> None:
        # Strangers must not be able to have an endpoint called as often as they like.
        now, last = self.node.now(), self._called_back.get(endpoint, 0.0)
        if now - last >= CALL_BACK_SECONDS and len(self._handshakes) < _CALL_BACKS_AT_ONCE:
            self._called_back[endpoint] = now
            self._tasks.start(self.connect(endpoint, outbound=outbound, client=client))

    def _has_room(self, group: str) -> bool:
        """Whether there is room for one more inbound peer in a network group, which gets a quarter of the places."""
        groups = [peer.group() for peer in self._peers.values() if not peer.outbound]
        max_inbound = self.settings.max_inbound
        return len(groups) < max_inbound and not (
            self.settings.diverse and groups.count(group) >= max(max_inbound // 4, 1)
        )

    def _answered_at(self, endpoint: str) -> str:
        """The address at which a node last answered under an endpoint; "" if none has."""
        known = self._peers.get(endpoint) or self.book.get(endpoint)
        return known.address if known else ""

    def _reason(self, endpoint: Endpoint) -> CallReason:
        """What a call to an endpoint is for."""
        if endpoint in self._peers:
            return CallReason.PEER
        return CallReason.OPERATOR if self._is_operators(endpoint) else CallReason.HINT

    def _is_operators(self, endpoint: str) -> bool:
        entry = self.book.get(endpoint)
        return endpoint in self._seeds or (entry is not None and entry.source == OPERATOR)

    async def connect(self, endpoint: Endpoint, *, outbound: bool, keep: bool = True, client: str = "") -> Peer | None:
        """Like :meth:`handshake`; None, too, where it fails."""
        try:
            return await self.handshake(endpoint, outbound=outbound, keep=keep, client=client)
        except HandshakeFailed:
            return None

    async def handshake(
        self,
        endpoint: Endpoint,
        *,
        outbound: bool,
        keep: bool = True,
        client: str = "",
        reason: CallReason | None = None,
    ) -> Peer | None:
        """Exchange hellos; the peer if its key answered and named this endpoint, None where it is not to be kept.

        ``client`` is the address whose hello asked for the call, "" for none. ``reason`` is CallReason.COMMAND for a
        command of the operator; otherwise it follows from what is known of the endpoint. Raises HandshakeFailed.
        """
        if self._tasks.stopping:
            raise HandshakeFailed("this node is stopping")
        if endpoint in self._handshakes or len(self._handshakes) >= _HANDSHAKES_AT_ONCE:
            raise HandshakeFailed("a handshake with it, or with eight others, is under way")
        try:
            reason = reason or self._reason(endpoint)
            hello = await self._exchange_hellos(endpoint, outbound=outbound, reason=reason, client=client)
            address = self.client.caller.address_of(endpoint) or address_in(endpoint)
            self._check_reply(endpoint, hello, address)
        except PeerCallFailed as failed:
            if failed.status == 400 and reason is CallReason.OPERATOR:
                # It is of another network, for instance, and only this node's operator can change that.
                self.log.warn("{endpoint} refuses the hello of this node: {why}", endpoint=endpoint, why=failed.detail)
            else:
                self.log.debug("the handshake with {endpoint} failed: {why}", endpoint=endpoint, why=failed.detail)
            self._no_hello(endpoint, failed)
            raise HandshakeFailed(failed.detail) from failed
        except HelloRefused as refused:
            if refused.fault is Fault.SELF:
                self.book.remember_own(endpoint, self.node.now())
                self.client.caller.forget(endpoint)
                raise HandshakeFailed("it is this node itself") from refused
            if endpoint not in self._peers:
                self.log.info("the hello of {endpoint} is refused: {why}", endpoint=endpoint, why=refused.detail)
            self._lost(endpoint, f"its hello is refused: {refused.detail}")
            raise HandshakeFailed(f"its hello is refused: {refused.detail}") from refused
        except HandshakeFailed as failed:
            self._lost(endpoint, str(failed))
            raise
        peer = self._verified(endpoint, hello, address, outbound=outbound, keep=keep)
        if endpoint not in self._peers:
            self.client.caller.forget(endpoint)
        return peer

    async def _exchange_hellos(self, endpoint: Endpoint, *, outbound: bool, reason: CallReason, client: str) -> Hello:
        """The hello that answers ours; raises HandshakeFailed, PeerCallFailed or HelloRefused."""
        if self.bans.is_endpoint_banned(endpoint, self.node.now()):
            raise HandshakeFailed("it is banned here")
        self._handshakes[endpoint] = outbound
        try:
            ours, call_back = self.node.hello(), self._misses_calls()
            return await self.client.hello(endpoint, ours, call_back=call_back, reason=reason, client=client)
        finally:
            del self._handshakes[endpoint]

    def _check_reply(self, endpoint: Endpoint, hello: Hello, address: str) -> None:
        """Check the hello of the node at an endpoint and address; raises HandshakeFailed or HelloRefused."""
        node, now = self.node, milliseconds(self.node.clock)
        check_hello(hello, node.params, own=node.key.node_id, now=now)
        if hello.canonical_endpoint == endpoint:
            # A node that replays the hello of another node must not make that node's own hello look old.
            self._hellos.take(hello, now)
        # The key, and the address behind a name, are known only now.
        if self.bans.forbids(hello.node_id, endpoint, node.now(), address=address):
            raise HandshakeFailed("the node that answers there, or its address, is banned here")
        if hello.canonical_endpoint != endpoint:
            said = hello.endpoint or "nothing: it has no publicUrl"
            self.log.info("{endpoint} answers and names as its endpoint {said}", endpoint=endpoint, said=said)
            self.hint(hello.endpoint, source=group_of_endpoint(endpoint))
            raise HandshakeFailed(f"it names as its endpoint {said}")

    def _misses_calls(self) -> bool:
        """Whether no node has called for so long that one should be asked to."""
        called, now = self._called_at, self.node.now()
        return bool(self.node.key.endpoint) and (called is None or now - called >= ASK_FOR_CALL_SECONDS)

    def _no_hello(self, endpoint: Endpoint, failed: PeerCallFailed) -> None:
        """Note that no hello came from an endpoint; its peer, if any, is kept for a while if that may be temporary."""
        peer = self._peers.get(endpoint)
        if peer is None and failed.kind is FailureKind.POSTPONED:
            # It has not been asked, so nothing is known of it.
            self.book.postpone(endpoint, self.node.now())
            return
        temporary = failed.kind is FailureKind.TIMEOUT or failed.retry_after
        if peer is not None and temporary and self.node.now() - peer.handshake_at < 2 * RENEW_SECONDS:
            self.count_failure(peer, failed)
        else:
            self._lost(endpoint, failed.detail, retry_after=failed.retry_after)

    def _verified(self, endpoint: Endpoint, hello: Hello, address: str, *, outbound: bool, keep: bool) -> Peer | None:
        now = self.node.now()
        group = group_of(address) if address else group_of_endpoint(endpoint)
        before = self.book.get(endpoint)
        was_verified = before is not None and before.verified
        entry = self.book.succeeded(
            endpoint, node_id=hello.node_id, height=hello.height, now=now, group=group, address=address
        )
        if entry.verified and not was_verified:
            self.on_verified()
        for other in self.all():
            if other.node_key == hello.node_key and other.endpoint != endpoint:
                self.drop(other, f"it is at {endpoint} now")
        peer = self._peers.get(endpoint)
        # The address of a name is known only now: many names of one network must not get many outbound connections.
        chosen = outbound and (endpoint in self._seeds or not self._is_crowded(group, beside=endpoint))
        if not keep or (peer is None and not chosen and not self._has_room(group)):
            return None
        if peer is None or peer.node_key != hello.node_key:
            peer = Peer(self.node.clock, endpoint, hello.node_key, hello.node_id, chosen, now, address=address)
            self._peers[endpoint] = peer
            self.node.news.info(
                "peer {endpoint} came, at height {height}; peers: {peers}",
                Topic.PEER_CAME,
                endpoint=endpoint,
                nodeId=hello.node_id,
                height=hello.height,
                peers=len(self._peers),
            )
            self._tasks.start(self.poll_status(peer))
            self._tasks.start(self._gossip(peer))
            self.on_added(peer)
        peer.outbound = peer.outbound and chosen
        peer.address, peer.handshake_at, peer.last_seen = address, now, now
        self.ever_verified = True
        return peer

    def _is_crowded(self, group: str, *, beside: str) -> bool:
        """Whether a network group has an outbound peer already that is no seed, other than at one endpoint."""
        others = [peer for peer in self.outbound() if peer.endpoint not in (beside, *self._seeds)]
        return self.settings.diverse and any(peer.group() == group for peer in others)

    # Failures and bans

    def _lost(self, endpoint: str, why: str, *, retry_after: float = 0.0) -> None:
        """Note that an endpoint does not answer as it should, and drop its peer."""
        self.book.failed(endpoint, self.node.now(), retry_after=retry_after)
        self._remove(endpoint, why)

    def drop(self, peer: Peer, why: str = "") -> None:
        """Remove a peer and close its connections; a later handshake may bring it back. Logged if ``why`` is given."""
        if self.has(peer):
            self._remove(peer.endpoint, why)

    def _remove(self, endpoint: str, why: str) -> None:
        if self._peers.pop(endpoint, None) is not None and why:
            what = {"endpoint": endpoint, "why": why, "peers": len(self._peers)}
            self.node.news.info("peer {endpoint} left: {why}; peers: {peers}", Topic.PEER_LEFT, **what)
        self.client.caller.forget(endpoint)

    def count_failure(self, peer: Peer, failed: PeerCallFailed) -> None:
        """Pause a peer that has answered 429 or 503, or count a request that it did not answer.

        The third such request in a row drops the peer, which is not banned for it. Does nothing if the peer has been
        dropped: another node may be at its endpoint by now.
        """
        if not self.has(peer):
            return
        self.log.debug("a request to {endpoint} has failed: {why}", endpoint=peer.endpoint, why=failed.detail)
        if failed.retry_after:
            peer.pause(failed.retry_after)
            return
        peer.failures += 1
        if peer.failures >= MAX_FAILURES:
            self._lost(
                peer.endpoint, f"{peer.failures} requests in a row have failed, the last one because {failed.detail}"
            )

    def reject_claim(
        self, peer: Peer, why: str, *, first: float = FIRST_CLAIM_BACKOFF, longest: float = MAX_CLAIM_BACKOFF
    ) -> None:
        """Note that a peer did not prove a claim: no other one is checked for ``first`` seconds, then twice as long."""
        self.log.info("{endpoint} did not prove its claim of more work: {why}", endpoint=peer.endpoint, why=why)
        peer.reject_claim(first=first, longest=longest)

    def reject_unanswered(self, peer: Peer, failed: PeerCallFailed) -> None:
        """Check no claim of a peer for a while that did not answer when it was asked to prove one."""
        if failed.retry_after:
            peer.pause(failed.retry_after)
        else:
            # A connection may lose one reply in three: that must not keep a node from a chain for long.
            self.reject_claim(peer, failed.detail, first=FIRST_RETRY, longest=MAX_RETRY)

    def refuse_chain(self, peer: Peer, why: str) -> None:
        """Ban a peer whose chain breaks a rule, and check none of its claims for a while if it may not be banned."""
        self.reject_claim(peer, why)
        self.ban(peer, why)

    def dispute_chain(self, peer: Peer, why: str) -> None:
        """Check no claim of a peer for a while: the list here does not allow the producer of one of its blocks.

        A peer with other changes of the list is not banned: it is honest, and this node may lack a change. One with the
        same changes breaks a rule that it knows.
        """
        if self._has_same_changes(peer):
            self.refuse_chain(peer, why)
        else:
            peer.disputed = why
            self.reject_claim(peer, why)

    def _has_same_changes(self, peer: Peer) -> bool:
        return peer.changes_hash == self.node.params.changes_hash

    def has_other_changes(self, endpoint: str) -> bool | None:
        """Whether the peer at an endpoint has other changes of producers than this node; None if it tells none."""
        peer = self._peers.get(endpoint)
        return None if peer is None or not peer.changes_hash else not self._has_same_changes(peer)

    def producer_changes(self) -> str:
        """The alarm that peers have other changes of producers than this node; "" if none says so."""
        return changes_alarm(self.node.params, self.node.chain_manager.tip.height, self.all())

    def wait_for_slot(self, peer: Peer) -> None:
        """Check no claim of a peer for a slot, since a header of its chain is early.

        No lie: one of the two clocks may be a little wrong, and the header is due soon.
        """
        peer.pause_claims(self.node.params.slot_seconds)

    def ban(self, peer: Peer, why: str) -> None:
        """Ban a peer that broke a rule of the chain under its own key, unless too many would be banned.

        Does nothing if the peer has been dropped.
        """
        if not self.has(peer):
            return
        now, seconds = self.node.now(), INVALID_BAN_SECONDS
        if peer.outbound and not self.bans.may_ban_outbound(len(self.outbound()), now):
            what = f"most peers send blocks that break a rule, last {peer.endpoint}: {why}"
            self._alarm = (now + ALARM_SECONDS, what)
            self.log.error("{alarm}", alarm=self.alarm)
            return
        address = peer.address if self.settings.diverse else ""
        self.bans.ban_node(peer.node_id, peer.endpoint, address=address, seconds=seconds, now=now, why=why)
        self.log.warn("banned {endpoint} for {seconds} s: {why}", endpoint=peer.endpoint, seconds=seconds, why=why)
        self._lost(peer.endpoint, "")

    def is_banned(self, node_id: str) -> bool:
        """Whether the node with this id is banned."""
        return self.bans.is_banned(node_name(node_id), self.node.now())

    def drop_banned(self) -> list[Peer]:
        """Drop the banned peers; returns them."""
        now = self.node.now()
        banned = [
            peer for peer in self.all() if self.bans.forbids(peer.node_id, peer.endpoint, now, address=peer.address)
        ]
        for peer in banned:
            self._lost(peer.endpoint, "it is banned here")
        return banned

    # Polling

    def tick(self) -> None:
        """Do what is due by now; to be called once a second."""
        now = self.node.now()
        self.online_seconds += now - self._ticked_at if self.is_online else 0.0
        self._ticked_at = now
        self._connected_since = (self._connected_since or now) if self._peers else None
        self._choose(now)
        # A node that nobody can call learns of new blocks only by polling.
        slot = float(self.node.params.slot_seconds) if self.reachable else 0.0
        gossip = HUNGRY_SECONDS if self.missing() > 0 else GOSSIP_SECONDS
        for peer in self.all():
            if peer.is_paused:
                continue
            usual = max(slot, MIN_POLL_SECONDS) if peer.outbound else INBOUND_POLL_SECONDS
            if not peer.polling and peer.polled_at + (ASK_AGAIN_SECONDS if peer.has_news else usual) <= now:
                self._tasks.start(self.poll_status(peer))
            if peer.handshake_at + RENEW_SECONDS <= now or peer.may_have_restarted:
                self._tasks.start(self.connect(peer.endpoint, outbound=peer.outbound))
            if peer.gossiped_at + gossip <= now:
                self._tasks.start(self._gossip(peer))

    def poll_all(self) -> None:
        """Poll every peer's status: now, or a second after its last poll, however often this is called.

        A peer that has not answered the last poll is polled after it, one that has answered 429 or 503 after its pause.
        """
        for peer in self.all():
            peer.has_news = True
            waits = peer.polling or peer.is_paused
            if not waits and peer.polled_at + ASK_AGAIN_SECONDS <= self.node.now():
                self._tasks.start(self.poll_status(peer))

    async def poll_status(self, peer: Peer) -> None:
        """Poll the chain of ``peer`` and, where this node cannot be called, its mempool."""
        peer.polled_at, peer.polling, peer.has_news = self.node.now(), True, False
        try:
            status = await self.client.status(peer.endpoint)
            had_others = peer.status is not None and not self._has_same_changes(peer)
            peer.take_status(status, self.node.chain_manager.tip.work, self.node.now())
            if had_others and self._has_same_changes(peer):
                peer.forget_claims()
            self.on_status()
            if not self.reachable and self.has(peer):
                await self._poll_mempool(peer)
        except PeerCallFailed as failed:
            self.count_failure(peer, failed)
        finally:
            peer.polling = False

    async def _poll_mempool(self, peer: Peer) -> None:
        """Submit the next transfers of a peer's mempool; raises PeerCallFailed."""
        cursor = peer.mempool_cursor
        transactions, peer.mempool_cursor = await self.client.transactions(peer.endpoint, cursor)
        transfers = self._parse_polled(peer, transactions)
        submitted: list[Deferred[object]] = [self._transaction_pool.submit(each) for each in transfers]  # type: ignore[misc]
        done = DeferredList(submitted, consumeErrors=True)
        done.addCallback(self._submitted, peer, cursor).addErrback(self._log_failure)

    def _parse_polled(self, peer: Peer, values: Iterable[object]) -> Iterator[Transfer]:
        """The transfers of a peer's mempool, which has each of them."""
        for value in values:
            try:
                transfer = parse_transfer(value, self.node.params)
            except RuleViolation as violation:
                self.log.debug("{endpoint} showed a bad transfer: {why}", endpoint=peer.endpoint, why=violation.detail)
            else:
                peer.mark_known(transfer.txid)
                yield transfer

    def _submitted(self, results: Sequence[tuple[bool, object]], peer: Peer, cursor: int) -> None:
        """Take the results of submitting the transfers of a peer's mempool that come after ``cursor``."""
        errors: list[Failure] = []
        for failure in (result for _, result in results if isinstance(result, Failure)):
            if isinstance(failure.value, RuleViolation):
                # Mempools differ, so a refused transfer has no price for the peer.
                why = failure.value.detail
                self.log.debug("a transfer of {endpoint} is refused: {why}", endpoint=peer.endpoint, why=why)
            else:
                errors.append(failure)
        # An error of a database is that of all transfers of the same turn, so the first one is raised for all.
        if errors and is_disk_trouble(errors[0].value):
            # DatabaseHealth has logged it. The transfers are polled again, until the disk takes them.
            peer.mempool_cursor = min(peer.mempool_cursor, cursor)
            what = {"endpoint": peer.endpoint, "count": len(errors), "why": str(errors[0].value)}
            self.log.debug("{count} transfers of {endpoint} cannot be written: {why}", **what)
        elif errors:
            self._log_failure(errors[0])

    async def _gossip(self, peer: Peer) -> None:
        peer.gossiped_at = self.node.now()
        try:
            endpoints = await self.client.peers(peer.endpoint)
        except PeerCallFailed as failed:
            self.count_failure(peer, failed)
            return
        for endpoint in endpoints:
            self.hint(endpoint, source=peer.group())

    # Choosing

    def hint(self, endpoint: str, *, source: str) -> None:
        """Add an endpoint that ``source`` (a network group) named to the address book; ignore any other text."""
        try:
            place = Endpoint(endpoint)
        except BadTarget:
            return
        if place != self.node.key.endpoint:
            self.book.hint(place, source=source, now=self.node.now())

    def _choose(self, now: float) -> None:
        """Connect to new outbound peers while some are missing, and now and then test a hint."""
        self._call_seeds(now)
        # Calls back, renewals and feelers fill no outbound place: callers that answer slowly must not keep it empty.
        coming = self._coming()
        missing = self.missing() - sum(endpoint not in self._seeds for endpoint in coming)
        feeler = now - self._last_feeler >= FEELER_SECONDS
        if missing <= 0 and not feeler:
            return
        for anchor in self._anchors:
            # A flood of hints may have pushed it out of the book while it did not answer.
            self.hint(anchor, source=ANCHOR)
        busy = {*self._handshakes, *self._peers, *self._seeds}
        groups = {peer.group() for peer in self.outbound()} if self.settings.diverse else None
        chosen = choose_outbound(self.book, missing, now=now, busy=busy, groups=groups, preferred=self._anchors)
        for endpoint in chosen:
            self._tasks.start(self.connect(endpoint, outbound=True))
        if missing > 0 and all(entry.endpoint in busy or entry.is_hopeless(now) for entry in self.book.entries()):
            self._promote(missing, groups)
        if feeler:
            self._last_feeler = now
            tested = choose_feeler(self.book, now=now, busy=busy.union(chosen))
            if tested is not None:
                self._tasks.start(self.connect(tested, outbound=False, keep=False))

    def _coming(self) -> list[Endpoint]:
        """The endpoints that are being called to become outbound peers."""
        return [endpoint for endpoint, chosen in self._handshakes.items() if chosen and endpoint not in self._peers]

    def _call_seeds(self, now: float) -> None:
        """Fill the places for seeds, beside those for peers that the node chooses itself."""
        if not self.settings.outbound:
            return
        present = [peer for peer in map(self._peers.get, self._seeds) if peer is not None]
        coming = [endpoint for endpoint in self._coming() if endpoint in self._seeds]
        places = MAX_SEEDS - sum(peer.outbound for peer in present) - len(coming)
        for peer in [peer for peer in present if not peer.outbound][: max(places, 0)]:
            peer.outbound = True
            places -= 1
        for seed in self._seeds:
            self.hint(seed, source=OPERATOR)
        absent = [seed for seed in self._seeds if seed not in self._peers and seed not in self._handshakes]
        due = [entry for entry in map(self.book.get, absent) if entry is not None and entry.next_try <= now]
        for entry in draw_by_group(due, self.book.random)[: max(places, 0)]:
            self._tasks.start(self.connect(entry.endpoint, outbound=True))

    def _promote(self, count: int, groups: set[str] | None) -> None:
        """Make at most ``count`` inbound peers outbound, for want of other endpoints to choose from.

        While others are known, inbound peers must not fill outbound places (docs/threats.md "Eclipse").
        """
        for peer in self.all():
            able = not peer.outbound and peer.endpoint not in self._seeds
            if count > 0 and able and take_group(peer.group(), groups):
                peer.outbound = True
                count -= 1

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("maintaining peer connections failed", failure)
