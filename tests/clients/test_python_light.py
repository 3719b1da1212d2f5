"""The Python client checks chain, account and payment without trust in a node: published proofs, and liars."""

import asyncio
import builtins
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import svc_pay
from svc_pay import DEVNET, NETWORKS, AsyncClient, Client, InvalidInput, InvalidProof, Key, NotFound, Order
from svc_pay.account_proof import check_account, parse_account_proof
from svc_pay.chain_proof import ReadChain, check_chain, check_work, parse_chain_proof
from svc_pay.chain_rules import (
    WORK_LIMIT,
    block_work,
    effective_target,
)
from svc_pay.light import (
    ProvenTip,
    async_proven_balance,
    async_proven_payment,
    async_verify_chain,
    check_account_proof,
    check_chain_proof,
    check_payment_proof,
    payment_in,
    proven_balance,
    proven_payment,
    verify_chain,
)
from svc_pay.strict_json import strict_json
from twisted.internet.task import Clock

from svcd.chain import params
from svcd.light.chain_proof import HEADER_FIELDS
from tests.clients.vectors import vectors
from tests.rpc.conftest import READER, public_client
from tests.rpc.node import Client as MemoryClient
from tests.rpc.node import Node, Settings

VECTORS: dict[str, Any] = vectors("svc_protocol")
CHECKED: set[bytes] = set()
"""The headers whose work was checked by an earlier test."""


def parametrize(part: str) -> pytest.MarkDecorator:
    """A test for each case of a part of the vectors."""
    return pytest.mark.parametrize("vector", VECTORS[part], ids=lambda vector: vector["why"])


def proven(vector: dict[str, Any]) -> ReadChain:
    """The chain that a case proves; raises InvalidProof."""
    read = check_chain(
        parse_chain_proof(vector["proof"], DEVNET),
        DEVNET,
        minimum_work=int(vector["minimumWork"], 16),
        recent=vector["recent"],
        samples=vector["samples"],
    )
    check_work(read.headers, DEVNET, checked=CHECKED)
    return read


@parametrize("chainProofs")
def test_chain_proof(vector: dict[str, Any]) -> None:
    if "rule" in vector:
        with pytest.raises(InvalidProof):
            proven(vector)
        return
    head, proves = proven(vector).head, vector["proves"]
    assert (head.height, head.slot) == (int(proves["height"]), int(proves["slot"]))
    assert (head.work, head.hash.hex()) == (int(proves["cumulativeWork"], 16), vector["proof"]["tip"])


@parametrize("accountProofs")
def test_account_proof(vector: dict[str, Any]) -> None:
    [network] = [each for each in NETWORKS if each.name == vector["network"]]
    block = vector["block"]
    block_hash, root, height = bytes.fromhex(block["hash"]), bytes.fromhex(block["stateRoot"]), int(block["height"])

    def found(proof: dict[str, Any]) -> Any:
        parsed = parse_account_proof(proof, network)
        return check_account(parsed, proof["address"], network, block=block_hash, height=height, state_root=root)

    if "rule" in vector:
        with pytest.raises(InvalidProof):
            found(vector["proof"])
        return
    with pytest.raises(InvalidProof, match=f"at height {height + 1}; it is at {height}"):
        found({**vector["proof"], "height": str(height + 1)})
    leaf, account = found(vector["proof"]), vector["account"]
    if account is None:
        assert leaf is None
        return
    held = account["heldSince"]
    assert (leaf.balance, leaf.nonce) == (int(account["balance"]), int(account["nonce"]))
    assert leaf.held_since == (None if held is None else int(held))


@parametrize("paymentProofs")
def test_payment_proof(vector: dict[str, Any]) -> None:
    demands = {"recent": vector["recent"], "samples": vector["samples"]}
    if "rule" in vector:
        with pytest.raises(InvalidProof):
            payment_in(vector["proof"], DEVNET, **demands)
        return
    read, payment = payment_in(vector["proof"], DEVNET, **demands)
    check_work(read.headers, DEVNET, checked=CHECKED)
    assert read.head.height - payment.block.header.height + 1 == vector["confirmations"]


