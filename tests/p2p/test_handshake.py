"""Hellos: what they prove, what they must look like, and what is refused (docs/protocol.md 11)."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import canonical, parse_json
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.signature import sign
from svcd.chain.transition import ChainPoint, genesis_point
from svcd.net.targets import BadTarget, Endpoint
from svcd.p2p.address_book import group_of_endpoint
from svcd.p2p.handshake import (
    CLOCK_TOLERANCE_MS,
    Fault,
    Hello,
    HelloRefused,
    LatestHellos,
    NodeKey,
    check_hello,
    parse_hello,
)
from tests.chains import TEST_PARAMS, key_of

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "svc_protocol.json").read_text())
NOW = 1_800_000_000_000
TIP = ChainPoint(hash=bytes(range(32)), height=7, slot=14, difficulty_clock=12, work=99, issued=1)
KEY = NodeKey(key_of("a node").seed, "http://198.51.100.7:8645")
OURS = NodeKey(key_of("ourselves").seed, "")

each_network = pytest.mark.parametrize("params", NETWORKS.values(), ids=NETWORKS)


def hello(**changes: Any) -> Hello:
    """A hello that may be accepted, with changes made before its key signs it."""
    unsigned = evolve(KEY.unsigned(TEST_PARAMS, TIP, NOW), **changes)
    return evolve(unsigned, signature=sign(KEY.seed, unsigned.signed_hash()))


def check(given: Hello, now: int = NOW) -> None:
    check_hello(given, TEST_PARAMS, own=OURS.node_id, now=now)


def fault_of(given: Hello, now: int = NOW) -> Fault:
    with pytest.raises(HelloRefused) as refused:
        check(given, now)
    assert str(refused.value) == refused.value.detail != ""
    return refused.value.fault


def format_fault(message: object) -> str:
    """The sentence with which an object is refused as no hello."""
    with pytest.raises(HelloRefused) as refused:
        parse_hello(message)
    assert refused.value.fault is Fault.FORMAT
    return refused.value.detail


# The published vector


@each_network
def test_the_vector_is_made_again(params: NetworkParams) -> None:
    vector = VECTORS["networks"][params.name]["hello"]
    [seed] = [key["seed"] for key in VECTORS["networks"][params.name]["keys"] if key["nodeId"] == vector["nodeId"]]
    key = NodeKey(bytes.fromhex(seed), vector["endpoint"])
    assert key.hello(params, genesis_point(params), int(vector["timestamp"])).message() == vector


@each_network
def test_the_vector_is_accepted(params: NetworkParams) -> None:
    vector = VECTORS["networks"][params.name]["hello"]
    check_hello(parse_hello(vector), params, own=OURS.node_id, now=int(vector["timestamp"]))


def test_a_hello_of_one_network_is_none_of_another() -> None:
    vector = VECTORS["networks"]["mainnet"]["hello"]
    with pytest.raises(HelloRefused) as refused:
        check_hello(parse_hello(vector), NETWORKS["devnet"], own=OURS.node_id, now=int(vector["timestamp"]))
    assert refused.value.fault is Fault.NETWORK


# One rule after the other


def test_a_good_hello_is_accepted() -> None:
    check(hello())
    check(hello(endpoint=""))
    check(hello(protocol_version="1.7", software_version="another node, 9.9 (by somebody)"))


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"network_id": 1}, Fault.NETWORK),
        ({"chain_id": "SVC-MAINNET"}, Fault.NETWORK),
        ({"genesis_hash": bytes(32)}, Fault.NETWORK),
        ({"protocol_version": "2.0"}, Fault.VERSION),
        ({"protocol_version": "10.0"}, Fault.VERSION),
        ({"protocol_version": ""}, Fault.VERSION),
        ({"node_id": OURS.node_id[:-1] + "0"}, Fault.NODE_ID),
        ({"node_key": OURS.public}, Fault.NODE_ID),
        ({"timestamp": NOW + CLOCK_TOLERANCE_MS + 1}, Fault.CLOCK),
        ({"timestamp": NOW - CLOCK_TOLERANCE_MS - 1}, Fault.CLOCK),
    ],
)
def test_correctly_signed_hellos_that_are_refused(changes: dict[str, Any], fault: Fault) -> None:
    assert fault_of(hello(**changes)) is fault


@pytest.mark.parametrize("off", [CLOCK_TOLERANCE_MS, -CLOCK_TOLERANCE_MS])
def test_clocks_may_differ_by_a_minute(off: int) -> None:
    check(hello(timestamp=NOW + off))


def test_our_own_hello_is_recognised() -> None:
    assert fault_of(OURS.hello(TEST_PARAMS, TIP, NOW)) is Fault.SELF


def test_a_key_cannot_be_claimed_with_another_s_signature() -> None:
    unsigned = OURS.unsigned(TEST_PARAMS, TIP, NOW)
    forged = evolve(unsigned, signature=sign(KEY.seed, unsigned.signed_hash()))
    with pytest.raises(HelloRefused) as refused:
        check_hello(forged, TEST_PARAMS, own=KEY.node_id, now=NOW)
    assert refused.value.fault is Fault.SIGNATURE


@pytest.mark.parametrize(
    "field",
    ["software_version", "protocol_version", "height", "hash", "timestamp", "endpoint"],
)
def test_the_signature_covers_every_field_that_may_differ(field: str) -> None:
    other = {"height": 8, "hash": bytes(32), "timestamp": NOW + 1, "endpoint": "", "protocol_version": "1.1"}
    changed = evolve(hello(), **{field: other.get(field, "0.0.2")})
    assert fault_of(changed) is Fault.SIGNATURE


# Fields


@pytest.mark.parametrize("name", sorted(hello().message()))
def test_every_field_is_required(name: str) -> None:
    message = hello().message()
    del message[name]
    assert format_fault(message) == f"hello lacks the field {name}"


def test_no_other_field_is_allowed() -> None:
    assert format_fault({**hello().message(), "port": 1}) == 'hello has an unknown field "port"'


@pytest.mark.parametrize("value", [None, [], "hello", 5, True])
def test_a_hello_is_an_object(value: object) -> None:
    assert format_fault(value) == "hello must be a JSON object"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softwareVersion", "x" * 33),
        ("softwareVersion", "tab\t"),
        ("softwareVersion", "é"),
        ("softwareVersion", "a\n"),
        ("softwareVersion", 1),
        ("protocolVersion", "1." + "0" * 31),
        ("protocolVersion", None),
        ("networkId", "3"),
        ("networkId", True),
        ("networkId", None),
        ("chainId", ["SVC-TEST"]),
        ("genesisHash", "AB" * 32),
        ("genesisHash", "ab" * 31),
        ("nodeId", "svcnode_" + "AB" * 16),
        ("nodeId", "node_" + "ab" * 16),
        ("nodeId", "svcnode_" + "ab" * 16 + "\n"),
        ("nodePublicKey", "xy" * 32),
        ("height", "07"),
        ("height", 7),
        ("height", "-1"),
        ("height", str(2**53)),
        ("hash", "00"),
        ("timestamp", ""),
        ("timestamp", "1e3"),
        ("timestamp", NOW),
        ("endpoint", None),
        ("signature", "ab" * 63),
        ("signature", "AB" * 64),
    ],
)
def test_fields_have_one_form(name: str, value: object) -> None:
    assert name in format_fault({**hello().message(), name: value})


@pytest.mark.parametrize("version", ["", "a", "a node of somebody's, v1.2", "~" * 32])
def test_versions_are_at_most_32_printable_characters(version: str) -> None:
    check(parse_hello(hello(software_version=version).message()))


@pytest.mark.parametrize("endpoint", ["http://node.example", "https://[::1]:65535"])
def test_endpoints(endpoint: str) -> None:
    parsed = parse_hello(hello(endpoint=endpoint).message())
    assert (parsed.endpoint, parsed.canonical_endpoint) == (endpoint, endpoint)


@pytest.mark.parametrize(
    ("spelling", "place"),
    [
        ("HTTP://Node.Example:80", "http://node.example"),
        ("https://LOCALHOST:443", "https://localhost"),
        ("http://[2001:DB8::1]:8645", "http://[2001:db8::1]:8645"),
    ],
)
def test_a_hello_may_spell_its_endpoint_in_another_way(spelling: str, place: str) -> None:
    """What it signed is kept as it was spelled, or the signature would not be good."""
    ours = evolve(KEY, endpoint=spelling).hello(TEST_PARAMS, TIP, NOW)
    parsed = parse_hello(parse_json(canonical(ours.message())))
    check(parsed)
    assert (parsed.endpoint, parsed.canonical_endpoint) == (spelling, place)


def test_a_hello_without_an_endpoint_names_no_place() -> None:
    assert parse_hello(hello(endpoint="").message()).canonical_endpoint is None


@pytest.mark.parametrize("endpoint", ["node.example", "http://node.example/", "http://nöde.example"])
def test_a_hello_with_an_invalid_endpoint_is_refused(endpoint: str) -> None:
    """All forms: tests/net/test_targets.py."""
    assert "endpoint must " in format_fault({**hello().message(), "endpoint": endpoint})


# There and back

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=32)
NUMBERS = st.integers(0, 2**53 - 1)
HELLOS = st.builds(
    Hello,
    software_version=TEXT,
    protocol_version=TEXT,
    network_id=NUMBERS,
    chain_id=TEXT,
    genesis_hash=st.binary(min_size=32, max_size=32),
    node_id=st.from_regex("svcnode_[0-9a-f]{32}", fullmatch=True),
    node_key=st.binary(min_size=32, max_size=32),
    height=NUMBERS,
    hash=st.binary(min_size=32, max_size=32),
    timestamp=NUMBERS,
    endpoint=st.sampled_from(["", "http://node.example", "https://[2001:db8::1]:8645", "http://192.0.2.1:80"]),
    signature=st.binary(min_size=64, max_size=64),
)


@given(HELLOS)
def test_parsing_gives_the_fields_of_the_hello(given: Hello) -> None:
    wire = canonical(given.message())
    assert parse_hello(parse_json(wire)) == given
    assert canonical(parse_hello(parse_json(wire)).message()) == wire


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(hello().message())), JSON, min_size=1))
def test_parsing_any_fields_gives_a_hello_or_a_refusal(changes: dict[str, object]) -> None:
    message = {**hello().message(), **changes}
    try:
        parsed = parse_hello(message)
    except HelloRefused:
        return
    assert parsed.message() == message


@given(st.text(st.sampled_from("htps:/[]@.?#%0189afx\n"), max_size=24).map(lambda rest: "http://" + rest))
def test_every_endpoint_has_a_group(endpoint: str) -> None:
    """What is taken for an endpoint must not make the book stumble."""
    try:
        place = Endpoint(endpoint)
    except BadTarget:
        return
    assert group_of_endpoint(place)


# Replays


def test_a_hello_is_taken_once() -> None:
    latest = LatestHellos()
    latest.take(hello(), NOW)
    with pytest.raises(HelloRefused) as refused:
        latest.take(hello(), NOW)
    assert refused.value.fault is Fault.REPLAY


def test_an_older_hello_is_refused_and_a_newer_one_taken() -> None:
    latest = LatestHellos()
    latest.take(hello(), NOW)
    with pytest.raises(HelloRefused):
        latest.take(hello(timestamp=NOW - 1), NOW)
    latest.take(hello(timestamp=NOW + 1), NOW)


def test_a_hello_from_a_moment_in_which_the_clock_was_wrong_shuts_nobody_out() -> None:
    """The clocks of two nodes on one computer are wrong together."""
    latest = LatestHellos()
    latest.take(hello(timestamp=NOW + 172_800_000), NOW + 172_800_000)
    latest.take(hello(), NOW)
    with pytest.raises(HelloRefused):
        latest.take(hello(), NOW + 1)


def test_the_hellos_of_other_keys_do_not_count() -> None:
    latest = LatestHellos()
    latest.take(hello(), NOW)
    latest.take(OURS.hello(TEST_PARAMS, TIP, NOW - 1), NOW)


def test_the_remembered_hellos_are_bounded_and_the_least_recent_goes_first() -> None:
    latest = LatestHellos(capacity=2)
    keys = [NodeKey(key_of(f"node {number}").seed, "") for number in range(3)]
    first, second, third = (key.hello(TEST_PARAMS, TIP, NOW) for key in keys)
    latest.take(first, NOW)
    latest.take(second, NOW)
    latest.take(keys[0].hello(TEST_PARAMS, TIP, NOW + 1), NOW)
    latest.take(third, NOW)
    latest.take(second, NOW)
    with pytest.raises(HelloRefused):
        latest.take(third, NOW)
