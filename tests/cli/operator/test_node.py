"""`svc node …` with a real node, and with nodes that fail."""

import json
from typing import Any

import pytest
from attrs import asdict
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.cli.answers import ResponseObject
from svcd.cli.operator import node as operator_node
from svcd.cli.operator.node import object_text
from svcd.limits import Limit
from svcd.node.network_view import ALONE, NO_PEER_MET, NetworkView
from svcd.rpc.operator_routes import ON_DEMAND, LimitsRoutes, ParticipationRoutes
from svcd.visible_text import visible
from svcd.web.connections import SiteLimits
from tests.chains import address_of, key_of
from tests.cli.terminal import OTHER, Fixed, Terminal, site_of
from tests.cli.test_chain_commands import anything
from tests.rpc.node import FAUCET, Node
from tests.rpc.test_operator_routes import Lever

HASH = "ab" * 32


def height(node: Node) -> int:
    return node.node_context.chain_manager.tip.height


def test_status_shows_every_field(node: Node, terminal: Terminal) -> None:
    lines = terminal.ok("node", "status").out.splitlines()
    assert "chain id                SVC-DEVNET" in lines
    assert lines[0].startswith("state ")
    assert "verifier queue          0" in lines
    assert json.loads(terminal.ok("node", "status", "--json").out)["verifierQueue"] == 0


def test_status_begins_with_what_people_look_for(terminal: Terminal) -> None:
    search = {"height": "13", "attemptsPerSecond": 4.0, "attemptsExpected": "16384", "secondsExpected": 4096.0}
    status = {
        "chainId": "SVC-DEVNET",
        "alone": True,
        "syncState": "synced",
        "hash": HASH,
        "time": "1793491200250",
        "behind": None,
        "alarms": {},
        "participation": {"search": search},
        "webhooks": {"oldestWaitingSince": "1793491200250", "leaseAgeSeconds": 3},
    }
    answer = json.dumps({"ok": True, "status": status}).encode()
    terminal.operator.site = site_of(Fixed((200, answer)), terminal.clock)
    assert terminal.ok("node", "status").out.splitlines() == [
        f"state     {ALONE}",
        "alarms    none",
        f"tip       {HASH}",
        "time      2026-11-01 00:00:00 UTC",
        "participation:",
        "  search:",
        "    height               13",
        "    attempts per second  4.0",
        "    attempts expected    16384",
        "    time expected        68 min",
        "webhooks:",
        "  oldest waiting since  2026-11-01 00:00:00 UTC",
        "  lease age             3 s",
        "chain id  SVC-DEVNET",
    ]
    assert json.loads(terminal.ok("node", "status", "--json").out) == status


def test_mine_makes_blocks(node: Node, terminal: Terminal) -> None:
    told = terminal.ok("node", "mine", 2)
    assert told.out == f"made 2 blocks; the tip is {node.node_context.chain_manager.tip.hash.hex()}\n"
    assert told.err == ""
    assert height(node) == 2
    assert terminal.ok("node", "mine", 1).out.startswith("made 1 block; ")


def test_mine_as_json_gives_the_hashes(node: Node, terminal: Terminal) -> None:
    hashes = json.loads(terminal.ok("node", "mine", 2, "--json").out)["hashes"]
    assert len(hashes) == 2
    assert hashes[-1] == node.node_context.chain_manager.tip.hash.hex()


def test_mine_uses_the_given_producer(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 1, "--producer", key_of("alice").seed.hex())
    account = json.loads(terminal.ok("balance", address_of("alice", "svcd"), "--json").out)
    assert account["balance"] == "2000000000"


def test_mine_requests_chunks_and_shows_progress(
    node: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_node, "CHUNK", 2)
    terminal.stderr_is_terminal = True
    told = terminal.ok("node", "mine", 5)
    assert height(node) == 5
    assert "Making blocks" in told.err
    assert told.out.startswith("made 5 blocks")


