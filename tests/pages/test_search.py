"""The search, for five kinds of text."""

from urllib.parse import quote

import pytest

from tests.pages.conftest import Shown

CHAIN = """
    genesis: b1 b2
    b1 pays 5000 from alice to bob for order-1
    b1 pays 5000 from alice to carol for order-1
    b1 pays 5001 from alice to bob for 2
    b1 pays 5001 from alice to bob
"""


def led_to(shown: Shown, search_text: str) -> str:
    """The target of the redirect from a search."""
    response = shown.ask(f"/search?q={quote(search_text, safe='')}")
    assert response.status == 303, response.body
    assert shown.ask(response.headers["location"]).status == 200
    return response.headers["location"]


def test_all_five_kinds_of_search(shown: Shown) -> None:
    blocks = shown.node.grow(CHAIN)
    block_hash, txid = blocks["b2"].header.hash.hex(), blocks["b1"].transfers[3].txid.hex()
    bob = shown.node.address("bob")
    assert led_to(shown, "1") == led_to(shown, "\u202f1") == "/block/1"
    assert led_to(shown, f" {block_hash.upper()} ") == f"/block/{block_hash}"
    assert led_to(shown, txid) == f"/tx/{txid}"
    assert led_to(shown, bob.upper()) == f"/address/{bob}"
    assert led_to(shown, "order-1") == "/reference/order-1"


def test_transfer_in_the_mempool_is_found(shown: Shown) -> None:
    transfer = shown.node.builder.transfer("alice", "bob", 1)
    shown.wait(transfer)
    assert led_to(shown, transfer.txid.hex()) == f"/tx/{transfer.txid.hex()}"


def test_waiting_transfers_are_found_and_shown(shown: Shown) -> None:
    builder = shown.node.builder
    paid = shown.node.grow(CHAIN)["b1"].transfers[0]
    incoming = builder.transfer("carol", "bob", 7, reference="only-waits", nonce=0)
    shown.wait(incoming)
    bob, carol, txid = shown.node.address("bob"), shown.node.address("carol"), incoming.txid.hex()
    assert led_to(shown, "only-waits") == "/reference/only-waits"
    reference = shown.see("/reference/only-waits")
    assert f"/tx/{txid}" in reference.links
    assert "waiting" in reference.visible
    for address in (bob, carol):
        page = shown.see(f"/address/{address}")
        assert f"/tx/{txid}" in page.links
        assert "waiting" in page.visible
    txids = [link for link in shown.see(f"/address/{bob}").links if link.startswith("/tx/")]
    assert txids.index(f"/tx/{txid}") < txids.index(f"/tx/{paid.txid.hex()}")
    assert f"/tx/{txid}" not in shown.see(f"/address/{bob}?before=2-0").links


def test_the_page_of_a_reference_names_each_mismatch(shown: Shown) -> None:
    shown.node.grow("""
        genesis: b[1..12]
        b1 pays 150000000 from alice to bob for order-1
        b1 pays 200000000 from alice to bob for order-1
        b2 pays 200000000 from alice to bob for order-1
        b3 pays 200000000 from alice to carol for order-1
        b3 pays 100000000000 from carol to bob for order-1
    """)
    plain = shown.see("/reference/order-1").visible
    assert "pays the order" not in plain
    assert plain.count("12 confirmations") == 2
    compared = shown.see(f"/reference/order-1?recipient={shown.node.address('bob').upper()}&amount=2").visible
    verdicts = (
        "0.5\N{NO-BREAK SPACE}SVC too little",
        "pays the order",
        "paid once more",
        "another recipient",
        "998\N{NO-BREAK SPACE}SVC too much",
    )
    assert [compared.count(verdict) for verdict in verdicts] == [1] * 5
    assert sorted(verdicts, key=compared.index) == list(verdicts)
    assert "pays the order" in shown.see(f"/reference/order-1?recipient={shown.node.address('bob')}&amount=2,0").visible
    for query, field, sentence in (
        ("amount=1e3&recipient=", "amount", "An amount is a number of coins"),
        ("amount=2,000&recipient=", "amount", "without separators of thousands"),
        ("amount=2", "recipient", "Fill in this field too"),
        (f"recipient={shown.node.address('bob')}", "amount", "Fill in this field too"),
        ("amount=2&recipient=bob", "recipient", "This is not an address"),
    ):
        wrong = shown.see(f"/reference/order-1?{query}")
        (told,) = wrong.all("input", id=f"order-{field}", aria_invalid="true")
        assert wrong.all("p", id=told["aria-describedby"], role="alert")
        assert sentence in wrong.visible
        assert "pays the order" not in wrong.visible
        assert "another recipient" not in wrong.visible


def test_several_results_are_listed(shown: Shown) -> None:
    shown.node.grow(CHAIN)
    page = shown.see("/search?q=2")
    assert {"/block/2", "/reference/2"} <= set(page.links)


def test_the_payments_under_a_reference(shown: Shown) -> None:
    blocks = shown.node.grow(CHAIN)
    page = shown.see("/reference/order-1")
    txids = {link for link in page.links if link.startswith("/tx/")}
    assert txids == {f"/tx/{transfer.txid.hex()}" for transfer in blocks["b1"].transfers[:2]}
    verifications = [link for link in page.links if link.startswith("/rpc/commerce/payment/order-1?")]
    assert [shown.ask(link).json["payment"]["state"] for link in verifications] == ["confirming"] * 2


def test_more_payments_than_one_page(shown: Shown) -> None:
    lines = [f"b1 pays {number} from {name} to bob for same" for name in ("alice", "carol") for number in range(1, 13)]
    shown.node.grow("\n".join(["genesis: b1", *lines]))
    page = shown.see("/reference/same")
    assert len([link for link in page.links if link.startswith("/tx/")]) == 20
    assert "more than 20" in page.visible


@pytest.mark.parametrize("search_text", ["9", "ff" * 32, "nobody", "svcd1qqqq", "..", "x" * 128])
def test_no_results(still: Shown, search_text: str) -> None:
    page = still.see(f"/search?q={search_text}", 404)
    assert "Nothing is here" in page.visible or "Nothing found" in page.visible
    assert search_text in page.visible


def test_too_long_and_empty(still: Shown) -> None:
    assert "at most 128" in still.see(f"/search?q={'x' * 129}", 400).visible
    assert "Search for: height" in still.see("/search?q=").visible
    assert "Search for: height" in still.see("/search").visible
    nobody = still.see("/reference/nobody")
    assert "Nobody has paid under this reference" in nobody.visible
    assert not nobody.all("input", id="order-amount"), "there is nothing to compare"