# A network with a list of producers (section 8a), whose blocks are in the vectors

CLOSED = VECTORS["closedNetwork"]
CLOSED_NETWORK = svc_pay.parse_network(
    json.dumps({"name": "closed", "rules": CLOSED["rules"], "changes": [], "genesisHash": CLOSED["genesisHash"]})
)


def read_closed(steps: list[int], *changes: tuple[int, tuple[str, ...]]) -> ReadChain:
    """The chain of these blocks of the story, as a proof shows it; raises InvalidProof."""
    network = replace(CLOSED_NETWORK, rules=replace(CLOSED_NETWORK.rules, changes=changes))
    blocks = [CLOSED["story"][step]["block"] for step in steps]
    proof = {
        "chainId": network.chain_id,
        "genesisHash": network.genesis_hash,
        "tip": CLOSED["story"][steps[-1]]["hash"],
        "headers": [{name: block[name] for name in HEADER_FIELDS} for block in blocks],
        "nodes": [],
    }
    read = check_chain(parse_chain_proof(proof, network), network)
    check_work(read.headers, network, checked=set())
    return read


ACCEPTED = [at for at, step in enumerate(CLOSED["story"]) if step["accepted"]]
OUTSIDER = svc_pay.chain.address_of(bytes.fromhex(CLOSED["story"][4]["block"]["producerPublicKey"]), CLOSED_NETWORK)
FIRST, SECOND, THIRD, FOURTH = CLOSED["rules"]["producers"]


def test_the_blocks_of_listed_producers_that_take_turns_are_a_chain() -> None:
    assert read_closed(ACCEPTED).head.height == 6


@pytest.mark.parametrize("at", [at for at, step in enumerate(CLOSED["story"]) if not step["accepted"]])
def test_a_block_that_the_list_does_not_allow_proves_nothing(at: int) -> None:
    with pytest.raises(InvalidProof, match="the producer of the block at height"):
        read_closed([*(step for step in ACCEPTED if step < at), at])


@pytest.mark.parametrize(
    ("at", "changes"),
    [
        # Nobody who is not on the list, the first again at once, and one block between where two must be.
        (4, ((3, (OUTSIDER,)),)),
        (4, ((2, (SECOND, THIRD)), (3, (OUTSIDER, FIRST, SECOND)))),
        (1, ((2, (FIRST,)),)),
        (7, ((5, (FIRST, SECOND, THIRD)),)),
    ],
)
def test_a_change_of_the_list_is_in_force_from_its_height_on(
    at: int, changes: tuple[tuple[int, tuple[str, ...]], ...]
) -> None:
    steps = [*(step for step in ACCEPTED if step < at), at]
    assert read_closed(steps, *changes).head.height == len(steps)
    later = tuple((height + 1, producers) for height, producers in changes)
    with pytest.raises(InvalidProof, match="the producer of the block at height"):
        read_closed(steps, *later)


def test_a_change_ends_the_list_before_it() -> None:
    """Up to height 6 the third and the fourth have made blocks."""
    assert read_closed(ACCEPTED, (7, (FIRST, SECOND))).head.height == 6
    with pytest.raises(InvalidProof, match="height 6 is not one of the 2 that may make it"):
        read_closed(ACCEPTED, (6, (FIRST, SECOND)))


