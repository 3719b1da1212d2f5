"""Makes snapshots of the state, and keeps the newest two for peers that start from one (docs/peers.md "Snapshots")."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from math import inf
from pathlib import Path
from typing import Final

import apsw
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import RuleViolation
from svcd.chain.snapshot import SNAPSHOT_BLOCKS
from svcd.interfaces import Worker
from svcd.node.chain_manager import ChainManager
from svcd.store.database import is_damage, open_reader
from svcd.store.snapshot_file import SnapshotDamaged, SnapshotFile, write_snapshot
from svcd.store.snapshot_store import StateReader, TooFarBack

KEPT: Final = 2
"""Snapshots that are kept: a peer that has begun with one finishes it while the next one is made."""
DEPTH: Final = 10
"""Blocks on top of a block before its snapshot is made: few reorganisations are deeper."""
CHECK_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 600.0
"""After how long the disk is tried again that has refused a snapshot."""
REST: Final = 3.0
"""How long the thread rests after each piece of work, as a multiple of the time that the piece took."""
_CACHE_KIB: Final = 2_048
_PREFIX: Final = "snapshot-"


class _Stopped(Exception):
    """The node is stopping, and the snapshot is given up."""


class Snapshots(Service):
    """The snapshots in a folder; its methods are for the reactor's thread. One that is being made ends with it."""

    name = "snapshots"
    log = Logger()

    def __init__(
        self,
        chain_manager: ChainManager,
        database: Path,
        *,
        files: Worker,
        reader: Worker,
        may_make: Callable[[], bool],
        seconds: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        """Keep them beside the chain's ``database``.

        ``files`` makes them, while ``may_make`` returns true, and ``reader`` reads chunks. ``seconds`` is a clock for
        any thread, and ``sleep`` blocks one for so many seconds.
        """
        self._chain_manager = chain_manager
        self._database = database
        self._files, self._reader = files, reader
        self._may_make = may_make
        self._seconds, self._sleep = seconds, sleep
        self._made: dict[int, SnapshotFile] = {}
        self._unwanted: set[int] = set()
        """Heights of snapshots that are not served any more, and whose files may still be there."""
        self._failed: dict[bytes, float] = {}
        """Blocks whose snapshot could not be made, by hash, and when (the clock's seconds) it is tried again."""
        self._loaded = False
        self._stopping = False

    @property
    def served(self) -> Sequence[SnapshotFile]:
        """The snapshots of canonical blocks, the newest first."""
        return sorted(self._made.values(), key=lambda file: -file.manifest.height)

    def at(self, height: int) -> SnapshotFile | None:
        """The snapshot of the block at ``height``."""
        return self._made.get(height)

    def chunk(self, file: SnapshotFile, index: int) -> Deferred[bytes]:
        """The records of a chunk; fails with SnapshotDamaged or OSError, and the snapshot is served no more."""
        return self._reader.run(file.chunk, index).addErrback(self._remove_damaged, file)

    def stopService(self) -> None:
        """Give up the snapshot that is being made."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._stopping = True

    async def check(self) -> None:
        """Make the newest snapshots that are missing, and remove those that are not wanted; to be called periodically.

        One is wanted of each of the last KEPT blocks whose heights are multiples of SNAPSHOT_BLOCKS.
        """
        if not self._loaded:
            for file in await self._files.run(self._load):
                self._made[file.manifest.height] = file
            self._loaded = True
        newest = (self._chain_manager.tip.height - DEPTH) // SNAPSHOT_BLOCKS * SNAPSHOT_BLOCKS
        wanted = [height for height in range(newest, newest - KEPT * SNAPSHOT_BLOCKS, -SNAPSHOT_BLOCKS) if height > 0]
        for height, file in list(self._made.items()):
            if height not in wanted or not self._is_canonical(file):
                self._forget(file)
        while self._unwanted:
            height = self._unwanted.pop()
            # A new snapshot of this height has taken the place of the file.
            if height not in self._made:
                await self._files.run(self._delete, height)
        for height in wanted:
            if self._stopping or not self._may_make():
                return
            stored = self._chain_manager.reader.canonical(height)
            if stored is None or height in self._made or self._failed.get(stored.point.hash, 0.0) > self._seconds():
                continue
            made = await self._files.run(self._make, height, stored.point.hash)
            if isinstance(made, SnapshotFile):
                self._made[height] = made
            else:
                self._failed[stored.point.hash] = made

    def _is_canonical(self, file: SnapshotFile) -> bool:
        stored = self._chain_manager.reader.canonical(file.manifest.height)
        return stored is not None and stored.point.hash == file.manifest.hash

    def _forget(self, file: SnapshotFile) -> None:
        """Serve a snapshot no more; the next :meth:`check` deletes its file."""
        del self._made[file.manifest.height]
        self._unwanted.add(file.manifest.height)

    def _remove_damaged(self, failure: Failure, file: SnapshotFile) -> Failure:
        # Another one may have taken its place while this one was read.
        if failure.check(SnapshotDamaged, OSError) and self._made.get(file.manifest.height) is file:  # type: ignore[no-untyped-call]
            self.log.warn("{why}; the snapshot is removed and made again", why=str(failure.value))
            self._forget(file)
        return failure

    # In a thread

    def _path(self, height: int) -> Path:
        return self._database.with_name(f"{_PREFIX}{height}")

    def _delete(self, height: int) -> None:
        """Delete the file of a snapshot, which takes a tenth of a second if it is large."""
        with suppress(OSError):
            self._path(height).unlink(missing_ok=True)

    def _load(self) -> list[SnapshotFile]:
        """The snapshots on disk; a damaged one, and any other file of such a name, is removed."""
        found: list[SnapshotFile] = []
        for path in sorted(self._database.parent.glob(f"{_PREFIX}*")):
            try:
                file = SnapshotFile.open(path)
                if path != self._path(file.manifest.height):
                    raise SnapshotDamaged(f"{path} does not have the name of its block")
                found.append(file)
            except (SnapshotDamaged, RuleViolation, OSError) as error:
                self.log.warn("{path} is not a valid snapshot and is removed: {why}", path=str(path), why=str(error))
                with suppress(OSError):
                    path.unlink()
        return found

    def _make(self, height: int, block_hash: bytes) -> SnapshotFile | float:
        """Make the snapshot of a canonical block; if that fails, when (the clock's seconds) it is tried again.

        Raises apsw.Error, NoChecksums or Corrupt if the database is damaged.
        """
        began = self._seconds()
        try:
            with ExitStack() as reads:
                connection = reads.enter_context(closing(open_reader(self._database, cache_kib=_CACHE_KIB)))
                state = StateReader(connection)
                reads.enter_context(state.chain.snapshot())
                stored = state.chain.canonical(height)
                if stored is None or stored.point.hash != block_hash:
                    # It has been undone meanwhile.
                    return 0.0
                root = state.chain.block_header(stored, self._chain_manager.params).state_root
                pause = self._rests()
                records = reads.enter_context(closing(state.records(height, self._database.parent, pause)))
                write_snapshot(self._path(height), stored.point, root, _then_close(records, reads), pause)
            file = SnapshotFile.open(self._path(height))
        except _Stopped:
            return inf
        except TooFarBack as error:
            self.log.debug("no snapshot of block {height} is made: {why}", height=height, why=str(error))
            return inf
        except RuleViolation as error:
            self.log.error("no snapshot of block {height} can be made: {why}", height=height, why=str(error))
            return inf
        except (OSError, SnapshotDamaged, apsw.Error) as error:
            if is_damage(error):
                raise
            self.log.warn(
                "the snapshot of block {height} cannot be written: {why}. It is tried again in {seconds} s",
                height=height,
                why=str(error),
                seconds=RETRY_SECONDS,
            )
            return self._seconds() + RETRY_SECONDS
        self.log.info(
            "made the snapshot of block {height}: {accounts} accounts in {chunks} chunks, in {seconds} s",
            height=height,
            accounts=file.manifest.accounts,
            chunks=len(file.manifest.chunks),
            seconds=round(self._seconds() - began, 1),
        )
        return file

    def _rests(self) -> Callable[[], object]:
        """A pause between pieces of work: the thread rests REST times as long as the piece has taken."""
        began = self._seconds()

        def rest() -> None:
            nonlocal began
            if self._stopping:
                raise _Stopped
            self._sleep((self._seconds() - began) * REST)
            began = self._seconds()

        return rest


def _then_close(records: Iterable[bytes], reads: ExitStack) -> Iterator[bytes]:
    """The records; with them the transaction ends, in which the write-ahead log grows with every block."""
    yield from records
    reads.close()
