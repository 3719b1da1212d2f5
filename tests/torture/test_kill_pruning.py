"""kill -9 of a node that deletes old blocks: each start finds a sound chain, and the deletion goes on."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from svcd.chain.block import Block
from svcd.cli.operator.verify_chain import verify_chain
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_reader
from svcd.store.offline_database import Inspector, open_offline
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Setting, running
from tests.node.connecting import branch, connect, connect_all, fork
from tests.torture.test_kill import ROOT

KEPT = 15
PROGRAM = f"""
import sys
from pathlib import Path
from tests.node.bench import Setting, running
with running(Path(sys.argv[1]), Setting()) as node:
    node.chainstate.kept_from = lambda tip: tip - {KEPT} + 1
    for line in sys.stdin:
        print(node.submit(bytes.fromhex(line)), flush=True)
"""


def grow_until_killed(folder: Path, blocks: list[Block], commits: int) -> None:
    """Let a process connect blocks, and kill it after so many commits, in the middle of what follows."""
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # One block more than is waited for, which the kill interrupts or not.
        process.stdin.write(b"".join(block.wire().hex().encode() + b"\n" for block in blocks[: commits + 1]))
        process.stdin.flush()
        for _ in blocks[:commits]:
            assert b"CONNECTED" in process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)


def problems(path: Path) -> list[str]:
    with open_offline(path) as connection:
        return verify_chain(Inspector(connection), TEST_PARAMS, lambda _: None)


@pytest.mark.slow
def test_a_kill_leaves_a_sound_chain_and_what_is_left_is_deleted_later(tmp_path: Path) -> None:
    chain, random, path = ChainBuilder(), Random(1), tmp_path / "chain.sqlite"
    trunk, old, side = fork(chain, 28)
    with running(tmp_path, Setting()) as node:
        connect_all(node, chain, *trunk, *old)
        connect(node, chain, *side[:-1])
    blocks = branch(chain, old[-1], 40, "b")
    tip, heights = 30, [0]
    while tip < 70:
        grow_until_killed(tmp_path, blocks[tip - 30 :], random.randint(1, 6))
        assert problems(path) == []
        with closing(open_reader(path)) as connection:
            reader = ChainReader(connection)
            tip, height = reader.existing_tip().height, reader.prune_height()
        assert height == min(2 * (tip - 30), tip - KEPT + 1)
        heights.append(height)
        assert len(heights) < 100
    assert len(heights) > 5
    with closing(open_reader(path)) as connection:
        assert connection.execute("SELECT count(*) FROM block_transaction").fetchone() == (KEPT,)
        assert connection.execute("SELECT count(*) FROM block WHERE side_work NOT NULL").fetchone() == (0,)
