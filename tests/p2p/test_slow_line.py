"""Catching up over a slow line that several peers share, in processes of their own and over real sockets."""

import shutil
from pathlib import Path

import pytest
from attrs import frozen

from benchmarks.prepared_chain import build_blocks, create_chain
from benchmarks.transfers import Sizes, payments
from tests.p2p.slow_line import SlowLine
from tests.process_level.conftest import DEVNET as ON_DEMAND
from tests.process_level.conftest import Nodes
from tests.process_level.conftest import nodes as nodes
from tests.process_level.running import RunningNode, free_port, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

BLOCKS = 6
PEERS = 3
BITS_PER_SECOND = 8e6
PATIENCE = 300.0
"""Seconds on a busy machine; the line alone takes eight."""


@frozen
class Chain:
    """A chain with full blocks."""

    initial: Path
    """The database before these blocks: their senders have coins."""
    finished: Path
    size: int
    """Bytes that the blocks have together."""


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    folder = tmp_path_factory.mktemp("full")
    initial, finished = folder / "initial.sqlite", folder / "finished.sqlite"
    bodies = payments(Sizes(0, 1, BLOCKS, 2_000))
    create_chain(initial, [transfer.sender for body in bodies for transfer in body])
    shutil.copy(initial, finished)
    return Chain(initial, finished, sum(map(len, build_blocks(finished, bodies))))


def give(database: Path, data_dir: Path) -> None:
    """Let a node begin with a database."""
    data_dir.mkdir(mode=0o700)
    shutil.copy(database, data_dir / "chain.sqlite")


def endpoints(node: RunningNode) -> set[str]:
    """Those of the peers of a node."""
    return {peer["endpoint"] for peer in node.ok(node.operator("/operator/peers"))["peers"]}


@pytest.mark.deadline(600)
def test_full_blocks_over_a_line_of_8_mbit_from_three_peers(nodes: Nodes, tmp_path: Path, chain: Chain) -> None:
    with SlowLine(BITS_PER_SECOND) as line:
        ports = []
        for number in range(PEERS):
            give(chain.finished, tmp_path / f"peer-{number}")
            port, behind = free_port(), free_port()
            line.open(port, behind)
            # The node names the end of the line as its endpoint.
            nodes.start(*ON_DEMAND, f"--set=http.publicUrl=http://127.0.0.1:{port}", name=f"peer-{number}", port=behind)
            ports.append(port)
        seeds = ",".join(f'"http://127.0.0.1:{port}"' for port in ports)
        give(chain.initial, tmp_path / "fresh")
        fresh = nodes.start(*ON_DEMAND, f"--set=p2p.seeds=[{seeds}]", name="fresh")

        wait_until(lambda: int(fresh.status()["height"]) >= BLOCKS, "every block", seconds=PATIENCE)

        assert line.downloaded <= 1.1 * chain.size, "bytes came down the line twice"
        known = {f"http://127.0.0.1:{port}" for port in ports}
        wait_until(lambda: endpoints(fresh) == known, "all peers: a call of one may have failed, which is repeated")
