"""Sorts more records than fit into memory, by way of files without a name, which are gone once they are closed."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

_SORTED_AT_ONCE: Final = 4_096
"""Records that are sorted in memory, in about a millisecond."""
_FAN_IN: Final = 64
"""So many runs in one file are merged into one run in the next file: three files have 10^9 records."""
_PIECE: Final = 256
"""Records that are read or written at once."""
_SYNC_BYTES: Final = 16 * 1024 * 1024
"""Bytes written between two fsyncs, so that other writers do not wait for long."""


@contextmanager
def sorting(
    folder: Path, pause: Callable[[], object], *, record_bytes: int, key_bytes: int
) -> Iterator["ExternalSort"]:
    """Sort records of one size, which begin with a key, within this context, on the disk of ``folder``.

    ``pause`` is called between pieces of about a millisecond's work.
    """
    with ExitStack() as stack:

        def new_file() -> IO[bytes]:
            return stack.enter_context(TemporaryFile(dir=folder, buffering=0))

        yield ExternalSort(new_file, pause, record_bytes, key_bytes)


class ExternalSort:
    """Sorts records of one size as bytes; of those with the same key only the first is kept. For one thread.

    Memory is bounded, whatever the number of records: there are few files, and few runs of sorted records in each.
    """

    def __init__(
        self, new_file: Callable[[], IO[bytes]], pause: Callable[[], object], record_bytes: int, key_bytes: int
    ) -> None:
        """``new_file`` opens an empty file, not buffered. See :func:`sorting`."""
        self._new_file = new_file
        self._pause = pause
        self._record_bytes, self._key_bytes = record_bytes, key_bytes
        self._unsorted: list[bytes] = []
        self._files: list[_Runs] = []

    def add(self, records: Iterable[bytes]) -> None:
        """Add a piece of records; raises OSError if the disk refuses."""
        self._unsorted += records
        if len(self._unsorted) >= _SORTED_AT_ONCE:
            self._write(0, sorted(self._unsorted))
            self._unsorted = []

    def merged(self, others: Iterable[bytes]) -> Iterator[bytes]:
        """All records and ``others``, which are sorted: the first record of each key, and b"" in place of each other.

        To be called once, after the last :meth:`add`. Raises OSError if the disk refuses.
        """
        runs = [run for file in self._files for run in file.runs()]
        return self._firsts(merge(*runs, sorted(self._unsorted), others))

    def _firsts(self, records: Iterable[bytes]) -> Iterator[bytes]:
        last = b""
        for record in records:
            key = record[: self._key_bytes]
            yield b"" if key == last else record
            last = key

    def _write(self, level: int, records: Iterable[bytes]) -> None:
        """Write a run into the file of a level; if that has enough, merge them into the next level's."""
        if level == len(self._files):
            self._files.append(_Runs(self._new_file(), self._record_bytes))
        file = self._files[level]
        firsts = self._firsts(records)
        while piece := list(islice(firsts, _PIECE)):
            file.append(b"".join(piece))
            self._pause()
        file.end_run()
        if file.count >= _FAN_IN:
            self._write(level + 1, merge(*file.runs()))
            file.clear()


class _Runs:
    """A file with runs of sorted records, one after the other."""

    def __init__(self, file: IO[bytes], record_bytes: int) -> None:
        self._file = file
        self._record_bytes = record_bytes
        self._bounds = [0]
        """Where the first run begins, and where each ends."""
        self._end = 0
        self._unsynced = 0

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self._bounds) - 1

    def append(self, data: bytes) -> None:
        """Append records to the run that is being written."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._end += len(data)
        self._unsynced += len(data)
        if self._unsynced >= _SYNC_BYTES:
            os.fsync(self._file.fileno())
            self._unsynced = 0

    def end_run(self) -> None:
        """The next records belong to another run."""
        self._bounds.append(self._end)

    def runs(self) -> list[Iterator[bytes]]:
        """The records of each run."""
        return [self._records(begin, end) for begin, end in pairwise(self._bounds)]

    def _records(self, begin: int, end: int) -> Iterator[bytes]:
        size = self._record_bytes
        for at in range(begin, end, _PIECE * size):
            piece = os.pread(self._file.fileno(), min(_PIECE * size, end - at), at)
            for each in range(0, len(piece), size):
                yield piece[each : each + size]

    def clear(self) -> None:
        """Drop all runs."""
        self._file.seek(0)
        self._file.truncate()
        self._bounds, self._end, self._unsynced = [0], 0, 0
