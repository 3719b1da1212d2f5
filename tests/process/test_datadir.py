"""One process, one data directory."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent

from svcd.node.threads import InlineWorker
from svcd.process.datadir import DataDirectory, FileWatch
from svcd.process.sequential import CannotStart
from tests.as_root import OWNER, needs_root
from tests.node.bench import Stepped
from tests.support import has_result, result_of


def test_the_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    service = DataDirectory(path)
    service.startService()
    assert path.stat().st_mode & 0o777 == 0o700
    service.stopService()


def test_a_second_holder_is_told_who_has_it(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.startService()
    with pytest.raises(CannotStart, match=rf"in use by another node \(process {os.getpid()}\)"):
        second.startService()
    first.stopService()
    second.startService()
    second.stopService()


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, sys; from svcd.process.datadir import DataDirectory;"
        "DataDirectory(pathlib.Path(sys.argv[1])).startService(); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == -9
    service = DataDirectory(tmp_path)
    service.startService()
    service.stopService()


def test_a_socket_that_a_killed_node_left_is_removed_and_no_other_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "operator.sock"))
    (tmp_path / "other.sock").write_text("a file of the operator's")
    service = DataDirectory(tmp_path, sockets=("operator.sock", "other.sock", "none.sock"))
    service.startService()
    assert not (tmp_path / "operator.sock").exists()
    assert (tmp_path / "other.sock").exists()
    service.stopService()


def test_a_lock_on_which_nothing_can_be_written_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk there is no room for the number of the process."""

    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.startService()
    with pytest.raises(CannotStart, match="in use by another node"):
        second.startService()
    first.stopService()


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def second_name(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def pipe(path: Path, _target: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _target: Path) -> None:
    path.mkdir()


def unix_socket(path: Path, _target: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize("put", [link, second_name, pipe, directory, unix_socket])
def test_a_lock_that_is_no_file_of_the_directory_alone_is_not_written_to(
    tmp_path: Path, put: Callable[[Path, Path], None]
) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    data.mkdir()
    other.write_text("a file of another place")
    put(data / "lock", other)
    with pytest.raises(CannotStart, match="lock in it must be a regular file of the directory's owner, with no other"):
        DataDirectory(data).startService()
    assert other.read_text() == "a file of another place"


@needs_root
def test_root_does_not_write_to_a_lock_of_a_third_user(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("theirs")
    os.chown(tmp_path / "lock", *OWNER)
    with pytest.raises(CannotStart, match="lock in it must be a regular file of the directory's owner"):
        DataDirectory(tmp_path).startService()
    assert (tmp_path / "lock").read_text() == "theirs"


def test_a_directory_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot be used: Not a directory"):
        DataDirectory(tmp_path / "file" / "data").startService()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "chain.sqlite"
    path.write_text("whole")
    return path


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("whole")
    other.replace(path)


def check(watch: FileWatch) -> None:
    result_of(Deferred.fromCoroutine(watch.check()))


@pytest.mark.parametrize("fault", [remove, replace])
def test_removed_or_replaced(
    path: Path, fault: Callable[[Path], None], expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    watch = FileWatch([path], lambda: calls.append("stop"), InlineWorker())
    check(watch)
    path.write_text("other content in the same file")
    check(watch)
    assert calls == []
    fault(path)
    check(watch)
    check(watch)
    assert calls == ["stop"]
    (event,) = expected_errors()
    assert formatEvent(event).startswith(f"{path} was removed or replaced while the node uses it. ")


def test_a_file_that_appears_later_is_watched_from_then_on(
    path: Path, expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    log = path.with_name("chain.sqlite-wal")
    watch = FileWatch([path, log], lambda: calls.append("stop"), InlineWorker())
    check(watch)
    log.write_text("")
    check(watch)
    assert calls == []
    log.unlink()
    check(watch)
    assert calls == ["stop"]
    expected_errors()


def test_a_disk_that_does_not_answer_is_for_others_to_tell(path: Path) -> None:
    calls: list[str] = []
    folder = path.with_name("folder")
    folder.mkdir()
    below = folder / path.name
    path.rename(below)
    watch = FileWatch([below], lambda: calls.append("stop"), InlineWorker())
    check(watch)
    folder.rename(folder.with_name("mounted elsewhere"))
    # The same answer, ENOTDIR, that is neither "it is there" nor "it is not".
    folder.write_text("")
    check(watch)
    assert calls == []


def test_a_disk_that_takes_its_time_keeps_nothing_else_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch, expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    worker = Stepped()
    watch = FileWatch([path], lambda: calls.append("stop"), worker)
    first = Deferred.fromCoroutine(watch.check())
    worker.finish()
    result_of(first)
    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", lambda *_, **__: pytest.fail("the reactor's thread waits for the disk"))
        second = Deferred.fromCoroutine(watch.check())
    assert not has_result(second)
    worker.finish()
    result_of(second)
    assert calls == ["stop"]
    expected_errors()
