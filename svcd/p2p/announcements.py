"""Announced blocks: a peer tells the header of a new block, and this node fetches the block (docs/peers.md "Relay")."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.block import Block, Header, parse_header
from svcd.chain.errors import NotYet, RuleViolation, Wait
from svcd.chain.transition import ChainPoint
from svcd.net.endpoint import Endpoint
from svcd.node.changes import Change, Outcome
from svcd.p2p.bans import BANNED, INVALID_SECONDS, MALFORMED_TOKENS, PostBans, ban_persistent
from svcd.p2p.client import Bodies
from svcd.p2p.fields import BOOLEAN, HASH, OBJECT, TEXT
from svcd.p2p.handshake import LocalNode
from svcd.p2p.peers import Peer, Peers
from svcd.p2p.relay import WANTED
from svcd.p2p.transport import CallFailed, Trouble
from svcd.web.answers import Answer
from svcd.web.errors import HttpError
from svcd.web.routing import Field, Route, object_schema

MAX_FETCHES: Final = 8
"""Announced blocks that are fetched at a time."""
MAX_ANNOUNCERS: Final = 4
"""Peers that one of them may be fetched from, one after the other."""
FETCH_SECONDS: Final = 30.0
"""How long one of them may take to deliver while another waits to be asked."""
PUSH_SECONDS: Final = 60.0
"""How long a peer that announced a block and sends it has for that, while no other peer announces it."""
BROKEN_SECONDS: Final = 3_600.0
"""How long no block is waited for that is sent from the part of the network of a peer that did not send one."""
MAX_CHECKS: Final = 16
"""Announced headers whose work is checked at a time; each costs an Argon2."""
_REMEMBERED: Final = 1_024
ASKED: Final = "asked"
KNOWN: Final = "known"


def _boolean(value: object) -> bool:
    if type(value) is bool:
        return value
    raise ValueError("must be true or false")


def _endpoint(value: object) -> Endpoint | None:
    if type(value) is str:
        return Endpoint(value) if value else None
    raise ValueError("must be a string")


@define(eq=False)
class _Fetch:
    """A block that a peer sends or is asked for, and the other peers that have announced it."""

    header: Header
    began: float
    """When it was announced first (Unix seconds)."""
    pusher: Peer | None = None
    """The peer that sends it of itself; None where it is asked for."""
    announcers: list[Peer] = field(factory=list)
    """Those that are still to be asked, in order."""
    endpoints: set[str] = field(factory=set)
    """Of all that have announced it."""
    call: Deferred[Any] | None = None
    """What is waited for."""
    overdue: bool = False
    """Whether the peer that sends it, or is being asked, has had its time."""
    arrived: bool = False

    def add(self, peer: Peer | None) -> None:
        """Note one more peer that announces the block; each is asked once."""
        if peer is None or peer is self.pusher or peer.endpoint in self.endpoints:
            return
        if len(self.endpoints) < MAX_ANNOUNCERS:
            self.endpoints.add(peer.endpoint)
            self.announcers.append(peer)
            if self.overdue:
                self.give_up()

    def take_too_long(self) -> None:
        """Ask another peer, as soon as there is one."""
        self.overdue = True
        if self.announcers:
            self.give_up()

    def give_up(self) -> None:
        """End the transfer that is under way, or the wait for one."""
        if self.call is not None:
            self.call.cancel()

    def end(self) -> None:
        """Ask no peer any more."""
        self.announcers.clear()
        self.arrived = True
        self.give_up()


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
        self._broken: OrderedDict[str, float] = OrderedDict()
        """Until when (Unix seconds) no block is waited for from a part of the network, or an endpoint."""
        self._stopping = False

    def stop(self) -> None:
        """Give up what is being fetched, and fetch nothing any more."""
        self._stopping = True
        for fetch in tuple(self._fetches.values()):
            fetch.end()

    def chain_changed(self, change: Change) -> None:
        """End what is done for a block that has come."""
        if (fetch := self._fetches.get(change.tip.hash)) is not None:
            fetch.end()

    def is_coming(self, block_hash: bytes) -> bool:
        """Whether a new block is being fetched from a peer that announced it, or sent by one, for a minute at most."""
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
            Field("push", _boolean, BOOLEAN, "Whether the caller sends the block.", required=False, default=False),
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
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            fetch.add(announcer)
            return ASKED
        parent = ledger.reader.point(header.parent_hash)
        if parent is None:
            self._on_orphan()
            return Wait.ORPHAN
        failure = await self._check(parent, header)
        if isinstance(failure, RuleViolation):
            raise failure
        if failure is not None:
            return Wait.EARLY
        if not header.transaction_count:
            outcome = await self._submit(Block(header, ()))
            if isinstance(outcome, Exception):
                raise outcome
            return KNOWN
        if (fetch := self._fetches.get(header.hash)) is not None:
            # Another peer has announced it while its work was checked.
            fetch.add(announcer)
            return ASKED
        if announcer is None or len(self._fetches) >= MAX_FETCHES or self._stopping:
            return WANTED
        if push and not self._may_push(announcer):
            return WANTED
        fetch = self._fetches[header.hash] = _Fetch(header, self._home.now(), announcer if push else None)
        fetch.add(announcer)
        Deferred.fromCoroutine(self._fetch(fetch)).addErrback(self._log_failure)
        return WANTED if push else ASKED

    def _may_push(self, peer: Peer) -> bool:
        """Whether to ask no other peer for a block while ``peer`` sends it."""
        return self._broken.get(self._peers.part_of(peer), 0.0) <= self._home.now()

    async def _is_pushed(self, pusher: Peer, fetch: _Fetch) -> bool:
        """Wait for a block that ``pusher`` sends, half as long once another peer has announced it; whether it came."""
        for seconds in (FETCH_SECONDS, PUSH_SECONDS - FETCH_SECONDS):
            await self._wait(fetch, seconds)
            if fetch.arrived or self._home.ledger.reader.point(fetch.header.hash) is not None:
                return True
            if fetch.announcers:
                break
            fetch.overdue = True
        # Else the first to announce a block could keep it from this node, each one anew.
        self._broken[self._peers.part_of(pusher)] = self._home.now() + BROKEN_SECONDS
        self._broken.move_to_end(self._peers.part_of(pusher))
        if len(self._broken) > _REMEMBERED:
            self._broken.popitem(last=False)
        return False

    async def _wait(self, fetch: _Fetch, seconds: float) -> None:
        """Wait so long, or until another peer is to be asked, or none."""
        fetch.call = Deferred()
        timer = self._home.clock.callLater(seconds, fetch.call.callback, None)
        try:
            await fetch.call
        except CancelledError:
            timer.cancel()
        finally:
            fetch.call = None

    async def _check(self, parent: ChainPoint, header: Header) -> RuleViolation | NotYet | None:
        """Why a header cannot follow on ``parent`` at present, or at all; raises NotYet where too many wait."""
        if self._checks >= MAX_CHECKS:
            raise NotYet(Wait.BUSY, f"{MAX_CHECKS} announced headers wait for the check of their work; try again later")
        self._checks += 1
        try:
            return (await self._home.ledger.check_headers(parent, [header])).failure
        finally:
            self._checks -= 1

    async def _fetch(self, fetch: _Fetch) -> None:
        """Fetch the block from one announcer after the other until one delivers it, unless it is sent."""
        try:
            if fetch.pusher is not None and await self._is_pushed(fetch.pusher, fetch):
                return
            while fetch.announcers:
                if await self._fetch_from(fetch.announcers.pop(0), fetch):
                    return
        finally:
            del self._fetches[fetch.header.hash]
        if not fetch.arrived:
            # Peers that have the block show more work: synchronisation finds it.
            self._on_orphan()

    async def _fetch_from(self, peer: Peer, fetch: _Fetch) -> bool:
        if self._peers.get(peer.endpoint) is not peer:
            return False
        try:
            bodies = await self._bodies(peer, fetch)
        except CancelledError:
            self.log.debug("{endpoint} is not waited for any longer", endpoint=peer.endpoint)
            return False
        except CallFailed as failed:
            self.log.debug("{endpoint} did not deliver a block: {why}", endpoint=peer.endpoint, why=failed.detail)
            if failed.trouble is Trouble.FALSE and self._peers.get(peer.endpoint) is peer:
                self._peers.punish(peer, seconds=INVALID_SECONDS, why=failed.detail)
            return False
        if not bodies.blocks or fetch.arrived:
            return fetch.arrived
        peer.delivered = True
        outcome = await self._submit(bodies.blocks[0])
        if isinstance(outcome, Exception):
            # Its header promised no more: a block with good work and an invalid state is its producer's fault.
            self.log.info("an announced block is not connected: {why}", why=str(outcome))
        return True

    async def _bodies(self, peer: Peer, fetch: _Fetch) -> Bodies:
        """What ``peer`` delivers; raises CallFailed, or CancelledError once another peer is to be asked."""
        fetch.overdue = False
        call: Deferred[Bodies] = Deferred.fromCoroutine(self._peers.client.bodies(peer.endpoint, [fetch.header]))
        fetch.call = call
        timer = self._home.clock.callLater(FETCH_SECONDS, fetch.take_too_long)
        try:
            return await call
        finally:
            fetch.call = None
            if not fetch.overdue:
                timer.cancel()

    async def _submit(self, block: Block) -> Outcome:
        (outcome,) = await self._home.ledger.submit_blocks([block])
        return outcome

    def _log_failure(self, failure: Failure) -> None:
        self.log.failure("fetching an announced block failed", failure)
