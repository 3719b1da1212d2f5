"""What must hold for every parser of what strangers send, whatever the bytes are.

Each target takes bytes. A parser may refuse them with an exception of its own package; where it takes them, printing
what was read gives the one text that stands for it, and whoever else reads that text reads the same.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve, frozen
from twisted.web.client import URI

from svcd.chain.address import decode_address, encode_address, key_hash
from svcd.chain.block import parse_block
from svcd.chain.encoding import canonical, parse_json, parse_wire_object, tagged_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET
from svcd.chain.transaction import block_entry, block_entry_of, fold_case, parse_transfer, sign_transfer
from svcd.chain.units import format_amount, parse_amount
from svcd.commerce.payment_request import format_uri, parse_uri
from svcd.net.addresses import AddressPolicy, BadAddress, parse_literal
from svcd.net.targets import BadTarget, Rules
from tests.chains import TEST_PARAMS, ChainBuilder, address_of, key_of
from tests.fuzz.requests import SEEDS as REQUESTS
from tests.fuzz.requests import ask

PREFIX = DEVNET.address_prefix
VECTORS = Path(__file__).parents[1] / "vectors"


def json_text(data: bytes) -> None:
    """Strict JSON: what is taken is what Python's own reader reads, and its canonical text stands for it."""
    try:
        value = parse_json(data)
    except RuleViolation:
        _wire_object(data)
        return
    assert value == json.loads(data)
    text = canonical(value)
    assert parse_json(text) == value
    assert canonical(parse_json(text)) == text
    if isinstance(value, dict):
        assert parse_wire_object(data) == value


def _wire_object(data: bytes) -> None:
    """The lenient reader of blocks may take more, but no text that is canonical and not too deep."""
    try:
        value = parse_wire_object(data)
    except RuleViolation:
        return
    if _depth(value) <= 8:
        # No bytes stand for half of a surrogate pair.
        with suppress(UnicodeEncodeError):
            assert canonical(value) != data


