"""kill -9 while old blocks are deleted: the next start finds a sound chain, and deletes what is left."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from svcd.cli.operator.verify_chain import verify_chain
from svcd.store.block_deletion import BlockDeletion
from svcd.store.database import open_writer
from svcd.store.offline_database import Inspector, open_offline
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import Setting, running
from tests.node.connecting import branch, connect_all
from tests.torture.test_kill import ROOT

HEIGHT = 40
BELOW = 31
PROGRAM = """
import sys
from pathlib import Path
from svcd.store.block_deletion import BlockDeletion
from svcd.store.database import open_writer
from tests.chains import TEST_PARAMS
deletion = BlockDeletion(open_writer(Path(sys.argv[1])))
while sys.stdin.readline() and deletion.delete_some(below=int(sys.argv[2]), at_most=1).more:
    print(flush=True)
"""


def delete_until_killed(path: Path, commits: int) -> None:
    """Let a process delete, and kill it after so many commits, in the middle of what follows."""
    command = [sys.executable, "-c", PROGRAM, str(path), str(BELOW)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        # One commit more than are waited for, which the kill interrupts or not.
        process.stdin.write(b"\n" * (commits + 1))
        process.stdin.flush()
        for _ in range(commits):
            if not process.stdout.readline():
                break
        os.kill(process.pid, signal.SIGKILL)


def problems(path: Path) -> list[str]:
    with open_offline(path) as connection:
        return verify_chain(Inspector(connection), TEST_PARAMS, lambda _: None)


@pytest.mark.slow
def test_a_kill_leaves_a_sound_chain_of_which_the_rest_is_deleted_later(tmp_path: Path) -> None:
    chain, random, path = ChainBuilder(), Random(1), tmp_path / "chain.sqlite"
    with running(tmp_path, Setting()) as node:
        connect_all(node, chain, *branch(chain, None, HEIGHT, "a"))
    heights = [0]
    while heights[-1] < BELOW:
        delete_until_killed(path, random.randint(1, 8))
        assert problems(path) == []
        with closing(open_writer(path)) as connection:
            heights.append(BlockDeletion(connection).prune_height())
        assert len(heights) < 100
    assert heights == sorted(heights)
    assert len(heights) > 5
    with closing(open_writer(path)) as connection:
        assert not BlockDeletion(connection).delete_some(below=BELOW, at_most=10).more
        assert connection.execute("SELECT count(*) FROM block_transaction").fetchone() == (HEIGHT + 1 - BELOW,)
    assert problems(path) == []
