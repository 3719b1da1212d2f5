"""The checkout while somebody has it open."""

import io
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import zxingcpp
from PIL import Image
from playwright.sync_api import Page, Route

from tests.browser.chain import COIN, FAUCET, SHOP, Account, Chain, checkout_path, fresh, payment_uri
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, overflow, wait_for_true
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PUBLIC_URL = "https://pay.example"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet that names its shop, and its own public URL."""
    nodes = Nodes(tmp_path_factory.mktemp("checkout"))
    names = f'--set=pages.shopNames={{"{SHOP}" = "Tea & Cake"}}'
    node = nodes.start(*DEVNET, f"--set=http.publicUrl={PUBLIC_URL}", names)
    node.mine(3)
    yield node
    nodes.stop()


@pytest.fixture(scope="module")
def chain(node: RunningNode) -> Chain:
    """The chain of the node."""
    return Chain(node)


def seen(page: Page, state: str, text: str = "") -> str:
    """Wait until the checkout shows a state with this text; gives all of its text."""
    shown = page.locator(f"[data-when={state}]:visible", has_text=text).first
    shown.wait_for()
    return shown.inner_text()


def codes(page: Page, selector: str) -> list[str]:
    """What a camera reads where an element is."""
    picture = Image.open(io.BytesIO(page.locator(selector).screenshot()))
    return [each.text for each in zxingcpp.read_barcodes(picture)]


def test_it_turns_to_paid_while_it_is_open(watched: Watched, chain: Chain) -> None:
    order, began = fresh("live"), time.monotonic()
    page = watched.go(checkout_path(order))
    assert "Waiting for the payment" in seen(page, "unpaid")
    assert page.is_visible("text=Open in a wallet app")
    assert page.is_visible("text=Pay in the browser")
    assert page.inner_text(".shop") == "Tea & Cake"
    assert overflow(page) == 0
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    assert "Seen" in seen(page, "pending")
    assert not page.is_visible("text=Open in a wallet app"), "it still offers to pay"
    assert not page.is_visible("text=Pay in the browser"), "it still offers to pay"
    chain.node.mine(1)
    assert "1 of 2 confirmations" in seen(page, "confirming")
    chain.node.mine(1)
    assert "Paid" in seen(page, "confirmed")
    loads = [each for each in watched.asked if each == "GET /pay/"]
    assert len(loads) == 1, "it was loaded anew"
    # One at once, and one for each change, however long the test has taken, but for one every 10 seconds.
    questions = [each for each in watched.asked if each.startswith("GET /rpc/commerce/payment/")]
    assert 2 <= len(questions) <= 4 + (time.monotonic() - began) / 10


def come_back(page: Page) -> None:
    """As when the buyer comes back to the tab."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_paid_order_goes_back_and_the_page_says_what_to_do(watched: Watched, chain: Chain) -> None:
    order, shop = fresh("fallen"), quote("https://shop.example/thanks", safe="")
    page = watched.go(checkout_path(order, rest=f"&returnUrl={shop}"))
    seen(page, "unpaid")
    page.emulate_media(media="print")
    assert "Receipt" not in page.inner_text("main"), "nothing is paid yet"
    page.emulate_media(media="screen")
    txid = chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    seen(page, "pending")
    chain.node.mine(2)
    assert "Back to shop.example" in seen(page, "confirmed")
    assert page.title().startswith("Paid: 2.5\N{NO-BREAK SPACE}SVC")
    assert page.is_visible("text=Print the receipt")
    assert not page.is_visible("[data-return]"), "one way back is enough"
    page.emulate_media(media="print")
    receipt = page.inner_text("main")
    assert {txid, order, SHOP, "Receipt"} <= set(receipt.split())
    assert "Print the receipt" not in receipt
    page.emulate_media(media="screen")

    chain.reorganise(2)
    come_back(page)
    assert "Do not pay again" in seen(page, "pending")
    page.wait_for_selector("[data-fallen]:not([hidden])")
    assert "There is nothing to do" in page.inner_text("[data-fallen]")
    chain.node.mine(2)
    come_back(page)
    seen(page, "confirmed")
    assert not page.is_visible("[data-fallen]")
    chain.reorganise(2, drop=True)
    page.reload()
    seen(page, "gone")
    assert not page.is_visible("text=Open in a wallet app"), "it offers to pay again"
    assert page.is_visible("text=Open the wallet on this site")
    page.click("text=Pay the full amount anyway")
    assert page.is_visible("text=Open in a wallet app")


