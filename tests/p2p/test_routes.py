"""What we answer other nodes, on the real HTTP stack in memory; each answer is held to the node's own description."""

import json
import tracemalloc
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from typing import Any

import pytest
from attrs import evolve
from openapi_spec_validator import OpenAPIV31SpecValidator
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import Refusal
from svcd.chain.snapshot import check_chunk, check_manifest, parse_manifest
from svcd.interfaces import milliseconds
from svcd.node import snapshots
from svcd.p2p import routes
from svcd.p2p.bans import address_in, address_name, endpoint_name, node_name, posts_name
from svcd.p2p.client import MAX_HASHES, MAX_HEADERS, MAX_LOCATOR
from svcd.p2p.handshake import check_hello, parse_hello
from svcd.p2p.routes import BlockRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.store.snapshot_file import SnapshotFile
from svcd.web import api
from svcd.web.rate_limits import NO_LIMIT, Clients, RateLimiter
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import LIMITS, OURS, Node, place
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.remote_node import split_blocks
from tests.rpc.conftest import published
from tests.rpc.description import Description
from tests.rpc.node import Client
from tests.support import has_result, result_of
from tests.web.wire import Response, Wire

SOMEBODY, OTHER = "198.51.100.7", "203.0.113.9"
POSTS = ("/p2p/hello", "/p2p/transaction", "/p2p/block")
DAY = 86_400


def client_of(node: Node, peer: str = SOMEBODY) -> Client:
    """Somebody who asks a node, and holds it to what it says of itself; no answer may be for a browser's pages."""
    return Client(node.site, Description(published(node.site).document, cors=False), node.clock, peer)


@pytest.fixture
def client(node: Node) -> Client:
    return client_of(node)


@pytest.fixture
def transfers() -> ChainBuilder:
    """A maker of transfers with nonces of its own."""
    return ChainBuilder()


def transfer(maker: ChainBuilder, **changes: Any) -> Any:
    """The JSON of a transfer that the mempool takes."""
    fields = {"sender": "alice", "recipient": "bob", "amount": 5, "timestamp": maker.params.slot_time(LATE)}
    return json.loads(maker.transfer(**(fields | changes)).wire)


def post_block(client: Client, block: Block | bytes) -> Response:
    wire = block if isinstance(block, bytes) else block.wire()
    return client.post("/p2p/block", b'{"block":' + wire + b"}")


def banned_for(node: Node, peer: str = SOMEBODY) -> float:
    """How long a client is banned from now on, in seconds; 0.0 if it is not."""
    bans = node.peers.bans.listed(node.local.now())
    return sum((ban.until or 0.0) - node.local.now() for ban in bans if ban.name == posts_name(peer))


# Status


def test_status(node: Node, client: Client, grow: Grow) -> None:
    node.take(*grow(3))
    node.meet(node.remote(blocks=grow(3)))
    now = str(milliseconds(node.clock))
    assert client.ok("/p2p/status") == {
        "status": {
            "softwareVersion": "0.0.1",
            "protocolVersion": "1.0",
            "networkId": 3,
            "chainId": "SVC-TEST",
            "genesisHash": node.local.params.genesis_hash.hex(),
            "nodeId": node.key.node_id,
            "nodePublicKey": node.key.public.hex(),
            "height": "3",
            "hash": grow(3)[-1].header.hash.hex(),
            "timestamp": now,
            "endpoint": OURS,
            "cumulativeWork": str(node.tip.work),
            "pruneHeight": "0",
            "peers": 1,
            "time": now,
            "snapshots": [],
        }
    }


# Hello


def test_hellos_are_exchanged(node: Node, client: Client) -> None:
    remote = node.remote()
    answer = client.ok("/p2p/hello", {"hello": remote.hello().message()})
    ours = parse_hello(answer.pop("hello"))
    assert answer == {}
    check_hello(ours, node.local.params, own=remote.key.node_id, now=milliseconds(node.clock))
    assert (ours.node_key, ours.endpoint) == (node.key.public, OURS)
    node.run(0.5)
    assert node.knows(remote), "whoever greets is called back"


def test_somebody_without_an_endpoint_is_answered_too(node: Node, client: Client) -> None:
    client.ok("/p2p/hello", {"hello": node.remote(names="").hello().message()})
    assert len(node.book) == 0


def test_a_hello_that_is_refused_costs_nothing(node: Node, client: Client) -> None:
    """It may be a node of another network, or one whose clock is wrong."""
    hello = evolve(node.remote().hello(), network_id=4711, chain_id="FETE", genesis_hash=b"\7" * 32)
    refusal = client.refusal("/p2p/hello", {"hello": hello.message()})
    genesis = node.local.params.genesis_hash.hex()
    assert refusal == (
        f"this node is on SVC-TEST with genesis {genesis}, and the hello is from FETE with genesis {'07' * 32}"
    )
    assert banned_for(node) == 0
    node.run(5)
    assert node.transport.calls == []


