"""What copies that did not end have left behind: it is removed, and nothing else is."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.copying import copy_databases
from svcd.store.database import open_writer
from svcd.store.unfinished import held, remove_left, unfinished_name

KILLED = """
import os, signal, sys
from pathlib import Path
from svcd.store.copying import copy_databases

copy_databases([Path(sys.argv[1])], Path(sys.argv[2]), progress=lambda *_: os.kill(os.getpid(), signal.SIGKILL))
"""


def left(folder: Path, *names: str, mode: int = 0o700) -> Path:
    """A folder as a copy that did not end may have left it."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text("half")
    folder.chmod(mode)
    return folder


def test_what_a_killed_copy_has_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    source = tmp_path / "chain.sqlite"
    open_writer(source).close()
    killed = subprocess.run([sys.executable, "-c", KILLED, source, tmp_path / "monday"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in (tmp_path / "monday.partial").iterdir()] == ["chain.sqlite"]
    assert remove_left(tmp_path / "tuesday") == [tmp_path / "monday.partial"]
    assert not list(tmp_path.glob("*.partial"))


def test_a_copy_that_is_being_made_is_nobody_s_to_remove(tmp_path: Path) -> None:
    folder, seen = tmp_path / "copy", []
    with closing(open_writer(tmp_path / "chain.sqlite")):
        copy_databases([tmp_path / "chain.sqlite"], folder, look=lambda _: seen.append(remove_left(tmp_path / "other")))
    assert seen == [[]]
    assert folder.is_dir()
    assert remove_left(tmp_path / "other") == []
    partial = left(tmp_path / "monday.partial", "chain.sqlite")
    with held(partial):
        assert remove_left(tmp_path / "monday") == []
    assert remove_left(tmp_path / "monday") == [partial]


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("chain.sqlite",),
        ("chain.sqlite", "chain.sqlite-journal"),
        ("webhooks.sqlite", "chain.sqlite", "chain.sqlite-wal", "chain.sqlite-shm"),
    ],
)
def test_whatever_of_a_copy_was_there(tmp_path: Path, names: tuple[str, ...]) -> None:
    left(tmp_path / "monday.partial", *names)
    assert remove_left(tmp_path / "monday") == [tmp_path / "monday.partial"]


def test_each_of_several_is_removed(tmp_path: Path) -> None:
    folders = [left(tmp_path / f"{day}.partial", "chain.sqlite") for day in ("monday", "sunday", "tuesday")]
    assert remove_left(tmp_path / "monday") == folders


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
def test_what_is_somebody_s_stays(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "monday.partial")
    before = sorted(tmp_path.rglob("*"))
    assert remove_left(tmp_path / "monday") == []
    assert sorted(tmp_path.rglob("*")) == before


def test_what_belongs_to_another_user_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = left(tmp_path / "monday.partial", "chain.sqlite")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert remove_left(tmp_path / "monday") == []
    assert partial.exists()


def test_where_the_folder_cannot_be_read_the_name_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    for day in ("monday", "tuesday"):
        left(tmp_path / f"{day}.partial", "chain.sqlite")
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert remove_left(tmp_path / "monday") == [tmp_path / "monday.partial"]


def test_what_cannot_be_removed_is_not_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str, *, dir_fd: int) -> None:
        raise OSError(30, "Read-only file system")

    left(tmp_path / "monday.partial", "chain.sqlite")
    monkeypatch.setattr(os, "unlink", refuse)
    assert remove_left(tmp_path / "monday") == []


def test_what_takes_the_name_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial, listed = left(tmp_path / "monday.partial", "chain.sqlite"), os.listdir

    def list_and_swap(folder: int) -> list[str]:
        partial.rename(tmp_path / "old")
        left(partial, "chain.sqlite", "notes.txt")
        return listed(folder)

    monkeypatch.setattr(os, "listdir", list_and_swap)
    assert remove_left(tmp_path / "monday") == []
    assert sorted(listed(partial)) == ["chain.sqlite", "notes.txt"]


def test_a_copy_is_made_beside_its_place() -> None:
    assert unfinished_name(Path("/backups/monday")) == Path("/backups/monday.partial")
