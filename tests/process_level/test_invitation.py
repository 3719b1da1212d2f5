"""A new member does what an invitation says, in a clone, and becomes a peer."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from svcd.cli.invitation import ADDRESS, PORT
from tests.process_level.conftest import Nodes
from tests.process_level.founding import commands, found
from tests.process_level.pages import ROOT, run
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode, free_port, wait_until
from tests.programs import needs

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.fixture
def founder(nodes: Nodes, tmp_path: Path) -> RunningNode:
    return found(nodes, tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A member's new folder, with what `git clone` and the first `make` leave there."""
    environment = tmp_path / "member" / "svcd" / ".venv"
    environment.mkdir(parents=True)
    (environment / "bin").symlink_to(BIN)
    for name in ("Makefile", "setup.py"):
        (environment.parent / name).symlink_to(ROOT / name)
    (environment / "installed").touch()
    return tmp_path / "member"


@pytest.fixture
def member(folder: Path) -> Iterator["Member"]:
    """The member, whose node ends with the test."""
    member = Member(folder)
    yield member
    member.stop()


class Member:
    """Copies the commands of an invitation into a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.started: subprocess.Popen[bytes] | None = None

    def types(self, commands: str) -> str:
        """What is printed; nothing may fail."""
        return run(commands, self.folder)

    def starts(self, command: str) -> None:
        """Let it run."""
        with self.log.open("wb") as log:
            self.started = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=ENVIRONMENT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Press Ctrl-C, which the shell and the node get."""
        if self.started is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.started.pid, signal.SIGINT)
            self.started.wait(DEADLINE)
            assert "Traceback" not in self.log.read_text()


@needs("bash", "cat", "grep")
def test_who_follows_an_invitation_is_a_peer(founder: RunningNode, member: Member, tmp_path: Path) -> None:
    wait_until(lambda: int(founder.status()["height"]) >= 2, "blocks of the founder")
    invite = f"svc --data-dir anna network invite fest.toml --repository {ROOT}"
    refused = subprocess.run(
        ["bash", "-c", invite], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "because 127.0.0.1 is this machine itself" in refused.stderr
    text = run(f"{invite} --allow-private", tmp_path)
    program, rules, compare, clone, _debian, peers, _ = commands(text)

    assert program == f"git clone {ROOT} svcd"
    member.types(rules)
    compared = member.types(compare)
    assert f"genesis hash   {founder.status()['genesisHash']}\n" in compared
    assert f"changes hash   {founder.ok(founder.get('/p2p/status'))['status']['changesHash']}\n" in compared
    port = free_port()
    clone = clone.replace(str(PORT), str(port))
    forgotten = subprocess.run(
        ["bash", "-c", clone], cwd=member.folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert forgotten.returncode != 0
    assert "[http] publicUrl" in forgotten.stderr
    assert not (member.folder / "fest-data").exists()
    member.starts(clone.replace(ADDRESS, "127.0.0.1"))

    def has_joined() -> bool:
        return (member.folder / "fest-data" / "operator.sock").exists() and founder.url in member.types(peers)

    wait_until(has_joined, "the founder among the member's peers")
    assert founder.status()["nodeId"] in member.types(peers)
    own = "svcd/.venv/bin/svc --data-dir fest-data node status --json"

    def status() -> Any:
        return json.loads(member.types(own))

    wait_until(lambda: int(status()["height"]) >= 2, "the chain of the founder at the new member")
    node_id, url = status()["nodeId"], f"http://127.0.0.1:{port}"

    def is_listed() -> bool:
        connection = founder.connection()
        connection.request("GET", "/peers")
        text = connection.getresponse().read().decode()
        connection.close()
        return node_id in text and url in text

    wait_until(is_listed, "the member on the founder's page of verified peers")
