"""A database copied while others write, put in the place of another, and what a copy leaves behind."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from svcd.chain.errors import Corrupt
from svcd.store import database_copy
from svcd.store.database import DatabaseConnection, open_reader, open_writer, transaction
from svcd.store.database_copy import (
    PAGES,
    CopyError,
    NoRoom,
    copy_databases,
    locked,
    partial_name,
    remove_partial_copies,
    sync,
)
from tests.process_level.test_damage import spoil
from tests.store.damage import overwrite


@pytest.fixture
def source(tmp_path: Path) -> Iterator[DatabaseConnection]:
    """A database of about 8 MiB with the numbers 0 to 1999 and their sum."""
    with closing(open_writer(tmp_path / "chain.sqlite")) as connection:
        connection.execute("CREATE TABLE number (n INTEGER PRIMARY KEY, ballast BLOB)")
        connection.execute("CREATE TABLE total (n INTEGER)")
        connection.execute("INSERT INTO total VALUES (0)")
        with transaction(connection):
            for n in range(2000):
                add(connection, n)
        yield connection


def add(connection: DatabaseConnection, n: int) -> None:
    connection.execute("INSERT INTO number VALUES (?, randomblob(4000))", (n,))
    connection.execute("UPDATE total SET n = n + ?", (n,))


def sums(path: Path) -> tuple[int, int]:
    """The sum of the numbers, and the one that was written down."""
    with closing(open_reader(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (found,) = connection.execute("SELECT sum(n) FROM number").fetchone()
        (noted,) = connection.execute("SELECT n FROM total").fetchone()
        return found, noted


def test_a_copy_is_whole_and_the_owner_s_alone(source: DatabaseConnection, tmp_path: Path) -> None:
    sizes = copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    copy = tmp_path / "copy" / "chain.sqlite"
    assert sums(copy) == (sum(range(2000)), sum(range(2000)))
    assert sizes == {"chain.sqlite": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700


def test_little_of_a_copy_waits_for_the_disk_at_any_time(
    source: DatabaseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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

    monkeypatch.setattr(database_copy, "UNSYNCED_PAGES", 2 * PAGES)
    monkeypatch.setattr(os, "fsync", sync)
    copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", progress=progress)
    grown = [after - before for before, after in pairwise(synced)]
    assert synced[-1] == (tmp_path / "copy" / "chain.sqlite").stat().st_size > 6 * 4096 * PAGES
    assert max(grown) <= 4 * 4096 * PAGES, "that, and the 2 MiB that SQLite itself holds back"
    assert max(steps) <= 2


def test_writes_during_a_copy_neither_show_nor_restart_it(source: DatabaseConnection, tmp_path: Path) -> None:
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


def test_another_thread_writes_while_it_is_made(source: DatabaseConnection, tmp_path: Path) -> None:
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


def test_the_first_of_two_is_never_newer_than_the_second(source: DatabaseConnection, tmp_path: Path) -> None:
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


def test_nothing_is_written_over(source: DatabaseConnection, tmp_path: Path) -> None:
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
    source: DatabaseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_a_damaged_source_is_not_the_fault_of_the_folder(source: DatabaseConnection, tmp_path: Path) -> None:
    source.close()
    spoil(tmp_path / "chain.sqlite", "total")
    with pytest.raises(Corrupt, match=r"^chain\.sqlite: a page fails its checksum$"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    (tmp_path / "other.sqlite").write_bytes(b"no database at all" * 1000)
    with pytest.raises(Corrupt, match=r"^other\.sqlite: .* not a database$"):
        copy_databases([tmp_path / "other.sqlite"], tmp_path / "copy")
    overwrite(tmp_path / "chain.sqlite", 1, 20, b"\0")
    with pytest.raises(Corrupt, match=r"^chain\.sqlite: .* has no page checksums"):
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy")
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize(
    ("place", "sentence"), [(4000, "a page fails its checksum"), (20, "{}/copy.partial/chain.sqlite has no page check")]
)
def test_a_damaged_copy_is_not_the_fault_of_the_source(
    source: DatabaseConnection, tmp_path: Path, place: int, sentence: str
) -> None:
    """The node must not stop because of the disk of its backups."""

    def look(folder: Path) -> None:
        overwrite(folder / "chain.sqlite", 1, place, b"\xff")
        open_reader(folder / "chain.sqlite")

    with pytest.raises(NoRoom) as told:
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", look=look)
    start = f"the databases cannot be copied to {tmp_path / 'copy'}: {sentence.format(tmp_path)}"
    assert str(told.value).startswith(start)
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(28, "full"), "{} cannot be written: no space left on device"),
        (apsw.IOError("disk I/O error"), "the databases cannot be copied to {}: disk I/O error"),
        (CopyError("no"), "no"),
    ],
)
def test_a_failed_copy_leaves_nothing_behind(
    source: DatabaseConnection, tmp_path: Path, error: Exception, sentence: str
) -> None:
    before = sorted(tmp_path.iterdir())

    def fail(_left: int, _total: int) -> None:
        raise error

    with pytest.raises(CopyError) as told:
        copy_databases([tmp_path / "chain.sqlite"], tmp_path / "copy", progress=fail)
    assert str(told.value) == sentence.format(tmp_path / "copy")
    assert isinstance(told.value, NoRoom) == (type(error) is not CopyError)
    assert sorted(tmp_path.iterdir()) == before


def test_files_and_folders_are_waited_for_and_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    waited: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda fd: waited.append((fd, stat.S_ISDIR(os.fstat(fd).st_mode))))
    sync(tmp_path / "file")
    sync(tmp_path)
    assert [is_folder for _, is_folder in waited] == [False, True]
    for descriptor, _ in waited:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_disk_that_fails_is_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nowhere")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output error"):
        sync(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from svcd.store.database_copy import copy_databases

copy_databases([Path(sys.argv[1])], Path(sys.argv[2]), progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


def left(folder: Path, *names: str, mode: int = 0o700) -> Path:
    """A folder as a copy that did not end may have left it."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("half")
    folder.chmod(mode)
    return folder


