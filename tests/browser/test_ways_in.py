"""The pages for those who have no mouse, no scripts, other eyes or a small screen."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.chain import (
    CHOOSE_PROOF,
    COIN,
    FAUCET,
    PASSWORD,
    SHOP,
    Account,
    Chain,
    checkout_path,
    fresh,
    payment_uri,
)
from tests.browser.looks import Eyes
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, overflow

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.fixture
def eyes() -> Iterator[Callable[[Page], Eyes]]:
    """``eyes(page)``; at the end nothing may have been found."""
    made: list[Eyes] = []

    def make(page: Page) -> Eyes:
        made.append(Eyes(page))
        return made[-1]

    yield make
    for each in made:
        assert each.found == [], "\n".join(each.found)


def test_the_wallet_before_it_is_open(watched: Watched, eyes: Callable[[Page], Eyes]) -> None:
    wallet = WalletPage.opened(watched)
    page = wallet.page
    seen = eyes(page)
    wallet.view("welcome")
    seen.look("welcome")
    page.click("#import-start")
    wallet.view("import")
    page.click("#import-words-done")
    wallet.error("words")
    seen.look("import")
    wallet.go("/wallet/#create")
    page.reload()
    words = wallet.words()
    seen.look("words")
    page.click("#words-done")
    wallet.answer_quiz(["x"] * 24)
    wallet.error("quiz")
    seen.look("quiz")
    wallet.answer_quiz(words)
    wallet.view("password")
    page.click("#password-done")
    wallet.error("password-short")
    seen.look("password")
    wallet.choose_password()
    seen.look("keyfile")
    page.click("#keyfile-done")
    wallet.view("home")
    seen.look("home, empty")
    wallet.navigate("History")
    page.wait_for_selector("#history-empty:not([hidden])")
    seen.look("history, empty")
    wallet.go("/wallet/?pay=x")
    wallet.view("stopped")
    seen.look("stopped")


def test_the_wallet_when_it_is_open(wallet: WalletPage, chain: Chain, eyes: Callable[[Page], Eyes]) -> None:
    page = wallet.page
    seen = eyes(page)
    page.wait_for_selector("#home-transfers li")
    seen.look("home")
    for name in ("Receive", "Settings", "Send"):
        wallet.navigate(name)
        seen.look(name)
    page.click("#send-done")
    wallet.error("address")
    seen.look("send, wrong")
    wallet.go(f"/wallet/?pay={payment_uri(fresh('axe')).replace('&', '%26')}")
    wallet.unlock("wrong")
    wallet.error("wrong-password")
    seen.look("unlock")
    wallet.unlock()
    wallet.may_sign()
    seen.look("review")
    page.click("#sign")
    wallet.state("pending")
    seen.look("payment")
    wallet.navigate("History")
    page.wait_for_selector("#history-transfers li")
    seen.look("history")
    longest = "pay_abcdefghijklmnopqrstuvwxyz234567-and-some-more-characters.64"
    wallet.follow(payment_uri(longest, amount="80071992.54740991", rest="&label=" + "W" * 80))
    wallet.error("insufficient")
    seen.look("review of what is too much")
    chain.node.mine(1)


def test_explorer_and_checkout(watched: Watched, chain: Chain, eyes: Callable[[Page], Eyes]) -> None:
    order = fresh("seen")
    txid = chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    chain.node.mine(1)
    chain.pay(FAUCET, SHOP, COIN, order)
    page = watched.page()
    seen = eyes(page)
    label = "&label=" + "W" * 80
    for path in (
        "/",
        f"/block/{chain.node.status()['height']}",
        f"/tx/{txid}",
        f"/address/{SHOP}",
        f"/reference/{order}?recipient={SHOP}&amount=2.5",
        "/blocks",
        "/mempool",
        "/peers",
        "/search?q=nothing",
        checkout_path(fresh("new"), amount="90071992.54740991", rest=label),
        checkout_path(order),
        checkout_path(order, amount="7"),
        checkout_path(fresh("gone"), rest="&until=1&returnUrl=https%3A%2F%2Fshop.example%2Fpaid"),
        "/pay/?reference=A",
        "/proof/",
    ):
        watched.go(path, page)
        seen.look(path)
    terms = f"recipient={SHOP}&amountBaseUnits={5 * COIN // 2}&chain=1"
    proof = chain.node.ok(chain.node.get(f"/rpc/commerce/payment/{order}/proof?{terms}"))
    for text, state in ((json.dumps(proof), "proven"), ("no proof", "refused")):
        page.evaluate(CHOOSE_PROOF, text)
        page.wait_for_selector(f'#proof[data-shown="{state}"]')
        seen.look(f"a proof that is {state}")
    watched.forgive("status of 40[04]")
    chain.node.mine(1)


LONGEST = """
() => {
  for (const each of document.querySelectorAll("td .amount")) each.textContent = "90071992.54740991 SVC";
  for (const each of document.querySelectorAll("td time")) each.textContent = "59 minutes ago";
  for (const each of document.querySelectorAll("td .badge")) each.textContent = "to itself";
}
"""
BEYOND = """
() => [...document.querySelectorAll("table")].map((each) =>
  each.getBoundingClientRect().right - each.parentElement.getBoundingClientRect().right)
