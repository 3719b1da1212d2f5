"""The chain commands with a real node, and any response as text."""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.params import DEVNET, MAINNET, NETWORKS
from svcd.cli.answers import ResponseObject
from svcd.cli.chain_commands import ALONE, account_text, block_text, status_text, transaction_text
from svcd.cli.errors import CommandError
from svcd.cli.rendering import format_time
from svcd.node import network_view
from tests.chains import ChainBuilder, address_of
from tests.cli.terminal import OTHER, Terminal
from tests.rpc.node import FAUCET, NODE_ID, Node

NOBODY = "ab" * 32
KNOWN = tuple(NETWORKS.values())


def faucet(terminal: Terminal, amount: str) -> str:
    """The txid of a pending faucet transfer to `OTHER`."""
    return str(json.loads(terminal.ok("node", "faucet", OTHER, amount, "--json").out)["txid"])


def rows(text: str) -> dict[str, str]:
    """The rows of a property table by name."""
    return {line[: line.index("  ")]: line[line.index("  ") :].strip() for line in text.splitlines() if "  " in line}


def test_status_shows_network_height_and_state(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 3)
    told = rows(terminal.ok("status").out)
    assert told["network"] == "SVC-DEVNET (network id 2)"
    assert told["state"] == ALONE
    assert terminal.ok("node", "status").out.count(ALONE) == 1
    assert told["height"] == "3"
    assert told["tip"] == node.node_context.chain_manager.tip.hash.hex()
    assert told["node"] == NODE_ID
    assert told["time"] == "2026-11-01 05:33:20 UTC"


def test_status_as_json_is_the_status_object(node: Node, terminal: Terminal) -> None:
    assert json.loads(terminal.ok("status", "--json").out) == node.status.node_status()


