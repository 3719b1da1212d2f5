"""Transfer v2 (docs/protocol.md 4)."""

import json
from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER, canonical, parse_json
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import DEVNET, MAINNET
from svcd.chain.signature import sign
from svcd.chain.transaction import (
    TRANSFER,
    VERSION,
    Draft,
    Known,
    Transfer,
    block_entry,
    block_entry_of,
    check_reference,
    fold_case,
    new_reference,
    parse_canonical_transfers,
    parse_transfer,
    sign_transfer,
)
from tests.chain.refusing import refuses
from tests.chains import TEST_PARAMS, address_of, key_of

DRAFT = Draft(recipient=address_of("bob", "svct"), amount=5, fee=10_000, nonce=7, timestamp=1234, reference="order-1")
SIGNED = sign_transfer(DRAFT, seed=key_of("alice").seed, params=TEST_PARAMS)


def wire_object(transfer: Transfer = SIGNED) -> dict[str, Any]:
    """The transfer as the JSON object that a wallet sends."""
    value = parse_json(transfer.wire)
    assert isinstance(value, dict)
    return value


def changed(**fields: object) -> dict[str, Any]:
    """The object with other fields; those of the payload are meant where there is one of that name."""
    value = wire_object()
    for name, field in fields.items():
        (value["payload"] if name in ("recipient", "amount", "paymentReference") else value)[name] = field
    return value


REFERENCES = st.none() | st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True)
U53 = st.integers(0, MAX_INTEGER)
DRAFTS = st.builds(
    Draft,
    recipient=st.binary(min_size=20, max_size=20).map(lambda key: encode_address(key, "svct")),
    amount=st.integers(1, MAX_INTEGER),
    fee=st.integers(10_000, MAX_INTEGER),
    nonce=U53,
    timestamp=U53,
    reference=REFERENCES,
)


@given(DRAFTS, st.sampled_from(["alice", "bob"]))
def test_a_transfer_is_parsed_to_what_was_signed(draft: Draft, name: str) -> None:
    transfer = sign_transfer(draft, seed=key_of(name).seed, params=TEST_PARAMS)
    again = parse_transfer(parse_json(transfer.wire), TEST_PARAMS)
    for one in (transfer, again):
        numbers = (one.amount, one.fee, one.nonce, one.timestamp, one.reference)
        assert numbers == (draft.amount, draft.fee, draft.nonce, draft.timestamp, draft.reference)
        assert encode_address(one.recipient, "svct") == draft.recipient
        assert (one.sender_key, one.sender) == (key_of(name).public, key_of(name).hash)
    assert (again.wire, again.txid, again.signature) == (transfer.wire, transfer.txid, transfer.signature)
    again.check_signature()
    # What is canonical is parsed in a shorter way, which must give the same.
    assert [asdict(each) for each in in_block(transfer, again)] == [asdict(again)] * 2


def in_block(*transfers: Transfer) -> tuple[Transfer, ...]:
    """The transfers as they are parsed in a block."""
    return parse_canonical_transfers(b",".join([transfer.wire for transfer in transfers]), TEST_PARAMS)


PAIR = b",".join(
    [SIGNED.wire, sign_transfer(evolve(DRAFT, nonce=8), seed=key_of("alice").seed, params=TEST_PARAMS).wire]
)

PARSED = {transfer.txid: transfer for transfer in in_block(SIGNED)}


def test_a_known_transfer_is_not_parsed_again_unless_a_byte_differs() -> None:
    other = SIGNED.wire.replace(SIGNED.signature.hex().encode(), bytes(64).hex().encode())
    same, resigned = parse_canonical_transfers(SIGNED.wire + b"," + other, TEST_PARAMS, PARSED.get)
    assert same is PARSED[SIGNED.txid]
    assert (resigned.txid, resigned.signature, resigned.wire) == (SIGNED.txid, bytes(64), other)


def parsed(text: bytes, known: Known | None = None) -> list[dict[str, Any]] | None:
    """The transfers of canonical JSON as values that compare, or None if they are refused."""
    try:
        return [asdict(each) for each in parse_canonical_transfers(text, TEST_PARAMS, known)]
    except RuleViolation:
        return None


