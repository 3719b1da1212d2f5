"""The operator's routes, and devnet at the operator's word."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.node.status import Neighbourhood
from tests.chains import COIN, key_of
from tests.rpc.conftest import START_SLOT, local_client, public_client
from tests.rpc.node import FAUCET, OPERATOR, PARAMS, TOKEN, Client, Node
from tests.support import result_of
from tests.web.wire import Wire

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


def test_health(still_operator: Client) -> None:
    assert still_operator.ok("/health") == {}


def test_ready(still_operator: Client) -> None:
    assert still_operator.ok("/ready") == {"alarms": []}


def test_ready_with_an_alarm_after_an_outage(node: Node, operator: Client) -> None:
    blocks = node.grow("genesis: b[1..3] c[4..26]\nb3 is at slot 44")
    assert operator.ok("/ready") == {
        "alarms": [
            "the chain stood still for 40 slots before block 3: ask for more confirmations than usual until block 26"
        ]
    }
    node.take(node.builder.block(blocks["c26"]))
    assert operator.ok("/ready") == {"alarms": []}


def test_ready_without_one_after_a_shorter_gap(node: Node, operator: Client) -> None:
    node.grow("genesis: b[1..3]\nb3 is at slot 43")
    assert operator.ok("/ready") == {"alarms": []}


def test_ready_with_an_alarm_after_a_deep_reorganisation(node: Node, operator: Client, client: Client) -> None:
    node.grow("genesis: b[1..12]")
    operator.ok("/operator/reorganise", {"depth": 12})
    sentence = "a reorganisation undid 12 blocks, from height 1 to 12: look at payments that were settled in them"
    assert operator.ok("/ready") == {"alarms": [sentence]}
    assert operator.ok("/operator/status")["status"]["alarms"] == {"deep-reorganisation": sentence}
    assert client.ok("/rpc/status")["status"]["syncState"] == "synced"


def test_not_ready_while_peers_move_on(node: Node, operator: Client, client: Client, clock: Clock) -> None:
    node.peers.around = Neighbourhood(3, 0, "", usual_height=2)
    clock.advance(599)
    assert operator.ok("/ready") == {"alarms": []}
    clock.advance(1)
    assert operator.refusal("/ready", status=503) == (
        "not ready: the chain here has stood still at height 0 for 10 minutes while most peers show height 2 or more"
    )
    assert client.ok("/rpc/status")["status"]["syncState"] == "synced"


def test_not_ready_while_the_disk_takes_nothing(node: Node, operator: Client) -> None:
    connection = node.living.chain.connector.store._db
    connection.execute("PRAGMA query_only = 1")
    assert operator.refusal("/operator/mine", {"blocks": 1}, status=503).startswith("the node cannot write to its disk")
    sentence = "not ready: the disk takes nothing: attempt to write a readonly database"
    for _ in range(2):
        assert operator.refusal("/ready", status=503) == sentence
        result_of(Deferred.fromCoroutine(node.files.try_disks()))
    connection.execute("PRAGMA query_only = 0")
    result_of(Deferred.fromCoroutine(node.files.try_disks()))
    assert operator.ok("/ready") == {"alarms": []}


def test_not_ready_while_most_peers_break_the_rules(node: Node, operator: Client) -> None:
    node.peers.around = Neighbourhood(3, 0, "most peers send blocks that break a rule, last http://peer: why")
    assert operator.refusal("/ready", status=503) == (
        "not ready: most peers send blocks that break a rule, last http://peer: why"
    )


def test_not_ready_without_peers(open_node: OpenNode) -> None:
    operator = local_client(open_node(alone=False))
    assert operator.refusal("/ready", status=503) == (
        "not ready: no verified peer has been met, and [participation] alone is not set"
    )
    assert operator.ok("/health") == {}


def test_operator_status_is_the_node_s_with_details(still: Client, still_operator: Client) -> None:
    status = still.ok("/rpc/status")["status"]
    assert still_operator.ok("/operator/status") == {
        "status": {**status, "behind": None, "alarms": {}, "verifierQueue": 0}
    }


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


def test_mine_never_makes_blocks_of_the_future(open_node: OpenNode, clock: Clock) -> None:
    node = open_node(params=evolve(PARAMS, genesis_time=PARAMS.slot_time(START_SLOT) - 3_000))
    operator, client = local_client(node), public_client(node)
    assert len(operator.ok("/operator/mine", {"blocks": 2})["hashes"]) == 2
    assert client.ok("/rpc/status")["status"]["slot"] == "3"
    sentence = "the chain has caught up with the clock: try again in 1 s"
    assert operator.refusal("/operator/mine", {"blocks": 1}) == sentence
    clock.advance(1)
    operator.ok("/operator/mine", {"blocks": 1})
    assert client.ok("/rpc/status")["status"]["slot"] == "4"


BLOCKS = "blocks: must be a whole number from 1 to 10000"
SEED = "producer: must be the seed of a devnet key: 64 lower-case hex characters"
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
    ("mine", {"blocks": 1, "count": 1}, "unknown field 'count' in the body; the known ones are blocks, producer"),
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
        "the balance is 10000 base units short of amount, fee and what waits already",
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


def test_reorganise_to_the_genesis(client: Client, operator: Client) -> None:
    operator.ok("/operator/mine", {"blocks": 3})
    made = operator.ok("/operator/reorganise", {"depth": 3})["hashes"]
    assert hashes(client) == made
    assert operator.refusal("/operator/reorganise", {"depth": 5}) == "depth must be at most 4, the height of the chain"


def test_transfers_that_fall_out_wait_again_when_it_is_done(client: Client, operator: Client) -> None:
    txid = operator.ok("/operator/faucet", {"recipient": BOB, "amount": "0.5"})["txid"]
    operator.ok("/operator/mine", {"blocks": 2})
    assert client.ok(f"/rpc/transaction/{txid}")["transaction"]["confirmations"] == 2
    operator.ok("/operator/reorganise", {"depth": 2})
    assert client.refusal(f"/rpc/transaction/{txid}", status=404).endswith("it waits in the mempool")
    operator.ok("/operator/mine", {"blocks": 1})
    assert client.ok(f"/rpc/transaction/{txid}")["transaction"]["confirmations"] == 1


def test_transfers_that_fall_out_may_be_dropped(client: Client, operator: Client) -> None:
    txid = operator.ok("/operator/faucet", {"recipient": BOB, "amount": "0.5"})["txid"]
    operator.ok("/operator/mine", {"blocks": 2})
    operator.ok("/operator/reorganise", {"depth": 2, "dropTransactions": True})
    assert client.refusal(f"/rpc/transaction/{txid}", status=404).endswith("it does not wait for one either")
    operator.ok("/operator/mine", {"blocks": 1})
    assert balance(client, BOB) == 1000 * COIN


# The faucet


def test_faucet_sends_what_it_is_told_to(client: Client, operator: Client) -> None:
    txid = operator.ok("/operator/faucet", {"recipient": BOB, "amount": "1.5"})["txid"]
    operator.ok("/operator/mine", {"blocks": 1})
    record = client.ok(f"/rpc/transaction/{txid}")["transaction"]
    assert (record["senderAddress"], record["amountSvc"], record["fee"]) == (FAUCET, "1.5", "10000")
    assert balance(client, BOB) == 1001 * COIN + COIN // 2
    assert balance(client, FAUCET) == 5 * COIN - COIN * 3 // 2 - 10_000


def test_faucet_counts_what_waits(client: Client, operator: Client) -> None:
    for _ in range(3):
        operator.ok("/operator/faucet", {"recipient": BOB, "amount": "0.1"})
    operator.ok("/operator/mine", {"blocks": 1})
    assert client.ok("/rpc/block/1")["block"]["transactionCount"] == 3


def test_faucet_of_a_network_without_one(open_node: OpenNode) -> None:
    node = open_node(params=evolve(PARAMS, allocations=()))
    assert local_client(node).refusal("/operator/faucet", {"recipient": BOB, "amount": "1"}) == (
        f"the faucet {FAUCET} has nothing on this network"
    )
