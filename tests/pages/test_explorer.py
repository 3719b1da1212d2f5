"""The explorer: every page of a chain with all kinds of content, every link, and hostile text."""

import re
from collections.abc import Callable
from urllib.parse import quote, urlsplit

import pytest

from svcd.node.status import NetworkView
from svcd.pages.sources import PeerRow
from tests.chains import COIN
from tests.pages.conftest import Shown, show
from tests.pages.reading import Document
from tests.rpc.node import Node

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
        if target in seen or urlsplit(target).path == "/wallet/":
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
    for page in pages.values():
        assert page.title.endswith("· SVC Devnet")
        assert len(page.all("h1")) == len(page.all("main", id="main")) == 1


def test_the_overview_shows_the_newest_blocks_first(shown: Shown) -> None:
    blocks = shown.node.grow("genesis: b[1..30]")
    page = shown.see("/")
    heights = [link for link in page.links if link.startswith("/block/") and len(link) < 12]
    assert heights == [f"/block/{height}" for height in range(30, 18, -1)]
    assert f"/block/{blocks['b30'].header.hash.hex()}" in page.links
    assert f"/block/{blocks['b19'].header.hash.hex()}" in page.links
    assert len(page.all("svg", class_="plot")) == 2
    assert "29 blocks, " in page.text
    assert page.all("a", rel="alternate")[0]["href"] == "/rpc/status"


def test_the_overview_of_a_chain_without_blocks(still: Shown) -> None:
    page = still.see("/")
    assert "not enough blocks for a chart" in page.text
    assert not page.all("svg", class_="plot")


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
    for text in ("2.5 SVC", "order-1", "5 confirmations", shown.node.address("alice"), shown.node.address("bob")):
        assert text in page.visible
    assert page.all("a", rel="alternate")[0]["href"] == f"/rpc/transaction/{transfer.txid.hex()}"


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
    (more,) = [link for link in first.links if "after=" in link and link.startswith("/mempool")]
    found = [link for page in (first, shown.see(more)) for link in page.links if link.startswith("/tx/")]
    assert len(found) == len(set(found)) == 24
    assert "no more transfers" in shown.see("/mempool?after=9007199254740991").visible


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


def test_json_links_depend_on_where_the_p2p_routes_are(open_node: Callable[..., Node]) -> None:
    here, elsewhere = show(open_node(), serves_peers=True), show(open_node())
    for target, route in (("/mempool", "/p2p/transactions?after=0"), ("/peers", "/p2p/peers")):
        assert here.see(target).all("a", rel="alternate")[0]["href"] == route
        assert not elsewhere.see(target).all("a", rel="alternate")


# Warnings


@pytest.mark.parametrize("target", ["/", "/mempool", "/search?q=x", "/nothing", "/block/0", "/wallet/", "/pay/"])
def test_mainnet_without_verified_peers_warns_on_every_page(mainnet: Shown, target: str) -> None:
    status = mainnet.ask(target).status
    assert "no verified peers" in mainnet.see(target, status).visible
    mainnet.around.here = NetworkView(1, 0, "")
    assert "no verified peers" not in mainnet.see(target, status).visible


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
    assert len(page.all("span", class_="amount")) == 2
    sheet = shown.ask("/static/style.css").body.decode()
    assert ".amount {\n  white-space: nowrap;" in sheet