@given(st.integers(0, len(PAIR)), st.binary(max_size=1), st.integers(0, 1))
def test_transfers_in_another_text_are_those_of_strict_json_or_refused(at: int, new: bytes, cut: int) -> None:
    text = PAIR[:at] + new + PAIR[at + cut :]
    found = parsed(text)
    # What was parsed before is found by its txid, and makes no difference.
    assert parsed(text, PARSED.get) == found
    if found is not None:
        values = parse_json(b"[" + text + b"]")
        assert isinstance(values, list)
        assert found == [asdict(parse_transfer(value, TEST_PARAMS)) for value in values]
        assert b",".join([each["wire"] for each in found]) == text


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b",", SIGNED.wire + b",", SIGNED.wire * 2, b"," + SIGNED.wire, SIGNED.wire + b"\xff"),
        *(SIGNED.wire.replace(b":3,", other) for other in (b":03,", b":1,", b':"3",', b": 3,")),
        *(SIGNED.wire.replace(b'"version":2', b'"version":' + other) for other in (b"1", b"2.0", b"2 ", b"02")),
    ],
)
def test_a_text_that_is_no_sequence_of_canonical_transfers_is_refused(text: bytes) -> None:
    with refuses(Refusal.ENCODING, "the transaction is not the canonical JSON of one of this network"):
        parse_canonical_transfers(text, TEST_PARAMS)


@given(DRAFTS)
def test_id_and_wire_are_of_the_canonical_text(draft: Draft) -> None:
    transfer = sign_transfer(draft, seed=key_of("alice").seed, params=TEST_PARAMS)
    value = wire_object(transfer)
    assert transfer.wire == canonical(value)
    signature = value.pop("signature")
    assert transfer.txid == sha256(b"svc/tx/v2\0" + TEST_PARAMS.genesis_hash + canonical(value)).digest()
    assert transfer.signature.hex() == signature == sign(key_of("alice").seed, transfer.txid).hex()


@given(DRAFTS)
def test_entry_in_a_block_is_cut_from_the_canonical_text(draft: Draft) -> None:
    transfer = sign_transfer(draft, seed=key_of("alice").seed, params=TEST_PARAMS)
    assert block_entry_of(transfer.wire, TEST_PARAMS) == block_entry(transfer) == transfer.txid + transfer.signature


def test_order_of_fields_does_not_matter() -> None:
    value = dict(reversed(wire_object().items()))
    value["payload"] = dict(reversed(value["payload"].items()))
    assert parse_transfer(value, TEST_PARAMS).wire == SIGNED.wire


def test_the_same_content_on_another_network_is_another_transaction() -> None:
    address = {params: address_of("bob", params.address_prefix) for params in (MAINNET, DEVNET)}
    drafts = {
        params: Draft(recipient=recipient, amount=5, fee=10_000, nonce=7, timestamp=1)
        for params, recipient in address.items()
    }
    ids = {sign_transfer(draft, seed=bytes(32), params=params).txid for params, draft in drafts.items()}
    assert len(ids) == 2


def test_constants() -> None:
    assert (VERSION, TRANSFER) == (2, 1)
    assert {name: wire_object()[name] for name in ("version", "networkId", "type")} == {
        "version": 2,
        "networkId": 3,
        "type": 1,
    }


# Signatures


def test_another_signature_of_the_same_content_is_the_same_transaction() -> None:
    other = parse_transfer(changed(signature="00" * 64), TEST_PARAMS)
    assert other.txid == SIGNED.txid
    assert other.wire != SIGNED.wire


@pytest.mark.parametrize("signature", [bytes(64), sign(key_of("bob").seed, SIGNED.txid)])
def test_signature_must_be_the_senders(signature: bytes) -> None:
    SIGNED.check_signature()
    forged = parse_transfer(changed(signature=signature.hex()), TEST_PARAMS)
    with refuses(Refusal.TRANSACTION_SIGNATURE, SIGNED.txid.hex()):
        forged.check_signature()


def test_signature_covers_every_field() -> None:
    for change in (
        {"amount": "6"},
        {"fee": "10001"},
        {"nonce": "8"},
        {"timestamp": "1235"},
        {"paymentReference": "order-2"},
        {"recipient": address_of("carol", "svct")},
    ):
        other = parse_transfer(changed(**change), TEST_PARAMS)
        assert other.txid != SIGNED.txid
        with refuses(Refusal.TRANSACTION_SIGNATURE):
            other.check_signature()


# Fields

FIELDS = "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_required(name: str) -> None:
    value = wire_object()
    del value[name]
    with refuses(Refusal.FIELDS, f"transaction lacks the field {name}"):
        parse_transfer(value, TEST_PARAMS)


@pytest.mark.parametrize("name", ["recipient", "amount"])
def test_every_field_of_the_payload_is_required(name: str) -> None:
    value = wire_object()
    del value["payload"][name]
    with refuses(Refusal.FIELDS, f"payload lacks the field {name}"):
        parse_transfer(value, TEST_PARAMS)


def test_the_reference_is_not_required() -> None:
    value = wire_object()
    del value["payload"]["paymentReference"]
    transfer = parse_transfer(value, TEST_PARAMS)
    assert transfer.reference is None
    assert b"paymentReference" not in transfer.wire


