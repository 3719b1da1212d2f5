"""Root in a directory of another user, in processes of their own: what root gives up it cannot take back."""

import ctypes
import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.process.privileges import UnsafeDirectory, become_owner
from tests.as_root import OWNER, UNMEASURED, directory_of_root, give_to_owner, needs_mounts, needs_root

ENTERING = """
import os, sys
from pathlib import Path
from svcd.process.privileges import UnsafeDirectory, become_owner
try:
    path = become_owner(Path(sys.argv[1]))
except UnsafeDirectory as error:
    sys.exit(str(error))
"""
WHO = "print(*os.getresuid(), *os.getresgid(), os.getgroups(), Path('/proc/self/status').read_text())"
WRITING = """
print("entered", flush=True)
sys.stdin.readline()
os.close(os.open(path / "new", os.O_CREAT | os.O_WRONLY))
"""
ABSOLUTE = "(path / 'new').absolute().write_text('')"
NO_MOUNTS = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory of root's that every user can reach."""
    with directory_of_root() as folder:
        yield folder


def entering(folder: Path, then: str, *prefix: str) -> "subprocess.Popen[str]":
    """A process of root's that enters ``folder`` and runs ``then``."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", ENTERING + then, str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=UNMEASURED,
    )  # fmt: skip


def entered(folder: Path, then: str, *prefix: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of such a process."""
    process = entering(folder, then, *prefix)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def data_in(folder: Path, name: str = "data") -> Path:
    data = folder / name
    data.mkdir(parents=True, mode=0o700)
    return data


@needs_root
@pytest.mark.socket
def test_root_keeps_no_right_in_a_directory_of_another_user(open_place: Path) -> None:
    data = data_in(open_place)
    give_to_owner(data)
    status, out, err = entered(data, WHO)
    uid, gid = map(str, OWNER)
    assert (status, err) == (0, "")
    assert out.startswith(f"{uid} {uid} {uid} {gid} {gid} {gid} []")
    capabilities = {line.split(":")[0]: line.split()[1] for line in out.splitlines() if line.startswith("Cap")}
    assert {int(capabilities[kind], 16) for kind in ("CapEff", "CapPrm", "CapAmb")} == {0}


@needs_root
@pytest.mark.socket
def test_a_user_with_an_entry_has_that_group_and_not_the_one_of_the_directory(open_place: Path) -> None:
    """`chown nobody data` leaves the directory to root's group, whose files are none of that user's."""
    entry = pwd.getpwnam("nobody")
    data = data_in(open_place)
    os.chown(data, entry.pw_uid, 0)
    _status, out, _err = entered(data, WHO)
    assert out.split()[:6] == [*[str(entry.pw_uid)] * 3, *[str(entry.pw_gid)] * 3]


@needs_mounts
@pytest.mark.socket
def test_the_owner_need_not_be_able_to_reach_the_directory(open_place: Path) -> None:
    """As below /var/lib/private, where systemd keeps the directories of dynamic users, under links to them."""
    closed = data_in(open_place, "private")
    data = data_in(closed, "node")
    give_to_owner(data)
    (open_place / "node").symlink_to(data)
    status, _out, err = entered(open_place / "node", ABSOLUTE)
    assert (status, err) == (0, "")
    assert (data / "new").stat().st_uid == OWNER[0]
    assert [path.name for path in closed.iterdir()] == ["node"], "what is mounted is mounted for the process only"


@needs_root
@pytest.mark.socket
def test_without_mounts_root_is_told_who_can_do_it(open_place: Path) -> None:
    data = data_in(data_in(open_place, "private"), "node")
    give_to_owner(data)
    assert entered(data, ABSOLUTE, *NO_MOUNTS) == (
        1,
        "",
        f"cannot be used by root: {open_place}/private is closed to the owner or open to others, and the system allows "
        "no mount namespace (Operation not permitted). Run the command as the owner\n",
    )
    assert list(data.iterdir()) == []


