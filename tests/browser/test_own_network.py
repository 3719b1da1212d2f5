"""The wallet on a network of somebody's own, in three engines: whose network it is, and what it pays there."""

import copy
import json
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve, frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, NetworkParams, ProducerChange
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, sign_transfer
from svcd.config.network_file import render_network_file
from svcd.keyfile import Pbkdf2, parse, render, seal, unseal
from svcd.seed_file import SeedKind, render_seed
from tests.browser.between import Between, Reply
from tests.browser.chain import CHOOSE_PROOF, COIN, PASSWORD, fresh, payment_uri, wallet_path
from tests.browser.engines import Tab, checked, in_one_engine, make_wallet, unlock
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.conftest import Nodes
from tests.process_level.running import RunningNode, free_port, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PREFIX: Final = "fest"
FEE: Final = 20_000


def address_of(seed: bytes) -> str:
    return encode_address(key_hash(public_key_of(seed)), PREFIX)


@frozen
class Festival:
    """A network of somebody's own with one producer, and its only node."""

    params: NetworkParams
    node: RunningNode
    founder: bytes
    """The seed of somebody who has coins from the beginning."""

    @property
    def genesis_hash(self) -> str:
        return self.params.genesis_hash.hex()

    @property
    def link(self) -> str:
        """What a founder gives to the members."""
        return f"/wallet/#network={self.genesis_hash}"

    def pay(self, recipient: str, coins: int, reference: str | None = None) -> str:
        """A payment of the founder, outside of the browser; its txid."""
        nonce = int(self.node.account(address_of(self.founder))["pendingNonce"])
        now = int(time.time() * 1000)
        draft = Draft(
            recipient=recipient, amount=coins * COIN, fee=FEE, nonce=nonce, timestamp=now, reference=reference
        )
        wire = sign_transfer(draft, seed=self.founder, params=self.params).wire
        return str(self.node.ok(self.node.post("/rpc/broadcast", b'{"transaction":' + wire + b"}"))["txid"])


@pytest.fixture(scope="module")
def festival(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Festival]:
    """A network whose producer has changed, and which has a block every few seconds."""
    folder = tmp_path_factory.mktemp("festival")
    former, producer, founder = (secrets.token_bytes(32) for _ in range(3))
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    params = evolve(
        DEVNET,
        name="festival",
        unit="Token",
        network_id=48_213,
        chain_id="FESTIVAL",
        address_prefix=PREFIX,
        genesis_time=1000 * int(began.timestamp()),
        memory_kib=64,
        minimum_fee=FEE,
        account_minimum=500_000,
        transaction_past_seconds=3_600,
        transaction_future_seconds=600,
        producers=(address_of(former),),
        allocations=((address_of(founder), 1_000 * COIN), (address_of(former), COIN)),
        changes=(ProducerChange(height=3, producers=(address_of(producer),)),),
    )
    file = folder / "festival.toml"
    file.write_text(render_network_file(params), encoding="utf-8")
    (folder / "data").mkdir(mode=0o700)
    key = folder / "data" / "operator.key"
    key.touch(mode=0o600)
    nodes, port = Nodes(folder), free_port()

    def start(seed: bytes) -> RunningNode:
        key.write_bytes(render_seed(seed, SeedKind.BLOCK))
        making = [f"--set=participation.{name}" for name in ("enabled=true", "alone=true", "workers=1")]
        return nodes.start(f"--network={file}", *making, '--set=limits.exempt=["127.0.0.0/8"]', port=port)

    node = start(former)
    wait_until(lambda: node.status()["height"] == "2", "the last block of the former producer")
    node.stop()
    node = start(producer)
    wait_until(lambda: int(node.status()["height"]) >= 4, "blocks of the other producer")
    yield Festival(params, node, founder)
    nodes.stop()


@pytest.fixture(scope="module")
def node(festival: Festival) -> RunningNode:
    """The node of the network."""
    return festival.node


def give(tab: Tab, text: str) -> None:
    """Type a genesis hash in place of another."""
    tab.see("#genesis-given")
    tab.evaluate("() => { document.getElementById('genesis-given').value = ''; return true; }")
    tab.type("#genesis-given", text, enter=True)


def await_transfers(tab: Tab, address: str) -> None:
    """Wait until the page has read the transfers of an address once more: what comes later has arrived meanwhile.

    A block may have a payment before the page has looked for the first time, which then shows nothing of it.
    """
    tab.evaluate("() => { performance.clearResourceTimings(); return true; }")
    read = "(part) => performance.getEntriesByType('resource').some(({ name }) => name.includes(part))"
    tab.until(lambda: tab.evaluate(read, f"/rpc/address/{address}/transactions"), "the page has read the transfers")


