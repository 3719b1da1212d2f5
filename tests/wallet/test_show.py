"""Answers as text: amounts, times, tables, and nothing that could drive a terminal."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import DEVNET, MAINNET
from svcd.wallet.answer import Answer
from svcd.wallet.failed import Failed
from svcd.wallet.show import (
    account_text,
    block_text,
    coins,
    counted,
    moment,
    plain,
    report_text,
    status_text,
    table,
    transaction_text,
)
from tests.chains import ChainBuilder

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


@given(st.text())
def test_text_from_a_node_is_printable_ascii(text: str) -> None:
    assert plain(text).isascii()
    assert plain(text).isprintable()


def test_ascii_stays_as_it_is() -> None:
    assert plain("a sentence, in ~ 80 characters") == "a sentence, in ~ 80 characters"
    assert plain("\x1b[31m\u202eé\U0001f600") == r"\x1b[31m\u202e\xe9\U0001f600"


def test_a_table_has_two_columns() -> None:
    assert table([("a", "1"), ("longer", "2\n3"), ("none", "")]) == "a       1\nlonger  2\\n3\nnone"
    assert table([]) == ""


@pytest.mark.parametrize(
    ("units", "text"),
    [(0, "0 coins"), (1, "0.00000001 coins"), (10**8, "1 coin"), (10**9, "10 coins"), (150_000_000, "1.5 coins")],
)
def test_amounts_in_coins(units: int, text: str) -> None:
    assert coins(units) == text


def test_counts() -> None:
    assert [counted(number, "block") for number in (0, 1, 2)] == ["0 blocks", "1 block", "2 blocks"]


def test_times_in_utc_however_late() -> None:
    assert moment(1_793_491_200_999) == "2026-11-01 00:00:00 UTC"
    assert moment(253_402_300_799_999) == "9999-12-31 23:59:59 UTC"
    assert moment(MAX_INTEGER) == f"{MAX_INTEGER} ms after 1970-01-01 00:00:00 UTC"


def test_a_status_with_everything() -> None:
    more = {"endpoint": "https://node.example", "knownPeerCount": 3, "syncLagBlocks": "1", "stateRoot": "cd" * 32}
    lines = status_text(Answer("status", {**STATUS, "syncState": "catching-up", **more})).splitlines()
    assert "state       catching-up, 1 block behind" in lines
    assert "endpoint    https://node.example" in lines
    assert "peers       3" in lines
    assert f"state root  {'cd' * 32}" in lines


def test_a_status_with_what_is_required() -> None:
    lines = status_text(Answer("status", STATUS)).splitlines()
    assert "state    synced" in lines
    assert not [line for line in lines if line.startswith(("endpoint", "peers", "state root"))]


def test_an_account_counts_waiting_transfers() -> None:
    account = {"address": "a", "balance": "5", "nonce": "2", "pendingNonce": "4", "heldSince": "9"}
    lines = account_text(Answer("account", account)).splitlines()
    assert "waiting     2 transfers from here in no block yet" in lines
    assert "held since  slot 9" in lines


def block(**changed: Any) -> Answer:
    """A block of devnet with a transfer, as a node shows it."""
    builder = ChainBuilder(DEVNET)
    made = builder.chain("genesis: b1")["b1"]
    return Answer("block", {**json.loads(made.wire()), "hash": made.header.hash.hex(), "confirmations": 1, **changed})


def test_a_block_of_a_network_we_know() -> None:
    assert "transfers      0" in block_text(block()).splitlines()
    with pytest.raises(Failed, match="the block is of the network 9, which svc does not know"):
        block_text(block(networkId=9))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"producerPublicKey": "xy"}, "producerPublicKey must be hex"),
        ({"transactions": [{}]}, r"transactions\[0\]: transaction lacks the field"),
        ({"transactions": ["x"]}, r"transactions\[0\] must be a JSON object"),
        ({"transactions": {}}, "block.transactions must be an array"),
        ({"slot": 5}, "block.slot must be a decimal string"),
        ({"confirmations": "1"}, "block.confirmations must be a whole JSON number"),
        ({"hash": None}, "block.hash must be a string"),
    ],
)
def test_a_block_that_cannot_be_one(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Failed, match=sentence):
        block_text(block(**changed))


def test_the_time_of_a_block_is_that_of_its_network() -> None:
    changed = {"networkId": 1, "slot": "6", "transactions": []}
    assert f"time           {moment(MAINNET.slot_time(6))}, slot 6" in block_text(block(**changed)).splitlines()


def test_a_report_of_any_shape() -> None:
    report = {"syncState": "synced", "on": True, "none": None, "peers": [{"id": 1, "up": False}, {}, "x"], "slow": []}
    report |= {"pool": {"bytes": 7}}
    assert report_text(Answer("report", report)).splitlines() == [
        "sync state  synced",
        "on          yes",
        "none        none",
        "peers:",
        "  - id  1",
        "    up  no",
        "  - none",
        "  - x",
        "slow        none",
        "pool:",
        "  bytes  7",
    ]


@given(st.dictionaries(st.text(), anything, max_size=6))
def test_every_report_can_be_shown(report: dict[str, Any]) -> None:
    text = report_text(Answer("report", report))
    assert all(line.isascii() and line.isprintable() for line in text.splitlines())


@given(st.sampled_from([status_text, account_text, transaction_text, block_text]), st.data())
def test_every_answer_is_shown_or_refused(show: Any, data: st.DataObject) -> None:
    names = "chainId height hash payload networkId address balance nonce transactions slot txid time producerPublicKey"
    answer = data.draw(st.dictionaries(st.sampled_from(names.split()), anything))
    with pytest.raises(Failed, match=r"does not answer as svcd does|which svc does not know"):
        show(Answer("answer", answer))
