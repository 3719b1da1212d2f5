"""Every value of tests/vectors/svc_protocol.json, which another implementation of docs/protocol.md computed."""

import json
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address, encode_address, key_hash, node_id
from svcd.chain.block import genesis_header, parse_block
from svcd.chain.difficulty import multiplier, next_clock, next_target
from svcd.chain.encoding import canonical, tagged_hash
from svcd.chain.errors import Refusal
from svcd.chain.forkchoice import tie_winner
from svcd.chain.history import History, mountain_levels, node_json, pack_node, parse_node
from svcd.chain.merkle import merkle_root
from svcd.chain.params import DEVNET, NETWORKS, NetworkParams
from svcd.chain.signature import is_valid, public_key_of, sign
from svcd.chain.state_root import state_root
from svcd.chain.state_tree import Overlay, StateTree
from svcd.chain.transaction import Draft, parse_transfer, sign_transfer
from svcd.chain.transition import (
    ChainHead,
    apply_block,
    check_header,
    check_state_root,
    consensus_root,
    genesis_accounts,
    genesis_head,
    genesis_point,
)
from svcd.chain.work import work_value
from tests.chains import params_of, rows_of, scan_of
from tests.validity import Accounts, Verdict, judge

# Read here and not in a fixture, because the refused blocks are the parameters of a test.
VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "svc_protocol.json").read_text())
each_network = pytest.mark.parametrize("params", NETWORKS.values(), ids=NETWORKS)


def of(params: NetworkParams) -> dict[str, Any]:
    """The part about one network."""
    part: dict[str, Any] = VECTORS["networks"][params.name]
    return part


def test_every_part_of_the_file_is_tested_here() -> None:
    parts = (
        "SOURCE accountProofs chainProofs clocks closedNetwork devnetAccepted devnetChain devnetRefused difficulty "
        "history merkle multipliers networks paymentProofs stateRoots tie work"
    )
    assert sorted(VECTORS) == parts.split()
    assert VECTORS["networks"].keys() == NETWORKS.keys()
    part = "consensusRoot genesisBlock genesisHash hello keys rewards rules rulesHash stateRoot transactions"
    for network in VECTORS["networks"].values():
        assert sorted(network) == part.split()


# Networks


@each_network
def test_rules_and_genesis(params: NetworkParams) -> None:
    vector = of(params)
    assert params.rules == vector["rules"]
    assert params.rules_hash.hex() == vector["rulesHash"]
    assert params.genesis_hash.hex() == vector["genesisHash"]
    root, consensus = (
        state_root(genesis_accounts(params).items()),
        consensus_root(params, genesis_point(params), bytes(32)),
    )
    assert root.hex() == vector["stateRoot"]
    assert consensus.hex() == vector["consensusRoot"]
    header = genesis_header(params, state_root=root, consensus_root=consensus)
    assert header.wire(b"") == canonical(vector["genesisBlock"])


@each_network
def test_keys(params: NetworkParams) -> None:
    assert len(of(params)["keys"]) == 4
    for vector in of(params)["keys"]:
        public = public_key_of(bytes.fromhex(vector["seed"]))
        assert public.hex() == vector["publicKey"]
        assert encode_address(key_hash(public), params.address_prefix) == vector["address"]
        assert decode_address(vector["address"], params.address_prefix) == key_hash(public)
        assert node_id(public) == vector["nodeId"]


@each_network
def test_hello(params: NetworkParams) -> None:
    """Signed over H("svc/hello/v1", genesisHash ‖ J(hello without signature))."""
    hello = dict(of(params)["hello"])
    signature = bytes.fromhex(hello.pop("signature"))
    message = tagged_hash("svc/hello/v1", params.genesis_hash + canonical(hello))
    assert is_valid(bytes.fromhex(hello["nodePublicKey"]), message, signature)
    assert node_id(bytes.fromhex(hello["nodePublicKey"])) == hello["nodeId"]
    [seed] = {bytes.fromhex(key["seed"]) for key in of(params)["keys"] if key["nodeId"] == hello["nodeId"]}
    assert sign(seed, message) == signature