def test_a_member_is_paid_and_pays(tab: Tab, festival: Festival) -> None:
    # The page asks which network is meant, and takes no other
    tab.go("/wallet/")
    tab.see("#genesis-form")
    assert "FESTIVAL" in tab.text("body[data-view=genesis] .lead")
    give(tab, "fest")
    tab.see("#genesis-given-error[data-error=genesis-hash]")
    give(tab, "00" * 32)
    tab.see("#genesis-given-error[data-error=wrong-network]")
    told = tab.text("#genesis-given-error")
    assert (told.count(festival.genesis_hash), told.count("00" * 32), told.count(".")) == (1, 1, 1)
    give(tab, festival.genesis_hash)
    tab.see("#create-start")

    # From then on it knows
    address = make_wallet(tab)
    assert address.startswith(f"{PREFIX}1q")
    assert "FESTIVAL" in tab.text("#network")
    await_transfers(tab, address)
    festival.pay(address, 100)
    tab.see("#receive-arriving:not(:empty)")
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="100"]')
    checked(tab)

    # Paying an order
    order = fresh("order")
    shop = address_of(festival.founder)
    tab.go(wallet_path(payment_uri(order, recipient=shop, rest="&confirmations=2")))
    unlock(tab)
    tab.see('#review-fee[data-shown="0.0002"]')
    assert "FESTIVAL" in tab.text("#review-network")
    tab.click("#sign")
    tab.see("#payment-state[data-state=confirmed]")
    txid = tab.text("#payment-txid")
    found = festival.node.ok(festival.node.get(f"/rpc/transaction/{txid}"))["transaction"]
    assert found["payload"] == {"recipient": shop, "amount": "250000000", "paymentReference": order}
    assert (found["senderAddress"], found["fee"]) == (address, str(FEE))
    tab.click('#navigation a[href="#home"]')
    tab.see('#balance[data-shown="97.4998"]')
    checked(tab)


def test_the_link_of_a_founder(tab: Tab, festival: Festival) -> None:
    tab.go(f"/wallet/#network={'11' * 32}")
    tab.see("#stopped-error[data-error=wrong-network]")
    assert f"the genesis hash {festival.genesis_hash}, and yours is {'11' * 32}." in tab.text("#stopped-error")
    tab.go("/wallet/#network=festival")
    tab.see("#stopped-error[data-error=genesis-hash]")
    tab.go(festival.link)
    tab.see("#create-start")
    assert tab.evaluate("() => location.hash") == ""
    tab.reload()
    tab.see("#create-start")


