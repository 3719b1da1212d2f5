"""Passing on what is new: blocks to everybody at once, transfers a few at a time (docs/peers.md "Passing on").

Nobody waits for a slow peer, and a block waits for no transfer. What a peer is known to have is not sent to it, nor
back to where it came from.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import Final

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import Wait
from svcd.chain.transition import ChainPoint
from svcd.node.changes import Change
from svcd.node.mempool import Entry
from svcd.p2p.caller import CallFailed
from svcd.p2p.handing import Handing
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers

OTHERS: Final = 8
"""Acquaintances, beside the peers of our choice, that are told of what they have not shown."""
_LATER: Final = {0, 429, 503}
"""Statuses after which to offer the same again: none at all, too many requests, not at present."""
QUEUE: Final = 2_048
"""Transfers that may wait for one peer; beyond that the oldest are let go, and reach it by others."""
_REMEMBERED: Final = 16_384
_READ_AT_ONCE: Final = 250
"""Transfers of a block that are read without a pause."""
BLOCKS_IN_FLIGHT: Final = 2
"""Blocks that may be on their way to one peer; of later ones the newest waits."""
IN_FLIGHT: Final = 4
"""Transfers that may be on their way to one peer; as many as it has places for (svcd.net.pinned.PLACES)."""


@define(eq=False)
class _Outbox:
    """What waits to be sent to one peer, in order of arrival here, and the txids of what is on its way."""

    waiting: deque[Entry] = field(factory=lambda: deque(maxlen=QUEUE))
    flying: set[bytes] = field(factory=set)
    width: int = IN_FLIGHT
    """How many may be on their way; one only to a peer that has just had enough."""

    def next_for(self, peer: Peer) -> Entry | None:
        """The first transfer that ``peer`` lacks, which is on its way from now on."""
        while self.waiting:
            entry = self.waiting.popleft()
            txid = entry.transfer.txid
            if not peer.has(txid) and txid not in self.flying:
                self.flying.add(txid)
                return entry
        return None

    def put_back(self, entry: Entry) -> None:
        """Let a transfer wait again, before those that came later; where the queue is full it is the oldest."""
        later = (index for index, other in enumerate(self.waiting) if other.sequence > entry.sequence)
        if len(self.waiting) < QUEUE:
            self.waiting.insert(next(later, len(self.waiting)), entry)


@frozen
class _Parcel:
    """A block as it is sent, with its hash, and the digest under which whoever handed it in is known to have it."""

    hash: bytes
    wire: bytes
    digest: bytes


@define(eq=False)
class _BlockBox:
    """How many blocks are on their way to one peer, and the newest that waits for one of these to be taken."""

    flying: int = 0
    waiting: _Parcel | None = None


class Relay:
    """Tells peers of new blocks and transfers, after they have been committed here."""

    log = Logger()

    def __init__(self, peers: Peers, recent: Callable[[int], Iterable[Entry]]) -> None:
        """Make it; ``recent(count)`` gives at most so many waiting transfers, the last that came, in their order."""
        self._peers = peers
        self._recent = recent
        self._told: OrderedDict[bytes, None] = OrderedDict()
        """The txids that some peer has taken."""
        self._home = peers.home
        self._client = peers.client
        self._outboxes: dict[str, _Outbox] = {}
        self._blocks: dict[str, _BlockBox] = {}
        """By endpoint, those to whom a block is on its way."""
        self._newest = b""
        self.handing = Handing(peers)

    def chain_changed(self, change: Change) -> None:
        """Offer the new tip; a peer that lacks its parents asks for them."""
        if not change.applied:
            return
        tip = change.tip
        self._newest = tip.hash
        for box in self._blocks.values():
            # The new one is offered instead, to those who have not shown it.
            box.waiting = None
        peers = [peer for peer in self._in_order() if not peer.has(tip.hash) and not _is_further(peer, tip)]
        if not peers:
            return
        self._begin(self._offer(tip.hash, peers))

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        """Queue new transfers for peers that have not shown them."""
        if not added:
            return
        peers = self._in_order()
        self._outboxes = {peer.endpoint: self._outboxes.get(peer.endpoint) or _Outbox() for peer in peers}
        for entry in added:
            txid = entry.transfer.txid
            for peer in _some(peer for peer in peers if not peer.has(txid)):
                self._outboxes[peer.endpoint].waiting.append(entry)
        for peer in peers:
            self._send_waiting(peer, self._outboxes[peer.endpoint])

    def met(self, peer: Peer) -> None:
        """Queue for a new peer what nobody has been told of: it came while nobody could be reached."""
        waiting = [entry for entry in self._recent(QUEUE) if entry.transfer.txid not in self._told]
        self._outboxes[peer.endpoint] = _Outbox(deque(waiting, QUEUE))
        self._send_waiting(peer, self._outboxes[peer.endpoint])

    def _in_order(self) -> list[Peer]:
        """Every peer, those of our choice first, the others by chance: the same eight might keep all to themselves."""
        random = self._peers.book.random
        return sorted(self._peers.all(), key=lambda peer: (not peer.outbound, 0.0 if peer.outbound else random()))

    async def _offer(self, block_hash: bytes, peers: Sequence[Peer]) -> None:
        wire = await self._block(block_hash)
        if wire is None:
            return
        parcel = _Parcel(block_hash, wire, sha256(wire).digest())
        for peer in _some(peer for peer in peers if not peer.has(parcel.digest)):
            box = self._blocks.setdefault(peer.endpoint, _BlockBox())
            box.waiting = parcel
            self._send_block(peer, box)

    async def _block(self, block_hash: bytes) -> bytes | None:
        """A block in canonical JSON, of a full one a part at a time, for the reactor has other work too.

        None if a newer one comes meanwhile, or nobody is left to be told.
        """
        reader = self._home.ledger.reader
        stored = reader.stored(block_hash)
        if stored is None:
            raise LookupError(f"block {block_hash.hex()} has been committed and is not on disk")
        bodies: list[bytes] = []
        while len(part := reader.some_bodies(stored, first=len(bodies), limit=_READ_AT_ONCE)) == _READ_AT_ONCE:
            bodies += part
            await self._turn()
            if block_hash != self._newest or not self._peers.all():
                return None
        bodies += part
        return reader.block_header(stored, self._home.params).wire(b",".join(bodies))

    def _turn(self) -> Deferred[None]:
        turn: Deferred[None] = Deferred()
        self._home.clock.callLater(0, turn.callback, None)
        return turn

    def _send_block(self, peer: Peer, box: _BlockBox) -> None:
        """Send what waits for a peer, as soon as fewer than two blocks are on their way to it."""
        parcel = box.waiting
        if parcel is not None and box.flying < BLOCKS_IN_FLIGHT:
            box.waiting = None
            if self._peers.get(peer.endpoint) is peer and not (peer.has(parcel.hash) or peer.has(parcel.digest)):
                peer.note(parcel.hash)
                box.flying += 1
                self._begin(self._post_block(peer, box, parcel.wire))
        if not box.flying:
            self._blocks.pop(peer.endpoint, None)

    async def _post_block(self, peer: Peer, box: _BlockBox, wire: bytes) -> None:
        try:
            receipt = await self._client.send_block(peer.endpoint, wire)
            if receipt.state == Wait.ORPHAN:
                # It lacks what is between, and may not be able to call us to ask for it.
                self.handing.begin(peer)
        except CallFailed as failed:
            self.log.debug("{endpoint} did not take a block: {why}", endpoint=peer.endpoint, why=failed.detail)
        finally:
            box.flying -= 1
        self._send_block(peer, box)

    def _send_waiting(self, peer: Peer, outbox: _Outbox) -> None:
        if self._peers.get(peer.endpoint) is not peer:
            return
        for _ in range(outbox.width - len(outbox.flying)):
            entry = outbox.next_for(peer)
            if entry is not None:
                self._begin(self._send_transfer(peer, outbox, entry))

    async def _send_transfer(self, peer: Peer, outbox: _Outbox, entry: Entry) -> None:
        try:
            sent = await self._sent(peer, entry)
        finally:
            outbox.flying.discard(entry.transfer.txid)
        if sent:
            outbox.width = min(outbox.width + 1, IN_FLIGHT)
            self._send_waiting(peer, outbox)
        else:
            # It goes on with the next transfer that comes: the peer may have had enough for now.
            outbox.width = 1
            outbox.put_back(entry)

    async def _sent(self, peer: Peer, entry: Entry) -> bool:
        """Whether the peer has been offered a transfer, so that it need not be offered again."""
        try:
            await self._client.send_transaction(peer.endpoint, entry.transfer.wire)
        except CallFailed as failed:
            self.log.debug("{endpoint} did not take a transfer: {why}", endpoint=peer.endpoint, why=failed.detail)
            return failed.status not in _LATER
        peer.note(entry.transfer.txid)
        self._told[entry.transfer.txid] = None
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return True

    def _begin(self, work: Coroutine[Deferred[object], object, None]) -> None:
        Deferred.fromCoroutine(work).addErrback(self._say_failed)

    def _say_failed(self, failure: Failure) -> None:
        self.log.failure("passing on failed", failure)


def _some(peers: Iterable[Peer]) -> list[Peer]:
    """Of ``peers`` in order all that we chose, and as many others as are told of what is new."""
    chosen: list[Peer] = []
    others = 0
    for peer in peers:
        chosen.append(peer)
        others += not peer.outbound
        if others == OTHERS:
            break
    return chosen


def _is_further(peer: Peer, tip: ChainPoint) -> bool:
    """Whether a peer has shown more work than ``tip``, so that we are the one who is catching up."""
    return peer.status is not None and peer.status.work > tip.work


def note_sender(peers: Peers, client: str | None, item: bytes) -> None:
    """Whoever handed something in has it: the only peer at the address of ``client``, if there is one.

    ``item`` is a txid, or the SHA-256 of a block's canonical JSON. What is posted is not signed by a node, so the
    address is all there is to go by; where several peers share it, none is left out.
    """
    if client is not None:
        there = [peer for peer in peers.all() if peer.is_at(client)]
        if len(there) == 1:
            there[0].note(item)