def _depth(value: object) -> int:
    """How many arrays and objects lie in one another, counted without recursion."""
    depth, layer = 0, [value]
    while layer := [each for each in layer if isinstance(each, dict | list)]:
        depth += 1
        layer = [inner for each in layer for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def address(data: bytes) -> None:
    """Addresses: one text for one key hash."""
    key = data[:20].ljust(20, b"\0")
    assert decode_address(encode_address(key, PREFIX), PREFIX) == key
    text = data.decode("latin-1")
    with suppress(RuleViolation):
        assert encode_address(decode_address(text, PREFIX), PREFIX) == text


def amount(data: bytes) -> None:
    """Amounts of coins: the shortest text stands for the base units."""
    try:
        units = parse_amount(data.decode("latin-1"))
    except RuleViolation:
        return
    assert parse_amount(format_amount(units)) == units
    assert len(format_amount(units)) <= len(data)


def payment_uri(data: bytes) -> None:
    """Payment URIs: what is printed of a request is read as the same request."""
    try:
        request = parse_uri(data.decode("latin-1"), DEVNET)
    except RuleViolation:
        return
    printed = format_uri(request)
    assert parse_uri(printed, DEVNET) == request
    assert format_uri(parse_uri(printed, DEVNET)) == printed


RULES = [
    Rules.for_callbacks(),
    Rules.for_callbacks(allow_http=True, allow_private=True),
    Rules.for_peers(),
    Rules.for_peers(allow_private=True),
]


def url(data: bytes) -> None:
    """Callback URLs and endpoints: one spelling, which two other readers of URLs understand as we do."""
    text = data.decode("latin-1")
    for rules in RULES:
        try:
            target = rules.parse(text)
        except BadTarget as refused:
            assert str(refused).startswith(f"{rules.name} ")  # noqa: PT017
            continue
        assert rules.parse(target.origin if rules.bare else target.url) == target
        parts, twisted = urlsplit(target.url), URI.fromBytes(target.url.encode("ascii"))
        assert (parts.scheme, parts.hostname, parts.username, parts.fragment) == (target.scheme, target.host, None, "")
        assert (parts.port or {"http": 80, "https": 443}[target.scheme]) == target.port == twisted.port
        assert twisted.host.decode().strip("[]") == target.host
        assert twisted.originForm.decode() == target.path
        try:
            AddressPolicy().check_host(target.host)
        except BadAddress:
            assert parse_literal(target.host) is not None


def transfer(data: bytes) -> None:
    """Transfers: the canonical text of what was read is the wire form, and signs and commits to what was read."""
    try:
        value = parse_json(data)
    except RuleViolation:
        return
    for candidate in (value, _mended(value)):
        try:
            found = parse_transfer(fold_case(candidate), TEST_PARAMS)
        except RuleViolation:
            continue
        fields: Any = parse_json(found.wire)
        assert found.wire == canonical(fields) == canonical(fold_case(candidate))
        assert parse_transfer(fields, TEST_PARAMS).txid == found.txid
        del fields["signature"]
        assert found.txid == tagged_hash("svc/tx/v2", TEST_PARAMS.genesis_hash + canonical(fields))
        assert block_entry_of(found.wire, TEST_PARAMS) == block_entry(found)


def block(data: bytes) -> None:
    """Blocks: only the canonical text is taken, and printing gives it back."""
    texts = [data]
    try:
        value = parse_json(data)
    except RuleViolation:
        value = None
    if isinstance(value, dict):
        if isinstance(value.get("transactions"), list):
            value["transactions"] = [_mended(each) for each in value["transactions"]]
        texts.append(canonical(value))
    for text in texts:
        try:
            found = parse_block(text, TEST_PARAMS)
        except RuleViolation:
            continue
        assert found.wire() == text == canonical(parse_json(text))
        assert found.header.hash == parse_block(text, TEST_PARAMS).header.hash


def _mended(value: object) -> object:
    """The transfer with the address that belongs to its key, which no fuzzer would find."""
    if not isinstance(value, dict) or not isinstance(value.get("senderPublicKey"), str):
        return value
    try:
        key = bytes.fromhex(value["senderPublicKey"])
    except ValueError:
        return value
    return {**value, "senderAddress": encode_address(key_hash(key), TEST_PARAMS.address_prefix)}


@frozen
class Target:
    """A law, and inputs to begin with."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def _vectors(name: str, group: str, member: str) -> tuple[bytes, ...]:
    found = json.loads((VECTORS / name).read_text("utf-8"))[group]
    return tuple(vector[member].encode() for vector in found)


def _transfers() -> tuple[bytes, ...]:
    from tests.chain.test_transaction import DRAFT

    drafts = [DRAFT, evolve(DRAFT, reference=None), evolve(DRAFT, amount=2**53 - 1)]
    return tuple(sign_transfer(each, seed=key_of("alice").seed, params=TEST_PARAMS).wire for each in drafts)


def _blocks() -> tuple[bytes, ...]:
    built = ChainBuilder(TEST_PARAMS).chain("genesis: a[1..2]\na2 pays 5000 from alice to bob for order-1")
    return tuple(each.wire() for each in built.values())


_JSON = (
    b'{"a":[1,-1,9007199254740992,true,null,"\\u00e9\xc3\xa9"]}',
    b"[[[[[[[[]]]]]]]]",
    b'{"a":1,"a":2}',
    b'"\\ud800"',
)
_URLS = (
    b"https://shop.example.com/paid?for=a",
    b"http://[2001:db8::1]:8080/a;b?c",
    b"https://192.0.2.1:8443/%41",
    b"HTTPS://Shop.Example/<a>",
)

TARGETS = {
    "json": Target(json_text, _JSON),
    "address": Target(address, (address_of("alice", PREFIX).encode(), address_of("bob", "svc").upper().encode())),
    "amount": Target(amount, (b"25", b"0.50", b"90071992.54740991")),
    "uri": Target(payment_uri, _vectors("payment_uri.json", "valid", "uri")),
    "url": Target(url, _URLS),
    "transfer": Target(transfer, _transfers()),
    "block": Target(block, _blocks()),
    "http": Target(ask, REQUESTS),
}
