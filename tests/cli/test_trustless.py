"""`svc balance --trustless` and `svc verify --trustless` in front of honest nodes and liars."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from attrs import frozen
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from svcd.chain.block import Block
from svcd.chain.params import DEVNET
from svcd.light.chain_proof import HEADER_FIELDS
from tests.cli.terminal import Network, Terminal, site_of
from tests.cli.test_chain_commands import rows
from tests.rpc.conftest import public_client
from tests.rpc.node import Node, Settings

LIAR = "https://liar.example"
HONEST = "https://honest.example"
BOTH = ("--url", LIAR, "--url", HONEST)
TALE = """
genesis: b[1..20]
b1 is by alice
b3 pays 5000000 from alice to bob for order-1
"""

Change = Callable[[str, dict[str, Any]], object]
"""Changes the answer to a path, in place."""


class Lying(Resource):
    """A node that changes the answers of an honest one."""

    isLeaf = True  # noqa: N815

    def __init__(self, node: Node, change: Change) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._client = public_client(node)
        self._change = change

    def render(self, request: Any) -> bytes:
        answer = self._client.get(request.uri.decode())
        changed = answer.json
        self._change(urlsplit(request.uri.decode()).path, changed)
        request.setResponseCode(200 if changed["ok"] is True else answer.status)
        return json.dumps(changed).encode()


@frozen
class World:
    """A terminal with an honest node at `HONEST`, and a liar at `LIAR` once :meth:`lie` was called."""

    terminal: Terminal
    node: Node
    blocks: dict[str, Block]

    def at(self, url: str, site: Any) -> None:
        network = Network(self.terminal.clock)
        network.site = site
        self.terminal.others[url] = network

    def lie(self, change: Change, node: Node | None = None) -> None:
        self.at(LIAR, site_of(Lying(node or self.node, change), self.terminal.clock))

    @property
    def order(self) -> tuple[str, str, str]:
        return ("order-1", self.node.address("bob"), "0.05")


@pytest.fixture
def world(terminal: Terminal, node: Node) -> World:
    blocks = node.grow(TALE)
    made = World(terminal, node, blocks)
    made.at(HONEST, node.public)
    return made


@pytest.fixture
def short(tmp_path: Path, clock: Clock) -> Iterator[Node]:
    """A node with another chain, of less work, on which bob was paid more."""
    node = Node(tmp_path / "short.sqlite", clock, Settings(params=DEVNET))
    node.grow("genesis: c[1..10]\nc1 is by alice\nc3 pays 900000000 from alice to bob for order-9")
    yield node
    node.close()


def told(world: World, *words: object) -> dict[str, Any]:
    return dict(json.loads(world.terminal.ok(*words, "--json").out))


def raised(path: str, answer: dict[str, Any]) -> None:
    if "/account/" in path:
        answer["proof"]["leaf"]["balance"] = "900000000"


def claimed(path: str, answer: dict[str, Any]) -> None:
    """A payment of 9 coins that its sender has not signed."""
    if path.startswith("/rpc/commerce/payment/") and answer["ok"]:
        answer["proof"]["transaction"]["payload"]["amount"] = "900000000"


def test_a_balance_that_is_proved(world: World) -> None:
    bob = world.node.address("bob")
    shown = told(world, "balance", bob, "--trustless", "--url", HONEST)
    tip = world.blocks["b20"].header
    assert shown["tip"] == {"height": "20", "hash": tip.hash.hex(), "time": str(DEVNET.slot_time(tip.slot))}
    assert (shown["balance"], shown["exists"], shown["confirmations"]) == ("5000000", True, 1)
    assert shown["work"] == str(world.node.node_context.chain_manager.reader.existing_tip().work)
    client = public_client(world.node)
    paths = (f"/rpc/proof/account/{bob}", f"/rpc/proof/chain?tip={tip.hash.hex()}")
    assert shown["fetchedBytes"] == sum(len(client.get(path).body) for path in paths)
    assert shown["nodes"] == [{"url": HONEST, "agrees": True}]
    assert shown["tipAgeSeconds"] == int(world.terminal.clock.seconds()) - DEVNET.slot_time(tip.slot) // 1000
    text = rows(world.terminal.ok("balance", bob, "--trustless", "--url", HONEST).out)
    assert (text["balance"], text["agree"], text["block"]) == (
        "0.05 SVC, proved",
        "1 of 1 node",
        "20, 1 confirmation",
    )
    assert text["not shown"].startswith("whether a heavier chain is hidden")


def test_an_address_without_an_account_has_nothing(world: World) -> None:
    shown = told(world, "balance", world.node.address("nobody"), "--trustless", "--url", HONEST)
    assert (shown["balance"], shown["exists"]) == ("0", False)


def test_the_genesis_alone(terminal: Terminal, node: Node) -> None:
    shown = json.loads(terminal.ok("balance", node.address("faucet"), "--trustless", "--json").out)
    assert (shown["balance"], shown["blockHeight"], shown["work"]) == ("100000000000000", "0", "0")


def test_the_work_is_shown_at_a_terminal_only(world: World) -> None:
    words = ("balance", world.node.address("bob"), "--trustless", "--url", HONEST)
    assert world.terminal.ok(*words).err == ""
    world.terminal.stderr_is_terminal = True
    assert "Checking the work" in world.terminal.ok(*words).err


def test_a_forged_balance_does_not_convince(world: World) -> None:
    world.lie(raised)
    bob = world.node.address("bob")
    sentence = "the path does not lead to the stateRoot of the block"
    assert world.terminal.failure("balance", bob, "--trustless", "--url", LIAR) == (
        f"the balance is not proved: {sentence}"
    )
    shown = told(world, "balance", bob, "--trustless", *BOTH)
    assert shown["balance"] == "5000000"
    assert shown["nodes"] == [{"url": HONEST, "agrees": True}, {"url": LIAR, "agrees": False, "problem": sentence}]
    text = rows(world.terminal.ok("balance", bob, "--trustless", *BOTH).out)
    assert (text["agree"], text["refused"]) == ("1 of 2 nodes", f"{LIAR}: {sentence}")


def test_the_proof_of_another_height_does_not_convince(world: World) -> None:
    world.lie(lambda path, answer: "/account/" in path and answer["proof"].update(height="19"))
    told = world.terminal.failure("balance", world.node.address("bob"), "--trustless", "--url", LIAR)
    assert told.endswith("is at height 19; it is at 20")


def test_the_proof_of_another_account_does_not_convince(world: World) -> None:
    client = public_client(world.node)
    other = client.get(f"/rpc/proof/account/{world.node.address('alice')}").json
    world.lie(lambda path, answer: "/account/" in path and answer.update(other))
    told = world.terminal.failure("balance", world.node.address("bob"), "--trustless", "--url", LIAR)
    assert told.endswith("the proof is for another address than the one that was asked for")


def test_the_chain_with_the_most_work_wins(world: World, short: Node) -> None:
    world.at(LIAR, short.public)
    bob = world.node.address("bob")
    shown = told(world, "balance", bob, "--trustless", *BOTH)
    assert (shown["balance"], shown["tip"]["height"]) == ("5000000", "20")
    (liar,) = [each for each in shown["nodes"] if each["url"] == LIAR]
    assert liar["problem"].startswith("its chain is another one, or far behind: it ends at height 10 with the work of")
    order = ("order-9", bob, "9")
    assert "order-9" in world.terminal.ok("verify", *order, "--trustless", "--url", LIAR).out
    refused = world.terminal.failure("verify", *order, "--trustless", *BOTH)
    assert refused.startswith("no node proves the payment: ")
    assert f"{LIAR}: its chain is another one" in refused
    assert f"{HONEST}: no block of the chain contains this payment of order-9" in refused


def test_a_chain_without_work_does_not_convince(world: World) -> None:
    lines = "genesis: f[1..40]\nf1 is by alice\nf3 pays 900000000 from alice to bob for order-9\nf7 has an invalid work"
    forged = [block.header for block in world.node.builder.chain(lines).values()]
    headers = [json.loads(header.wire()) for header in forged]

    def forge(path: str, answer: dict[str, Any]) -> None:
        if path == "/rpc/proof/chain":
            shown = [{name: header[name] for name in HEADER_FIELDS} for header in headers]
            answer.clear()
            network = {"chainId": DEVNET.chain_id, "genesisHash": DEVNET.genesis_hash.hex()}
            answer |= {"ok": True, "proof": {**network, "tip": forged[-1].hash.hex(), "headers": shown, "nodes": []}}
        elif "/account/" in path:
            answer["proof"] |= {"height": "40", "hash": forged[-1].hash.hex()}

    world.lie(forge)
    shown = told(world, "balance", world.node.address("bob"), "--trustless", *BOTH)
    assert (shown["balance"], shown["tip"]["height"]) == ("5000000", "20")
    sentence = f"the work of block {forged[6].hash.hex()} does not reach its target"
    assert {"url": LIAR, "agrees": False, "problem": sentence} in shown["nodes"]
    alone = world.terminal.failure("balance", world.node.address("bob"), "--trustless", "--url", LIAR)
    assert alone == f"the balance is not proved: {sentence}"


def test_a_payment_that_is_proved(world: World) -> None:
    words = ("verify", *world.order, "--trustless", "--url", HONEST)
    shown = told(world, *words)
    paid = world.blocks["b3"]
    assert (shown["state"], shown["confirmations"], shown["requiredConfirmations"]) == ("confirmed", 18, 12)
    assert (shown["txid"], shown["blockHash"]) == (paid.transfers[0].txid.hex(), paid.header.hash.hex())
    assert told(world, *words, "--confirmations", 19)["state"] == "confirming"
    text = rows(world.terminal.ok(*words).out)
    assert (text["state"], text["confirmations"]) == ("confirmed, proved", "18 (12 required)")
    assert "that an order is unpaid cannot be proved" in text["not shown"]
    assert "where payments" not in world.terminal.ok(*words, "--since-height", 3).out
    refused = world.terminal.failure(*words, "--since-height", 4)
    assert refused.startswith("the payment is not proved: no block of the chain contains this payment")


def test_a_forged_payment_does_not_convince(world: World) -> None:
    world.lie(claimed)
    order = ("order-1", world.node.address("bob"), "9")
    # Asked for nine coins, the liar answers with the payment of 0.05, changed.
    asked = f"/rpc/commerce/payment/order-1/proof?recipient={order[1]}&amountBaseUnits=5000000&chain=1"
    honest = public_client(world.node).get(asked).json
    world.lie(
        lambda path, answer: (answer.clear(), answer.update(json.loads(json.dumps(honest))), claimed(path, answer))
    )
    refused = world.terminal.failure("verify", *order, "--trustless", "--url", LIAR)
    assert refused.startswith("the payment is not proved: ")
    assert "signature" in refused
    refused = world.terminal.failure("verify", *order, "--trustless", *BOTH)
    assert f"{HONEST}: no block of the chain contains this payment" in refused
    world.lie(lambda path, answer: (answer.clear(), answer.update(honest)))
    refused = world.terminal.failure("verify", *order, "--trustless", "--url", LIAR)
    assert refused.endswith("the transfer in the proof pays 5000000 base units, not 900000000")


def test_one_liar_does_not_hide_a_payment(world: World) -> None:
    def hide(path: str, answer: dict[str, Any]) -> None:
        if path.startswith("/rpc/commerce/payment/"):
            answer["proof"]["transaction"]["payload"]["paymentReference"] = "order-2"

    world.lie(hide)
    shown = told(world, "verify", *world.order, "--trustless", *BOTH)
    assert shown["state"] == "confirmed"
    assert [each["agrees"] for each in shown["nodes"]] == [True, False]


def test_a_node_that_is_not_there_is_named(world: World) -> None:
    gone = Network(world.terminal.clock)
    gone.failure = ConnectionRefusedError(111, "refused")
    world.terminal.others[LIAR] = gone
    shown = told(world, "verify", *world.order, "--trustless", *BOTH)
    assert shown["nodes"][1]["problem"].startswith(f"cannot connect to {LIAR}: connection refused")


def test_a_tip_that_is_undone_between_two_requests_is_asked_again(world: World) -> None:
    asked: list[str] = []

    def undo(path: str, answer: dict[str, Any]) -> None:
        asked.append(path)
        if len(asked) == 1:
            answer["proof"] |= {"hash": "ab" * 32, "height": "21"}

    world.lie(undo)
    shown = told(world, "balance", world.node.address("bob"), "--trustless", "--url", LIAR)
    assert shown["balance"] == "5000000"
    assert [path.split("/")[3] for path in asked] == ["account", "chain", "account", "chain"]


def test_a_chain_from_the_future_is_refused(world: World) -> None:
    save(world)
    began = DEVNET.slot_time(world.blocks["b20"].header.slot) / 1000
    for words in (
        ("balance", world.node.address("bob"), "--trustless", "--url", HONEST),
        ("verify", *world.order, "--trustless", "--url", HONEST),
        ("verify", *world.order, "--proof", "proof.json"),
        ("verify", "--proof", "proof.json"),
    ):
        world.terminal.clock.rightNow = began - 301
        told = world.terminal.failure(*words)
        assert told.endswith("its newest block is more than five minutes ahead of this computer's clock")
        world.terminal.clock.rightNow = began - 299
        world.terminal.ok(*words)


def test_several_nodes_need_trustless(world: World) -> None:
    sentence = "several --url options need --trustless; without it, give only one"
    assert world.terminal.misuse("balance", world.node.address("bob"), *BOTH) == sentence
    assert world.terminal.misuse("verify", *world.order, *BOTH) == sentence
    both = world.terminal.misuse("verify", "--trustless", "--proof", "proof.json")
    assert both == "--trustless asks nodes, and --proof asks none; give one of them"
    for words in (("balance", world.node.address("bob")), ("verify", *world.order)):
        assert world.terminal.misuse(*words, "--minimum-work", 1).startswith("--minimum-work needs --trustless")


def test_a_chain_with_less_work_than_required_does_not_convince(world: World, short: Node) -> None:
    """A single node cannot pass off a chain as the heaviest that has less work than an earlier check has shown."""
    bob = world.node.address("bob")
    work = int(told(world, "balance", bob, "--trustless", "--url", HONEST)["work"])
    world.at(LIAR, short.public)
    for words in (("balance", bob), ("verify", "order-9", bob, "9")):
        refused = world.terminal.failure(*words, "--trustless", "--url", LIAR, "--minimum-work", work)
        assert refused.endswith(f" hashes, less than the required {work:,}")
    for words in (("balance", bob), ("verify", *world.order)):
        assert told(world, *words, "--trustless", "--url", HONEST, "--minimum-work", work)["work"] == str(work)


# A file with a proof


def save(world: World, change: Callable[[dict[str, Any]], object] = lambda _: None) -> None:
    reference, recipient, _ = world.order
    path = f"/rpc/commerce/payment/{reference}/proof?recipient={recipient}&amountBaseUnits=5000000"
    answer = public_client(world.node).get(path).json
    change(answer)
    (world.terminal.folder / "proof.json").write_text(json.dumps(answer))


def test_a_file_with_a_proof_needs_no_tip(world: World) -> None:
    save(world)
    shown = told(world, "verify", *world.order, "--proof", "proof.json")
    assert (shown["confirmations"], shown["blockHeight"]) == (18, "3")
    text = rows(world.terminal.ok("verify", "--proof", "proof.json").out)
    assert text["payment"] == "proved on a chain from the genesis"
    assert text["not shown"].startswith("whether another chain has more work")
    tip = world.blocks["b20"].header.hash.hex()
    anchored = told(world, "verify", "--proof", "proof.json", "--tip", tip)
    assert (anchored["tip"]["hash"], "minimum" in anchored["notShown"]) == (tip, False)
    assert told(world, "verify", "--proof", "proof.json", "--minimum-work", shown["work"]) == shown


@pytest.mark.parametrize(
    ("words", "change", "sentence"),
    [
        (("--confirmations", "19"), lambda _: None, "the proof shows 18 confirmations and 19 are required"),
        (("--since-height", "4"), lambda _: None, "only block 4 and later ones count"),
        (("--tip", "ab" * 32), lambda _: None, f"not in {'ab' * 32}; ask a node"),
        (("--minimum-work", "1000000"), lambda _: None, "less than the required 1,000,000"),
        ((), lambda answer: answer["proof"].update(index=1), "transaction 1 of 1"),
        ((), lambda answer: answer["proof"].update(height="4"), "path"),
        ((), lambda answer: answer["proof"]["chain"]["headers"].pop(5), "are missing"),
        ((), lambda answer: answer["proof"].update(note=1), 'unknown field "note"'),
        ((), lambda answer: answer["proof"].update(chainId="SVC-MAINNET"), "its genesis differs"),
        ((), lambda answer: answer.update(next="7"), "next null"),
    ],
)
def test_a_file_that_proves_nothing(
    world: World, words: tuple[str, ...], change: Callable[[dict[str, Any]], object], sentence: str
) -> None:
    save(world, change)
    assert sentence in world.terminal.failure("verify", *world.order, "--proof", "proof.json", *words)
