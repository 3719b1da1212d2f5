"""`svc db` run by root on the data of another user's node, with traps set by that user."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import WEBHOOKS, UncleanShutdownMarker, open_writer
from tests.as_root import OWNER, UNMEASURED, directory_of_root, give_to_owner, needs_mounts, needs_root
from tests.process_level.running import BIN, DEADLINE

pytestmark = [needs_root, pytest.mark.socket, pytest.mark.slow]

NO_FILE = "lock in it must be a regular file of the directory's owner, with no other name"
INTERRUPTED = """
import os, signal
from svcd.cli.operator import database
from svcd.cli import main
def interrupt(*_arguments):
    os.kill(os.getpid(), signal.SIGINT)
database.reindex = interrupt
main.main()
"""


@pytest.fixture(params=["open", pytest.param("private", marks=needs_mounts)])
def data(request: pytest.FixtureRequest, made: Path) -> Iterator[Path]:
    """A node's data directory, reachable by its owner, or only by root as under systemd."""
    with directory_of_root() as folder:
        if request.param == "private":
            folder = folder / "private"
            folder.mkdir(mode=0o700)
        data = folder / "data"
        data.mkdir(mode=0o700)
        shutil.copy(made, data / "chain.sqlite").chmod(0o640)
        open_writer(data / "webhooks.sqlite", WEBHOOKS).close()
        give_to_owner(data)
        yield data


@pytest.fixture
def victim(tmp_path: Path, made: Path) -> Path:
    """A directory of root's with a database of the same kind as the node's."""
    folder = tmp_path / "root"
    folder.mkdir()
    shutil.copy(made, folder / "chain.sqlite").chmod(0o600)
    return folder