def test_unknown_fields_are_refused() -> None:
    with refuses(Refusal.FIELDS, 'transaction has an unknown field "memo"'):
        parse_transfer(wire_object() | {"memo": "x"}, TEST_PARAMS)
    value = wire_object()
    value["payload"]["memo"] = "x"
    with refuses(Refusal.FIELDS, 'payload has an unknown field "memo"'):
        parse_transfer(value, TEST_PARAMS)


@pytest.mark.parametrize("value", [None, [], "transfer", 1, True])
def test_a_transaction_is_an_object(value: object) -> None:
    with refuses(Refusal.FIELDS, "transaction must be a JSON object"):
        parse_transfer(value, TEST_PARAMS)
    with refuses(Refusal.FIELDS, "payload must be a JSON object"):
        parse_transfer(changed(payload=value), TEST_PARAMS)


BAD: list[tuple[str, object, Refusal, str]] = [
    ("version", 1, Refusal.CONSTANTS, "version must be 2"),
    ("version", 3, Refusal.CONSTANTS, "version must be 2"),
    ("version", True, Refusal.FORMAT, "version must be a whole JSON number"),
    ("version", "2", Refusal.FORMAT, "version must be a whole JSON number"),
    ("version", 2.0, Refusal.FORMAT, "version must be a whole JSON number"),
    ("networkId", 1, Refusal.CONSTANTS, "networkId must be 3, the id of SVC-TEST"),
    ("networkId", "3", Refusal.FORMAT, "networkId must be a whole JSON number"),
    ("type", 2, Refusal.CONSTANTS, "type must be 1, a transfer"),
    ("type", 0, Refusal.CONSTANTS, "type must be 1, a transfer"),
    ("type", True, Refusal.FORMAT, "type must be a whole JSON number"),
    ("senderPublicKey", key_of("bob").public.hex(), Refusal.SENDER, "senderAddress must be the address of"),
    ("senderPublicKey", key_of("alice").public.hex().upper(), Refusal.FORMAT, "senderPublicKey must be 64"),
    ("senderPublicKey", None, Refusal.FORMAT, "senderPublicKey must be 64"),
    ("senderAddress", address_of("bob", "svct"), Refusal.SENDER, "senderAddress must be the address of"),
    ("senderAddress", address_of("alice", "svc"), Refusal.SENDER, "senderAddress must be the address of"),
    ("senderAddress", address_of("alice", "svct").upper(), Refusal.SENDER, "senderAddress must be the address of"),
    ("senderAddress", None, Refusal.SENDER, "senderAddress must be the address of"),
    ("nonce", 7, Refusal.FORMAT, "nonce must be a decimal string"),
    ("nonce", "07", Refusal.FORMAT, "nonce must be a decimal string"),
    ("nonce", "9007199254740992", Refusal.FORMAT, "nonce must be a decimal string"),
    ("fee", "9999", Refusal.FEE, "fee must be at least 10000 base units, not 9999"),
    ("fee", "0", Refusal.FEE, "fee must be at least 10000 base units, not 0"),
    ("fee", "-1", Refusal.FORMAT, "fee must be a decimal string"),
    ("fee", "9007199254740992", Refusal.FORMAT, "fee must be a decimal string"),
    ("timestamp", 1234, Refusal.FORMAT, "timestamp must be a decimal string"),
    ("timestamp", "9007199254740992", Refusal.FORMAT, "timestamp must be a decimal string"),
    ("timestamp", "1234\n", Refusal.FORMAT, "timestamp must be a decimal string"),
    ("signature", "00" * 63, Refusal.FORMAT, "signature must be 128"),
    ("signature", "AA" * 64, Refusal.FORMAT, "signature must be 128"),
    ("recipient", address_of("bob", "svc"), Refusal.ADDRESS, "recipient must be an address of this network"),
    ("recipient", address_of("bob", "svct")[:-1] + "b", Refusal.ADDRESS, "recipient holds 'b'"),
    ("recipient", None, Refusal.ADDRESS, "recipient must be an address of this network"),
    ("amount", "0", Refusal.AMOUNT, "amount must be at least 1 base unit"),
    ("amount", "00", Refusal.FORMAT, "amount must be a decimal string"),
    ("amount", 5, Refusal.FORMAT, "amount must be a decimal string"),
    ("amount", "9007199254740992", Refusal.FORMAT, "amount must be a decimal string"),
    ("paymentReference", "", Refusal.REFERENCE, "paymentReference must be 1 to 64 of the characters"),
    ("paymentReference", None, Refusal.REFERENCE, "paymentReference must be 1 to 64 of the characters"),
]


