"""Headers and blocks for other nodes, over the HTTP stack in memory; by place and limit: tests/p2p/test_resource.py."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from svcd.chain.block import Block
from svcd.p2p import block_server
from svcd.p2p.block_server import MAX_HASHES, MAX_HEADERS, MAX_LOCATOR, BlockServer
from svcd.p2p.client import split_blocks
from tests.node.bench import Stepped
from tests.p2p.bench import Node
from tests.p2p.test_resource import client_of
from tests.rpc.conftest import Client
from tests.support import has_result, result_of

Grow = Callable[..., list[Block]]
MakeNode = Callable[..., Node]


@pytest.fixture
def client(node: Node) -> Client:
    return client_of(node)


def names(blocks: Sequence[Block]) -> list[str]:
    return [block.header.hash.hex() for block in blocks]


def heights(answer: Any) -> list[int]:
    return [int(header["height"]) for header in answer["headers"]]


def get(client: Client, query: str = "") -> Any:
    response = client.get(f"/p2p/headers{query}")
    assert response.status == 200, response.body
    return response.json


# Headers by place


def test_headers_are_sent_byte_for_byte(node: Node, client: Client, grow: Grow) -> None:
    chain = grow(20, pays=1)
    node.take(*chain)
    response = client.get("/p2p/headers?from=3&limit=4")
    wires = b",".join(block.header.wire() for block in chain[2:6])
    assert response.body == b'{"ok":true,"headers":[' + wires + b'],"from":"3","height":"20"}'


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", range(21)), ("?from=19", [19, 20]), ("?from=20&limit=1", [20]), ("?limit=1", [0]), ("?from=21", [])],
)
def test_at_the_ends(node: Node, client: Client, grow: Grow, query: str, expected: Sequence[int]) -> None:
    node.take(*grow(20))
    assert heights(get(client, query)) == list(expected)


@pytest.mark.parametrize(
    ("query", "name"),
    [("limit=0", "limit"), (f"limit={MAX_HEADERS + 1}", "limit"), ("limit=x", "limit"), ("from=-1", "from")],
)
def test_numbers_out_of_range(client: Client, query: str, name: str) -> None:
    assert client.refusal(f"/p2p/headers?{query}").startswith(f"{name}: must be a whole number from")


# Headers by locator


@pytest.mark.parametrize(
    ("known", "first"),
    [([19], 20), ([20], 21), ([17, 9, 4], 18), ([4, 9, 17], 5), ([], 1)],
    ids=["below the tip", "the tip", "newest first", "the first that is canonical", "none"],
)
def test_headers_above_the_first_common_block(
    node: Node, client: Client, grow: Grow, known: list[int], first: int
) -> None:
    chain, side = grow(20), grow(3, on=grow(5), name="side")
    node.take(*chain, *side[5:])
    locator = ["ff" * 32, *names(side[5:]), *names([chain[height - 1] for height in known])]
    answer = client.ok("/p2p/headers", {"locator": locator})
    assert answer["from"] == str(first)
    assert answer["height"] == "20"
    assert heights(answer) == list(range(first, 21))


def test_the_genesis_is_common_to_all(node: Node, client: Client, grow: Grow) -> None:
    node.take(*grow(5))
    genesis = node.setting.params.genesis_hash.hex()
    assert heights(client.ok("/p2p/headers", {"locator": [genesis], "limit": 2})) == [1, 2]


HASH_LISTS = [
    [],
    "ab" * 32,
    ["ab" * 31],
    ["AB" * 32],
    [7],
    [None],
    {"0": "ab" * 32},
    ["ab" * 32, "x"],
]


@pytest.mark.parametrize("bad", [*HASH_LISTS, ["ab" * 32] * (MAX_LOCATOR + 1)])
def test_what_is_no_locator(client: Client, bad: object) -> None:
    sentence = f"locator: must be an array of 1 to {MAX_LOCATOR} block hashes, each 64 lower-case hex characters"
    assert client.refusal("/p2p/headers", {"locator": bad}) == sentence


@pytest.mark.parametrize("bad", [0, MAX_HEADERS + 1, "5", True, None])
def test_what_is_no_limit(client: Client, bad: object) -> None:
    sentence = f"limit: must be a whole number from 1 to {MAX_HEADERS}"
    assert client.refusal("/p2p/headers", {"locator": ["ab" * 32], "limit": bad}) == sentence


# Blocks by hash


def blocks_of(client: Client, hashes: Sequence[str]) -> list[bytes]:
    response = client.post("/p2p/blocks", json.dumps({"hashes": hashes}).encode())
    assert response.status == 200, response.body
    return split_blocks(response.body, MAX_HASHES)


def test_blocks_come_in_the_order_of_their_hashes(node: Node, client: Client, grow: Grow) -> None:
    """Canonical or not, and without those that are not stored here."""
    chain, side = grow(10, pays=2), grow(2, on=grow(5, pays=2), name="side", pays=1)
    node.take(*chain, *side[5:])
    wanted = [chain[7], side[6], chain[2], side[5]]
    asked = names(wanted)
    found = blocks_of(client, [*asked[:2], "ff" * 32, *asked[2:]])
    assert found == [block.wire() for block in wanted]


def test_none_of_them(client: Client) -> None:
    assert blocks_of(client, ["ff" * 32] * 3) == []


@pytest.mark.parametrize("bad", [*HASH_LISTS, ["ab" * 32] * (MAX_HASHES + 1)])
def test_what_are_no_hashes(client: Client, bad: object) -> None:
    sentence = f"hashes: must be an array of 1 to {MAX_HASHES} block hashes, each 64 lower-case hex characters"
    assert client.refusal("/p2p/blocks", {"hashes": bad}) == sentence


def test_as_many_as_may_be_named_find_room_in_a_body(node: Node, client: Client, grow: Grow) -> None:
    node.take(*grow(3))
    assert len(blocks_of(client, [*names(grow(3)), *["ff" * 32] * (MAX_HASHES - 3)])) == 3


# What all answers have in common


@pytest.mark.parametrize("path", ["/p2p/headers", "/p2p/blocks"])
def test_an_answer_stops_before_three_mib(
    node: Node, client: Client, grow: Grow, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert block_server.MAX_REPLY_BYTES == 3 * 1024 * 1024
    chain = grow(10, pays=1)
    node.take(*chain)
    sizes = [len(block.header.wire() if path == "/p2p/headers" else block.wire()) for block in chain]

    def count() -> int:
        if path == "/p2p/headers":
            return len(client.ok(path, {"locator": [node.setting.params.genesis_hash.hex()]})["headers"])
        return len(blocks_of(client, names(chain)))

    monkeypatch.setattr(block_server, "MAX_REPLY_BYTES", sum(sizes[:4]))
    assert count() == 4
    monkeypatch.setattr(block_server, "MAX_REPLY_BYTES", sum(sizes[:4]) - 1)
    assert count() == 3
    monkeypatch.setattr(block_server, "MAX_REPLY_BYTES", 1)
    assert count() == 1, "one at least, or no peer could go on"


@pytest.mark.parametrize("question", ["headers", "headers_after", "blocks", "blocks_by_hash"])
def test_answers_are_read_by_a_thread(make_node: MakeNode, grow: Grow, question: str) -> None:
    """Two thousand headers or three full blocks take longer than the reactor has."""
    reader = Stepped()
    node = make_node(reader=reader)
    node.take(*grow(5))
    server = BlockServer(node.living.ledger)
    hashes = [block.header.hash for block in grow(5)]
    asked = node.begin(
        {
            "headers": lambda: server.headers(1, 9),
            "headers_after": lambda: server.headers_after([node.setting.params.genesis_hash], 9),
            "blocks": lambda: server.blocks(1, 9),
            "blocks_by_hash": lambda: server.blocks_by_hash(hashes),
        }[question]()
    )
    assert not has_result(asked)
    reader.finish()
    answer = json.loads(result_of(asked).body)
    assert len(answer.get("headers") or answer["blocks"]) == 5
