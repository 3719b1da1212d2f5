"""The mempool's journal: what a cut, a flipped bit, a kill and a full disk leave of it."""

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.transaction import Transfer
from svcd.store import mempool_journal
from svcd.store.database import DatabaseError, DiskError
from svcd.store.mempool_journal import FILE, NEW_FILE, JournalContents, MempoolJournal, parse_journal, read_journal
from tests.chains import TEST_PARAMS, ChainBuilder

TRANSFERS = [ChainBuilder().transfer("alice", "bob", 1 + n, nonce=n, reference=f"order-{n}") for n in range(8)]
HEADER = 23 + 32 + 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


@pytest.fixture
def journal(path: Path) -> Iterator[MempoolJournal]:
    with closing(MempoolJournal(path, TEST_PARAMS)) as journal:
        journal.load()
        yield journal


def reload(path: Path) -> JournalContents:
    with closing(MempoolJournal(path, TEST_PARAMS)) as journal:
        return journal.load()


def numbers(path: Path) -> list[int]:
    return list(read_journal(path).transfers)


# What is written


def test_a_new_journal_is_empty_and_for_its_owner_only(journal: MempoolJournal, path: Path) -> None:
    contents = read_journal(path)
    assert (contents.transfers, contents.is_clean, contents.damage) == ({}, True, "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == journal.size == HEADER


def test_transfers_come_back_by_number_without_those_that_left(journal: MempoolJournal, path: Path) -> None:
    journal.write([(9, TRANSFERS[0]), (8, TRANSFERS[1]), (7, TRANSFERS[2])], [])
    assert numbers(path) == [9, 8, 7]
    journal.write([(10, TRANSFERS[3])], [9, 8, 99])
    assert numbers(path) == [7, 10]
    assert not read_journal(path).is_clean


def test_many_leave_at_once(journal: MempoolJournal, path: Path) -> None:
    journal.write([(5_000, TRANSFERS[0]), (5_001, TRANSFERS[1])], [])
    journal.write([], range(5_001))
    assert numbers(path) == [5_001]


@pytest.mark.parametrize("reference", [None, "order-1", "x" * 64])
def test_a_transfer_comes_back_as_it_was(journal: MempoolJournal, path: Path, reference: str | None) -> None:
    transfer = ChainBuilder().transfer("alice", "bob", 2**53 - 1, nonce=3, reference=reference)
    journal.write([(2**63, transfer)], [])
    (found,) = read_journal(path).transfers.values()
    for each in fields(Transfer):
        assert getattr(found, each.name) == getattr(transfer, each.name), each.name


def test_what_was_written_after_the_last_start_is_appended(journal: MempoolJournal, path: Path) -> None:
    journal.write([(1, TRANSFERS[0])], [])
    journal.load()
    journal.write([(2, TRANSFERS[1])], [])
    assert numbers(path) == [1, 2]


# What else may be in the place of the file


def test_a_journal_of_another_network_is_refused(journal: MempoolJournal, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match=r"mempool\.journal has the transfers of another network: use another"):
        MempoolJournal(path, evolve(TEST_PARAMS, network_id=4)).load()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"svcd mempool journal 2\n" + bytes(64), b"SQLite format 3\0" * 99])
def test_what_is_no_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(
        DatabaseError,
        match=r"journal is damaged at its beginning, or no mempool journal of this svcd; move it away: wallets",
    ):
        reload(path)
    assert path.read_bytes() == content


def test_a_journal_that_cannot_be_opened_is_an_error_of_the_disk(path: Path) -> None:
    path.mkdir()
    with pytest.raises(DiskError, match="Is a directory"):
        reload(path)


# Cuts and flips


def whole() -> tuple[bytes, list[int]]:
    """A journal's bytes, and where its records begin and the last one ends."""
    journal = MempoolJournal(Path(FILE), TEST_PARAMS)
    records = [journal._addition((number, transfer)) for number, transfer in enumerate(TRANSFERS[:6])]
    records.insert(3, *journal._removals([0]))
    starts = [HEADER]
    for record in records:
        starts.append(starts[-1] + len(record))
    return mempool_journal._header(TEST_PARAMS.genesis_hash) + b"".join(records), starts


WHOLE, STARTS = whole()


def parsed(data: bytes) -> JournalContents:
    return parse_journal(BytesIO(data), Path(FILE))


def wires(contents: JournalContents) -> dict[int, bytes]:
    return {number: transfer.wire for number, transfer in contents.transfers.items()}


def is_subset(contents: JournalContents) -> bool:
    """Whether each is one that was written, under its number, and with all of its fields."""
    return all(
        all(getattr(found, each.name) == getattr(TRANSFERS[number], each.name) for each in fields(Transfer))
        for number, found in contents.transfers.items()
    )


