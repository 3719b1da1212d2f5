"""The pages in the three browser engines: from a look at the chain to a payment that the network takes back."""

import copy
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from svcd.chain.params import NETWORKS
from svcd.keyfile import Keyfile, Pbkdf2, parse, render, seal, unseal
from svcd.pages.static_files import PAGE, static_files
from tests.browser.between import Between, Reply, about
from tests.browser.chain import (
    CHOOSE_PROOF,
    FAUCET,
    SHOP,
    Account,
    Chain,
    checkout_path,
    fresh,
    payment_uri,
    wallet_path,
)
from tests.browser.engines import Tab, checked, in_one_engine, make_wallet, unlock
from tests.cli.terminal import PASSWORD, SEED
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import DEADLINE, RunningNode, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet whose pages list the links of one shop."""
    nodes = Nodes(tmp_path_factory.mktemp("engines"))
    node = nodes.start(*DEVNET, f'--set=pages.recipients=["{SHOP}"]', '--set=pages.returnHosts=["shop.example"]')
    node.mine(3)
    yield node
    nodes.stop()


@pytest.fixture(scope="module")
def chain(node: RunningNode) -> Chain:
    """The chain of the node."""
    return Chain(node)


def test_a_payment_that_the_network_takes_back(tab: Tab, chain: Chain) -> None:
    order, height = fresh("engine"), chain.node.status()["height"]

    # The explorer
    tab.go("/")
    tab.type("input[name=q]", height, enter=True)
    tab.see(f'main a.button[href="/block/{int(height) - 1}"]')

    # The wallet, and coins for it
    address = make_wallet(tab)
    chain.fund(address)
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="100"]')
    checked(tab)

    # From the checkout to the payment
    tab.go(checkout_path(order))
    tab.see("[data-when=unpaid]")
    tab.click('#payment [data-offer] a[href^="/wallet/"]')
    unlock(tab)
    tab.see('#review-amount[data-shown="2.5"]')
    tab.click("#sign")
    tab.see("#payment-state[data-state=pending]")
    txid = tab.text("#payment-txid")
    chain.node.mine(1)
    tab.see('#payment-state[data-state=confirming][data-confirmations="1"]')

    # The checkout turns to paid while it is open
    tab.go(checkout_path(order))
    tab.see("[data-when=confirming]")
    first = chain.node.mine(1)
    tab.see("[data-when=confirmed]")

    # The network takes it back, and the wallet hands it in again
    chain.reorganise(2, drop=True)
    tab.reload()
    tab.see("[data-when=gone]")
    tab.click('[data-when=gone] a[href^="/wallet/"]')
    unlock(tab)
    tab.see("#payment-state[data-state=pending]")
    tab.see("#payment-fallen")
    assert chain.waiting(address) == 1

    # The explorer follows it into another block
    tab.go(f"/tx/{txid}")
    tab.see(f'[data-txid="{txid}"][data-block=""]')
    second = chain.node.mine(2)
    tab.see(f'[data-txid="{txid}"][data-block="{second[0]}"]')
    assert first != second

    # And all is as it was
    tab.go(checkout_path(order))
    tab.see("[data-when=confirmed]")
    tab.go("/wallet/")
    unlock(tab)
    tab.click(f'#home-transfers a[href="#payment={txid}"]')
    tab.see('#payment-state[data-state=confirmed][data-confirmations="2"]')
    assert tab.texts("#payment-fallen") == []
    assert [each["txid"] for each in chain.paid(address, order)] == [txid]


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden === "hidden", configurable: true });
  return document.dispatchEvent(new Event("visibilitychange"));
}"""
COUNT_PENDING = """() => {
  const ask = window.fetch;
  window.pending = 0;
  window.fetch = (...given) => {
    window.pending += 1;
    return ask(...given).finally(() => (window.pending -= 1));
  };
  return true;
}"""


