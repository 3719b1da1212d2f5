"""The chain routes: every field, and every rule of docs/http.md."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.block import Block, genesis_header
from svcd.chain.difficulty import next_target
from svcd.chain.encoding import MAX_INTEGER, canonical, tagged_hash
from svcd.node.network_view import NetworkView
from svcd.node.open_chain import LongReads
from svcd.store.chain_store import ChainReader
from tests.chains import COIN, key_of
from tests.rpc.conftest import START_SLOT, public_client
from tests.rpc.node import FAUCET, NODE_ID, PARAMS, Client, Node

OpenNode = Callable[..., Node]

PAYMENTS = """
genesis: b[1..4]
b1 pays 5000 from alice to bob for order-1
b2 pays 7 from bob to alice
b2 pays 8 from bob to bob
b2 pays 9 from carol to bob
b4 pays 1 from alice to bob
"""


@pytest.fixture
def paid(node: Node) -> dict[str, Block]:
    """Blocks with payments, taken in by the node."""
    return node.grow(PAYMENTS)


# GET /rpc/status


def test_status_of_a_new_chain(still: Client) -> None:
    assert still.ok("/rpc/status") == {
        "status": {
            "softwareVersion": "0.0.1",
            "protocolVersion": "1.0",
            "networkId": 3,
            "chainId": "SVC-TEST",
            "genesisHash": PARAMS.genesis_hash.hex(),
            "height": "0",
            "slot": "0",
            "hash": PARAMS.genesis_hash.hex(),
            "stateRoot": still.ok("/rpc/block/0")["block"]["stateRoot"],
            "consensusRoot": still.ok("/rpc/block/0")["block"]["consensusRoot"],
            "pruneHeight": "0",
            "nodeId": NODE_ID,
            "knownPeerCount": 0,
            "bestKnownPeerHeight": "0",
            "syncLagBlocks": "0",
            "syncState": "synced",
            "alone": True,
            "time": str(PARAMS.slot_time(START_SLOT)),
        }
    }


def test_status_follows_the_tip(node: Node, client: Client, clock: Clock) -> None:
    b1, b2 = node.grow("genesis: b[1..2]\nb2 is at slot 9").values()
    clock.advance(1.5)

    status = client.ok("/rpc/status")["status"]

    assert (status["height"], status["slot"], status["hash"]) == ("2", "9", b2.header.hash.hex())
    assert status["stateRoot"] == b2.header.state_root.hex() != b1.header.state_root.hex()
    assert status["consensusRoot"] == b2.header.consensus_root.hex()
    assert status["time"] == str(PARAMS.slot_time(START_SLOT) + 1500)


def test_status_follows_the_peers_and_the_time_while_the_chain_stands_still(
    node: Node, client: Client, clock: Clock
) -> None:
    before = client.ok("/rpc/status")["status"]
    clock.advance(1.5)
    later = client.ok("/rpc/status")["status"]
    node.peers.around = NetworkView(3, 7, "a peer has more work")
    behind = client.ok("/rpc/status")["status"]

    assert later == {**before, "time": str(int(before["time"]) + 1500)}
    changed = {"knownPeerCount": 3, "bestKnownPeerHeight": "7", "syncLagBlocks": "7", "syncState": "catching-up"}
    assert behind == {**later, **changed, "alone": False}


def test_status_shows_an_endpoint_only_where_one_is_set(open_node: OpenNode, client: Client) -> None:
    url = "https://node.example:8645"
    assert public_client(open_node(endpoint=url)).ok("/rpc/status")["status"]["endpoint"] == url
    assert "endpoint" not in client.ok("/rpc/status")["status"]


# GET /rpc/consensus


def test_consensus_of_a_new_chain(still: Client) -> None:
    assert still.ok("/rpc/consensus") == {
        "consensus": {
            "networkId": 3,
            "chainId": "SVC-TEST",
            "genesisHash": PARAMS.genesis_hash.hex(),
            "genesisTime": "1793491200000",
            "slotSeconds": 1,
            "currentSlot": str(START_SLOT),
            "targetSlotsPerBlock": 2,
            "nextHeight": "1",
            "nextTarget": f"{2**254:064x}",
            "nextBlockReward": str(20 * COIN),
            "rewardSchedule": {
                "initialReward": str(20 * COIN),
                "halvingBlocks": 50,
                "supplyLimit": str(PARAMS.supply_limit),
            },
            "participationWork": {
                "algorithm": "argon2id",
                "version": 19,
                "memoryKiB": 64,
                "timeCost": 1,
                "parallelism": 1,
                "hashLength": 32,
            },
            "holdingMultiplier": {
                "minimumBalance": str(10 * COIN),
                "unit": "basis points",
                "schedule": [
                    {"heldSlots": 0, "multiplier": 10_000},
                    {"heldSlots": 10, "multiplier": 10_200},
                    {"heldSlots": 20, "multiplier": 10_400},
                    {"heldSlots": 50, "multiplier": 10_700},
                    {"heldSlots": 100, "multiplier": 11_000},
                ],
            },
            "minimumFee": "10000",
            "accountMinimum": "1",
            "maxBlockTransactions": 2000,
            "maxBlockBytes": 1_310_720,
            "transactionPastSeconds": 86_400,
            "transactionFutureSeconds": 315_360_000,
            "producers": [],
        }
    }


def test_the_rules_give_the_genesis_hash(still: Client) -> None:
    rules = still.ok("/rpc/rules")["rules"]

    assert rules == PARAMS.rules
    inner = tagged_hash("svc/genesis/v1", tagged_hash("svc/rules/v1", canonical(rules)))
    genesis = tagged_hash("svc/block-id/v4", inner + bytes(8))
    assert genesis.hex() == still.ok("/rpc/status")["status"]["genesisHash"]


def test_consensus_says_what_the_next_block_is_due(node: Node, client: Client, clock: Clock) -> None:
    blocks = node.grow("genesis: b[1..50]\nb50 is at slot 160")
    clock.advance(30)

    due = client.ok("/rpc/consensus")["consensus"]

    (after,) = node.builder.chain("genesis: c1").values()
    b51 = node.builder.block(blocks["b50"])
    assert due["nextHeight"] == "51"
    assert due["nextTarget"] == f"{b51.header.base_target:064x}" != f"{after.header.base_target:064x}"
    assert due["nextBlockReward"] == str(10 * COIN)
    assert due["currentSlot"] == str(START_SLOT + 30)


def test_there_is_no_slot_before_the_genesis(open_node: OpenNode, clock: Clock) -> None:
    clock.advance(-clock.seconds())
    assert public_client(open_node()).ok("/rpc/consensus")["consensus"]["currentSlot"] == "0"


# GET /rpc/block/{height}


def test_genesis(still: Client) -> None:
    block = still.ok("/rpc/block/0")["block"]
    roots = {name: bytes.fromhex(block[name]) for name in ("stateRoot", "consensusRoot")}
    assert bytes(32) not in roots.values()
    header = genesis_header(PARAMS, state_root=roots["stateRoot"], consensus_root=roots["consensusRoot"])
    shown = {"hash": PARAMS.genesis_hash.hex(), "confirmations": 1}
    assert block == json.loads(header.wire(b"")) | shown


def test_block_is_what_peers_exchange_with_hash_and_confirmations(client: Client, paid: dict[str, Block]) -> None:
    for height, block in enumerate(paid.values(), 1):
        shown = client.ok(f"/rpc/block/{height}")["block"]
        assert shown.pop("hash") == block.header.hash.hex()
        assert shown.pop("confirmations") == 5 - height
        assert shown == json.loads(block.wire())
    assert [client.ok(f"/rpc/block/{height}")["block"]["transactionCount"] for height in range(1, 5)] == [1, 3, 0, 1]


def test_only_a_long_block_is_read_in_a_thread(node: Node, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = LongReads.ask

    def ask(reads: LongReads, question: Callable[[ChainReader], Any]) -> Deferred[Any]:
        asked.append(question)
        return real(reads, question)

    monkeypatch.setattr(LongReads, "ask", ask)
    lines = [f"b{height} pays {amount} from alice to bob" for height in (1, 2) for amount in range(1, 64 + height)]
    blocks = node.grow("\n".join(["genesis: b[1..2]", *lines]))
    for height, in_thread in ((1, 0), (2, 1)):
        shown = client.ok(f"/rpc/block/{height}")["block"]
        assert (shown["transactionCount"], len(asked)) == (63 + height, in_thread)
        assert (shown.pop("hash"), shown.pop("confirmations")) == (blocks[f"b{height}"].header.hash.hex(), 3 - height)
        assert shown == json.loads(blocks[f"b{height}"].wire())


def test_block_above_the_tip(client: Client, paid: dict[str, Block]) -> None:
    assert client.refusal("/rpc/block/5", status=404) == "there is no block 5 yet; the newest is 4"
    client.refusal(f"/rpc/block/{MAX_INTEGER}", status=404)


@pytest.mark.parametrize(
    "height", ["-1", "01", "00", "1.0", "1e3", "+1", "one", "0x1", "%31%00", "1%20", "٣", str(2**53), "9" * 5000]
)
def test_height_that_is_none(still: Client, height: str) -> None:
    target = "/rpc/block/" + "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in height)
    assert still.refusal(target) == ("height: must be a whole number from 0 to 9007199254740991")


# GET /rpc/balance/{address}


def test_address_never_seen_has_zeros(node: Node, client: Client) -> None:
    address = node.address("nobody")
    assert client.ok(f"/rpc/balance/{address}") == {
        "account": {
            "address": address,
            "balance": "0",
            "balanceSvc": "0",
            "nonce": "0",
            "pendingNonce": "0",
            "pendingBalance": "0",
            "heldSince": None,
        }
    }


def test_balance_counts_what_was_sent_and_received(node: Node, client: Client, paid: dict[str, Block]) -> None:
    address = node.address("alice")
    balance = 1000 * COIN - 5000 + 7 - 1 - 2 * 10_000
    assert client.ok(f"/rpc/balance/{address}")["account"] == {
        "address": address,
        "balance": str(balance),
        "balanceSvc": "999.99975006",
        "nonce": "2",
        "pendingNonce": "2",
        "pendingBalance": str(balance),
        "heldSince": str(paid["b4"].header.slot),
    }


def test_held_since_is_null_below_the_minimum(node: Node, client: Client) -> None:
    node.grow("genesis: b1\nb1 is by carol\nb1 pays 99100000000 from alice to bob")
    account = client.ok(f"/rpc/balance/{node.address('alice')}")["account"]
    assert (account["balanceSvc"], account["heldSince"]) == ("8.9999", None)
    assert client.ok(f"/rpc/balance/{node.address('bob')}")["account"]["heldSince"] == "2"


def test_pending_nonce_counts_what_waits_without_a_gap(node: Node, client: Client, paid: dict[str, Block]) -> None:
    for nonce in (2, 3, 5):
        transfer = node.builder.transfer("alice", "bob", 1, nonce=nonce)
        client.ok("/rpc/broadcast", {"transaction": json.loads(transfer.wire)})
    account = client.ok(f"/rpc/balance/{node.address('alice')}")["account"]
    assert (account["nonce"], account["pendingNonce"]) == ("2", "4")
    assert int(account["pendingBalance"]) == int(account["balance"]) - 3 * (1 + 10_000)


NO_ADDRESS = "address must be an address of this network: 44 characters that begin with svcd1q"
BAD_ADDRESSES = {
    "svcd1qkkdc74lsmkrzphngq8gkl3pygr82umndcxlehq": "address has a wrong checksum; copy the address again",
    "SVCD1QKKDC74LSMKRZPHNGQ8GKL3PYGR82UMNDCXLEHT": "address must be in lower case: it begins with svcd1q",
    "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4": NO_ADDRESS,
    "%F0%9F%92%B0": NO_ADDRESS,
}


@pytest.mark.parametrize("path", ["/rpc/balance/{}", "/rpc/address/{}/transactions"])
@pytest.mark.parametrize(("address", "sentence"), BAD_ADDRESSES.items())
def test_address_that_is_none(still: Client, path: str, address: str, sentence: str) -> None:
    assert still.refusal(path.format(address)) == sentence


# GET /rpc/address/{address}/transactions


def history(client: Client, address: str, query: str = "") -> Any:
    return client.ok(f"/rpc/address/{address}/transactions{query}")


def places(answer: Any) -> list[tuple[str, int]]:
    return [(record["blockHeight"], record["index"]) for record in answer["transactions"]]


def test_transfers_are_listed_under_both_addresses_newest_first(
    node: Node, client: Client, paid: dict[str, Block]
) -> None:
    alice, bob, carol = (node.address(name) for name in ("alice", "bob", "carol"))
    assert places(history(client, alice)) == [("4", 0), ("2", 0), ("1", 0)]
    assert places(history(client, bob)) == [("4", 0), ("2", 2), ("2", 1), ("2", 0), ("1", 0)]
    assert places(history(client, carol)) == [("2", 2)]
    assert history(client, alice)["address"] == alice


def test_list_holds_the_records_of_the_look_up(node: Node, client: Client, paid: dict[str, Block]) -> None:
    for record in history(client, node.address("bob"))["transactions"]:
        assert client.ok(f"/rpc/transaction/{record['txid']}") == {"transaction": record}


def test_address_without_transfers_has_an_empty_list(node: Node, client: Client, paid: dict[str, Block]) -> None:
    nobody = node.address("nobody")
    assert history(client, nobody) == {"address": nobody, "transactions": [], "next": None, "pruneHeight": "0"}
    assert history(client, node.address("b"))["transactions"] == []


def test_waiting_transfers_are_not_listed(node: Node, client: Client) -> None:
    client.ok("/rpc/broadcast", {"transaction": json.loads(node.builder.transfer("alice", "bob", 1).wire)})
    assert history(client, node.address("alice"))["transactions"] == []


def busy(node: Node, count: int, blocks: int = 2) -> list[tuple[str, int]]:
    """Transfers of alice, so many in each block, and their places, newest first."""
    parent = None
    for _ in range(blocks):
        parent = node.builder.block(parent, transfers=[node.builder.transfer("alice", "bob", 1) for _ in range(count)])
        node.take(parent)
    return [(str(height), index) for height in range(blocks, 0, -1) for index in range(count - 1, -1, -1)]


def test_pages_follow_one_another_without_gap_or_overlap(node: Node, client: Client) -> None:
    expected, alice = busy(node, 7), node.address("alice")
    for limit in (1, 3, 7, 13):
        found, before = [], ""
        while True:
            page = history(client, alice, f"?limit={limit}{before}")
            found += places(page)
            if page["next"] is None:
                break
            assert len(page["transactions"]) == limit
            before = f"&before={page['next']}"
        assert found == expected


def test_last_page_that_is_full_says_so(node: Node, client: Client) -> None:
    expected, bob = busy(node, 5), node.address("bob")
    page = history(client, bob, "?limit=10")
    assert (places(page), page["next"]) == (expected, None)
    assert history(client, bob, "?limit=9")["next"] is not None


def test_page_stays_the_same_when_blocks_come_in_between(node: Node, client: Client) -> None:
    alice = node.address("alice")
    blocks = node.grow("genesis: b[1..3]\n" + "\n".join(f"b{n} pays 1 from alice to bob" for n in (1, 2, 3)))
    first = history(client, alice, "?limit=1")
    node.take(node.builder.block(blocks["b3"], transfers=[node.builder.transfer("alice", "bob", 1)]))
    assert places(history(client, alice, f"?limit=1&before={first['next']}")) == [("2", 0)]


def test_page_holds_25_by_default_and_100_at_most(node: Node, client: Client) -> None:
    expected, alice = busy(node, 101, blocks=1), node.address("alice")
    assert places(history(client, alice)) == expected[:25]
    page = history(client, alice, "?limit=100")
    assert places(page) == expected[:100]
    assert places(history(client, alice, f"?limit=100&before={page['next']}")) == expected[100:]


@pytest.mark.parametrize("limit", ["0", "101", "-1", "025", "", "ten", "1.0", "9" * 5000, "%D9%A3"])
def test_limit_outside_its_range(still: Client, limit: str) -> None:
    target = f"/rpc/address/{FAUCET}/transactions?limit={limit}"
    assert still.refusal(target) == "limit: must be a whole number from 1 to 100"


def test_a_duplicate_limit_is_refused(still: Client) -> None:
    target = f"/rpc/address/{FAUCET}/transactions?limit=1&limit=2"
    assert still.refusal(target) == "limit occurs more than once in the query; give it once"


def test_unknown_names_in_a_query_are_ignored(still: Client) -> None:
    assert history(still, FAUCET, "?offset=1&offset=2&LIMIT=0")["transactions"] == []


@pytest.mark.parametrize("before", ["", "1", "1-", "-1", "01-0", "1-00", "a-b", f"{10**16}-0", "1-2-3", "1--2"])
def test_cursor_that_no_page_gave(still: Client, before: str) -> None:
    sentence = still.refusal(f"/rpc/address/{FAUCET}/transactions?before={before}")
    assert sentence == "before: must be the `next` of the page before, such as 120-3"


# GET /rpc/transaction/{txid}


def test_record_of_a_transfer(node: Node, client: Client, paid: dict[str, Block]) -> None:
    b1 = paid["b1"]
    (transfer,) = b1.transfers
    assert client.ok(f"/rpc/transaction/{transfer.txid.hex()}") == {
        "transaction": {
            "version": 2,
            "networkId": 3,
            "type": 1,
            "senderPublicKey": key_of("alice").public.hex(),
            "senderAddress": node.address("alice"),
            "nonce": "0",
            "fee": "10000",
            "timestamp": "1793491200000",
            "payload": {"recipient": node.address("bob"), "amount": "5000", "paymentReference": "order-1"},
            "signature": transfer.signature.hex(),
            "txid": transfer.txid.hex(),
            "amountSvc": "0.00005",
            "feeSvc": "0.0001",
            "blockHash": b1.header.hash.hex(),
            "blockHeight": "1",
            "index": 0,
            "slot": "2",
            "blockTime": "1793491202000",
            "confirmations": 4,
        }
    }


def test_transfer_without_reference_has_no_such_key(client: Client, paid: dict[str, Block]) -> None:
    txid = paid["b4"].transfers[0].txid.hex()
    assert "paymentReference" not in client.ok(f"/rpc/transaction/{txid}")["transaction"]["payload"]


def test_transfers_are_found_in_either_case(client: Client, paid: dict[str, Block]) -> None:
    for block in paid.values():
        for index, transfer in enumerate(block.transfers):
            txid = transfer.txid.hex()
            found = [
                client.ok(f"/rpc/transaction/{each}") for each in (txid, txid.upper(), txid[:32] + txid[32:].upper())
            ]
            assert found[0] == found[1] == found[2]
            assert (found[0]["transaction"]["txid"], found[0]["transaction"]["index"]) == (txid, index)


def test_unknown_transfer(still: Client) -> None:
    assert still.get(f"/rpc/transaction/{'AB' * 32}").json == {
        "ok": False,
        "error": f"transaction {'ab' * 32} is in no block and not in the mempool",
        "mempool": False,
        "pruneHeight": "0",
    }


def test_waiting_transfer(node: Node, client: Client) -> None:
    transfer = node.builder.transfer("alice", "bob", 1)
    client.ok("/rpc/broadcast", {"transaction": json.loads(transfer.wire)})
    response = client.get(f"/rpc/transaction/{transfer.txid.hex()}")
    assert (response.status, response.json) == (
        404,
        {
            "ok": False,
            "error": f"transaction {transfer.txid.hex()} is in no block but waits in the mempool",
            "mempool": True,
            "pruneHeight": "0",
        },
    )


def test_transfer_of_a_block_that_lost_its_place_waits_again(node: Node, client: Client, clock: Clock) -> None:
    blocks = node.grow("genesis: b[1..3]\nb2 pays 5 from alice to bob")
    txid = blocks["b2"].transfers[0].txid.hex()
    assert client.ok(f"/rpc/transaction/{txid}")["transaction"]["confirmations"] == 2
    branch = [node.builder.block(blocks["b1"], producer="c")]
    for _ in range(2):
        branch.append(node.builder.block(branch[-1]))
    node.take(*branch)
    clock.pump([0] * 5)
    assert client.get(f"/rpc/transaction/{txid}").json["mempool"] is True
    assert history(client, node.address("bob"))["transactions"] == []
    waiting = node.node_context.transaction_pool.mempool.get(bytes.fromhex(txid))
    assert waiting is not None
    node.take(node.builder.block(branch[-1], transfers=[waiting.transfer]))
    assert client.ok(f"/rpc/transaction/{txid}")["transaction"]["blockHeight"] == "5"


@pytest.mark.parametrize(
    "txid", ["0", "ab" * 31, "ab" * 33, "xy" * 32, "0x" + "ab" * 31, "%61" * 65, "ab" * 31 + "%20a"]
)
def test_txid_that_is_none(still: Client, txid: str) -> None:
    assert still.refusal(f"/rpc/transaction/{txid}") == "txid: must be 64 hex characters"


def test_answers_agree_on_the_chain(node: Node, client: Client, paid: dict[str, Block]) -> None:
    hashes = [client.ok(f"/rpc/block/{height}")["block"] for height in range(5)]
    assert all(child["parentHash"] == parent["hash"] for parent, child in pairwise(hashes))
    assert client.ok("/rpc/status")["status"]["hash"] == hashes[-1]["hash"]
    target = next_target(PARAMS, height=5, clock=node.builder.point_after(paid["b4"]).difficulty_clock)
    assert client.ok("/rpc/consensus")["consensus"]["nextTarget"] == f"{target:064x}"
