"""Snapshot download: the state after a block, in chunks, from every peer that serves the snapshot.

Each chunk is checked alone against the state root in the block's verified header, so the peer that sent a false one is
known: it is banned, and the chunk comes from another (docs/peers.md "Snapshots").
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from attrs import define
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.snapshot import Manifest
from svcd.limits import ENDLESS_ANSWER, STALLING_PEER, limit
from svcd.p2p.block_download import DownloadFailed, Wakeup
from svcd.p2p.client import PeerStatus, SnapshotClaim
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.transport import FailureKind, PeerCallFailed

MAX_REQUESTS: Final = limit(2, "requests for chunks of a snapshot under way to one peer", "requests", STALLING_PEER)
MAX_CHUNKS_HELD: Final = limit(
    8, "chunks of a snapshot that are requested or wait for the disk", "chunks", ENDLESS_ANSWER
)
STALL_SECONDS: Final = limit(60.0, "time without a peer that delivers of a snapshot", "seconds", STALLING_PEER)
"""How long a snapshot is fetched while no peer delivers any of it; an outage does not count."""
SLOW_SECONDS: Final = 10.0
"""How old a request is before another peer is asked for the same."""
FAILED_BACKOFF: Final = 10.0
"""How long nothing is requested from a peer that has not answered."""
_CHECK_SECONDS: Final = 1.0

Accounts = Sequence[tuple[bytes, Account]]
Accept = Callable[[int, Accounts], Deferred[None]]
"""Takes the accounts of a chunk, by its index; the Deferred fires when they are on disk."""


class SourcesLied(DownloadFailed):
    """Each peer that served the snapshot has sent something false of it, so the manifest may be false as well."""


def choose_snapshot(
    statuses: Iterable[PeerStatus],
    hash_at: Callable[[int], bytes | None],
    *,
    newest: int,
    every: int,
) -> SnapshotClaim | None:
    """The snapshot to start from, of those in the ``statuses`` of peers: the highest, then the one with most sources.

    ``hash_at`` gives the hash of the block at a height in the verified chain, None for none. Only blocks up to the
    height ``newest`` are considered of which honest nodes make snapshots: those at multiples of ``every``.
    """
    sources = Counter(claim for status in statuses for claim in set(status.snapshots))
    able = [
        claim
        for claim in sources
        if 0 < claim.height <= newest and claim.height % every == 0 and hash_at(claim.height) == claim.hash
    ]
    return max(able, key=lambda claim: (claim.height, sources[claim], claim.digest), default=None)


@define(eq=False)
class _Request:
    """One request for the manifest or for a chunk."""

    peer: Peer
    index: int | None
    """Of the chunk; None for the manifest."""
    began: float
    """The node's seconds."""
    call: Deferred[None] | None = None


