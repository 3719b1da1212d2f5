"""One process, one data directory."""

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from twisted.logger import LogEvent, formatEvent

from svcd.process.datadir import DataDirectory, FileWatch, SeedFileError, load_or_make, load_or_make_token
from svcd.process.sequential import CannotStart
from tests.as_root import OWNER, needs_root


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


@pytest.mark.parametrize("fault", [remove, replace])
def test_removed_or_replaced(
    path: Path, fault: Callable[[Path], None], expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    watch = FileWatch([path], lambda: calls.append("stop"))
    watch.check()
    path.write_text("other content in the same file")
    watch.check()
    assert calls == []
    fault(path)
    watch.check()
    watch.check()
    assert calls == ["stop"]
    (event,) = expected_errors()
    assert formatEvent(event).startswith(f"{path} was removed or replaced while the node uses it. ")


def test_a_file_that_appears_later_is_watched_from_then_on(
    path: Path, expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    log = path.with_name("chain.sqlite-wal")
    watch = FileWatch([path, log], lambda: calls.append("stop"))
    watch.check()
    log.write_text("")
    watch.check()
    assert calls == []
    log.unlink()
    watch.check()
    assert calls == ["stop"]
    expected_errors()


def test_a_disk_that_does_not_answer_is_for_others_to_tell(path: Path) -> None:
    calls: list[str] = []
    folder = path.with_name("folder")
    folder.mkdir()
    below = folder / path.name
    path.rename(below)
    watch = FileWatch([below], lambda: calls.append("stop"))
    watch.check()
    folder.rename(folder.with_name("mounted elsewhere"))
    # The same answer, ENOTDIR, that is neither "it is there" nor "it is not".
    folder.write_text("")
    watch.check()
    assert calls == []


SEED = bytes(range(32))


@pytest.fixture
def seed_file(tmp_path: Path) -> Path:
    return tmp_path / "operator.key"


def no_random(size: int) -> bytes:
    pytest.fail("a seed that exists was made anew")


def write(seed_file: Path, text: bytes, mode: int = 0o600) -> None:
    seed_file.write_bytes(text)
    seed_file.chmod(mode)


def mode(seed_file: Path) -> int:
    return stat.S_IMODE(seed_file.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def test_a_seed_is_made_once_and_found_again(seed_file: Path) -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return SEED

    assert load_or_make(seed_file, random) == SEED
    assert asked == [32]
    assert seed_file.read_text() == SEED.hex() + "\n"
    assert load_or_make(seed_file, no_random) == SEED


@pytest.mark.parametrize("umask", [0o000, 0o022], indirect=True)
def test_a_new_seed_is_readable_by_its_owner_only(seed_file: Path, umask: int) -> None:
    load_or_make(seed_file, lambda size: SEED)
    assert mode(seed_file) == 0o600


def test_nothing_else_is_left_in_the_folder(seed_file: Path) -> None:
    load_or_make(seed_file, lambda size: SEED)
    assert list(seed_file.parent.iterdir()) == [seed_file]


def test_files_left_by_a_crash_are_replaced(seed_file: Path) -> None:
    partial = seed_file.with_name("operator.key.new")
    write(partial, b"00", 0o644)
    assert load_or_make(seed_file, lambda size: SEED) == SEED
    assert mode(seed_file) == 0o600
    assert not partial.exists()


@pytest.mark.parametrize("text", [SEED.hex(), SEED.hex() + "\n"])
def test_a_seed_with_or_without_the_end_of_its_line(seed_file: Path, text: str) -> None:
    write(seed_file, text.encode())
    assert load_or_make(seed_file, no_random) == SEED


@pytest.mark.parametrize("permissions", [0o640, 0o604, 0o660, 0o601, 0o644])
def test_a_seed_that_others_may_read_is_refused(seed_file: Path, permissions: int) -> None:
    write(seed_file, SEED.hex().encode(), permissions)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, no_random)
    assert str(refusal.value) == f"{seed_file} can be read by others than its owner: run chmod 600 {seed_file}"


@pytest.mark.parametrize("permissions", [0o600, 0o400, 0o700])
def test_a_seed_that_nobody_else_may_read_is_taken(seed_file: Path, permissions: int) -> None:
    write(seed_file, SEED.hex().encode(), permissions)
    assert load_or_make(seed_file, no_random) == SEED


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        SEED.hex()[:-1].encode(),
        SEED.hex().encode() + b"0",
        SEED.hex().encode() + b"\n\n",
        SEED.hex().upper().encode(),
        b" " + SEED.hex().encode(),
        SEED,
        b"\xff" * 64,
        "\N{FULLWIDTH DIGIT ONE}".encode() * 64,
    ],
)
def test_a_file_that_holds_no_seed_is_refused_and_kept(seed_file: Path, text: bytes) -> None:
    write(seed_file, text)
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, no_random)
    assert str(refusal.value) == (
        f"{seed_file} must contain 64 lower-case hex characters: restore it, or move it away for a new key"
    )
    assert seed_file.read_bytes() == text


def test_a_seed_in_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    seed_file = tmp_path / "none" / "operator.key"
    with pytest.raises(SeedFileError) as refusal:
        load_or_make(seed_file, lambda size: SEED)
    assert str(refusal.value) == (
        f"{seed_file} cannot be read or made: No such file or directory; it must be in a folder that exists and be "
        "open to the user that runs the node"
    )


def test_a_seed_below_a_file_is_refused(seed_file: Path) -> None:
    seed_file.write_text("a file")
    with pytest.raises(SeedFileError, match=r"operator\.key/key cannot be read or made: Not a directory; "):
        load_or_make(seed_file / "key", lambda size: SEED)


def test_a_folder_and_a_pipe_are_no_seeds(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for seed_file in (tmp_path, tmp_path / "pipe", Path("/")):
        with pytest.raises(SeedFileError) as refusal:
            load_or_make(seed_file, no_random)
        assert str(refusal.value) == f"{seed_file} is not a file: name one, or a place where one can be made"


def test_a_token_is_the_seed_in_hex(seed_file: Path) -> None:
    assert load_or_make_token(seed_file, lambda size: SEED) == SEED.hex()
    assert load_or_make_token(seed_file, no_random) == SEED.hex()
    assert load_or_make(seed_file, no_random) == SEED
