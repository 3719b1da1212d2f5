"""Announced blocks: a peer tells the header of a new block, and this node fetches the block (docs/peers.md "Relay")."""

from collections.abc import Callable
from typing import Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Block, Header, parse_header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.transition import ChainPoint
from svcd.net.endpoint import Endpoint
from svcd.node.changes import Change, HeaderCheck, Outcome
from svcd.p2p.bans import BANNED, INVALID_SECONDS, MALFORMED_TOKENS, PostBans, ban_persistent
from svcd.p2p.client import Bodies
from svcd.p2p.fields import BOOLEAN, HASH, OBJECT, TEXT
from svcd.p2p.handshake import LocalNode
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.promises import PUSH_SECONDS, Promises, Records
from svcd.p2p.relay import WANTED
from svcd.p2p.transport import CallFailed, Trouble
from svcd.ports import Timer
from svcd.web.answers import Answer
from svcd.web.errors import HttpError
from svcd.web.routing import Field, Route, object_schema, read_boolean, read_text

MAX_FETCHES: Final = 8
"""Announced blocks that are fetched at a time."""
HEAD_START_SECONDS: Final = 3.0
"""How long a peer has for a block until another that has it is asked too, unless the block is on its way by then."""
FETCH_SECONDS: Final = 30.0
"""How long peers keep others from being asked by delivering it slowly."""
GOOD_RATE: Final = 64 * 1024
"""Bytes per second that peers must deliver together, so that no other is asked beside them."""
LEAST_RATE: Final = 8 * 1024
"""Bytes per second of a peer that delivers at all: two of these suffice, lest more copies share a slow line."""
SENDING_RATE: Final = 128 * 1024
"""Bytes per second at which a peer of our choice may send a block before another is asked: a line of 1 Mbit/s."""
TRANSFER_BYTES: Final = 600
"""What a transfer takes in a block, about."""
MAX_CHECKS: Final = 16
"""Announced headers whose work is checked at a time; each costs an Argon2."""
_LOOK_SECONDS: Final = 0.5
ASKED: Final = "asked"
KNOWN: Final = "known"


def _endpoint(value: object) -> Endpoint | None:
    return Endpoint(text) if (text := read_text(value)) else None


@define(eq=False)
class _Source:
    """A peer that is asked for a block, or that sends it of itself."""

    peer: Peer
    began: float
    trusted: bool
    """Whether it may keep others from being asked."""
    pushes: bool = False
    received: int = 0
    """Bytes of the block that have come from it; not known of what it sends of itself."""
    call: Deferred[Bodies] | None = None

    def note_bytes(self, count: int) -> None:
        """So many more bytes have come from it."""
        self.received += count

    def rate(self, now: float) -> float:
        """Bytes per second, so far."""
        return self.received / max(now - self.began, 1.0)

    def keeps_back(self, now: float, size: int) -> bool:
        """Whether another is not even asked if nothing comes from this one; ``size`` is that of the block, about.

        A block that is being sent is not seen before it is there. That is waited for longer only if it is our choice.
        """
        patience = HEAD_START_SECONDS
        if self.pushes and self.peer.outbound:
            patience += size / SENDING_RATE
        return now - self.began < patience


