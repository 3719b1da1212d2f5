"""The operator's routes, and devnet at the operator's word."""

import ast
import os
import re
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import define, evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Corrupt
from svcd.chain.params import ProducerChange
from svcd.composition.services import limits_of
from svcd.config.layers import camel
from svcd.config.loader import load
from svcd.config.schema import Limits
from svcd.limits import Limit
from svcd.node.backups import Backups
from svcd.node.network_view import NO_PEER_MET, NetworkView
from svcd.node.threads import InlineWorker, PoolLoad
from svcd.node.work_rate import WorkRate
from svcd.rpc.operator_routes import BackupRoutes, LimitsRoutes, NodeDetails, ParticipationRoutes, PeerAdminRoutes
from svcd.rpc.sites import SiteFactory
from svcd.store.database import connect
from svcd.web.connections import SiteLimits
from tests.chains import COIN, key_of
from tests.node.bench import Stepped
from tests.rpc.conftest import description_of, local_client
from tests.rpc.node import FAUCET, OPERATOR, OPERATOR_SOCKET, PARAMS, TOKEN, Client, Node, Settings
from tests.support import result_of
from tests.web.wire import Response, Wire

OpenNode = Callable[..., Node]

OWN = encode_address(OPERATOR.hash, "svcd")
BOB = encode_address(key_of("bob").hash, "svcd")


def height(client: Client) -> int:
    return int(client.ok("/rpc/status")["status"]["height"])


def balance(client: Client, address: str) -> int:
    return int(client.ok(f"/rpc/balance/{address}")["account"]["balance"])


def hashes(client: Client) -> list[str]:
    """All blocks after the genesis."""
    return [client.ok(f"/rpc/block/{each}")["block"]["hash"] for each in range(1, height(client) + 1)]


# How the node fares


def test_ready(still_operator: Client) -> None:
    assert still_operator.ok("/ready") == {"alarms": [], "alone": True}


def test_ready_with_an_alarm_after_an_outage(node: Node, operator: Client) -> None:
    blocks = node.grow("genesis: b[1..3] c[4..8]\nb3 is at slot 44")
    assert operator.ok("/ready") == {
        "alarms": [
            "the chain stood still for 40 slots before block 3: ask for more confirmations than usual until block 8"
        ],
        "alone": True,
    }
    node.take(node.builder.block(blocks["c8"]))
    assert operator.ok("/ready") == {"alarms": [], "alone": True}


def test_ready_without_one_after_a_shorter_gap(node: Node, operator: Client) -> None:
    node.grow("genesis: b[1..3]\nb3 is at slot 43")
    assert operator.ok("/ready") == {"alarms": [], "alone": True}


def test_ready_with_an_alarm_after_a_deep_reorganisation(node: Node, operator: Client, client: Client) -> None:
    node.grow("genesis: b[1..12]")
    operator.ok("/operator/reorganise", {"depth": 12})
    sentence = "a reorganisation undid 12 blocks, from height 1 to 12: look at payments that were settled in them"
    assert operator.ok("/ready") == {"alarms": [sentence], "alone": True}
    assert operator.ok("/operator/status")["status"]["alarms"] == {"deep-reorganisation": sentence}
    assert client.ok("/rpc/status")["status"]["syncState"] == "synced"


def test_not_ready_while_peers_move_on(node: Node, operator: Client, client: Client, clock: Clock) -> None:
    node.peers.around = NetworkView(3, 0, "", usual_height=2)
    clock.advance(599)
    assert operator.ok("/ready") == {"alarms": [], "alone": False}
    clock.advance(1)
    assert operator.refusal("/ready", status=503) == (
        "not ready: the chain of this node has been at height 0 for 10 minutes while most peers show height 2 or more"
    )
    assert client.ok("/rpc/status")["status"]["syncState"] == "synced"


