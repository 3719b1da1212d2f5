"""Header and block v4 (docs/protocol.md 5)."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from attrs import asdict, evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import (
    EMPTY_ROOT,
    VERSION,
    Block,
    Header,
    block_wire,
    genesis_header,
    header_hash,
    parse_block,
    parse_header,
    parse_posted_block,
    transactions_root,
)
from svcd.chain.encoding import MAX_INTEGER, canonical, parse_json
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.params import MAINNET
from svcd.chain.signature import is_valid, sign
from tests.chain.refusing import refuses
from tests.chains import TEST_PARAMS, ChainBuilder, key_of

CHAIN = ChainBuilder()
TRANSFERS = tuple(CHAIN.transfer("alice", name, 5, reference=f"to:{name}") for name in ("bob", "carol", "dave"))
BLOCK = CHAIN.block(transfers=TRANSFERS)
WIRE = BLOCK.wire()


def wire_object(block: Block = BLOCK) -> dict[str, Any]:
    value = parse_json(block.wire())
    assert isinstance(value, dict)
    return value


def same(a: Block, b: Block) -> bool:
    return asdict(a) == asdict(b)


U53 = st.integers(0, MAX_INTEGER)
DIGESTS = st.binary(min_size=32, max_size=32)
HEADERS = st.builds(
    Header,
    network_id=st.just(3),
    height=U53,
    slot=U53,
    parent_hash=DIGESTS,
    producer_key=DIGESTS,
    multiplier=U53,
    base_target=st.integers(0, 2**256 - 1),
    transactions_root=DIGESTS,
    transaction_count=U53,
    state_root=DIGESTS,
    consensus_root=DIGESTS,
    work_nonce=st.binary(min_size=8, max_size=8),
    signature=st.binary(min_size=64, max_size=64),
)


# Text


@given(HEADERS, st.lists(st.sampled_from(TRANSFERS), max_size=5))
def test_a_block_is_parsed_to_what_was_written(header: Header, transfers: list[Any]) -> None:
    block = Block(header, tuple(transfers))
    again = parse_block(block.wire(), TEST_PARAMS)
    assert same(again, block)
    # A blank at the end, and the JSON is parsed instead of its text compared.
    assert same(posted(block.wire() + b" "), block)
    assert again.wire() == block.wire() == canonical(json.loads(block.wire()))
    assert block_wire(header.wire(), b",".join(transfer.wire for transfer in transfers)) == block.wire()
    assert (again.header.core_hash, again.header.hash) == (header.core_hash, header.hash)


@given(st.integers(0, len(WIRE) - 1), st.integers(0, 255), st.booleans())
def test_a_block_is_found_by_its_header_where_it_stands_unchanged(at: int, byte: int, changed: bool) -> None:
    wire = WIRE[:at] + bytes([byte]) + WIRE[at + 1 :] if changed else WIRE
    found = BLOCK.header.read_transfers(b"[" + wire + b"," + WIRE, 1, TEST_PARAMS)
    if wire == WIRE:
        assert found is not None
    if found is not None:
        transfers, end = found
        assert (Block(BLOCK.header, transfers).wire(), end) == (wire, 1 + len(wire))
    assert BLOCK.header.read_transfers(b"[" + wire, 0, TEST_PARAMS) is None


@given(HEADERS)
def test_a_header_is_parsed_to_what_was_written(header: Header) -> None:
    again = parse_header(parse_json(header.wire()), TEST_PARAMS)
    assert asdict(again) == asdict(header)
    assert again.wire() == header.wire() == canonical(json.loads(header.wire()))


@given(HEADERS)
def test_hashes_are_of_the_canonical_text(header: Header) -> None:
    value = json.loads(header.wire())
    del value["workNonce"], value["signature"]
    core = sha256(b"svc/block/v4\0" + canonical(value)).digest()
    assert header.core_hash == core
    assert header.hash == sha256(b"svc/block-id/v4\0" + core + header.work_nonce).digest()
    assert header.hash == header_hash(header.wire())


def test_names_of_the_fields() -> None:
    names = "baseTarget consensusRoot height multiplier networkId parentHash producerPublicKey signature slot stateRoot"
    names += " transactionCount transactions transactionsRoot version workNonce"
    assert list(wire_object()) == names.split()
    assert wire_object()["version"] == VERSION == 4
    assert len(wire_object()["baseTarget"]) == 64


def test_the_signature_is_no_part_of_the_id() -> None:
    """Else one piece of work could be signed into endless ids."""
    other = evolve(BLOCK.header, signature=bytes(64))
    assert other.hash == BLOCK.header.hash
    assert other.wire() != BLOCK.header.wire()


def test_the_work_nonce_is_part_of_the_id_and_not_of_the_core() -> None:
    other = evolve(BLOCK.header, work_nonce=b"\xff" * 8)
    assert other.core_hash == BLOCK.header.core_hash
    assert other.hash != BLOCK.header.hash


@pytest.mark.parametrize("name", [name for name in asdict(BLOCK.header) if name not in ("work_nonce", "signature")])
def test_every_other_field_is_part_of_the_core(name: str) -> None:
    value = getattr(BLOCK.header, name)
    change: dict[str, Any] = {name: value + 1 if isinstance(value, int) else bytes(len(value))}
    if change[name] == value:
        change[name] = b"\1" * len(value)
    assert evolve(BLOCK.header, **change).core_hash != BLOCK.header.core_hash


def test_sealed() -> None:
    sealed = BLOCK.header.sealed(work_nonce=b"\1" * 8, signature=b"\2" * 64)
    changes = {"work_nonce": b"\1" * 8, "signature": b"\2" * 64}
    assert asdict(sealed) == asdict(BLOCK.header) | changes


# One text for each block


def reordered(value: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(value.items()))


def dumps(value: object, **how: Any) -> bytes:
    return json.dumps(value, **({"separators": (",", ":")} | how)).encode()


def reordered_payload(value: dict[str, Any]) -> bytes:
    value["transactions"][0]["payload"] = reordered(value["transactions"][0]["payload"])
    return dumps(value)


OTHER_TEXTS: dict[str, Callable[[], bytes]] = {
    "a blank": lambda: WIRE.replace(b",", b", ", 1),
    "a blank at the end": lambda: WIRE + b" ",
    "a newline at the end": lambda: WIRE + b"\n",
    "a blank between transactions": lambda: WIRE.replace(b"},{", b"}, {", 1),
    "indentation": lambda: dumps(wire_object(), indent=1),
    "fields in another order": lambda: dumps(reordered(wire_object())),
    "fields of a payload in another order": lambda: reordered_payload(wire_object()),
    "an escaped letter in a key": lambda: WIRE.replace(b'"slot"', rb'"sl\u006ft"'),
    "an escaped letter in a value": lambda: WIRE.replace(b'"to:bob"', rb'"to:\u0062ob"'),
    "an escaped slash": lambda: WIRE.replace(b'"to:bob"', rb'"to:\u003abob"'),
    "a key twice, the last one right": lambda: WIRE.replace(b'"slot":', b'"slot":"9","slot":', 1),
    "a key twice, both right": lambda: WIRE.replace(b'"version":4', b'"version":4,"version":4'),
    "a key of a payload twice": lambda: WIRE.replace(b'"amount":"5"', b'"amount":"6","amount":"5"', 1),
    "minus zero": lambda: WIRE.replace(b'"transactionCount":3', b'"transactionCount":-0'),
    "a float": lambda: WIRE.replace(b'"version":4', b'"version":4.0'),
    "an exponent": lambda: WIRE.replace(b'"version":4', b'"version":4e0'),
    "a byte order mark": lambda: b"\xef\xbb\xbf" + WIRE,
    "another encoding": lambda: WIRE.decode().encode("utf-16"),
    "no object": lambda: b"[" + WIRE + b"]",
    "two objects": lambda: WIRE + WIRE,
    "a broken end": lambda: WIRE[:-1],
    "nothing": lambda: b"",
    "brackets without end": lambda: b"[" * 100_000,
}


@pytest.mark.parametrize("name", OTHER_TEXTS)
def test_no_other_text_is_accepted(name: str) -> None:
    assert OTHER_TEXTS[name]() != WIRE
    with refuses(Refusal.ENCODING):
        parse_block(OTHER_TEXTS[name](), TEST_PARAMS)


def test_a_text_that_is_not_canonical_is_told_so() -> None:
    with refuses(Refusal.ENCODING, "the block is not canonical JSON: sorted keys, no blanks, no key twice"):
        parse_block(WIRE + b" ", TEST_PARAMS)


SPELLINGS = (
    "a blank,a blank at the end,a newline at the end,a blank between transactions,indentation,fields in another order,"
    "fields of a payload in another order,an escaped letter in a key,an escaped letter in a value"
).split(",")
"""Of them those that hold the same values."""


def posted(block: bytes, before: bytes = b'{"block":', after: bytes = b"}") -> Block:
    return parse_posted_block(before + block + after, TEST_PARAMS)


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_post_may_spell_a_block_in_another_way(name: str) -> None:
    assert posted(OTHER_TEXTS[name]()).wire() == WIRE


@pytest.mark.parametrize(("before", "after"), [(b' {\n"block" : ', b"}\r\n"), (b'{"\\u0062lock":', b"}")])
def test_a_post_may_spell_its_body_in_another_way(before: bytes, after: bytes) -> None:
    assert posted(WIRE, before, after).wire() == WIRE


@pytest.mark.parametrize("name", sorted(OTHER_TEXTS.keys() - {*SPELLINGS, "an escaped slash"}))
def test_a_posted_block_must_be_unambiguous_strict_json(name: str) -> None:
    with pytest.raises(RuleViolation):
        posted(OTHER_TEXTS[name]())


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (b"", Refusal.ENCODING, "not JSON"),
        (b"[]", Refusal.FIELDS, "the body must be a JSON object"),
        (b"{}", Refusal.FIELDS, "the body lacks the field block"),
        (b'{"block":{},"other":1}', Refusal.FIELDS, 'the body has an unknown field "other"'),
        (b'{"block":{},"block":{}}', Refusal.ENCODING, 'the key "block" occurs twice'),
        (b'{"block":null}', Refusal.FIELDS, "block must be a JSON object"),
        (b'{"block":{}}', Refusal.FIELDS, "block lacks the field baseTarget"),
    ],
)
def test_a_body_that_holds_no_block(body: bytes, code: Refusal, sentence: str) -> None:
    with refuses(code, sentence):
        parse_posted_block(body, TEST_PARAMS)


def test_the_size_of_a_posted_block_is_that_of_its_canonical_form() -> None:
    spelled = dumps(wire_object(), indent=4)
    exactly = evolve(TEST_PARAMS, max_block_bytes=len(WIRE))
    assert len(spelled) > len(WIRE)
    assert parse_posted_block(b'{"block":' + spelled + b"}", exactly).wire() == WIRE
    with refuses(Refusal.SIZE, f"a block has at most {len(WIRE) - 1} bytes, not {len(WIRE)}"):
        parse_posted_block(b'{"block":' + spelled + b"}", evolve(TEST_PARAMS, max_block_bytes=len(WIRE) - 1))


@given(st.integers(0, len(WIRE) - 1), st.integers(0, 255))
def test_any_other_byte_makes_another_block_or_none(at: int, byte: int) -> None:
    data = WIRE[:at] + bytes([byte]) + WIRE[at + 1 :]
    try:
        block = parse_block(data, TEST_PARAMS)
    except RuleViolation:
        assert data != WIRE
    else:
        assert block.wire() == data


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(RuleViolation):
        parse_block(data, TEST_PARAMS)


# Fields


@pytest.mark.parametrize("name", wire_object())
def test_every_field_is_required(name: str) -> None:
    value = wire_object()
    del value[name]
    with refuses(Refusal.FIELDS, f"block lacks the field {name}"):
        parse_block(canonical(value), TEST_PARAMS)


def test_unknown_fields_are_refused() -> None:
    with refuses(Refusal.FIELDS, 'block has an unknown field "hash"'):
        parse_block(canonical(wire_object() | {"hash": BLOCK.header.hash.hex()}), TEST_PARAMS)
    with refuses(Refusal.FIELDS, 'header has an unknown field "transactions"'):
        parse_header(wire_object(), TEST_PARAMS)
    with refuses(Refusal.FIELDS, "header must be a JSON object"):
        parse_header([], TEST_PARAMS)


DIGEST = "00" * 32
BAD: list[tuple[str, object, Refusal, str]] = [
    ("version", 3, Refusal.CONSTANTS, "version must be 4"),
    ("version", 5, Refusal.CONSTANTS, "version must be 4"),
    ("version", "4", Refusal.FORMAT, "version must be a whole JSON number"),
    ("version", True, Refusal.FORMAT, "version must be a whole JSON number"),
    ("networkId", 1, Refusal.CONSTANTS, "networkId must be 3, the id of SVC-TEST"),
    ("networkId", True, Refusal.FORMAT, "networkId must be a whole JSON number"),
    ("height", 1, Refusal.FORMAT, "height must be a decimal string"),
    ("height", "01", Refusal.FORMAT, "height must be a decimal string"),
    ("height", "9007199254740992", Refusal.FORMAT, "height must be a decimal string"),
    ("slot", 1, Refusal.FORMAT, "slot must be a decimal string"),
    ("slot", "-1", Refusal.FORMAT, "slot must be a decimal string"),
    ("multiplier", "10000", Refusal.FORMAT, "multiplier must be a whole JSON number"),
    ("multiplier", -1, Refusal.FORMAT, "multiplier must be a whole JSON number"),
    ("transactionCount", False, Refusal.FORMAT, "transactionCount must be a whole JSON number"),
    ("transactionCount", 2**53, Refusal.FORMAT, "transactionCount must be a whole JSON number"),
    ("baseTarget", "0" * 62, Refusal.FORMAT, "baseTarget must be 64"),
    ("workNonce", "0" * 14, Refusal.FORMAT, "workNonce must be 16"),
    ("workNonce", "A" * 16, Refusal.FORMAT, "workNonce must be 16"),
    ("signature", "0" * 127, Refusal.FORMAT, "signature must be 128"),
    ("signature", "0" * 130, Refusal.FORMAT, "signature must be 128"),
    ("transactions", {}, Refusal.FORMAT, "transactions must be an array"),
    ("transactions", None, Refusal.FORMAT, "transactions must be an array"),
    ("transactions", "", Refusal.FORMAT, "transactions must be an array"),
    ("transactions", [1], Refusal.FIELDS, "transaction must be a JSON object"),
]
BAD += [
    (name, bad, Refusal.FORMAT, f"{name} must be 64 lower-case hex characters")
    for name in (
        *("parentHash", "producerPublicKey", "baseTarget"),
        *("transactionsRoot", "stateRoot", "consensusRoot"),
    )
    for bad in ("A" * 64, "0" * 63, "0" * 64 + "\n", None)
]


@pytest.mark.parametrize(("name", "field", "code", "reason"), BAD)
def test_bad_field(name: str, field: object, code: Refusal, reason: str) -> None:
    with refuses(code, reason):
        parse_block(canonical(wire_object() | {name: field}), TEST_PARAMS)


def test_upper_case_that_a_wallet_may_use_is_refused_in_a_block() -> None:
    for name in ("senderPublicKey", "signature"):
        value = wire_object()
        value["transactions"][1][name] = value["transactions"][1][name].upper()
        with refuses(Refusal.FORMAT, name):
            parse_block(canonical(value), TEST_PARAMS)


# Sizes


def test_a_block_may_have_exactly_the_largest_size() -> None:
    assert parse_block(WIRE, evolve(TEST_PARAMS, max_block_bytes=len(WIRE))).wire() == WIRE
    with refuses(Refusal.SIZE, f"a block has at most {len(WIRE) - 1} bytes, not {len(WIRE)}"):
        parse_block(WIRE, evolve(TEST_PARAMS, max_block_bytes=len(WIRE) - 1))
    assert BLOCK.header.read_transfers(WIRE, 0, evolve(TEST_PARAMS, max_block_bytes=len(WIRE)))
    assert BLOCK.header.read_transfers(WIRE, 0, evolve(TEST_PARAMS, max_block_bytes=len(WIRE) - 1)) is None


def test_size_is_checked_before_anything_is_parsed() -> None:
    assert TEST_PARAMS.max_block_bytes == MAINNET.max_block_bytes
    with refuses(Refusal.SIZE, "a block has at most 1310720 bytes, not 1310721"):
        parse_block(b"\xff" * 1_310_721, TEST_PARAMS)
    with refuses(Refusal.ENCODING):
        parse_block(b"\xff" * 1_310_720, TEST_PARAMS)


def test_2000_transactions_and_not_2001() -> None:
    full = Block(evolve(BLOCK.header, transaction_count=2000), TRANSFERS[:1] * 2000)
    assert len(full.wire()) < TEST_PARAMS.max_block_bytes
    assert len(parse_block(full.wire(), TEST_PARAMS).transfers) == 2000
    over = Block(full.header, TRANSFERS[:1] * 2001)
    with refuses(Refusal.SIZE, "a block has at most 2000 transactions, not 2001"):
        parse_block(over.wire(), TEST_PARAMS)
    assert full.header.read_transfers(full.wire(), 0, TEST_PARAMS)
    assert over.header.read_transfers(over.wire(), 0, TEST_PARAMS) is None


def test_the_largest_transfers_fit_into_a_block() -> None:
    """So the cap on bytes never hinders what the cap on transactions allows."""
    chain = ChainBuilder(evolve(TEST_PARAMS, network_id=1))
    largest = chain.transfer(
        "alice", "bob", MAX_INTEGER, nonce=MAX_INTEGER, fee=MAX_INTEGER, timestamp=MAX_INTEGER, reference="x" * 64
    )
    header = evolve(BLOCK.header, height=MAX_INTEGER, slot=MAX_INTEGER, transaction_count=2000)
    assert len(Block(header, (largest,) * 2000).wire()) < TEST_PARAMS.max_block_bytes


# Checks


def test_the_producer_signs_the_id() -> None:
    BLOCK.header.check_signature()
    assert is_valid(key_of("p").public, BLOCK.header.hash, BLOCK.header.signature)
    for signature in (bytes(64), sign(key_of("bob").seed, BLOCK.header.hash), sign(key_of("p").seed, b"else")):
        with refuses(Refusal.BLOCK_SIGNATURE, BLOCK.header.hash.hex()):
            evolve(BLOCK.header, signature=signature).check_signature()


def test_body_is_what_the_header_says() -> None:
    BLOCK.check_body()
    Block(evolve(BLOCK.header, transaction_count=0, transactions_root=EMPTY_ROOT), ()).check_body()


@pytest.mark.parametrize("count", [0, 2, 4])
def test_another_count_is_refused(count: int) -> None:
    with refuses(Refusal.TRANSACTION_COUNT, f"transactionCount is {count}, not 3 as there are"):
        Block(evolve(BLOCK.header, transaction_count=count), TRANSFERS).check_body()


def test_another_body_is_refused() -> None:
    forged = evolve(TRANSFERS[0], signature=bytes(64))
    for body in (TRANSFERS[::-1], (*TRANSFERS[:2], TRANSFERS[0]), (forged, *TRANSFERS[1:])):
        with refuses(Refusal.TRANSACTIONS_ROOT):
            Block(BLOCK.header, body).check_body()
    with refuses(Refusal.TRANSACTION_COUNT):
        Block(BLOCK.header, TRANSFERS[:2]).check_body()


def test_the_root_is_over_ids_and_signatures() -> None:
    first, second, third = (sha256(b"\0" + one.txid + one.signature).digest() for one in TRANSFERS)
    pair = sha256(b"\1" + first + second).digest()
    assert transactions_root(TRANSFERS) == sha256(b"\1" + pair + third).digest() == BLOCK.header.transactions_root
    assert transactions_root(()) == EMPTY_ROOT == sha256(b"").digest()


# Genesis


def test_genesis_is_not_accepted_from_outside() -> None:
    """Its key is the all-zero one, of small order, so not even its signature holds."""
    header = genesis_header(TEST_PARAMS, state_root=bytes(32), consensus_root=bytes(32))
    with refuses(Refusal.BLOCK_SIGNATURE):
        parse_block(header.wire(b""), TEST_PARAMS).header.check_signature()