@pytest.mark.parametrize(("blocks", "watched", "words"), [(5, False, ()), (2, True, ()), (5, True, ("--json",))])
def test_mine_shows_no_progress_to_programs_or_for_few_blocks(
    node: Node, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, blocks: int, watched: bool, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(operator_node, "CHUNK", 2)
    terminal.stderr_is_terminal = watched
    assert terminal.ok("node", "mine", blocks, *words).err == ""


def test_mine_tells_a_pipe_now_and_then_how_far_it_is(
    terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_node, "CHUNK", 2)
    resource = Fixed((200, json.dumps({"ok": True, "hashes": [HASH, HASH]}).encode()))

    def render(request: object) -> object:
        terminal.clock.advance(4.0)
        return Fixed.render(resource, request)

    resource.render = render  # type: ignore[method-assign]
    terminal.operator.site = site_of(resource, clock)
    assert terminal.ok("node", "mine", 12).err == "made 6 of 12 blocks\nmade 12 of 12 blocks\n"
    assert terminal.ok("node", "mine", 12, "--json").err == ""


def test_mine_reports_partial_success(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_node, "CHUNK", 2)
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
    asked = [json.loads(body) for _, body in resource.seen]
    assert [(each["blocks"], each["following"]) for each in asked] == [(2, 7), (2, 5), (2, 3)]


@pytest.mark.parametrize(
    ("status", "body", "sentence"),
    [
        (400, b'{"ok":false,"error":"not now"}', "not now"),
        (200, b'{"ok":true,"hashes":[]}', "the node answers that it made 0 blocks of 1"),
    ],
)
def test_mine_reports_a_failure_of_the_first_request(
    terminal: Terminal, clock: Clock, status: int, body: bytes, sentence: str
) -> None:
    terminal.operator.site = site_of(Fixed((status, body)), clock)
    assert terminal.failure("node", "mine", 1) == sentence


def test_a_producer_is_a_seed(terminal: Terminal) -> None:
    assert terminal.misuse("node", "mine", 1, "--producer", "AB").endswith("a seed is 64 lower-case hex digits")


def test_faucet_pays_with_the_next_block(node: Node, terminal: Terminal) -> None:
    told = terminal.ok("node", "faucet", OTHER, "12.5").out
    assert "amount     12.5 SVC" in told
    terminal.ok("node", "mine", 1)
    assert json.loads(terminal.ok("balance", OTHER, "--json").out)["balanceSvc"] == "12.5"


def test_faucet_validates_the_amount(terminal: Terminal) -> None:
    assert "at most 8 decimal places" in terminal.misuse("node", "faucet", OTHER, "1.123456789")
    assert "more than 0" in terminal.misuse("node", "faucet", OTHER, "0")


def test_reorganise_replaces_blocks_and_returns_their_transfers_to_the_mempool(node: Node, terminal: Terminal) -> None:
    txid = json.loads(terminal.ok("node", "faucet", OTHER, "1", "--json").out)["txid"]
    terminal.ok("node", "mine", 3)
    told = terminal.ok("node", "reorganise", 3).out
    assert told == f"replaced 3 blocks by 4 empty ones; the tip is {node.node_context.chain_manager.tip.hash.hex()}\n"
    assert height(node) == 4
    assert terminal.failure("tx", txid).endswith("is in no block but waits in the mempool")
    terminal.ok("node", "mine", 1)
    assert json.loads(terminal.ok("tx", txid, "--json").out)["confirmations"] == 1


def test_reorganise_can_drop_the_transfers(node: Node, terminal: Terminal) -> None:
    txid = json.loads(terminal.ok("node", "faucet", OTHER, "1", "--json").out)["txid"]
    terminal.ok("node", "mine", 1)
    assert len(json.loads(terminal.ok("node", "reorganise", 1, "--drop-transactions", "--json").out)["hashes"]) == 2
    assert terminal.failure("tx", txid).endswith("is in no block and not in the mempool")


def test_reorganise_reports_the_maximum_depth(node: Node, terminal: Terminal) -> None:
    assert terminal.failure("node", "reorganise", 1) == "depth must be at most 0, the height of the chain"


@pytest.mark.parametrize("words", [("mine", 1), ("reorganise", 1), ("faucet", FAUCET, 1)])
def test_devnet_commands_fail_on_other_networks(terminal: Terminal, clock: Clock, words: tuple[object, ...]) -> None:
    terminal.operator.site = site_of(Fixed((404, b'{"ok":false,"error":"there is no such path here"}')), clock)
    assert terminal.failure("node", *words) == "the node does not support this command: only a devnet node does"


TABLE = [
    Limit("connections", 1000, "connections", "Idle connections, to use up sockets", "limits.connections"),
    Limit("reading", 0, "requests/s", "More requests than the node can answer", "limits.requestsPerSecond"),
    Limit("levels of JSON", 8, "levels", "JSON nested thousands deep"),
]


def give(node: Node, terminal: Terminal, *routes: object) -> None:
    """Add routes to the operator's site of the terminal's node."""
    terminal.operator.site = node.sites.operator([*node.operator_routes, *routes], SiteLimits())


@pytest.fixture
def lever(node: Node, terminal: Terminal) -> Lever:
    """The switch of the node's participation."""
    lever = Lever()
    give(node, terminal, ParticipationRoutes(node.status, lever, token=None))
    return lever


def test_participation_on_and_off(lever: Lever, terminal: Terminal) -> None:
    assert terminal.ok("node", "participation", "on").out == "the node makes blocks\n"
    assert lever.enabled
    assert terminal.ok("node", "participation", "off").out == "the node makes no blocks\n"
    assert not lever.enabled


def test_participation_reports_what_the_node_waits_for(node: Node, lever: Lever, terminal: Terminal) -> None:
    node.peers.around = NetworkView(0, 0, NO_PEER_MET)
    assert terminal.ok("node", "participation", "on").out == f"the node makes blocks, but not yet: {NO_PEER_MET}\n"
    told = json.loads(terminal.ok("node", "participation", "on", "--json").out)
    assert told == {"enabled": True, "waitsFor": NO_PEER_MET}


def test_participation_is_refused_on_devnet(node: Node, terminal: Terminal) -> None:
    give(node, terminal, ParticipationRoutes(node.status, None, token=None))
    assert ON_DEMAND in terminal.failure("node", "participation", "on")


def test_an_unconfirmed_switch_is_an_error(terminal: Terminal, clock: Clock) -> None:
    answer = json.dumps({"ok": True, "enabled": True, "waitsFor": None}).encode()
    terminal.operator.site = site_of(Fixed((200, answer)), terminal.clock)
    assert terminal.failure("node", "participation", "off") == "the node does not confirm that participation is off"


def test_the_limits(node: Node, terminal: Terminal) -> None:
    give(node, terminal, LimitsRoutes(lambda: TABLE, token=None))
    assert terminal.ok("node", "limits").out == (
        "connections: 1000 connections, set by limits.connections\n"
        "  stops: Idle connections, to use up sockets\n"
        "\n"
        "reading: none, set by limits.requestsPerSecond\n"
        "  stops: More requests than the node can answer\n"
        "\n"
        "levels of JSON: 8 levels\n"
        "  stops: JSON nested thousands deep\n"
    )
    told = json.loads(terminal.ok("node", "limits", "--json").out)
    assert [limit["value"] for limit in told["limits"]] == [1000, 0, 8]


def test_non_numeric_limits_are_rejected(terminal: Terminal) -> None:
    limit = {**asdict(TABLE[0]), "value": "many"}
    answer = json.dumps({"ok": True, "limits": [limit]}).encode()
    terminal.operator.site = site_of(Fixed((200, answer)), terminal.clock)
    assert "value must be a number" in terminal.failure("node", "limits")


def test_nested_objects_are_indented() -> None:
    report = {"syncState": "synced", "on": True, "none": None, "peers": [{"id": 1, "up": False}, {}, "x"], "slow": []}
    report |= {"pool": {"bytes": 7}}
    assert object_text(report).splitlines() == [
        "state  synced",
        "on     yes",
        "none   none",
        "peers:",
        "  - id  1",
        "    up  no",
        "  - none",
        "  - x",
        "slow   none",
        "pool:",
        "  bytes  7",
    ]


@given(st.dictionaries(st.text(), anything, max_size=6))
def test_any_object_can_be_shown(report: dict[str, Any]) -> None:
    text = object_text(ResponseObject("status", report).shown())
    assert all(line == visible(line) for line in text.split("\n"))