def test_every_part_has_as_many_cases_as_it_should() -> None:
    counts = [len(VECTORS[part]) for part in ("chainProofs", "accountProofs", "paymentProofs")]
    assert counts == [38, 18, 7]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_rules_are_those_of_the_vectors(network: svc_pay.Network) -> None:
    told, vector = network.rules, VECTORS["networks"][network.name]
    rules = vector["rules"]
    assert (told.rules_hash.hex(), told.genesis_state_root.hex()) == (
        vector["rulesHash"],
        vector["genesisBlock"]["stateRoot"],
    )
    names = {
        "slotSeconds": told.slot_seconds,
        "slotsPerBlock": told.slots_per_block,
        "halfLifeSlots": told.half_life_slots,
        "gapCapSlots": told.gap_cap_slots,
        "memoryKiB": told.memory_kib,
        "halvingBlocks": told.halving_blocks,
        "transactionFutureSeconds": told.future_seconds,
        "transactionPastSeconds": told.past_seconds,
        "genesisTime": told.genesis_time,
        "maxBlockTransactions": told.max_block_transactions,
        "minimumFee": told.minimum_fee,
        "initialReward": told.initial_reward,
    }
    assert {name: int(rules[name]) for name in names} == names
    assert (told.initial_target, told.max_target) == (int(rules["initialTarget"], 16), int(rules["maxTarget"], 16))
    assert told.target_at(-(10**12)) == told.next_target(10**12, 0) == int(rules["minTarget"], 16)
    assert told.next_target(2, 10**12) == told.max_target
    assert [points for _, points in rules["multiplierSchedule"]] == list(told.multipliers)
    assert told.allocated == told.issued_after(0) == sum(int(units) for _, units in rules["allocations"])
    assert told.issued_after(2) - told.allocated == 2 * int(rules["initialReward"])
    assert told.issued_after(100 * told.halving_blocks) == told.issued_after(101 * told.halving_blocks)
    endless = replace(told, halving_blocks=0, allocated=2**53 - 1 - 60 * 10**8)
    issued = [(endless.issued_after(height) - endless.allocated) // 10**8 for height in (0, 1, 2, 3, 4, 2**53 - 1)]
    assert issued == [0, 20, 40, 60, 60, 60]
    assert replace(endless, allocated=endless.allocated + 1).issued_after(3) == 2**53 - 20 * 10**8
    assert effective_target(WORK_LIMIT - 1, 11_000) == WORK_LIMIT - 1
    assert block_work(told.initial_target) == WORK_LIMIT // told.initial_target


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"\\u0061":1}',
        b'{"b":{"c":1,"c":2}}',
        b"[1.0]",
        b"[1e3]",
        b"[-0]",
        b"[NaN]",
        b"[123456789012345678]",
        b"[",
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_json_has_one_form(text: bytes) -> None:
    with pytest.raises(InvalidProof):
        strict_json(text, 200_000)


def test_json_has_a_size() -> None:
    assert strict_json(b'{"a":[1,{"a":"b"}],"b":{"a":-1}}', 100) == {"a": [1, {"a": "b"}], "b": {"a": -1}}
    with pytest.raises(InvalidProof, match="7 bytes, more than 5"):
        strict_json(b"[1,2,3]", 5)


def long_chain() -> tuple[bytes, dict[str, Any]]:
    """The answer of a node with the longest proof of the vectors, which has all headers that section 13 asks for."""
    [vector] = [each for each in VECTORS["chainProofs"] if each["why"] == "230 blocks as 13 asks for"]
    return json.dumps({"ok": True, "proof": vector["proof"]}).encode(), vector["proves"]


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
        (Order("order-1", world.bob, 5_000_001), "the order"),
        (Order("order-2", world.bob, 5_000_000), "the order"),
        (Order("order-1", world.node.address("carol"), 5_000_000), "the order"),
        (Order("order-1", world.bob, 5_000_000, 19), "requires more"),
        (Order("order-1", world.bob, 5_000_000, 1, since_height=4), "do not count"),
    ):
        with pytest.raises(InvalidProof, match=sentence):
            check_payment_proof(answer, order, now=world.now)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda answer: answer["proof"].update(index=1), "path"),
        (lambda answer: answer["proof"].update(height="2"), "transactionsRoot|path"),
        (lambda answer: answer["proof"].update(note=1), "unknown member"),
        (lambda answer: answer["proof"]["transaction"].update(version=True), "whole number"),
        (lambda answer: answer["proof"]["transaction"].update(fee="9999"), "fee must be"),
        (lambda answer: answer["proof"]["transaction"].update(timestamp="1"), "timestamp must be"),
        (lambda answer: answer["proof"]["transaction"]["payload"].update(memo="x"), "unknown member"),
        (lambda answer: answer["proof"]["transaction"].update(senderAddress="\ud800"), "not a proof|senderAddress"),
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
