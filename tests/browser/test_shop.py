"""The shop to copy, started as `make shop` does, and clicked through as it says."""

import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from attrs import frozen
from playwright.sync_api import Page

from tests.browser.chain import Account
from tests.browser.conftest import Watch
from tests.browser.looks import Eyes
from tests.browser.test_checkout import codes
from tests.browser.watching import Watched
from tests.process_level.pages import ROOT
from tests.process_level.running import DEADLINE, ENVIRONMENT, free_port

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@frozen
class Shop:
    """A running shop."""

    url: str
    node_url: str
    password: str


@pytest.fixture
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """The shop and its devnet, both in the process that `make shop` starts; the parameter is its mode."""
    port, node_port = free_port(), free_port()
    folder = tmp_path / "devnet"
    ports = ["--data-dir", folder, "--port", str(port), "--node-port", str(node_port)]
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{ROOT / 'clients' / 'python' / 'src'}"}
    environment["SHOP_MODE"] = getattr(request, "param", "webhooks")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, ROOT / "examples" / "shop" / "start.py", *ports],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    try:
        assert process.stdout is not None
        told = []
        while not told or not told[-1].startswith("The node is at"):
            told.append(process.stdout.readline())
            assert told[-1], (tmp_path / "log").read_text()
        [password] = re.findall("password: (.+)", "".join(told))
        yield Shop(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{node_port}", password)
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE)
    assert process.returncode == 0
    log_text = (tmp_path / "log").read_text()
    assert "Traceback" not in log_text, log_text


def visit(page: Page, name: str) -> None:
    """Go to another page of the shop, and wait until it is there: it may have the same buttons as this one."""
    with page.expect_navigation():
        page.get_by_role("navigation").get_by_role("link", name=name).click()


def devnet(page: Page, button: str) -> None:
    """Click a button on the page of the devnet."""
    visit(page, "Devnet")
    with page.expect_navigation():
        page.get_by_role("button", name=button, exact=True).click()


def row_says(page: Page, what: str, status: str) -> None:
    """Wait until the merchant's page says this of an order."""
    visit(page, "Merchant")
    page.get_by_role("row", name=what).filter(has_text=status).first.wait_for()


PRESS = """() => {
  let sent = 0;
  // After the shop's own listener.
  addEventListener("submit", (event) => {
    sent += event.defaultPrevented ? 0 : 1;
    event.preventDefault();
  });
  const button = document.querySelector("form button");
  button.click();
  button.click();
  return [sent, button.getAttribute("aria-busy")];
}"""
"""Presses a button twice, sends nothing, and gives how often something was to be sent, and what the button says."""


def test_a_button_says_at_once_that_it_was_pressed_and_orders_once(shop: Shop, watch: Watch) -> None:
    page = watch(origin=shop.url).go("/")
    assert page.evaluate(PRESS) == [1, "true"]


LINK = """(key) => {
  const link = document.querySelector("main a.button");
  addEventListener("click", (event) => event.preventDefault());
  link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, [key]: true }));
  return link.getAttribute("aria-busy");
}"""
"""Clicks the link to the checkout while a key is held, goes nowhere, and gives what the link says."""


def test_the_link_to_the_checkout_says_at_once_that_it_was_pressed_and_what_is_unfolded_stays_so(
    shop: Shop, watch: Watch
) -> None:
    page = watch(origin=shop.url).go("/")
    page.get_by_role("button", name="Buy Tea", exact=True).click()
    page.get_by_text("waiting for payment").wait_for()
    page.get_by_text("Pay with a wallet app").click()
    for _ in range(2):
        with page.expect_response(page.url):
            pass
    assert page.locator("figure svg").is_visible()
    assert page.evaluate(LINK, "shiftKey") is None
    assert page.evaluate(LINK, "") == "true"


def test_a_wallet_of_ones_own_gets_coins_on_the_page_of_the_devnet(shop: Shop, watch: Watch) -> None:
    watched = watch(origin=shop.url, viewport={"width": 360, "height": 740})
    page, address = watched.go("/devnet"), Account.random().address
    boxes = [each.bounding_box() for each in page.locator(".row form").all()]
    assert all(one and two and one["y"] + one["height"] < two["y"] for one, two in pairwise(boxes)), "buttons touch"
    page.get_by_label("Its address").fill(f" {address} ")
    with page.expect_navigation():
        page.get_by_role("button", name="Get 100 coins").click()
    answer = httpx.get(f"{shop.node_url}/rpc/balance/{address}").json()
    assert answer["account"]["balance"] == "10000000000"


@pytest.mark.parametrize("shop", ["webhooks", "feed"], indirect=True)
def test_an_order_is_bought_held_shipped_and_refunded(shop: Shop, watch: Watch) -> None:
    browser: Watched = watch(origin=shop.url, http_credentials={"username": "merchant", "password": shop.password})
    page = browser.go("/")
    eyes = Eyes(page)
    eyes.look("catalogue")
    page.get_by_role("button", name="Buy Tea", exact=True).click()
    page.get_by_text("waiting for payment").wait_for()
    eyes.look("order")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator("figure:visible").count() == 0
    page.get_by_text("Pay with a wallet app").click()
    eyes.look("order with a wallet app")
    page.set_viewport_size({"width": 1280, "height": 900})
    [uri] = codes(page, "figure svg")
    assert uri in page.content().replace("&amp;", "&")
    checkout = page.get_by_role("link", name="Pay at the checkout").get_attribute("href")
    assert checkout is not None
    assert checkout.startswith(f"{shop.node_url}/pay/?reference=order-")
    assert "&label=Tea%20%26%20Cake%3A%20Tea&" in checkout
    buyer = page
    page = browser.go("/devnet")
    eyes_of_merchant = Eyes(page)
    devnet(page, "Pay Tea")
    buyer.bring_to_front()
    buyer.get_by_text("waits for a block").wait_for()
    assert buyer.get_by_text("Pay with a wallet app").count() == 0
    page.bring_to_front()
    devnet(page, "Mine 3 blocks")
    eyes_of_merchant.look("devnet")
    row_says(page, "Tea", "ready to ship")
    eyes_of_merchant.look("merchant")
    buyer.bring_to_front()
    buyer.get_by_text("It is paid, thank you! The payment has 3 of 3 confirmations").wait_for()
    page.bring_to_front()

    devnet(page, "Reorganise 3 blocks")
    row_says(page, "Tea", "held")
    assert page.get_by_role("button", name="Ship").count() == 0
    devnet(page, "Mine 3 blocks")
    row_says(page, "Tea", "ready to ship")
    with page.expect_navigation():
        page.get_by_role("button", name="Ship").click()
    row_says(page, "Tea", "shipped")
    assert page.get_by_role("button", name="Ship").count() == 0

    devnet(page, "Reorganise 3 blocks")
    row_says(page, "Tea", "shipped, payment undone")
    devnet(page, "Mine 3 blocks")
    row_says(page, "Tea", "shipped")
    page.get_by_role("button", name="Refund").click()
    page.get_by_role("heading", name="Refund of Tea").wait_for()
    devnet(page, "Pay Refund of Tea")
    devnet(page, "Mine 3 blocks")
    row_says(page, "Refund of Tea", "refunded")
    assert page.get_by_role("button", name="Refund").count() == 0
    assert eyes.found + eyes_of_merchant.found == []