"""


def test_tables_fit_between_phone_and_desk(watched: Watched, chain: Chain) -> None:
    longest = "pay_abcdefghijklmnopqrstuvwxyz234567-and-some-more-characters.64"
    chain.pay(FAUCET, SHOP, COIN, longest)
    chain.node.mine(1)
    page = watched.page()
    compared = f"/reference/{longest}?recipient={SHOP}&amount=90071992.54740991"
    for path in (f"/address/{SHOP}", f"/block/{chain.node.status()['height']}", compared):
        watched.go(path, page)
        page.evaluate(LONGEST)
        for width in (703, 705, 800, 900, 1055, 1057):
            page.set_viewport_size({"width": width, "height": 800})
            assert (overflow(page), [each for each in page.evaluate(BEYOND) if each > 0]) == (0, []), (path, width)


REACH = """
() => {
  const small = [];
  for (const each of document.querySelectorAll("a[href], button, input, textarea, summary")) {
    if (each.matches(".skip, .visually-hidden, :disabled") || !each.checkVisibility()) continue;
    each.scrollIntoView({ block: "center" });
    const { left, top, width, height } = each.getBoundingClientRect();
    const [x, y] = [left + Math.min(width / 2, 20), top + height / 2];
    const hit = (at) => {
      const found = document.elementFromPoint(x, at);
      return found !== null && (each.contains(found) || Boolean(found.closest("label")?.contains(each)));
    };
    let [above, below] = [0, 0];
    while (above < 30 && hit(y - above - 1)) above += 1;
    while (below < 30 && hit(y + below + 1)) below += 1;
    if (above + below + 1 < 43) small.push(`${each.id || each.textContent.trim()}: ${above + below + 1} px`);
  }
  return small;
}
"""


def test_a_finger_finds_everything_on_a_phone(wallet: WalletPage, chain: Chain) -> None:
    """44 pixels, of which one may go to the fractions."""
    txid = chain.pay(FAUCET, SHOP, COIN, fresh("finger"))
    chain.node.mine(1)
    page = wallet.page
    page.set_viewport_size({"width": 320, "height": 640})
    page.wait_for_selector("#home-transfers li")
    small = {"home": page.evaluate(REACH)}
    for name in ("Send", "Receive", "History", "Settings"):
        wallet.navigate(name)
        page.wait_for_load_state("networkidle")
        small[name] = page.evaluate(REACH)
    page.click("#lock")
    wallet.view("unlock")
    page.click("summary")
    small["unlock"] = page.evaluate(REACH)
    height = chain.node.status()["height"]
    for path in ("/", f"/block/{height}", f"/tx/{txid}", f"/address/{SHOP}", checkout_path("A"), "/pay/?reference=A"):
        # By the time that it is loaded its scripts have run; a checkout asks its node all the time.
        wallet.watched.go(path, page)
        small[path] = page.evaluate(REACH)
    wallet.watched.forgive("status of 400")
    assert {where: found for where, found in small.items() if found} == {}


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus, which must then be seen."""
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"nobody sees that {selector} has the focus"
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def focused(page: Page) -> str:
    """The text of what has the focus."""
    return str(page.evaluate("document.activeElement.textContent"))


