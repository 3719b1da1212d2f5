"""A new database in the place of an old one, with what SQLite keeps beside a file."""

from pathlib import Path

import pytest

from svcd.store.offline_database import discard, kept_name, replace_database


def written(folder: Path, **files: str) -> dict[str, str]:
    """Files by their ending; `_` stands for `-`."""
    for ending, text in files.items():
        (folder / f"chain.sqlite{ending.replace('_', '-')}").write_text(text)
    return found(folder)


def found(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_additional_files_of_the_old_database_are_removed(tmp_path: Path) -> None:
    """The new one would be read as if that log were its own."""
    (tmp_path / "fresh").write_text("new")
    (tmp_path / "chain.sqlite").write_text("old")
    written(tmp_path, _wal="log of the old", _shm="index of that log")
    assert replace_database(tmp_path / "chain.sqlite", tmp_path / "fresh") == tmp_path / "chain.sqlite.old-1"
    assert found(tmp_path) == {
        "chain.sqlite": "new",
        "chain.sqlite.old-1": "old",
        "chain.sqlite.old-1-wal": "log of the old",
        "chain.sqlite.old-1-shm": "index of that log",
    }


def test_no_kept_file_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "chain.sqlite"
    (tmp_path / "chain.sqlite.old-1").write_text("older")
    (tmp_path / "chain.sqlite.old-2").symlink_to(tmp_path / "nowhere")
    assert kept_name(path) == tmp_path / "chain.sqlite.old-3"


def test_only_discarded_files_are_removed(tmp_path: Path) -> None:
    before = written(tmp_path, _new="half", _new_wal="of it", _other="another")
    discard(tmp_path / "chain.sqlite-new")
    assert found(tmp_path) == {"chain.sqlite-other": before["chain.sqlite-other"]}
    discard(tmp_path / "chain.sqlite-new")


def test_without_a_new_file_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "chain.sqlite"
    path.write_text("old")
    with pytest.raises(FileNotFoundError):
        replace_database(path, tmp_path / "fresh")
    assert found(tmp_path) == {"chain.sqlite": "old"}
