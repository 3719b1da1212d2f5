"""A start from a snapshot: headers, then the state after a block, then both become the chain (docs/peers.md).

The headers of the chain with the most work are all fetched first. The state after a block far below its tip comes in
chunks, each checked against the state root in that block's header. Blocks follow from there on as on every other node.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import apsw
from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.accounts import Account
from svcd.chain.block import Header
from svcd.chain.forkchoice import prefers
from svcd.chain.snapshot import SNAPSHOT_BLOCKS, Manifest
from svcd.chain.transition import ChainHead, ChainPoint
from svcd.interfaces import Worker
from svcd.limits import STALLING_PEER, limit
from svcd.node.pinned_block import UnexpectedBlock
from svcd.p2p.block_download import DownloadFailed, Wakeup
from svcd.p2p.client import PeerStatus, SnapshotClaim
from svcd.p2p.headers import FalseClaim, HeaderBatch, HeaderStream, StreamEnded, count_first, judge
from svcd.p2p.own_errors import OwnErrors
from svcd.p2p.peer import Peer
from svcd.p2p.peers import Peers
from svcd.p2p.progress import LOG_SECONDS
from svcd.p2p.snapshot_download import SnapshotDownload, SourcesLied, choose_snapshot
from svcd.p2p.transport import PeerCallFailed
from svcd.quantities import duration
from svcd.store.database import DatabaseUnavailable, is_disk_trouble
from svcd.store.snapshot_staging import SnapshotStaging, StagingDamaged

T = TypeVar("T")

MIN_BLOCKS: Final = 10_080
"""A node starts from a snapshot, unless told otherwise, if headers show more blocks than these, a week's."""
DEPTH: Final = SNAPSHOT_BLOCKS
"""How far below the tip the block of the snapshot is, at least: no reorganisation is so deep."""
NOTHING_SECONDS: Final = 60.0
"""How long the node looks for headers or a snapshot that it can have, until it fetches all blocks.

Like the two below it does not count an outage, in which no peer answers.
"""
RETURN_SECONDS: Final = limit(
    300.0, "wait for the missing chunks of a snapshot before another one is begun", "seconds", STALLING_PEER
)
"""How long no peer delivers of a snapshot, some chunks of which are here, until another snapshot is begun instead."""
GIVE_UP_SECONDS: Final = limit(600.0, "time without any chunk until all blocks are fetched", "seconds", STALLING_PEER)
"""How long no peer delivers any chunk until the node fetches all blocks."""
MAX_BEGUN: Final = limit(10, "snapshots that are begun until all blocks are fetched", "snapshots", STALLING_PEER)
"""A peer can invent manifests without end whose chunks but one are right."""
MAX_TRIES: Final = 3
"""How often in a row a peer may fail to show the headers that it claims until the node no longer waits for it."""
TURN_SECONDS: Final = limit(
    120.0, "time until the headers of a start are requested from another peer", "seconds", STALLING_PEER
)
"""How long one peer is asked for headers, if others have them too: it may answer each request as late as it may."""
BRANCH_HEADERS: Final = limit(
    10_000, "headers of a branch that wait for proof of more work", "headers", "Endless headers of little work"
)
"""Headers of a chain that leaves the staged one, in memory until it has more work; further ones are fetched again."""
_RATE_SECONDS: Final = 60
_CHECK_SECONDS: Final = 1.0


class StartMode(StrEnum):
    """``[chain] start``: how a node without a chain begins."""

    AUTOMATIC = "automatic"
    """From a snapshot if headers show more than MIN_BLOCKS blocks, otherwise with all blocks."""
    BLOCKS = "blocks"
    SNAPSHOT = "snapshot"


@frozen
class StartSettings:
    """What a start from a snapshot needs of the node."""

    mode: StartMode
    staging: SnapshotStaging
    """For the thread of ``writer`` only."""
    writer: Worker
    has_active_watch_since: Callable[[int, int], Awaitable[bool]]
    """Whether an active watch looks for its payment from a height on, or from below.

    One that names no height counts if it was registered before a time, in Unix milliseconds.
    """
    refuse_watches_below: Callable[[int], Awaitable[None]]
    """Refuses, from then on, watches that look for their payment from below a height on, which is 0 for none."""