def of(
    params: NetworkParams, *, rules: NetworkParams | None = None
) -> Callable[[str, Callable[[], Reply]], Reply | None]:
    """The node passes itself off as one of another network; ``rules`` are what it shows in place of the real ones."""
    consensus = {
        "genesisHash": params.genesis_hash.hex(),
        "networkId": params.network_id,
        "chainId": params.chain_id,
        "minimumFee": str(params.minimum_fee),
        "accountMinimum": str(params.account_minimum),
    }

    def lie(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path == "/rpc/rules":
            return Reply.json(200, {"ok": True, "rules": (rules or params).rules, "changes": []})
        for name in ("status", "consensus"):
            if path == f"/rpc/{name}":
                answer = json.loads(node().body)
                known = answer[name].keys() & consensus.keys()
                answer[name] |= {member: consensus[member] for member in known}
                return Reply.json(200, answer)
        return None

    return lie


@in_one_engine
def test_a_node_of_another_network_is_refused(tab: Tab, festival: Festival, liar: Between) -> None:
    other = evolve(festival.params, network_id=48_214)
    theirs = other.genesis_hash.hex()
    sentence = f"it is on FESTIVAL with the genesis hash {theirs}, and yours is {festival.genesis_hash}."
    liar.lie, tab.origin = of(other), liar.url

    # Whoever has the link
    tab.go(festival.link)
    tab.see("#stopped-error[data-error=wrong-network]")
    assert sentence in tab.text("#stopped-error")

    # Whoever had been here before
    liar.lie = None
    tab.go(festival.link)
    tab.reload()
    tab.see("#create-start")
    for params in (DEVNET, other):
        liar.lie = of(params)
        tab.go("/wallet/")
        tab.see("#genesis-given-error[data-error=wrong-network]")
    assert sentence in tab.text("#genesis-given-error")

    # Whoever has a wallet: the node is asked for nothing of it
    liar.lie = None
    address = make_wallet(tab)
    # Its page polls until another one is there
    tab.go("/proof/")
    liar.lie = of(other)
    before = len(liar.asked)
    tab.go("/wallet/")
    tab.see("#stopped-error[data-error=keyfile-of-other-network]")
    assert sentence in tab.text("#stopped-error")
    assert [path for path in liar.asked[before:] if address in path] == []

    # The right hash with other rules
    (change,) = festival.params.changes
    for rules in (evolve(festival.params, minimum_fee=1), evolve(festival.params, producers=change.producers)):
        liar.lie = of(festival.params, rules=rules)
        tab.reload()
        tab.see("#stopped-error[data-error=wrong-network]")
        assert "its chain is another" in tab.text("#stopped-error")
    liar.lie = of(DEVNET)
    tab.reload()
    tab.see("#stopped-error[data-error=keyfile-of-other-network]")
    liar.lie = None
    tab.reload()
    tab.see("#unlock-form")


@in_one_engine
def test_a_page_that_cannot_read_the_rules_says_so(tab: Tab, festival: Festival, liar: Between) -> None:
    def refuse(path: str, node: Callable[[], Reply]) -> Reply | None:
        return Reply.json(503, {"ok": False, "error": "later"}) if path.startswith("/static/own-network.") else None

    liar.lie, tab.origin = refuse, liar.url
    tab.forgiven.append("status of 503")
    tab.go(festival.link)
    tab.see("#stopped-error[data-error=node-unreachable]")
    liar.lie = None
    tab.see("#create-start")


@in_one_engine
def test_a_chain_by_others_is_told(tab: Tab, festival: Festival, liar: Between) -> None:
    """The producers and their changes are among what the balance is checked against."""

    def without_change(path: str, node: Callable[[], Reply]) -> Reply | None:
        if path != "/rpc/rules":
            return None
        return Reply.json(200, json.loads(node().body) | {"changes": []})

    liar.lie, tab.origin = without_change, liar.url
    tab.go(festival.link)
    tab.see("#create-start")
    make_wallet(tab)
    tab.click('#navigation a[href="#home"]')
    tab.see("#home-unproved[data-error=unproved]")
    assert " is not one of the 1 that may make it)." in tab.text("#home-unproved")
    liar.lie = None
    checked(tab)


@in_one_engine
def test_a_payment_proof_is_checked(tab: Tab, festival: Festival, liar: Between) -> None:
    """By the page alone: it asks for nothing once it is there."""
    order, shop = fresh("proof"), address_of(secrets.token_bytes(32))
    txid = festival.pay(shop, 3, order)
    path = f"/rpc/commerce/payment/{order}/proof?recipient={shop}&amount=3&chain=1"
    wait_until(lambda: festival.node.get(path).status == 200, "the payment is in a block")
    answer = festival.node.ok(festival.node.get(path))
    tab.origin, before = liar.url, len(liar.asked)
    tab.go("/proof/")
    tab.see("#proof-file:enabled")
    tab.evaluate(CHOOSE_PROOF, json.dumps(answer))
    tab.see('#proof[data-shown="proven"]')
    shown = [tab.text(f"[data-fill={name}]") for name in ("network", "amount", "recipient", "reference", "txid")]
    assert shown == ["FESTIVAL", "3\u00a0Token", shop, order, txid]
    assert tab.text("#proof-genesis") == (
        f"Compare the genesis hash {festival.genesis_hash} with the one that you were given: the rules of FESTIVAL come"
        " from this node."
    )
    assert "1 of the 1 producers together can make one" in tab.text("#proof-by-producers")
    assert tab.texts("#proof-by-work") == []
    assert [path for path in liar.asked[before:] if path.startswith("/rpc/")] == []

    # Another network of the same name
    other = copy.deepcopy(answer)
    other["proof"]["genesisHash"] = "00" * 32
    tab.evaluate(CHOOSE_PROOF, json.dumps(other))
    tab.see('#proof[data-shown="refused"]')
    assert "its genesis differs" in tab.text("[data-view=refused] [data-fill=reason]")
    assert tab.texts("#proof-genesis") == []


def test_the_keyfile_says_which_network_it_is_of(festival: Festival, watched: Watched, tmp_path: Path) -> None:
    wallet = WalletPage.opened(watched, festival.link)
    wallet.page.click("#create-start")
    words = wallet.words()
    wallet.page.click("#words-done")
    wallet.answer_quiz(words)
    wallet.choose_password()
    content = wallet.download("#download-keyfile", tmp_path / "keyfile.json")
    assert json.loads(content)["network"] == festival.genesis_hash
    keyfile = parse(content, [festival.params])
    assert (keyfile.params, keyfile.address) == (festival.params, address_of(unseal(keyfile, PASSWORD)))

    # One that svc has made
    theirs = tmp_path / "theirs.json"
    kdf = Pbkdf2(iterations=1_000_000)
    sealed = seal(festival.founder, PASSWORD, params=festival.params, random=secrets.token_bytes, kdf=kdf)
    theirs.write_bytes(render(sealed))
    other = evolve(festival.params, network_id=48_214)
    foreign = tmp_path / "foreign.json"
    foreign.write_bytes(render(seal(festival.founder, PASSWORD, params=other, random=secrets.token_bytes, kdf=kdf)))
    wallet.page.click("#keyfile-done")
    wallet.navigate("Settings")
    wallet.page.check("#remove-confirm")
    wallet.page.click("#remove")
    wallet.page.wait_for_selector("#genesis-form")
    wallet.page.fill("#genesis-given", festival.genesis_hash.upper())
    wallet.page.press("#genesis-given", "Enter")
    wallet.bring(foreign)
    told = wallet.error("keyfile-of-other-network")
    assert f"{festival.genesis_hash}, and yours is {other.genesis_hash.hex()}" in told
    wallet.bring(theirs)
    wallet.view("home")
