"""Records come out in order and once for each key, however few fit into memory, or nothing is left."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.store import external_sort
from svcd.store.external_sort import ExternalSort, sorting

KEY = 2
RECORDS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 255)), max_size=120)


@pytest.fixture
def small() -> Iterator[pytest.MonkeyPatch]:
    """Few records make many runs, on several levels."""
    with pytest.MonkeyPatch.context() as patch:
        small_sort(patch)
        yield patch


def small_sort(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(external_sort, "_SORTED_AT_ONCE", 4)
    patch.setattr(external_sort, "_FAN_IN", 3)
    patch.setattr(external_sort, "_PIECE", 2)


def nothing() -> None:
    """A pause without a rest."""


def record(key: int, rest: int) -> bytes:
    return key.to_bytes(KEY, "big") + bytes([rest])


def records(numbers: Sequence[tuple[int, int]]) -> list[bytes]:
    return [record(*each) for each in numbers]


def first_of_each_key(given: Sequence[bytes]) -> list[bytes]:
    return list({each[:KEY]: each for each in sorted(given, reverse=True)}.values())[::-1]


def unnamed_files() -> int:
    """How many files without a name the process has open."""
    return sum("(deleted)" in os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())


@given(RECORDS, RECORDS, st.integers(1, 9))
def test_the_first_record_of_each_key_comes_out_in_order(
    added: list[tuple[int, int]], others: list[tuple[int, int]], at_once: int
) -> None:
    given_records, further = records(added), sorted(records(others))
    with pytest.MonkeyPatch.context() as patch:
        small_sort(patch)
        with sorting(Path("/tmp"), nothing, record_bytes=KEY + 1, key_bytes=KEY) as sort:
            for at in range(0, len(given_records), at_once):
                sort.add(given_records[at : at + at_once])
            merged = list(sort.merged(further))
    assert len(merged) <= len(added) + len(others)
    assert [each for each in merged if each] == first_of_each_key(given_records + further)


def test_little_needs_no_file(tmp_path: Path) -> None:
    def refuse() -> IO[bytes]:
        raise AssertionError("a file was opened")

    sort = ExternalSort(refuse, nothing, KEY + 1, KEY)
    sort.add(records([(3, 0), (1, 0), (3, 1)]))
    assert list(sort.merged([record(2, 9)])) == [record(1, 0), record(2, 9), record(3, 0), b""]


def test_much_needs_few_files_and_few_runs_and_pauses_often(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = 4 * 3**5
    pauses: list[int] = []
    before = unnamed_files()
    with sorting(tmp_path, lambda: pauses.append(unnamed_files()), record_bytes=KEY + 1, key_bytes=KEY) as sort:
        for number in range(count):
            sort.add([record(number * 7919 % count, 0)])
        assert list(tmp_path.iterdir()) == []
        assert all(file.count < 3 for file in sort._files)
        assert list(sort.merged([])) == [record(number, 0) for number in range(count)]
    # One for each power of three in the number of runs.
    assert max(pauses) - before == 6
    # Each record is written once into each file but the last, at most two at a time.
    assert len(pauses) >= 6 * count / 2
    assert unnamed_files() == before


class Disk:
    """A file on a disk with room for so many bytes, which takes a few bytes at a time."""

    def __init__(self, file: IO[bytes], room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = self._file.write(data[: min(3, self._room)])
        self._room -= taken
        return taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.fixture
def on_disk(small: pytest.MonkeyPatch) -> Iterator[Callable[[int], ExternalSort]]:
    """``on_disk(room)``: a sort by files that have so many bytes of room."""
    with ExitStack() as stack:

        def make(room: int) -> ExternalSort:
            def new_file() -> Any:
                return Disk(stack.enter_context(TemporaryFile(buffering=0)), room)

            return ExternalSort(new_file, nothing, KEY + 1, KEY)

        yield make


def test_a_file_that_takes_a_part_gets_the_rest_afterwards(on_disk: Callable[[int], ExternalSort]) -> None:
    sort = on_disk(1_000)
    given_records = [record(9 - number, number) for number in range(10)]
    for each in given_records:
        sort.add([each])
    assert list(sort.merged([])) == given_records[::-1]


def test_a_full_disk_is_reported(on_disk: Callable[[int], ExternalSort]) -> None:
    sort = on_disk(20)
    sort.add(records([(number, 0) for number in range(4)]))
    with pytest.raises(OSError, match="No space left on device"):
        sort.add(records([(number, 0) for number in range(4)]))


def test_what_is_written_is_synced_in_between(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise the commits of the chain would wait for all of it at once."""
    small.setattr(external_sort, "_SYNC_BYTES", 24)
    synced: list[int] = []
    small.setattr(external_sort.os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    with sorting(tmp_path, nothing, record_bytes=KEY + 1, key_bytes=KEY) as sort:
        for number in range(8):
            sort.add([record(number, 0)])
        assert synced == [24]


def test_the_files_are_closed_after_an_error(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = unnamed_files()

    def fail() -> None:
        raise ValueError("given up")

    with (
        pytest.raises(ValueError, match="given up"),
        sorting(tmp_path, fail, record_bytes=KEY + 1, key_bytes=KEY) as sort,
    ):
        sort.add(records([(number, 0) for number in range(9)]))
    assert unnamed_files() == before
    assert list(tmp_path.iterdir()) == []