def test_a_banned_key_is_refused(node: Node, client: Client) -> None:
    remote = node.remote()
    node.peers.bans.ban(node_name(remote.key.node_id), seconds=60, now=node.local.now())
    refusal = client.refusal("/p2p/hello", {"hello": remote.hello().message()}, status=403)
    assert refusal == "this node key is banned here"
    node.run(5)
    assert node.transport.calls == []


# Transfers


def test_a_transfer(node: Node, client: Client, transfers: ChainBuilder) -> None:
    body = {"transaction": transfer(transfers)}
    first = client.ok("/p2p/transaction", body)
    (entry,) = node.node_context.transaction_pool.mempool.entries()
    assert first == {"txid": entry.transfer.txid.hex(), "state": "accepted"}
    assert client.ok("/p2p/transaction", body) == {"txid": entry.transfer.txid.hex(), "state": "known"}


def test_a_transfer_in_upper_case(node: Node, client: Client, transfers: ChainBuilder) -> None:
    value = transfer(transfers)
    value |= {"signature": value["signature"].upper(), "senderPublicKey": value["senderPublicKey"].upper()}
    assert client.ok("/p2p/transaction", {"transaction": value})["state"] == "accepted"


# Blocks that come


def test_a_block_is_connected(node: Node, client: Client, grow: Grow) -> None:
    (block,) = grow(1)
    assert post_block(client, block).json == {"ok": True, "hash": block.header.hash.hex(), "state": "connected"}
    assert node.tip.hash == block.header.hash
    assert post_block(client, block).json == {"ok": True, "hash": block.header.hash.hex(), "state": "known"}
    assert banned_for(node) == 0


def test_a_block_beside_the_chain(node: Node, client: Client, grow: Grow) -> None:
    node.take(*grow(3))
    assert post_block(client, grow(1, name="side")[0]).json["state"] == "side"
    assert banned_for(node) == 0


def test_an_orphan_makes_us_ask_and_costs_nothing(node: Node, client: Client, grow: Grow) -> None:
    remote = node.remote(blocks=grow(5))
    node.meet(remote)
    node.run(3)
    remote.blocks = grow(9)
    answer = post_block(client, grow(9)[-1]).json
    assert answer["state"] == "orphan"
    node.run(0.5)
    assert node.tip.height == 9
    assert banned_for(node) == 0


def test_a_block_that_is_known_to_be_invalid_costs_a_day_too(node: Node, builder: ChainBuilder) -> None:
    block = builder.block(None, break_=Refusal.WORK)
    post_block(client_of(node), block)
    assert "found invalid before" in post_block(client_of(node, OTHER), block).error
    assert banned_for(node, OTHER) == DAY


def test_a_block_in_another_spelling_is_kept_and_passed_on_in_canonical_json(
    node: Node, client: Client, grow: Grow
) -> None:
    remote = node.remote()
    node.meet(remote)
    (block,) = grow(1)
    body = json.dumps({"block": dict(reversed(json.loads(block.wire()).items()))}, indent=2).encode() + b"\n"
    assert client.post("/p2p/block", body).json == {"ok": True, "hash": block.header.hash.hex(), "state": "connected"}
    assert blocks_of(client, "?from=1") == ([block.wire()], "1")
    node.run(1)
    (call,) = node.transport.calls_to(remote.endpoint, "/p2p/block")
    assert call.request.body == b'{"block":' + block.wire() + b"}"


def test_a_posted_block_is_read_in_a_thread(make_node: MakeNode, grow: Grow) -> None:
    """Two MiB of JSON take longer than the reactor has."""
    checker = Stepped()
    node = make_node(checker=checker)
    (block,) = grow(1)
    body = json.dumps({"block": json.loads(block.wire())}).encode()
    asked = node.begin(node.routes[0].block(body, SOMEBODY))
    assert not has_result(asked)
    checker.finish()
    assert result_of(asked)["state"] == "connected"


