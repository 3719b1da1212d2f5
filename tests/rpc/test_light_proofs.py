"""Proofs for light clients: what a node answers is what another implementation expects, and what a client accepts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from svcd.chain.accounts import Account
from svcd.chain.block import parse_block
from svcd.chain.encoding import canonical
from svcd.chain.params import DEVNET
from svcd.chain.work import check_work
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.light.account_proof import check_account, parse_account_proof
from svcd.light.chain_proof import ProvenChain, Unproved, check_chain, parse_chain_proof
from svcd.light.prover import render_chain_section
from svcd.rpc.proof_routes import ProofRoutes
from svcd.web.rate_limits import Rate
from tests.chains import key_of
from tests.node.bench import Stepped
from tests.rpc.conftest import present, public_client
from tests.rpc.node import PARAMS, UNLIMITED, Client, Node, Settings
from tests.support import has_result, result_of

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "svc_protocol.json").read_text())
CHAIN_VECTORS = {vector["why"]: vector for vector in VECTORS["chainProofs"]}


@pytest.fixture(scope="module")
def devnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with the published chain of 25 blocks."""
    clock = present()
    clock.advance(100_000)
    node = Node(tmp_path_factory.mktemp("devnet") / "chain.sqlite", clock, Settings(params=DEVNET))
    node.take(*[parse_block(canonical(vector["block"]), DEVNET) for vector in VECTORS["devnetChain"]["blocks"]])
    yield node
    node.close()


def chain_of(proof: dict[str, Any]) -> ProvenChain:
    """The chain that a proof in an answer shows, with its work checked."""
    chain = check_chain(parse_chain_proof(proof, PARAMS), PARAMS)
    for header in chain.headers.values():
        check_work(header, PARAMS)
    return chain


# The published proofs


@pytest.mark.parametrize(
    ("why", "height"),
    [
        ("the proof of devnetChain", 25),
        *[(f"devnetChain up to height {height}", height) for height in (1, 4, 5, 16, 17)],
    ],
)
def test_the_published_proof_of_the_chain(devnet: Node, why: str, height: int) -> None:
    expected = CHAIN_VECTORS[why]["proof"]
    reader = devnet.node_context.chain_manager.reader
    tip = reader.existing(height).point
    made = render_chain_section(reader, tip, recent=4, samples=2)
    assert made == {name: expected[name] for name in ("tip", "headers", "nodes")}


@pytest.mark.parametrize("vector", VECTORS["paymentProofs"][:2], ids=lambda vector: vector["why"])
def test_the_published_chain_section_of_a_payment(devnet: Node, vector: dict[str, Any]) -> None:
    reader, proof = devnet.node_context.chain_manager.reader, vector["proof"]
    tip = reader.existing_tip()
    including = [int(proof["height"])]
    made = render_chain_section(reader, tip, including=including, recent=4, samples=2)
    assert made == proof["chain"]


def compare_published(client: Client, height: str) -> int:
    """Compare the answers with the published proofs of accounts at ``height`` of devnet; gives their number."""
    proofs = [
        vector["proof"]
        for vector in VECTORS["accountProofs"]
        if "rule" not in vector and (vector["network"], vector["block"]["height"]) == ("devnet", height)
    ]
    for proof in proofs:
        assert client.get(f"/rpc/proof/account/{proof['address']}").json["proof"] == proof
    return len(proofs)


def test_the_published_proofs_of_accounts(devnet: Node) -> None:
    assert compare_published(public_client(devnet), "25") == 4


def test_the_published_proofs_of_accounts_at_the_genesis(open_node: Callable[..., Node]) -> None:
    assert compare_published(public_client(open_node(params=DEVNET)), "0") == 2


# The chain


