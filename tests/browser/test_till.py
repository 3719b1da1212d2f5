"""The till: what whoever stands behind a counter does with it, and what buyers do to it."""

import csv
import io
import re
from urllib.parse import unquote

import pytest

from benchmarks.wallet_page import visit
from tests.browser.chain import COIN, FAUCET, MAINNET_SHOP, Account, Chain
from tests.browser.conftest import Watch
from tests.browser.engines import Tab
from tests.browser.looks import Eyes
from tests.browser.test_checkout import codes
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.running import RunningNode, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PRICE = 5 * COIN // 2
PRICES = "Tea 2.5\nLarge beer 4,5"
MAX_BYTES = 60_000
"""Of the first visit, with all headers."""


@pytest.fixture
def shop() -> Account:
    """The wallet of a shop that has nothing yet."""
    return Account.random()


class TillPage:
    """A till in a tab of Chromium, set up with a name and an address."""

    def __init__(self, watched: Watched, shop: Account, *, seen: bool = False, name: str = "Bar 1") -> None:
        self.page = watched.go("/till/")
        self.view("setup")
        self.page.fill("#setup-name", name)
        self.page.fill("#setup-recipient", shop.address)
        self.page.fill("#setup-prices", PRICES)
        if seen:
            self.page.check("#setup-seen")
            assert "can still replace it" in self.page.inner_text("#setup-risk")
        self.page.click("#setup-form [type=submit]")
        self.view("sale")

    def view(self, name: str) -> None:
        """Wait until a view is shown."""
        self.page.wait_for_selector(f"body[data-view={name}]")

    def sell(self, amount: str) -> str:
        """Type an amount and show the code; the reference."""
        self.page.keyboard.type(amount)
        self.page.keyboard.press("Enter")
        self.view("order")
        return self.page.inner_text("#order-reference")

    def state(self, name: str) -> str:
        """Wait until the order that is shown is in a state; what the till says of it."""
        self.page.wait_for_selector(f'#order-state[data-state="{name}"]')
        return self.page.inner_text("#order-state").replace("\N{NO-BREAK SPACE}", " ")

    def books(self) -> str:
        """The text of the orders of the day."""
        self.page.click('#navigation a[href="#orders"]')
        self.view("orders")
        return self.page.inner_text("main").replace("\N{NO-BREAK SPACE}", " ")


def test_a_sale_in_each_engine(tab: Tab, chain: Chain, shop: Account) -> None:
    tab.go("/till/")
    tab.type("#setup-name", "Bar 1")
    tab.type("#setup-recipient", shop.address, enter=True)
    tab.see("#keypad")
    tab.keys("2,5\ue007")
    reference = tab.text("#order-reference")
    assert "Waiting for payment" in tab.text("#order-state")
    tab.reload()
    assert tab.text("#order-reference") == reference
    chain.pay(FAUCET, shop.address, PRICE, reference)
    tab.see('#order-state[data-state="seen"]')
    chain.node.mine(1)
    tab.see('#order-state[data-state="paid"]')
    assert "PAID" in tab.text("#order-state")
    tab.until(lambda: tab.evaluate("() => document.activeElement.id") == "order-title", "the heading has the focus")
    tab.keys("\ue007")
    assert tab.text("#order-next") == "Handed over, next", "Enter has handed nothing over"
    tab.click("#order-next")
    tab.see("#keypad")
    tab.click('#navigation a[href="#orders"]')
    assert tab.text("#orders-count") == "1 paid order"
    assert tab.text("#orders-sum") == "2.5 SVC"


