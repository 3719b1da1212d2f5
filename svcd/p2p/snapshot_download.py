"""Snapshot download: the state after a block, in chunks, from every peer that serves the snapshot.

Each chunk is checked alone against the state root in the block's verified header, so the peer that sent a false one is
known: it is banned, and the chunk comes from another (docs/peers.md "Snapshots").
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.snapshot import CHUNK_ACCOUNTS, RECORD_BYTES, Manifest
from svcd.limits import ENDLESS_ANSWER, STALLING_PEER, limit
from svcd.p2p.block_download import DownloadFailed, Wakeup
from svcd.p2p.client import PeerStatus, SnapshotClaim
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.schedule import SLOW_SECONDS, Item, ItemsRequest, Schedule, Source
from svcd.p2p.transport import FailureKind, PeerCallFailed

WINDOW_BYTES: Final = limit(
    8 * CHUNK_ACCOUNTS * RECORD_BYTES,
    "size of the chunks of a snapshot that are requested or wait for the disk",
    "bytes",
    ENDLESS_ANSWER,
)
"""Eight of the largest chunks, once they come quickly; a quarter of it on a slow line."""
STALL_SECONDS: Final = limit(60.0, "time without a byte of a snapshot", "seconds", STALLING_PEER)
"""How long a snapshot is fetched while no peer sends any of it; an outage does not count."""
CHUNK_SECONDS: Final = limit(240.0, "time without a chunk of a snapshot", "seconds", STALLING_PEER)
"""The same while bytes come, and no chunk is whole: on a line of 50 kbit/s it takes so long."""
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
        self._manifest_asked_at = -inf
        """When a peer was last asked for the manifest (the node's seconds)."""
        self._missing = 0
        """How many chunks are not on disk yet."""
        self._schedule: Schedule[Item] = Schedule(window=WINDOW_BYTES // 4, most_items=1, most_bytes=WINDOW_BYTES)
        """Of the chunks, in ascending order, so that the database grows at its end."""
        self._calls: dict[object, Deferred[None]] = {}
        """By request for a chunk, or by endpoint of a peer that is asked for the manifest."""
        self._liars, self._idle = liars, idle
        self._lied = False
        """Whether a peer has sent something false of this snapshot."""
        self._helped: set[str] = set()
        """Endpoints of the peers that have sent something true of this snapshot."""
        self._asked: set[str] = set()
        """Endpoints of the peers that were asked since the last delivery."""
        self._failure: Exception | None = None
        self._wakeup = Wakeup(self._node.clock)
        self._moved_at = self._delivered_at = peers.online_seconds
        """When bytes of a chunk, and a whole one, have come last, by the clock that an outage stops."""

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
        self._manifest = manifest
        for index in missing:
            self._schedule.want(Item(order=index, size=max(manifest.chunks[index].size, RECORD_BYTES)))
            self._missing += 1
        self._note_delivery()
        try:
            while self._missing:
                self._check()
                self._replace_slow_peers()
                self._send_requests(manifest, accept)
                await self._wakeup.wait(_CHECK_SECONDS)
        finally:
            self._cancel_requests()
            while self._schedule.held:
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
        if self._schedule.held:
            # While chunks wait for the disk no peer may be asked for more.
            return
        what, now = "the manifest" if self._manifest is None else "a chunk", self._peers.online_seconds
        for since, seconds in ((self._moved_at, STALL_SECONDS), (self._delivered_at, CHUNK_SECONDS)):
            if now - since >= seconds:
                self._idle |= self._asked
                raise DownloadFailed(f"no peer has sent {what} for {seconds:g} s")

    def _note_delivery(self) -> None:
        self._moved_at = self._delivered_at = self._peers.online_seconds
        self._asked = {request.source.name for request in self._schedule.requests}

    def _serves(self, peer: Peer) -> bool:
        """Whether a peer serves the snapshot and has sent nothing false."""
        claims = () if peer.status is None else peer.status.snapshots
        return self.claim in claims and peer.endpoint not in self._liars

    def _sources(self) -> list[Source]:
        """The peers that may have what is missing, in the order in which they are asked."""
        sources = self._schedule.sources
        self._schedule.update_sources(self._peers.in_relay_order(), self._peers.has)
        for source in sources.values():
            peer = source.peer
            able = self._peers.has(peer) and self._serves(peer) and source.name not in self._idle
            source.paused, source.preference = peer.is_paused or not able, (not peer.outbound,)
        return sorted(sources.values(), key=lambda source: source.rank)

    def _replace_slow_peers(self) -> None:
        """Request from other peers what would come much sooner from them."""
        now = self._node.now()
        for request in tuple(self._schedule.requests):
            if self._schedule.overdue(request.items[0], now) is not None:
                self._schedule.give_up(request, now)
                self._calls[request].cancel()

    def _send_requests(self, manifest: Manifest, accept: Accept) -> None:
        for source in self._sources():
            while chosen := self._schedule.choose(source, self._node.now()):
                request = self._schedule.begin(source, chosen, self._node.now())
                self._begin(request, source, self._fetch(request, manifest, accept))

    def _request_manifest(self) -> None:
        """Ask one peer more, unless one was asked just now: a reply that trickles is not waited for."""
        now = self._node.now()
        if self._calls and now - self._manifest_asked_at < SLOW_SECONDS:
            return
        for source in self._sources():
            if source.name not in self._calls and not source.rests(now):
                self._manifest_asked_at = now
                self._begin(source.name, source, self._fetch_manifest(source))
                return

    def _begin(self, name: object, source: Source, work: Coroutine[Any, Any, None]) -> None:
        self._asked.add(source.name)
        call = self._calls[name] = Deferred.fromCoroutine(work)
        call.addErrback(self._failed).addCallback(lambda _: self._ended(name))

    def _ended(self, name: object) -> None:
        self._calls.pop(name, None)
        self._wakeup.set()

    def _cancel_requests(self) -> None:
        """Cancel the requests; what has come is still written."""
        for name, call in tuple(self._calls.items()):
            if not isinstance(name, ItemsRequest) or name in self._schedule.requests:
                call.cancel()

    async def _fetch_manifest(self, source: Source) -> None:
        try:
            manifest = await self._peers.client.manifest(source.name, self.claim, self._state_root)
        except PeerCallFailed as failed:
            self._note_failure(source, failed)
            return
        self._manifest = manifest
        self._helped.add(source.name)

    async def _fetch(self, request: ItemsRequest[Item], manifest: Manifest, accept: Accept) -> None:
        source, (chunk,) = request.source, request.items
        try:
            accounts = await self._peers.client.chunk(
                source.name, manifest, chunk.order, partial(self._note_bytes, request)
            )
            self._schedule.answered(request, [chunk], chunk.size, self._node.now())
        except PeerCallFailed as failed:
            self._note_failure(source, failed)
            return
        finally:
            self._schedule.end(request)
        if self._node.now() - request.began < SLOW_SECONDS:
            self._schedule.window = min(self._schedule.window + chunk.size, WINDOW_BYTES)
        source.peer.credit_delivery()
        self._helped.add(source.name)
        self._note_delivery()
        try:
            await accept(chunk.order, accounts)
            self._missing -= 1
        finally:
            self._schedule.held -= chunk.size
            self._note_delivery()

    def _note_bytes(self, request: ItemsRequest[Item], count: int) -> None:
        request.received += count
        if request.received <= request.size:
            # Further bytes will never be a chunk.
            self._moved_at = self._peers.online_seconds

    def _failed(self, failure: Failure) -> None:
        # A request is cancelled when another peer will send the chunk much sooner, and at the end.
        if not failure.check(CancelledError):  # type: ignore[no-untyped-call]
            self.stop(failure.value if isinstance(failure.value, Exception) else RuntimeError(str(failure.value)))

    def _note_failure(self, source: Source, failed: PeerCallFailed) -> None:
        if failed.kind is FailureKind.INVALID:
            self._liars.add(source.name)
            self._lied = True
            self._peers.ban(source.peer, failed.detail)
            return
        if not failed.retry_after:
            source.fail(self._node.now())
        self._peers.count_failure(source.peer, failed)