def test_files_of_a_killed_copy_are_removed_by_the_next_one(tmp_path: Path) -> None:
    source = tmp_path / "chain.sqlite"
    open_writer(source).close()
    killed = subprocess.run([sys.executable, "-c", KILLED, source, tmp_path / "monday"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "monday.partial").iterdir()] == ["chain.sqlite"]
    assert remove_partial_copies(tmp_path / "tuesday") == [tmp_path / "monday.partial"]
    assert not list(tmp_path.glob("*.partial"))


def test_a_copy_that_is_being_made_is_nobody_s_to_remove(tmp_path: Path) -> None:
    folder, seen = tmp_path / "copy", []
    with closing(open_writer(tmp_path / "chain.sqlite")):
        copy_databases(
            [tmp_path / "chain.sqlite"], folder, look=lambda _: seen.append(remove_partial_copies(tmp_path / "other"))
        )
    assert seen == [[]]
    assert folder.is_dir()
    assert remove_partial_copies(tmp_path / "other") == []
    partial = left(tmp_path / "monday.partial", "chain.sqlite")
    with locked(partial):
        assert remove_partial_copies(tmp_path / "monday") == []
    assert remove_partial_copies(tmp_path / "monday") == [partial]


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("chain.sqlite",),
        ("chain.sqlite", "chain.sqlite-journal"),
        ("webhooks.sqlite", "chain.sqlite", "chain.sqlite-wal", "chain.sqlite-shm"),
    ],
)
def test_any_rest_of_a_copy_is_removed(tmp_path: Path, names: tuple[str, ...]) -> None:
    left(tmp_path / "monday.partial", *names)
    assert remove_partial_copies(tmp_path / "monday") == [tmp_path / "monday.partial"]


def test_each_of_several_is_removed(tmp_path: Path) -> None:
    folders = [left(tmp_path / f"{day}.partial", "chain.sqlite") for day in ("monday", "sunday", "tuesday")]
    assert remove_partial_copies(tmp_path / "monday") == folders


@pytest.mark.parametrize(
    "make",
    [
        lambda path: left(path, "chain.sqlite", "notes.txt"),
        lambda path: left(path, "chain.sqlite", mode=0o755),
        lambda path: (left(path) / "a folder").mkdir(),
        lambda path: (left(path, "chain.sqlite") / "folder.sqlite").mkdir(),
        lambda path: (left(path, "chain.sqlite") / "link.sqlite").symlink_to("/"),
        lambda path: path.write_text("a file of somebody's"),
        lambda path: path.symlink_to(left(path.with_name("elsewhere"), "chain.sqlite")),
        lambda path: left(path.with_name("monday"), "chain.sqlite"),
    ],
)
def test_other_files_stay(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "monday.partial")
    before = sorted(tmp_path.rglob("*"))
    assert remove_partial_copies(tmp_path / "monday") == []
    assert sorted(tmp_path.rglob("*")) == before


def test_files_of_another_user_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = left(tmp_path / "monday.partial", "chain.sqlite")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert remove_partial_copies(tmp_path / "monday") == []
    assert partial.exists()


def test_in_an_unreadable_folder_the_name_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    for day in ("monday", "tuesday"):
        left(tmp_path / f"{day}.partial", "chain.sqlite")
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert remove_partial_copies(tmp_path / "monday") == [tmp_path / "monday.partial"]


def test_a_file_that_cannot_be_removed_is_not_reported_as_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str, *, dir_fd: int) -> None:
        raise OSError(30, "Read-only file system")

    left(tmp_path / "monday.partial", "chain.sqlite")
    monkeypatch.setattr(os, "unlink", refuse)
    assert remove_partial_copies(tmp_path / "monday") == []


def test_a_file_that_takes_the_name_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial, listed = left(tmp_path / "monday.partial", "chain.sqlite"), os.listdir

    def list_and_swap(folder: int) -> list[str]:
        partial.rename(tmp_path / "old")
        left(partial, "chain.sqlite", "notes.txt")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", list_and_swap)
    assert remove_partial_copies(tmp_path / "monday") == []
    assert sorted(listed(partial)) == ["chain.sqlite", "notes.txt"]


def test_a_copy_is_made_beside_its_place() -> None:
    assert partial_name(Path("/backups/monday")) == Path("/backups/monday.partial")