def test_a_sale_by_touch_on_the_smallest_phone(watch: Watch, chain: Chain, shop: Account) -> None:
    watched = watch(viewport={"width": 320, "height": 640}, has_touch=True, is_mobile=True, locale="en-GB")
    till = TillPage(watched, shop)
    page = till.page
    page.tap(".item:has-text('Tea')")
    page.tap(".item:has-text('Large beer')")
    page.tap(".item:has-text('Large beer')")
    page.tap("[aria-label='One Large beer less']")
    for key in "1.25":
        page.tap(f"[data-key='{key}']")
    page.tap("[data-key='']")
    assert page.inner_text("#sale-total") == "8.2 SVC"
    page.tap("#sale-form [type=submit]")
    till.view("order")
    reference = page.inner_text("#order-reference")
    [uri] = codes(page, "#order-code")
    assert uri == f"svc:{shop.address}?amount=8.2&ref={reference}&confirmations=1&label=Bar%201"
    assert unquote(str(page.get_attribute("#order-open", "href"))).endswith(f"/wallet/#pay={uri}")
    told = page.inner_text("#order-lines").replace("\N{NO-BREAK SPACE}", " ").split("\n")
    assert told == ["1 × Tea", "2.5 SVC", "1 × Large beer", "4.5 SVC", "Other amount", "1.2 SVC"]
    left = "each => each.getBoundingClientRect().left"
    assert page.eval_on_selector("#order-lines li", left) == page.eval_on_selector("#order-state", left)
    chain.pay(FAUCET, shop.address, 82 * COIN // 10, reference)
    assert "Hand over nothing" in till.state("seen")
    chain.node.mine(1)
    till.state("paid")
    page.tap("#order-next")
    till.view("sale")
    assert page.inner_text("#sale-total") == "0 SVC"
    till.books()
    assert re.fullmatch(r"[A-Z][a-z]+day,? [0-9]+ [A-Z][a-z]+ [0-9]+", page.inner_text("#orders-day option"))


def test_a_wrong_amount_a_refund_and_a_second_payment(watched: Watched, chain: Chain, shop: Account) -> None:
    till = TillPage(watched, shop, seen=True)
    reference = till.sell("2.5")
    chain.pay(FAUCET, shop.address, 2 * COIN, reference)
    assert "Too little\n\n2 SVC arrived, and the order costs 2.5 SVC" in till.state("wrong")
    refund = till.page.locator("#order-payments-list a", has_text="Refund")
    asked = unquote(str(refund.get_attribute("href")))
    assert f"/wallet/#pay=svc:{FAUCET.address}?amount=2&ref=refund:{reference}&confirmations=1" in asked
    chain.pay(FAUCET, shop.address, PRICE, reference)
    assert "Seen, in no block yet" in till.state("paid")
    assert "2 SVC arrived that pays nothing" in till.page.inner_text("#order-besides").replace(
        "\N{NO-BREAK SPACE}", " "
    )
    chain.node.mine(1)
    chain.pay(shop, FAUCET.address, 2 * COIN, f"refund:{reference}")
    till.page.wait_for_selector("#order-besides", state="hidden")
    assert "refunded to" in till.page.inner_text("#order-payments-list")
    chain.pay(FAUCET, shop.address, PRICE, reference)
    till.page.wait_for_selector("#order-twice:not([hidden])")
    assert "It was paid twice" in till.page.inner_text("#order-twice")
    chain.node.mine(1)
    told = till.books()
    assert "Refunded: 2 SVC" in told
    with till.page.expect_download() as handed:
        till.page.click("#orders-export")
    rows = list(csv.DictReader(io.StringIO(handed.value.path().read_text())))
    assert [(row["reference"], row["state"], row["received"], row["refunded"]) for row in rows] == [
        (reference, "twice", "7", "2")
    ]


def test_the_refund_is_paid_by_the_wallet_of_the_shop(wallet: WalletPage, account: Account, chain: Chain) -> None:
    till = TillPage(wallet.watched, account, seen=True)
    reference = till.sell("1")
    chain.pay(FAUCET, account.address, 3 * COIN, reference)
    till.state("wrong")
    with wallet.watched.context.expect_page() as opened:
        till.page.click("#order-payments-list a:has-text('Refund')")
    wallet.page = opened.value
    wallet.unlock()
    wallet.may_sign()
    assert (wallet.tell("#review-recipient"), wallet.tell("#review-reference")) == (
        FAUCET.address,
        f"refund:{reference}",
    )
    wallet.page.click("#sign")
    wallet.state("pending")
    till.page.wait_for_selector("#order-payments-list :text('refunded to')")
    chain.node.mine(1)


def test_a_second_device_with_the_same_name_finds_the_orders(watch: Watch, chain: Chain, shop: Account) -> None:
    first = TillPage(watch(), shop)
    reference = first.sell("2.5")
    chain.pay(FAUCET, shop.address, PRICE, reference)
    chain.node.mine(1)
    first.state("paid")
    second = TillPage(watch(), shop, name="bar 1")
    second.books()
    row = second.page.locator(f'#orders-list a[href="#order={reference}"]')
    assert "Paid" in row.inner_text()
    assert "\n\n2.5 SVC\n" in second.books()
    chain.pay(FAUCET, shop.address, COIN)
    second.page.click("#orders-list a:has-text('No order')")
    assert "somebody may have typed the address" in second.state("unknown")
    second.page.click("#order-settle")
    second.page.wait_for_selector("#urgent", state="hidden")
    other = TillPage(watch(), shop, name="Bar 2")
    assert "0 paid orders" in other.books()
    chain.node.mine(1)


def test_two_tills_of_one_name_share_no_orders_and_old_days_stay(watched: Watched, chain: Chain, shop: Account) -> None:
    till = TillPage(watched, shop)
    reference = till.sell("2.5")
    old = "bar-1-20200102-abcdefgh-2.5"
    chain.pay(FAUCET, shop.address, PRICE, old)
    other = Account.random()
    chain.pay(FAUCET, other.address, PRICE, reference)
    for recipient in (other, shop):
        till.page.click('#navigation a[href="#setup"]')
        till.view("setup")
        till.page.fill("#setup-recipient", recipient.address)
        till.page.click("#setup-form [type=submit]")
        till.view("sale")
        till.books()
        row = till.page.locator(f'#orders-list a[href="#order={reference}"]')
        row.wait_for()
        assert ("Seen" if recipient is other else "Waiting") in row.inner_text()
    till.page.select_option("#orders-day", "20200102")
    till.page.click(f'#orders-list a[href="#order={old}"]')
    till.view("order")
    till.page.reload()
    till.view("order")
    assert till.page.inner_text("#order-reference") == old
    chain.node.mine(1)


def test_a_late_payment_and_one_that_is_gone(watched: Watched, chain: Chain, shop: Account) -> None:
    till = TillPage(watched, shop)
    reference = till.sell("2.5")
    till.page.click("#order-leave")
    till.view("sale")
    chain.pay(FAUCET, shop.address, PRICE, reference)
    chain.node.mine(1)
    till.page.click(f'#open-orders a[href="#order={reference}"]')
    assert "had been called off" in till.state("late")
    till.page.click("#order-hand-over")
    till.state("paid")
    chain.reorganise(1, drop=True)
    assert "The network has undone the payment" in till.state("undone")
    assert "1" in till.page.inner_text("#urgent")


def test_without_a_line_it_says_so_and_loses_nothing(watched: Watched, chain: Chain, shop: Account) -> None:
    till = TillPage(watched, shop)
    first = till.sell("1")
    was_online = till.page.evaluate("navigator.onLine")
    watched.context.set_offline(True)
    if not was_online:
        till.page.evaluate("dispatchEvent(new Event('offline'))")
    till.page.wait_for_selector("#line:not([hidden])")
    assert "Orders stay in this browser" in till.page.inner_text("#line")
    till.page.click('#navigation a[href="#sale"]')
    till.view("sale")
    second = till.sell("2.5")
    [uri] = codes(till.page, "#order-code")
    assert second in uri
    chain.pay(FAUCET, shop.address, PRICE, second)
    chain.pay(FAUCET, shop.address, COIN, first)
    chain.node.mine(1)
    watched.context.set_offline(False)
    if not was_online:
        till.page.evaluate("dispatchEvent(new Event('online'))")
    till.state("paid")
    till.page.wait_for_selector("#line", state="hidden")
    assert "2 paid orders\n\n3.5 SVC" in till.books()
    watched.forgive("net::ERR_INTERNET_DISCONNECTED")


def test_no_answer_about_something_else_pays_an_order(watched: Watched, chain: Chain, shop: Account) -> None:
    lies = iter(({"amount": "1"}, {"recipient": FAUCET.address}, {"reference": "other"}, {"requiredConfirmations": 0}))

    def changed(body: dict[str, dict[str, object]]) -> None:
        paid = {"state": "confirmed", "confirmations": 1, "matchCount": 1, "txid": "ab" * 32, "blockTime": "1"}
        body["payment"] |= paid | next(lies, {"tip": {"height": "x"}})

    watched.answers("**/rpc/commerce/payment/**", changed)
    till = TillPage(watched, shop)
    till.sell("2.5")
    till.page.wait_for_selector('#line[data-error="node-unreachable"]:not([hidden])')
    wait_until(lambda: till.page.wait_for_timeout(50) or next(lies, None) is None, "all lies were told")
    assert "Waiting for payment" in till.state("waiting")


def test_nothing_is_paid_while_the_node_is_behind(watched: Watched, chain: Chain, shop: Account) -> None:
    watched.answers("**/rpc/commerce/payment/**", lambda body: body["payment"]["node"].update(synced=False))
    watched.answers("**/rpc/status", lambda body: body["status"].update(syncState="syncing"))
    till = TillPage(watched, shop)
    chain.pay(FAUCET, shop.address, PRICE, till.sell("2.5"))
    chain.node.mine(1)
    assert "does not know the newest blocks" in till.state("confirming")
    assert till.page.is_visible("#behind")


def test_what_is_wrong_with_the_set_up_is_said_beside_it(watched: Watched, shop: Account) -> None:
    page = watched.go("/till/")
    page.wait_for_selector("body[data-view=setup]")
    wrong = {"name": "東京", "recipient": MAINNET_SHOP, "prices": "Tea 1\nBeer", "count": "0"}
    right = {"name": "Bar", "recipient": shop.address, "prices": "", "count": "2"}
    sentences = ("a letter from a to z or a digit", "mainnet", "Line 2 ", "from 1 to 1000")
    for field, text in wrong.items():
        page.fill(f"#setup-{field}", text)
    for (field, text), sentence in zip(right.items(), sentences, strict=True):
        page.click("#setup-form [type=submit]")
        page.wait_for_selector(f"#setup-{field}-error:not([hidden])")
        assert sentence in page.inner_text(f"#setup-{field}-error")
        page.fill(f"#setup-{field}", text)
    page.click("#setup-form [type=submit]")
    page.wait_for_selector("body[data-view=sale]")


def test_the_till_loads_in_few_bytes(watch: Watch, node: RunningNode) -> None:
    first = visit(watch().context, node.url, path="/till/")
    assert first.bytes <= MAX_BYTES
    assert len(first.requests) <= 7


def test_it_looks_right_in_every_state(watched: Watched, chain: Chain, shop: Account) -> None:
    till = TillPage(watched, shop, seen=True)
    eyes = Eyes(till.page)
    eyes.look("sale")
    reference = till.sell("90071992.54740991")
    eyes.look("waiting")
    till.page.click('#navigation a[href="#sale"]')
    reference = till.sell("2.5")
    chain.pay(FAUCET, shop.address, COIN, reference)
    till.state("wrong")
    eyes.look("wrong")
    chain.pay(FAUCET, shop.address, PRICE, reference)
    till.state("paid")
    eyes.look("paid")
    till.books()
    eyes.look("orders")
    till.page.click('#navigation a[href="#setup"]')
    till.view("setup")
    eyes.look("setup")
    chain.node.mine(1)
    assert eyes.found == []