@pytest.mark.parametrize("part", [b"[],", b"{},", b"1,"])
def test_a_block_of_a_million_values_is_refused_before_one_is_built(client: Client, part: bytes) -> None:
    size = 1_300_000
    body = b'{"block":{"transactions":[' + part * (size // len(part)) + b"1]}}"
    tracemalloc.start()
    try:
        sentence = client.refusal("/p2p/block", body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sentence.startswith("the JSON has more arrays, objects or members than JSON of ")
    # The body is in memory several times: as it was sent, in parts, and put together.
    assert peak < 8 * size


def test_a_full_queue_of_ours_is_nobody_s_fault(make_node: MakeNode, builder: ChainBuilder) -> None:
    checker = Stepped()
    node = make_node(checker=checker)
    node.node_context.verifier.capacity = 0
    wire = Wire(node.site, SOMEBODY)
    body = b'{"block":' + builder.block(None).wire() + b"}"
    wire.send(b"POST /p2p/block HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    checker.finish()
    response = wire.response()
    assert response.status == 503
    assert "wait to be verified" in response.error
    assert banned_for(node) == 0
    wire.close()


def test_senders_of_one_early_block_at_a_time_are_all_told_that_it_is_early(
    make_node: MakeNode, builder: ChainBuilder
) -> None:
    checker = Stepped()
    node = make_node(checker=checker)
    block = builder.block(None, slot=LATE + builder.params.drift_slots + 3)
    senders = (SOMEBODY, OTHER)
    posted = [node.begin(node.routes[0].block(b'{"block":' + block.wire() + b"}", sender)) for sender in senders]
    checker.finish()
    answer = {"hash": block.header.hash.hex(), "state": "early"}
    assert [result_of(each) for each in posted] == [answer, answer]
    assert [banned_for(node, sender) for sender in senders] == [0, 0]
    node.run(3)
    checker.finish()
    assert node.tip.hash == block.header.hash


# Prices


def well_formed(name: str, transfers: ChainBuilder, block: Block) -> object:
    """What nobody is refused for its form."""
    return b'{"block":' + block.wire() + b"}" if name == "block" else {name: transfer(transfers)}


def break_a_rule(node: Node, builder: ChainBuilder, peer: str = SOMEBODY) -> None:
    """Have the posts of an address refused for a day."""
    assert post_block(client_of(node, peer), builder.block(None, break_=Refusal.WORK)).status == 400


@pytest.mark.parametrize("name", ["transaction", "block"])
def test_a_banned_address_is_not_listened_to_until_its_time_is_over(
    node: Node, transfers: ChainBuilder, grow: Grow, builder: ChainBuilder, name: str
) -> None:
    client, path, body = client_of(node), f"/p2p/{name}", well_formed(name, transfers, grow(1)[0])
    break_a_rule(node, builder)
    refusal = client.refusal(path, body, status=403)
    assert refusal == "this address is banned here for a while: it broke the rules"
    node.run(DAY - 1)
    client.refusal(path, body, status=403)
    node.run(1)
    client.ok(path, well_formed(name, transfers, grow(1)[0]))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/p2p/hello", {}),
        ("/p2p/hello", {"hello": {}}),
        ("/p2p/transaction", {}),
        ("/p2p/transaction", {"transaction": {}}),
        ("/p2p/block", {}),
        ("/p2p/block", {"block": {}}),
        ("/p2p/block", b'{"block": {}}'),
    ],
)
def test_invalid_objects_are_called_invalid_for_every_sender(
    node: Node, builder: ChainBuilder, path: str, body: object
) -> None:
    """One who tries a client of his own learns what is wrong with each request, not with the first one only."""
    client = client_of(node)
    sentence = client.refusal(path, body, status=400)
    break_a_rule(node, builder)
    node.run(1)
    assert client.refusal(path, body, status=400) == sentence
    assert banned_for(node) == DAY - 1
    node.peers.bans.ban_by_operator(address_name(SOMEBODY), seconds=None, now=node.local.now())
    assert client.refusal(path, body, status=400) == sentence


def test_a_long_block_of_somebody_who_is_not_listened_to_is_not_read(
    node: Node, client: Client, builder: ChainBuilder
) -> None:
    break_a_rule(node, builder)
    at_most = routes.DEFAULT_BODY_CAP - len('{"block":{"":""}}')
    for size, status in ((at_most, 400), (at_most + 1, 403)):
        client.refusal("/p2p/block", b'{"block":{"":"' + b"x" * size + b'"}}', status=status)


def test_a_node_whose_neighbour_is_not_listened_to_still_says_hello(
    node: Node, client: Client, grow: Grow, builder: ChainBuilder
) -> None:
    """Many share an address behind NAT, and one of them must not be able to keep the others from joining."""
    break_a_rule(node, builder)
    assert client.ok("/p2p/hello", {"hello": node.remote().hello().message()})
    assert post_block(client, grow(1)[0]).status == 403
    node.peers.bans.ban_by_operator(address_name(SOMEBODY), seconds=None, now=node.local.now())
    client.refusal("/p2p/hello", {"hello": node.remote(2).hello().message()}, status=403)


def test_a_banned_peer_may_still_read(node: Node, client: Client, builder: ChainBuilder) -> None:
    break_a_rule(node, builder)
    for path in ("/p2p/status", "/p2p/blocks", "/p2p/peers", "/p2p/transactions"):
        client.ok(path)


def test_of_ipv6_a_64_is_banned(node: Node, grow: Grow, builder: ChainBuilder) -> None:
    """From that much one machine may choose; who has the rest of a /56 or a /48 need not be the same."""
    (block,) = grow(1)
    break_a_rule(node, builder, "2001:db8:1:2::3")
    assert post_block(client_of(node, "2001:db8:1:2:ffff::9"), block).status == 403
    assert post_block(client_of(node, "2001:db8:1:3::3"), block).status == 200


def test_the_operator_is_told_what_the_price_was_for(node: Node, builder: ChainBuilder) -> None:
    break_a_rule(node, builder)
    (ban,) = node.peers.bans.listed(node.local.now())
    assert (ban.name, ban.own) == (f"posts:{SOMEBODY}", False)
    assert ban.why.startswith("it posted: ")
    assert "work" in ban.why


def test_a_node_at_an_address_that_posted_nonsense_is_called_all_the_same(node: Node, builder: ChainBuilder) -> None:
    """Nobody signs what is posted: a neighbour of an honest node could cut it off from us."""
    neighbour = node.remote(endpoint=f"http://{SOMEBODY}:8645")
    break_a_rule(node, builder)
    node.meet(neighbour)
    node.run(600)
    assert node.knows(neighbour)


def test_an_address_that_is_banned_is_not_listened_to_either(node: Node, grow: Grow) -> None:
    (block,) = grow(1)
    node.peers.bans.ban_by_operator(address_name(SOMEBODY), seconds=None, now=node.local.now())
    assert post_block(client_of(node), block).status == 403
    assert post_block(client_of(node, OTHER), block).status == 200


def test_exempt_clients_are_never_banned(make_node: MakeNode, builder: ChainBuilder) -> None:
    node = make_node(exempt=("198.51.100.0/24",))
    for _ in range(2):
        break_a_rule(node, builder)
    assert node.peers.bans.listed(node.local.now()) == []


# Blocks that are asked for


def blocks_of(client: Client, query: str = "") -> tuple[list[bytes], str]:
    response = client.get(f"/p2p/blocks{query}")
    assert response.status == 200, response.body
    assert response.json.keys() == {"ok", "blocks", "height"}
    return split_blocks(response.body), response.json["height"]


def test_blocks_are_sent_byte_for_byte(node: Node, client: Client, grow: Grow) -> None:
    chain = grow(20)
    node.take(*chain)
    blocks, height = blocks_of(client, "?from=3&limit=5")
    assert blocks == [block.wire() for block in chain[2:7]]
    assert height == "20"


def test_blocks_below_the_prune_height_are_410_by_height_and_left_out_by_hash(
    node: Node, client: Client, grow: Grow
) -> None:
    chain = grow(20)
    node.take(*chain)
    store = node.node_context.chain.chainstate.store
    with store.commit():
        store.set_prune_height(11)
    node.node_context.chain_manager.prune_height = 11
    assert client.ok("/p2p/status")["status"]["pruneHeight"] == "11"
    response = client.get("/p2p/blocks?from=10&limit=1")
    assert (response.status, response.json["pruneHeight"]) == (410, "11")
    assert response.json["error"].startswith("block 10: this node has only blocks from height 11 on")
    assert blocks_of(client, "?from=11&limit=2")[0] == [block.wire() for block in chain[10:12]]
    hashes = [block.header.hash.hex() for block in chain[8:13]]
    answer = client.ok("/p2p/blocks", {"hashes": hashes})
    assert [block["height"] for block in answer["blocks"]] == ["11", "12", "13"]
    locator = [node.local.params.genesis_hash.hex()]
    assert client.ok("/p2p/headers", {"locator": locator})["from"] == "1"


def test_without_a_word_the_first_sixteen(node: Node, client: Client, grow: Grow) -> None:
    chain = grow(20)
    node.take(*chain)
    blocks, _ = blocks_of(client)
    assert blocks[1:] == [block.wire() for block in chain[:15]]
    genesis = json.loads(blocks[0])
    assert (genesis["height"], genesis["signature"], genesis["transactions"]) == ("0", "00" * 64, [])


@pytest.mark.parametrize(("query", "heights"), [("?from=19", [19, 20]), ("?from=20&limit=1", [20]), ("?limit=1", [0])])
def test_at_the_ends(node: Node, client: Client, grow: Grow, query: str, heights: list[int]) -> None:
    node.take(*grow(20))
    assert [int(json.loads(block)["height"]) for block in blocks_of(client, query)[0]] == heights


@pytest.mark.parametrize("first", [21, 2**53 - 1])
def test_above_the_tip_there_is_nothing(node: Node, client: Client, grow: Grow, first: int) -> None:
    node.take(*grow(20))
    assert blocks_of(client, f"?from={first}") == ([], "20")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("limit=0", "limit"),
        ("limit=17", "limit"),
        ("limit=-1", "limit"),
        ("limit=01", "limit"),
        ("limit=1.0", "limit"),
        ("limit=", "limit"),
        ("limit=%D9%A1", "limit"),
        ("from=-1", "from"),
        ("from=x", "from"),
        ("from=9007199254740992", "from"),
    ],
)
def test_numbers_out_of_range(client: Client, query: str, name: str) -> None:
    assert client.refusal(f"/p2p/blocks?{query}").startswith(f"{name}: must be a whole number from")


