"""The walkthrough of docs/scaling.md, pasted twice: two nodes and a PostgreSQL, of which the leader is killed.

And its commands that move webhooks to a PostgreSQL, and tell nodes that it was restored.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.debian.page import commands
from tests.postgresql import Server
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT, blocks_of, run
from tests.process_level.running import BIN, ENVIRONMENT, free_port
from tests.process_level.terminal import Terminal
from tests.programs import needs

PAGE = "docs/scaling.md"
OTHERS = "export SVC_NETWORK=festival.toml SVC_WALLET=other.json SVCD_URL=http://127.0.0.1:1 SVCD_DATA_DIR=devnet\n"
"""What walkthroughs of other pages leave in the environment of a terminal."""


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.deadline(400)
@needs("bash", "curl", "grep", "head", "base64", "cat", "mkdir", "sleep", "date", "tr")
def test_the_leader_is_killed_and_no_event_is_missed(tmp_path: Path, postgresql_server: Server) -> None:
    """Each time three orders are confirmed by the other node, and a fourth by the one that was killed."""
    receiver = free_port()
    # The ports of the nodes differ in the last digit only, and none of the same ten is in use.
    nodes = next(port for port in iter(free_port, 0) if port % 10 == 1) // 10
    database = postgresql_server.new_schema()

    def here(text: str) -> str:
        """The ports and the database of this test, in place of those of the page."""
        text = text.replace(":8080", f":{receiver}").replace(":1865", f":{nodes}")
        return text.replace("postgresql:///svcd", database)

    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(BIN)
    (tmp_path / "examples" / "cluster").mkdir(parents=True)
    for file in (ROOT / "examples" / "cluster").iterdir():
        copy = tmp_path / file.relative_to(ROOT)
        copy.write_text(here(file.read_text(encoding="utf-8")), encoding="utf-8")
        copy.chmod(file.stat().st_mode)
    blocks = [here(block.text) for block in blocks_of(PAGE, "sh")]
    folder = tmp_path / "cluster"
    with Terminal(tmp_path) as terminal:
        terminal.paste(OTHERS)
        try:
            for run in range(1, 3):
                printed = [terminal.paste(block) for block in blocks]
                logs = [path.read_text() for path in (*folder.glob("*.log"), folder / "events")]
                assert [status for _, status in printed] == [0] * len(blocks), (printed, *logs)
                listed = re.findall(r"^svcwh_\S+ +(order-\d)-\d+ +(\w+) +yes +0$", printed[4][0], re.MULTILINE)
                assert listed[:3] == [(f"order-{number}", "confirmed") for number in (3, 2, 1)], printed
                told = re.findall(r"payment\.confirmed\b.*\b(order-\d-\d+)\b", logs[-1])
                assert len(set(told)) == 4 * run, told
                assert all("this node is the leader" in log for log in logs[:2])
        finally:
            terminal.paste("kill -9 $(jobs -p) 2> /dev/null\n")


@pytest.mark.socket
@pytest.mark.slow
def test_webhooks_are_moved_once_and_restored_as_often_as_one_likes(nodes: Nodes, postgresql_server: Server) -> None:
    secrets = {"manageToken": "m" * 32, "signingSecret": "s" * 32}
    node = nodes.start(
        *DEVNET,
        *(f"--set=commerce.webhooks.{key}={value}" for key, value in secrets.items()),
        "--set=commerce.webhooks.enabled=true",
    )
    node.stop()
    database = postgresql_server.new_schema()

    def here(text: str) -> str:
        # The directory belongs to the user of the tests.
        text = text.replace("sudo -u svcd ", "").replace("/var/lib/svcd", str(node.data_dir))
        return text.replace("postgresql:///svcd", f"'{database}'")

    _, move = commands("## Webhooks on PostgreSQL", PAGE)
    (restored,) = commands("### Backups and promoted standbys", PAGE)
    assert "0 watches and 0 events are in" in run(f"{here(move).strip()} 2>/dev/null", node.data_dir.parent)
    again = subprocess.run(
        ["bash", "-c", here(move)], capture_output=True, text=True, env=ENVIRONMENT, timeout=60, check=False
    )
    assert (again.returncode, "was moved to PostgreSQL before" in again.stderr) == (1, True), again
    for _ in range(2):
        run(f"{here(restored).strip()} 2>/dev/null", node.data_dir.parent)
