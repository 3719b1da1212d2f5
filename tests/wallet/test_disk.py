"""Files of the wallet on a real disk."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from svcd.wallet.disk import held, read_bounded, read_secret, refuse_existing, replace, write_new
from svcd.wallet.failed import Failed


def test_a_new_file_is_the_owner_s_alone(tmp_path: Path) -> None:
    write_new(tmp_path / "new", b"data")
    assert (tmp_path / "new").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(Failed, match="old exists already and is never written over"):
        write_new(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_link_to_nowhere_exists_too(tmp_path: Path) -> None:
    path = tmp_path / "link"
    refuse_existing(path)
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(Failed, match="exists already"):
        refuse_existing(path)
    with pytest.raises(Failed, match="exists already"):
        write_new(path, b"new")


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="cannot be written: no such file or directory"):
        write_new(tmp_path / "gone" / "new", b"data")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Failed, match="new cannot be written: no space left on device"):
        write_new(tmp_path / "new", b"data")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_of_the_same_number_left_is_in_nobody_s_way(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.with_name(f"outbox.{os.getpid()}").write_bytes(b"hal")
    replace(path, b"whole")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("outbox", b"whole")]


def test_what_is_in_the_way_of_a_new_file_is_named_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"old")
    path.with_name(f"outbox.{os.getpid()}").mkdir()
    with pytest.raises(Failed, match=rf"outbox\.{os.getpid()} cannot be removed: is a directory"):
        replace(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_file_that_cannot_take_its_place_is_left_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.mkdir()
    with pytest.raises(Failed, match="outbox cannot be written: is a directory"):
        replace(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_reading_stops_past_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    assert read_bounded(path, 3) == b"1234"
    with pytest.raises(Failed, match="cannot be read: is a directory"):
        read_bounded(tmp_path, 5)


def test_a_secret_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    assert read_secret(path, "the token") == b"secret"
    path.chmod(0o640)
    with pytest.raises(Failed, match=rf"is open to others \(mode 0640\); run: chmod 600 {path}"):
        read_secret(path, "the token")


def test_a_secret_is_short_and_there(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(Failed, match="cannot be read: no such file or directory"):
        read_secret(path, "the token")
    path.write_bytes(b"x" * 4097)
    path.chmod(0o600)
    with pytest.raises(Failed, match="holds more than 4096 bytes; it must hold the token alone"):
        read_secret(path, "the token")


def test_a_file_is_held_once_and_let_go(tmp_path: Path) -> None:
    path = tmp_path / "keyfile"
    with pytest.raises(Failed, match="keyfile cannot be read: no such file or directory"), held(path, "taken"):
        pass
    path.write_bytes(b"seed")
    with held(path, "taken"):
        with pytest.raises(Failed, match="taken"), held(path, "taken"):
            pass
        # Whoever was refused has not let go of it for the other.
        with pytest.raises(Failed, match="taken"), held(path, "taken"):
            pass
    with pytest.raises(BlockingIOError, match="of the work"), held(path, "taken"):
        raise BlockingIOError("of the work")
    with held(path, "taken"):
        assert path.read_bytes() == b"seed"


def test_a_disk_that_knows_no_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "none")

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(Failed, match="keyfile cannot be locked: no locks available"), held(path, "taken"):
        pytest.fail("held")


def test_a_keyfile_on_nfs_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a lock that keeps all others out needs a descriptor that may write."""
    real = fcntl.flock

    def over_nfs(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, operation)

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(fcntl, "flock", over_nfs)
    with held(path, "taken"), pytest.raises(Failed, match="taken"), held(path, "taken"):
        pytest.fail("held twice")
    assert path.read_bytes() == b"seed"


@pytest.mark.parametrize("why", [errno.EACCES, errno.EROFS])
def test_a_keyfile_that_nobody_may_change_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    """Of mode 0400, or on a read-only disk; root may write all the same, so the system's answer is given here."""
    real = os.open

    def refuse(path: Path, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(why, os.strerror(why))
        return real(path, flags)

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(os, "open", refuse)
    with held(path, "taken"), pytest.raises(Failed, match="taken"), held(path, "taken"):
        pytest.fail("held twice")