def run(*words: object, program: tuple[str, ...] = (str(BIN / "svc"),)) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `svc`."""
    done = subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, env=UNMEASURED, timeout=DEADLINE, check=False
    )
    return done.returncode, done.stdout, done.stderr


def state(folder: Path) -> dict[str, tuple[object, ...]]:
    """The content of a directory: names, owners, modes and bytes."""
    found = {path.name: (path.lstat(), path.read_bytes()) for path in folder.iterdir()}
    return {name: (seen.st_uid, seen.st_gid, seen.st_mode, content) for name, (seen, content) in found.items()}


def owners(folder: Path) -> set[tuple[int, int]]:
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in folder.iterdir()}


def test_files_stay_the_owner_s_when_root_checks_and_rebuilds(data: Path) -> None:
    assert run("db", "check", data) == (0, f"{data} is sound: 71 blocks and all derived data\n", "")
    status, out, err = run("db", "rebuild", data, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["kept"] == f"{data}/chain.sqlite.old-1"
    assert json.loads(out)["height"] == "70"
    assert run("--data-dir", data, "db", "check", "--json")[0] == 0
    assert owners(data) == {OWNER}
    modes = {path.name: path.stat().st_mode & 0o777 for path in data.iterdir()}
    assert modes == {"chain.sqlite": 0o640, "chain.sqlite.old-1": 0o640, "webhooks.sqlite": 0o600, "lock": 0o600}


def test_root_recovers_the_log_of_a_killed_node(data: Path) -> None:
    webhooks = data / "webhooks.sqlite"
    with closing(open_writer(webhooks, WEBHOOKS)) as connection:
        UncleanShutdownMarker(webhooks).create()
        connection.execute("CREATE TABLE promised (n INTEGER)")
        left = {path: path.read_bytes() for path in data.iterdir()}
    for path, content in left.items():
        path.write_bytes(content)
    give_to_owner(data)
    assert run("db", "check", data)[0] == 0
    assert sorted(path.name for path in data.iterdir()) == ["chain.sqlite", "lock", "webhooks.sqlite"]
    assert owners(data) == {OWNER}


def test_damage_is_reported_to_root_too(data: Path) -> None:
    (data / "chain.sqlite").write_bytes(b"no database at all" * 1000)
    for command in ("check", "rebuild"):
        status, _out, err = run("db", command, data)
        assert status == 1
        assert err.startswith("Error: chain.sqlite cannot be opened as a database: file is not a database; restore it")
    (data / "chain.sqlite").unlink()
    missing = f"Error: there is no {data}/chain.sqlite; give the data directory of a node\n"
    assert run("db", "check", data) == (1, "", missing)
    assert run("db", "check", data / "nowhere")[2].startswith(f"Error: there is no {data}/nowhere/chain.sqlite; ")


def link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def second_name(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    os.link(target, path)


TRAPS = {
    "check": ["lock", *(f"webhooks.sqlite{ending}" for ending in ("", "-wal", "-shm", "-open"))],
    "rebuild": [
        *(f"chain.sqlite{ending}" for ending in ("", "-wal", "-shm", "-journal", "-open")),
        *(f"chain.sqlite.new{ending}" for ending in ("", "-wal", "-shm", "-journal")),
    ],
}


@pytest.mark.parametrize("data", ["open"], indirect=True)
@pytest.mark.parametrize(
    ("trap", "command", "name"),
    [(link, command, name) for command, names in TRAPS.items() for name in names]
    + [
        (second_name, "check", "lock"),
        (second_name, "rebuild", "chain.sqlite"),
        (second_name, "rebuild", "chain.sqlite.new"),
    ],
)
def test_a_name_that_leads_to_a_file_of_root_s(
    data: Path, victim: Path, trap: Callable[[Path, Path], None], command: str, name: str
) -> None:
    before = state(victim)
    trap(data / name, victim / "chain.sqlite")
    _status, _out, err = run("db", command, data)
    assert state(victim) == before
    assert "Traceback" not in err
    if name == "lock":
        reason = f"{NO_FILE}; remove it" if trap is link else "Permission denied"
        assert err == f"Error: the data directory {data} cannot be used: {reason}\n"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize("data", ["open"], indirect=True)
@pytest.mark.parametrize(
    ("name", "put"),
    [("lock", pipe), ("lock", unix_socket), ("lock", Path.mkdir), ("chain.sqlite", pipe), ("chain.sqlite-wal", pipe)],
)
def test_a_name_that_is_no_file_holds_nothing_up(data: Path, put: Callable[[Path], None], name: str) -> None:
    (data / name).unlink(missing_ok=True)
    put(data / name)
    give_to_owner(data)
    _status, _out, err = run("db", "rebuild", data)
    assert "Traceback" not in err
    if name == "lock":
        assert err == f"Error: the data directory {data} cannot be used: {NO_FILE}; remove it\n"


def test_ctrl_c_leaves_nothing_behind(data: Path) -> None:
    program = (sys.executable, "-c", INTERRUPTED)
    assert run("db", "rebuild", data, program=program) == (1, "", "\nAborted!\n")
    assert sorted(path.name for path in data.iterdir()) == ["chain.sqlite", "lock", "webhooks.sqlite"]
    assert owners(data) == {OWNER}
    assert run("db", "rebuild", data)[0] == 0


@needs_mounts
def test_a_directory_of_root_s_below_another_user_s(made: Path) -> None:
    """That user can replace the directory: the command works on the one that was named."""
    with directory_of_root() as folder:
        data = folder / "home" / "data"
        data.mkdir(parents=True)
        shutil.copy(made, data)
        os.chown(data.parent, *OWNER)
        assert run("db", "rebuild", data)[0] == 0
        assert owners(data) == {(0, 0)}


def test_a_directory_of_root_s_that_others_can_write_to(victim: Path) -> None:
    victim.chmod(0o777)
    status, _out, err = run("db", "check", victim)
    assert (status, err) == (
        1,
        f"Error: the data directory {victim} belongs to root but others can write to it: run chmod go-w on it\n",
    )
    assert [path.name for path in victim.iterdir()] == ["chain.sqlite"]
