"""README's two commands on a Debian with the packages that README names and no others; `make debian` runs this.

They are run by an ordinary user, in a clone of this repository. `make run` listens at 127.0.0.1:8645 of this computer.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.debian.conftest import FOLDER
from tests.debian.machine import CommandFailed, Machine
from tests.process_level.pages import ROOT
from tests.process_level.running import wait_until

README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
USER: Final = "visitor"
CLONE: Final = f"/home/{USER}/svcd"
STATUS: Final = """python3 -c '
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8645/rpc/status", timeout=10).read().decode())'"""


def packages() -> str:
    """What README tells users of Debian to install."""
    (named,) = set(re.findall(r"`apt install ([^`]+)`", README))
    return named


@pytest.fixture(scope="module")
def machine(debian: Path) -> Iterator[Machine]:
    """A machine with those packages, an ordinary user, and that user's clone of the repository."""
    with Machine.copy(debian, FOLDER / "machine", ROOT) as machine:
        machine.run("apt-get update")
        machine.run(f"DEBIAN_FRONTEND=noninteractive apt-get install --yes {packages()}")
        machine.run(f"useradd --create-home --shell /bin/bash {USER}")
        clone = "git config --global --add safe.directory /source/.git; git clone --quiet /source svcd"
        machine.run(clone, folder=f"/home/{USER}", user=USER)
        yield machine


def node_answers(machine: Machine) -> bool:
    """Whether the node of `make run` tells its status."""
    try:
        return json.loads(machine.run(STATUS))["status"]["chainId"] == "SVC-MAINNET"
    except CommandFailed:
        return False


def test_make_run(machine: Machine) -> None:
    machine.run(
        f"systemd-run --quiet --unit=visit --uid={USER} --working-directory={CLONE}"
        " --property=SuccessExitStatus=143 make run"
    )
    try:
        wait_until(lambda: node_answers(machine), "the node's status", seconds=600)
        machine.run("systemctl stop visit; ! systemctl is-failed --quiet visit")
    finally:
        log = machine.run("journalctl --unit=visit --output=cat --no-pager")
        print(log)
    assert "Traceback" not in log


def test_make_test_all(machine: Machine) -> None:
    try:
        printed = machine.run("make test-all", folder=CLONE, user=USER, seconds=2 * 3600)
    except CommandFailed as failed:
        print(failed)
        raise
    print("\n".join(printed.splitlines()[-40:]))
    closing = printed.splitlines()[-1]
    assert re.match(r"Skipped [0-9]+ tests for programs that are not installed: ", closing)
    for name in ("node", "chromium", "firefox-esr", "WebKitWebDriver", "promtool", "nginx"):
        assert re.search(rf"\b{name}\b", closing), f"{name} is not installed, and {closing!r} does not say so"