class _NotFromSnapshot(Exception):
    """There is no start from a snapshot; the text says why."""


class StartStage(StrEnum):
    """What a start from a snapshot fetches; blocks follow, as in every synchronisation."""

    HEADERS = "headers"
    STATE = "state"

    @property
    def unit(self) -> str:
        """What is counted in the stage."""
        return "chunks" if self is StartStage.STATE else "headers"


@frozen
class StageProgress:
    """How far a stage of a start from a snapshot has come."""

    stage: StartStage
    done: int
    """Headers, or chunks of the state."""
    target: int
    per_second: float
    """In the last minute."""

    @property
    def seconds_left(self) -> float | None:
        """None while nothing has come to estimate it by."""
        return (self.target - self.done) / self.per_second if self.per_second else None

    @property
    def bar(self) -> tuple[float, str]:
        """For a terminal: how much of the stage is done, from 0 to 1, and a few words."""
        return self.done / max(self.target, 1), f"{self.done} of {self.target} {self.stage.unit}{self.pace}"

    @property
    def pace(self) -> str:
        """The rate and the time left, after a comma; "" if they are not known."""
        left = self.seconds_left
        return "" if left is None else f", {self.per_second:.1f}/s, {duration(left)} left"

    def record(self) -> dict[str, object]:
        """The JSON object of the operator's status."""
        left = self.seconds_left
        return {
            "stage": self.stage,
            "done": str(self.done),
            "target": str(self.target),
            "perSecond": round(self.per_second, 1),
            "secondsLeft": None if left is None else round(left),
        }


@define
class _Gauge:
    """Counts what one stage has fetched."""

    stage: StartStage
    done: int
    target: int
    _seen: deque[tuple[float, int]]

    def read(self, now: float) -> StageProgress:
        """The progress at a time in seconds."""
        self._seen.append((now, self.done))
        while now - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()
        began, first = self._seen[0]
        rate = (self.done - first) / max(now - began, 1e-3)
        return StageProgress(self.stage, self.done, self.target, rate)


@define
class _Branch:
    """Verified headers on a staged block, which are staged once they have more work than those that are."""

    fork: ChainHead
    """The staged block."""
    tip: ChainHead
    """The last verified header."""
    headers: list[Header] = field(factory=list)
    heads: list[ChainHead] = field(factory=list)
    """Those of the headers that are kept, which are the first ones, as the blocks to build on."""

    def append(self, batch: HeaderBatch) -> None:
        """Add the valid headers of a batch."""
        self.tip = batch.heads[-1] if batch.heads else self.tip
        if len(self.headers) < BRANCH_HEADERS:
            self.headers += batch.headers[: len(batch.heads)]
            self.heads += batch.heads


@frozen
class _StagedHeaders:
    """The headers that are staged; those of a peer's chain are compared with them in the writer's thread."""

    _staging: SnapshotStaging
    _write: Callable[..., Deferred[Any]]

    async def height(self) -> int:
        """See :class:`svcd.p2p.headers.KnownHeaders`."""
        return int((await self._write(self._staging.tip)).height)

    async def hashes_at(self, heights: Sequence[int]) -> list[bytes]:
        """See :class:`svcd.p2p.headers.KnownHeaders`."""
        hashes: list[bytes] = await self._write(self._hashes_at, heights)
        return hashes

    def _hashes_at(self, heights: Sequence[int]) -> list[bytes]:
        points = map(self._staging.point, heights)
        return [point.hash for point in points if point is not None]

    async def count(self, headers: Sequence[Header]) -> int:
        """See :class:`svcd.p2p.headers.KnownHeaders`."""
        return int(await self._write(count_first, headers, self._has))

    def _has(self, header: Header) -> bool:
        return self._hashes_at([header.height]) == [header.hash]

    async def head(self, parent_of: Header) -> ChainHead | None:
        """See :class:`svcd.p2p.headers.KnownHeaders`."""
        head: ChainHead | None = await self._write(self._head, parent_of)
        return head

    def _head(self, parent_of: Header) -> ChainHead | None:
        height = parent_of.height - 1
        return self._staging.head(height) if self._hashes_at([height]) == [parent_of.parent_hash] else None


