"""Catching up from one peer and from two over loopback, against connecting the same blocks from memory.

    python -m benchmarks.sync --round-trip 100
    python -m benchmarks.sync --mbits 8
    python -m benchmarks.sync --empty-blocks 60000

measure instead what becomes of it behind a line of so many milliseconds there and back, against the same without
delay; behind one of so many Mbit/s, against what the bytes take; and with so many empty blocks from one peer.
"""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from time import monotonic, perf_counter, sleep
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from benchmarks.figures import Goal, Rounds, Row, percentile_99
from benchmarks.local_node import feed, opened
from benchmarks.paced import Paced
from benchmarks.prepared_chain import build_blocks, create_chain
from benchmarks.processes import DATABASE, closed_port, distant_node, node
from benchmarks.program import main, on_reactor
from benchmarks.transfers import Sizes, payments
from svcd.chain.params import DEVNET
from svcd.interfaces import Clock
from svcd.net.targets import Endpoint
from svcd.node.changes import ChainChange
from svcd.node.node_context import NodeContext
from svcd.node.snapshots import Snapshots
from svcd.node.threads import ThreadPoolService
from svcd.p2p.address_book import AddressBook
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode, NodeKey
from svcd.p2p.peers import PeerSettings
from svcd.p2p.service import PeerNetwork
from svcd.p2p.transport import open_transport

_SETTINGS: Final = PeerSettings(outbound=8, max_inbound=8, diverse=False, alone=False)
_WANTED: Final = Goal("ratio", ">=", 0.9)
_PEERS: Final = 2
_BATCH: Final = 64
_PER_SECOND: Final = 200


@frozen
class Chain:
    """Blocks to catch up with: what is counted in them, and the databases before and after."""

    what: str
    count: int
    initial: Path
    finished: Path
    blocks: list[bytes]
    batch: int


def near_empty(folder: Path, count: int) -> Chain:
    """``count`` blocks without transfers."""
    initial, finished = folder / "empty-initial.sqlite", folder / "empty-finished.sqlite"
    create_chain(initial, [])
    shutil.copy(initial, finished)
    blocks = build_blocks(finished, ([] for _ in range(count)), gap=2 * DEVNET.slots_per_block)
    return Chain("empty blocks", count, initial, finished, blocks, _BATCH)


def full(folder: Path, sizes: Sizes) -> Chain:
    """Blocks with as many transfers as fit."""
    bodies = payments(sizes)
    initial, finished = folder / "full-initial.sqlite", folder / "full-finished.sqlite"
    create_chain(initial, [transfer.sender for body in bodies for transfer in body])
    shutil.copy(initial, finished)
    blocks = build_blocks(finished, bodies)
    return Chain("transfers", sum(map(len, bodies)), initial, finished, blocks, 1)


class Reached:
    """Fires ``done`` when the chain has a height."""

    def __init__(self, height: int) -> None:
        self.done: Deferred[None] = Deferred()
        self._height = height

    def chain_changed(self, change: ChainChange) -> None:
        """Look whether it has."""
        if change.tip.height >= self._height and not self.done.called:
            self.done.callback(None)


def joined(
    path: Path, node_context: NodeContext, reactor: Any, threads: ThreadPoolService, clock: Clock
) -> PeerNetwork:
    """``living`` with a network that reaches peers over real connections."""
    random = Random(1)
    key = NodeKey(random.randbytes(32), Endpoint(f"http://127.0.0.1:{closed_port()}"))
    dialling = open_transport(reactor, threads, allow_private=True)
    client = PeerClient(DEVNET, dialling, threads)
    home = LocalNode(DEVNET, node_context.chain_manager, key, clock)
    book = AddressBook(random.randbytes(32), random.random)
    return PeerNetwork(
        home,
        client,
        transaction_pool=node_context.transaction_pool,
        book=book,
        settings=_SETTINGS,
        snapshots=Snapshots(
            node_context.chain_manager,
            path,
            files=threads,
            reader=threads,
            may_make=lambda: False,
            seconds=monotonic,
            sleep=sleep,
        ),
        forwards=lambda *_: False,
    )


async def catch_up(path: Path, urls: Sequence[str], height: int, reactor: Any) -> float:
    """Seconds from the first greeting of the peers at ``urls`` until the chain at ``path`` has ``height``."""
    threads = ThreadPoolService(reactor, size=1, name="peers")
    threads.startService()
    try:
        async with opened(path, reactor) as node_context:
            network, reached = joined(path, node_context, reactor, threads, reactor), Reached(height)
            node_context.chain_manager.subscribe(reached)
            began = perf_counter()
            for url in urls:
                network.peers.hint(url, source="benchmark")
            beat = LoopingCall(network.tick)
            beat.start(0.2)
            await reached.done
            seconds = perf_counter() - began
            beat.stop()
            await network.sync.stop()
            for peer in network.peers.all():
                network.peers.drop(peer)
            return seconds
    finally:
        await threads.stopService()


