"""A locked page holds nothing of the wallet, and what was under way when it was locked is neither shown nor lost."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.chain import COIN, PASSWORD, SHOP, Account, Chain, fresh, payment_uri
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, wait_for_true
from tests.process_level.running import wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

BROADCAST = "**/rpc/broadcast"
BALANCE = "**/rpc/balance/*"
SHOWN = """
() => {
  const page = document.documentElement.cloneNode(true);
  page.querySelector("main > section[data-view=unlock]").remove();
  const typed = [...document.querySelectorAll("input, textarea")].filter((each) => each.id !== "unlock-user");
  return [page.outerHTML, document.title, ...typed.map((each) => each.value)].join("\\n");
}
"""
KEPT = """
async () => {
  const database = await new Promise((done) => {
    const opening = indexedDB.open("svc-wallet");
    opening.onsuccess = () => done(opening.result);
  });
  const payments = await new Promise((done) => {
    const asking = database.transaction("payments").objectStore("payments").getAll();
    asking.onsuccess = () => done(asking.result);
  });
  database.close();
  return payments.map(({ txid }) => txid);
}
"""
NOTE_ANSWERS = """
() => {
  const ask = window.fetch;
  window.received = [];
  window.fetch = async (path, options) => {
    try {
      const answer = await ask(path, options);
      const parts = [new Uint8Array(await answer.arrayBuffer())];
      // What waits for the end of the answer goes on before anybody can look at this list.
      const read = async () => {
        const value = parts.shift();
        if (value === undefined) window.received.push(path);
        return { done: value === undefined, value };
      };
      const { status, type, headers } = answer;
      return { status, type, headers, ok: answer.ok, body: { getReader: () => ({ read, cancel: async () => {} }) } };
    } catch (problem) {
      window.received.push(path);
      throw problem;
    }
  };
}
"""
HOLD_SIGNING = """
() => new Promise((held) => {
  navigator.locks.request("svc-wallet-signing", () => new Promise((done) => {
    window.letSign = done;
    held();
  }));
})
"""
# The locks are given in the order in which they were asked for, so the page has signed, or failed to, when this ends.
LET_SIGN = """
async () => {
  window.letSign();
  await navigator.locks.request("svc-wallet-signing", () => {});
}
"""


def send(wallet: WalletPage, recipient: str, amount: str, reference: str) -> None:
    """Fill in the form for a transfer."""
    wallet.navigate("Send")
    for field, text in {"recipient": recipient, "amount": amount, "reference": reference}.items():
        wallet.page.fill(f"#send-{field}", text)


def signing(wallet: WalletPage, reference: str) -> None:
    """Press "Sign and pay", and have the page wait before it signs."""
    send(wallet, SHOP, "1.25", reference)
    wallet.page.click("#send-done")
    wallet.may_sign()
    wallet.page.evaluate(HOLD_SIGNING)
    wallet.page.click("#sign")


def lock(wallet: WalletPage) -> None:
    """Press "Lock"."""
    wallet.page.click("#lock")
    wallet.view("unlock")


def holding(wallet: WalletPage, pattern: str) -> list[Any]:
    """Hold what is asked from now on; the requests that are held."""
    held: list[Any] = []
    wallet.watched.context.route(pattern, lambda route: held.append(route))
    return held


def wait_for_request(wallet: WalletPage, held: list[Any]) -> None:
    """Wait until something is held. Playwright hears of it only while it waits for something of its own."""
    wait_until(lambda: wallet.page.wait_for_timeout(20) is None and held != [], "a request that is held")


def wait_for_answer(wallet: WalletPage, path: str) -> None:
    """Wait until the page has received an answer and done with it what it does."""
    wait_for_true(wallet.page, "(path) => received.some((each) => each.startsWith(path))", path)
    # It may want something of its store too, which it has asked for before.
    wallet.page.evaluate(KEPT)


def test_five_idle_minutes_lock_every_tab(watched: Watched, account: Account, tmp_path: Path) -> None:
    watched.context.clock.install()
    wallet = WalletPage.opened(watched)
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    # From now on time passes in leaps only: how much of it a step takes depends on what else the machine does.
    watched.context.clock.pause_at(wallet.page.evaluate("Date.now()") / 1000 + 100)
    wallet.page.keyboard.press("Shift")
    for _ in range(2):
        watched.context.clock.fast_forward(299_000)
        assert wallet.page.evaluate("document.body.dataset.view") == "home"
        wallet.page.keyboard.press("Shift")
    watched.context.clock.fast_forward(299_000)
    watched.context.clock.fast_forward(6_000)
    wallet.view("unlock")


def paused(watched: Watched, page: Page) -> None:
    """From now on time passes in leaps only."""
    watched.context.clock.pause_at(page.evaluate("Date.now()") / 1000 + 100)
    page.keyboard.press("Shift")


def test_five_idle_minutes_clear_the_words_of_a_new_wallet(watched: Watched) -> None:
    watched.context.clock.install()
    wallet = WalletPage.opened(watched)
    page = wallet.page
    wallet.view("welcome")
    paused(watched, page)
    for leave in ("", "#words-done", "right"):
        page.click("#create-start")
        words = wallet.words()
        if leave:
            page.click("#words-done")
            wallet.view("quiz")
        if leave == "right":
            wallet.answer_quiz(words)
            wallet.view("password")
            page.fill("#new-password", PASSWORD)
        watched.context.clock.fast_forward(299_000)
        page.keyboard.press("Shift")
        watched.context.clock.fast_forward(299_000)
        assert page.evaluate("document.body.dataset.view") != "welcome"
        watched.context.clock.fast_forward(6_000)
        wallet.view("welcome")
        assert "cleared" in wallet.tell("#welcome-cleared")
        left = page.evaluate(SHOWN)
        assert [word for word in (*words, PASSWORD) if f">{word}<" in left or f"\n{word}" in left] == []
        assert page.locator("#words li").count() == 0
        # Nothing leads back to them
        page.evaluate("document.getElementById('quiz-back').click()")
        assert page.locator("#words li").count() == 0
        wallet.go("/wallet/")
        wallet.view("welcome")


def test_five_idle_minutes_clear_the_words_that_are_typed(watched: Watched) -> None:
    watched.context.clock.install()
    wallet = WalletPage.opened(watched, "/wallet/#import")
    wallet.view("import")
    paused(watched, wallet.page)
    wallet.page.fill("#import-words", "abandon " * 24)
    watched.context.clock.fast_forward(306_000)
    wallet.view("welcome")
    assert wallet.page.input_value("#import-words") == ""


def test_a_clock_that_goes_backwards_locks(watched: Watched, account: Account, tmp_path: Path) -> None:
    watched.context.clock.install()
    wallet = WalletPage.opened(watched)
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    now = wallet.page.evaluate("Date.now()")
    watched.context.clock.set_system_time((now - 3_600_000) / 1000)
    wallet.page.keyboard.press("Shift")
    wallet.view("unlock")


def test_a_tab_that_slept_signs_nothing(watched: Watched, account: Account, tmp_path: Path) -> None:
    """Its timers were stopped, so nothing has locked it when it wakes up."""
    watched.context.clock.install()
    wallet = WalletPage.opened(watched)
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    send(wallet, SHOP, "1.25", fresh("slept"))
    wallet.page.click("#send-done")
    wallet.may_sign()
    watched.context.clock.set_system_time(wallet.page.evaluate("Date.now()") / 1000 + 301)
    # A script, because a pointer would be seen before the button.
    wallet.page.evaluate("document.getElementById('sign').click()")
    wallet.view("unlock")
    assert wallet.page.evaluate(KEPT) == []


def test_a_lock_is_for_all_tabs_and_nothing_is_signed_behind_it(wallet: WalletPage) -> None:
    other = WalletPage.opened(wallet.watched)
    other.unlock()
    other.view("home")
    other.page.click("#lock")
    other.view("unlock")
    wallet.view("unlock")
    wallet.page.evaluate("document.getElementById('sign').disabled = false")
    wallet.page.evaluate("document.getElementById('sign').click()")
    wallet.page.wait_for_selector("#review-error[data-error=locked]", state="attached")
    assert "POST /rpc/broadcast" not in wallet.watched.asked


def test_a_locked_page_holds_nothing_of_the_wallet(wallet: WalletPage, account: Account, chain: Chain) -> None:
    """Not even hidden: whoever sits down at the screen could read it with the browser's own tools."""
    order, linked = fresh("locked"), fresh("linked")
    wallet.follow(payment_uri(linked, amount="7.5", rest="&label=Nobody%20sees%20this"))
    wallet.may_sign()
    send(wallet, SHOP, "1.25", order)
    wallet.page.click("#send-done")
    wallet.may_sign()
    wallet.page.click("#sign")
    wallet.state("pending")
    txid = wallet.tell("#payment-txid")
    chain.node.mine(1)
    wallet.state("confirming")
    wallet.navigate("Wallet")
    wallet.page.wait_for_selector('#balance[data-shown="98.7499"]')
    wallet.navigate("History")
    wallet.page.wait_for_selector("#history-transfers li >> nth=1")
    wallet.page.evaluate("location.hash = ''")
    wallet.may_sign()
    send(wallet, "typed-recipient", "98.5", "typed-reference")
    wallet.navigate("Receive")
    words = [account.address, SHOP, order, linked, txid, "98.7499", "1.25", "7.5", "Nobody sees this"]
    words += ["typed-recipient", "98.5", "typed-reference"]
    before = wallet.page.evaluate(SHOWN)
    assert [word for word in words if word not in before] == [], "they are looked for"
    wallet.page.click("#lock")
    wallet.view("unlock")
    after = wallet.page.evaluate(SHOWN)
    assert [word for word in words if word in after] == []
    wallet.unlock()
    wallet.navigate("Wallet")
    wallet.page.wait_for_selector('#balance[data-shown="98.7499"]')
    wallet.page.wait_for_selector("#home-transfers li >> nth=1")
    wallet.navigate("Receive")
    assert wallet.tell("#receive-address") == account.address
    wallet.page.wait_for_selector("#receive-qr path[d]", state="attached")


