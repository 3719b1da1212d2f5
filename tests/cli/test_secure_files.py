"""Files with secrets, on a real disk."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from svcd.cli.errors import CommandError
from svcd.cli.secure_files import lock_file, read_bounded, read_secret, replace_file, require_absent, write_new_file


def test_a_new_file_is_the_owner_s_alone(tmp_path: Path) -> None:
    write_new_file(tmp_path / "new", b"data")
    assert (tmp_path / "new").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    with pytest.raises(CommandError, match="old exists already and is never overwritten"):
        write_new_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_dangling_link_counts_as_existing(tmp_path: Path) -> None:
    path = tmp_path / "link"
    require_absent(path)
    path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(CommandError, match="exists already"):
        require_absent(path)
    with pytest.raises(CommandError, match="exists already"):
        write_new_file(path, b"new")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be written: no such file or directory"):
        write_new_file(tmp_path / "gone" / "new", b"data")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CommandError, match="new cannot be written: no space left on device"):
        write_new_file(tmp_path / "new", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_leftover_of_a_killed_process_with_the_same_id_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.with_name(f"outbox.{os.getpid()}").write_bytes(b"hal")
    replace_file(path, b"whole")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("outbox", b"whole")]


def test_an_obstacle_for_the_temporary_file_is_named_and_the_old_file_kept(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.write_bytes(b"old")
    path.with_name(f"outbox.{os.getpid()}").mkdir()
    with pytest.raises(CommandError, match=rf"outbox\.{os.getpid()} cannot be removed: is a directory"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_failed_replacement_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "outbox"
    path.mkdir()
    with pytest.raises(CommandError, match="outbox cannot be written: is a directory"):
        replace_file(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_reading_is_limited(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(CommandError, match="file has more than 4 bytes"):
        read_bounded(path, 4)
    with pytest.raises(CommandError, match="cannot be read: is a directory"):
        read_bounded(tmp_path, 5)


def test_a_secret_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    assert read_secret(path) == b"secret"
    path.chmod(0o640)
    with pytest.raises(CommandError, match=rf"is open to others \(mode 0640\); run: chmod 600 {path}"):
        read_secret(path)


@pytest.fixture
def owned_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes files appear to belong to a user, and their folders to another."""
    real_fstat, real_stat = os.fstat, Path.stat

    def owned(by: int, *, folder: int, seen_by: int) -> None:
        def change(found: os.stat_result, uid: int) -> os.stat_result:
            return os.stat_result((*found[:4], uid, *found[5:10]))

        monkeypatch.setattr(os, "geteuid", lambda: seen_by)
        monkeypatch.setattr(os, "fstat", lambda descriptor: change(real_fstat(descriptor), by))
        monkeypatch.setattr(Path, "stat", lambda self, **how: change(real_stat(self, **how), folder))

    return owned


@pytest.mark.parametrize(
    ("owner", "folder", "user", "trusted"),
    [
        (1000, 1000, 1000, True),
        (0, 1000, 1000, True),
        (1001, 1000, 1000, False),
        (1001, 1001, 1000, False),
        (0, 0, 0, True),
        (1001, 1001, 0, True),
        (1001, 0, 0, False),
        (1001, 1002, 0, False),
    ],
)
def test_a_secret_of_another_user_is_not_read(
    tmp_path: Path, owned_by: Callable[..., None], owner: int, folder: int, user: int, trusted: bool
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"secret")
    path.chmod(0o600)
    owned_by(owner, folder=folder, seen_by=user)
    if trusted:
        assert read_secret(path) == b"secret"
        return
    with pytest.raises(CommandError, match=rf"secret belongs to another user \(uid {owner}\), who may change it"):
        read_secret(path)


def test_the_file_that_is_checked_is_the_one_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two system calls another file may take the name."""
    path, other = tmp_path / "secret", tmp_path / "other"
    for each, content in ((path, b"secret"), (other, b"forged")):
        each.write_bytes(content)
        each.chmod(0o600)
    real = os.fstat

    def exchange(descriptor: int) -> os.stat_result:
        if other.exists():
            other.replace(path)
        return real(descriptor)

    monkeypatch.setattr(os, "fstat", exchange)
    assert read_secret(path) == b"secret"
    assert path.read_bytes() == b"forged"


def test_secrets_have_a_maximum_size(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(CommandError, match="cannot be read: no such file or directory"):
        read_secret(path)
    path.write_bytes(b"x" * 4097)
    path.chmod(0o600)
    with pytest.raises(CommandError, match="has more than 4096 bytes"):
        read_secret(path)


def test_a_lock_is_exclusive_and_released(tmp_path: Path) -> None:
    path = tmp_path / "keyfile"
    with (
        pytest.raises(CommandError, match="keyfile cannot be read: no such file or directory"),
        lock_file(path, "taken"),
    ):
        pass
    path.write_bytes(b"seed")
    with lock_file(path, "taken"):
        with pytest.raises(CommandError, match="taken"), lock_file(path, "taken"):
            pass
        # The failed attempt has not released the lock of the other.
        with pytest.raises(CommandError, match="taken"), lock_file(path, "taken"):
            pass
    with pytest.raises(BlockingIOError, match="of the work"), lock_file(path, "taken"):
        raise BlockingIOError("of the work")
    with lock_file(path, "taken"):
        assert path.read_bytes() == b"seed"


def test_a_file_that_was_replaced_meanwhile_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes would hold a lock of the same name, on the old file and on the new one."""
    path = tmp_path / "keyfile"
    path.write_bytes(b"old")
    real = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        replace_file(path, b"new")
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(CommandError, match="taken"), lock_file(path, "taken"):
        pytest.fail("held")


def test_a_file_system_without_locks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_file: object, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "none")

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.raises(CommandError, match="keyfile cannot be locked: no locks available"), lock_file(path, "taken"):
        pytest.fail("held")


def test_a_keyfile_on_nfs_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There an exclusive lock needs a writable descriptor."""
    real = fcntl.flock

    def over_nfs(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(descriptor, operation)

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(fcntl, "flock", over_nfs)
    with lock_file(path, "taken"), pytest.raises(CommandError, match="taken"), lock_file(path, "taken"):
        pytest.fail("held twice")
    assert path.read_bytes() == b"seed"


@pytest.mark.parametrize("why", [errno.EACCES, errno.EROFS])
def test_a_read_only_keyfile_can_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: int) -> None:
    """Mode 0400, or a read-only disk; simulated, because root may write anyway."""
    real = os.open

    def refuse(path: Path, flags: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(why, os.strerror(why))
        return real(path, flags)

    path = tmp_path / "keyfile"
    path.write_bytes(b"seed")
    monkeypatch.setattr(os, "open", refuse)
    with lock_file(path, "taken"), pytest.raises(CommandError, match="taken"), lock_file(path, "taken"):
        pytest.fail("held twice")