@needs_mounts
@pytest.mark.socket
@pytest.mark.parametrize("owner", [OWNER, (0, 0)], ids=["owner", "root"])
def test_a_directory_that_takes_the_place_of_the_entered_one_is_not_touched(
    open_place: Path, owner: tuple[int, int]
) -> None:
    """The directory that holds it is another user's, who can rename what is in it, also what root has there."""
    home = data_in(open_place, "home")
    data = data_in(home)
    give_to_owner(home)
    os.chown(data, *owner)
    process = entering(data, WRITING + ABSOLUTE.replace("new", "newer"))
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    data.rename(home / "before")
    data.symlink_to(data_in(open_place, "victim"))
    _out, err = process.communicate("\n", timeout=120)
    names = {path.name for path in (home / "before").iterdir()}
    assert list((open_place / "victim").iterdir()) == []
    if owner == OWNER:
        # The owner's own directory is reached by a path that the owner can change, and only as the owner.
        assert "new" in names
    else:
        assert (process.returncode, err, names) == (0, "", {"new", "newer"})


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_root_does_not_work_in_a_directory_of_root_s_that_others_can_write_to(tmp_path: Path, mode: int) -> None:
    data = data_in(tmp_path)
    data.chmod(mode)
    with pytest.raises(UnsafeDirectory, match="belongs to root but others can write to it: run chmod go-w on it"):
        become_owner(data)


@needs_root
def test_root_stays_root_in_a_directory_that_only_root_can_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = data_in(tmp_path)
    (tmp_path / "link").symlink_to(data)
    monkeypatch.chdir(tmp_path)
    assert (become_owner(data), become_owner(Path("data"))) == (data, Path("data"))
    assert become_owner(Path("link")) == data, "another user may change a link"
    assert (os.geteuid(), Path.cwd()) == (0, tmp_path)


@needs_root
def test_a_directory_that_was_replaced_while_it_was_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = data_in(tmp_path), data_in(tmp_path, "other")
    monkeypatch.setattr(os.path, "realpath", lambda _path: str(other))
    with pytest.raises(UnsafeDirectory, match="was replaced by another directory just now: try again"):
        become_owner(data)


class Library:
    """Instead of the C library: mounts nothing and says whether it did."""

    def __init__(self, result: int) -> None:
        self.result = result
        self.calls: list[tuple[object, ...]] = []

    def unshare(self, *arguments: object) -> int:
        self.calls.append(("unshare", *arguments))
        return self.result

    def mount(self, source: bytes | None, target: bytes, *_options: object) -> int:
        self.calls.append(("mount", source, target))
        return self.result


@pytest.fixture
def given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What becomes of the identity of the tests' process, which only seems to be root's and keeps its own."""
    calls: list[tuple[object, ...]] = []
    for name in ("setgroups", "setegid", "seteuid", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *numbers, name=name: calls.append((name, *numbers)))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.chdir(tmp_path)
    return calls


def of_another_user(folder: Path) -> tuple[Path, os.stat_result]:
    data = data_in(folder)
    if data.stat().st_uid == 0:
        give_to_owner(data)
    return data, data.stat()


def test_rights_are_given_up_in_order_and_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: list[tuple[object, ...]]
) -> None:
    """The user last: without root's rights no group can be given up any more."""
    data, found = of_another_user(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_path, **_options: True)
    assert become_owner(data) == Path()
    assert Path.cwd() == data
    uid, gid = given_up[-1][1], given_up[-2][1]
    assert uid == found.st_uid
    assert given_up == [
        ("setgroups", []),
        ("setegid", gid),
        ("seteuid", uid),
        ("seteuid", 0),
        ("setegid", 0),
        ("setresgid", gid, gid, gid),
        ("setresuid", uid, uid, uid),
    ]


@pytest.mark.parametrize(
    ("result", "sentence"), [(0, "was replaced by another directory just now"), (-1, "the system allows no mount name")]
)
def test_rights_are_not_used_where_the_mount_is_not_what_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given_up: list[tuple[object, ...]], result: int, sentence: str
) -> None:
    data, _found = of_another_user(tmp_path)
    library = Library(result)
    monkeypatch.setattr(os, "access", lambda path, *_mode, **_options: path != tmp_path)
    monkeypatch.setattr(ctypes, "CDLL", lambda *_name, **_options: library)
    with pytest.raises(UnsafeDirectory, match=sentence):
        become_owner(data)
    assert library.calls[0] == ("unshare", 0x20000)
    assert library.calls[-1] in (("mount", b".", os.fsencode(tmp_path)), ("unshare", 0x20000))
    assert (given_up[-1][0] == "setresuid") is (result == 0), "given up before the directory is looked at"


def test_other_users_stay_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert become_owner(tmp_path) == tmp_path


def test_a_directory_that_is_missing_is_an_error_for_every_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for user in (0, 1_000):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with pytest.raises(FileNotFoundError):
            become_owner(tmp_path / "missing")
        with pytest.raises(NotADirectoryError):
            become_owner(tmp_path / "file")
