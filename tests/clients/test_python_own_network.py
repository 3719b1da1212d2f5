"""The Python client on a network of somebody's own: its file, its addresses and transfers, proofs of a node on it."""

import asyncio
import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import svc_pay
from attrs import evolve
from hypothesis import given
from svc_pay import AsyncClient, Client, InvalidAnswer, InvalidInput, InvalidProof, Key, Network, Order
from svc_pay.light import (
    async_proven_balance,
    check_account_proof,
    check_payment_proof,
    proven_balance,
    proven_payment,
    verify_chain,
)
from svc_pay.webhooks import parse_event

from svcd.chain.encoding import canonical, tagged_hash
from svcd.chain.params import DEVNET, MAINNET, NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.transaction import parse_transfer
from svcd.chain.transition import genesis_accounts
from svcd.config.network_file import render_network_file
from tests.chains import COIN, key_of
from tests.clients.own_network import FESTIVAL, NODE, NOW, OPEN, OTHER, World, address, as_json, networks, opened, shown
from tests.clients.test_python_values import EVENTS
from tests.clients.vectors import vectors
from tests.rpc.conftest import public_client


@pytest.fixture
def festival(tmp_path: Path) -> Network:
    return svc_pay.parse_network(shown(FESTIVAL, tmp_path))


@pytest.mark.parametrize("params", [FESTIVAL, OPEN], ids=lambda params: params.name)
def test_file_and_json_give_the_network_of_the_node(params: NetworkParams, tmp_path: Path) -> None:
    text = shown(params, tmp_path)
    network = svc_pay.parse_network(text)
    again = svc_pay.read_network(tmp_path / f"{params.name}.toml")
    assert (again, again.rules, again.name) == (network, network.rules, network.name)
    (tmp_path / "shown.json").write_text(text, encoding="utf-8")
    assert svc_pay.read_network(tmp_path / "shown.json").rules == network.rules
    assert (network.name, network.network_id, network.chain_id) == (params.name, params.network_id, params.chain_id)
    assert (network.prefix, network.genesis_hash) == (params.address_prefix, params.genesis_hash.hex())
    assert attrs.asdict(network.rules) == attrs.asdict(params)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@given(networks())
def test_what_svc_accepts_is_the_same_network(folder: Path, params: NetworkParams) -> None:
    (folder / "festival.toml").write_text(render_network_file(params), encoding="utf-8")
    network = svc_pay.read_network(folder / "festival.toml")
    assert attrs.asdict(network.rules) == attrs.asdict(params)
    assert svc_pay.parse_network(as_json(params)).rules == network.rules


@pytest.mark.parametrize("params", [MAINNET, DEVNET], ids=lambda params: params.name)
def test_a_network_that_is_built_in_is_the_one_that_is_known(params: NetworkParams) -> None:
    given = {"name": "other", "rules": params.rules, "changes": [], "genesisHash": params.genesis_hash.hex()}
    [known] = [each for each in svc_pay.NETWORKS if each.name == params.name]
    assert svc_pay.parse_network(json.dumps(given)) is known


VECTORS = vectors("own_network")


def test_the_vectors_are_of_this_network(festival: Network, tmp_path: Path) -> None:
    """So the JavaScript client, which is tested against the same, reads what a node of the network has."""
    by_svc = json.loads(shown(FESTIVAL, tmp_path))
    assert {name: by_svc[name] for name in VECTORS["network"]} == VECTORS["network"]
    assert VECTORS["rulesHash"] == FESTIVAL.rules_hash.hex()
    assert VECTORS["genesisStateRoot"] == state_root(genesis_accounts(FESTIVAL).items()).hex()
    assert all(FESTIVAL.issued_after(int(height)) == int(units) for height, units in VECTORS["issued"])
    assert all(list(FESTIVAL.producers_at(int(height))) == listed for height, listed in VECTORS["producers"])
    told = VECTORS["transfer"]
    transfer = parse_transfer(told["transaction"], FESTIVAL)
    assert transfer.txid.hex() == told["txid"]
    key, payload = Key(bytes.fromhex(told["seed"])), told["transaction"]["payload"]
    draft = {name: int(told["transaction"][name]) for name in ("nonce", "fee", "timestamp")}
    recipient, amount, reference = payload["recipient"], int(payload["amount"]), payload["paymentReference"]
    made = svc_pay.sign_transfer(key, festival, recipient=recipient, amount=amount, reference=reference, **draft)
    assert (made.txid, made.transaction) == (told["txid"], told["transaction"])


def test_the_proof_among_the_vectors_is_that_of_a_node(world: World) -> None:
    asked = f"recipient={address('shop')}&amountBaseUnits=5000000&chain=1"
    status, body = world.reply("GET", f"{NODE}/rpc/commerce/payment/order-1/proof?{asked}", None)
    assert (status, json.loads(body)) == (200, VECTORS["paymentProof"])


