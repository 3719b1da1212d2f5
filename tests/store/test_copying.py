"""Copies of a database that is being written to."""

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from svcd.store import copying
from svcd.store.copying import PAGES, CopyError, NoRoom, copy_databases
from svcd.store.database import open_reader, open_writer, transaction
from tests.process_level.test_damage import spoil


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database of about 8 MiB with the numbers 0 to 1999 and their sum."""
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        connection.execute("CREATE TABLE number (n INTEGER PRIMARY KEY, ballast BLOB)")
        connection.execute("CREATE TABLE total (n INTEGER)")
        connection.execute("INSERT INTO total VALUES (0)")
        with transaction(connection):
            for n in range(2000):
                add(connection, n)
        yield connection


def add(connection: sqlite3.Connection, n: int) -> None:
    connection.execute("INSERT INTO number VALUES (?, randomblob(4000))", (n,))
    connection.execute("UPDATE total SET n = n + ?", (n,))


def sums(path: Path) -> tuple[int, int]:
    """The sum of the numbers, and the one that was written down."""
    with closing(open_reader(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (found,) = connection.execute("SELECT sum(n) FROM number").fetchone()
        (noted,) = connection.execute("SELECT n FROM total").fetchone()
        return found, noted


def test_a_copy_is_whole_and_the_owner_s_alone(source: sqlite3.Connection, tmp_path: Path) -> None:
    sizes = copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    copy = tmp_path / "copy" / "chain.sqlite"
    assert sums(copy) == (sum(range(2000)), sum(range(2000)))
    assert sizes == {"chain.sqlite": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700


def test_little_of_a_copy_waits_for_the_disk_at_any_time(
    source: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who stops the node waits for the disk no longer than for so much, and so do those who write beside it."""
    copy, real, steps, synced = tmp_path / "copy.partial" / "chain.sqlite", os.fsync, [0], [0]

    def sync(descriptor: int) -> None:
        real(descriptor)
        if os.path.samestat(os.fstat(descriptor), copy.stat()):
            synced.append(copy.stat().st_size)
            steps.append(0)

    def progress(_left: int, _total: int) -> None:
        steps[-1] += 1

    monkeypatch.setattr(copying, "UNSYNCED_PAGES", 2 * PAGES)
    monkeypatch.setattr(os, "fsync", sync)
    copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", progress=progress)
    grown = [after - before for before, after in pairwise(synced)]
    assert synced[-1] == (tmp_path / "copy" / "chain.sqlite").stat().st_size > 6 * 4096 * PAGES
    assert max(grown) <= 4 * 4096 * PAGES, "that, and the 2 MiB that SQLite itself holds back"
    assert max(steps) <= 2


def test_what_is_written_meanwhile_neither_shows_nor_makes_it_begin_again(
    source: sqlite3.Connection, tmp_path: Path
) -> None:
    left: list[int] = []

    def write(pages_left: int, _total: int) -> None:
        left.append(pages_left)
        if len(left) > 100:
            raise AssertionError("it begins again with every commit")
        with transaction(source):
            add(source, 10_000 + len(left))

    copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", progress=write)
    assert len(left) > 5
    assert left == sorted(left, reverse=True), "it began again"
    assert sums(tmp_path / "copy" / "chain.sqlite") == (sum(range(2000)), sum(range(2000)))
    assert sums(tmp_path / "chain.sqlite")[0] > sum(range(2000))


def test_another_thread_writes_while_it_is_made(source: sqlite3.Connection, tmp_path: Path) -> None:
    begun, done = threading.Event(), threading.Event()

    def keep_writing() -> None:
        n = 20_000
        while not done.is_set():
            with transaction(source):
                add(source, n)
            n += 1
            begun.set()

    thread = threading.Thread(target=keep_writing)
    thread.start()
    try:
        begun.wait(10)
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    finally:
        done.set()
        thread.join()
    found, noted = sums(tmp_path / "copy" / "chain.sqlite")
    assert found == noted > sum(range(2000))


def test_the_first_of_two_is_never_newer_than_the_second(source: sqlite3.Connection, tmp_path: Path) -> None:
    with closing(open_writer(tmp_path / "other.sqlite")) as other:
        other.execute("CREATE TABLE seen (n INTEGER)")

        def follow(_left: int, _total: int) -> None:
            with transaction(source):
                source.execute("UPDATE total SET n = n + 1")
            other.execute("INSERT INTO seen SELECT ?", (1,))

        copy_databases([tmp_path / "other.sqlite", tmp_path / "chain.sqlite"], tmp_path / "copy", progress=follow)
    with closing(open_reader(tmp_path / "copy" / "other.sqlite")) as copy:
        assert copy.execute("SELECT count(*) FROM seen").fetchone() == (0,)
    assert sums(tmp_path / "copy" / "chain.sqlite") == (sum(range(2000)), sum(range(2000)))


def test_nothing_is_written_over(source: sqlite3.Connection, tmp_path: Path) -> None:
    for name in ("a-file", "a-folder", "a-link"):
        path = tmp_path / name
        if name == "a-link":
            path.symlink_to(tmp_path / "nowhere")
        elif name == "a-folder":
            path.mkdir()
        else:
            path.write_text("x")
        with pytest.raises(CopyError, match=f"{name} exists already and is never written over"):
            copy_databases([tmp_path / "chain.sqlite"], path)
    (tmp_path / "copy.partial").mkdir()
    with pytest.raises(CopyError, match=r"copy.partial is there: another copy is being made, or one did not end; rem"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    with pytest.raises(CopyError, match=r"ends like a copy that did not end, .* name it without \.partial"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "other.partial")
    with pytest.raises(CopyError, match="cannot be made: no such file or directory"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "no" / "copy")


def test_a_folder_that_cannot_be_read_takes_a_copy(
    source: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a letter box: whoever may write there need not see what there is. Root may read everything, so it is told."""
    box, real = tmp_path / "box", os.open
    box.mkdir()

    def refuse(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path) == box:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    copy_databases([tmp_path / "chain.sqlite"], box / "copy")
    assert [path.name for path in box.iterdir()] == ["copy"]


def test_a_damaged_source_is_not_the_fault_of_the_folder(source: sqlite3.Connection, tmp_path: Path) -> None:
    """Nor is it copied: who looks at the finished copy before it has its name finds what is wrong."""
    source.close()
    spoil(tmp_path / "chain.sqlite", "total")

    def look(folder: Path) -> None:
        with closing(open_reader(folder / "chain.sqlite")) as copy:
            copy.execute("SELECT n FROM total").fetchone()

    with pytest.raises(sqlite3.DatabaseError, match="malformed"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", look=look)
    (tmp_path / "other.sqlite").write_bytes(b"no database at all" * 1000)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        copy_databases([tmp_path / "other.sqlite"], tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "full"), "{} cannot be written: no space left on device"),
        (sqlite3.OperationalError("disk I/O error"), "the databases cannot be copied to {}: disk I/O error"),
        (CopyError("no"), "no"),
    ],
)
def test_what_fails_leaves_nothing_behind(
    source: sqlite3.Connection, tmp_path: Path, error: Exception, sentence: str
) -> None:
    before = sorted(tmp_path.iterdir())

    def fail(_left: int, _total: int) -> None:
        raise error

    with pytest.raises(CopyError) as told:
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", progress=fail)
    assert str(told.value) == sentence.format(tmp_path / "copy")
    assert isinstance(told.value, NoRoom) == (type(error) is not CopyError)
    assert sorted(tmp_path.iterdir()) == before
