"""What an operator asks of a node: the real one, and ones that fail on the way."""

import json

import pytest
from twisted.internet.task import Clock

from svcd.wallet import node_commands
from tests.chains import address_of, key_of
from tests.rpc.node import FAUCET, Node
from tests.wallet.terminal import OTHER, Fixed, Terminal, site_of

HASH = "ab" * 32


def height(node: Node) -> int:
    return node.living.ledger.tip.height


def test_status_shows_everything_that_the_node_tells(node: Node, terminal: Terminal) -> None:
    lines = terminal.ok("node", "status").out.splitlines()
    assert "chain id                SVC-DEVNET" in lines
    assert "verifier queue          0" in lines
    assert json.loads(terminal.ok("node", "status", "--json").out)["verifierQueue"] == 0


def test_mine_makes_blocks(node: Node, terminal: Terminal) -> None:
    told = terminal.ok("node", "mine", 2)
    assert told.out == f"made 2 blocks; the tip is {node.living.ledger.tip.hash.hex()}\n"
    assert told.err == ""
    assert height(node) == 2
    assert terminal.ok("node", "mine", 1).out.startswith("made 1 block; ")


def test_mine_as_json_gives_the_hashes(node: Node, terminal: Terminal) -> None:
    hashes = json.loads(terminal.ok("node", "mine", 2, "--json").out)["hashes"]
    assert len(hashes) == 2
    assert hashes[-1] == node.living.ledger.tip.hash.hex()


def test_mine_pays_the_producer_that_is_named(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 1, "--producer", key_of("alice").seed.hex())
    account = json.loads(terminal.ok("balance", address_of("alice", "svcd"), "--json").out)
    assert account["balance"] == "2000000000"


def test_mine_asks_in_chunks_and_shows_how_far_it_is(
    node: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_commands, "CHUNK", 2)
    terminal.watched = True
    told = terminal.ok("node", "mine", 5)
    assert height(node) == 5
    assert "Making blocks" in told.err
    assert told.out.startswith("made 5 blocks")


@pytest.mark.parametrize(("blocks", "watched", "words"), [(5, False, ()), (2, True, ()), (5, True, ("--json",))])
def test_mine_shows_no_bar_to_programs_and_for_few_blocks(
    node: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, blocks: int, watched: bool, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(node_commands, "CHUNK", 2)
    terminal.watched = watched
    assert terminal.ok("node", "mine", blocks, *words).err == ""


def test_mine_says_how_far_it_came(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_commands, "CHUNK", 2)
    resource = Fixed((200, json.dumps({"ok": True, "hashes": [HASH, HASH]}).encode()))

    def render(request: object) -> object:
        if len(resource.seen) == 2:
            resource.answer = (400, b'{"ok":false,"error":"the chain has caught up with the clock: try again in 1 s"}')
        return Fixed.render(resource, request)

    resource.render = render  # type: ignore[method-assign]
    terminal.operator.site = site_of(resource, clock)
    assert terminal.failure("node", "mine", 9) == (
        "4 of 9 blocks were made, then: the chain has caught up with the clock: try again in 1 s"
    )
    assert [json.loads(body)["blocks"] for _, body in resource.seen] == [2, 2, 2]


def test_mine_reports_a_failure_at_the_start_as_it_is(node: Node, terminal: Terminal, clock: Clock) -> None:
    terminal.operator.site = site_of(Fixed((400, b'{"ok":false,"error":"not now"}')), clock)
    assert terminal.failure("node", "mine", 1) == "not now"


def test_a_node_that_made_nothing_is_not_believed(terminal: Terminal, clock: Clock) -> None:
    terminal.operator.site = site_of(Fixed((200, b'{"ok":true,"hashes":[]}')), clock)
    assert terminal.failure("node", "mine", 1) == "the node answers that it made no blocks"


@pytest.mark.parametrize("words", [("mine", 0), ("mine", "many"), ("reorganise", 0)])
def test_counts_are_positive_numbers(terminal: Terminal, words: tuple[object, ...]) -> None:
    assert "Invalid value" in terminal.misuse("node", *words)


def test_a_producer_is_a_seed(terminal: Terminal) -> None:
    assert terminal.misuse("node", "mine", 1, "--producer", "AB").endswith("a seed is 64 lower-case hex digits")


def test_faucet_pays_with_the_next_block(node: Node, terminal: Terminal) -> None:
    told = terminal.ok("node", "faucet", OTHER, "12.5").out
    assert "amount     12.5 coins" in told
    terminal.ok("node", "mine", 1)
    assert json.loads(terminal.ok("balance", OTHER, "--json").out)["balanceSvc"] == "12.5"


def test_faucet_judges_the_amount(terminal: Terminal) -> None:
    assert "at most 8 decimal places" in terminal.misuse("node", "faucet", OTHER, "1.123456789")
    assert "more than 0" in terminal.misuse("node", "faucet", OTHER, "0")


def test_reorganise_replaces_blocks_and_lets_their_transfers_wait(node: Node, terminal: Terminal) -> None:
    txid = json.loads(terminal.ok("node", "faucet", OTHER, "1", "--json").out)["txid"]
    terminal.ok("node", "mine", 3)
    told = terminal.ok("node", "reorganise", 3).out
    assert told == f"replaced 3 blocks by 4 empty ones; the tip is {node.living.ledger.tip.hash.hex()}\n"
    assert height(node) == 4
    assert terminal.failure("tx", txid).endswith("it waits in the mempool")
    terminal.ok("node", "mine", 1)
    assert json.loads(terminal.ok("tx", txid, "--json").out)["confirmations"] == 1


def test_reorganise_can_forget_the_transfers(node: Node, terminal: Terminal) -> None:
    txid = json.loads(terminal.ok("node", "faucet", OTHER, "1", "--json").out)["txid"]
    terminal.ok("node", "mine", 1)
    assert len(json.loads(terminal.ok("node", "reorganise", 1, "--drop-transactions", "--json").out)["hashes"]) == 2
    assert terminal.failure("tx", txid).endswith("it does not wait for one either")


def test_reorganise_says_how_deep_the_chain_is(node: Node, terminal: Terminal) -> None:
    assert terminal.failure("node", "reorganise", 1) == "depth must be at most 0, the height of the chain"


@pytest.mark.parametrize("words", [("mine", 1), ("reorganise", 1), ("faucet", FAUCET, 1)])
def test_only_devnet_takes_such_orders(terminal: Terminal, clock: Clock, words: tuple[object, ...]) -> None:
    terminal.operator.site = site_of(Fixed((404, b'{"ok":false,"error":"there is no such path here"}')), clock)
    assert terminal.failure("node", *words) == "the node does not take this order: only a node on devnet does"
