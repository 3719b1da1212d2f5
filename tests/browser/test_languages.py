"""The pages in another language, which the browser asks for."""

from collections.abc import Callable
from pathlib import Path

import pytest

from svcd.chain.units import parse_amount
from tests.browser.chain import FAUCET, SHOP, Account, Chain, checkout_path, fresh
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, overflow

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PHONE = {"width": 360, "height": 800}
TOUCHING = """
rows => rows.flatMap(row => {
  const boxes = [...row.querySelectorAll("td > *")].flatMap(each => [...each.getClientRects()]);
  return boxes.flatMap((one, place) => boxes.slice(place + 1)
    .filter(two => one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom)
    .map(() => row.innerText));
})
"""
"""The rows of a table in which two cells stand upon each other."""
ROWS = "links => new Set(links.map(each => each.offsetTop)).size"
BROKEN = """
parts => parts.flatMap(part => part.textContent.split(" ").filter(word => {
  const range = document.createRange();
  const start = part.firstChild.data.indexOf(word);
  range.setStart(part.firstChild, start);
  range.setEnd(part.firstChild, start + word.length);
  return range.getClientRects().length > 1;
}))
"""
"""The words of texts that do not fit into a line."""


def test_a_german_buyer_reads_german(
    watch: Callable[..., Watched], chain: Chain, account: Account, tmp_path: Path
) -> None:
    watched = watch(locale="de-AT", viewport=PHONE)
    order = fresh("german")
    page = watched.go(checkout_path(order))
    assert page.get_attribute("html", "lang") == "de"
    assert "Warten auf die Zahlung" in page.inner_text("main")
    watched.go(checkout_path(order, amount="80071992.54740991"), page)
    assert page.evaluate("(h1 => h1.scrollWidth - h1.clientWidth)(document.querySelector('h1'))") <= 0
    watched.go(checkout_path(order), page)
    chain.pay(FAUCET, SHOP, 250_000_000, order)
    page.wait_for_selector("#payment[data-state=pending]")
    assert "Wartet auf den nächsten Block (0 von 2\N{NO-BREAK SPACE}Bestätigungen)" in page.inner_text("main")
    wallet = WalletPage.opened(watched)
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    assert wallet.page.title() == "Ihre Wallet · SVC"
    wallet.page.set_viewport_size({"width": 345, "height": 800})
    for view in ("receive", "history", "settings", "home"):
        wallet.page.click(f"#navigation a[href='#{view}']")
        wallet.view(view)
        assert wallet.page.eval_on_selector_all("#navigation a", ROWS) == 1, "the menu has two lines"
    wallet.page.click("#navigation a[href='#send']")
    wallet.page.fill("#send-recipient", SHOP)
    wallet.page.fill("#send-amount", "1,250")
    wallet.page.click("#send-done")
    assert "Der Betrag muss eine Zahl wie 25 oder 0.5 sein" in wallet.error("amount")
    assert overflow(wallet.page) == 0
    wallet.page.fill("#send-amount", "1,25")
    wallet.page.click("#send-done")
    wallet.may_sign()
    assert wallet.shown("#review-amount") == "1.25"


def test_no_word_breaks_on_the_smallest_phone(watch: Callable[..., Watched]) -> None:
    page = watch(locale="de", viewport={"width": 320, "height": 640}).go(checkout_path("order-5a429a82ebdb6d8b"))
    page.wait_for_selector(".copied .mono + button:visible")
    assert page.eval_on_selector_all(".steps li", BROKEN) == []
    assert page.eval_on_selector_all(".copied .mono", BROKEN) == []
    assert overflow(page) == 0


def test_a_german_shopkeeper_looks_for_a_payment_on_a_phone(watch: Callable[..., Watched], chain: Chain) -> None:
    order = fresh("german")
    for coins in ("2.5", "2.5", "1234.56789012"):
        chain.pay(FAUCET, SHOP, parse_amount(coins), order)
    chain.node.mine(12)
    page = watch(locale="de-DE", viewport=PHONE).go(f"/reference/{order}")
    page.fill("#order-amount", "2,5")
    with page.expect_navigation():
        page.click("button >> text=Vergleichen")
    assert "Füllen Sie auch dieses Feld aus" in page.inner_text("#order-recipient-error")
    page.fill("#order-recipient", SHOP)
    with page.expect_navigation():
        page.click("button >> text=Vergleichen")
    rows = page.locator("table.rows tbody tr")
    assert rows.count() == 3
    for verdict in ("bezahlt die Bestellung", "noch einmal bezahlt", "zu viel"):
        assert page.is_visible(f"table >> text={verdict}")
    assert rows.evaluate_all(TOUCHING) == []
    assert overflow(page) == 0