@pytest.mark.parametrize("height", [0, 1, 99, 100, 101, 150])
def test_a_client_accepts_the_proof_of_a_chain_of_any_length(node: Node, client: Client, height: int) -> None:
    blocks = [] if height == 0 else list(node.grow(f"genesis: b[1..{height}]").values())
    answer = client.get("/rpc/proof/chain")
    tip = chain_of(answer.json["proof"]).tip
    assert (tip.height, tip.hash) == (height, blocks[-1].header.hash if blocks else PARAMS.genesis_hash)
    assert tip == node.node_context.chain_manager.reader.existing_tip()
    assert answer.headers["svc-tip"] == f"{height}:{tip.hash.hex()}"


def test_a_proof_with_an_earlier_tip(node: Node, client: Client) -> None:
    blocks = node.grow("genesis: b[1..120]")
    earlier = blocks["b110"].header.hash
    assert chain_of(client.get(f"/rpc/proof/chain?tip={earlier.hex()}").json["proof"]).tip.hash == earlier


def test_a_tip_that_is_not_on_the_chain_is_not_found(node: Node, client: Client) -> None:
    blocks = node.grow("genesis: b[1..3]\ngenesis: c[1..4]")
    for block_hash in (blocks["b3"].header.hash.hex(), 64 * "0"):
        refused = client.get(f"/rpc/proof/chain?tip={block_hash}")
        assert refused.status == 404
        assert refused.error == f"no block of the chain has the hash {block_hash}; ask without tip for the present one"
    assert "tip: must be 64 lower-case hex characters" in client.refusal("/rpc/proof/chain?tip=7")


def test_a_proof_is_not_shown_once_its_tip_has_left_the_chain(node: Node, client: Client) -> None:
    blocks = node.builder.chain("genesis: b[1..3]\ngenesis: c[1..4]")
    node.take(blocks["b1"], blocks["b2"], blocks["b3"])
    path = f"/rpc/proof/chain?tip={blocks['b3'].header.hash.hex()}"
    assert client.get(path).status == 200
    node.take(blocks["c1"], blocks["c2"], blocks["c3"], blocks["c4"])
    assert client.get(path).status == 404


def test_a_proof_names_the_tip_of_the_moment_at_which_it_is_asked_for(node: Node, client: Client) -> None:
    blocks = node.grow("genesis: b[1..3]")
    path = f"/rpc/proof/chain?tip={blocks['b3'].header.hash.hex()}"
    assert client.get(path).headers["svc-tip"].startswith("3:")
    node.take(node.builder.block(blocks["b3"]))
    assert client.get(f"{path}&minHeight=4").headers["svc-tip"].startswith("4:")


