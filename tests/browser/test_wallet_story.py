"""What somebody does with a wallet, from the first visit to a payment that is settled."""

from pathlib import Path

import pytest

from tests.browser.chain import PASSWORD, SHOP, Chain, fresh, payment_uri, wallet_path
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, wait_for_true

pytestmark = [pytest.mark.socket, pytest.mark.slow]

# For a second and a half a button says that it has copied: what it says is written down.
NOTE_WORDS = """(id) => {
  const button = document.getElementById(id);
  window.words = [];
  const noting = new MutationObserver(() => words.push(button.textContent));
  noting.observe(button, { childList: true, characterData: true, subtree: true });
}"""


@pytest.mark.story
def test_from_the_first_visit_to_a_settled_payment(watched: Watched, chain: Chain, tmp_path: Path) -> None:
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    wallet = WalletPage.opened(watched)
    page = wallet.page

    # The words, the three questions, the password, the keyfile
    wallet.view("welcome")
    page.click("#create-start")
    words = wallet.words()
    assert len(words) == 24
    page.click("#words-done")
    wallet.view("quiz")
    assert page.locator("#words li").count() == 0, "the words stay on the page"
    wallet.answer_quiz(words)
    wallet.choose_password()
    keyfile = wallet.download("#download-keyfile", tmp_path / "keyfile.json")
    # One word alone may be that of a field, such as "salt".
    assert " ".join(words[:2]).encode() not in keyfile
    page.click("#keyfile-done")
    wallet.view("home")

    # Locked again by a reload
    page.reload()
    wallet.unlock()
    wallet.view("home")
    assert "Nothing yet" in wallet.tell("#home-empty")

    # Being paid
    wallet.navigate("Receive")
    address = wallet.tell("#receive-address")
    page.evaluate(NOTE_WORDS, "receive-copy")
    page.click("#receive-copy")
    wait_for_true(page, "words.includes('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == address
    chain.fund(address, "100")
    wallet.navigate("Wallet")
    page.wait_for_selector('#balance[data-shown="100"]')
    page.wait_for_selector("#home-transfers li")

    # Paying by a link
    order = fresh("order")
    wallet.go(wallet_path(payment_uri(order, amount="25.5", rest="&confirmations=3&label=Caf%C3%A9%20%26%20cake")))
    wallet.unlock(PASSWORD)
    wallet.may_sign()
    assert (wallet.tell("#review-recipient"), wallet.tell("#review-reference")) == (SHOP, order)
    shown = [wallet.shown(f"#review-{name}") for name in ("amount", "fee", "total", "after")]
    assert shown == ["25.5", "0.0001", "25.5001", "74.4999"]
    assert wallet.tell("#review-label") == "Café & cake"
    assert "unverified, from the link" in wallet.tell("#review-label-value")
    assert wallet.tell("#review-network").lower() == "devnet"
    assert chain.waiting(address) == 0, "something was sent before anybody signed"
    page.click("#sign")
    wallet.view("payment")
    wallet.state("pending", confirmations=0, wanted=3)

    # What was signed is what was shown
    txid = wallet.tell("#payment-txid")
    chain.node.mine(1)
    wallet.state("confirming", confirmations=1)
    assert wallet.tell("#payment-state") == "Waits for the next block: 1 of 3 confirmations."
    found = chain.node.ok(chain.node.get(f"/rpc/transaction/{txid}"))["transaction"]
    assert found["payload"] == {"recipient": SHOP, "amount": "2550000000", "paymentReference": order}
    assert (found["senderAddress"], found["fee"]) == (address, "10000")
    chain.node.mine(1)
    wallet.state("confirming", confirmations=2)
    chain.node.mine(1)
    wallet.state("confirmed", confirmations=3)
    assert wallet.tell("#payment-state") == "The payment is confirmed: it has 3 confirmations."
    chain.node.mine(2)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    wallet.state("confirmed", confirmations=5)
    assert wallet.tell("#payment-state") == "The payment is confirmed: it has 5 confirmations."
    assert page.title() == "Paid · SVC"

    # The history
    wallet.navigate("History")
    page.wait_for_selector("#history-transfers li >> nth=1")
    assert page.locator("#history-transfers li").count() == 2
    assert "25.5" in wallet.tell("#history-transfers")
    wallet.navigate("Wallet")
    page.wait_for_selector('#balance[data-shown="74.4999"]')


def test_a_transfer_without_a_link(wallet: WalletPage, chain: Chain) -> None:
    wallet.navigate("Send")
    page = wallet.page
    page.fill("#send-recipient", SHOP[:-1] + "q")
    page.fill("#send-amount", "1,250")
    page.click("#send-done")
    wallet.error("address")
    page.fill("#send-recipient", f"  {SHOP} ")
    page.click("#send-done")
    wallet.error("amount")
    page.fill("#send-amount", "1.5")
    page.fill("#send-reference", "no blanks please")
    page.click("#send-done")
    wallet.error("reference")
    page.fill("#send-reference", "")
    page.click("#send-done")
    wallet.may_sign()
    assert wallet.tell("#review-reference") == "none"
    assert not page.is_visible("#review-label")
    page.click("#sign")
    wallet.state("pending", wanted=12)
    chain.node.mine(12)
    wallet.state("confirmed", confirmations=12)


def test_a_link_that_leaves_the_amount_to_the_person(wallet: WalletPage, chain: Chain) -> None:
    order = fresh("open")
    wallet.follow(payment_uri(order, amount=None).replace("svc:", "web+svc:"))
    wallet.view("review")
    wallet.page.fill("#review-amount-input", "1e3")
    wallet.page.click("#review-amount-done")
    wallet.error("amount")
    wallet.page.fill("#review-amount-input", "1.25")
    wallet.page.click("#review-amount-done")
    wallet.may_sign()
    assert wallet.shown("#review-total") == "1.2501"
    wallet.page.click("#sign")
    wallet.state("pending")
    txid = wallet.tell("#payment-txid")

    wallet.follow(payment_uri(order, amount=None))
    wallet.view("payment")
    assert wallet.tell("#payment-txid") == txid
    chain.node.mine(1)