@each_network
def test_transactions(params: NetworkParams) -> None:
    assert len(of(params)["transactions"]) == 2
    seeds = {key["publicKey"]: bytes.fromhex(key["seed"]) for key in of(params)["keys"]}
    for vector in of(params)["transactions"]:
        transfer = parse_transfer(vector["transaction"], params)
        assert transfer.txid.hex() == vector["txid"]
        assert tagged_hash("svc/tx/v2", params.genesis_hash + vector["canonical"].encode()) == transfer.txid
        assert transfer.wire == canonical(vector["transaction"])
        transfer.check_signature()
        draft = Draft(
            recipient=vector["transaction"]["payload"]["recipient"],
            amount=transfer.amount,
            fee=transfer.fee,
            nonce=transfer.nonce,
            timestamp=transfer.timestamp,
            reference=transfer.reference,
        )
        assert sign_transfer(draft, seed=seeds[transfer.sender_key.hex()], params=params).wire == transfer.wire


@each_network
def test_rewards(params: NetworkParams) -> None:
    rewards = of(params)["rewards"]
    assert len(rewards) == 7
    assert [params.reward(int(row["height"])) for row in rewards] == [int(row["reward"]) for row in rewards]


# Values


def test_work() -> None:
    assert len(VECTORS["work"]) == 6
    for row in VECTORS["work"]:
        core, nonce, memory = bytes.fromhex(row["coreHash"]), bytes.fromhex(row["nonce"]), NETWORKS[row["network"]]
        assert work_value(core, nonce, memory.memory_kib) == int(row["value"], 16)


def test_difficulty() -> None:
    assert len(VECTORS["difficulty"]) == 34
    for row in VECTORS["difficulty"]:
        params, height = NETWORKS[row["network"]], 2**60
        clock = row["x"] + params.slots_per_block * (height - 2)
        assert next_target(params, height=height, clock=clock) == int(row["target"], 16)


def test_multipliers() -> None:
    assert len(VECTORS["multipliers"]) == 30
    for row in VECTORS["multipliers"]:
        account = Account(balance=10**15, nonce=0, held_since=7)
        assert multiplier(NETWORKS[row["network"]], account, 7 + row["heldSlots"]) == row["multiplier"]


def test_clocks() -> None:
    assert len(VECTORS["clocks"]) == 42
    for row in VECTORS["clocks"]:
        parent = {"parent_height": row["parentHeight"], "parent_clock": row["parentClock"]}
        assert next_clock(NETWORKS[row["network"]], **parent, gap=row["gap"]) == row["clock"]


def test_history_roots() -> None:
    """The leaves are defined in the file: hash = SHA-256("history leaf <i>"), work = 4096 + i, slot = 6 i."""
    rows = {row["leaves"]: row for row in VECTORS["history"]["roots"]}
    assert len(rows) == 31
    history, leaves = History(), []
    for number in range(max(rows) + 1):
        if row := rows.get(number):
            assert history.root.hex() == row["root"]
            assert [node_json(node) for node in history.mountains] == row["mountains"]
            assert len(mountain_levels(number)) == len(history.mountains)
        digest, work = sha256(b"history leaf %d" % number).digest(), 4096 + number if number else 0
        leaf = pack_node(digest, work=work, slot=6 * number, clock=max(0, 6 * (number - 1)))
        assert parse_node(node_json(leaf), "leaf") == leaf
        leaves.append(leaf)
        history = history.append(leaf)
    assert [node_json(leaf) for leaf in leaves[:4]] == VECTORS["history"]["first"]


def test_merkle_roots() -> None:
    assert len(VECTORS["merkle"]) == 7
    for row in VECTORS["merkle"]:
        assert merkle_root([bytes.fromhex(leaf) for leaf in row["leaves"]]).hex() == row["root"]


