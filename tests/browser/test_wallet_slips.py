"""A slip of the hand costs nobody a key or a coin."""

from pathlib import Path

import pytest

from tests.browser.chain import SHOP, Account, fresh, payment_uri, wallet_path
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched

pytestmark = [pytest.mark.socket, pytest.mark.slow]

KEPT = """() => new Promise((done) => {
  const opening = indexedDB.open("svc-wallet");
  opening.onsuccess = () => {
    const asking = opening.result.transaction("keyfile").objectStore("keyfile").get("keyfile");
    asking.onsuccess = () => done(asking.result.address);
  };
})"""
FULL = """() => {
  IDBDatabase.prototype.transaction = () => { throw new DOMException("full", "QuotaExceededError"); };
}"""
PUT = """(keyfile) => new Promise((done) => {
  const opening = indexedDB.open("svc-wallet");
  opening.onsuccess = () => {
    const writing = opening.result.transaction("keyfile", "readwrite");
    writing.objectStore("keyfile").put(keyfile, "keyfile");
    writing.oncomplete = done;
  };
})"""


def test_skipping_to_the_content_stays_in_the_view(wallet: WalletPage) -> None:
    wallet.navigate("History")
    wallet.page.focus("#skip")
    wallet.page.keyboard.press("Enter")
    assert wallet.page.evaluate("document.activeElement.id") == "main"
    wallet.view("history")


@pytest.mark.parametrize("fragment", ["main", "import", "create"])
def test_a_page_that_was_stopped_makes_no_wallet(wallet: WalletPage, fragment: str) -> None:
    wallet.go(wallet_path(f"svc:{SHOP}?amount=0&ref=A"))
    wallet.view("stopped")
    wallet.page.evaluate("(name) => { location.hash = name; }", fragment)
    wallet.page.evaluate("() => new Promise((done) => setTimeout(done))")
    wallet.view("stopped")


def test_another_tab_that_was_quicker_keeps_its_wallet(watched: Watched, account: Account, tmp_path: Path) -> None:
    wallet = WalletPage.opened(watched)
    wallet.view("welcome")
    wallet.page.evaluate(PUT, {"address": "the other one"})
    wallet.bring(account.keyfile(tmp_path))
    wallet.error("no-storage")
    assert wallet.page.evaluate(KEPT) == "the other one"


def test_one_click_does_not_remove_a_key_that_is_not_open(wallet: WalletPage, tmp_path: Path) -> None:
    wallet.page.evaluate(PUT, {"address": "damaged"})
    wallet.page.reload()
    wallet.error("damaged-keyfile")
    assert not wallet.page.is_visible("#stopped-remove")
    wallet.download("#stopped-download", tmp_path / "kept.json")
    wallet.page.click("#stopped-remove")
    wallet.view("welcome")


def test_a_removal_that_fails_is_told(wallet: WalletPage) -> None:
    wallet.page.click("#lock")
    wallet.view("unlock")
    wallet.page.click("summary")
    wallet.page.check("#forgot-confirm")
    wallet.page.evaluate(FULL)
    wallet.page.click("#forgot-remove")
    wallet.error("no-storage")


def test_a_payment_that_is_not_shown_yet_cannot_be_signed(wallet: WalletPage) -> None:
    wallet.follow(payment_uri(fresh("slow")))
    wallet.may_sign()
    wallet.navigate("Send")
    wallet.page.fill("#send-recipient", SHOP)
    wallet.page.fill("#send-amount", "1")
    wallet.page.click("#send-done")
    wallet.may_sign()
    wallet.page.evaluate("() => { IDBObjectStore.prototype.get = () => ({}); }")
    wallet.page.evaluate("() => { location.hash = ''; }")
    wallet.page.wait_for_selector("#sign[disabled]")
    assert wallet.shown("#review-amount") == "1"