def test_a_block_shows_its_transfers(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    terminal.ok("node", "mine", 2)
    text = terminal.ok("block", 1).out
    told = rows(text.partition("\n\n")[0])
    assert told["block"] == "1"
    assert told["confirmations"] == "2"
    assert told["time"] == "2026-11-01 00:00:02 UTC, slot 2"
    assert told["transfers"] == "1"
    assert text.splitlines()[-4:] == [
        "",
        f"  {txid}",
        f"    2.5 SVC from {FAUCET}",
        f"    to {OTHER}, fee 0.0001 SVC",
    ]


def test_the_genesis_has_no_producer(node: Node, terminal: Terminal) -> None:
    assert rows(terminal.ok("block", 0).out)["producer"] == "none (genesis)"


def test_a_block_as_json_is_complete(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 1)
    block = json.loads(terminal.ok("block", 1, "--json").out)
    assert block["height"] == "1"
    assert block["transactions"] == []
    assert len(block["signature"]) == 128


def test_a_block_above_the_tip_is_a_failure(node: Node, terminal: Terminal) -> None:
    assert terminal.failure("block", 7) == "there is no block 7 yet; the newest is 0"


def test_balance_shows_received_coins(node: Node, terminal: Terminal) -> None:
    assert rows(terminal.ok("balance", OTHER).out)["balance"] == "0 SVC"
    faucet(terminal, "1")
    assert rows(terminal.ok("balance", FAUCET).out)["pending"] == "1 outgoing transfer"
    terminal.ok("node", "mine", 1)
    told = rows(terminal.ok("balance", OTHER).out)
    assert told["balance"] == "1 SVC"
    assert told["base units"] == "100000000"
    assert told["held since"] == "none"


def test_balance_shows_since_when_the_minimum_is_held(node: Node, terminal: Terminal) -> None:
    faucet(terminal, "10")
    terminal.ok("node", "mine", 1)
    assert rows(terminal.ok("balance", OTHER).out)["held since"] == "slot 2"


def test_balance_as_json_is_the_account_object(node: Node, terminal: Terminal) -> None:
    account = json.loads(terminal.ok("balance", OTHER, "--json").out)
    assert account["balanceSvc"] == "0"
    assert account["heldSince"] is None


def test_the_address_is_validated_before_any_request(terminal: Terminal) -> None:
    changed = OTHER[:-1] + "q"
    assert terminal.misuse("balance", changed).endswith("address has a wrong checksum; copy the address again")
    assert terminal.misuse("balance", "bc1qxyz").endswith(
        "an address begins with svc1q on mainnet, svcd1q on devnet; for another network name its file with --network"
    )


def test_the_node_rejects_addresses_of_another_network(node: Node, terminal: Terminal) -> None:
    assert "begin with svcd1q" in terminal.failure("balance", address_of("alice", "svc"))


def test_tx_shows_the_transfer_and_its_confirmations(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    terminal.ok("node", "mine", 2)
    told = rows(terminal.ok("tx", txid).out)
    assert told["txid"] == txid
    assert told["recipient"] == OTHER
    assert told["amount"] == "2.5 SVC"
    assert told["reference"] == "none"
    assert told["confirmations"] == "2"
    assert told["block"].startswith("1, ")
    assert told["sender"] == FAUCET
    assert told["fee"] == "0.0001 SVC"


def test_tx_accepts_either_case_and_prints_json(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    terminal.ok("node", "mine", 1)
    record = json.loads(terminal.ok("tx", txid.upper(), "--json").out)
    assert record["txid"] == txid
    assert record["confirmations"] == 1


def test_tx_says_whether_a_transfer_is_pending(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    assert terminal.failure("tx", txid).endswith("is in no block but waits in the mempool")
    assert terminal.failure("tx", NOBODY).endswith("is in no block and not in the mempool")


def test_the_txid_is_validated(terminal: Terminal) -> None:
    assert terminal.misuse("tx", "ab").endswith("a transaction id is 64 hex digits")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


STATUS = {
    "softwareVersion": "0.0.1",
    "protocolVersion": "1.0",
    "networkId": 1,
    "chainId": "SVC-MAINNET",
    "height": "12",
    "slot": "75",
    "hash": "ab" * 32,
    "nodeId": "svcnode_1",
    "syncState": "synced",
    "time": "1793491200000",
}


def test_a_status_with_every_field() -> None:
    more = {"endpoint": "https://node.example", "knownPeerCount": 3, "syncLagBlocks": "1", "stateRoot": "cd" * 32}
    lines = status_text(ResponseObject("status", {**STATUS, "syncState": "catching-up", **more})).splitlines()
    assert "state       catching-up, 1 block behind" in lines
    assert "endpoint    https://node.example" in lines
    assert "peers       3" in lines
    assert f"state root  {'cd' * 32}" in lines


def test_a_status_with_required_fields_only() -> None:
    lines = status_text(ResponseObject("status", STATUS)).splitlines()
    assert "state    synced" in lines
    assert not [line for line in lines if line.startswith(("endpoint", "peers", "state root"))]


def test_an_account_counts_pending_transfers() -> None:
    account = {"address": "a", "balance": "5", "nonce": "2", "pendingNonce": "4", "heldSince": "9"}
    lines = account_text(ResponseObject("account", account), "SVC").splitlines()
    assert "pending     2 outgoing transfers" in lines
    assert "held since  slot 9" in lines


def block(**changed: Any) -> ResponseObject:
    """A devnet block in a node's response."""
    builder = ChainBuilder(DEVNET)
    made = builder.chain("genesis: b1")["b1"]
    return ResponseObject(
        "block", {**json.loads(made.wire()), "hash": made.header.hash.hex(), "confirmations": 1, **changed}
    )


def test_a_block_of_an_unknown_network_is_rejected() -> None:
    assert "transfers      0" in block_text(block(), KNOWN).splitlines()
    with pytest.raises(CommandError, match="block is on network 9, which svc does not know"):
        block_text(block(networkId=9), KNOWN)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"producerPublicKey": "xy"}, "producerPublicKey must be 64 lower-case hex digits"),
        ({"transactions": [{}]}, r"transactions\[0\] lacks the field version"),
        ({"transactions": ["x"]}, r"transactions\[0\] must be a JSON object"),
        ({"transactions": {}}, "block.transactions must be an array"),
        ({"slot": 5}, "block.slot must be a decimal string"),
        ({"confirmations": "1"}, "block.confirmations must be a whole JSON number"),
        ({"hash": None}, "block.hash must be a string"),
    ],
)
def test_invalid_blocks_are_rejected(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        block_text(block(**changed), KNOWN)


def test_the_block_time_depends_on_the_network() -> None:
    changed = {"networkId": 1, "slot": "6", "transactions": []}
    assert (
        f"time           {format_time(MAINNET.slot_time(6))}, slot 6"
        in block_text(block(**changed), KNOWN).splitlines()
    )


@given(
    st.sampled_from(
        [
            status_text,
            partial(account_text, unit="SVC"),
            partial(transaction_text, unit="SVC"),
            partial(block_text, networks=KNOWN),
        ]
    ),
    st.data(),
)
def test_any_response_is_shown_or_rejected(show: Any, data: st.DataObject) -> None:
    names = "chainId height hash payload networkId address balance nonce transactions slot txid time producerPublicKey"
    answer = data.draw(st.dictionaries(st.sampled_from(names.split()), anything))
    with pytest.raises(CommandError, match=r"does not answer as svcd does|which svc does not know"):
        show(ResponseObject("answer", answer))


def test_the_command_line_and_the_node_name_the_state_alone_in_the_same_words() -> None:
    assert network_view.ALONE == ALONE