def test_state_roots() -> None:
    assert [len(row["accounts"]) for row in VECTORS["stateRoots"]] == [0, 1, 2, 3, 17, 200]
    for row in VECTORS["stateRoots"]:
        accounts = {
            bytes.fromhex(key): Account(int(balance), int(nonce), None if held is None else int(held))
            for key, balance, nonce, held in row["accounts"]
        }
        assert state_root(accounts.items()).hex() == row["root"]
        overlay = Overlay(StateTree(scan_of({})), 0)
        assert overlay.change(accounts, len(accounts)).hex() == row["root"]


def test_ties() -> None:
    assert len(VECTORS["tie"]) == 8
    for row in VECTORS["tie"]:
        a, b = bytes.fromhex(row["a"]), bytes.fromhex(row["b"])
        assert tie_winner(a, b) == tie_winner(b, a) == bytes.fromhex(row["wins"])


# A chain


@cache
def chain() -> tuple[ChainHead, dict[bytes, Account]]:
    """The tip of the 25 blocks and the accounts after them; every value on the way is compared."""
    head, state = genesis_head(DEVNET), genesis_accounts(DEVNET)
    commitment = StateTree(scan_of(state))
    commitment.load(rows_of(state), len(state))
    for vector, history_root in zip(VECTORS["devnetChain"]["blocks"], VECTORS["history"]["devnetChain"], strict=True):
        data = canonical(vector["block"])
        assert judge(DEVNET, data, parent=head, before=state) is None
        block = parse_block(data, DEVNET)
        assert block.wire() == data
        assert head.history.root.hex() == history_root
        overlay = Overlay(commitment, len(state))
        effect = apply_block(DEVNET, block, overlay)
        check_state_root(block.header, overlay.apply(effect))
        commitment.take(overlay)
        state |= effect.after
        head = check_header(DEVNET, head, block.header)
        assert head.point.hash == block.header.hash == bytes.fromhex(vector["hash"])
        assert (head.point.work, head.point.difficulty_clock, head.point.issued) == tuple(
            int(vector[name]) for name in ("cumulativeWork", "clock", "issued")
        )
    return head, state


def test_chain_of_25_blocks() -> None:
    head, state = chain()
    point = head.point
    assert point.height == len(VECTORS["devnetChain"]["blocks"]) == 25
    assert sum(account.balance for account in state.values()) == point.issued
    expected = {
        decode_address(address, "svcd"): Account(
            int(account["balance"]),
            int(account["nonce"]),
            None if account["heldSince"] is None else int(account["heldSince"]),
        )
        for address, account in VECTORS["devnetChain"]["accounts"].items()
    }
    assert state == expected


# Blocks that must be refused, each for its own rule, and where docs/protocol.md 10 looks for it first