def test_answers_after_the_lock_are_not_shown(wallet: WalletPage, account: Account) -> None:
    wallet.navigate("Settings")
    wallet.page.evaluate(NOTE_ANSWERS)
    held = holding(wallet, BALANCE)
    wallet.navigate("Wallet")
    wait_for_request(wallet, held)
    wait_for_answer(wallet, f"/rpc/address/{account.address}")
    lock(wallet)
    held[0].continue_()
    wait_for_answer(wallet, f"/rpc/balance/{account.address}")
    assert wallet.page.text_content("#balance") == "…"


def test_the_address_of_a_locked_page_names_no_payment(wallet: WalletPage) -> None:
    send(wallet, SHOP, "1.25", fresh("address"))
    wallet.page.click("#send-done")
    wallet.may_sign()
    wallet.page.click("#sign")
    wallet.state("pending")
    txid = wallet.tell("#payment-txid")
    assert wallet.page.url.endswith(f"#payment={txid}")
    lock(wallet)
    assert wallet.page.url.endswith("/wallet/")
    wallet.unlock()
    wallet.state("pending")
    assert wallet.tell("#payment-txid") == txid

    wallet.page.reload()
    wallet.view("unlock")
    assert wallet.page.url.endswith("/wallet/")
    wallet.unlock()
    wallet.state("pending")

    # Nor does what the way back leads to
    wallet.navigate("Wallet")
    lock(wallet)
    assert wallet.page.url.endswith("#home")
    wallet.page.go_back()
    wait_for_true(wallet.page, "location.hash === ''")
    wallet.page.go_forward()
    wait_for_true(wallet.page, "location.hash === '#home'")
    wallet.page.go_back()
    wait_for_true(wallet.page, "location.hash === ''")
    wallet.view("unlock")