def test_not_ready_while_the_disk_takes_nothing(node: Node, operator: Client) -> None:
    connection = node.node_context.chain.chainstate.store._db
    connection.execute("PRAGMA query_only = 1")
    assert operator.refusal("/operator/mine", {"blocks": 1}, status=503).startswith("the node cannot write to its disk")
    sentence = "not ready: the chain's database cannot be written: attempt to write a readonly database"
    for _ in range(2):
        assert operator.refusal("/ready", status=503) == sentence
        result_of(Deferred.fromCoroutine(node.databases.try_disks()))
    connection.execute("PRAGMA query_only = 0")
    result_of(Deferred.fromCoroutine(node.databases.try_disks()))
    assert operator.ok("/ready") == {"alarms": [], "alone": True}


def test_not_ready_while_most_peers_break_the_rules(node: Node, operator: Client) -> None:
    node.peers.around = NetworkView(3, 0, "most peers send blocks that break a rule, last http://peer: why")
    assert operator.refusal("/ready", status=503) == (
        "not ready: most peers send blocks that break a rule, last http://peer: why"
    )


def test_not_ready_without_peers(open_node: OpenNode) -> None:
    operator = local_client(open_node(alone=False))
    assert operator.refusal("/ready", status=503) == (
        "not ready: no verified peer has answered, and [participation] alone is not set"
    )
    assert operator.ok("/health") == {}


def test_operator_status_is_the_node_s_with_details(still: Client, still_operator: Client) -> None:
    status = still.ok("/rpc/status")["status"]
    assert still_operator.ok("/operator/status") == {
        "status": {**status, "behind": None, "alarms": {}, "verifierQueue": 0}
    }


def test_operator_status_has_the_hash_of_the_changes_of_producers(open_node: OpenNode) -> None:
    params = evolve(PARAMS, producers=(OWN,), changes=(ProducerChange(height=9, producers=(BOB,)),))
    told = local_client(open_node(params=params)).ok("/operator/status")["status"]
    assert told["changesHash"] == params.changes_hash.hex()


def test_operator_routes_are_not_on_the_public_site(still: Client) -> None:
    for path in ("/rpc/health", "/rpc/ready", "/rpc/operator/status", "/rpc/operator/mine"):
        assert still.refusal(path, status=404).startswith("there is no such path here")


@pytest.mark.parametrize("path", ["/health", "/ready", "/operator/status", "/operator/mine", "/"])
def test_nothing_but_rpc_is_on_the_public_site(node: Node, path: str) -> None:
    response = Wire(node.public).send(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()).response()
    assert response.status == 404
    assert response.error.startswith("there is no such path here")


def test_chain_routes_are_not_on_the_operator_s_site(still_operator: Client) -> None:
    still_operator.refusal("/rpc/status", status=404)


# The token


@pytest.fixture
def guarded(open_node: OpenNode) -> Client:
    """The operator's site over TCP, where a token is asked for."""
    return local_client(open_node(token=TOKEN))


