"""Links that cannot be paid: each fault has its code and its sentence, and nothing is signed."""

import time
from collections.abc import Callable

import pytest

from tests.browser.between import between
from tests.browser.chain import MAINNET_SHOP, SHOP, Account, Chain, checkout_path, fresh, payment_uri, wallet_path
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]

STATUS = "**/rpc/status"
RIGHT = f"svc:{SHOP}?amount=1&ref=A"
FAULTS = [
    ("scheme", f"bitcoin:{SHOP}?amount=1&ref=A"),
    ("scheme", "javascript:alert(1)"),
    ("encoding", f"{RIGHT}&label=%zz"),
    ("encoding", f"{RIGHT}#fragment"),
    ("too-long", f"{RIGHT}&memo={'x' * 2048}"),
    ("duplicate", f"{RIGHT}&amount=2"),
    ("unsupported", f"{RIGHT}&req-tip=1"),
    ("address", RIGHT.replace(SHOP, SHOP[:-1] + "q")),
    ("network", RIGHT.replace(SHOP, MAINNET_SHOP)),
    ("amount", RIGHT.replace("=1", "=1e1")),
    ("amount", RIGHT.replace("=1", "=0")),
    ("amount", RIGHT.replace("=1", "=0.000000001")),
    ("reference", f"svc:{SHOP}?amount=1"),
    ("reference", RIGHT.replace("ref=A", "ref=A%20B")),
    ("confirmations", f"{RIGHT}&confirmations=0"),
    ("label", f"{RIGHT}&label=%E2%80%AEevil"),
]


@pytest.mark.parametrize(("code", "uri"), FAULTS)
def test_a_link_that_cannot_be_paid(watched: Watched, code: str, uri: str) -> None:
    wallet = WalletPage.opened(watched, wallet_path(uri))
    wallet.view("stopped")
    assert wallet.page.locator("#stopped-error").get_attribute("data-error") == code
    wallet.error(code)
    assert wallet.tell("#stopped-title") == "This payment link cannot be paid"
    wallet.page.click("#stopped-without-link")
    wallet.view("welcome")


def test_a_link_that_was_not_encoded_as_a_whole(watched: Watched) -> None:
    wallet = WalletPage.opened(watched, f"/wallet/?pay={RIGHT}")
    wallet.view("stopped")
    wallet.error("encoding")


def test_two_links_at_once(watched: Watched) -> None:
    wallet = WalletPage.opened(watched, f"{wallet_path(RIGHT)}&pay={wallet_path(RIGHT).partition('pay=')[2]}")
    wallet.view("stopped")
    wallet.error("duplicate")


@pytest.mark.parametrize("scheme", ["SVC:", "web+svc:", "svcd:"])
def test_other_spellings_of_the_scheme(watched: Watched, scheme: str) -> None:
    wallet = WalletPage.opened(watched, wallet_path(RIGHT.replace("svc:", scheme)))
    wallet.view("welcome")
    assert wallet.page.is_visible("#welcome-link")


def test_an_order_that_expires_while_the_buyer_is_in_the_wallet(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order, until = fresh("late"), int((time.time() + 200) * 1000)
    wallet.go(checkout_path(order, rest=f"&until={until}"))
    wallet.page.click("text=Pay in the browser")
    wallet.unlock()
    wallet.may_sign()
    assert wallet.tell("#review-until")
    # It has expired by the clock of the node, in whose words a difference of five minutes would be another fault.
    wallet.watched.answers(STATUS, lambda body: body["status"].update(time=str(int(body["status"]["time"]) + 240_000)))
    wallet.error("link-expired")
    assert wallet.page.is_disabled("#sign")
    wallet.navigate("Send")
    wallet.page.fill("#send-recipient", f"{chain.node.url}{wallet_path(RIGHT)}&until=1")
    wallet.page.press("#send-recipient", "Enter")
    wallet.error("link-expired")
    wallet.page.reload()
    wallet.unlock()
    wallet.error("link-expired")
    assert chain.waiting(account.address) == 0


def test_a_link_is_for_the_page_alone(watch: Callable[..., Watched], node: RunningNode) -> None:
    """It goes into the fragment before anything is asked, and stays there through views and reloads."""
    with between(node) as server:
        watched = watch(origin=server.url)
        wallet = WalletPage.opened(watched, f"{wallet_path(RIGHT)}&until=9999999999999#import")
        wallet.view("import")
        asked, fragment = server.asked[:], f"{wallet_path(RIGHT).partition('?')[2]}&until=9999999999999"
        assert [path for path in asked if "pay=" in path] == [asked[0]]
        assert wallet.page.url == f"{server.url}/wallet/#import&{fragment}"
        wallet.page.click("text=Back")
        wallet.view("welcome")
        assert wallet.page.url == f"{server.url}/wallet/#home&{fragment}"
        wallet.page.reload()
        wallet.view("welcome")
        assert wallet.page.is_visible("#welcome-link")
        # The checkout leads there without a query
        wallet.go(checkout_path(fresh("private")))
        wallet.page.click("text=Pay in the browser")
        wallet.view("welcome")
        assert wallet.page.is_visible("#welcome-link")
        assert [path for path in server.asked if "pay=" in path] == [asked[0]]


def test_another_link_in_the_address_of_an_open_page(wallet: WalletPage) -> None:
    wallet.follow(payment_uri(fresh("one"), amount="1"))
    wallet.may_sign()
    wallet.page.evaluate("uri => { location.hash = `pay=${encodeURIComponent(uri)}`; }", RIGHT.replace("=1&", "=3&"))
    wallet.page.wait_for_selector('#review-amount[data-shown="3"]')
    wallet.page.evaluate("location.hash = 'pay=x'")
    wallet.view("stopped")
    wallet.page.click("#stopped-without-link")
    wallet.unlock()
    wallet.view("home")
    wallet.go("/wallet/#pay=x")
    wallet.page.reload()
    wallet.view("stopped")
    wallet.page.evaluate("uri => { location.hash = `pay=${encodeURIComponent(uri)}`; }", RIGHT)
    wallet.unlock()
    wallet.may_sign()


def test_a_link_with_two_return_urls_is_refused(watched: Watched) -> None:
    back = "&returnUrl=https%3A%2F%2Fshop.example%2F"
    wallet = WalletPage.opened(watched, wallet_path(RIGHT) + 2 * back)
    wallet.view("stopped")
    wallet.error("duplicate")


def test_a_locked_wallet_asks_nothing_of_its_account(wallet: WalletPage) -> None:
    # The open wallet asks until its page is left.
    wallet.page.goto("about:blank")
    before = len(wallet.watched.asked)
    wallet.go(wallet_path(payment_uri(fresh("locked"))))
    wallet.view("unlock")
    wallet.page.wait_for_load_state("networkidle")
    asked = [each for each in wallet.watched.asked[before:] if "/static/" not in each]
    assert sorted(asked) == ["GET /rpc/consensus", "GET /rpc/status", "GET /wallet/"]
    wallet.unlock()
    wallet.may_sign()
    assert any("/rpc/balance/" in each for each in wallet.watched.asked[before:])