class SnapshotDownload:
    """Fetches the manifest and the missing chunks of one snapshot."""

    log = Logger()

    def __init__(
        self, peers: Peers, claim: SnapshotClaim, state_root: bytes, *, liars: set[str], idle: set[str]
    ) -> None:
        """``state_root`` is that of the verified header of the snapshot's block.

        ``liars`` are the endpoints of peers that are not asked, even if they are not banned; those that send what is
        false are added. Nor are the ``idle`` ones, to which those are added that were asked and have delivered nothing
        when the download fails for want of deliveries.
        """
        self._peers = peers
        self._node = peers.node
        self.claim = claim
        self._state_root = state_root
        self._manifest: Manifest | None = None
        self._missing: set[int] = set()
        """The chunks that are not accepted yet."""
        self._writing: set[int] = set()
        """The chunks that have come and are not on disk yet."""
        self._requests: list[_Request] = []
        self._backoff: dict[str, float] = {}
        """By endpoint, until when (the node's seconds) nothing is requested."""
        self._liars, self._idle = liars, idle
        self._lied = False
        """Whether a peer has sent something false of this snapshot."""
        self._helped: set[str] = set()
        """Endpoints of the peers that have sent something true of this snapshot."""
        self._asked: set[str] = set()
        """Endpoints of the peers that were asked since the last delivery."""
        self._failure: Exception | None = None
        self._wakeup = Wakeup(self._node.clock)
        self._delivered_at = peers.online_seconds
        """When a peer has delivered last, by the clock that an outage stops."""
        self.received = 0
        """Bytes of chunks that have come."""
        self._received_before = 0
        """Those that had come at the last delivery."""
        self._most_held = MAX_CHUNKS_HELD
        """How many chunks are requested or wait for the disk at most; fewer on a line that is slow for so many."""

    def stop(self, failure: Exception) -> None:
        """Give up; the coroutine that runs raises ``failure``."""
        self._failure = self._failure or failure
        self._wakeup.set()

    async def manifest(self) -> Manifest:
        """Fetch the manifest, from the first of several peers that sends it; raises DownloadFailed."""
        try:
            while self._manifest is None:
                self._check()
                self._request_manifest()
                await self._wakeup.wait(_CHECK_SECONDS)
            return self._manifest
        finally:
            self._cancel_requests()

    async def chunks(self, manifest: Manifest, missing: Iterable[int], accept: Accept) -> None:
        """Fetch the ``missing`` chunks, by index; raises DownloadFailed, or what ``accept`` fails with."""
        self._manifest, self._missing = manifest, set(missing)
        self._note_delivery()
        try:
            while self._missing:
                self._check()
                self._send_requests(accept)
                await self._wakeup.wait(_CHECK_SECONDS)
        finally:
            self._cancel_requests()
            while self._writing:
                await self._wakeup.wait(_CHECK_SECONDS)
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        """Raise why nothing more is fetched, if so."""
        if self._failure is not None:
            raise self._failure
        others = self._helped - self._liars or any(self._serves(peer) for peer in self._peers.all())
        if self._lied and not others:
            raise SourcesLied("each peer that served it has sent something false")
        # While chunks wait for the disk no peer may be asked for more.
        if not self._writing and self._peers.online_seconds - self._delivered_at >= STALL_SECONDS:
            if self._shares_a_slow_line():
                self._go_on_with_one()
                return
            self._idle |= self._asked
            what = "the manifest" if self._manifest is None else "a chunk"
            raise DownloadFailed(f"no peer has sent {what} for {STALL_SECONDS:g} s")

    def _shares_a_slow_line(self) -> bool:
        """Whether one chunk would have come, if only one had been requested: then the peers are not to blame."""
        sizes = [] if self._manifest is None else [chunk.size for chunk in self._manifest.chunks]
        return self._most_held > 1 and bool(sizes) and self.received - self._received_before >= max(sizes)

    def _go_on_with_one(self) -> None:
        """Request one chunk at a time, and one more after each that comes quickly."""
        self._most_held = 1
        for request in self._requests[1:]:
            if request.call is not None:
                request.call.cancel()
        self._note_delivery()

    def _note_delivery(self) -> None:
        self._received_before = self.received
        self._delivered_at = self._peers.online_seconds
        self._asked = {request.peer.endpoint for request in self._requests}

    def _serves(self, peer: Peer) -> bool:
        """Whether a peer serves the snapshot and has sent nothing false."""
        claims = () if peer.status is None else peer.status.snapshots
        return self.claim in claims and peer.endpoint not in self._liars

    def _sources(self) -> list[Peer]:
        """The peers to ask at present, in a random order."""
        now = self._node.now()
        return [
            peer
            for peer in self._peers.in_relay_order()
            if self._serves(peer)
            and peer.endpoint not in self._idle
            and not peer.is_paused
            and self._backoff.get(peer.endpoint, 0.0) <= now
        ]

    def _send_requests(self, accept: Accept) -> None:
        sources = self._sources()
        for _ in range(MAX_REQUESTS):
            for peer in sources:
                own = [request for request in self._requests if request.peer is peer]
                index = self._next_chunk(peer, idle=not own)
                if len(own) < MAX_REQUESTS and index is not None:
                    self._request(peer, index, accept)

    def _next_chunk(self, peer: Peer, *, idle: bool) -> int | None:
        """The next chunk to request; an ``idle`` peer is also asked for one that another has not sent for long."""
        asked = {request.index for request in self._requests}
        if len(asked | self._writing) < self._most_held and (free := self._missing - asked - self._writing):
            # In ascending order, so that the database grows at its end.
            return min(free)
        late = [request for request in self._requests if self._node.now() - request.began >= SLOW_SECONDS]
        twice = {index for index, count in Counter(request.index for request in self._requests).items() if count > 1}
        slow = [request for request in late if request.peer is not peer and request.index not in twice]
        return slow[0].index if idle and slow else None

    def _request_manifest(self) -> None:
        """Ask one peer more, unless one was asked just now: a reply that trickles is not waited for."""
        asked = [request.peer for request in self._requests]
        if all(self._node.now() - request.began >= SLOW_SECONDS for request in self._requests):
            for peer in self._sources():
                if peer not in asked:
                    request = _Request(peer, None, self._node.now())
                    self._begin(request, self._fetch_manifest(request))
                    return

    def _request(self, peer: Peer, index: int, accept: Accept) -> None:
        request = _Request(peer, index, self._node.now())
        self._begin(request, self._fetch(request, index, accept))

    def _begin(self, request: _Request, work: Coroutine[Any, Any, None]) -> None:
        self._requests.append(request)
        self._asked.add(request.peer.endpoint)
        request.call = Deferred.fromCoroutine(work)
        request.call.addErrback(self._failed).addCallback(lambda _: self._wakeup.set())

    def _cancel_requests(self) -> None:
        for request in tuple(self._requests):
            if request.call is not None:
                request.call.cancel()

    async def _fetch_manifest(self, request: _Request) -> None:
        peer = request.peer
        try:
            manifest = await self._peers.client.manifest(peer.endpoint, self.claim, self._state_root)
        except PeerCallFailed as failed:
            self._note_failure(peer, failed)
            return
        finally:
            self._requests.remove(request)
        self._manifest = manifest
        self._helped.add(peer.endpoint)

    async def _fetch(self, request: _Request, index: int, accept: Accept) -> None:
        peer, manifest = request.peer, self._manifest
        if manifest is None:
            return
        try:
            accounts = await self._peers.client.chunk(peer.endpoint, manifest, index, self._note_bytes)
        except PeerCallFailed as failed:
            self._note_failure(peer, failed)
            return
        finally:
            self._requests.remove(request)
        peer.credit_delivery()
        self._helped.add(peer.endpoint)
        self._note_delivery()
        if self._node.now() - request.began < SLOW_SECONDS:
            self._most_held = min(self._most_held + 1, MAX_CHUNKS_HELD)
        if index in self._writing or index not in self._missing:
            return
        self._writing.add(index)
        for other in tuple(self._requests):
            if other.index == index and other.call is not None:
                other.call.cancel()
        try:
            await accept(index, accounts)
            self._missing.discard(index)
        finally:
            self._writing.discard(index)
            self._note_delivery()

    def _note_bytes(self, count: int) -> None:
        self.received += count

    def _failed(self, failure: Failure) -> None:
        # A request is cancelled when the chunk has come from another peer, and at the end.
        if not failure.check(CancelledError):  # type: ignore[no-untyped-call]
            self.stop(failure.value if isinstance(failure.value, Exception) else RuntimeError(str(failure.value)))

    def _note_failure(self, peer: Peer, failed: PeerCallFailed) -> None:
        if failed.kind is FailureKind.INVALID:
            self._liars.add(peer.endpoint)
            self._lied = True
            self._peers.ban(peer, failed.detail)
            return
        if not failed.retry_after:
            self._backoff[peer.endpoint] = self._node.now() + FAILED_BACKOFF
        self._peers.count_failure(peer, failed)