def test_a_reply_is_of_one_chain_even_if_that_changes_meanwhile(
    node: Node, client: Client, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = grow(12, name="old"), grow(14, name="new")
    node.take(*old)
    reader = node.node_context.chain_manager.reader
    canonical, calls = type(reader).canonical, count(1)

    def disturbed(self: Any, height: int) -> Any:
        if next(calls) == 5:
            node.node_context.chain_manager.submit_blocks([block.wire() for block in new])
        return canonical(self, height)

    monkeypatch.setattr(type(reader), "canonical", disturbed)
    blocks, _ = blocks_of(client, "?from=1&limit=12")
    assert node.tip.hash == new[-1].header.hash
    assert blocks == [block.wire() for block in old]


# Waiting transfers


def test_waiting_transfers_in_the_order_in_which_they_came(node: Node, client: Client, transfers: ChainBuilder) -> None:
    assert client.ok("/p2p/transactions") == {"transactions": [], "next": "0"}
    start = node.node_context.transaction_pool.sequence
    values = [transfer(transfers, amount=number) for number in range(1, 6)]
    for value in values:
        client.ok("/p2p/transaction", {"transaction": value})
    first, second, last = (str(start + number) for number in (2, 4, 5))
    assert client.ok("/p2p/transactions") == {"transactions": values, "next": last}
    assert client.ok("/p2p/transactions?limit=2") == {"transactions": values[:2], "next": first}
    assert client.ok(f"/p2p/transactions?after={first}&limit=2") == {"transactions": values[2:4], "next": second}
    assert client.ok(f"/p2p/transactions?after={last}") == {"transactions": [], "next": last}


def test_a_number_that_we_never_gave_begins_anew(node: Node, client: Client, transfers: ChainBuilder) -> None:
    """After a restart with a clock that was set back: somebody who remembers more must not miss what comes now."""
    values = [transfer(transfers, amount=number) for number in (1, 2)]
    for value in values:
        client.ok("/p2p/transaction", {"transaction": value})
    newest = node.node_context.transaction_pool.sequence
    assert client.ok(f"/p2p/transactions?after={newest + 1}") == {"transactions": values, "next": str(newest)}


@pytest.mark.parametrize("query", ["limit=0", "limit=257", "after=-1", "after=x"])
def test_numbers_of_transfers_out_of_range(client: Client, query: str) -> None:
    client.refusal(f"/p2p/transactions?{query}")


def test_256_at_most(node: Node, client: Client, transfers: ChainBuilder) -> None:
    for number in range(12):
        client.ok("/p2p/transaction", {"transaction": transfer(transfers, amount=number + 1)})
    assert len(client.ok("/p2p/transactions?limit=256")["transactions"]) == 12


# Peers


def learn(node: Node, count: int) -> list[str]:
    for number in range(count):
        node.book.succeeded(place(number), node_id=f"svcnode_{number:032x}", height=number, now=node.local.now())
    return [place(number) for number in range(count)]


def test_only_verified_nodes_are_handed_out(node: Node, client: Client, grow: Grow) -> None:
    remote = node.remote(blocks=grow(3))
    node.meet(remote)
    node.peers.hint(place(2), source="x")
    seen = str(int(node.peer(remote).handshake_at * 1000))
    expected = {"nodeId": remote.key.node_id, "endpoint": remote.endpoint, "height": "3", "lastSeen": seen}
    assert client.ok("/p2p/peers") == {"peers": [expected]}


@pytest.mark.parametrize("whose", ["node", "endpoint", "address"])
def test_nobody_is_sent_to_whoever_is_banned(node: Node, client: Client, whose: str) -> None:
    good, bad = node.remote(), node.remote(2)
    for remote in (good, bad):
        node.meet(remote)
    names = {
        "node": node_name(bad.key.node_id),
        "endpoint": endpoint_name(bad.endpoint),
        "address": address_name(address_in(bad.endpoint)),
    }
    node.peers.bans.ban(names[whose], seconds=60, now=node.local.now())
    for query in ("", "?limit=1"):
        assert [peer["endpoint"] for peer in client.ok(f"/p2p/peers{query}")["peers"]] == [good.endpoint]
    node.run(60)
    assert len(client.ok("/p2p/peers")["peers"]) == 2


def test_a_node_whose_neighbour_posted_nonsense_is_handed_out(
    node: Node, client: Client, builder: ChainBuilder
) -> None:
    neighbour = node.remote(endpoint=f"http://{SOMEBODY}:8645")
    node.meet(neighbour)
    break_a_rule(node, builder)
    assert [peer["endpoint"] for peer in client.ok("/p2p/peers")["peers"]] == [neighbour.endpoint]


def test_fifty_unless_asked_for_more_and_a_hundred_at_most(node: Node, client: Client) -> None:
    learn(node, 150)
    assert len(node.book.verified()) > 100
    for query, most in [("", 50), ("?limit=1", 1), ("?limit=100", 100), ("?limit=101", 100), ("?limit=99999999", 100)]:
        assert len(client.ok(f"/p2p/peers{query}")["peers"]) == most


def test_a_random_sample(node: Node, client: Client) -> None:
    learn(node, 60)
    one, other = ([peer["endpoint"] for peer in client.ok("/p2p/peers?limit=10")["peers"]] for _ in range(2))
    assert len(set(one)) == 10
    assert one != other


@pytest.mark.parametrize("limit", ["0", "-1", "x", "01"])
def test_a_limit_that_is_none(client: Client, limit: str) -> None:
    assert client.refusal(f"/p2p/peers?limit={limit}").startswith("limit: must be a whole number from 1")


# What holds for all routes

GETS = ("/p2p/status", "/p2p/headers", "/p2p/blocks", "/p2p/peers", "/p2p/transactions")
ALL_POSTS = (*POSTS, "/p2p/header", "/p2p/headers", "/p2p/blocks", "/p2p/branch")


def test_every_route_is_described(node: Node) -> None:
    paths = published(node.site).document["paths"]
    described = {(method, path) for path in paths if path.startswith("/p2p/") for method in paths[path]}
    gets = (*GETS, "/p2p/snapshot/{height}", "/p2p/snapshot/{height}/{index}")
    assert described == {(method, path) for path in gets for method in ("get", "head")} | {
        ("post", path) for path in ALL_POSTS
    }


@pytest.mark.parametrize("path", sorted({*GETS, *ALL_POSTS}))
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_no_answer_is_for_the_pages_of_a_browser(client: Client, method: str, path: str) -> None:
    """Cross-origin headers would let every page that a visitor opens speak to nodes in the visitor's network."""
    body = b"{}" if method in {"POST", "PUT"} else None
    response = client.send(method, path, body, {"Origin": "https://shop.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]
    taken = ({"GET", "HEAD"} if path in GETS else set()) | ({"POST"} if path in ALL_POSTS else set())
    assert (response.status == 405) is (method not in taken)


@pytest.mark.parametrize(
    ("path", "most"),
    [("/p2p/hello", 16 * 1024), ("/p2p/transaction", 32 * 1024), ("/p2p/block", 2 * 1024 * 1024)],
)
def test_bodies_have_a_greatest_size(node: Node, path: str, most: int) -> None:
    at_most, more = b'{"a":"' + b"x" * (most - 8) + b'"}', b'{"a":"' + b"x" * (most - 7) + b'"}'
    assert client_of(node, OTHER).post(path, at_most).status == 400
    wire = Wire(node.site, SOMEBODY)
    wire.send(f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(more)}\r\n\r\n".encode())
    assert wire.response().status == 413
    wire.close()


def test_blocks_cost_more_than_a_status(make_node: MakeNode) -> None:
    node = make_node(rates={"read": 0, "broadcast": 0, "p2p": 1})
    client = client_of(node)
    assert [client.get("/p2p/blocks").status for _ in range(3)] == [200, 200, 429]


def test_many_bytes_of_blocks_cost_more_than_few(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node(rates={"read": 0, "broadcast": 0, "p2p": 10})
    client = client_of(node)
    size = len(client.get("/p2p/blocks").body)
    monkeypatch.setattr(api, "BYTES_PER_TOKEN", size / 20)
    node.clock.advance(10)

    statuses = [client.get("/p2p/blocks").status for _ in range(8)]
    assert statuses == [200] * 5 + [429] * 3, "each costs 20 of the 100 that there are"
    assert client.get("/p2p/blocks").headers["retry-after"] == "1"


# An endpoint of their own


@pytest.fixture
def between_nodes(node: Node) -> Callable[[str], Response]:
    """Asks the site that has nothing but the routes of peers."""
    public = PublicSite(LIMITS, RateLimiter(Clients(), {"read": NO_LIMIT, "p2p": NO_LIMIT}, node.clock))
    site = SiteFactory(node.clock, lambda: "e1").between_nodes(node.routes, public)

    def get(path: str) -> Response:
        wire = Wire(site, SOMEBODY).send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
        response = wire.response()
        wire.close()
        return response

    return get


def test_peers_may_have_an_endpoint_of_their_own(between_nodes: Callable[[str], Response]) -> None:
    assert between_nodes("/p2p/status").status == 200
    assert between_nodes("/rpc/status").status == 404
    assert between_nodes("/rpc/openapi.json").status == 404
    described = json.loads(between_nodes("/p2p/openapi.json").body)
    OpenAPIV31SpecValidator(described).validate()
    assert "/p2p/hello" in described["paths"]
    assert {path.split("/")[1] for path in described["paths"]} == {"p2p"}


def names(blocks: Sequence[Block]) -> list[str]:
    return [block.header.hash.hex() for block in blocks]


def heights(answer: Any) -> list[int]:
    return [int(header["height"]) for header in answer["headers"]]


def get_headers(client: Client, query: str = "") -> Any:
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
def test_headers_at_the_ends(node: Node, client: Client, grow: Grow, query: str, expected: Sequence[int]) -> None:
    node.take(*grow(20))
    assert heights(get_headers(client, query)) == list(expected)


@pytest.mark.parametrize(
    ("query", "name"),
    [("limit=0", "limit"), (f"limit={MAX_HEADERS + 1}", "limit"), ("limit=x", "limit"), ("from=-1", "from")],
)
def test_header_numbers_out_of_range(client: Client, query: str, name: str) -> None:
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
def test_invalid_locators(client: Client, bad: object) -> None:
    sentence = f"locator: must be an array of 1 to {MAX_LOCATOR} block hashes, each 64 lower-case hex characters"
    assert client.refusal("/p2p/headers", {"locator": bad}) == sentence


@pytest.mark.parametrize("bad", [0, MAX_HEADERS + 1, "5", True, None])
def test_an_invalid_limit_is_refused(client: Client, bad: object) -> None:
    sentence = f"limit: must be a whole number from 1 to {MAX_HEADERS}"
    assert client.refusal("/p2p/headers", {"locator": ["ab" * 32], "limit": bad}) == sentence


# Blocks by hash


def blocks_by_hash(client: Client, hashes: Sequence[str]) -> list[bytes]:
    response = client.post("/p2p/blocks", json.dumps({"hashes": hashes}).encode())
    assert response.status == 200, response.body
    return split_blocks(response.body)


def test_blocks_come_in_the_order_of_their_hashes(node: Node, client: Client, grow: Grow) -> None:
    """Canonical or not, and without those that are not stored here."""
    chain, side = grow(10, pays=2), grow(2, on=grow(5, pays=2), name="side", pays=1)
    node.take(*chain, *side[5:])
    wanted = [chain[7], side[6], chain[2], side[5]]
    asked = names(wanted)
    found = blocks_by_hash(client, [*asked[:2], "ff" * 32, *asked[2:]])
    assert found == [block.wire() for block in wanted]


def test_without_any_known_block(client: Client) -> None:
    assert blocks_by_hash(client, ["ff" * 32] * 3) == []


@pytest.mark.parametrize("bad", [*HASH_LISTS, ["ab" * 32] * (MAX_HASHES + 1)])
def test_invalid_hashes(client: Client, bad: object) -> None:
    sentence = f"hashes: must be an array of 1 to {MAX_HASHES} block hashes, each 64 lower-case hex characters"
    assert client.refusal("/p2p/blocks", {"hashes": bad}) == sentence


def test_as_many_as_may_be_named_find_room_in_a_body(node: Node, client: Client, grow: Grow) -> None:
    node.take(*grow(3))
    assert len(blocks_by_hash(client, [*names(grow(3)), *["ff" * 32] * (MAX_HASHES - 3)])) == 3


# What all answers have in common


@pytest.mark.parametrize("path", ["/p2p/headers", "/p2p/blocks", "/p2p/blocks?from=1"])
def test_an_answer_stops_before_three_mib(
    node: Node, client: Client, grow: Grow, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert routes.MAX_REPLY_BYTES == 3 * 1024 * 1024
    chain = grow(10, pays=1)
    node.take(*chain)
    sizes = [len(block.header.wire() if path == "/p2p/headers" else block.wire()) for block in chain]

    def count() -> int:
        if "?" in path:
            return len(blocks_of(client, "?from=1")[0])
        if path == "/p2p/headers":
            return len(client.ok(path, {"locator": [node.setting.params.genesis_hash.hex()]})["headers"])
        return len(blocks_by_hash(client, names(chain)))

    monkeypatch.setattr(routes, "MAX_REPLY_BYTES", sum(sizes[:4]))
    assert count() == 4
    monkeypatch.setattr(routes, "MAX_REPLY_BYTES", sum(sizes[:4]) - 1)
    assert count() == 3
    monkeypatch.setattr(routes, "MAX_REPLY_BYTES", 1)
    assert count() == 1, "one at least, or no peer could go on"


@pytest.mark.parametrize("question", ["headers", "headers_after", "blocks", "blocks_by_hash"])
def test_answers_are_read_by_a_thread(make_node: MakeNode, grow: Grow, question: str) -> None:
    """Two thousand headers or three full blocks take longer than the reactor has."""
    reader = Stepped()
    node = make_node(reader=reader)
    node.take(*grow(5))
    server = BlockRoutes(node.node_context.chain_manager)
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


# Snapshots


@pytest.fixture
def snapshot(node: Node, grow: Grow, monkeypatch: pytest.MonkeyPatch) -> SnapshotFile:
    """The snapshot of block 10 on a node."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_BLOCKS", 10)
    node.take(*grow(25, pays=1))
    result_of(Deferred.fromCoroutine(node.snapshots.check()))
    (file,) = node.snapshots.served
    return file


def test_snapshots_are_named_in_the_status(client: Client, grow: Grow, snapshot: SnapshotFile) -> None:
    (named,) = client.ok("/p2p/status")["status"]["snapshots"]
    assert named == {
        "height": "10",
        "hash": grow(10, pays=1)[-1].header.hash.hex(),
        "digest": sha256(snapshot.manifest.wire()).hexdigest(),
    }


def test_a_snapshot_is_sent_in_chunks(
    client: Client, builder: ChainBuilder, grow: Grow, snapshot: SnapshotFile
) -> None:
    block = grow(10, pays=1)[-1]
    manifest = parse_manifest(client.ok("/p2p/snapshot/10")["snapshot"])
    assert manifest == snapshot.manifest
    check_manifest(manifest, block.header.state_root)
    assert len(manifest.chunks) == 1
    chunk = client.get("/p2p/snapshot/10/0")
    assert (chunk.status, chunk.headers["content-type"]) == (200, "application/octet-stream")
    assert dict(check_chunk(manifest, 0, chunk.body)) == builder.accounts_after(block)


@pytest.mark.parametrize("path", ["/p2p/snapshot/9", "/p2p/snapshot/9/0"])
def test_there_is_no_snapshot_of_every_block(client: Client, snapshot: SnapshotFile, path: str) -> None:
    assert client.refusal(path, status=404).startswith("there is no snapshot of this block here")


def test_there_are_not_more_chunks_than_the_manifest_has(client: Client, snapshot: SnapshotFile) -> None:
    assert client.refusal("/p2p/snapshot/10/1", status=404) == "this snapshot has the chunks 0 to 0"


@pytest.mark.parametrize("path", ["/p2p/snapshot/x", "/p2p/snapshot/010", "/p2p/snapshot/10/-1"])
def test_invalid_numbers_of_snapshots(client: Client, snapshot: SnapshotFile, path: str) -> None:
    assert "must be a whole number" in client.refusal(path)


def test_a_damaged_chunk_is_not_sent(client: Client, snapshot: SnapshotFile) -> None:
    data = snapshot.path.read_bytes()
    snapshot.path.write_bytes(bytes(44) + data[44:])
    assert "can no longer be read" in client.refusal("/p2p/snapshot/10/0", status=404)
    assert client.ok("/p2p/status")["status"]["snapshots"] == []


def test_a_chunk_costs_as_much_as_blocks_of_its_size(
    make_node: MakeNode, grow: Grow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SNAPSHOT_BLOCKS", 10)
    node = make_node(rates={"read": 0, "broadcast": 0, "p2p": 10})
    node.take(*grow(25, pays=1))
    result_of(Deferred.fromCoroutine(node.snapshots.check()))
    (file,) = node.snapshots.served
    monkeypatch.setattr(api, "BYTES_PER_TOKEN", file.manifest.chunks[0].size / 20)
    client = client_of(node)
    statuses = [client.get("/p2p/snapshot/10/0").status for _ in range(8)]
    assert statuses == [200] * 5 + [429] * 3, "each costs 20 of the 100 that there are"
