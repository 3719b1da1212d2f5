"""The data directory."""

import subprocess
import sys
from pathlib import Path

import pytest

from svcd.process.datadir import DataDirectory
from svcd.process.sequential import CannotStart


def test_it_is_made_with_its_parents_and_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    directory = DataDirectory(path)
    directory.startService()
    assert path.stat().st_mode & 0o777 == 0o700
    assert (path / "lock").stat().st_mode & 0o777 == 0o600
    directory.stopService()


def test_a_second_node_is_refused_until_the_first_has_stopped(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.startService()
    with pytest.raises(CannotStart, match=f"another node uses the data directory {tmp_path}"):
        second.startService()
    second.stopService()
    first.stopService()
    second.startService()
    second.stopService()


def test_a_process_that_dies_lets_go(tmp_path: Path) -> None:
    program = (
        "import os, sys, pathlib; from svcd.process.datadir import DataDirectory; "
        "DataDirectory(pathlib.Path(sys.argv[1])).startService(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    directory = DataDirectory(tmp_path)
    directory.startService()
    directory.stopService()


def test_leftovers_go_once_the_lock_is_held(tmp_path: Path) -> None:
    running, other = (DataDirectory(tmp_path, leftovers=["operator.sock", "none"]) for _ in range(2))
    running.startService()
    (tmp_path / "operator.sock").touch()
    with pytest.raises(CannotStart):
        other.startService()
    assert (tmp_path / "operator.sock").exists()
    running.stopService()
    other.startService()
    assert not (tmp_path / "operator.sock").exists()
    other.stopService()


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match=f"cannot use the data directory {tmp_path}/file/x: Not a directory"):
        DataDirectory(tmp_path / "file" / "x").startService()
