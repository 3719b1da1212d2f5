"""`svc db` and `svc node key` run by root, who works in no directory that another user can change."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from svcd.store.database import WEBHOOKS, open_writer
from tests.as_root import OWNER, directory_of_root, give_to_owner, needs_root
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT

pytestmark = [needs_root, pytest.mark.socket, pytest.mark.slow]
SVC = str(BIN / "svc")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of root's below which every user can reach what is open to it."""
    with directory_of_root() as folder:
        yield folder


@pytest.fixture
def data(place: Path, made: Path) -> Path:
    """A data directory of root's."""
    data = place / "data"
    data.mkdir(mode=0o700)
    shutil.copy(made, data / "chain.sqlite").chmod(0o640)
    open_writer(data / "webhooks.sqlite", WEBHOOKS).close()
    return data


def run(*words: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `svc`."""
    done = subprocess.run(
        [SVC, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT, timeout=DEADLINE, check=False
    )
    return done.returncode, done.stdout, done.stderr


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """The content of a directory: names, owners, modes, times and bytes."""
    found = {path.name: (path.lstat(), path.read_bytes()) for path in folder.iterdir()}
    return {
        name: (seen.st_uid, seen.st_gid, seen.st_mode, seen.st_mtime_ns, content)
        for name, (seen, content) in found.items()
    }


COMMANDS = [
    ("db", "check", "{}"),
    ("db", "verify", "{}"),
    ("db", "rebuild", "{}"),
    ("db", "compact", "{}"),
    ("webhook", "move", "{}", "--to", "postgresql:///svcd"),
    ("node", "key", "new", "--data-dir={}", "--password-file=/dev/null"),
    ("node", "key", "encrypt", "--data-dir={}"),
    ("node", "key", "address", "--data-dir={}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:3]))
def test_root_is_told_the_user_to_be_and_touches_nothing(data: Path, command: tuple[str, ...]) -> None:
    """Links to a database and a key of root's are traps of that user's."""
    victim = data.with_name("victim")
    shutil.copytree(data, victim)
    (victim / "operator.key").write_text("a secret")
    for path in data.iterdir():
        path.unlink()
    for name in ("chain.sqlite", "chain.sqlite-wal", "webhooks.sqlite", "operator.key", "lock"):
        (data / name).symlink_to(victim / name)
    give_to_owner(data)
    before = state(victim)
    words = [word.format(data) for word in command]
    as_owner = f"sudo -u '#{OWNER[0]}' {SVC} {' '.join(words)}"
    assert run(*words) == (1, "", f"Error: {data} belongs to #{OWNER[0]}: run {as_owner}\n")
    assert state(victim) == before


def test_a_user_with_a_name_is_called_by_it(data: Path) -> None:
    user = pwd.getpwnam("nobody")
    os.chown(data, user.pw_uid, user.pw_gid)
    status, _out, err = run("db", "check", data)
    assert (status, err) == (1, f"Error: {data} belongs to nobody: run sudo -u nobody {SVC} db check {data}\n")


def test_root_works_in_a_directory_that_only_root_can_change(data: Path) -> None:
    assert run("db", "check", data) == (0, f"{data} is sound: 71 blocks and all derived data\n", "")
    assert run("db", "rebuild", data)[0] == 0
    missing = data / "nowhere"
    assert run("db", "check", missing)[2].startswith(f"Error: there is no {missing}/chain.sqlite; ")


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_directory_of_root_s_that_others_can_write_to(data: Path, mode: int) -> None:
    before = state(data)
    data.chmod(mode)
    status, _out, err = run("db", "check", data)
    assert (status, err) == (1, f"Error: root does not work in {data}, because others can change {data}\n")
    assert state(data) == before


def test_a_directory_of_root_s_below_another_user_s(data: Path, place: Path) -> None:
    """That user can put another directory in its place; a link to it does not hide that."""
    home = place / "home"
    home.mkdir()
    data.rename(home / "data")
    data.symlink_to(home / "data")
    os.chown(home, *OWNER)
    status, _out, err = run("db", "check", data)
    assert (status, err) == (1, f"Error: root does not work in {data}, because others can change {home}\n")