def test_a_wallet_by_keyboard_alone(watched: Watched, chain: Chain) -> None:
    wallet = WalletPage.opened(watched)
    page, keys = wallet.page, wallet.page.keyboard
    wallet.view("welcome")
    tab_to(page, "#create-start")
    keys.press("Enter")
    words = wallet.words()
    assert focused(page).startswith("Write down")
    tab_to(page, "#words-done")
    keys.press("Enter")
    wallet.view("quiz")
    for number in (1, 2, 3):
        tab_to(page, f"#quiz-{number}")
        keys.type(words[int(page.get_attribute(f"#quiz-{number}", "data-place") or 0) - 1])
    keys.press("Enter")
    wallet.view("password")
    for name in ("#new-password", "#new-password-again"):
        tab_to(page, name)
        keys.type(PASSWORD)
    keys.press("Enter")
    wallet.view("keyfile")
    tab_to(page, "#keyfile-done")
    keys.press("Space")
    wallet.view("home")
    assert focused(page) == "Your wallet"
    tab_to(page, "#navigation a[href='#receive']")
    keys.press("Enter")
    wallet.view("receive")
    address = wallet.tell("#receive-address")
    chain.fund(address)

    order = fresh("keys")
    wallet.go(f"/wallet/?pay={payment_uri(order).replace('&', '%26')}")
    wallet.view("unlock")
    tab_to(page, "#unlock-password")
    keys.type(PASSWORD)
    keys.press("Enter")
    wallet.may_sign()
    assert focused(page) == "Review the payment"
    tab_to(page, "#sign")
    keys.press("Enter")
    wallet.state("pending")
    assert len(chain.paid(address, order)) == 1


def test_an_explorer_by_keyboard_alone(watched: Watched, chain: Chain) -> None:
    page = watched.go("/")
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to the content"
    page.keyboard.press("Enter")
    tab_to(page, "input[name=q]")
    page.keyboard.type(SHOP)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/address/{SHOP}")
    tab_to(page, "main a[href^='/']")
    watched.go("/", page)
    tab_to(page, "main a[href^='/block/']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/block/*")


def test_checkout_and_explorer_without_scripts(watch: Callable[..., Watched], chain: Chain) -> None:
    watched = watch(java_script_enabled=False)
    order = fresh("plain")
    page = watched.go(checkout_path(order, rest="&label=Tea"))
    said = page.inner_text("main")
    for text in ("2.5", order, SHOP, "Tea", "Waiting for the payment", "reloads every 5 seconds"):
        assert text in said
    page.wait_for_selector("svg, img")
    assert page.locator("button:visible").count() == 0, "a button that needs a script"
    txid = chain.pay(FAUCET, SHOP, 5 * COIN // 2, order)
    chain.node.mine(2)
    # The page reloads by itself: the test does not navigate.
    page.wait_for_selector("#payment[data-state=confirmed]")
    assert "Paid" in page.inner_text("main")
    page.click("text=See the transfer")
    page.wait_for_url(f"**/tx/{txid}")
    assert order in page.inner_text("main")

    height = chain.node.status()["height"]
    watched.go("/", page)
    assert height in page.inner_text("main")
    page.fill("input[name=q]", order)
    page.press("input[name=q]", "Enter")
    page.wait_for_url(f"**/reference/{order}")
    watched.go(f"/address/{SHOP}", page)
    assert SHOP in page.inner_text("main")
    for path in ("/mempool", "/peers", f"/block/{height}"):
        watched.go(path, page)
        assert page.locator("h1").is_visible()
    watched.go("/wallet/", page)
    assert "svc wallet" in page.inner_text("main")


def test_a_page_that_nobody_sees_asks_nothing(wallet: WalletPage, account: Account) -> None:
    hide: Any = """hidden => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      Object.defineProperty(document, "visibilityState", { value: hidden ? "hidden" : "visible", configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page = wallet.page
    page.wait_for_selector("#home-transfers li")
    # The script of the worker is no question of the page: it comes even if the page is hidden meanwhile.
    wallet.checked()
    page.evaluate(hide, True)
    # It does not even go on with a round of questions that it has begun; then it is quiet for longer than between two.
    before = list(wallet.watched.asked)
    page.wait_for_timeout(5_000)
    assert wallet.watched.asked == before
    with page.expect_response("**/rpc/**"):
        page.evaluate(hide, False)