def test_it_says_what_a_wrong_amount_is(watched: Watched, chain: Chain) -> None:
    order = fresh("wrong")
    page = watched.go(checkout_path(order))
    assert not page.is_visible("[data-misses]")
    chain.pay(FAUCET, SHOP, 2 * COIN, order)
    page.wait_for_selector("[data-misses]:not([hidden])")
    assert [line for line in page.inner_text("[data-misses]").split("\n") if line] == [
        "2 SVC arrived, 0.5 SVC too little. Do not send the rest. · the transfer",
        "These coins do not pay the order: only one transfer of exactly 2.5 SVC does. "
        "If you sent them and did not get them back, ask the shop for a refund.",
    ]
    assert not page.is_visible("text=Waiting for the payment")
    seen(page, "short")
    assert not page.is_visible("text=Open in a wallet app"), "it still offers to pay"
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    seen(page, "pending")
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    page.wait_for_selector("[data-twice]:not([hidden])")
    chain.node.mine(2)
    seen(page, "confirmed")


def test_it_turns_to_paid_only_once_the_node_is_up_to_date(watched: Watched, chain: Chain) -> None:
    order, synced = fresh("behind"), [False]

    def retold(route: Route) -> None:
        answer = route.fetch(url=route.request.url.replace("wait=10", "wait=1"))
        said = answer.json()
        said["payment"]["node"]["synced"] = synced[0]
        route.fulfill(response=answer, json=said)

    watched.context.route("**/rpc/commerce/payment/**", retold)
    page = watched.go(checkout_path(order))
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    chain.node.mine(2)
    # A question that was under way when the first of the blocks came is answered with one confirmation.
    seen(page, "confirming", "2 of 2 confirmations")
    assert "catching up with the network or has stalled" in page.inner_text("[data-outdated]:not([hidden])")
    synced[0] = True
    assert "Paid" in seen(page, "confirmed")
    assert not page.is_visible("[data-outdated]")


def test_it_asks_every_two_seconds_where_it_may_not_wait(watched: Watched, chain: Chain) -> None:
    order = fresh("crowd")
    refusal = '{"ok": false, "error": "32 requests of this client wait already"}'
    watched.context.route("**/rpc/**wait=*", lambda route: route.fulfill(status=429, body=refusal))
    page = watched.go(checkout_path(order))
    seen(page, "unpaid")
    # It tries again to wait after half a minute, too.
    watched.forgive("429")
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    seen(page, "pending")
    assert not page.is_visible("[data-trouble]")
    chain.node.mine(2)
    seen(page, "confirmed")


def test_only_the_buyer_goes_back_to_the_shop(watched: Watched, chain: Chain) -> None:
    order, shop = fresh("back"), "https://shop.example/thanks?order=7"
    watched.others.add("https://shop.example")
    watched.context.route("https://shop.example/**", lambda route: route.fulfill(body="<title>Thanks</title>"))
    page = watched.go(checkout_path(order, rest=f"&returnUrl={quote(shop, safe='')}"))
    seen(page, "unpaid")
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    chain.node.mine(2)
    seen(page, "confirmed")
    page.wait_for_timeout(1_000)
    assert page.url.startswith(chain.node.url), "it went by itself"
    page.click("text=Back to shop.example")
    page.wait_for_url(shop)
    assert page.evaluate("document.referrer") == ""


# What a checkout shows once its script has had a response: the phase, the time that is left, the title.
ANSWERED = """() => {
  const { when } = document.querySelector("[data-when]:not([hidden])").dataset;
  const remaining = document.querySelector("[data-fill=remaining]").textContent;
  return remaining || when === "expired" ? [when, remaining, document.title] : null;
}"""


def test_it_stops_offering_to_pay_when_the_order_expires(watched: Watched, chain: Chain) -> None:
    # On a busy machine the order may have expired before anybody has seen the page: then it gets more time.
    for seconds in (4, 16, 56):
        until = int((time.time() + seconds) * 1000)
        page = watched.go(checkout_path(fresh("late"), rest=f"&until={until}"))
        wait_for_true(page, ANSWERED)
        when, remaining, title = page.evaluate(ANSWERED)
        if when == "unpaid":
            break
    assert (when, remaining) == ("unpaid", "Less than a minute left")
    assert title.startswith("Waiting for the payment: 2.5\N{NO-BREAK SPACE}SVC")
    assert "Do not pay any more" in seen(page, "expired")
    assert time.time() * 1000 >= until - 1_000
    assert not page.is_visible("text=Open in a wallet app")
    assert not page.is_visible("text=Waiting for the payment")
    assert page.title().startswith("This order has expired: 2.5\N{NO-BREAK SPACE}SVC")


