"""What the wallet tells somebody to whom something happens: coins that are missing, that arrive, that go back."""

import csv
import re
import secrets
from pathlib import Path
from urllib.parse import quote

import pytest
import segno
from playwright.sync_api import Page, Route

from svcd.chain.params import DEVNET
from svcd.keyfile import Pbkdf2, parse, render, seal, unseal
from tests.browser.chain import (
    COIN,
    FAUCET,
    PASSWORD,
    SHOP,
    Account,
    Chain,
    checkout_path,
    fresh,
    payment_uri,
    wallet_path,
)
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched, wait_for_true
from tests.chains import address_of

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def come_back(page: Page) -> None:
    """As when somebody comes back to the tab."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_buyer_without_coins_gets_them_pays_and_sees_the_payment_go_back(
    watched: Watched, chain: Chain, tmp_path: Path
) -> None:
    order, buyer = fresh("guided"), Account.random()
    wallet = WalletPage.opened(watched)
    wallet.bring(buyer.keyfile(tmp_path))
    wallet.view("home")

    # From the checkout to the missing coins
    shop = quote("https://shop.example/thanks", safe="")
    wallet.go(checkout_path(order, rest=f"&label=Tea%20%26%20cake&returnUrl={shop}"))
    page = wallet.page
    page.click("text=Pay in the browser")
    wallet.unlock()
    wallet.error("insufficient")
    page.click("#review-receive")
    page.wait_for_selector("#receive-missing >> text=2.5101 SVC are missing")
    assert not page.is_visible("#receive-go")

    # They arrive
    chain.pay(FAUCET, buyer.address, 3 * COIN)
    page.wait_for_selector("#receive-arriving >> text=3 SVC are arriving")
    wallet.navigate("Wallet")
    page.wait_for_selector("#home-incoming >> text=3 SVC more are arriving. Waits for the next block.")
    assert "Arriving" in wallet.tell("#home-transfers")
    assert not page.is_visible("#home-empty")
    assert "2.5 SVC" in wallet.tell("#home-open")
    wallet.navigate("Receive")
    page.wait_for_selector("#receive-arriving >> text=3 SVC are arriving")
    chain.node.mine(1)
    page.wait_for_selector("#receive-arriving >> text=3 SVC have arrived")
    page.click("#receive-go")

    # The payment, and the way back to the shop
    wallet.may_sign()
    page.click("#sign")
    wallet.state("pending", wanted=2)
    assert page.url.endswith(f"/wallet/#payment={wallet.tell('#payment-txid')}"), "a paid link stays in the address"
    assert wallet.tell("#payment-label") == "Tea & cake"
    assert wallet.tell("#payment-return") == "Back to shop.example"
    chain.node.mine(2)
    wallet.state("confirmed", confirmations=2)
    assert page.get_attribute("#payment-return", "href") == "https://shop.example/thanks"
    assert page.is_visible("#payment-print")

    # A reorganisation loses it: the same bytes are sent again
    txid = wallet.tell("#payment-txid")
    chain.reorganise(2, drop=True)
    assert chain.waiting(buyer.address) == 0
    come_back(page)
    wallet.state("pending")
    assert "sent the same payment again" in wallet.tell("#payment-fallen")
    assert chain.waiting(buyer.address) == 1
    wallet.navigate("Wallet")
    page.wait_for_selector("#home-transfers >> text=taken back by the network, sent again")
    chain.node.mine(2)
    page.wait_for_selector("#home-transfers >> text=taken back", state="detached")
    listed = wallet.tell("#home-transfers")
    assert "Tea & cake (not signed)" in listed
    assert SHOP in listed, "the label is not the recipient"
    assert order in listed
    chain.reorganise(2, drop=True)
    page.wait_for_selector("#home-transfers >> text=taken back by the network, sent again")
    assert [each["txid"] for each in chain.paid(buyer.address, order)] == [txid]

    # The history follows all of it, and as a file
    chain.reorganise(2, drop=True)
    wallet.navigate("History")
    page.wait_for_selector("#history-own >> text=taken back by the network, sent again")
    # That may have been shown before it was sent once more, as what this browser knows without its node.
    chain.wait_for(buyer.address, waiting=1)
    chain.node.mine(1)
    page.wait_for_selector("#history-transfers >> text=Tea & cake")
    page.wait_for_selector("#history-own-card", state="hidden")
    refund = f"refund:{order}"
    chain.pay(FAUCET, buyer.address, COIN, refund)
    chain.node.mine(1)
    page.wait_for_selector("#history-transfers >> text=Refund received")
    assert refund in wallet.tell("#history-transfers")
    rows = list(csv.reader(wallet.download("#history-export", tmp_path / "history.csv").decode().splitlines()))
    assert [row[1:7] for row in rows[1:]] == [
        ["received", "3", "0", "3", FAUCET.address, ""],
        ["sent", "2.5", "0.0001", "-2.5001", rows[2][5], order],
        ["received", "1", "0", "1", FAUCET.address, refund],
    ]


# The devices of Debian have no BarcodeDetector; this one reads a code once the camera gives pictures.
DETECTOR = """
globalThis.BarcodeDetector = class {
  static async getSupportedFormats() {
    return ["qr_code"];
  }
  async detect(video) {
    return video.videoWidth > 0 && globalThis.code ? [{ rawValue: globalThis.code }] : [];
  }
};
"""


CAMERA = "navigator.mediaDevices.getUserMedia = () => { globalThis.asked = true; return new Promise(() => {}); };"


@pytest.mark.parametrize("leave", ["#lock", '#navigation a[href="#home"]'])
def test_a_form_that_is_left_while_the_scanner_loads_asks_for_no_camera(wallet: WalletPage, leave: str) -> None:
    page, held = wallet.page, list[Route]()
    wallet.watched.context.add_init_script(DETECTOR + CAMERA)
    page.reload()
    wallet.unlock()
    wallet.navigate("Send")
    wallet.watched.context.route(re.compile("/static/wallet-scan[.]"), lambda route: held.append(route))
    with page.expect_request(re.compile("/static/wallet-scan[.]")) as request:
        page.click("#scan-start")
    page.click(leave)
    page.wait_for_selector("body:not([data-view=send])")
    held[0].continue_()
    page.evaluate("url => import(url).then(() => {})", request.value.url)
    assert page.evaluate("globalThis.asked") is None


def test_links_are_pasted_and_scanned(wallet: WalletPage, account: Account, chain: Chain) -> None:
    order, page = fresh("pasted"), wallet.page
    wallet.watched.context.grant_permissions(["camera"])
    wallet.watched.context.add_init_script(DETECTOR)
    page.reload()
    wallet.unlock()
    wallet.navigate("Send")
    page.fill("#send-recipient", "svc:nobody?ref=x")
    page.press("#send-recipient", "Enter")
    wallet.error("address")
    page.fill("#send-recipient", wallet.watched.origin + wallet_path(payment_uri(order)))
    page.press("#send-recipient", "Enter")
    wallet.may_sign()
    assert (wallet.shown("#review-amount"), wallet.tell("#review-reference")) == ("2.5", order)

    # A reload shows the same payment, and home leads to it
    page.reload()
    wallet.unlock()
    wallet.may_sign()
    wallet.navigate("Wallet")
    page.click("#home-open-go")
    wallet.may_sign()

    wallet.navigate("Send")
    page.click("#scan-start")
    page.wait_for_selector("#scan-video:visible")
    page.evaluate("uri => { globalThis.code = uri }", payment_uri(fresh("scanned"), amount="1.25"))
    wallet.may_sign()
    assert wallet.shown("#review-amount") == "1.25"
    page.click("#sign")
    wallet.state("pending")
    assert not page.is_visible("#payment-print"), "there is nothing to receipt yet"
    wallet.navigate("Send")
    page.evaluate("address => { globalThis.code = address }", SHOP)
    page.click("#scan-start")
    wait_for_true(page, "address => document.getElementById('send-recipient').value === address", SHOP)
    assert not page.is_visible("#scan-video")
    # What is not granted after a grant is refused without a question.
    wallet.watched.context.clear_permissions()
    wallet.watched.context.grant_permissions(["geolocation"])
    page.click("#scan-start")
    page.wait_for_selector("#scan-error[data-error=camera]")
    assert not page.is_visible("#scan-video")

    # All but the account minimum, after the block with the first payment
    chain.node.mine(1)
    page.click("#send-all")
    page.wait_for_selector("#send-all:not([aria-busy])")
    page.click("#send-done")
    wallet.may_sign()
    assert [wallet.shown(f"#review-{name}") for name in ("amount", "after")] == ["98.7398", "0.01"]
    page.click("#sign")
    wallet.state("pending")
    chain.node.mine(1)
    assert chain.node.account(account.address)["balance"] == "1000000"


# A browser without BarcodeDetector, and a camera before which there is a code, a little tilted.
LOOKING_AT = """
delete globalThis.BarcodeDetector;
const canvas = Object.assign(document.createElement("canvas"), { width: 640, height: 480 });
const picture = canvas.getContext("2d");
setInterval(() => {
  const { code = [] } = globalThis;
  picture.resetTransform();
  picture.fillStyle = "#ddd";
  picture.fillRect(0, 0, 640, 480);
  picture.rotate(0.1);
  picture.fillStyle = "#222";
  code.forEach((row, y) => row.forEach((dark, x) => dark && picture.fillRect(150 + 6 * x, 30 + 6 * y, 6, 6)));
}, 50);
navigator.mediaDevices.getUserMedia = async () => canvas.captureStream();
"""


def test_a_browser_that_reads_no_codes_itself_loads_a_reader(wallet: WalletPage) -> None:
    page, order = wallet.page, fresh("read")
    wallet.watched.context.add_init_script(LOOKING_AT)
    page.reload()
    wallet.unlock()
    wallet.navigate("Send")
    page.click("#scan-start")
    page.wait_for_selector("#scan-video:visible")
    assert any(each.startswith("GET /static/qr-reader.") for each in wallet.watched.asked)
    matrix = segno.make_qr(payment_uri(order, amount="1.25"), error="l").matrix
    page.evaluate("code => { globalThis.code = code }", [list(row) for row in matrix])
    wallet.may_sign()
    assert (wallet.shown("#review-amount"), wallet.tell("#review-reference")) == ("1.25", order)
    assert not page.is_visible("#scan-video")


def test_too_little_for_a_new_recipient_is_not_signed(wallet: WalletPage) -> None:
    wallet.navigate("Send")
    wallet.page.fill("#send-recipient", address_of("newcomer", "svcd"))
    wallet.page.fill("#send-amount", "0.009")
    wallet.page.click("#send-done")
    assert "the amount must be at least 0.01 SVC" in wallet.error("recipient-minimum")
    assert wallet.page.is_disabled("#sign")


def test_the_password_is_changed_and_guessing_never_becomes_cheaper(
    watched: Watched, account: Account, tmp_path: Path
) -> None:
    costly = seal(account.seed, PASSWORD, params=DEVNET, random=secrets.token_bytes, kdf=Pbkdf2(iterations=3_000_000))
    path = tmp_path / "costly.json"
    path.write_bytes(render(costly))
    wallet = WalletPage.opened(watched)
    wallet.bring(path)
    wallet.view("home")
    page, other = wallet.page, WalletPage.opened(wallet.watched)
    other.unlock()
    other.view("home")
    wallet.navigate("Settings")
    for old, new, code, field in (
        ("wrong", "another horse grazes", "wrong-password", "change-old"),
        (PASSWORD, "short", "password-short", "change-new"),
        (PASSWORD, "Password2024", "password-weak", "change-new"),
    ):
        page.fill("#change-old", old)
        page.fill("#change-new", new)
        page.fill("#change-again", new)
        page.click("#change-done")
        wallet.error(code)
        assert page.evaluate("document.activeElement.id") == field
    page.fill("#change-new", "another horse grazes")
    page.fill("#change-again", "another horse grazes")
    page.click("#change-done")
    page.wait_for_selector("#change-live >> text=The password is changed")
    other.unlock(PASSWORD)
    other.error("wrong-password")
    other.unlock("another horse grazes")
    other.view("home")
    keyfile = parse(wallet.download("#settings-keyfile", tmp_path / "keyfile.json"))
    assert unseal(keyfile, "another horse grazes")
    assert isinstance(keyfile.kdf, Pbkdf2)
    assert keyfile.kdf.iterations >= 3_000_000
