"""A network of somebody's own for the tests of both clients, with easy work and producers, and nodes of it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from attrs import evolve
from click.testing import CliRunner
from hypothesis import reject
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET, NetworkParams, ProducerChange
from svcd.cli.main import svc
from svcd.config.layers import ConfigError
from svcd.config.network_file import parse_network_file, render_network_file
from tests.chains import COIN, key_of
from tests.rpc.conftest import public_client
from tests.rpc.node import Node, Settings


def address(name: str) -> str:
    """The address of somebody on the network."""
    return encode_address(key_of(name).hash, "fest")


FESTIVAL = evolve(
    DEVNET,
    name="festival",
    unit="Token",
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


def as_json(params: NetworkParams) -> str:
    """What a client needs of that."""
    changes = [{"height": str(each.height), "producers": list(each.producers)} for each in params.changes]
    given = {"name": params.name, "unit": params.unit, "rules": params.rules, "changes": changes}
    given["genesisHash"] = params.genesis_hash.hex()
    return json.dumps(given)


TALE = "\n".join(
    [
        "genesis: x[1..12]",
        *(f"x{height} is by {name}" for height, name in enumerate("abcabcabcada", 1)),
        "x3 pays 5000000 from alice to shop for order-1",
    ]
)
"""Blocks of which each is made by a producer who may; the list changes at height 10."""

ADDRESSES = st.binary(min_size=20, max_size=20).map(lambda key: encode_address(key, "fest"))
PRODUCERS = st.lists(ADDRESSES, min_size=1, max_size=5, unique=True).map(tuple)
AMOUNTS = st.integers(1, 10**6)


@st.composite
def networks(draw: st.DrawFn) -> NetworkParams:
    """Networks that `svc network new` accepts."""
    slot_seconds, slots_per_block = draw(st.integers(1, 60)), draw(st.integers(2, 100))
    held = draw(st.lists(st.tuples(st.integers(1, 2**53 - 1), st.integers(10_000, 11_000)), max_size=15))
    steps = dict(zip(sorted(slots for slots, _ in held), sorted(points for _, points in held), strict=True))
    lowest, initial, highest = sorted(draw(st.lists(st.integers(160, 255), min_size=3, max_size=3)))
    producers = draw(st.just(()) | PRODUCERS)
    heights = draw(st.lists(st.integers(1, 2**53 - 1), max_size=4, unique=True)) if producers else []
    allocations = draw(st.dictionaries(ADDRESSES, st.integers(1, 10**14), max_size=9))
    params = evolve(
        FESTIVAL,
        network_id=draw(st.integers(1000, 2**31 - 1)),
        genesis_time=draw(st.integers(1_577_836_800, 7_258_118_399)) * 1000,
        slot_seconds=slot_seconds,
        slots_per_block=slots_per_block,
        half_life_slots=draw(st.integers(10 * slots_per_block, 1_000_000)),
        gap_cap_slots=draw(st.integers(3 * slots_per_block, 1_000_000)),
        memory_kib=draw(st.integers(64, 65_536)),
        initial_target=2**initial,
        max_target=2**highest,
        min_target=2**lowest,
        initial_reward=draw(st.integers(0, 10**9)),
        halving_blocks=draw(st.integers(0, 10**6)),
        minimum_fee=draw(AMOUNTS),
        account_minimum=draw(AMOUNTS),
        holding_minimum=draw(AMOUNTS),
        multiplier_schedule=((0, 10_000), *steps.items()),
        max_block_transactions=draw(st.integers(1, 2_000)),
        max_block_bytes=draw(st.integers(16_384, 1_310_720)),
        transaction_past_seconds=draw(st.integers(max(600, 10 * slot_seconds * slots_per_block), 604_800)),
        transaction_future_seconds=draw(st.integers(60, 86_400)),
        producers=producers,
        allocations=tuple(allocations.items()),
        changes=tuple(ProducerChange(height=each, producers=draw(PRODUCERS)) for each in sorted(heights)),
    )
    try:
        return parse_network_file(render_network_file(params).encode(), "festival.toml")
    except ConfigError:
        # Such as more coins than can exist.
        reject()


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
            (folder / params.name).mkdir()
            self.nodes[url] = Node(folder / params.name / "chain.sqlite", clock, Settings(params=params))
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