def resealed(at: list[str | int], *to: object) -> str:
    """The JSON of the network with a change, and with the hash that its rules give unless that was changed."""
    given: dict[str, Any] = copy.deepcopy(VECTORS["network"])
    if at:
        inner: Any = given
        for step in at[:-1]:
            inner = inner[step]
        inner.pop(at[-1], None)
        if to:
            [inner[at[-1]]] = to
    if at[:1] == ["rules"] and isinstance(given["rules"], dict):
        genesis = tagged_hash("svc/genesis/v1", tagged_hash("svc/rules/v1", canonical(given["rules"])))
        given["genesisHash"] = tagged_hash("svc/block-id/v4", genesis + bytes(8)).hex()
    return json.dumps(given)


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["sentence"][:60])
def test_what_no_network_can_have_is_refused(vector: dict[str, Any]) -> None:
    # The sentences of the vectors are those of the JavaScript client. Here the code of svcd reads the rules.
    with pytest.raises(
        InvalidInput, match=r"^((rules|changes|name|unit|genesisHash)\b|the file says that the genesis)"
    ):
        svc_pay.parse_network(resealed(vector["at"], *(vector[name] for name in ("to",) if name in vector)))


def test_coins_have_the_name_that_the_file_gives_them(festival: Network) -> None:
    assert festival.unit == "Token"
    assert svc_pay.format_coins(1_250_000_000, festival.unit) == "12.5 Token"
    without = {name: value for name, value in VECTORS["network"].items() if name != "unit"}
    assert svc_pay.parse_network(json.dumps(without)).unit == svc_pay.MAINNET.unit == "SVC"


def test_a_rule_that_cannot_be_written_is_refused() -> None:
    text = resealed([]).replace('"FESTIVAL"', '"\\ud800"')
    with pytest.raises(InvalidInput, match="half of a surrogate pair"):
        svc_pay.parse_network(text)


def test_a_file_with_another_hash_than_its_rules_give_is_refused(tmp_path: Path) -> None:
    text = shown(FESTIVAL, tmp_path)
    other = evolve(FESTIVAL, slot_seconds=6)
    with pytest.raises(InvalidInput) as refused:
        svc_pay.parse_network(json.dumps({**json.loads(text), "rules": other.rules}))
    assert str(refused.value) == (
        f"the file says that the genesis hash is {FESTIVAL.genesis_hash.hex()}, and its rules give"
        f" {other.genesis_hash.hex()}: get the file of the network again from those who founded it"
    )
    file = tmp_path / "festival.toml"
    file.write_text(file.read_text().replace("slotSeconds = 5", "slotSeconds = 6"))
    with pytest.raises(
        InvalidInput, match=f"festival.toml: the file says .* its rules give {other.genesis_hash.hex()}"
    ):
        svc_pay.read_network(file)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("[rules]", "[rules", "this is not TOML: "),
        ('minimumFee = "0.0002"', "minimumFee = 0.0002", "rules.minimumFee: must be an amount of coins in quotes"),
        ('"2^252"', '"2^256"', "initialTarget: must be a power of two in quotes"),
        ("networkId = 48213", "networkId = 2026-12-01", "networkId: must be an integer from 1000"),
        ("00Z", "00+01:00", "genesisTime: must be a date and time in UTC to the second"),
        ("[genesis]", "[end]", "end: is not known; this version may be too old"),
        ('hash = "', 'digest = "', "genesis.digest: is not known"),
        ("height = 10\n", 'height = "10"\n', r"changes\[0\].height: must be an integer"),
    ],
)
def test_a_file_that_was_changed_is_refused(old: str, new: str, sentence: str, tmp_path: Path) -> None:
    shown(FESTIVAL, tmp_path)
    file = tmp_path / "festival.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(InvalidInput, match=sentence):
        svc_pay.read_network(file)


