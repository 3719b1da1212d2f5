"""The walkthrough of docs/scaling.md, pasted twice: two nodes and a PostgreSQL, of which the leader is killed."""

import re
from pathlib import Path

import pytest

from tests.postgresql import Server
from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import BIN, free_port
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
    receiver, nodes = free_port(), free_port() // 10
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