VERDICTS = {
    "block fields": Verdict("fields", Refusal.FIELDS),
    "block constants": Verdict("fields", Refusal.CONSTANTS),
    "height format": Verdict("fields", Refusal.FORMAT),
    "slot format": Verdict("fields", Refusal.FORMAT),
    "stateRoot format": Verdict("fields", Refusal.FORMAT),
    "transactionCount format": Verdict("fields", Refusal.FORMAT),
    "transaction fields": Verdict("fields", Refusal.FIELDS),
    "payload fields": Verdict("fields", Refusal.FIELDS),
    "transaction constants": Verdict("fields", Refusal.CONSTANTS),
    "version format": Verdict("fields", Refusal.FORMAT),
    "nonce format": Verdict("fields", Refusal.FORMAT),
    "amount format": Verdict("fields", Refusal.FORMAT),
    "senderPublicKey format": Verdict("fields", Refusal.FORMAT),
    "sender address": Verdict("fields", Refusal.SENDER),
    "address": Verdict("fields", Refusal.ADDRESS),
    "amount": Verdict("fields", Refusal.AMOUNT),
    "fee": Verdict("fields", Refusal.FEE),
    "paymentReference format": Verdict("fields", Refusal.REFERENCE),
    "block signature": Verdict("signature", Refusal.BLOCK_SIGNATURE),
    "transactionCount or size": Verdict("body", Refusal.TRANSACTION_COUNT),
    "transactionsRoot": Verdict("body", Refusal.TRANSACTIONS_ROOT),
    "height or parent": Verdict("place", Refusal.HEIGHT),
    "slot": Verdict("place", Refusal.SLOT),
    "baseTarget": Verdict("place", Refusal.BASE_TARGET),
    "work": Verdict("work", Refusal.WORK),
    "transaction signature": Verdict("transactions", Refusal.TRANSACTION_SIGNATURE),
    "timestamp": Verdict("state", Refusal.TIMESTAMP),
    "nonce": Verdict("state", Refusal.NONCE),
    "balance": Verdict("state", Refusal.BALANCE),
    "multiplier": Verdict("state", Refusal.MULTIPLIER),
    "stateRoot": Verdict("state", Refusal.STATE_ROOT),
    "sender minimum": Verdict("state", Refusal.SENDER_MINIMUM),
    "recipient minimum": Verdict("state", Refusal.RECIPIENT_MINIMUM),
    "consensusRoot": Verdict("place", Refusal.CONSENSUS_ROOT),
}
EARLIER = {"multiplier outside the schedule": Verdict("place", Refusal.MULTIPLIER)}
"""What a rule's name does not tell: a multiplier that nobody can earn is seen before any work is done."""


@pytest.mark.parametrize("vector", VECTORS["devnetRefused"], ids=lambda vector: vector["why"])
def test_refused_block(vector: dict[str, Any]) -> None:
    head, state = chain()
    expected = EARLIER.get(vector["why"], VERDICTS[vector["rule"]])
    assert judge(DEVNET, canonical(vector["block"]), parent=head, before=state) == expected


def test_there_is_a_refused_block_for_every_verdict() -> None:
    assert len(VECTORS["devnetRefused"]) == 49
    assert {vector["rule"] for vector in VECTORS["devnetRefused"]} == VERDICTS.keys()


# Blocks that the same tip must accept


@pytest.mark.parametrize("vector", VECTORS["devnetAccepted"], ids=lambda vector: vector["why"])
def test_accepted_block(vector: dict[str, Any]) -> None:
    head, state = chain()
    data = canonical(vector["block"])
    assert judge(DEVNET, data, parent=head, before=state) is None
    block = parse_block(data, DEVNET)
    assert block.header.hash.hex() == vector["hash"]
    after = apply_block(DEVNET, block, Accounts(state)).after
    for address, balance in vector["accounts"].items():
        assert after[decode_address(address, "svcd")].balance == int(balance)


# A network on which a list of producers makes the blocks

CLOSED = params_of(VECTORS["closedNetwork"]["rules"])


def test_rules_of_the_closed_network() -> None:
    assert CLOSED.rules == VECTORS["closedNetwork"]["rules"]
    assert CLOSED.rules_hash.hex() == VECTORS["closedNetwork"]["rulesHash"]
    assert CLOSED.genesis_hash.hex() == VECTORS["closedNetwork"]["genesisHash"]


def test_story_of_the_closed_network() -> None:
    head, state = genesis_head(CLOSED), genesis_accounts(CLOSED)
    for step in VECTORS["closedNetwork"]["story"]:
        data = canonical(step["block"])
        verdict = judge(CLOSED, data, parent=head, before=state)
        if not step["accepted"]:
            assert verdict == Verdict("place", Refusal.PRODUCER), step["why"]
            continue
        assert verdict is None, step["why"]
        block = parse_block(data, CLOSED)
        state |= apply_block(CLOSED, block, Accounts(state)).after
        head = check_header(CLOSED, head, block.header)
        assert head.point.hash.hex() == step["hash"]
    assert head.point.height == 6