def test_what_is_no_file_of_a_network(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none.toml: the file of the network cannot be read: No such file"):
        svc_pay.read_network(tmp_path / "none.toml")
    for content, sentence in ((b"\xff", "be UTF-8 text"), (bytes(2**22 + 1), "at most"), (b"[", "svc network show")):
        (tmp_path / "wrong").write_bytes(content)
        with pytest.raises(InvalidInput, match=sentence):
            svc_pay.read_network(tmp_path / "wrong")


# Addresses, orders, transfers, events


def test_addresses_of_the_network(festival: Network) -> None:
    alice = Key(key_of("alice").seed).address(festival)
    assert alice == address("alice") == svc_pay.check_address(alice, festival)
    for wrong, sentence in (
        (
            alice[:-1] + ("q" if alice[-1] != "q" else "p"),
            "not an address of festival: it has a wrong checksum; copy the address again",
        ),
        (
            Key(key_of("alice").seed).address(svc_pay.DEVNET),
            "not an address of festival: it must be an address of this network: 44 characters that begin with fest1q",
        ),
        ("nobody", "not an address of festival: it must be an address of this network"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            svc_pay.check_address(wrong, festival)
    with pytest.raises(InvalidInput, match="of a network of your own, give the network, too"):
        svc_pay.network_of(alice)


def test_a_transfer_is_one_for_the_node(festival: Network) -> None:
    alice = Key(key_of("alice").seed)
    made = svc_pay.sign_transfer(alice, festival, recipient=address("shop"), amount=5, nonce=3, reference="order-1")
    read = parse_transfer(made.transaction, FESTIVAL)
    assert read.txid.hex() == made.txid
    assert read.fee == FESTIVAL.minimum_fee
    assert svc_pay.SignedTransfer.from_text(made.text, festival) == made
    with pytest.raises(InvalidInput, match="fee must be an integer from 20000"):
        svc_pay.sign_transfer(alice, festival, recipient=address("shop"), amount=5, nonce=3, fee=19_999)
    recipient = alice.address(svc_pay.DEVNET)
    with pytest.raises(InvalidInput, match="is not an address of festival"):
        svc_pay.sign_transfer(alice, festival, recipient=recipient, amount=5, nonce=3)


def test_an_order_has_the_network_that_it_was_given(festival: Network) -> None:
    order = Order("order-17", address("shop"), 2_500_000_000, 3, network=festival)
    assert order.network is festival
    assert replace(order, confirmations=4).network is festival
    with pytest.raises(InvalidInput, match="give the network, too"):
        Order("order-17", address("shop"), 5)
    with pytest.raises(InvalidInput, match="is not an address of festival"):
        Order("order-17", Key(bytes(32)).address(svc_pay.DEVNET), 5, network=festival)
    with pytest.raises(InvalidInput, match="is not an address of devnet"):
        Order("order-17", address("shop"), 5, network=svc_pay.DEVNET)
    event = json.loads(json.dumps(next(event for event in EVENTS if event["event"] == "payment.confirmed")))
    event["payment"]["recipient"] = order.recipient
    for genesis_hash, concerned in ((festival.genesis_hash, True), (event["genesisHash"], False)):
        read = parse_event(json.dumps({**event, "genesisHash": genesis_hash}).encode())
        assert isinstance(read, svc_pay.WatchEvent)
        assert (read.concerns(order), read.settles(order)) == (concerned, concerned)


# A node on the network, in memory


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The nodes, as both clients reach them."""
    with opened(tmp_path) as made:

        def reply(request: httpx.Request) -> httpx.Response:
            body = request.content or None
            status, answer = made.reply(request.method, str(request.url), body)
            return httpx.Response(status, content=answer)

        transport = httpx.MockTransport(reply)
        monkeypatch.setattr(Client, "_open", lambda *_: httpx.Client(transport=transport))
        monkeypatch.setattr(AsyncClient, "_open", lambda *_: httpx.AsyncClient(transport=transport))
        yield made


def test_a_client_of_the_network(world: World, festival: Network, tmp_path: Path) -> None:
    alice, shop = Key(key_of("alice").seed), address("shop")
    with Client(NODE, network=festival) as node:
        request = node.payment_request(shop, 5 * COIN, reference="order-2", confirmations=2)
        assert (request.order.network, request.order.recipient) == (festival, shop)
        assert request.payment_uri.startswith(f"svc:{shop}?amount=5")
        paid = node.payment(Order("order-1", shop, 5_000_000, network=festival))
        assert (paid.state, paid.confirmations) == (svc_pay.State.CONFIRMING, 10)
        assert [each.reference for each in node.payments(shop)] == ["order-1"]
        assert node.account(shop).balance == 300 * COIN + 5_000_000
        with pytest.raises(InvalidInput, match="is not an address of festival"):
            node.account(alice.address(svc_pay.DEVNET))
        journal = svc_pay.SqliteJournal(tmp_path / "payouts.sqlite")
        payouts = svc_pay.Payouts(node, journal, alice, festival, clock=lambda: NOW / 1000)
        first = payouts.pay("refund-1", recipient=shop, amount=COIN)
        assert (first.state, first.problem) == (svc_pay.PayoutState.WAITING, None)
        assert payouts.pay("refund-1", recipient=shop, amount=COIN).txid == first.txid
        waiting = world.nodes[NODE].node_context.transaction_pool.mempool
        assert waiting.transfer(bytes.fromhex(first.txid)) is not None
        # An hour is the life of a transfer here.
        later = svc_pay.Payouts(node, journal, alice, festival, clock=lambda: NOW / 1000 + 3_600)
        [again] = later.advance()
        assert len(again.transfers) == 2
    assert world.asked.count("/rpc/consensus") == 2, "one for the client, one for the payout"


def test_a_node_of_another_network_is_refused(world: World, festival: Network) -> None:
    order = Order("order-1", address("shop"), 5_000_000, network=festival)

    async def ask() -> None:
        async with AsyncClient(OTHER, network=festival) as node:
            await node.payment(order)

    sentence = f"the node is not on festival: its genesis hash is '{OPEN.genesis_hash.hex()}', and that of festival"
    with pytest.raises(InvalidAnswer, match=sentence):
        asyncio.run(ask())
    transfer = svc_pay.sign_transfer(Key(bytes(32)), festival, recipient=address("shop"), amount=5, nonce=0)
    with Client(OTHER, network=festival) as node:
        for call in (
            lambda: node.payment(order),
            lambda: node.wait_for(order, timeout=5),
            lambda: node.broadcast(transfer),
            lambda: verify_chain(node, festival, now=NOW),
        ):
            with pytest.raises(InvalidAnswer, match=sentence):
                call()
    assert set(world.asked) == {"/rpc/consensus"}
    with Client(OTHER) as node, pytest.raises(InvalidProof, match="calls itself FESTIVAL: its genesis differs"):
        verify_chain(node, festival, now=NOW)


def test_a_node_that_cannot_say_where_it_is_is_asked_again(festival: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [
        httpx.Response(503, json={"ok": False, "error": "wait"}, headers={"Retry-After": "0"}),
        httpx.Response(200, json={"ok": True, "consensus": {"genesisHash": festival.genesis_hash}}),
        httpx.Response(200, json={"ok": True, "block": {"height": "1", "hash": "ab" * 32}}),
        httpx.Response(200, json={"ok": True, "block": {"height": "2", "hash": "cd" * 32}}),
    ]
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    monkeypatch.setattr(Client, "_open", lambda *_: httpx.Client(transport=transport))
    with Client(NODE, network=festival) as node:
        assert [node.block_hash(1), node.block_hash(2)] == ["ab" * 32, "cd" * 32]


def test_proofs_from_the_genesis(world: World, festival: Network) -> None:
    shop = address("shop")
    order = Order("order-1", shop, 5_000_000, 3, network=festival)
    with Client(NODE, network=festival) as node:
        chain = verify_chain(node, festival, now=NOW)
        assert (chain.tip.height, chain.tip.time, chain.evaluations) == (12, FESTIVAL.slot_time(chain.tip.slot), 12)
        account = proven_balance(node, shop, now=NOW, minimum_work=chain.work)
        assert (account.exists, account.balance) == (True, 300 * COIN + 5_000_000)
        paid = proven_payment(node, order, now=NOW)
        assert (paid.block_height, paid.confirmations) == (3, 10)
        assert check_payment_proof(node.proof(order), order, tip=chain.tip.hash, now=NOW).txid == paid.txid
    with Client(NODE) as node:
        assert proven_balance(node, shop, network=festival, now=NOW).balance == account.balance
        with pytest.raises(InvalidInput, match="give the network, too"):
            proven_balance(node, shop, now=NOW)
    paths = (f"/rpc/proof/account/{shop}", f"/rpc/proof/chain?tip={chain.tip.hash}")
    answer, chain_answer = (public_client(world.nodes[NODE]).get(path).body for path in paths)
    assert check_account_proof(answer, shop, chain_answer, network=festival, now=NOW).balance == account.balance

    async def ask() -> int:
        async with AsyncClient(NODE) as node:
            return (await async_proven_balance(node, shop, network=festival, now=NOW)).balance

    assert asyncio.run(ask()) == account.balance


def test_the_changes_of_the_file_decide_who_may_make_blocks(world: World, tmp_path: Path) -> None:
    """They are in no hash: with other ones the blocks from that height on are none."""
    without = svc_pay.parse_network(json.dumps({**json.loads(shown(FESTIVAL, tmp_path)), "changes": []}))
    with (
        Client(NODE, network=without) as node,
        pytest.raises(InvalidProof, match="is not one of the 3 that may make the block at height 11"),
    ):
        verify_chain(node, without, now=NOW)


def test_the_genesis_alone(world: World, tmp_path: Path) -> None:
    network = svc_pay.parse_network(shown(OPEN, tmp_path))
    with Client(OTHER, network=network) as node:
        account = proven_balance(node, address("alice"), network=network, now=NOW)
        assert (account.balance, account.chain.tip.height) == (10 * COIN, 0)
        assert not proven_balance(node, address("bob"), network=network, now=NOW).exists