@frozen
class Race:
    """Catching up with ``chain`` from the peers at ``urls``, in turn with taking the same blocks from memory."""

    chain: Chain
    urls: list[str]
    folder: Path

    async def run(self, reactor: Any, rounds_wanted: int) -> Row:
        """One row."""
        chain, rounds = self.chain, Rounds()
        batches = [chain.blocks[start : start + chain.batch] for start in range(0, len(chain.blocks), chain.batch)]
        for number in range(rounds_wanted):
            name = f"{chain.what}-{len(self.urls)}-{number}"
            fresh, other = self.folder / f"{name}-memory.sqlite", self.folder / f"{name}-peers.sqlite"
            shutil.copy(chain.initial, fresh)
            shutil.copy(chain.initial, other)
            async with opened(fresh, reactor) as node_context:
                began = perf_counter()
                await feed(node_context.chain_manager, batches)
                baseline = chain.count / (perf_counter() - began)
            rounds.add(chain.count / await catch_up(other, self.urls, len(chain.blocks), reactor), baseline)
        name = f"{chain.what} from {len(self.urls)} peer{'s' * (len(self.urls) > 1)}"
        return rounds.row(name, unit="/s", baseline_is="from memory", goal=_WANTED)


def races(folder: Path, chains: Sequence[Chain], rounds_wanted: int) -> list[Row]:
    """Every chain from one peer and from two."""
    with ExitStack() as stack:
        entries = []
        for chain in chains:
            urls = []
            for number in range(_PEERS):
                data = folder / f"{chain.what}-{number}"
                data.mkdir()
                shutil.copy(chain.finished, data / DATABASE)
                urls.append(stack.enter_context(node(data)).url)
            entries += [Race(chain, urls[:count], folder) for count in range(1, _PEERS + 1)]

        async def run(reactor: Any) -> list[Row]:
            return [await race.run(reactor, rounds_wanted) for race in entries]

        return on_reactor(run)


def _urls(chain: Chain, folder: Path, stack: ExitStack, **line: float) -> list[str]:
    """Where a node serves ``chain`` at the end of a line."""
    data = folder / "-".join([chain.what, *(f"{name}-{value:g}" for name, value in line.items())])
    data.mkdir()
    shutil.copy(chain.finished, data / DATABASE)
    return [stack.enter_context(distant_node(data, **line)).url]


def round_trip(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """Empty blocks from one peer behind a round trip of ``number`` ms, the whole of it, against no delay."""
    chain, rounds = near_empty(folder, 256 if quick else 3_000), Rounds()
    with ExitStack() as stack:
        near = _urls(chain, folder, stack, round_trip=0.0)
        far = _urls(chain, folder, stack, round_trip=number)

        async def run(reactor: Any) -> None:
            for index in range(1 if quick else 3):
                rates = []
                for what, urls in (("far", far), ("near", near)):
                    path = folder / f"{what}-{index}.sqlite"
                    shutil.copy(chain.initial, path)
                    rates.append(chain.count / await catch_up(path, urls, len(chain.blocks), reactor))
                rounds.add(*rates)

        on_reactor(run)
    name = f"{chain.count:,} {chain.what} behind a round trip of {number:g} ms"
    goal = Goal("ratio", ">=", 0.5 if number <= 100 else 0.4)
    return [rounds.row(name, unit="/s", baseline_is="without delay", goal=goal)]


def throttled(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """Full blocks from one peer behind a line of ``number`` Mbit/s, against what their bytes take."""
    sizes = Sizes(accounts=0, rounds=1, blocks=2, transfers=100) if quick else Sizes(0, 1, 20, 2_000)
    chain = full(folder, sizes)
    size = sum(map(len, chain.blocks))
    path = folder / "throttled.sqlite"
    shutil.copy(chain.initial, path)
    with ExitStack() as stack:
        urls = _urls(chain, folder, stack, mbits=number)
        seconds = on_reactor(lambda reactor: catch_up(path, urls, len(chain.blocks), reactor))
    rounds = Rounds([size / seconds / 1000], [number * 1000 / 8])
    name = f"full blocks behind a line of {number:g} Mbit/s"
    return [rounds.row(name, unit="kB/s", baseline_is="the line", goal=Goal("ratio", ">=", 0.8))]


def many_empty(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """So many empty blocks from one peer, against connecting them from memory."""
    chain = near_empty(folder, 256 if quick else round(number))
    with ExitStack() as stack:
        race = Race(chain, _urls(chain, folder, stack, round_trip=0.0), folder)
        return [on_reactor(lambda reactor: race.run(reactor, 1))]


def latency(folder: Path, chain: Chain) -> Row:
    """How long answers take of a node that is catching up."""
    source, target = folder / "source", folder / "target"
    for data, database in ((source, chain.finished), (target, chain.initial)):
        data.mkdir()
        shutil.copy(database, data / DATABASE)
    with node(source) as served, node(target, f'p2p.seeds=["{served.url}"]') as syncing:
        seconds = Paced(syncing.port, _PER_SECOND).ask_until(lambda status: int(status["height"]) == len(chain.blocks))
    return Row(
        name=f"/rpc/status, 99th percentile, catching up with {chain.what}",
        figure=percentile_99(seconds) * 1000,
        unit="ms",
        goal=Goal("figure", "<=", 50),
    )


def measure(folder: Path, quick: bool) -> list[Row]:
    """Catching up from one peer and from two over loopback, against connecting the same blocks from memory."""
    rounds = 1 if quick else 3
    empty = near_empty(folder, 256 if quick else 3_000)
    sizes = Sizes(accounts=0, rounds=1, blocks=2, transfers=100) if quick else Sizes(0, 1, 5, 2_000)
    transfers = full(folder, sizes)
    return [*races(folder, [empty, transfers], rounds), latency(folder, transfers)]


if __name__ == "__main__":
    main(
        measure,
        {
            "round-trip": ("MILLISECONDS", round_trip),
            "mbits": ("MBITS", throttled),
            "empty-blocks": ("COUNT", many_empty),
        },
    )