@given(st.integers(HEADER, len(WHOLE)))
def test_a_cut_anywhere_leaves_what_is_whole_before_it(length: int) -> None:
    """What a kill in a write cuts was not acknowledged; what a power failure cuts, wallets send again."""
    contents = parsed(WHOLE[:length])
    count = sum(start <= length for start in STARTS[1:])
    added = [0, 1, 2, None, 3, 4, 5][:count]
    removed = {0} if None in added else set()
    assert set(contents.transfers) == {number for number in added if number is not None} - removed
    assert is_subset(contents)
    assert (contents.damage, contents.end, contents.torn_bytes) == ("", STARTS[count], length - STARTS[count])


@given(
    st.lists(st.tuples(st.integers(HEADER * 8, len(WHOLE) * 8 - 1)), min_size=1, max_size=3),
    st.sampled_from([64, 1_000, 1 << 20]),
)
def test_flipped_bits_cost_their_records_and_no_other(flips: list[tuple[int]], block: int) -> None:
    data = bytearray(WHOLE)
    for (bit,) in flips:
        data[bit // 8] ^= 1 << bit % 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mempool_journal, "_BLOCK", block)
        contents = parsed(bytes(data))
    assert is_subset(contents)
    intact = [bytes(data[start:end]) == WHOLE[start:end] for start, end in pairwise(STARTS)]
    kept = {number for number, is_intact in zip([0, 1, 2, None, 3, 4, 5], intact, strict=True) if is_intact}
    assert set(contents.transfers) == kept - ({0} if None in kept else set()) - {None}
    assert bool(contents.damage or contents.torn_bytes) == (False in intact)
    assert contents.end + contents.torn_bytes == len(WHOLE)


@given(st.integers(HEADER, len(WHOLE)), st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_in_the_middle_make_no_other_transfer(at: int, inserted: bytes, lost: int) -> None:
    contents = parsed(WHOLE[:at] + inserted + WHOLE[at + lost :])
    assert is_subset(contents)
    ends = [*STARTS[1:4], *STARTS[5:]]
    before = {number for number, end in enumerate(ends) if end <= at}
    assert before - {0} <= set(contents.transfers), "what is in front of it is not lost"


@given(st.integers(0, HEADER * 8 - 1))
def test_a_flipped_bit_in_the_header_is_refused(bit: int) -> None:
    data = bytearray(WHOLE)
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(DatabaseError, match="damaged at its beginning"):
        parsed(bytes(data))


@given(st.binary(max_size=4_000))
def test_no_bytes_are_an_exception(tail: bytes) -> None:
    contents = parsed(WHOLE[:HEADER] + tail)
    assert contents.transfers == {}
    assert contents.torn_bytes == len(tail)


def test_a_record_within_a_transfer_is_none() -> None:
    """A stranger chooses the bytes of a recipient, and may know the next transfer's marker."""
    marker = mempool_journal._MARKER
    stranger = evolve(TRANSFERS[0], recipient=(marker + b"\0\0\x20\0").ljust(20, b"\0"))
    journal = MempoolJournal(Path(FILE), TEST_PARAMS)
    data = WHOLE[:HEADER] + journal._addition((0, stranger)) + journal._addition((1, TRANSFERS[1]))
    assert list(parsed(data).transfers) == [0, 1]
    assert list(parsed(data[:HEADER] + b"\0" + data[HEADER + 1 :]).transfers) == [1]


def test_places_are_counted() -> None:
    data = bytearray(WHOLE)
    for start in (STARTS[1], STARTS[4]):
        data[start + 50] ^= 1
    contents = parsed(bytes(data))
    assert contents.damage == f"is damaged in 2 places, {STARTS[2] - STARTS[1] + STARTS[5] - STARTS[4]} bytes in all"


# After a kill


def test_a_torn_record_is_cut_off_before_the_next_one(journal: MempoolJournal, path: Path) -> None:
    journal.write([(1, TRANSFERS[0])], [])
    size = path.stat().st_size
    journal.write([(2, TRANSFERS[1])], [])
    journal.close()
    for cut in (1, 100, 400):
        os.truncate(path, size + cut)
        with closing(MempoolJournal(path, TEST_PARAMS)) as again:
            assert again.load().torn_bytes == cut
            again.write([(3, TRANSFERS[2])], [])
        assert (numbers(path), read_journal(path).is_clean) == ([1, 3], True)
        os.truncate(path, size)


def test_a_kill_in_the_middle_of_a_rewriting_loses_nothing(
    journal: MempoolJournal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each of its steps, a copy of the folder is what a start would find."""
    journal.write(list(enumerate(TRANSFERS)), [])
    journal.write([], [0, 1])
    kept = [(number, TRANSFERS[number]) for number in range(2, 8)]
    found: list[list[int]] = []

    def look() -> None:
        place = path.parent / f"killed-{len(found)}"
        place.mkdir()
        for file in path.parent.glob(f"{FILE}*"):
            (place / file.name).write_bytes(file.read_bytes())
        with closing(MempoolJournal(place / FILE, TEST_PARAMS)) as again:
            found.append(list(again.load().transfers))
            again.rewrite([(number, TRANSFERS[number]) for number in found[-1]])
        assert [file.name for file in place.iterdir()] == [FILE]

    def watched(name: str) -> None:
        done = getattr(os, name)

        def call(*args: object) -> object:
            with monkeypatch.context() as unwatched:
                unwatched.setattr(os, name, done)
                look()
                result = done(*args)
                look()
            return result

        monkeypatch.setattr(os, name, call)

    monkeypatch.setattr(mempool_journal, "_BLOCK", 1_000)
    for name in ("pwrite", "fsync"):
        watched(name)
    journal.rewrite(kept)
    monkeypatch.undo()
    look()
    assert len(found) > 8
    assert all(each == list(range(2, 8)) for each in found)
    journal.write([(9, TRANSFERS[0])], [2])
    assert numbers(path) == [3, 4, 5, 6, 7, 9]


def test_a_link_with_the_name_of_the_new_file_is_not_followed(journal: MempoolJournal, path: Path) -> None:
    other, new = path.with_name("other"), path.with_name(NEW_FILE)
    other.write_text("precious")
    new.symlink_to(other)
    journal.rewrite([(1, TRANSFERS[0])])
    assert other.read_text() == "precious"
    assert not path.is_symlink()
    assert (numbers(path), os.path.lexists(new)) == ([1], False)


def test_it_is_long_when_it_has_doubled(journal: MempoolJournal, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mempool_journal, "_SLACK", 10_000)
    sizes = []
    for number in range(400):
        journal.write([(number, TRANSFERS[0])], [number - 10] if number >= 10 else [])
        if journal.is_long:
            sizes.append(path.stat().st_size)
            journal.rewrite([(n, TRANSFERS[0]) for n in range(number - 9, number + 1)])
            assert path.stat().st_size == journal.size
    assert numbers(path) == list(range(390, 400))
    assert len(sizes) > 5
    assert max(sizes) < 30_000


# A disk that refuses


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that the disk still takes, in a list of one; less than a page at a time, as signals may have it."""
    left = [1 << 30]
    pwrite = os.pwrite

    def write(file: int, data: bytes, position: int) -> int:
        some = memoryview(data)[: min(left[0], 500)]
        if not some:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= len(some)
        return pwrite(file, some, position)

    monkeypatch.setattr(os, "pwrite", write)
    return left


def test_a_write_that_fails_in_the_middle_leaves_nothing(journal: MempoolJournal, path: Path, room: list[int]) -> None:
    journal.write([(1, TRANSFERS[0])], [])
    size = path.stat().st_size
    room[0] = 1_000
    with pytest.raises(DiskError, match="No space left on device"):
        journal.write([(2, TRANSFERS[1]), (3, TRANSFERS[2])], [1])
    assert path.stat().st_size == journal.size == size
    room[0] = 10_000
    journal.write([(4, TRANSFERS[3])], [])
    assert (numbers(path), read_journal(path).is_clean) == ([1, 4], True)


def test_a_disk_that_does_not_even_cut(
    journal: MempoolJournal, path: Path, room: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the next write does, or the next start; and a shorter write leaves nothing of a longer one behind it."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    room[0] = 1_000
    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(DiskError, match="No space"):
            journal.write([(1, TRANSFERS[0]), (2, TRANSFERS[1])], [])
        room[0] = 10_000
        with pytest.raises(DiskError, match="Input/output error"):
            journal.write([(3, TRANSFERS[2])], [])
    assert path.stat().st_size == HEADER + 1_000
    journal.write([], [7])
    assert read_journal(path).torn_bytes == 0
    assert numbers(path) == []


def test_a_rewriting_that_fails_changes_nothing(journal: MempoolJournal, path: Path, room: list[int]) -> None:
    journal.write([(number, TRANSFERS[number]) for number in range(8)], [])
    before = path.read_bytes()
    room[0] = 1_000
    with pytest.raises(DiskError, match="No space"):
        journal.rewrite([(number, TRANSFERS[number]) for number in range(7)])
    assert path.read_bytes() == before
    assert not path.with_name(NEW_FILE).exists()
    assert not journal.is_lost()
    room[0] = 10_000
    journal.write([], [7])
    assert numbers(path) == list(range(7))


def test_a_probe_needs_room_and_leaves_nothing(journal: MempoolJournal, path: Path, room: list[int]) -> None:
    journal.write([(1, TRANSFERS[0])], [])
    before = path.read_bytes()
    room[0] = 5_000
    with pytest.raises(DiskError):
        journal.probe()
    assert path.read_bytes() == before
    room[0] = 1 << 20
    journal.probe()
    assert path.read_bytes() == before
    journal.write([(2, TRANSFERS[1])], [])
    assert numbers(path) == [1, 2]


# A file that goes away


def test_the_journal_notices_that_it_is_gone_and_not_that_it_rewrites_itself(
    journal: MempoolJournal, path: Path
) -> None:
    assert not journal.is_lost()
    journal.rewrite([(1, TRANSFERS[0])])
    assert not journal.is_lost()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    path.rename(path.with_name("moved"))
    assert journal.is_lost()
    other.rename(path)
    assert journal.is_lost()


def test_a_closed_journal_refuses_writes(journal: MempoolJournal) -> None:
    journal.close()
    assert not journal.is_lost()
    with pytest.raises(DiskError, match="closed"):
        journal.write([], [1])