def test_a_proof_is_made_once_for_each_tip(node: Node, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made, reads = [], node.node_context.chain_manager.long_reads
    monkeypatch.setattr(reads, "ask", lambda query, ask=reads.ask: made.append(query) or ask(query))
    blocks = node.grow("genesis: b[1..3]")
    assert client.get("/rpc/proof/chain").body == client.get("/rpc/proof/chain").body
    assert len(made) == 1
    node.take(node.builder.block(blocks["b3"]))
    assert chain_of(client.get("/rpc/proof/chain").json["proof"]).tip.height == 4
    assert len(made) == 2


def test_a_client_that_goes_away_leaves_the_proof_to_the_next(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    chain_manager, worker = node.node_context.chain_manager, Stepped()
    ask = chain_manager.long_reads.ask
    monkeypatch.setattr(chain_manager.long_reads, "ask", lambda query: worker.run(lambda: result_of(ask(query))))
    payments = PaymentLookup.subscribed(chain_manager, node.node_context.transaction_pool)
    routes = ProofRoutes(node.node_context, payments)
    first, second = (Deferred.fromCoroutine(routes.chain(lambda _: None, tip=None)) for _ in range(2))
    first.addErrback(lambda failure: failure.trap(CancelledError))
    first.cancel()
    assert not has_result(second)
    worker.step()
    assert json.loads(result_of(second).body)["proof"]["tip"] == PARAMS.genesis_hash.hex()
    assert len(worker) == 0, "it was not made twice"


def test_accounts_are_looked_up_one_at_a_time(node: Node) -> None:
    """A block waits in the writer's queue for one of them, whether clients wait for theirs or go away."""
    writer = Stepped()
    context = evolve(node.node_context, chain=evolve(node.node_context.chain, writer=writer))
    payments = PaymentLookup.subscribed(context.chain_manager, context.transaction_pool)
    routes = ProofRoutes(context, payments)
    address = node.address("alice")
    looking = [Deferred.fromCoroutine(routes.account(address)) for _ in range(5)]
    looking[0].addErrback(lambda failure: failure.trap(CancelledError)).cancel()
    for _ in looking:
        assert len(writer) == 1
        writer.step()
    assert len(writer) == 0
    assert {json.loads(result_of(each).body)["proof"]["address"] for each in looking[1:]} == {address}


def test_proofs_have_a_rate_of_their_own(open_node: Callable[..., Node]) -> None:
    node = open_node(rates={**UNLIMITED, "proofs": Rate(5, 5)})
    client = public_client(node)
    assert [client.get("/rpc/proof/chain").status for _ in range(3)] == [200, 200, 429]
    assert client.get("/rpc/status").status == 200


def test_a_proof_that_no_other_client_needs_costs_more(open_node: Callable[..., Node]) -> None:
    node = open_node(rates={**UNLIMITED, "proofs": Rate(1, 30)})
    blocks = node.grow("genesis: b[1..3]")
    client = public_client(node)
    paths = [f"/rpc/proof/chain?tip={blocks[name].header.hash.hex()}" for name in ("b3", "b2", "b1", "b2")]
    assert [client.get(path).status for path in paths] == [200, 200, 200, 429]


# Accounts


@settings(max_examples=settings().max_examples // 10 + 1)
@given(st.data())
def test_every_account_and_every_absence_is_proved(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    node = Node(tmp_path_factory.mktemp("laws") / "chain.sqlite", present(), Settings())
    try:
        names = data.draw(st.lists(st.sampled_from("abcdefghijklmnop"), max_size=8, unique=True))
        lines = [f"b{number + 1} pays 2000000 from alice to {name}" for number, name in enumerate(names)]
        node.grow("\n".join([f"genesis: b[1..{len(names) + 1}]", *lines]))
        client = public_client(node)
        chain = chain_of(client.get("/rpc/proof/chain").json["proof"])
        tip = chain.headers[len(names) + 1]
        for name in {*names, "alice", "bob", "nobody", data.draw(st.text("qrstuv", min_size=1, max_size=3))}:
            proof = parse_account_proof(client.get(f"/rpc/proof/account/{node.address(name)}").json["proof"], PARAMS)
            found = check_account(proof, block=tip.hash, height=tip.height, state_root=tip.state_root)
            assert found == node.node_context.chain_manager.reader.account(key_of(name).hash)
            assert (found is None) is (name not in {*names, "alice", "bob"})
    finally:
        node.close()


def test_a_proof_of_another_balance_is_refused(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 pays 2000000 from alice to dave")
    answer = client.get(f"/rpc/proof/account/{node.address('dave')}").json["proof"]
    assert answer["leaf"]["balance"] == "2000000"
    answer["leaf"]["balance"] = "2000001"
    tip = node.node_context.chain_manager.reader.existing(1)
    state_root = node.node_context.chain_manager.reader.block_header(tip, PARAMS).state_root
    with pytest.raises(Unproved, match="does not lead to the stateRoot"):
        check_account(parse_account_proof(answer, PARAMS), block=tip.point.hash, height=1, state_root=state_root)


def test_an_account_that_holds_says_since_when(node: Node, client: Client) -> None:
    leaf = client.get(f"/rpc/proof/account/{node.address('alice')}").json["proof"]["leaf"]
    account = node.node_context.chain_manager.reader.account(key_of("alice").hash)
    assert isinstance(account, Account)
    assert (leaf["balance"], leaf["nonce"]) == (str(account.balance), "0")
    assert leaf["heldSince"] == (None if account.held_since is None else str(account.held_since))
