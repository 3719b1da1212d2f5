"""Reading the chain from a real node."""

import json

from tests.chains import address_of
from tests.rpc.node import FAUCET, NODE_ID, Node
from tests.wallet.terminal import OTHER, Terminal

NOBODY = "ab" * 32


def faucet(terminal: Terminal, amount: str) -> str:
    """The txid of coins that are on their way to `OTHER`."""
    return str(json.loads(terminal.ok("node", "faucet", OTHER, amount, "--json").out)["txid"])


def rows(text: str) -> dict[str, str]:
    """The rows of a table by their names."""
    return {line[: line.index("  ")]: line[line.index("  ") :].strip() for line in text.splitlines() if "  " in line}


def test_status_shows_network_height_and_state(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 3)
    told = rows(terminal.ok("status").out)
    assert told["network"] == "SVC-DEVNET (network id 2)"
    assert told["state"] == "synced"
    assert told["height"] == "3"
    assert told["tip"] == node.living.ledger.tip.hash.hex()
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
        f"    2.5 coins from {FAUCET}",
        f"    to {OTHER}, fee 0.0001 coins",
    ]


def test_the_genesis_has_no_producer(node: Node, terminal: Terminal) -> None:
    assert rows(terminal.ok("block", 0).out)["producer"] == "nobody: it is the genesis"


def test_a_block_as_json_comes_whole(node: Node, terminal: Terminal) -> None:
    terminal.ok("node", "mine", 1)
    block = json.loads(terminal.ok("block", 1, "--json").out)
    assert block["height"] == "1"
    assert block["transactions"] == []
    assert len(block["signature"]) == 128


def test_a_block_above_the_tip_is_a_failure(node: Node, terminal: Terminal) -> None:
    assert terminal.failure("block", 7) == "there is no block 7 yet; the newest is 0"


def test_a_height_is_a_number(terminal: Terminal) -> None:
    assert "'HEIGHT'" in terminal.misuse("block", "top")
    assert "'HEIGHT'" in terminal.misuse("block", 2**53)


def test_balance_counts_what_arrived(node: Node, terminal: Terminal) -> None:
    assert rows(terminal.ok("balance", OTHER).out)["balance"] == "0 coins"
    faucet(terminal, "1")
    assert rows(terminal.ok("balance", FAUCET).out)["waiting"] == "1 transfer from here in no block yet"
    terminal.ok("node", "mine", 1)
    told = rows(terminal.ok("balance", OTHER).out)
    assert told["balance"] == "1 coin"
    assert told["base units"] == "100000000"
    assert told["held since"] == "none"


def test_balance_says_since_when_the_minimum_is_held(node: Node, terminal: Terminal) -> None:
    faucet(terminal, "10")
    terminal.ok("node", "mine", 1)
    assert rows(terminal.ok("balance", OTHER).out)["held since"] == "slot 2"


def test_balance_as_json_is_the_account_object(node: Node, terminal: Terminal) -> None:
    account = json.loads(terminal.ok("balance", OTHER, "--json").out)
    assert account["balanceSvc"] == "0"
    assert account["heldSince"] is None


def test_an_address_is_judged_before_anything_is_asked(terminal: Terminal) -> None:
    changed = OTHER[:-1] + "q"
    assert terminal.misuse("balance", changed).endswith("address has a wrong checksum; copy the address again")
    assert terminal.misuse("balance", "bc1qxyz").endswith("an address begins with svc1q on mainnet or svcd1q on devnet")


def test_an_address_of_another_network_is_for_the_node_to_refuse(node: Node, terminal: Terminal) -> None:
    assert "begin with svcd1q" in terminal.failure("balance", address_of("alice", "svc"))


def test_tx_shows_the_transfer_and_its_depth(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    terminal.ok("node", "mine", 2)
    told = rows(terminal.ok("tx", txid).out)
    assert told["txid"] == txid
    assert told["recipient"] == OTHER
    assert told["amount"] == "2.5 coins"
    assert told["reference"] == "none"
    assert told["confirmations"] == "2"
    assert told["block"].startswith("1, ")
    assert told["sender"] == FAUCET
    assert told["fee"] == "0.0001 coins"


def test_tx_takes_either_case_and_gives_the_record_as_json(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    terminal.ok("node", "mine", 1)
    record = json.loads(terminal.ok("tx", txid.upper(), "--json").out)
    assert record["txid"] == txid
    assert record["confirmations"] == 1


def test_tx_says_whether_a_transfer_waits(node: Node, terminal: Terminal) -> None:
    txid = faucet(terminal, "2.5")
    assert terminal.failure("tx", txid).endswith("it waits in the mempool")
    assert terminal.failure("tx", NOBODY).endswith("it does not wait for one either")


def test_a_txid_is_64_hex_digits(terminal: Terminal) -> None:
    assert terminal.misuse("tx", "ab").endswith("a transaction id is 64 hex digits")
