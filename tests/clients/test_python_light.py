"""The Python client checks chain, account and payment without trust in a node: published proofs, and liars."""

import asyncio
import builtins
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from svc_pay import DEVNET, AsyncClient, Client, InvalidInput, InvalidProof, Key, NotFound, Order
from svc_pay.light import (
    ProvenTip,
    async_proven_balance,
    async_proven_payment,
    async_verify_chain,
    check_account_proof,
    check_chain_proof,
    check_payment_proof,
    proven_balance,
    proven_payment,
    verify_chain,
)
from twisted.internet.task import Clock

from svcd.chain import params
from svcd.light.chain_proof import HEADER_FIELDS, RECENT
from tests.clients.vectors import vectors
from tests.rpc.conftest import READER, public_client
from tests.rpc.node import Client as MemoryClient
from tests.rpc.node import Node, Settings

LONG: list[dict[str, Any]] = [each for each in vectors("svc_protocol")["chainProofs"] if each["recent"] == RECENT]
"""The proofs of the vectors that have as many headers as section 13 asks for; those of fewer are tests of svcd."""


def answer_of(vector: dict[str, Any]) -> bytes:
    """The answer of a node with the proof of a vector."""
    return json.dumps({"ok": True, "proof": vector["proof"]}).encode()


@pytest.mark.parametrize("vector", LONG, ids=lambda vector: vector["why"])
def test_chain_proofs_of_the_vectors(vector: dict[str, Any]) -> None:
    if "rule" in vector:
        with pytest.raises(InvalidProof):
            check_chain_proof(answer_of(vector), DEVNET)
        return
    chain, proves = check_chain_proof(answer_of(vector), DEVNET), vector["proves"]
    assert (chain.tip.height, chain.tip.slot) == (int(proves["height"]), int(proves["slot"]))
    assert (chain.work, chain.tip.hash) == (int(proves["cumulativeWork"], 16), vector["proof"]["tip"])


def long_chain() -> tuple[bytes, dict[str, Any]]:
    """The answer of a node with the longest proof of the vectors, and what it proves."""
    [vector] = [each for each in LONG if each["why"] == "230 blocks as 13 asks for"]
    return answer_of(vector), vector["proves"]


def test_a_chain_ahead_of_the_clock_or_with_less_work_than_before_proves_nothing() -> None:
    answer, proves = long_chain()
    told: list[tuple[int, int]] = []
    chain = check_chain_proof(answer, DEVNET, progress=lambda done, total: told.append((done, total)))
    assert (chain.tip.height, chain.work) == (int(proves["height"]), int(proves["cumulativeWork"], 16))
    assert (chain.fetched_bytes, chain.url, chain.refused) == (len(answer), None, ())
    count = len(json.loads(answer)["proof"]["headers"])
    assert chain.evaluations == count
    assert told == [(done, count) for done in range(1, count + 1)]
    assert check_chain_proof(answer, DEVNET, now=chain.tip.time - 300_000, minimum_work=chain.work) == chain
    with pytest.raises(InvalidProof, match="in the future"):
        check_chain_proof(answer, DEVNET, now=chain.tip.time - 300_001)
    with pytest.raises(InvalidProof, match="less than the required"):
        check_chain_proof(answer, DEVNET, minimum_work=chain.work + 1)