def test_the_balance_is_checked_against_the_chain(tab: Tab, chain: Chain, liar: Between) -> None:
    liar.lie, tab.origin = None, liar.url
    before = len(liar.asked)
    address = make_wallet(tab)
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="0"]')
    checked(tab)
    asked = liar.asked[before:]
    assert [path for path in asked if path.startswith("/rpc/proof/chain?tip=")] != []
    assert [path for path in asked if path.startswith("/static/light-worker.")] != []

    # Of a later visit only the new blocks are checked. The first page has ended before there are any.
    tab.go("/peers")
    chain.fund(address)
    before = len(liar.asked)
    tab.go("/wallet/")
    unlock(tab)
    tab.see('#balance[data-shown="100"]')
    checked(tab)
    asked = liar.asked[before:]
    assert [path for path in asked if path.startswith("/p2p/headers?from=")] != []
    assert [path for path in asked if path.startswith("/rpc/proof/chain")] == []


@in_one_engine
def test_a_forged_balance_is_told(tab: Tab, chain: Chain, liar: Between) -> None:
    forged: list[str] = ["/rpc/balance/"]

    def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
        if not any(path.startswith(each) for each in forged):
            return None
        reply = node()
        answer = json.loads(reply.body)
        for account in (answer.get("account"), answer.get("proof", {}).get("leaf")):
            if account is not None:
                account["balance"] = "900000000000"
        return Reply(reply.status, reply.headers, json.dumps(answer).encode())

    liar.lie, tab.origin = None, liar.url
    chain.fund(make_wallet(tab))
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="100"]')
    checked(tab)
    liar.lie = lie
    tab.see("#home-unproved[data-error=unproved]")
    assert "9\u202f000" in tab.text("#home-unproved") or "9000" in tab.text("#home-unproved")
    assert tab.texts("#home-checked") == []

    # A proof that was forged, too, does not lead to the chain
    forged.append("/rpc/proof/account/")
    tab.reload()
    unlock(tab)
    tab.see("#home-unproved[data-error=unproved]")
    assert "the path does not lead to the stateRoot" in tab.text("#home-unproved")
    liar.lie = None
    checked(tab)


@in_one_engine
def test_a_forged_chain_is_told(tab: Tab, liar: Between) -> None:
    def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path.startswith("/p2p/headers"):
            return Reply.json(404, {"ok": False, "error": "there is no such route"})
        if not path.startswith("/rpc/proof/chain"):
            return None
        answer = json.loads(node().body)
        answer["proof"]["headers"][0]["workNonce"] = "0" * 16
        return Reply.json(200, answer)

    liar.lie, tab.origin = lie, liar.url
    make_wallet(tab)
    tab.click('#navigation a[href="#home"]')
    tab.see("#home-unproved[data-error=unproved]")
    assert "does not build on the block before it" in tab.text("#home-unproved")

    # What was wrong stays wrong while nothing is proven, also after another view
    def refuse(path: str, node: Callable[[], Reply]) -> Reply | None:
        return Reply.json(503, {"ok": False, "error": "later"}) if path.startswith("/rpc/proof/") else None

    tab.forgiven.append("status of 503")
    liar.lie = refuse
    tab.click('#navigation a[href="#receive"]')
    before = len(liar.asked)
    tab.click('#navigation a[href="#home"]')
    wait_until(lambda: any(path.startswith("/rpc/proof/account") for path in liar.asked[before:]), "it is asked again")
    before = len(liar.asked)
    wait_until(lambda: any(path.startswith("/rpc/balance/") for path in liar.asked[before:]), "a balance is asked for")
    assert (tab.texts("#home-unproved") != [], tab.texts("#home-checked")) == (True, [])
    liar.lie = None
    checked(tab)


def test_a_worker_that_is_not_served_is_told(tab: Tab, liar: Between) -> None:
    def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
        if not path.startswith("/static/light-worker."):
            return None
        return Reply.json(503, {"ok": False, "error": "later"})

    liar.lie, tab.origin = lie, liar.url
    tab.forgiven += ["status of 503", "Worker.*/static/light-worker"]
    make_wallet(tab)
    tab.click('#navigation a[href="#home"]')
    tab.see("#home-unproved[data-error=unproved]")
    assert tab.text("#home-unproved").startswith("Not checked against the chain")
    liar.lie = None
    checked(tab)