def test_a_payment_that_is_signed_behind_the_lock_is_sent_once_it_is_open(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order = fresh("signed")
    signing(wallet, order)
    lock(wallet)
    wallet.page.evaluate(LET_SIGN)
    [txid] = wallet.page.evaluate(KEPT)
    assert wallet.page.url.endswith("#review")
    locked = wallet.page.evaluate(SHOWN)
    assert [word for word in (txid, order, SHOP, "1.25") if word in locked] == []
    wallet.view("unlock")
    assert "POST /rpc/broadcast" not in wallet.watched.asked
    wallet.unlock()
    wallet.state("pending")
    assert wallet.tell("#payment-txid") == txid
    assert [each["txid"] for each in chain.paid(account.address, order)] == [txid]


def test_a_payment_that_is_signed_after_the_next_unlocking_is_sent_and_disturbs_nobody(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order = fresh("aside")
    signing(wallet, order)
    lock(wallet)
    wallet.unlock()
    wallet.view("send")
    wallet.page.fill("#send-reference", "typed-since")
    with wallet.page.expect_response(BROADCAST):
        wallet.page.evaluate(LET_SIGN)
    wallet.view("send")
    assert wallet.page.input_value("#send-reference") == "typed-since"
    assert wallet.page.evaluate(KEPT) == [each["txid"] for each in chain.paid(account.address, order)]


def test_a_nonce_that_changes_while_a_payment_waits_for_its_signature(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    """Another device has paid meanwhile: what would be signed is not what was shown."""
    order = fresh("changed")
    signing(wallet, order)
    chain.pay(account, SHOP, COIN)
    wallet.page.evaluate(LET_SIGN)
    wallet.error("review-changed")
    assert wallet.page.evaluate(KEPT) == []
    wallet.page.click("#review-details summary")
    wallet.page.wait_for_selector("#review-nonce >> text=1")
    wallet.page.click("#sign")
    wallet.state("pending")
    assert len(chain.paid(account.address, order)) == 1


HIDE = """hidden => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_payment_is_sent_also_if_the_tab_is_hidden_at_once(
    wallet: WalletPage, account: Account, chain: Chain
) -> None:
    order = fresh("hidden")
    signing(wallet, order)
    wallet.page.evaluate(HIDE, True)
    wallet.page.evaluate(LET_SIGN)
    wallet.state("pending")
    assert wallet.page.evaluate(KEPT) == [each["txid"] for each in chain.paid(account.address, order)]


def test_a_hidden_tab_asks_nothing_after_a_lock(wallet: WalletPage) -> None:
    # What the worker wants may be asked for after its end.
    wallet.checked()
    wallet.navigate("Settings")
    held = holding(wallet, "**/rpc/status")
    wallet.navigate("Wallet")
    wait_for_request(wallet, held)
    wallet.page.evaluate(HIDE, True)
    with wallet.page.expect_response("**/rpc/status"):
        held[0].continue_()
    before = len(wallet.watched.asked)
    wallet.page.evaluate("document.getElementById('lock').click()")
    wallet.view("unlock")
    wallet.page.evaluate(HIDE, False)
    # Whatever it would ask now, it would have asked before this.
    wallet.page.evaluate(KEPT)
    assert wallet.watched.asked[before:] == []


def test_refusals_after_the_lock_are_not_shown(wallet: WalletPage) -> None:
    told: list[Any] = []

    def refusing(route: Any) -> None:
        told.append(route)
        body = json.dumps({"ok": False, "error": "the words of a node"})
        route.fulfill(status=400, content_type="application/json", body=body)

    signing(wallet, fresh("late"))
    lock(wallet)
    wallet.watched.context.route(BALANCE, refusing)
    wallet.page.evaluate(LET_SIGN)
    assert told, "the node has refused"
    assert wallet.page.evaluate(KEPT) == []
    assert wallet.page.text_content("#review-error") == ""
    assert "the words of a node" not in wallet.page.evaluate(SHOWN)
    wallet.watched.forgive("400")


@pytest.mark.parametrize("fate", ["continue_", "abort"])
def test_a_payment_that_is_being_sent_when_it_is_locked_is_followed_afterwards(
    wallet: WalletPage, account: Account, chain: Chain, fate: str
) -> None:
    order = fresh("sending")
    held = holding(wallet, BROADCAST)
    wallet.page.evaluate(NOTE_ANSWERS)
    signing(wallet, order)
    wallet.page.evaluate(LET_SIGN)
    wallet.state("signed")
    txid = wallet.tell("#payment-txid")
    wait_for_request(wallet, held)
    lock(wallet)
    getattr(held[0], fate)()
    wait_for_answer(wallet, "/rpc/broadcast")
    locked = wallet.page.evaluate(SHOWN) + wallet.page.url
    assert [word for word in (txid, order, SHOP, "1.25") if word in locked] == []
    wallet.watched.context.unroute(BROADCAST)
    wallet.unlock()
    wallet.state("pending")
    assert wallet.tell("#payment-txid") == txid
    if fate == "abort":
        wallet.watched.forgive("net::ERR_FAILED")
    assert [each["txid"] for each in chain.paid(account.address, order)] == [txid]