@pytest.mark.parametrize(
    ("name", "field", "sentence"),
    [
        ("senderAddress", None, "senderAddress must be the address of senderPublicKey on this network"),
        ("amount", "0", "amount must be at least 1 base unit"),
        (
            "paymentReference",
            "",
            "paymentReference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : - (or be absent)",
        ),
    ],
)
def test_sentence_about_a_bad_field(name: str, field: object, sentence: str) -> None:
    with pytest.raises(RuleViolation) as caught:
        parse_transfer(changed(**{name: field}), TEST_PARAMS)
    assert caught.value.detail == sentence


def sorted_text(value: object) -> bytes:
    """``value`` as canonical JSON writes it, even if it is one that canonical JSON has no text for."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


@pytest.mark.parametrize(("name", "field", "code", "reason"), BAD)
def test_bad_field(name: str, field: object, code: Refusal, reason: str) -> None:
    with refuses(code, reason):
        parse_transfer(changed(**{name: field}), TEST_PARAMS)
    assert parsed(sorted_text(changed(**{name: field}))) is None


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("amount", "1"),
        ("amount", "2"),
        ("amount", "9007199254740991"),
        ("fee", "10000"),
        ("fee", "9007199254740991"),
        ("nonce", "0"),
        ("nonce", "9007199254740991"),
        ("timestamp", "0"),
        ("timestamp", "9007199254740991"),
    ],
)
def test_bounds_of_the_numbers(name: str, field: str) -> None:
    transfer = parse_transfer(changed(**{name: field}), TEST_PARAMS)
    assert getattr(transfer, name) == int(field)
    assert asdict(*in_block(transfer)) == asdict(transfer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*FIELDS, "recipient", "amount", "paymentReference"]), JSON)
def test_any_value_of_any_field_is_kept_exactly_or_refused(name: str, field: object) -> None:
    try:
        transfer = parse_transfer(changed(**{name: field}), TEST_PARAMS)
    except RuleViolation:
        assert parsed(sorted_text(changed(**{name: field}))) is None
        return
    assert transfer.wire == canonical(changed(**{name: field}))
    assert parsed(transfer.wire) == [asdict(transfer)]


# References


@pytest.mark.parametrize("text", ["a", "Z", "0", ".", "_", ":", "-", "order-2026.11:20_A", "x" * 64])
def test_reference(text: str) -> None:
    assert check_reference(text) == text
    assert parse_transfer(changed(paymentReference=text), TEST_PARAMS).reference == text


@pytest.mark.parametrize(
    "value",
    ["", "x" * 65, "a b", "a\n", "\na", "a/b", "a%b", "é", "ａ", "a,b", "a\x00", '"', "\\", 1, True, None, ["a"]],
)
def test_no_reference(value: object) -> None:
    with refuses(Refusal.REFERENCE, "paymentReference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : - (or be"):
        check_reference(value)


# What wallets may write


UPPER: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda value: value | {"senderPublicKey": value["senderPublicKey"].upper()},
    lambda value: value | {"signature": value["signature"].upper()},
]


@pytest.mark.parametrize("spell", UPPER)
def test_upper_case_is_folded_where_a_wallet_may_use_it(spell: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    value = spell(wire_object())
    with refuses(Refusal.FORMAT):
        parse_transfer(value, TEST_PARAMS)
    assert parse_transfer(fold_case(value), TEST_PARAMS).wire == SIGNED.wire


def test_nothing_else_is_folded() -> None:
    value = changed(paymentReference="ORDER-1", senderAddress="SVCT1Q")
    assert fold_case(value) == value
    others: list[object] = [None, [], "A", 1, {"signature": 1}, {"senderPublicKey": None}, {"signature": "É"}, {}]
    for other in others:
        assert fold_case(other) == other


def test_folding_leaves_what_was_given_as_it_was() -> None:
    value = {"signature": "AB"}
    assert fold_case(value) == {"signature": "ab"}
    assert value == {"signature": "AB"}


# Signing


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"amount": 0}, Refusal.AMOUNT),
        ({"amount": -1}, Refusal.FORMAT),
        ({"fee": 9_999}, Refusal.FEE),
        ({"nonce": 2**53}, Refusal.FORMAT),
        ({"reference": ""}, Refusal.REFERENCE),
        ({"recipient": "bob"}, Refusal.ADDRESS),
    ],
)
def test_an_invalid_transfer_is_not_signed(change: dict[str, Any], code: Refusal) -> None:
    with refuses(code):
        sign_transfer(evolve(DRAFT, **change), seed=key_of("alice").seed, params=TEST_PARAMS)


def test_new_references_have_130_random_bits() -> None:
    assert new_reference(bytes) == "pay_" + "a" * 26
    assert new_reference(lambda size: b"\xff" * size) == "pay_" + "7" * 26
    made = {new_reference(token_bytes) for _ in range(1000)}
    assert len(made) == 1000
    assert all(check_reference(text) == text and len(text) == 30 for text in made)
