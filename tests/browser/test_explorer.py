"""The explorer's search, and what its scripts add."""

from datetime import datetime, timedelta

import pytest

from tests.browser.chain import COIN, FAUCET, SHOP, Chain, fresh
from tests.browser.conftest import Watch
from tests.browser.watching import Watched, overflow, wait_for_true

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
    page.evaluate("globalThis.notReloaded = true")
    chain.node.mine(1)
    # As when somebody comes back to the tab.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("text=2 confirmations")
    assert page.evaluate("globalThis.notReloaded")
    with page.expect_navigation():
        chain.reorganise(2)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("text=waiting for a block")
    chain.node.mine(1)


def test_times_are_written_as_the_reader_does(watch: Watch, chain: Chain) -> None:
    path = f"/block/{chain.node.mine(1)[0]}"
    (utc,) = watch(java_script_enabled=False).go(path).locator("time[data-local]").all_inner_texts()
    told = watch(locale="de-AT", timezone_id="Asia/Tokyo").go(path).locator("time[data-local]")
    moment = datetime.strptime(utc, "%Y-%m-%d %H:%M:%S UTC") + timedelta(hours=9)
    assert told.inner_text() == f"{moment:%d.%m.%Y, %H:%M}"
    assert told.get_attribute("title") == utc


def test_new_blocks_are_told_of(watched: Watched, chain: Chain) -> None:
    page = watched.go("/")
    chain.node.mine(1)
    with page.expect_navigation():
        page.click(".news a")
    assert chain.node.status()["height"] in page.inner_text("main")


def test_a_chart_is_read_with_the_keyboard(watched: Watched, chain: Chain) -> None:
    chain.pay(FAUCET, SHOP, COIN, fresh("chart"))
    chain.node.mine(1)
    height = int(chain.node.status()["height"])
    page = watched.go("/")
    chart = page.locator("[data-chart='Transfers per block']")
    caption = page.locator("figure", has=chart).locator("figcaption")
    note = caption.inner_text()
    chart.focus()
    assert caption.inner_text() == f"Block {height}: 1 transfer" == chart.get_attribute("aria-valuetext")
    page.keyboard.press("ArrowLeft")
    assert caption.inner_text().startswith(f"Block {height - 1}: ")
    page.keyboard.press("Home")
    assert chart.get_attribute("aria-valuenow") == "0"
    page.keyboard.press("Tab")
    wait_for_true(page, "([element, text]) => element.textContent === text", [caption.element_handle(), note])
    chart.locator(".spot").last.hover()
    assert caption.inner_text() == f"Block {height}: 1 transfer"


def test_the_values_of_charts_are_there_without_scripts(watch: Watch, chain: Chain) -> None:
    chain.node.mine(2)
    phone = {"width": 320, "height": 800}
    page = watch(java_script_enabled=False, locale="de-DE", viewport=phone).go("/")
    assert page.locator(".spot title").count() > 4
    page.click("text=Die Werte als Tabelle")
    assert page.locator("table.values tbody tr").first.is_visible()
    assert overflow(page) == 0