GUARDED = {
    "/ready": None,
    "/operator/status": None,
    "/operator/mine": {"blocks": 1},
    "/operator/reorganise": {"depth": 1},
    "/operator/faucet": {"recipient": BOB, "amount": "1"},
}


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize("given", [None, "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"])
def test_token_is_asked_for(guarded: Client, path: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    response = guarded.send("GET" if GUARDED[path] is None else "POST", path, GUARDED[path], headers)
    assert (response.status, response.headers["www-authenticate"]) == (401, "Bearer")
    assert response.error == "this needs the header Authorization: Bearer <token> with the right token"


def test_token_opens_the_door(guarded: Client) -> None:
    assert guarded.send("GET", "/ready", headers={"Authorization": f"bearer {TOKEN}"}).status == 200
    response = guarded.send("POST", "/operator/mine", {"blocks": 1}, {"Authorization": f"Bearer {TOKEN}"})
    assert len(response.json["hashes"]) == 1


def test_token_comes_before_the_body(guarded: Client) -> None:
    assert guarded.send("POST", "/operator/mine", b"not JSON").status == 401


def test_health_needs_no_token(guarded: Client) -> None:
    assert guarded.ok("/health") == {}


# Mining


def test_mine_makes_blocks_at_once(client: Client, operator: Client) -> None:
    made = operator.ok("/operator/mine", {"blocks": 40})["hashes"]
    assert made == hashes(client)
    slots = [int(client.ok(f"/rpc/block/{each}")["block"]["slot"]) for each in (1, 2, 40)]
    assert slots == [2, 4, 80]


def test_mine_pays_the_operator_or_the_one_that_is_named(client: Client, operator: Client) -> None:
    operator.ok("/operator/mine", {"blocks": 2})
    operator.ok("/operator/mine", {"blocks": 3, "producer": key_of("dave").seed.hex()})
    assert balance(client, OWN) == 40 * COIN
    assert balance(client, encode_address(key_of("dave").hash, "svcd")) == 60 * COIN


BLOCKS = "blocks: must be a whole number from 1 to 10000"
SEED = "producer: must be 64 lower-case hex characters"
DEPTH = "depth: must be a whole number from 1 to 1000"
ADDRESS = "recipient must be an address of this network: 44 characters that begin with svcd1q"
AMOUNT = 'amount must be a decimal such as "25" or "0.5", at most 8 decimal places'
RANGE = f"amount must be more than 0 and at most {MAX_INTEGER} base units"
WRONG = [
    ("mine", {}, "blocks is missing: How many blocks to make."),
    ("mine", {"blocks": 0}, BLOCKS),
    ("mine", {"blocks": 10_001}, BLOCKS),
    ("mine", {"blocks": "1"}, BLOCKS),
    ("mine", {"blocks": True}, BLOCKS),
    ("mine", {"blocks": None}, BLOCKS),
    ("mine", {"blocks": 1, "producer": "ab"}, SEED),
    ("mine", {"blocks": 1, "producer": None}, SEED),
    (
        "mine",
        {"blocks": 1, "count": 1},
        "unknown field 'count' in the body; the known ones are blocks, following, producer",
    ),
    ("reorganise", {}, "depth is missing: How many blocks to replace."),
    ("reorganise", {"depth": 0}, DEPTH),
    ("reorganise", {"depth": 1001}, DEPTH),
    ("reorganise", {"depth": 1, "dropTransactions": 1}, "dropTransactions: must be true or false"),
    ("reorganise", {"depth": 1}, "depth must be at most 0, the height of the chain"),
    ("faucet", {"amount": "1"}, "recipient is missing: The address that gets the coins."),
    ("faucet", {"recipient": BOB}, 'amount is missing: How many coins, such as "25" or "0.5".'),
    ("faucet", {"recipient": 5, "amount": "1"}, "recipient: must be a string"),
    ("faucet", {"recipient": "bob", "amount": "1"}, ADDRESS),
    ("faucet", {"recipient": BOB, "amount": 25}, 'amount must be a string: put it in quotes, as in "25" or "0.5"'),
    ("faucet", {"recipient": BOB, "amount": "1e3"}, AMOUNT),
    ("faucet", {"recipient": BOB, "amount": "0.123456789"}, AMOUNT),
    ("faucet", {"recipient": BOB, "amount": "0"}, RANGE),
    ("faucet", {"recipient": BOB, "amount": "90071992.54740992"}, RANGE),
    (
        "faucet",
        {"recipient": BOB, "amount": "5"},
        "the balance is 10001 base units short of amount, fee, the pending transfers and the 1 base units that the"
        " sender must keep",
    ),
]


@pytest.mark.parametrize(("route", "body", "sentence"), WRONG)
def test_order_that_is_wrong(still_operator: Client, route: str, body: dict[str, Any], sentence: str) -> None:
    assert still_operator.refusal(f"/operator/{route}", body) == sentence


# Reorganising


def test_reorganise_replaces_the_newest_blocks_by_one_more(client: Client, operator: Client) -> None:
    operator.ok("/operator/mine", {"blocks": 5})
    before = hashes(client)
    made = operator.ok("/operator/reorganise", {"depth": 3})["hashes"]
    assert len(made) == 4
    assert hashes(client) == before[:2] + made
    assert not set(before[2:]) & set(made)


# The faucet


def test_faucet_sends_what_it_is_told_to(client: Client, operator: Client) -> None:
    txid = operator.ok("/operator/faucet", {"recipient": BOB, "amount": "1.5"})["txid"]
    operator.ok("/operator/mine", {"blocks": 1})
    record = client.ok(f"/rpc/transaction/{txid}")["transaction"]
    assert (record["senderAddress"], record["amountSvc"], record["fee"]) == (FAUCET, "1.5", "10000")
    assert balance(client, BOB) == 1001 * COIN + COIN // 2
    assert balance(client, FAUCET) == 5 * COIN - COIN * 3 // 2 - 10_000


# GET /operator/limits: one table of every limit, each with an attack that docs/threats.md names

ROOT = Path(__file__).parents[2]
CONFIG = load()
TABLE = limits_of(CONFIG)
ATTACKS = re.findall(r"^\| (.*?) \| ", (ROOT / "docs" / "threats.md").read_text(encoding="utf-8"), re.MULTILINE)
NO_LIMITS = {"drainSeconds", "exempt"}
"""Settings beside the limits: how long a stop takes, and for whom there are none."""


@pytest.fixture
def asking(still_node: Node) -> Client:
    """The operator of a node that has nothing but its limits."""
    still_node.operator = still_node.sites.operator(
        [LimitsRoutes(lambda: TABLE, token=None)], still_node.operator.limits
    )
    still_node.operator_routes = [LimitsRoutes(lambda: TABLE, token=None)]
    return local_client(still_node)


@pytest.mark.parametrize("limit", TABLE, ids=lambda limit: limit.name)
def test_every_limit_stops_an_attack_that_is_known(limit: Limit) -> None:
    assert limit.stops in ATTACKS
    assert limit.value > 0
    assert re.fullmatch(r"[a-z]+(/s)?", limit.unit)


def test_no_name_stands_twice() -> None:
    assert len({limit.name for limit in TABLE}) == len(TABLE)


def test_every_setting_is_in_it_with_its_value() -> None:
    by_setting = {limit.setting: limit.value for limit in TABLE if limit.setting}
    for field in attrs.fields(Limits):
        name = camel(field.name)
        if name not in NO_LIMITS:
            assert by_setting.pop(f"limits.{name}") == getattr(CONFIG.limits, field.name)
    assert by_setting == {
        "mempool.maxTransactions": CONFIG.mempool.max_transactions,
        "mempool.maxBytes": CONFIG.mempool.max_bytes,
        "commerce.webhooks.maxTtlSeconds": CONFIG.commerce.webhooks.max_ttl_seconds,
        "commerce.webhooks.maxWatches": CONFIG.commerce.webhooks.max_watches,
        "commerce.webhooks.maxWatchesPerHost": CONFIG.commerce.webhooks.max_watches_per_host,
    }


def test_the_configuration_is_shown() -> None:
    config = attrs.evolve(CONFIG, limits=attrs.evolve(CONFIG.limits, connections=7))
    assert [limit.value for limit in limits_of(config) if limit.name == "connections"] == [7]


def test_the_limits_of_every_module_are_in_it() -> None:
    """A module adds its limits when it is imported, and a node imports them all."""
    declared = [
        node.args[1]
        for path in (ROOT / "svcd").rglob("*.py")
        if "limit(" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "limit"
    ]
    names = {name.value for name in declared if isinstance(name, ast.Constant)}
    assert len(names) > 80
    assert names <= {limit.name for limit in TABLE}


def test_the_operator_reads_the_table(asking: Client) -> None:
    shown = asking.ok("/operator/limits")["limits"]
    assert [limit["name"] for limit in shown] == [limit.name for limit in TABLE]
    assert shown[0] == {
        "name": "connections",
        "value": 1000,
        "unit": "connections",
        "setting": "limits.connections",
        "stops": "Idle connections, to use up sockets",
    }


def test_it_asks_for_the_token(still_node: Node) -> None:
    routes = LimitsRoutes(lambda: TABLE, token=TOKEN)
    still_node.operator = still_node.sites.operator([routes], still_node.operator.limits)
    still_node.operator_routes = [routes]
    assert local_client(still_node).refusal("/operator/limits", status=401)


# POST /operator/participation: making blocks begins and ends at the operator's word

PATH = "/operator/participation"


@define
class Lever:
    """Stands where it was put last."""

    enabled: bool = False
    waits_for: str = ""

    def switch(self, enabled: bool) -> "Deferred[None]":
        self.enabled = enabled
        return succeed(None)


def participant(node: Node, lever: Lever | None, token: str | None = None) -> Client:
    """The operator of a node with this lever."""
    node.operator_routes = [ParticipationRoutes(node.status, lever, token=token)]
    node.operator = node.sites.operator(node.operator_routes, SiteLimits())
    return local_client(node)


def test_on_and_off(node: Node) -> None:
    lever = Lever()
    operator = participant(node, lever)
    assert operator.ok(PATH, {"enabled": True}) == {"enabled": True, "waitsFor": None}
    assert lever.enabled
    assert operator.ok(PATH, {"enabled": False}) == {"enabled": False, "waitsFor": None}
    assert not lever.enabled


def test_switched_on_participation_names_what_it_waits_for(node: Node) -> None:
    node.peers.around = NetworkView(0, 0, NO_PEER_MET)
    operator = participant(node, Lever())
    assert operator.ok(PATH, {"enabled": True}) == {"enabled": True, "waitsFor": NO_PEER_MET}
    assert operator.ok(PATH, {"enabled": False}) == {"enabled": False, "waitsFor": None}


def test_switched_on_participation_says_that_it_is_the_turn_of_others(node: Node) -> None:
    operator = participant(node, Lever(waits_for="another one must make the block"))
    assert operator.ok(PATH, {"enabled": True}) == {"enabled": True, "waitsFor": "another one must make the block"}
    assert operator.ok(PATH, {"enabled": False}) == {"enabled": False, "waitsFor": None}


@pytest.mark.parametrize("body", [{"enabled": 1}, {"enabled": "true"}, {"enabled": None}])
def test_a_value_that_is_neither(node: Node, body: dict[str, object]) -> None:
    assert participant(node, Lever()).refusal(PATH, body) == "enabled: must be true or false"


def test_required_fields_of_the_request(node: Node) -> None:
    assert participant(node, Lever()).refusal(PATH, {}) == "enabled is missing: Whether to make blocks."


def test_blocks_on_demand_know_no_switch(node: Node) -> None:
    assert participant(node, None).refusal(PATH, {"enabled": True}) == (
        "[participation] onDemand is true, so blocks are made on request: ask for one at /operator/mine"
    )


def test_participation_asks_for_the_token(node: Node) -> None:
    lever = Lever()
    participant(node, lever, TOKEN).refusal(PATH, {"enabled": True}, status=401)
    assert not lever.enabled


# What the operator is told of the node's parts


def test_the_status_has_the_details_of_the_moment(node: Node) -> None:
    writer, enabled = PoolLoad(node.clock), [True]
    details = NodeDetails(
        node.node_context, writer, key_of("operator").seed, lambda: enabled[0], lambda: {"verified": 2}, dict
    )
    before = details.record()
    assert before == {
        "participation": {
            "enabled": True,
            "address": node.address("operator"),
            "othersTurn": None,
            "search": None,
            "sweep": None,
        },
        "mempool": {"transactions": 0, "bytes": 0},
        "verifierQueue": 0,
        "writerQueue": 0,
        "webhooks": {},
        "peers": {"verified": 2},
    }
    writer.job(int)
    assert details.record() == {**before, "writerQueue": 1}
    enabled[0] = False
    sweeping = evolve(details, sweep=lambda: {"payTo": "svcd1"}).record()["participation"]
    assert sweeping == {
        "enabled": False,
        "address": node.address("operator"),
        "othersTurn": None,
        "search": None,
        "sweep": {"payTo": "svcd1"},
    }
    searching: Any = evolve(details, search=WorkRate(13, 4.0, 240).record).record()["participation"]
    assert searching["search"]["secondsExpected"] == 60.0
    waiting: Any = evolve(details, others_turn=lambda: "another one must").record()["participation"]
    assert waiting["othersTurn"] == "another one must"


def test_a_node_without_peers_and_webhooks_has_none_to_tell_of(node: Node) -> None:
    details = NodeDetails(node.node_context, PoolLoad(node.clock), key_of("operator").seed, lambda: False, None, None)
    assert (details.record()["peers"], details.record()["webhooks"]) == (None, None)


# The operator's backup: what is copied, who may ask, and every sentence of refusal


class BackupOperator:
    """A node with some blocks, and its operator who wants backups."""

    def __init__(self, open_node: Callable[..., Node], folder: Path, worker: Any, token: str | None = None) -> None:
        self.node = open_node()
        self.node.grow("genesis a[1..5]")
        (chain,) = folder.glob("*.sqlite")
        self.chain = chain
        self.backups = Backups(chain, None, worker, self.node.health)
        routes = BackupRoutes(self.backups, token=token)
        site = self.node.sites.operator([routes], SiteLimits())
        self.client = Client(site, description_of([routes]), self.node.clock, OPERATOR_SOCKET)


@pytest.fixture
def backup_operator(open_node: Callable[..., Node], tmp_path: Path) -> BackupOperator:
    return BackupOperator(open_node, tmp_path, InlineWorker())


def test_a_backup_holds_the_chain(backup_operator: BackupOperator, tmp_path: Path) -> None:
    tip = backup_operator.node.node_context.chain_manager.tip
    answer = backup_operator.client.ok("/operator/backup", {"path": str(tmp_path / "copy")})
    copied = tmp_path / "copy" / backup_operator.chain.name
    assert answer == {
        "path": str(tmp_path / "copy"),
        "height": "5",
        "hash": tip.hash.hex(),
        "files": {copied.name: str(copied.stat().st_size)},
    }
    assert [path.name for path in copied.parent.iterdir()] == [copied.name]
    again = Node(copied, backup_operator.node.clock, Settings())
    assert again.node_context.chain_manager.tip == tip
    again.close()


def test_a_backup_needs_the_absolute_path_of_a_new_folder(backup_operator: BackupOperator, tmp_path: Path) -> None:
    for path in ("copy", "", "./copy", "~/copy", "/copy\0", 7, "/" * 5000):
        sentence = backup_operator.client.refusal("/operator/backup", {"path": path})
        assert sentence == (
            "path: must be the absolute path of a new folder: the node does not know your working directory"
        )
    assert backup_operator.client.refusal("/operator/backup", {"path": str(tmp_path)}) == (
        f"{tmp_path} exists already and is never written over; name a folder that is not there yet"
    )
    assert backup_operator.client.refusal("/operator/backup", {"path": f"{tmp_path}/no/copy"}) == (
        f"{tmp_path}/no/copy cannot be made: no such file or directory"
    )


def test_one_backup_is_made_at_a_time(open_node: Callable[..., Node], tmp_path: Path) -> None:
    worker = Stepped()
    backup_operator = BackupOperator(open_node, tmp_path, worker)
    first = Deferred.fromCoroutine(backup_operator.backups.make(tmp_path / "first"))
    sentence = backup_operator.client.refusal("/operator/backup", {"path": str(tmp_path / "second")}, status=503)
    assert sentence == "another backup is being made; wait until it is done"
    worker.step()
    assert result_of(first).tip.height == 5


def test_a_stop_gives_up_what_is_being_made(backup_operator: BackupOperator, tmp_path: Path) -> None:
    backup_operator.backups.stopService()
    sentence = backup_operator.client.refusal("/operator/backup", {"path": str(tmp_path / "copy")}, status=503)
    assert sentence == "the node is being stopped, and no backup was made; make it when it runs again"
    assert not list(tmp_path.glob("copy*"))


@pytest.mark.parametrize("name", ["copy", "monday"])
def test_files_of_an_unfinished_backup_are_removed_by_the_next_one(
    backup_operator: BackupOperator, tmp_path: Path, name: str
) -> None:
    partial = tmp_path / f"{name}.partial"
    partial.mkdir(mode=0o700)
    (partial / "chain.sqlite").write_text("half")
    with capturedLogs() as logged:
        backup_operator.client.ok("/operator/backup", {"path": str(tmp_path / "copy")})
    lines = [formatEvent(event) for event in logged if event["log_namespace"] == "svcd.node.backups.Backups"]
    assert lines == [f"{partial}, left by a backup that did not end, has been removed"]
    assert not partial.exists()


def test_files_of_others_in_the_way_of_a_backup_are_kept(backup_operator: BackupOperator, tmp_path: Path) -> None:
    (tmp_path / "copy.partial").mkdir()
    (tmp_path / "copy.partial" / "notes").touch()
    assert backup_operator.client.refusal("/operator/backup", {"path": str(tmp_path / "copy")}) == (
        f"{tmp_path}/copy.partial is there: another copy is being made, or one did not end; remove it then"
    )


def test_a_disk_that_does_not_take_it_is_no_bad_request(
    backup_operator: BackupOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    copy = tmp_path / "copy"
    sentence = backup_operator.client.refusal("/operator/backup", {"path": str(copy)}, status=503)
    assert sentence == f"{copy} cannot be written: no space left on device"
    assert not list(tmp_path.glob("copy*"))


def test_a_copy_in_which_no_block_can_be_found_gets_no_name(backup_operator: BackupOperator, tmp_path: Path) -> None:
    with closing(connect(backup_operator.chain)) as connection, connection:
        connection.execute("DELETE FROM canonical")
    with pytest.raises(Corrupt, match="has no chain in it"):
        result_of(Deferred.fromCoroutine(backup_operator.backups.make(tmp_path / "copy")))
    assert not list(tmp_path.glob("copy*"))


def test_over_tcp_it_needs_the_token(open_node: Callable[..., Node], tmp_path: Path) -> None:
    backup_operator = BackupOperator(open_node, tmp_path, InlineWorker(), TOKEN)
    response = backup_operator.client.post("/operator/backup", {"path": str(tmp_path / "copy")})
    assert (response.status, (tmp_path / "copy").exists()) == (401, False)


PATHS = {"": "GET", "/add": "POST", "/ban": "POST", "/unban": "POST"}


def ask(path: str) -> Response:
    """The answer of a node without peers."""
    clock, errors = Clock(), count(1)
    site = SiteFactory(clock, lambda: f"e{next(errors)}").operator([PeerAdminRoutes(None, token=None)], SiteLimits())
    head = f"{PATHS[path]} /operator/peers{path} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
    wire = Wire(site, OPERATOR_SOCKET).send(head.encode())
    clock.advance(0)
    response = wire.response()
    wire.close()
    return response


@pytest.mark.parametrize("path", PATHS)
def test_a_node_without_peers_says_so(path: str) -> None:
    response = ask(path)
    assert (response.status, response.error) == (503, "this node has no peers: [p2p] enabled is false")
