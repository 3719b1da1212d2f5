"""The quick start of docs/scaling.md: two nodes and a PostgreSQL, of which either node is killed."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.postgresql import Server
from tests.process_level.pages import blocks_of
from tests.process_level.running import DEADLINE, ENVIRONMENT, free_port
from tests.programs import needs

PAGE = "docs/scaling.md"


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.deadline(400)
@needs("bash", "curl", "grep", "head", "base64", "cat", "chmod", "mkdir", "sleep")
def test_either_node_is_killed_and_no_event_is_missed(tmp_path: Path, postgresql_server: Server) -> None:
    commands = "\n".join(block.text for block in blocks_of(PAGE, "sh"))
    ports = {port: str(free_port()) for port in sorted(set(re.findall(r"\b(?:1866\d|1865\d|8080)\b", commands)))}
    assert len(ports) == 5
    commands = re.sub("|".join(ports), lambda port: ports[port[0]], commands)
    commands = commands.replace("postgresql:///svcd", postgresql_server.new_schema())
    with (tmp_path / "errors").open("w+") as errors:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f"trap 'kill $(jobs -p)' EXIT\n{commands}"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=tmp_path,
            env=ENVIRONMENT,
            timeout=3 * DEADLINE,
            check=False,
        )
    folder = tmp_path / "cluster"
    logs = [path.read_text() for path in (tmp_path / "errors", *folder.glob("*.log"), folder / "events")]
    assert done.returncode == 0, (done.stdout, *logs)
    listed = re.findall(r"^svcwh_\S+ +(order-\d) +(\w+) +yes +0$", done.stdout, re.MULTILINE)
    assert listed == [(f"order-{number}", "confirmed") for number in (3, 2, 1)], done.stdout
    events = (folder / "events").read_text()
    for number in range(1, 5):
        assert re.search(rf"payment\.confirmed.*order-{number}\b", events), events
