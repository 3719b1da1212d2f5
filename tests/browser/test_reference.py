"""The API reference: Swagger UI in a sandbox, which has only buttons that work."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.engines import Tab
from tests.browser.test_ways_in import tab_to
from tests.browser.watching import Watched, overflow

pytestmark = [pytest.mark.socket, pytest.mark.slow]

STATUS = "#operations-chain-getRpcStatus"
WEBHOOKS = "#operations-webhooks-getRpcCommerceWebhooks"


def test_it_asks_the_node_in_every_engine(tab: Tab) -> None:
    tab.go("/reference/#/chain/getRpcStatus")
    tab.click(f"{STATUS} .try-out__btn")
    tab.click(f"{STATUS} button.execute")
    assert "SVC-DEVNET" in tab.text(f"{STATUS} .live-responses-table td.response-col_description pre")
    assert tab.evaluate("() => self.origin") == "null"


def opened(watched: Watched, path: str = "/reference/") -> Page:
    """A tab with the page, once it has the operations."""
    page = watched.go(path)
    page.wait_for_selector(STATUS)
    return page


def test_it_offers_nothing_that_would_fail(watched: Watched) -> None:
    page = opened(watched, "/reference/#/webhooks/getRpcCommerceWebhooks")
    page.wait_for_selector(f"{WEBHOOKS}.is-open")
    # No token goes from a browser to the node.
    expect(page.locator(f"{WEBHOOKS} .try-out__btn")).to_have_count(0)
    expect(page.locator(".authorize:visible, .authorization__btn:visible")).to_have_count(0)
    # Methods that every path has are in the description, and events are none of the node's routes.
    assert set(page.locator(".opblock-summary-method").all_inner_texts()) == {"GET", "POST"}
    page.get_by_text("payment.dropped").click()
    event = page.locator(".opblock", has_text="payment.dropped")
    event.locator(".parameters-container").wait_for()
    expect(event.locator(".try-out__btn")).to_have_count(0)


def test_the_keyboard_leads_through_it(watched: Watched) -> None:
    page = opened(watched)
    tab_to(page, ".opblock-summary-control")
    page.keyboard.press("Enter")
    page.wait_for_selector(".opblock.is-open .try-out__btn")
    tab_to(page, ".try-out__btn")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_a_phone(watch: Callable[..., Watched], scheme: str) -> None:
    watched = watch(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page = opened(watched, "/reference/#/chain/getRpcStatus")
    page.locator(f"{STATUS} .try-out__btn").wait_for()
    page.click(".models-control")
    page.wait_for_selector(".models.is-open .json-schema-2020-12")
    assert overflow(page) == 0
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(28, 32, 34)"
    assert dark == (scheme == "dark")