def test_scripts_that_are_loaded_later_may_be_missing(tab: Tab, liar: Between) -> None:
    def refuse(*names: str) -> None:
        def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
            missing = any(path.startswith(f"/static/{name}.") for name in names)
            return Reply.json(503, {"ok": False, "error": "later"}) if missing else None

        liar.lie, tab.origin = lie, liar.url

    tab.forgiven += ["status of 503", "Loading (?:failed for the )?module"]
    refuse("passwords")
    tab.go("/wallet/")
    tab.click("#create-start")
    tab.see("#stopped-error[data-error=node-unreachable]")
    refuse("qr")
    address = make_wallet(tab)
    tab.until(lambda: tab.texts("#receive-qr") == [], "there is no white square")
    assert tab.text("#receive-address") == address
    refuse()
    tab.go("/wallet/")
    unlock(tab)
    tab.click('#navigation a[href="#receive"]')
    tab.until(lambda: tab.attribute("#receive-qr path", "d").startswith("M"), "the code is drawn")


def test_a_hidden_tab_loads_no_worker(tab: Tab, liar: Between) -> None:
    hidden = threading.Event()

    def hold(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path.startswith("/rpc/balance/"):
            hidden.wait(DEADLINE)
        return None

    liar.lie, tab.origin = hold, liar.url
    first = len(liar.asked)
    make_wallet(tab)
    before = len(liar.asked)
    tab.click('#navigation a[href="#home"]')
    # On a devnet the page asks for the balance of the faucet, too.
    balances = ("/rpc/balance/", f"/rpc/balance/{FAUCET.address}")
    wait_until(
        lambda: any(path.startswith(balances[0]) and path != balances[1] for path in liar.asked[before:]),
        "the balance is held",
    )
    tab.evaluate(HIDE, "hidden")
    hidden.set()
    tab.see('#balance[data-shown="0"]')
    # What the page would load now, it would have asked for before this.
    tab.evaluate("() => (fetch('/p2p/status'), true)")
    wait_until(lambda: "/p2p/status" in liar.asked[before:], "the later request")
    assert [path for path in liar.asked[first:] if path.startswith("/static/light-worker.")] == []
    tab.evaluate(HIDE, "shown")
    checked(tab)


KEEP = """(text) => {
  const opening = indexedDB.open("svc-wallet");
  opening.onsuccess = () => {
    const writing = opening.result.transaction("keyfile", "readwrite");
    writing.objectStore("keyfile").put(JSON.parse(text), "keyfile");
    writing.oncomplete = () => { opening.result.close(); document.body.dataset.tested = "kept"; };
  };
  return true;
}"""
"""Stores a keyfile, as the page does."""
KEPT = """() => {
  const opening = indexedDB.open("svc-wallet");
  opening.onsuccess = () => {
    const reading = opening.result.transaction("keyfile").objectStore("keyfile").get("keyfile");
    reading.onsuccess = () => {
      opening.result.close();
      document.body.dataset.tested = JSON.stringify(reading.result);
    };
  };
  return true;
}"""
"""Puts the stored keyfile where the test can read it."""


def kept(tab: Tab) -> Keyfile:
    """The keyfile that the browser stores."""
    tab.evaluate(KEPT)
    tab.see("body[data-tested]")
    return parse(tab.attribute("body", "data-tested").encode())


def test_a_weak_keyfile_is_encrypted_anew_when_it_is_unlocked(tab: Tab) -> None:
    weak = seal(SEED, PASSWORD, params=NETWORKS["devnet"], random=secrets.token_bytes, kdf=Pbkdf2(iterations=600_000))
    tab.go("/wallet/")
    tab.see("body[data-view=welcome]")
    tab.evaluate(KEEP, render(weak).decode())
    tab.see("body[data-tested=kept]")
    tab.reload()
    tab.type("#unlock-password", PASSWORD, enter=True)
    tab.see("body[data-view=home]")
    renewed = kept(tab)
    assert isinstance(renewed.kdf, Pbkdf2)
    assert renewed.kdf.iterations >= 1_000_000
    assert unseal(renewed, PASSWORD) == SEED

    # The next time it is opened as it is
    tab.reload()
    tab.type("#unlock-password", PASSWORD, enter=True)
    tab.see("body[data-view=home]")
    assert kept(tab) == renewed


LABEL, BACK = "&label=Your%20order%20at%20shop.example", "&returnUrl=https%3A%2F%2Fshop.example%2Fthanks"


def test_a_forged_link(tab: Tab, chain: Chain) -> None:
    make_wallet(tab)
    order, told = fresh("forged"), "This site did not make this link"

    # The shop's own link
    tab.go(checkout_path(order, rest=LABEL + BACK))
    tab.see("[data-when=unpaid]")
    assert tab.texts("[data-unlisted]") == []
    assert tab.text("main .label") == "Your order at shop.example"
    assert tab.text("[data-return] a").strip() == "Back to shop.example"

    # The same with the address of somebody else
    mallory = Account.random().address
    tab.go(checkout_path(order, recipient=mallory, rest=LABEL + BACK))
    assert tab.text("main > :first-child").startswith(told)
    tab.see("[data-when=unpaid]")
    assert tab.texts("main .label") + tab.texts("[data-return] a") == []

    # In the wallet, from the checkout and from a link with a label
    tab.click('#payment [data-offer] a[href^="/wallet/"]')
    unlock(tab)
    assert tab.text("[data-error=unlisted]").startswith(told)
    tab.go(wallet_path(payment_uri(order, recipient=mallory, rest=LABEL)) + BACK)
    unlock(tab)
    assert tab.evaluate("() => location.search + location.hash.slice(0, 5)") == "#pay="
    assert tab.text("[data-error=unlisted]").startswith(told)
    assert tab.text("#review-recipient") == mallory
    assert tab.texts("#review-label") == []

    # The shop's own link there
    tab.go(wallet_path(payment_uri(order, rest=LABEL)) + BACK)
    unlock(tab)
    assert tab.text("#review-label") == "Your order at shop.example"
    assert tab.texts("[data-error=unlisted]") == []


@in_one_engine
def test_a_liar_that_relays_and_answers_400(tab: Tab, chain: Chain, liar: Between) -> None:
    """It hides what it has relayed, too, and lies about the nonce: the buyer pays once."""
    tab.origin = liar.url
    address, order = make_wallet(tab), fresh("liar")
    chain.fund(address)

    def hide(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path == "/rpc/broadcast":
            node()
            return Reply.json(400, {"ok": False, "error": "the pool is full"})
        if path.startswith("/rpc/transaction/"):
            return Reply.json(404, {"ok": False, "error": "no block holds it", "mempool": False})
        if path.startswith("/rpc/commerce/payment/"):
            return Reply.json(200, {"ok": True, "payment": {**about(path), "state": "unpaid"}})
        if "/transactions" in path or path.startswith("/rpc/mempool/"):
            return Reply.json(200, {"ok": True, **about(path), "transactions": [], "next": None})
        return None

    def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path.startswith("/rpc/balance/"):
            account = {"balance": "9000000000", "pendingBalance": "9000000000", "nonce": "0", "pendingNonce": "0"}
            return Reply.json(200, {"ok": True, "account": {**about(path), **account}})
        return hide(path, node)

    # It waits at the node, under the nonce that a second transfer would have
    liar.lie = hide
    tab.go(wallet_path(payment_uri(order)))
    unlock(tab)
    tab.click("#sign")
    tab.see("#payment-state[data-state=refused]")
    tab.see("#payment-again[data-error=nonce-waits]")
    txid = tab.text("#payment-txid")
    assert tab.texts("#sign-again") == []

    # It is paid, and has used that nonce
    chain.node.mine(1)
    tab.reload()
    unlock(tab)
    tab.see("#payment-again[data-error=nonce-used]")
    assert tab.texts("#sign-again") == []

    # The liar denies that, too: a second transfer has the same nonce, so no block takes it
    liar.lie = lie
    tab.reload()
    unlock(tab)
    tab.click("#sign-again")
    tab.see("#payment-state[data-state=refused]")
    liar.lie = None
    tab.reload()
    unlock(tab)
    tab.see("#payment-state[data-state=confirming]")
    assert tab.text("#payment-txid") == txid
    assert [each["txid"] for each in chain.paid(address, order)] == [txid]


CLOCK = b"""
globalThis.shift = 0;
const real = Date.now;
Date.now = () => real() + globalThis.shift;
"""


def test_a_wallet_that_nobody_uses(tab: Tab, liar: Between) -> None:
    """It locks, clears the words of a new wallet, and asks nothing in a hidden tab."""
    tab.origin = liar.url
    files = static_files()
    scripts = files.linked_from(files.html(PAGE))

    def with_clock(path: str, node: Callable[[], Reply]) -> Reply | None:
        """The page's own program, behind a clock that the test can set."""
        if not path.startswith("/static/wallet.") or not path.endswith(".mjs"):
            return None
        script = scripts[path]
        return Reply(200, {"Content-Type": "text/javascript", "Cache-Control": "no-store"}, CLOCK + script)

    def later(milliseconds: int) -> None:
        tab.evaluate("(by) => (globalThis.shift += Number(by))", str(milliseconds))

    liar.lie = with_clock
    tab.go("/wallet/")
    tab.click("#create-start")
    tab.see("#words li:nth-child(24)")
    words = tab.texts("#words li")
    tab.click("#words-done")
    tab.see("#quiz-1")
    later(300_000)
    tab.see("#welcome-cleared")
    page = str(tab.evaluate("() => document.documentElement.outerHTML"))
    assert [word for word in words if f">{word}<" in page] == []

    make_wallet(tab)
    tab.evaluate(COUNT_PENDING)
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="0"]')
    later(300_000)
    unlock(tab)
    tab.see('#balance[data-shown="0"]')
    later(-3_600_000)
    unlock(tab)
    tab.see('#balance[data-shown="0"]')
    checked(tab)

    # It would ask every two seconds
    tab.evaluate(HIDE, "hidden")
    tab.until(lambda: tab.evaluate("() => window.pending === 0"), "what was asked before is answered")
    before = len(liar.asked)
    time.sleep(5)
    assert liar.asked[before:] == []
    tab.evaluate(HIDE, "shown")
    wait_until(lambda: len(liar.asked) > before, "the node is asked again")
    liar.lie = None


def test_a_payment_proof_is_checked_by_the_browser(tab: Tab, node: RunningNode, chain: Chain) -> None:
    order = fresh("proof")
    txid = chain.pay(FAUCET, SHOP, 250_000_000, order)
    tip = node.mine(3)[-1]
    tab.go(f"/tx/{txid}")
    tab.see('a[href="/proof/"]')
    path = tab.attribute("a[download]", "href")
    answer = node.ok(node.get(path))
    tab.click('a[href="/proof/"]')
    tab.see("#proof-file:enabled")
    tab.evaluate(CHOOSE_PROOF, json.dumps(answer))
    tab.see('#proof[data-shown="proven"]')
    shown = {
        name: tab.text(f"[data-fill={name}]") for name in ("recipient", "reference", "txid", "confirmations", "tip")
    }
    assert (shown["recipient"], shown["reference"], shown["txid"], shown["confirmations"]) == (SHOP, order, txid, "3")
    assert shown["tip"].endswith(tip)
    assert tab.text("[data-fill=amount]") == "2.5\u00a0SVC"

    def refused(text: str, sentence: str) -> None:
        tab.evaluate(CHOOSE_PROOF, text)
        tab.see('#proof[data-shown="refused"]')
        assert sentence in tab.text("[data-view=refused] [data-fill=reason]")
        assert tab.texts("[data-fill=amount]") == []

    # Another amount, and a chain whose newest block took no work
    forged = copy.deepcopy(answer)
    forged["proof"]["transaction"]["payload"]["amount"] = "900000000"
    refused(json.dumps(forged), "the signature of the transfer is not its sender's")
    worthless = copy.deepcopy(answer)
    worthless["proof"]["chain"]["headers"][-1]["workNonce"] = "0" * 16
    refused(json.dumps(worthless), "and not its tip")
    refused("no proof", "the file is not JSON")
    tab.evaluate(CHOOSE_PROOF, json.dumps(answer))
    tab.see('#proof[data-shown="proven"]')