def test_arguments_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, _ = long_chain()
    text: Any = answer.decode()
    for wrong in (
        lambda: check_chain_proof(text, DEVNET),
        lambda: check_chain_proof(answer, DEVNET, minimum_work=-1),
        lambda: check_chain_proof(answer, "devnet"),  # type: ignore[arg-type]
        lambda: verify_chain([], DEVNET),
        lambda: verify_chain("http://127.0.0.1", DEVNET),  # type: ignore[arg-type]
        lambda: proven_balance([], "svcd1q"),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    imported = builtins.__import__

    def without_argon2(name: str, *rest: Any, **given: Any) -> Any:
        if name.startswith("argon2"):
            raise ImportError(name)
        return imported(name, *rest, **given)

    monkeypatch.setattr(builtins, "__import__", without_argon2)
    with pytest.raises(InvalidInput, match=r"pip install argon2-cffi"):
        check_chain_proof(answer, DEVNET)


# Nodes in memory, honest ones and liars

HONEST, LIAR = "https://honest.example", "https://liar.example"
TALE = """
genesis: b[1..20]
b1 is by alice
b3 pays 5000000 from alice to bob for order-1
"""
OTHER = """
genesis: c[1..10]
c1 is by alice
c3 pays 900000000 from alice to bob for order-9
"""
Change = Callable[[str, dict[str, Any]], object]
"""Changes the answer to a path, in place."""


class World:
    """Nodes by URL, as both clients reach them, and the blocks of the honest one."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.blocks = node.grow(TALE)
        self.now = int(node.clock.seconds() * 1000)
        self._nodes: dict[str, tuple[MemoryClient, Change]] = {}
        self.at(HONEST, node)

    def at(self, url: str, node: Node, change: Change = lambda _path, _answer: None) -> None:
        """Let a node answer at ``url``, with changes to its answers."""
        self._nodes[url] = (public_client(node), change)

    def reply(self, request: httpx.Request) -> httpx.Response:
        """The answer of the node at the URL of a request."""
        client, change = self._nodes[f"https://{request.url.host}"]
        answer = client.get(request.url.raw_path.decode())
        changed = answer.json
        change(request.url.path, changed)
        return httpx.Response(200 if changed["ok"] is True else answer.status, json=changed)

    @property
    def bob(self) -> str:
        return self.node.address("bob")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    node = devnet_node(tmp_path / "chain.sqlite")
    made = World(node)
    monkeypatch.setattr(Client, "_open", lambda *_: httpx.Client(transport=httpx.MockTransport(made.reply)))
    monkeypatch.setattr(AsyncClient, "_open", lambda *_: httpx.AsyncClient(transport=httpx.MockTransport(made.reply)))
    yield made
    node.close()


@pytest.fixture
def lighter(tmp_path: Path) -> Iterator[Node]:
    """A node with another chain, of less work, on which bob was paid more."""
    node = devnet_node(tmp_path / "lighter.sqlite")
    node.grow(OTHER)
    yield node
    node.close()


def devnet_node(path: Path) -> Node:
    clock = Clock()
    clock.advance(params.DEVNET.slot_time(20_000) // 1000)
    return Node(path, clock, Settings(params=params.DEVNET))


def raised(path: str, answer: dict[str, Any]) -> None:
    if "/account/" in path:
        answer["proof"]["leaf"]["balance"] = "900000000"


def test_proofs_of_an_honest_node(world: World) -> None:
    with Client(HONEST) as node:
        chain = verify_chain(node, DEVNET, now=world.now)
        tip = world.blocks["b20"].header
        assert chain.tip == ProvenTip(tip.hash.hex(), 20, tip.slot, params.DEVNET.slot_time(tip.slot))
        assert chain.work == world.node.node_context.chain_manager.reader.existing_tip().work
        assert (chain.evaluations, chain.url, chain.refused) == (20, HONEST, ())
        account = proven_balance(node, world.bob, now=world.now, minimum_work=chain.work)
        assert (account.exists, account.balance, account.nonce) == (True, 5_000_000, 0)
        assert account.held_since == node.account(world.bob).held_since
        paths = (f"/rpc/proof/account/{world.bob}", f"/rpc/proof/chain?tip={chain.tip.hash}")
        answer, chain_answer = (public_client(world.node, READER).get(path).body for path in paths)
        alone = check_account_proof(answer, world.bob, chain_answer, now=world.now)
        assert (alone.balance, alone.chain.fetched_bytes) == (5_000_000, account.chain.fetched_bytes)
        order = Order("order-1", world.bob, 5_000_000)
        paid = proven_payment(node, order, now=world.now)
        assert (paid.block_height, paid.confirmations, paid.chain.work) == (3, 18, chain.work)
        assert paid.txid == world.blocks["b3"].transfers[0].txid.hex()
        assert paid.sender == world.node.address("alice")
        proof = node.proof(order)
        assert check_payment_proof(proof, order, now=world.now).txid == paid.txid
        assert paid.chain.fetched_bytes == len(proof)


def test_the_asynchronous_client_proves_the_same(world: World) -> None:
    order = Order("order-1", world.bob, 5_000_000)

    async def ask() -> tuple[Any, ...]:
        async with AsyncClient(HONEST) as node:
            return (
                await async_verify_chain(node, DEVNET, now=world.now),
                await async_proven_balance([node], world.bob, now=world.now),
                await async_proven_payment(node, order, now=world.now),
            )

    with Client(HONEST) as node:
        told = (
            verify_chain(node, DEVNET, now=world.now),
            proven_balance([node], world.bob, now=world.now),
            proven_payment(node, order, now=world.now),
        )
    world.at(HONEST, world.node)
    assert asyncio.run(ask()) == told


def test_the_genesis_alone(tmp_path: Path, world: World) -> None:
    young = devnet_node(tmp_path / "young.sqlite")
    world.at(LIAR, young)
    with Client(LIAR) as node:
        account = proven_balance(node, young.address("faucet"), now=world.now)
    assert (account.balance, account.chain.tip.height, account.chain.work) == (100_000_000_000_000, 0, 0)
    young.close()


def test_an_address_without_an_account(world: World) -> None:
    nobody = Key(b"nobody".ljust(32)).address(DEVNET)
    with Client(HONEST) as node:
        account = proven_balance(node, nobody, now=world.now)
    assert (account.exists, account.balance, account.nonce, account.held_since) == (False, 0, 0, None)


def test_a_forged_balance_does_not_convince(world: World) -> None:
    world.at(LIAR, world.node, raised)
    with Client(LIAR) as liar, Client(HONEST) as honest:
        with pytest.raises(InvalidProof, match="does not lead to the stateRoot"):
            proven_balance(liar, world.bob, now=world.now)
        account = proven_balance([liar, honest], world.bob, now=world.now)
    assert (account.balance, account.chain.url) == (5_000_000, HONEST)
    [refused] = account.chain.refused
    assert (refused.url, type(refused.error)) == (LIAR, InvalidProof)


def test_the_proof_of_another_account_does_not_convince(world: World) -> None:
    other = public_client(world.node).get(f"/rpc/proof/account/{world.node.address('alice')}").json
    world.at(LIAR, world.node, lambda path, answer: "/account/" in path and answer.update(other))
    with Client(LIAR) as liar, pytest.raises(InvalidProof, match="for another address"):
        proven_balance(liar, world.bob, now=world.now)


def test_a_payment_that_nobody_made_does_not_convince(world: World) -> None:
    def claim(path: str, answer: dict[str, Any]) -> None:
        if path.startswith("/rpc/commerce/payment/"):
            answer["proof"]["transaction"]["payload"]["amount"] = "900000000"

    world.at(LIAR, world.node, claim)
    with Client(LIAR) as liar:
        answer = liar.proof(Order("order-1", world.bob, 5_000_000))
    with pytest.raises(InvalidProof, match="signature"):
        check_payment_proof(answer, Order("order-1", world.bob, 900_000_000), now=world.now)


def test_an_order_says_what_counts(world: World) -> None:
    with Client(HONEST) as node:
        answer = node.proof(Order("order-1", world.bob, 5_000_000))
    for order, sentence in (
        (Order("order-1", world.bob, 5_000_001), "pays 5000000 base units, not 5000001"),
        (Order("order-2", world.bob, 5_000_000), "has the reference order-1, not order-2"),
        (Order("order-1", world.node.address("carol"), 5_000_000), f"the transfer in the proof pays {world.bob}, not"),
        (Order("order-1", world.bob, 5_000_000, 19), "18 confirmations and 19 are required"),
        (Order("order-1", world.bob, 5_000_000, 1, since_height=4), "only block 4 and later ones count"),
    ):
        with pytest.raises(InvalidProof, match=sentence):
            check_payment_proof(answer, order, now=world.now)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda answer: answer["proof"].update(index=1), "path"),
        (lambda answer: answer["proof"].update(height="2"), "transactionsRoot|path"),
        (lambda answer: answer["proof"].update(note=1), 'unknown field "note"'),
        (lambda answer: answer["proof"]["transaction"].update(version=True), "whole JSON number"),
        (lambda answer: answer["proof"]["transaction"].update(fee="9999"), "fee must be"),
        (lambda answer: answer["proof"]["transaction"].update(timestamp="1"), "the signature of transaction"),
        (lambda answer: answer["proof"]["transaction"]["payload"].update(memo="x"), 'unknown field "memo"'),
        (lambda answer: answer["proof"]["transaction"].update(senderAddress="\ud800"), "half of a surrogate pair"),
        (lambda answer: answer["proof"]["chain"]["headers"].pop(), "not its tip"),
        (lambda answer: answer.update(next="7"), "next"),
        (lambda answer: answer.update(ok=False), "ok must be true"),
    ],
)
def test_a_proof_that_was_changed(world: World, change: Callable[[dict[str, Any]], object], sentence: str) -> None:
    order = Order("order-1", world.bob, 5_000_000)
    with Client(HONEST) as node:
        answer = json.loads(node.proof(order))
    change(answer)
    with pytest.raises(InvalidProof, match=sentence):
        check_payment_proof(json.dumps(answer).encode(), order, now=world.now)


def test_the_chain_with_the_most_work_wins(world: World, lighter: Node) -> None:
    world.at(LIAR, lighter)
    order = Order("order-9", world.bob, 900_000_000, 1)
    with Client(LIAR) as liar, Client(HONEST) as honest:
        assert proven_payment(liar, order, now=world.now).confirmations == 8
        # The honest node does not have the payment, and proves that the liar's chain is not the heaviest.
        with pytest.raises(NotFound, match="no block of the chain contains this payment"):
            proven_payment([liar, honest], order, now=world.now)
        account = proven_balance([liar, honest], world.bob, now=world.now)
        assert (account.balance, account.chain.url) == (5_000_000, HONEST)
        [refused] = account.chain.refused
        assert str(refused.error).startswith("its chain is another one, or far behind: it ends at height 10")
        with pytest.raises(InvalidProof, match="less than the required"):
            proven_payment(liar, order, now=world.now, minimum_work=account.chain.work)


def test_one_liar_does_not_hide_a_payment(world: World) -> None:
    def hide(path: str, answer: dict[str, Any]) -> None:
        if path.startswith("/rpc/commerce/payment/"):
            answer |= {"ok": False, "error": "no block of the chain contains this payment"}
            del answer["proof"], answer["next"]

    world.at(LIAR, world.node, hide)
    with Client(LIAR) as liar, Client(HONEST) as honest:
        paid = proven_payment([liar, honest], Order("order-1", world.bob, 5_000_000), now=world.now)
    assert (paid.confirmations, paid.chain.url) == (18, HONEST)


def test_a_chain_without_work_does_not_convince(world: World) -> None:
    forged = world.node.builder.chain("genesis: f[1..40]\nf1 is by alice\nf7 has an invalid work")
    headers = [json.loads(block.header.wire()) for block in forged.values()]

    def forge(path: str, answer: dict[str, Any]) -> None:
        shown = [{name: header[name] for name in HEADER_FIELDS} for header in headers]
        answer["proof"] |= {"tip": forged["f40"].header.hash.hex(), "headers": shown, "nodes": []}

    world.at(LIAR, world.node, forge)
    with Client(LIAR) as liar, Client(HONEST) as honest:
        with pytest.raises(InvalidProof, match=f"the work of block {forged['f7'].header.hash.hex()} does not reach"):
            verify_chain(liar, DEVNET, now=world.now)
        chain = verify_chain([liar, honest], DEVNET, now=world.now)
    assert (chain.tip.height, [each.url for each in chain.refused]) == (20, [LIAR])