def test_a_hidden_checkout_ends_its_wait(watched: Watched, chain: Chain) -> None:
    order = fresh("hidden")
    page = watched.page()
    with page.expect_request(lambda request: "wait=" in request.url):
        watched.go(checkout_path(order), page)
    with page.expect_event("requestfailed", lambda request: "wait=" in request.url):
        page.evaluate(
            "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    seen(page, "pending")
    chain.node.mine(2)
    seen(page, "confirmed")


def test_it_says_that_the_node_is_away_and_goes_on(watched: Watched, chain: Chain) -> None:
    order = fresh("away")
    page = watched.go(checkout_path(order))
    seen(page, "unpaid")
    was_online = page.evaluate("navigator.onLine")
    watched.context.set_offline(True)
    page.wait_for_selector("[data-trouble]:not([hidden])")
    chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    # The next question would come in 8 seconds; without timers it comes only when the browser says that it is online.
    page.evaluate("for (let timer = setTimeout(() => {}); timer > 0; timer -= 1) clearTimeout(timer)")
    watched.context.set_offline(False)
    if not was_online:
        # A browser that has only the loopback interface is always offline in its own eyes, and has no such event.
        page.evaluate("dispatchEvent(new Event('online'))")
    seen(page, "pending")
    page.wait_for_selector("[data-trouble]", state="hidden")
    watched.forgive("net::ERR_INTERNET_DISCONNECTED")
    chain.node.mine(1)


def test_where_no_app_takes_the_link_the_page_says_so(watched: Watched) -> None:
    watched.others.add("svc://")
    page = watched.go(checkout_path(fresh("app")))
    assert not page.is_visible("text=No wallet app has opened")
    page.click("text=Open in a wallet app")
    assert page.is_visible("text=Looking for a wallet app")
    page.wait_for_selector("text=No wallet app has opened")
    page.wait_for_selector("text=Open in a wallet app")


def test_the_way_to_the_wallet_says_at_once_that_it_was_pressed(watched: Watched) -> None:
    page = watched.go(checkout_path(fresh("pressed")))
    said = page.evaluate("""() => {
      const link = document.querySelector('[data-offer] a[href^="/wallet/"]');
      link.click();
      return [link.textContent, link.getAttribute("aria-busy")];
    }""")
    assert said == ["Opening the wallet …", "true"]
    # Chromium may never close a context in which a tab is on its way.
    page.wait_for_selector("body[data-view]")


def test_it_leads_to_the_wallet_which_shows_the_same(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order = fresh("shop")
    wallet.go(checkout_path(order, rest="&label=Tea%20%26%20cake"))
    shop = wallet.page
    shop.click("text=Pay in the browser")
    wallet.unlock()
    wallet.may_sign()
    assert (wallet.tell("#review-recipient"), wallet.tell("#review-reference")) == (SHOP, order)
    assert (wallet.shown("#review-amount"), wallet.tell("#review-label")) == ("2.5", "Tea & cake")
    assert wallet.tell("#review-shop-value") == "Tea & Cake (as this site calls it, not signed)"
    shop.click("#sign")
    wallet.state("pending", wanted=2)
    page = wallet.watched.go(checkout_path(order))
    seen(page, "pending")
    assert len(chain.paid(account.address, order)) == 1


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (320, "dark")])
def test_the_qr_codes_of_a_checkout_are_of_the_wallet_page_and_of_the_payment_uri(
    watched: Watched, width: int, scheme: str
) -> None:
    order = fresh("code")
    page = watched.page()
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    watched.go(checkout_path(order, rest=f"&label={quote('Café & cake', safe='')}"), page)
    wanted = payment_uri(order, rest="&confirmations=2&label=Caf%C3%A9%20%26%20cake")
    here = page.get_attribute("text=Pay in the browser", "href")
    assert codes(page, "#payment") == [f"{PUBLIC_URL}{here}"]
    page.click("text=Code for a wallet app")
    page.locator("[data-code=app] svg").scroll_into_view_if_needed()
    assert codes(page, "[data-code=app]") == [wanted]
    assert page.get_attribute("text=Copy the payment link", "data-copy") == wanted


def test_the_qr_codes_of_wallet_and_explorer_have_the_address(wallet: WalletPage, account: Account) -> None:
    wallet.navigate("Receive")
    assert codes(wallet.page, "#receive-qr") == [account.address]
    page = wallet.watched.go(f"/address/{account.address}")
    assert codes(page, "main") == [account.address]
