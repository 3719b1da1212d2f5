"""The feed of an address, on the real HTTP stack in memory: entries, waiting transfers, waits and refusals."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from svcd.commerce import feed
from svcd.commerce.feed import NOTHING, FeedCursor, parse_cursor
from svcd.commerce.payment_waiters import MAX_WAITING_OF_CLIENT
from svcd.node import chainstate, pending_change
from svcd.rpc import feed_routes
from svcd.rpc.feed_routes import ENTRIES_PER_TOKEN
from svcd.web.rate_limits import Rate
from tests.chains import COIN, address_of
from tests.rpc.conftest import present, public_client
from tests.rpc.node import PARAMS, UNLIMITED, Client, Node, Settings
from tests.submitting import submitted
from tests.web.wire import Wire

BOB = address_of("bob", "svcd")
CHAIN = """
genesis: b[1..4]
b1 pays 5000 from alice to bob for order-1
b1 pays 7 from alice to carol for order-1
b2 pays 8 from bob to carol
b2 pays 9 from alice to bob
b4 pays 3 from bob to bob for order-2
"""
TOLD = [(1, 0, 5000), (2, 1, 9), (4, 0, 3)]
CURSOR = parse_cursor(str(FeedCursor(feed.Place(2, 0, (b"b" * 16, b"a" * 16, PARAMS.genesis_hash[:16])), NOTHING)))


def target(recipient: str = BOB, **query: object) -> str:
    return f"/rpc/commerce/feed/{recipient}?{urlencode(query)}"


def told(answer: Any) -> list[tuple[int, ...]]:
    """Of each payment of an answer height, position and amount; of a rewind the height."""
    return [
        (int(each["height"]), each["position"], int(each["amount"]))
        if each["type"] == "payment"
        else (int(each["height"]),)
        for each in answer["entries"]
    ]


def every_page(client: Client, **query: object) -> Iterator[Any]:
    """Answers, each after the one before, until one has nothing."""
    while True:
        answer = client.ok(target(**query))["feed"]
        yield answer
        if not answer["entries"]:
            return
        query["after"] = answer["next"]


def ask(node: Node, after: str | None = None, peer: str = "203.0.113.9", **query: object) -> Wire:
    """A client that asks and waits."""
    given = {} if after is None else {"after": after}
    line = f"GET {target(**{'wait': 30, **given, **query})} HTTP/1.1\r\nHost: h\r\n\r\n"  # type: ignore[arg-type]
    return Wire(node.public, peer).send(line.encode())


def settle(node: Node) -> None:
    node.clock.pump([0] * 20)


def pay(node: Node, amount: int = 5000, reference: str | None = "order-9", to: str = "bob") -> Any:
    transfer = node.builder.transfer("alice", to, amount, reference=reference)
    submitted(node.node_context.transaction_pool, transfer, node.clock)
    settle(node)
    return transfer


def mine(node: Node, text: str) -> None:
    node.grow(text)
    settle(node)


def answered(wire: Wire) -> Any:
    """What a wait was answered with."""
    return wire.response().json["feed"]


def test_every_payment_in_the_order_of_the_chain(node: Node, client: Client) -> None:
    node.grow(CHAIN)
    found = client.ok(target())["feed"]
    assert told(found) == TOLD
    block = client.ok("/rpc/block/1")["block"]
    paid = client.ok(f"/rpc/transaction/{found['entries'][0]['txid']}")["transaction"]
    assert found["entries"][0] == {
        "type": "payment",
        "txid": paid["txid"],
        "reference": "order-1",
        "amount": "5000",
        "amountSvc": "0.00005",
        "sender": node.address("alice"),
        "height": "1",
        "hash": block["hash"],
        "time": paid["blockTime"],
        "position": 0,
    }
    assert [each["reference"] for each in found["entries"]] == ["order-1", None, "order-2"]
    assert found["entries"][2]["sender"] == BOB
    seen = client.ok(f"/rpc/commerce/payment/order-1?recipient={BOB}&amountBaseUnits=5000")["payment"]
    assert (found["tip"], found["node"], found["pending"]) == (seen["tip"], seen["node"], [])


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("near", [0, 16])
def test_pages_have_every_payment_once(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, limit: int, near: int
) -> None:
    monkeypatch.setattr(feed_routes, "_NEAR", near)
    node.grow(CHAIN)
    pages = list(every_page(client, limit=limit))
    assert [each for page in pages for each in told(page)] == TOLD
    assert max(len(page["entries"]) for page in pages) <= limit
    assert [told(page) for page in every_page(client, sinceHeight=2)] == [TOLD[1:], []]
    assert [told(page) for page in every_page(client, sinceHeight=9)] == [[]]


def test_what_is_undone_is_told_by_every_node_also_by_one_that_never_saw_it(
    node: Node, client: Client, open_node: Callable[..., Node]
) -> None:
    blocks = node.grow(CHAIN)
    after = client.ok(target())["feed"]["next"]
    text = "b2: c[3..5]\nc4 pays 11 from alice to bob"
    other = open_node()
    branch = list(node.builder.chain(CHAIN + text).values())
    node.take(*branch[-3:])
    other.take(*branch)
    settle(node)
    for each in (client, public_client(other)):
        found = each.ok(target(after=after))["feed"]
        assert told(found) == [(2,), (4, 0, 11)]
        assert found["entries"][0]["hash"] == blocks["b2"].header.hash.hex()
        assert told(each.ok(target(after=found["next"]))["feed"]) == []
        first = each.ok(target(after=after, limit=1))["feed"]
        assert told(first) == [(2,)]
        assert told(each.ok(target(after=first["next"], limit=1))["feed"]) == [(4, 0, 11)]


def test_a_cursor_is_good_after_a_restart(tmp_path: Path) -> None:
    clock = present()
    node = Node(tmp_path / "chain", clock, Settings(), None)
    node.grow(CHAIN)
    after = public_client(node).ok(target(limit=1))["feed"]["next"]
    node.close()
    node = Node(tmp_path / "chain", clock, Settings(), None)
    assert told(public_client(node).ok(target(after=after))["feed"]) == TOLD[1:]
    node.close()


def test_a_node_that_is_behind_says_so_by_a_rewind_or_is_not_asked(
    node: Node, client: Client, open_node: Callable[..., Node]
) -> None:
    blocks = list(node.grow(CHAIN).values())
    behind = open_node()
    behind.take(*blocks[:2])
    after = client.ok(target())["feed"]["next"]
    assert told(public_client(behind).ok(target(after=after))["feed"]) == [(2,)]
    assert "below minHeight 4" in public_client(behind).refusal(target(after=after, minHeight=4), status=503)


def test_waiting_transfers_are_listed_until_a_block_has_them(node: Node, client: Client) -> None:
    transfer = pay(node)
    pay(node, 1, to="carol")
    other = pay(node, 6, None)
    found = client.ok(target())["feed"]
    assert (found["entries"], [each["reference"] for each in found["pending"]]) == ([], ["order-9", None])
    arrived = node.node_context.transaction_pool.mempool.entries()[0].arrival
    assert found["pending"][0] == {
        "txid": transfer.txid.hex(),
        "reference": "order-9",
        "amount": "5000",
        "amountSvc": "0.00005",
        "sender": node.address("alice"),
        "arrivalTime": str(arrived),
    }
    assert client.ok(target(after=found["next"]))["feed"] == found
    block = node.builder.block(None, transfers=[transfer])
    node.take(block)
    settle(node)
    later = client.ok(target(after=found["next"]))["feed"]
    assert told(later) == [(1, 0, 5000)]
    assert [each["txid"] for each in later["pending"]] == [other.txid.hex()]


def test_a_transfer_that_a_block_includes_between_the_two_reads_is_not_pending_as_well(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_routes, "_NEAR", -1)
    block, long_reads = node.builder.block(None, transfers=[pay(node)]), node.node_context.chain_manager.long_reads
    read = long_reads.ask

    def read_later(query: Any) -> Any:
        node.take(block)
        return read(query)

    monkeypatch.setattr(long_reads, "ask", read_later)
    found = client.ok(target())["feed"]
    assert (told(found), found["pending"]) == ([(1, 0, 5000)], [])


def test_many_waiting_transfers_cost_more(open_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_routes, "ENTRIES_PER_TOKEN", 2)
    node = open_node(rates={**UNLIMITED, "read": Rate(0.001, 4)})
    for amount in range(1, 7):
        pay(node, amount)
    assert len(answered(ask(node))["pending"]) == 6
    assert ask(node).response().status == 429


def test_of_many_waiting_transfers_the_oldest_are_listed(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_routes, "MAX_PENDING", 2)
    for amount in (1, 2, 3):
        pay(node, amount)
    assert [each["amount"] for each in client.ok(target())["feed"]["pending"]] == ["1", "2"]


def test_transfers_that_the_address_sends_end_a_page_early_and_not_the_feed(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = "".join(f"b1 pays {amount} from bob to carol\n" for amount in range(1, 8))
    node.grow(f"genesis: b[1..2]\n{sent}b2 pays 5 from alice to bob")
    for name, value in {"_FEW": 2, "LEAST_ROWS": 3, "ROWS_PER_ENTRY": 1}.items():
        monkeypatch.setattr(feed_routes, name, value)
    found = client.ok(target(limit=3))["feed"]
    assert (found["entries"], parse_cursor(found["next"]).place.position) == ([], 2)
    waited = ask(node, found["next"], limit=3)
    assert answered(waited)["next"] != found["next"], "at once: there is more to read"
    pages = 1
    while not found["entries"]:
        found, pages = client.ok(target(after=found["next"], limit=3))["feed"], pages + 1
    assert (told(found), pages) == ([(2, 0, 5)], 3)


def test_without_news_a_poll_reads_nothing(node: Node, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    node.grow(CHAIN)
    found = client.ok(target())["feed"]
    empty = {**found, "entries": []}

    def read(*_: object) -> None:
        raise AssertionError("it reads the chain")

    monkeypatch.setattr(node.node_context.chain_manager, "read", read)
    monkeypatch.setattr(node.node_context.chain_manager.long_reads, "ask", read)
    assert client.ok(target(after=found["next"]))["feed"] == empty
    pay(node)
    assert len(client.ok(target(after=found["next"]))["feed"]["pending"]) == 1
    node.peers.around = evolve(node.peers.around, behind="behind")
    for recipient in (BOB, node.address("carol")):
        assert client.ok(target(recipient, after=found["next"]))["feed"]["node"]["synced"]


def test_a_wait_is_answered_at_once_where_there_is_something(node: Node, client: Client) -> None:
    assert not ask(node).received, "nothing has ever come"
    transfer = pay(node)
    assert len(answered(ask(node))["pending"]) == 1
    node.take(node.builder.block(None, transfers=[transfer]))
    settle(node)
    found = answered(ask(node))
    assert told(found) == [(1, 0, 5000)]
    assert not ask(node, found["next"]).received


def test_a_wait_ends_with_the_block_that_pays_and_not_with_another(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = ask(node)
    looked: list[object] = []
    read = node.node_context.chain_manager.read
    blocks = node.builder.chain("genesis: b[1..3]\nb1 pays 1 from alice to carol\nb3 pays 2 from alice to bob")
    monkeypatch.setattr(node.node_context.chain_manager, "read", lambda query: (looked.append(query), read(query))[1])
    for name in ("b1", "b2"):
        node.take(blocks[name])
        settle(node)
    assert (wire.received, looked) == (b"", []), "it costs nothing"
    node.take(blocks["b3"])
    settle(node)
    assert told(answered(wire)) == [(3, 0, 2)]
    assert len(node.waiters) == 0


def test_a_wait_ends_when_a_waiting_transfer_comes_or_goes(node: Node) -> None:
    wire = ask(node)
    pay(node, 1, to="carol")
    assert not wire.received
    transfer = pay(node)
    found = answered(wire)
    assert [each["txid"] for each in found["pending"]] == [transfer.txid.hex()]
    wire = ask(node, found["next"])
    assert not wire.received
    pool = node.node_context.transaction_pool
    pool.drop([transfer.txid])
    settle(node)
    assert answered(wire)["pending"] == []


def test_a_transfer_that_the_address_sends_does_not_end_a_wait(node: Node) -> None:
    wire = ask(node)
    mine(node, "genesis: b1\nb1 pays 1 from bob to carol")
    assert not wire.received
    wire.close()


def test_a_reorganisation_ends_all_waits(node: Node, client: Client) -> None:
    blocks = node.grow(CHAIN)
    after = client.ok(target())["feed"]["next"]
    wires = [ask(node, after, recipient=address_of(name, "svcd")) for name in ("bob", "erin")]
    assert not any(wire.received for wire in wires)
    branch = [node.builder.block(blocks["b3"], producer="c")]
    branch.append(node.builder.block(branch[0]))
    node.take(*branch)
    settle(node)
    assert [told(answered(wire)) for wire in wires] == [[(3,)], [(3,)]]


def test_a_change_that_is_too_large_to_name_who_is_paid_wakes_all(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((pending_change, "MAX_LISTED"), (chainstate, "_MAX_PENDING_ACCOUNTS")):
        monkeypatch.setattr(module, name, 0)
    wire = ask(node)
    mine(node, "genesis: b1\nb1 pays 2 from alice to bob")
    assert told(answered(wire)) == [(1, 0, 2)]


def test_a_payment_that_comes_while_a_thread_reads_does_not_wait_for_the_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_reads = node.node_context.chain_manager.long_reads
    read = long_reads.ask
    *empty, paying = node.builder.chain("genesis: b[1..3]\nb3 pays 2 from alice to bob").values()
    node.take(*empty)

    def read_before(query: Any) -> Any:
        found = read(query)
        node.take(paying)
        return found

    monkeypatch.setattr(long_reads, "ask", read_before)
    monkeypatch.setattr(feed_routes, "_NEAR", 1)
    wire = ask(node)
    settle(node)
    assert told(answered(wire)) == [(3, 0, 2)]


def test_a_wait_ends_with_the_time_and_the_present_tip(node: Node, client: Client) -> None:
    wire = ask(node, wait=3)
    mine(node, "genesis: b[1..2]")
    node.clock.advance(2.9)
    assert not wire.received
    node.clock.advance(0.1)
    found = answered(wire)
    assert (found["entries"], found["tip"]["height"]) == ([], "2")
    assert client.ok(target(after=found["next"]))["feed"] == found


@pytest.mark.parametrize("near", [-1, 16])
def test_a_long_read_without_news_is_followed_by_the_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch, near: int
) -> None:
    mine(node, "genesis: b[1..2]")
    monkeypatch.setattr(feed_routes, "_NEAR", near)
    wire = ask(node)
    settle(node)
    assert not wire.received
    paid = pay(node)
    found = answered(wire)
    assert ([each["txid"] for each in found["pending"]], found["entries"]) == ([paid.txid.hex()], [])


def test_the_end_of_the_node_ends_all_waits(node: Node) -> None:
    wire = ask(node)
    node.waiters.stop_accepting()
    settle(node)
    assert answered(wire)["entries"] == []
    assert answered(ask(node))["entries"] == []


def test_only_so_many_wait_and_verifications_count_too(node: Node) -> None:
    verification = f"/rpc/commerce/payment/o?recipient={BOB}&amount=1&wait=30&state=unpaid"
    waiting = [Wire(node.public, "203.0.113.9").send(f"GET {verification} HTTP/1.1\r\nHost: h\r\n\r\n".encode())]
    waiting += [ask(node) for _ in range(MAX_WAITING_OF_CLIENT - 1)]
    refused = ask(node).response()
    assert (refused.status, refused.headers["retry-after"]) == (429, "2")
    assert refused.error == "32 requests of this client wait already; try again later, or without wait"
    waiting.append(ask(node, peer="198.51.100.8"))
    assert not waiting[-1].received
    node.waiters.set_connections(66)
    assert ask(node, peer="198.51.100.9").response().error.startswith("33 requests wait already")
    for each in waiting:
        each.close()
    assert len(node.waiters) == 0


def test_feeds_and_verifications_have_rooms_of_their_own(node: Node) -> None:
    verification = f"/rpc/commerce/payment/o?recipient={BOB}&amount=1&wait=30&state=unpaid"
    assert (node.waiters._verifications.most, node.waiters._feeds.most) == (500, 10_000)
    node.waiters._verifications.most, node.waiters._feeds.most = 1, 2
    waiting = [ask(node, peer=f"198.51.100.{number}") for number in range(2)]
    assert ask(node, peer="198.51.100.8").response().status == 429
    for _ in range(2):
        request = f"GET {verification} HTTP/1.1\r\nHost: h\r\n\r\n".encode()
        waiting.append(Wire(node.public, "203.0.113.9").send(request))
    assert [bool(each.received) for each in waiting] == [False, False, False, True]
    assert waiting.pop().response().status == 429
    for each in waiting:
        each.close()


def test_a_read_by_a_thread_costs_more(open_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> None:
    node = open_node(rates={**UNLIMITED, "read": Rate(0.001, 6)})
    wire = ask(node, wait=1, limit=1000)
    assert not wire.received
    wire.close()
    monkeypatch.setattr(feed_routes, "_NEAR", -1)
    assert 1000 / ENTRIES_PER_TOKEN == 4
    assert ask(node, wait=1, limit=1000).open
    assert ask(node, limit=1).response().status == 429


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"after": "120-3-0"}, "after: must be the `next` of an answer of a feed"),
        ({"after": str(CURSOR) + "A"}, "after: must be the `next` of an answer of a feed"),
        ({"after": str(CURSOR)[:-4]}, "after: must be the `next` of an answer of a feed"),
        ({"after": "é" * 60}, "after: must be the `next` of an answer of a feed"),
        ({"after": ""}, "after: must be the `next` of an answer of a feed"),
        ({"limit": 0}, "limit: must be a whole number from 1 to 1000"),
        ({"limit": 1001}, "limit: must be a whole number from 1 to 1000"),
        ({"wait": 0}, "wait: must be a whole number from 1 to 30"),
        ({"wait": 31}, "wait: must be a whole number from 1 to 30"),
        ({"sinceHeight": "-1"}, "sinceHeight"),
        ({"recipient": "svcd1q"}, "recipient must be an address of this network"),
        ({"recipient": BOB.upper()}, "recipient must be in lower case: it begins with svcd1q"),
    ],
)
def test_questions_that_have_no_answer(still: Client, query: dict[str, Any], sentence: str) -> None:
    assert still.refusal(target(**query)).startswith(sentence)


def test_a_cursor_that_no_node_has_made_begins_where_its_hashes_are_known(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.grow(CHAIN)
    assert told(client.ok(target(after=CURSOR))["feed"]) == [(0,), *TOLD]
    first = client.ok("/rpc/block/1")["block"]["hash"]
    place = CURSOR.place
    known = evolve(place, hashes=(place.hashes[0], bytes.fromhex(first)[:16], place.hashes[2]))
    assert told(client.ok(target(after=evolve(CURSOR, place=known)))["feed"]) == [(1,), *TOLD[1:]]
    asked: list[object] = []
    long_reads = node.node_context.chain_manager.long_reads
    read = long_reads.ask
    monkeypatch.setattr(long_reads, "ask", lambda query: (asked.append(query), read(query))[1])
    monkeypatch.setattr(feed_routes, "_NEAR", 2)
    assert told(client.ok(target(after=CURSOR))["feed"]) == [(0,), *TOLD]
    assert len(asked) == 1, "a thread reads what is not near the tip, though the cursor says so"
    above = FeedCursor(feed.Place(2**48 - 1, 0, (b"b" * 16,) * 50), NOTHING)
    assert told(client.ok(target(after=above))["feed"]) == [(0,), *TOLD]


def test_blocks_that_are_deleted_between_two_pages_are_410_with_their_height(
    node: Node, client: Client, clock: Clock
) -> None:
    node.grow(CHAIN.replace("[1..4]", "[1..6]"))
    early, whole = (client.ok(target(limit=limit))["feed"]["next"] for limit in (1, 100))
    node.keep_from(4)
    for query in ({}, {"sinceHeight": 3}, {"after": early}, {"after": early, "wait": 5}):
        response = client.get(target(**query))
        assert (response.status, response.json["pruneHeight"]) == (410, "4")
        assert "this node has only blocks from height 4 on; give that or more as sinceHeight" in response.error
    assert told(client.ok(target(sinceHeight=4))["feed"]) == TOLD[2:]
    assert told(client.ok(target(after=early, sinceHeight=4))["feed"]) == TOLD[2:]
    assert told(client.ok(target(after=whole))["feed"]) == []


def test_a_full_block_of_payments_is_read_by_a_thread_and_wakes_the_wait(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_routes, "_FEW", 3)
    wire = ask(node)
    paid = "".join(f"b1 pays {COIN + amount} from alice to bob\n" for amount in range(9))
    mine(node, f"genesis: b1\n{paid}")
    assert [amount - COIN for _, _, amount in told(answered(wire))] == list(range(9))
