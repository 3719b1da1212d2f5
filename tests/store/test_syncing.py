"""Waiting for the disk: for what is in a file, and for the names in a folder."""

import os
import stat
from pathlib import Path

import pytest

from svcd.store.syncing import sync


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
