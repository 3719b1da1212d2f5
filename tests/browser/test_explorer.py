"""The explorer's search, and what its scripts add."""

import pytest

from tests.browser.chain import COIN, FAUCET, SHOP, Chain, fresh
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.mark.parametrize("kind", ["height", "hash", "txid", "address", "reference", "waiting txid"])
def test_the_search_finds(watched: Watched, chain: Chain, kind: str) -> None:
    reference = fresh("find")
    txid = chain.pay(FAUCET, SHOP, COIN, reference)
    chain.node.mine(1)
    status = chain.node.status()
    waiting = chain.pay(FAUCET, SHOP, COIN, fresh("waits")) if kind == "waiting txid" else ""
    sought, path = {
        "height": (status["height"], f"/block/{status['height']}"),
        "hash": (status["hash"], f"/block/{status['hash']}"),
        "txid": (txid.upper(), f"/tx/{txid}"),
        "address": (SHOP, f"/address/{SHOP}"),
        "reference": (reference, f"/reference/{reference}"),
        "waiting txid": (waiting, f"/tx/{waiting}"),
    }[kind]
    page = watched.go("/")
    page.fill("input[name=q]", f" {sought} ")
    page.press("input[name=q]", "Enter")
    page.wait_for_url(f"**{path}")
    assert page.locator("h1").is_visible()
    if kind in ("txid", "reference"):
        assert reference in page.inner_text("main")


def test_the_search_says_that_there_is_nothing(watched: Watched) -> None:
    page = watched.go("/")
    page.fill("input[name=q]", "nothing-like-that")
    page.press("input[name=q]", "Enter")
    page.wait_for_url("**/search?*")
    assert "nothing-like-that" in page.inner_text("main")
    watched.forgive("404")


def test_the_page_of_a_transfer_follows_it(watched: Watched, chain: Chain) -> None:
    txid = chain.pay(FAUCET, SHOP, COIN, fresh("follow"))
    page = watched.go(f"/tx/{txid}")
    assert "waiting for a block" in page.inner_text("main")
    with page.expect_navigation():
        chain.node.mine(1)
    page.wait_for_selector("text=1 confirmation")
    loads = len([each for each in watched.asked if each == f"GET /tx/{txid}"])
    chain.node.mine(1)
    # As when somebody comes back to the tab.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("text=2 confirmations")
    assert loads == len([each for each in watched.asked if each == f"GET /tx/{txid}"]) == 2
    with page.expect_navigation():
        chain.reorganise(2)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("text=waiting for a block")
    chain.node.mine(1)


def test_new_blocks_are_told_of(watched: Watched, chain: Chain) -> None:
    page = watched.go("/")
    chain.node.mine(1)
    with page.expect_navigation():
        page.click(".news a")
    assert chain.node.status()["height"] in page.inner_text("main")
