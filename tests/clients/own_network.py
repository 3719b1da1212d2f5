"""A network of somebody's own for the tests of both clients, with easy work and producers, and nodes of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from attrs import evolve
from click.testing import CliRunner
from twisted.internet.task import Clock

from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET, NetworkParams, ProducerChange
from svcd.cli.main import svc
from svcd.config.network_file import render_network_file
from tests.chains import COIN, key_of
from tests.rpc.conftest import public_client
from tests.rpc.node import Node, Settings


def address(name: str) -> str:
    """The address of somebody on the network."""
    return encode_address(key_of(name).hash, "fest")


FESTIVAL = evolve(
    DEVNET,
    name="festival",
    network_id=48_213,
    chain_id="FESTIVAL",
    address_prefix="fest",
    genesis_time=1_795_749_600_000,
    slot_seconds=5,
    memory_kib=64,
    drift_slots=2,
    initial_reward=3 * COIN,
    halving_blocks=0,
    minimum_fee=20_000,
    account_minimum=500_000,
    multiplier_schedule=((0, 10_000), (60, 10_300)),
    max_block_transactions=100,
    transaction_past_seconds=3_600,
    transaction_future_seconds=600,
    producers=(address("a"), address("b"), address("c")),
    allocations=tuple(
        (address(name), (at + 1) * 100 * COIN) for at, name in enumerate(("alice", "bob", "shop", "eve"))
    ),
    changes=(ProducerChange(height=10, producers=(address("a"), address("d"))),),
)
OPEN = evolve(FESTIVAL, name="open", producers=(), allocations=((address("alice"), 10 * COIN),), changes=())


def shown(params: NetworkParams, folder: Path) -> str:
    """What `svc network show --json` prints of a network, whose file is written to a folder."""
    file = folder / f"{params.name}.toml"
    file.write_text(render_network_file(params), encoding="utf-8")
    told = CliRunner().invoke(svc, ["network", "show", str(file), "--json"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.stdout


TALE = "\n".join(
    [
        "genesis: x[1..12]",
        *(f"x{height} is by {name}" for height, name in enumerate("abcabcabcada", 1)),
        "x3 pays 5000000 from alice to shop for order-1",
    ]
)
"""Blocks of which each is made by a producer who may; the list changes at height 10."""

NODE, OTHER = "https://festival.example", "https://other.example"
NOW = FESTIVAL.slot_time(200)
"""Milliseconds, by the clocks of the nodes."""


class World:
    """Nodes by URL: one on the network with these blocks, and at another URL one on a network with other rules."""

    def __init__(self, folder: Path) -> None:
        self.nodes: dict[str, Node] = {}
        self.asked: list[str] = []
        """The paths of all requests."""
        for url, params in ((NODE, FESTIVAL), (OTHER, OPEN)):
            clock = Clock()
            clock.advance(NOW // 1000)
            self.nodes[url] = Node(folder / f"{params.name}.sqlite", clock, Settings(params=params))
        self.nodes[NODE].grow(TALE)

    def reply(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        """Status and body of the answer of the node at a URL."""
        scheme, host, path, query, _ = urlsplit(url)
        self.asked.append(path)
        client = public_client(self.nodes[f"{scheme}://{host}"])
        answer = client.send(method, f"{path}?{query}" if query else path, body)
        return answer.status, answer.body


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """The nodes, with their databases in a folder."""
    world = World(folder)
    try:
        yield world
    finally:
        for node in world.nodes.values():
            node.close()