class SnapshotStart:
    """Starts a node without a chain from a snapshot, once; what it has is kept on disk, so that a kill costs little."""

    log = Logger()

    def __init__(self, peers: Peers, settings: StartSettings, *, ended: Callable[[], None]) -> None:
        """``ended`` is called when blocks are fetched from then on."""
        self._peers = peers
        self._node = peers.node
        self._mode, self._staging, self._writer = settings.mode, settings.staging, settings.writer
        self._has_active_watch_since = settings.has_active_watch_since
        self._refuse_watches_below = settings.refuse_watches_below
        self._own_errors = OwnErrors(peers.node.clock, "the start from a snapshot")
        self._ended = ended
        self._over = settings.mode is StartMode.BLOCKS
        """Whether the node has a chain, or is to fetch all blocks."""
        self._running: Deferred[None] | None = None
        self._stream: HeaderStream | None = None
        """The headers that are being fetched."""
        self._download: SnapshotDownload | None = None
        self._liars: set[str] = set()
        """Endpoints of peers that sent a false part of a snapshot."""
        self._idle: set[str] = set()
        """Endpoints of peers that were asked for a snapshot and have delivered nothing, since all were tried again."""
        self._doubted: set[SnapshotClaim] = set()
        """Snapshots of which only liars had anything."""
        self._begun = 0
        """How many snapshots have been begun."""
        self._delivered_at = 0.0
        """When the last chunk has come, by the clock that an outage stops."""
        self._unexpected: set[str] = set()
        """Endpoints of peers whose chain does not have the block that the operator expects."""
        self._wakeup = Wakeup(self._node.clock)
        self._stopping = False
        self._gauge: _Gauge | None = None
        self._shown_work = 0
        """The cumulative work of the headers that are staged."""
        self._said = 0.0

    # State

    @property
    def proven_work(self) -> int:
        """The cumulative work that the headers have shown, of which the state that was adopted has a part.

        No chain with less is followed: it may leave this one below the blocks that are here.
        """
        return self._node.chain_manager.proven_work

    @property
    def running(self) -> bool:
        """Whether a start from a snapshot is under way."""
        return self._running is not None

    def progress(self) -> StageProgress | None:
        """How far the present stage has come; None if none is under way."""
        return None if self._gauge is None else self._gauge.read(self._node.now())

    def describe(self) -> str:
        """How far it has come; "" if none is under way, or no headers have shown more work than there is here."""
        if self._running is None or self._shown_work <= self._node.chain_manager.tip.work:
            return ""
        gauge = self._gauge
        how_far = "" if gauge is None else f", {gauge.done} of {gauge.target} {gauge.stage.unit}"
        return f"the node starts from a snapshot of the state{how_far}"

    def begin(self) -> bool:
        """Begin, or go on, if there is a reason to; whether a start from a snapshot is under way."""
        if not (self._over or self._stopping or self._running or self._own_errors.pausing) and self._is_wanted():
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(self._failed).addBoth(self._finished).addErrback(self._failed)
        if self._running is not None and not self._peers.is_online:
            # Whether there is an outage must show soon: it may be a while until the next poll.
            self._peers.poll_all()
        return self._running is not None

    def _is_wanted(self) -> bool:
        chain_manager = self._node.chain_manager
        tip = chain_manager.tip
        if tip.height >= SNAPSHOT_BLOCKS or chain_manager.reader.prune_height():
            return False
        least = 2 * SNAPSHOT_BLOCKS if self._mode is StartMode.SNAPSHOT else MIN_BLOCKS
        return any(
            peer.status is not None and peer.status.height > least and peer.status.work > tip.work
            for peer in self._peers.all()
            if not peer.claims_are_paused
        )

    async def stop(self) -> None:
        """Stop; done when nothing of it is being written any more."""
        self._stopping = True
        self._wakeup.set()
        if self._stream is not None:
            self._stream.end()
        if self._download is not None:
            self._download.stop(DownloadFailed("the node is stopping"))
        if self._running is not None:
            done: Deferred[None] = Deferred()
            self._running.addBoth(lambda _: done.callback(None))
            await done

    def _finished(self, _: object) -> None:
        self._running = self._gauge = None
        if not self._stopping:
            self._ended()

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):  # type: ignore[no-untyped-call]
            self._own_errors.note(failure)

    async def _run(self) -> None:
        try:
            while not await self._is_whole():
                await self._fetch_headers()
                await self._fetch_state()
                # The chain has grown meanwhile, or another one has been met that has more work.
                await self._fetch_headers()
            progress = await self._write(self._staging.progress)
            if progress is not None and not self._stopping:
                await self._adopt(progress.manifest.height)
        except _NotFromSnapshot as why:
            if not self._stopping:
                self._over = True
                self.log.info("not starting from a snapshot: {why}; fetching all blocks", why=str(why))
                await self._write(self._staging.clear)
        except StagingDamaged as damage:
            self.log.warn("{why}; it is fetched again", why=str(damage))

    async def _adopt(self, height: int) -> None:
        """Make the state after the block at ``height``, which is whole, the chain; raises _NotFromSnapshot."""
        # From here on the blocks count as gone, so that no watch that needs them comes after the last look.
        await self._refuse_watches_below(height + 1)
        try:
            # Another run of the node may have chosen the state, or the start may have waited for long.
            await self._check_watches(height)
            if self._stopping:
                return
            self._gauge = None
            self.log.info("the state is complete; it becomes the chain")
            if await self._node.chain_manager.adopt_snapshot(self._staging):
                tip = self._node.chain_manager.tip
                self.log.info(
                    "the chain begins with the state after block {height}, {hash}",
                    height=tip.height,
                    hash=tip.hash.hex(),
                )
            self._over = True
        finally:
            await self._refuse_watches_below(0)

    async def _is_whole(self) -> bool:
        """Whether the state is here, of a block that is on the chain with the most work; or the node is stopping."""
        if self._stopping:
            return True
        progress, tip = await self._write(self._staging.progress), await self._write(self._staging.tip)
        return progress is not None and not progress.missing and self._most_work(tip) is None

    def _write(self, job: Callable[..., T], *args: Any) -> Deferred[T]:
        return self._writer.run(self._staged, job, *args)

    def _staged(self, job: Callable[..., T], *args: Any) -> T:
        with self._staging.discarding_damage():
            return job(*args)

    def _note(self, stage: StartStage, done: int, target: int) -> None:
        """Note how far a stage has come, and log it now and then."""
        now = self._node.now()
        if self._gauge is None or self._gauge.stage is not stage:
            self._gauge = _Gauge(stage, done, target, deque([(now, done)]))
        gauge = self._gauge
        gauge.done, gauge.target = done, max(done, target)
        if now - self._said >= LOG_SECONDS:
            self._said = now
            self.log.info(
                "starting from a snapshot: {done} of {target} {what}{_pace}",
                done=gauge.done,
                target=gauge.target,
                what=stage.unit,
                _pace=gauge.read(now).pace,
                _on_status_line=True,
            )

    # Headers

    async def _fetch_headers(self) -> None:
        """Fetch headers until no peer claims more work than they show; raises _NotFromSnapshot."""
        work, idle_since = -1, 0.0
        while not self._stopping:
            tip = await self._write(self._staging.tip)
            self._shown_work = tip.work
            if tip.work > work:
                work, idle_since = tip.work, self._peers.online_seconds
            peer = self._most_work(tip)
            if peer is None:
                # In an outage nobody claims anything, which shows nothing.
                if self._peers.is_online:
                    if tip.height and not self._waits_for_more(tip):
                        break
                    if self._peers.online_seconds - idle_since >= NOTHING_SECONDS:
                        if tip.height:
                            break
                        raise _NotFromSnapshot("no peer shows its headers")
                await self._wakeup.wait(_CHECK_SECONDS)
                continue
            try:
                await self._headers_from(peer)
            except StreamEnded:
                continue
            except FalseClaim as why:
                self._peers.reject_claim(peer, str(why))
            except PeerCallFailed as failed:
                self._peers.reject_unanswered(peer, failed)
        tip = await self._write(self._staging.tip)
        if self._mode is not StartMode.SNAPSHOT and tip.height <= MIN_BLOCKS:
            raise _NotFromSnapshot(f"the headers show {tip.height} blocks, which is not more than {MIN_BLOCKS}")
        expected = self._node.chain_manager.pin.block
        if expected is not None and tip.height < expected.height:
            raise _NotFromSnapshot(f"no headers reach block {expected.height} of [chain] expect")
        if not prefers(tip, self._node.chain_manager.tip):
            raise _NotFromSnapshot("the headers show no more work than this node's chain has")

    def _most_work(self, tip: ChainPoint) -> Peer | None:
        """The peer to ask for headers: one that claims more work than ``tip`` has, if there is any to be asked."""
        able = [
            peer
            for peer in self._peers.in_relay_order()
            if peer.status is not None
            and peer.status.work > tip.work
            and not (peer.is_paused or peer.claims_are_paused or peer.endpoint in self._unexpected)
        ]
        return min(able, key=lambda peer: (peer.unproven_claims, not peer.outbound), default=None)

    def _waits_for_more(self, tip: ChainPoint) -> bool:
        """Whether a peer that claims more work than ``tip`` has, and is not asked now, may still prove it."""
        return any(
            peer.status is not None and peer.status.work > tip.work and peer.unproven_claims < MAX_TRIES
            for peer in self._peers.all()
            if peer.endpoint not in self._unexpected
        )

    async def _headers_from(self, peer: Peer) -> None:
        """Fetch headers of a peer's chain; raises FalseClaim, StreamEnded or PeerCallFailed."""
        known = _StagedHeaders(self._staging, self._write)
        stream = self._stream = HeaderStream(self._peers, peer, known, ahead=True)
        branch: _Branch | None = None
        staged, began = False, self._node.now()
        try:
            while not self._stopping and (batch := await stream.next()) is not None:
                if branch is None or batch.parent.point.hash != branch.tip.point.hash:
                    branch = _Branch(batch.parent, batch.parent)
                branch.append(batch)
                if branch.tip.point.work > (await self._write(self._staging.tip)).work:
                    await self._write(self._staging.add_headers, branch.fork, branch.headers, branch.heads)
                    staged = True
                    peer.accept_claim(branch.tip.point.work)
                    self._shown_work = branch.heads[-1].point.work
                    self._note(StartStage.HEADERS, branch.heads[-1].point.height, batch.claimed_height)
                    if branch.heads[-1] is not branch.tip:
                        # The further ones did not fit into the memory, and are fetched again.
                        return
                    branch = _Branch(branch.tip, branch.tip)
                if batch.failure is not None:
                    if isinstance(batch.failure, UnexpectedBlock):
                        self._unexpected.add(peer.endpoint)
                    judge(self._peers, peer, batch.failure)
                    return
                if batch.is_last or (staged and self._node.now() - began >= TURN_SECONDS):
                    break
        finally:
            self._stream = None
            stream.end()
        if not (staged or self._stopping):
            raise FalseClaim("its headers have less work than it claims")

    # State

    async def _fetch_state(self) -> None:
        """Fetch the state after a block far below the newest header; raises _NotFromSnapshot."""
        self._delivered_at = self._peers.online_seconds
        while not self._stopping:
            claim = await self._choose()
            if claim is None:
                # After a long outage peers may have newer snapshots only, of blocks above the headers that are here.
                await self._fetch_headers()
                await self._wakeup.wait(_CHECK_SECONDS)
                continue
            await self._check_watches(claim.height)
            header = await self._write(self._staging.header, claim.height)
            download = self._begin_download(claim, header.state_root)
            try:
                await self._fetch_snapshot(download)
                return
            except DownloadFailed as failed:
                if isinstance(failed, SourcesLied):
                    self._doubted.add(claim)
                if not self._stopping:
                    self.log.info(
                        "the download of the snapshot of block {height} failed: {why}",
                        height=claim.height,
                        why=str(failed),
                    )
            finally:
                self._download = None

    def _begin_download(self, claim: SnapshotClaim, state_root: bytes) -> SnapshotDownload:
        download = self._download = SnapshotDownload(self._peers, claim, state_root, liars=self._liars, idle=self._idle)
        if self._stopping:
            # There was none yet when the node began to stop.
            download.stop(DownloadFailed("the node is stopping"))
        return download

    async def _check_watches(self, height: int) -> None:
        """Raise _NotFromSnapshot if the payment of an active watch may be in a block up to ``height``.

        A payment comes after the registration of its watch, unless the watch names a height from which on it counts.
        Blocks up to ``height`` come without their transfers. Waits for the webhooks' database if it cannot be asked.
        """
        if self._mode is StartMode.SNAPSHOT:
            return
        header = await self._write(self._staging.header, height)
        end = self._node.params.slot_time(header.slot + 1)
        waits = False
        while not self._stopping:
            try:
                found = await self._has_active_watch_since(height, end)
            except (apsw.Error, DatabaseUnavailable) as error:
                if not is_disk_trouble(error):
                    raise
                if not waits:
                    self.log.warn(
                        "the start from a snapshot waits for the webhooks' database, to see whether a watch needs the "
                        "blocks up to {height}: {why}",
                        height=height,
                        why=str(error),
                    )
                waits = True
                await self._wakeup.wait(_CHECK_SECONDS)
                continue
            if found:
                raise _NotFromSnapshot(
                    f"the payment of an active watch may be in a block up to {height}, and would be missed; "
                    '[chain] start = "snapshot" accepts that'
                )
            return

    async def _choose(self) -> SnapshotClaim | None:
        """The snapshot to fetch now, None for none yet: the one that was begun, or else the best one.

        Raises _NotFromSnapshot once no more is waited for.
        """
        progress, tip = await self._write(self._staging.progress), await self._write(self._staging.tip)
        begun: SnapshotClaim | None = None
        if progress is not None:
            manifest = progress.manifest
            begun = SnapshotClaim(manifest.height, manifest.hash, manifest.digest)
            if not progress.missing:
                return begun
        has_chunks = progress is not None and len(progress.missing) < len(progress.manifest.chunks)
        if begun in self._doubted:
            # It is as good as any other, and may be no state at all.
            begun, has_chunks = None, False
        served = {
            peer.endpoint: peer.status
            for peer in self._peers.all()
            if peer.status is not None and peer.endpoint not in self._liars
        }
        heights = {claim.height for status in served.values() for claim in status.snapshots}
        # A look-up in the writer's thread each: peers may name any height.
        heights = {height for height in heights if height % SNAPSHOT_BLOCKS == 0}
        points = {height: await self._write(self._staging.point, height) for height in heights}
        hashes = {height: point.hash for height, point in points.items() if point is not None}

        def best(statuses: Sequence[PeerStatus]) -> SnapshotClaim | None:
            if begun is not None and any(begun in status.snapshots for status in statuses):
                return begun
            return choose_snapshot(statuses, hashes.get, newest=tip.height - DEPTH, every=SNAPSHOT_BLOCKS)

        quiet = self._peers.online_seconds - self._delivered_at
        # Those that have the begun one may be away, or busy, for a while.
        waits = has_chunks and quiet < RETURN_SECONDS
        claim = best([status for endpoint, status in served.items() if endpoint not in self._idle])
        if claim is None or (waits and claim != begun):
            claim = best(list(served.values()))
            if waits and claim != begun:
                return None
            self._idle.clear()
        patience = GIVE_UP_SECONDS if has_chunks or claim is not None else NOTHING_SECONDS
        if quiet >= patience:
            raise _NotFromSnapshot(f"no peer has sent any of a usable snapshot for {patience:g} s")
        return claim

    async def _fetch_snapshot(self, download: SnapshotDownload) -> None:
        progress = await self._write(self._staging.progress)
        manifest: Manifest
        if progress is not None and progress.manifest.digest == download.claim.digest:
            manifest, missing = progress.manifest, progress.missing
        else:
            if self._begun >= MAX_BEGUN:
                raise _NotFromSnapshot(f"{MAX_BEGUN} snapshots were begun, and none has come whole")
            manifest = await download.manifest()
            self._begun += 1
            await self._write(self._staging.begin_state, manifest)
            missing = tuple(range(len(manifest.chunks)))
        done = len(manifest.chunks) - len(missing)
        self._note(StartStage.STATE, done, len(manifest.chunks))

        async def add(index: int, accounts: Sequence[tuple[bytes, Account]]) -> None:
            nonlocal done
            await self._write(self._staging.add_chunk, index, accounts)
            self._delivered_at = self._peers.online_seconds
            done += 1
            self._note(StartStage.STATE, done, len(manifest.chunks))

        def accept(index: int, accounts: Sequence[tuple[bytes, Account]]) -> Deferred[None]:
            work: Coroutine[Any, Any, None] = add(index, accounts)
            return Deferred.fromCoroutine(work)

        await download.chunks(manifest, missing, accept)
