"""The explorer: every page of a chain with all kinds of content, every link, and hostile text."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred

from svcd.chain.units import format_amount
from svcd.node.fees import Fees
from svcd.node.network_view import NetworkView, NoPeers
from svcd.node.work_rate import WorkRate
from svcd.pages import recent_blocks
from svcd.pages.html import coins, grouped
from svcd.pages.sources import PeerRow
from svcd.pages.texts import load
from svcd.store.chain_store import BlockFigures, ChainReader, StoredBlock
from tests.chains import COIN, address_of, with_producers
from tests.pages.conftest import Shown, show
from tests.pages.reading import Document
from tests.process_level.test_damage import spoil
from tests.rpc.node import PARAMS, Node

CHAIN = """
    genesis: b[1..5]
    b1 pays 250000000 from alice to bob for order-1
    b1 pays 9 from alice to alice
    b2 pays 5000 from alice to bob
    b2: c3
"""


def crawl(shown: Shown, start: str = "/", most: int = 400) -> dict[str, Document]:
    """All pages reachable from ``start``; checks that each is well formed and that the files it loads exist."""
    seen: dict[str, Document] = {}
    loaded: set[str] = set()
    waiting = [start]
    while waiting and len(seen) < most:
        target = waiting.pop()
        if target in seen or urlsplit(target).path in ("/wallet/", "/till/"):
            continue
        response = shown.ask(target)
        while response.status in (301, 303):
            response = shown.ask(response.headers["location"])
        assert response.status == 200, (target, response.body)
        if not response.headers["content-type"].startswith("text/html"):
            continue
        page = seen[target] = Document(response.body.decode())
        waiting += page.inner_links
        loaded |= set(page.loads)
    assert {re.sub(r"\.[0-9a-f]{16}\.", ".", each) for each in loaded} >= {"/static/style.css", "/static/icon.svg"}
    assert {shown.ask(each).status for each in loaded} == {200}
    return seen


def test_every_link_resolves(shown: Shown) -> None:
    blocks = shown.node.grow(CHAIN)
    shown.wait(shown.node.builder.transfer("bob", "carol", 77, reference="waits:1"))
    pages = crawl(shown)
    expected = {"/", "/mempool", "/peers", "/block/0", "/block/5", f"/tx/{blocks['b1'].transfers[0].txid.hex()}"}
    assert expected | {"/reference/order-1", f"/address/{shown.node.address('bob')}"} <= pages.keys()
    assert len(pages) > 15
    # Swagger UI draws it.
    assert pages.pop("/reference/").all("main")
    for page in pages.values():
        assert page.title.endswith("· SVC Devnet")
        assert len(page.all("h1")) == len(page.all("main", id="main")) == 1


def test_the_overview_shows_the_newest_blocks_first(shown: Shown) -> None:
    shown.node.grow("genesis: b[1..30]")
    page = shown.see("/")
    heights = [link for link in page.links if link.startswith("/block/") and len(link) < 12]
    assert heights == [f"/block/{height}" for height in range(30, 18, -1)]
    assert len(page.all("svg", class_="plot")) == 4
    assert {"Block 30: 0 transfers", "Block 30: 0\N{NO-BREAK SPACE}SVC"} <= set(page.tooltips)
    assert page.all("a", rel="alternate")[0]["href"] == "/rpc/status"


def test_older_blocks_are_listed(shown: Shown) -> None:
    blocks = shown.node.grow("genesis: b[1..50]")

    def ways(page: Document) -> list[str]:
        return [link for link in page.links if link.startswith("/blocks")]

    assert ways(shown.see("/")) == ["/blocks?before=39"]
    second, third = shown.see("/blocks?before=39"), shown.see("/blocks?before=19")
    assert "Blocks 19 to 38" in second.visible
    assert (ways(second), ways(third)) == (["/blocks?before=51", "/blocks?before=19"], ["/blocks?before=39"])
    found = [link for page in (second, third) for link in page.links if re.fullmatch("/block/[0-9]+", link)]
    assert found == [f"/block/{height}" for height in range(38, -1, -1)]
    hashes = {f"/block/{each.hex()}" for each in (blocks["b38"].header.hash, blocks["b1"].header.hash)}
    assert hashes | {f"/block/{PARAMS.genesis_hash.hex()}"} <= {*second.links, *third.links}
    newest = shown.see("/blocks")
    assert newest.source == shown.see("/blocks?before=900").source
    assert f"/block/{blocks['b50'].header.hash.hex()}" in newest.links
    assert ways(newest) == ["/blocks?before=31"]


def test_amounts_have_the_unit_of_the_network(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=evolve(PARAMS, name="festival", unit="Token")))
    shown.node.grow(CHAIN)
    pages = crawl(shown)
    del pages["/reference/"]
    for page in pages.values():
        assert page.all("html")[0]["data-unit"] == "Token"
        assert not re.search("[0-9][ \N{NO-BREAK SPACE}]SVC", page.source)
    assert "2.5 Token" in shown.see("/reference/order-1").text
    overview = shown.see("/")
    assert "Token, suggested now" in overview.visible
    assert "Block 5: 0\N{NO-BREAK SPACE}Token" in overview.tooltips
    assert shown.see("/wallet/").all("html")[0]["data-unit"] == "Token"


def test_the_overview_of_a_chain_without_blocks(still: Shown) -> None:
    page = still.see("/")
    assert "not enough blocks for a chart" in page.text
    assert not page.all("svg", class_="plot")
    assert [link for link in page.links if link.startswith("/blocks")] == []
    assert "Blocks 0 to 0" in still.see("/blocks").visible


def test_the_overview_shows_size_and_fees_of_blocks(shown: Shown) -> None:
    blocks = shown.node.grow(CHAIN)
    text = shown.see("/").visible
    size = len(blocks["b1"].wire())
    assert f"{grouped(size)} bytes, 1% full" in text
    fees = sum(transfer.fee for transfer in blocks["b1"].transfers)
    paid = load().choose(b"").text(coins(fees))
    assert paid in text
    assert f"Block 1: {paid}" in shown.see("/").tooltips
    block = shown.see("/block/1").visible
    assert f"{grouped(size)} bytes, 1% full" in block
    assert f"Fees{format_amount(fees)} SVCFee per transfer{format_amount(fees // 2)} SVC" in block


def test_figures_of_many_transfers_are_read_in_the_background(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_blocks, "_TRANSFERS_AT_ONCE", 1)
    block = shown.node.grow(CHAIN + "b5 pays 5 from alice to bob")["b1"]
    asked = shown.node.node_context.chain_manager.long_reads.ask
    held: list[Callable[[], object]] = []

    def ask(query: Callable[[ChainReader], object]) -> Deferred[object]:
        later: Deferred[object] = Deferred()
        held.append(lambda: asked(query).chainDeferred(later))
        return later

    monkeypatch.setattr(shown.node.node_context.chain_manager.long_reads, "ask", ask)
    size = f"{grouped(len(block.wire()))} bytes"
    text = shown.see("/").visible
    assert size not in text
    assert "1% full" in text, "the newest block is read at once"
    assert "being read" in text
    for go_on in held:
        go_on()
    text = shown.see("/").visible
    assert size in text
    assert "being read" not in text


def test_replaced_blocks_are_told_on_the_overview(shown: Shown) -> None:
    lost = shown.node.grow(CHAIN)["c3"].header.hash.hex()
    page = shown.see("/")
    assert "Replaced blocks" in page.visible
    assert f"/block/{lost}" in page.links
    assert "not on the chain" in shown.see(f"/block/{lost}").visible


def test_no_block_was_replaced(still: Shown) -> None:
    assert "Replaced" not in still.see("/").visible


def test_a_block_by_height_and_by_hash(shown: Shown) -> None:
    block = shown.node.grow(CHAIN)["b1"]
    by_height, by_hash = shown.see("/block/1"), shown.see(f"/block/{block.header.hash.hex().upper()}")
    assert by_height.source == by_hash.source
    text = by_height.visible
    assert block.header.hash.hex() in text
    assert "5 confirmations" in text
    assert "2 transfers" in text
    assert "2.5 SVC" in text
    assert {"/block/0", "/block/2"} <= set(by_height.links)
    assert by_height.all("a", rel="alternate")[0]["href"] == "/rpc/block/1"


def test_size_and_fees_of_a_block_are_read_once(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    shown.node.grow(CHAIN)
    read: list[StoredBlock] = []
    figures = ChainReader.figures

    def counted(reader: ChainReader, block: StoredBlock) -> BlockFigures:
        read.append(block)
        return figures(reader, block)

    monkeypatch.setattr(ChainReader, "figures", counted)
    first = shown.see("/block/1").visible
    # The page is drawn anew when its age has changed.
    shown.node.clock.advance(86_400)
    assert shown.see("/block/1").visible != first
    assert len(read) == 1


def test_block_off_the_canonical_chain(shown: Shown) -> None:
    page = shown.see(f"/block/{shown.node.grow(CHAIN)['c3'].header.hash.hex()}")
    assert "not on the chain" in page.visible
    assert "confirmation" not in page.visible
    assert not page.all("a", rel="alternate")


def test_a_block_above_the_tip(still: Shown) -> None:
    assert "The newest block of this node’s chain is 0." in still.see("/block/1", 404).text


def test_transfers_of_a_block_are_paginated(shown: Shown) -> None:
    lines = [f"b1 pays {number} from {name} to bob" for name in ("alice", "carol") for number in range(1, 17)]
    block = shown.node.grow("\n".join(["genesis: b1", *lines]))["b1"]
    txids = [transfer.txid.hex() for transfer in block.transfers]
    first = shown.see("/block/1")
    (more,) = [link for link in first.links if "first=" in link]
    rest = shown.see(more)
    shown_txids = [
        link.removeprefix("/tx/") for page in (first, rest) for link in page.links if link.startswith("/tx/")
    ]
    assert shown_txids == txids
    assert "32 transfers" in first.visible
    assert [link for link in rest.links if link.endswith("first=0")]
    assert "no more transfers" in shown.see("/block/1?first=900").visible


def test_a_transfer_on_the_chain(shown: Shown) -> None:
    block = shown.node.grow(CHAIN)["b1"]
    transfer = block.transfers[0]
    page = shown.see(f"/tx/{transfer.txid.hex()}")
    size = f"{len(transfer.wire)} bytes"
    for text in ("2.5 SVC", "order-1", "5 confirmations", size, shown.node.address("alice"), shown.node.address("bob")):
        assert text in page.visible
    assert page.all("a", rel="alternate")[0]["href"] == f"/rpc/transaction/{transfer.txid.hex()}"
    [proof] = page.all("a", download="proof-order-1.json")
    assert shown.node.address("bob") in proof["href"]
    assert b'"chain":{' in shown.ask(proof["href"]).body
    assert "/proof/" in page.links


def test_transfer_in_the_mempool(shown: Shown) -> None:
    transfer = shown.node.builder.transfer("alice", "bob", 1)
    shown.wait(transfer)
    page = shown.see(f"/tx/{transfer.txid.hex()}")
    assert "waiting for a block" in page.visible
    assert not page.all("a", rel="alternate")
    assert "this id: it may not have arrived" in shown.see(f"/tx/{'00' * 32}", 404).text


def test_transfers_of_an_address_are_paginated(shown: Shown) -> None:
    lines = [f"b{number} pays {number} from alice to bob" for number in range(1, 31)]
    shown.node.grow("\n".join(["genesis: b[1..31]", *lines, "b31 pays 5 from bob to carol"]))
    bob = shown.node.address("bob")
    first = shown.see(f"/address/{bob}")
    (older,) = [link for link in first.links if "before=" in link]
    second = shown.see(older)
    assert first.visible.count("SVC") > 20
    txids = [link for page in (first, second) for link in page.links if link.startswith("/tx/")]
    assert len(txids) == len(set(txids)) == 31
    assert f"/address/{bob}" in second.links
    assert ("out" in first.visible, "1 SVC" in second.visible) == (True, True)
    assert first.all("a", rel="alternate")[0]["href"] == f"/rpc/balance/{bob}"


def test_unused_address(still: Shown) -> None:
    page = still.see(f"/address/{still.node.address('nobody')}")
    assert "in no block of this chain yet" in page.visible
    assert "There is no transfer from or to this address" in page.visible
    assert "checksum" in still.see(f"/address/{still.node.address('nobody')[:-1]}q", 400).text


def test_mempool_is_paginated(shown: Shown) -> None:
    assert "The mempool is empty" in shown.see("/mempool").visible
    builder = shown.node.builder
    shown.wait(*[builder.transfer(name, "bob", 7 + n) for name in ("alice", "carol") for n in range(12)])
    first = shown.see("/mempool")
    (more,) = [link for link in first.links if "before=" in link and link.startswith("/mempool")]
    found = [link for page in (first, shown.see(more)) for link in page.links if link.startswith("/tx/")]
    arrived = [f"/tx/{each.transfer.txid.hex()}" for each in shown.node.node_context.transaction_pool.mempool.entries()]
    assert found == arrived[::-1]
    assert "no more transfers" in shown.see("/mempool?before=0").visible


FULL_AFTER_TWO = evolve(PARAMS, max_block_transactions=2, slot_seconds=30)


def test_the_next_block_has_room(shown: Shown) -> None:
    assert "No transfers are waiting." in shown.see("/").visible
    shown.wait(shown.node.builder.transfer("alice", "bob", 7))
    text = shown.see("/").visible
    assert "1 transfer is waiting; the next block has room for more." in text
    assert "should be enough" not in text


def test_a_phone_shows_of_the_transfers_of_an_address_with_whom_and_under_which_reference(shown: Shown) -> None:
    shown.wait(shown.node.builder.transfer("alice", "bob", 7, reference="order-7"))
    page = shown.see(f"/address/{shown.node.address('bob')}")
    lines = page.all("td", class_="labelled phone-line")
    assert [each["data-label"] for each in lines] == ["Counterparty", "Reference"]


@pytest.mark.parametrize(
    ("rate", "made", "text"),
    [
        (
            WorkRate(13, 4.04, 16_384),
            {},
            "This node makes blocks, with 4.0 attempts a second. "
            "One block takes 16\u202f384 attempts on average: 67 min.",
        ),
        (WorkRate(13, 0.0, 240), {}, "This node makes blocks; one takes 240 attempts on average."),
        (None, {"on_demand": True}, "This node makes a block when its operator asks for one."),
        (
            None,
            {"on_demand": True, "every": 10},
            "This node makes a block every 10 seconds, and when its operator asks for one.",
        ),
    ],
)
def test_the_start_page_says_how_this_node_makes_blocks(
    open_node: Callable[..., Node], rate: WorkRate | None, made: dict[str, Any], text: str
) -> None:
    node = open_node()
    assert text in show(node, work_rate=lambda: rate, **made).see("/").visible


def test_the_start_page_of_a_node_that_makes_no_blocks_says_nothing_of_them(shown: Shown) -> None:
    assert "This node makes" not in shown.see("/").visible


def test_a_crowded_mempool_says_what_gets_in(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=FULL_AFTER_TWO))
    builder = shown.node.builder
    # As many as fit, which leaves no room for more.
    shown.wait(*[builder.transfer(name, "dave", 7, fee=40_000) for name in ("alice", "bob")])
    fee = Fees(shown.node.node_context.chain_manager, shown.node.node_context.transaction_pool.mempool).suggested()
    for path in ("/", "/mempool"):
        text = shown.see(path).visible
        assert "2 transfers are waiting; the next block has no room for more." in text
        assert f"A fee of {format_amount(fee)} SVC should be enough for the next block." in text
        assert "100% full" in text


def test_a_transfer_behind_a_missing_one_is_not_promised_a_block(shown: Shown) -> None:
    first, second = (shown.node.builder.transfer("alice", "bob", 7, nonce=nonce) for nonce in (0, 1))
    shown.wait(second)
    path, missing = f"/tx/{second.txid.hex()}", "after an earlier transfer of the sender, which is missing here"
    assert missing in shown.see(path).visible
    shown.wait(first)
    assert missing not in shown.see(path).visible


def test_the_suggested_fee_is_that_of_the_json_route(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=FULL_AFTER_TWO))
    builder = shown.node.builder
    shown.node.take(builder.block(transfers=[builder.transfer("alice", "bob", 5, fee=30_000)]))
    shown.wait(*[builder.transfer(name, "dave", 7, fee=50_000) for name in ("alice", "bob", "carol")])
    context = shown.node.node_context
    fee = Fees(context.chain_manager, context.transaction_pool.mempool).suggested()
    assert fee > FULL_AFTER_TWO.minimum_fee
    assert f"Fee{format_amount(fee)}SVC, suggested now" in shown.see("/mempool").visible


def test_the_age_of_a_waiting_transfer_is_its_time_in_the_mempool(shown: Shown) -> None:
    transfer = shown.node.builder.transfer("alice", "bob", 7)
    shown.wait(transfer)
    shown.node.clock.advance(90)
    assert "1 minute ago" in shown.see("/mempool").visible
    assert "1 minute ago" in shown.see(f"/tx/{transfer.txid.hex()}").visible


def test_peers(shown: Shown) -> None:
    assert "has not verified any other node" in shown.see("/peers").visible
    shown.around.here = NetworkView(2, 9, "")
    seen = shown.node.clock.seconds() * 1000
    for name in ("b", "a"):
        shown.peers.append(PeerRow("svcnode_" + name * 32, f"http://{name}.example:8645", 7, int(seen) - 61_000))
    page = shown.see("/peers")
    assert "2 verified peers" in page.visible
    assert page.visible.index("http://a.example") < page.visible.index("http://b.example")
    assert "1 minute ago" in page.visible
    assert not [link for link in page.links if "example" in link]


def test_peers_with_other_changes_of_the_producers(open_node: Callable[..., Node]) -> None:
    shown = show(open_node(params=with_producers("abc")))
    for name, other in (("a", True), ("b", False), ("c", None)):
        shown.peers.append(PeerRow("svcnode_" + name * 32, f"http://{name}.example:8645", 7, 0, other))
    page = shown.see("/peers").visible
    assert page.count("others than here") == page.count("as here") == 1
    assert "Their operators should compare" not in page
    shown.around.here = NetworkView(3, 9, "", producer_changes="1 of 3 peers has others")
    assert "Their operators should compare the files of the network" in shown.see("/peers").visible


def test_where_everybody_may_make_blocks_no_page_speaks_of_changes(shown: Shown) -> None:
    shown.peers.append(PeerRow("svcnode_" + "a" * 32, "http://a.example:8645", 7, 0))
    assert "hanges" not in shown.see("/peers").visible


def test_json_links_depend_on_where_the_p2p_routes_are(open_node: Callable[..., Node]) -> None:
    here, elsewhere = show(open_node(), serves_peers=True), show(open_node())
    for target, route in (("/mempool", "/p2p/transactions?after=0"), ("/peers", "/p2p/peers")):
        assert here.see(target).all("a", rel="alternate")[0]["href"] == route
        assert not elsewhere.see(target).all("a", rel="alternate")


# Warnings


@pytest.mark.parametrize("target", ["/", "/mempool", "/search?q=x", "/nothing", "/block/0", "/wallet/", "/pay/"])
def test_mainnet_without_peers_warns_on_every_page(mainnet: Shown, target: str) -> None:
    status = mainnet.ask(target).status
    for accepted, told in (
        (True, "alone: it makes its own chain, and nothing compares it"),
        (False, "no verified peers"),
    ):
        mainnet.around.here = NoPeers(accepted).network_view()
        assert told in mainnet.see(target, status).visible
    mainnet.around.here = NetworkView(1, 0, "")
    assert "Do not rely on this node" not in mainnet.see(target, status).visible


def test_a_network_of_ones_own_has_its_name_and_the_letter_of_its_prefix(open_node: Callable[..., Node]) -> None:
    address = address_of("alice", "fest")
    own = evolve(PARAMS, name="festival", chain_id="FESTIVAL", address_prefix="fest", allocations=((address, COIN),))
    shown = show(open_node(params=own))
    page = shown.see("/")
    assert page.title.endswith("· SVC Festival")
    assert 'class="badge accent">Festival<' in page.source
    (icon,) = page.all("link", rel="icon")
    assert re.fullmatch(r"/static/icon-f\.[0-9a-f]{16}\.svg", icon["href"])
    assert b">F</text>" in shown.ask(icon["href"]).body
    assert address in shown.see(f"/address/{address}").visible
    assert "it is alone" in page.visible
    shown.around.here = NetworkView(1, 0, "")
    assert "it is alone" not in shown.see("/").visible


def test_a_node_that_is_catching_up_warns(shown: Shown) -> None:
    assert "Do not rely" not in shown.see("/").visible
    shown.around.here = NetworkView(1, 9, "a verified peer shows more work")
    assert "still catching up" in shown.see("/").visible


# What strangers wrote

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'; --",
    "javascript:alert(1)",
    "{{7*7}}",
    "\0&lt;\x0bx",
    "\u202e",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_markup_in_text_is_escaped(still: Shown, text: str) -> None:
    quoted = quote(text, safe="")
    for target in (f"/search?q={quoted}", f"/reference/{quoted}", f"/block/{quoted}", f"/tx/{quoted}", f"/{quoted}"):
        page = still.see(target, still.ask(target).status)
        assert not page.all("img", src="x")
        assert all(each["src"].startswith("/static/") for each in page.all("script", type="module"))
    (box,) = still.see(f"/search?q={quoted}", 404).all("input")
    assert box["value"] == text


@pytest.mark.parametrize("odd", ["\u202e", "\u200b", "\0", "\u3164"])
def test_invisible_characters_are_escaped(still: Shown, odd: str) -> None:
    quoted = quote(f"a{odd}b", safe="")
    shown = still.see(f"/search?q={quoted}", 404).visible
    assert f"a\\u{{{ord(odd):x}}}b" in shown
    for target in (f"/reference/{quoted}", f"/block/{quoted}", f"/pay/?label={quoted}&{quoted}=1", f"/{quoted}"):
        assert odd not in still.see(target, still.ask(target).status).visible


def test_markup_from_a_peer_is_escaped(shown: Shown) -> None:
    shown.peers.append(PeerRow("<b>", "http://x/<script>", 1, 0))
    page = shown.see("/peers")
    assert not page.all("b")
    assert "http://x/<script>" in page.visible


def test_amounts_do_not_wrap(shown: Shown) -> None:
    shown.node.grow(f"genesis: b1\nb1 pays {COIN * 999 + 12345678} from alice to bob")
    page = shown.see("/block/1")
    assert "999.12345678 SVC" in page.visible
    assert len(page.all("span", class_="amount")) == 4
    sheet = shown.ask("/static/style.css").body.decode()
    assert ".amount {\n  white-space: nowrap;" in sheet


# A node that has only later blocks

NOTE = "This node has only the blocks from height 4 on"


@pytest.fixture
def pruned(shown: Shown) -> Shown:
    shown.node.grow(CHAIN)
    store = shown.node.node_context.chain.chainstate.store
    with store.commit():
        store.set_prune_height(4)
    return shown


@pytest.mark.parametrize("height", [0, 1, 3])
def test_a_block_that_is_not_here_any_more_is_410(pruned: Shown, height: int) -> None:
    response = pruned.ask(f"/block/{height}")
    assert response.status == 410
    page = Document(response.body.decode())
    assert "No longer on this node" in page.said
    assert "This node has only blocks from height 4 on. Another node may have" in page.said
    assert f"Block {height}: this node has only blocks from height 4 on" in page.text


def test_lists_say_at_which_block_they_begin(pruned: Shown) -> None:
    address, txid = pruned.node.address("bob"), "ab" * 32
    for target in ("/", f"/address/{address}", "/reference/order-1", f"/tx/{txid}", f"/search?q={txid}"):
        response = pruned.ask(target)
        assert response.status in (200, 404)
        assert NOTE in Document(response.body.decode()).text, target
    assert pruned.ask("/block/4").status == pruned.ask("/blocks").status == 200


def test_an_archive_says_nothing_of_that(shown: Shown) -> None:
    shown.node.grow(CHAIN)
    for target in ("/", f"/address/{shown.node.address('bob')}", "/reference/order-1", f"/tx/{'ab' * 32}"):
        assert "has only the blocks" not in shown.ask(target).body.decode()


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("/", "block"),
        ("/block/1", "block_transaction"),
        ("/tx/{txid}", "transfer_entry"),
        ("/address/{bob}", "account_entry"),
        ("/reference/order-1", "transfer_entry"),
        ("/search?q=order-1", "transfer_entry"),
    ],
)
def test_a_damaged_page_of_the_database_ends_the_node(
    shown: Shown, path: str, table: str, expected_errors: Callable[..., list[Any]]
) -> None:
    txid = shown.node.grow(CHAIN)["b1"].transfers[0].txid.hex()
    spoil(shown.node.path, table)
    response = shown.ask(path.format(bob=shown.node.address("bob"), txid=txid))
    assert (response.status, shown.node.stops, len(expected_errors())) == (503, 1, 1)