@define(eq=False)
class _Fetch:
    """A block that a peer sends or is asked for."""

    header: Header
    began: float
    """When it was announced first (Unix seconds)."""
    sources: list[_Source] = field(factory=list)
    """Where it is to come from at present."""
    asked: dict[str, Peer] = field(factory=dict)
    """By endpoint, the peers that were asked for the block or announced a push; each peer is asked once."""
    timer: Timer | None = None
    over: bool = False
    """Whether no further peer is asked."""

    @property
    def size(self) -> int:
        """That of the block, about; its sender cannot lie about how many transfers it has."""
        return self.header.transaction_count * TRANSFER_BYTES

    def may_ask(self, peer: Peer, now: float, *, trusted: bool) -> bool:
        """Whether it is time to ask ``peer`` too.

        An acquaintance keeps no peer of our choice from being asked for longer than its head start, however well it
        seems to deliver. A peer that is not trusted keeps no other from being asked, and waits for all others.
        """
        if any(now - source.began < HEAD_START_SECONDS for source in self.sources if source.trusted or not trusted):
            return False
        rivals = [source for source in self.sources if source.trusted and (source.peer.outbound or not peer.outbound)]
        if any(source.keeps_back(now, self.size) for source in rivals):
            return False
        rates = [source.rate(now) for source in rivals if now - source.began < FETCH_SECONDS]
        return sum(rates) < GOOD_RATE and sum(rate >= LEAST_RATE for rate in rates) < 2

    def is_coming(self, now: float) -> bool:
        """Whether it can be left to those it is to come from: it does come, or a peer of our choice was just asked."""
        return self.over or any(
            source.rate(now) >= (LEAST_RATE if source.peer.outbound else GOOD_RATE)
            or (source.peer.outbound and source.keeps_back(now, self.size))
            for source in self.sources
            if source.trusted and now - source.began < FETCH_SECONDS
        )

    def end(self) -> None:
        """Cancel all requests, and ask no further peer."""
        self.over = True
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        for source in tuple(self.sources):
            if source.call is not None:
                source.call.cancel()


class Announcements:
    """Takes headers of new blocks, and fetches the blocks from the peers that announced them."""

    log = Logger()

    def __init__(self, peers: Peers, *, on_orphan: Callable[[], None], post_bans: PostBans) -> None:
        self._peers = peers
        self.post_bans = post_bans
        self._home: LocalNode = peers.home
        self._on_orphan = on_orphan
        self._fetches: dict[bytes, _Fetch] = {}
        self._checks = 0
        self.promises = Promises(peers, self._fetches.__contains__)
        self._slow = Records(peers)
        """Those that announced a block, and did not deliver it."""
        self._stopping = False

    def stop(self) -> None:
        """Give up what is being fetched, and fetch nothing any more."""
        self._stopping = True
        for fetch in tuple(self._fetches.values()):
            self._end(fetch)
        self.promises.stop()

    def chain_changed(self, change: Change) -> None:
        """End what is done for a block that has come."""
        if (fetch := self._fetches.get(change.tip.hash)) is not None:
            self._arrived(fetch)

    def is_coming(self, block_hash: bytes) -> bool:
        """Whether a new block is being fetched from a peer that has it, or sent by one, for a minute at most."""
        fetch = self._fetches.get(block_hash)
        return fetch is not None and self._home.now() - fetch.began < PUSH_SECONDS

    @Route(
        "POST",
        "/p2p/header",
        "Announce a new block by its header",
        bucket="p2p",
        malformed_tokens=MALFORMED_TOKENS,
        on_persistence=ban_persistent,
        body_fields=(
            Field("header", lambda value: value, OBJECT, "The header of the block."),
            Field("endpoint", _endpoint, TEXT, 'Where the caller serves the block; "" for nowhere.', required=False),
            Field("push", read_boolean, BOOLEAN, "Whether the caller sends the block.", required=False, default=False),
        ),
        with_client=True,
        answers={200: object_schema({"hash": HASH, "state": {"enum": [KNOWN, ASKED, WANTED, "orphan", "early"]}})},
        errors={403: "The caller is banned."},
    )
    async def header(self, header: object, endpoint: Endpoint | None, push: bool, client: str | None) -> Answer:
        """Answer POST /p2p/header."""
        if self.post_bans.ignores(client):
            raise HttpError(403, BANNED)
        try:
            parsed = parse_header(header, self._home.params)
        except RuleViolation as violation:
            raise HttpError(400, violation.detail, tokens=MALFORMED_TOKENS) from violation
        try:
            state = await self._take(parsed, self._announcer(endpoint, client), push=push)
        except RuleViolation as violation:
            tokens = self.post_bans.price_of_block(client, violation.detail)
            raise HttpError(400, violation.detail, tokens=tokens) from violation
        return {"hash": parsed.hash.hex(), "state": state}

    def _announcer(self, endpoint: Endpoint | None, client: str | None) -> Peer | None:
        """The peer that announces, if it is known and can be called."""
        peer = None if endpoint is None else self._peers.get(endpoint)
        return peer if peer is not None and (client is None or not peer.address or peer.is_at(client)) else None

    async def _take(self, header: Header, announcer: Peer | None, *, push: bool) -> str:
        """The state to answer with; raises RuleViolation or NotYet."""
        ledger = self._home.ledger
        if announcer is not None:
            announcer.note(header.hash)
        if ledger.reader.point(header.hash) is not None:
            if announcer is not None:
                self.promises.asked_again(announcer, header.hash)
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            return self._join(fetch, announcer)
        parent = ledger.reader.point(header.parent_hash)
        if parent is None:
            self._on_orphan()
            return Wait.ORPHAN
        check = await self._check(parent, header)
        if isinstance(check.failure, RuleViolation):
            raise check.failure
        if check.failure is not None:
            return Wait.EARLY
        if not header.transaction_count:
            outcome = await self._submit(Block(header, ()))
            if isinstance(outcome, Exception):
                raise outcome
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            # Another peer has announced it while its work was checked.
            return self._join(fetch, announcer)
        if announcer is None or self._stopping or not self._has_room(announcer):
            return WANTED
        if push and not self.promises.may_make(announcer):
            return WANTED
        fetch = self._fetches[header.hash] = _Fetch(header, self._home.now())
        if push:
            self.promises.make(announcer, header.hash, check.points[-1].work)
            fetch.asked[announcer.endpoint] = announcer
            fetch.sources.append(_Source(announcer, fetch.began, trusted=True, pushes=True))
        self._go_on(fetch)
        return WANTED if push else ASKED

    def _join(self, fetch: _Fetch, announcer: Peer | None) -> str:
        """The state to answer with where the block is being fetched already."""
        now = self._home.now()
        if announcer is None:
            return ASKED if fetch.is_coming(now) else WANTED
        if self.promises.made_by(announcer, fetch.header.hash) and not fetch.over:
            return WANTED
        self._look_again(fetch, 0.0)
        return ASKED

    def _has_room(self, announcer: Peer) -> bool:
        """Whether one more block can be fetched, maybe instead of one of which nothing good is to be hoped."""
        if len(self._fetches) < MAX_FETCHES:
            return True
        now, peers = self._home.now(), self._peers.all()
        for fetch in self._fetches.values():
            backed = any(peer.outbound and peer.has(fetch.header.hash) for peer in peers)
            if not fetch.over and (now - fetch.began >= PUSH_SECONDS or (announcer.outbound and not backed)):
                self._end(fetch)
                return True
        return False

    async def _check(self, parent: ChainPoint, header: Header) -> HeaderCheck:
        """Whether a header can follow on ``parent``; raises NotYet where too many wait."""
        if self._checks >= MAX_CHECKS:
            raise NotYet(Wait.BUSY, f"{MAX_CHECKS} announced headers wait for the check of their work; try again later")
        self._checks += 1
        try:
            return await self._home.ledger.check_headers(parent, [header])
        finally:
            self._checks -= 1

    # Fetching

    def _look_again(self, fetch: _Fetch, seconds: float) -> None:
        if fetch.timer is not None:
            fetch.timer.cancel()
        fetch.timer = self._home.clock.callLater(seconds, self._due, fetch)

    def _due(self, fetch: _Fetch) -> None:
        fetch.timer = None
        self._go_on(fetch)

    def _go_on(self, fetch: _Fetch) -> None:
        """Ask one more peer if it is time, and look again soon; give up where no peer is left."""
        if fetch.over:
            return
        now = self._home.now()
        if self._home.ledger.reader.point(fetch.header.hash) is not None:
            self._arrived(fetch)
            return
        late = [source for source in fetch.sources if source.pushes and now - source.began >= PUSH_SECONDS]
        for source in late:
            fetch.sources.remove(source)
        peer = self._next(fetch)
        if peer is not None and fetch.may_ask(peer, now, trusted=not self._slow.has(peer)):
            self._ask(peer, fetch)
        elif peer is None and not fetch.sources:
            self._end(fetch)
            # Peers that have the block show more work: synchronisation finds it.
            self._on_orphan()
            return
        self._look_again(fetch, _LOOK_SECONDS)

    def _next(self, fetch: _Fetch) -> Peer | None:
        """The best of the peers that have announced the block, or show it as their tip, and have not been asked.

        Of acquaintances in one part of the network one comes before those in other parts, and the rest after them.
        """
        parts = {self._peers.part_of(peer) for peer in fetch.asked.values()}

        def rank(peer: Peer) -> tuple[bool, ...]:
            crowd = not peer.outbound and self._peers.part_of(peer) in parts
            return self._slow.has(peer), crowd, not peer.outbound, not peer.delivered

        having = [peer for peer in self._peers.all() if peer.has(fetch.header.hash)]
        return min((peer for peer in having if peer.endpoint not in fetch.asked), key=rank, default=None)

    def _ask(self, peer: Peer, fetch: _Fetch) -> None:
        source = _Source(peer, self._home.now(), trusted=not self._slow.has(peer))
        fetch.asked[peer.endpoint] = peer
        fetch.sources.append(source)
        bodies = self._peers.client.bodies(peer.endpoint, [fetch.header], source.note_bytes)
        source.call = Deferred.fromCoroutine(bodies)
        Deferred.fromCoroutine(self._fetch_from(source, source.call, fetch)).addErrback(self._log_failure)

    async def _fetch_from(self, source: _Source, call: Deferred[Bodies], fetch: _Fetch) -> None:
        """Take what a peer delivers; where it does not, the next is asked."""
        peer = source.peer
        try:
            bodies = await call
        except CancelledError:
            self.log.debug("{endpoint} is not waited for any longer", endpoint=peer.endpoint)
            return
        except CallFailed as failed:
            self.log.debug("{endpoint} did not deliver a block: {why}", endpoint=peer.endpoint, why=failed.detail)
            if failed.trouble is Trouble.TIMEOUT:
                self._slow.add(peer)
            if failed.trouble is Trouble.FALSE and self._peers.get(peer.endpoint) is peer:
                self._peers.punish(peer, seconds=INVALID_SECONDS, why=failed.detail)
            bodies = Bodies([], 0)
        finally:
            if source in fetch.sources:
                fetch.sources.remove(source)
        if fetch.over:
            return
        if not bodies.blocks:
            self._look_again(fetch, 0.0)
            return
        peer.delivered = True
        self._note_late(fetch)
        fetch.end()
        try:
            outcome = await self._submit(bodies.blocks[0])
        finally:
            self._end(fetch)
        if isinstance(outcome, Exception):
            # Its header promised no more: a block with good work and an invalid state is its producer's fault.
            self.log.info("an announced block is not connected: {why}", why=str(outcome))

    def _arrived(self, fetch: _Fetch) -> None:
        """The block is here, and did not come from those who were asked for it."""
        self._note_late(fetch)
        self._end(fetch)

    def _note_late(self, fetch: _Fetch) -> None:
        """Remember who had a head start, and has been overtaken with next to nothing."""
        now = self._home.now()
        for source in fetch.sources:
            asked_early = not source.pushes and now - source.began >= HEAD_START_SECONDS
            if asked_early and source.rate(now) < LEAST_RATE and not fetch.over:
                self._slow.add(source.peer)

    def _end(self, fetch: _Fetch) -> None:
        """End the fetch and forget it."""
        fetch.end()
        if self._fetches.get(fetch.header.hash) is fetch:
            del self._fetches[fetch.header.hash]

    async def _submit(self, block: Block) -> Outcome:
        (outcome,) = await self._home.ledger.submit_blocks([block])
        return outcome

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("fetching an announced block failed", failure)
