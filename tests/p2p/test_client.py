"""What is asked of other nodes, within which limits, and that a reply of any other form is refused."""

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed

from svcd.chain.block import Block
from svcd.chain.encoding import canonical
from svcd.chain.transition import ChainPoint
from svcd.net.calls import CallKind
from svcd.node.threads import InlineWorker
from svcd.p2p.client import MAX_TRANSACTIONS, TRANSACTIONS_BYTES, PeerClient, PeerStatus, SnapshotClaim
from svcd.p2p.handshake import NodeKey
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerReply, PeerRequest
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Stepped
from tests.support import result_of

NOW = 1_800_000_000_000
TIP = ChainPoint(hash=bytes(range(32)), height=7, slot=14, difficulty_clock=12, work=99, issued=1)
THERE = "http://198.51.100.7:8645"
KEY = NodeKey(key_of("somebody").seed, THERE)
OURS = NodeKey(key_of("ourselves").seed, "")
CLAIM = {"height": "5", "hash": "cd" * 32, "digest": "ef" * 32}
STATUS = {"height": "7", "hash": "ab" * 32, "cumulativeWork": "99", "pruneHeight": "3", "snapshots": [CLAIM]}
RECEIPT = {"ok": True, "txid": "ab" * 32, "state": "accepted"}


@define
class Script:
    """A caller that gets one reply to everything, and keeps what was asked."""

    reply: PeerReply | PeerCallFailed
    asked: list[tuple[str, PeerRequest]] = field(factory=list)
    answered_at: Callable[[str], str] = lambda _: ""
    is_operators: Callable[[str], bool] = lambda _: False

    def call(self, endpoint: str, request: PeerRequest) -> Deferred[PeerReply]:
        self.asked.append((endpoint, request))
        return fail(self.reply) if isinstance(self.reply, PeerCallFailed) else succeed(self.reply)

    def address_of(self, endpoint: str) -> str:
        raise AssertionError("the client does not ask where it calls")

    def forget(self, endpoint: str) -> None:
        raise AssertionError("the client closes nothing")


def scripted(reply: object, status: int = 200) -> tuple[PeerClient, Script]:
    """A client to which everybody answers with the same bytes or JSON."""
    if not isinstance(reply, PeerCallFailed):
        reply = PeerReply(status, reply if isinstance(reply, bytes) else json.dumps(reply).encode())
    script = Script(reply)
    return PeerClient(TEST_PARAMS, script, InlineWorker()), script


def outcome(work: Coroutine[Any, Any, Any]) -> Any:
    return result_of(Deferred.fromCoroutine(work))


def trouble(work: Coroutine[Any, Any, Any]) -> FailureKind:
    with pytest.raises(PeerCallFailed) as failed:
        outcome(work)
    assert str(failed.value) == failed.value.detail != ""
    return failed.value.kind


# What is asked


def the_request(script: Script) -> PeerRequest:
    ((endpoint, request),) = script.asked
    assert endpoint == THERE
    return request


@pytest.mark.parametrize(("call_back", "path"), [(False, "/p2p/hello"), (True, "/p2p/hello?callBack=true")])
def test_hello(call_back: bool, path: str) -> None:
    theirs, ours = KEY.hello(TEST_PARAMS, TIP, NOW), OURS.hello(TEST_PARAMS, TIP, NOW)
    client, script = scripted({"ok": True, "hello": theirs.message()})
    assert outcome(client.hello(THERE, ours, call_back=call_back)) == theirs
    request = the_request(script)
    assert (request.path, request.max_bytes, request.seconds) == (path, 4_096, 5.0)
    assert request.body == canonical({"hello": ours.message()})


def test_status() -> None:
    client, script = scripted({"ok": True, "status": {**STATUS, "peers": 3}})
    snapshots = (SnapshotClaim(5, b"\xcd" * 32, b"\xef" * 32),)
    assert outcome(client.status(THERE)) == PeerStatus(7, b"\xab" * 32, 99, 3, snapshots)
    assert the_request(script) == PeerRequest(path="/p2p/status", max_bytes=4_096, seconds=5.0)


def headers_answer(blocks: Sequence[Block], first: object = "3", height: object = "9", **more: object) -> Any:
    headers = [json.loads(block.header.wire()) for block in blocks]
    return {"ok": True, "headers": headers, "from": first, "height": height, **more}


def two_blocks() -> list[Block]:
    builder = ChainBuilder()
    first = builder.block(transfers=[builder.transfer("alice", "bob", 5)])
    return [first, builder.block(first)]


def test_headers() -> None:
    blocks = two_blocks()
    client, script = scripted(headers_answer(blocks))
    reply = outcome(client.headers(THERE, [b"\xab" * 32, b"\xcd" * 32], 7))
    assert [header.wire() for header in reply.headers] == [block.header.wire() for block in blocks]
    assert (reply.first, reply.height) == (3, 9)
    request = the_request(script)
    assert request.body == canonical({"limit": 7, "locator": ["ab" * 32, "cd" * 32]})
    assert (request.path, request.max_bytes, request.kind) == ("/p2p/headers", 4 * 1024 * 1024, CallKind.HEADERS)
    assert (request.seconds, request.min_bytes) == (10.0, 16_384)


def test_headers_within_a_time() -> None:
    """However slowly the answer makes progress."""
    client, script = scripted(headers_answer([]))
    outcome(client.headers(THERE, [bytes(32)], within=4.0))
    assert (the_request(script).seconds, the_request(script).min_bytes) == (4.0, 0)


@pytest.mark.parametrize(
    "answer",
    [
        headers_answer([], first=3),
        headers_answer([], height="-1"),
        {"ok": True, "headers": {}, "from": "1", "height": "1"},
        {"ok": True, "headers": [{}], "from": "1", "height": "1"},
        {"ok": True, "headers": [7], "from": "1", "height": "1"},
        {"ok": True, "from": "1", "height": "1"},
        headers_answer(two_blocks()[:1] * 3),
        [],
        b"nonsense",
        b"[" * 100_000,
        b'{"ok":true,"headers":[' + b",".join([b"[]"] * 10_000) + b'],"from":"1","height":"1"}',
    ],
)
def test_headers_of_any_other_form(answer: object) -> None:
    client, _ = scripted(answer)
    assert trouble(client.headers(THERE, [bytes(32)], 2)) is FailureKind.MALFORMED


def bodies_answer(*wires: bytes) -> bytes:
    return b'{"ok":true,"blocks":[' + b",".join(wires) + b'],"height":"9"}'


def test_bodies() -> None:
    """Some of those that are asked for, in their order, with the headers that were asked for."""
    blocks = two_blocks()
    headers = [block.header for block in blocks]
    for found in ([], blocks[:1], blocks[1:], blocks):
        client, script = scripted(bodies_answer(*(block.wire() for block in found)))
        counted: list[int] = []
        reply = outcome(client.blocks_by_hash(THERE, headers, counted.append))
        assert [block.wire() for block in reply.blocks] == [block.wire() for block in found]
        assert all(block.header in headers for block in reply.blocks)
        assert reply.size == sum(len(block.wire()) for block in found)
        request = the_request(script)
        assert request.body == canonical({"hashes": [header.hash.hex() for header in headers]})
        assert (request.path, request.seconds, request.min_bytes) == ("/p2p/blocks", 10.0, 16_384)
        assert request.on_bytes == counted.append
        assert request.max_bytes == 4_096 + 2 * 1_280 + 601, "room for one transfer"


def test_bodies_that_are_not_those_of_their_headers() -> None:
    paying, empty = two_blocks()
    client, _ = scripted(bodies_answer(paying.header.wire(b"")))
    assert trouble(client.blocks_by_hash(THERE, [paying.header, empty.header])) is FailureKind.INVALID


FORMS = (
    "no list",
    "no signature",
    "no block",
    "another version",
    "a blank",
    "keys in another order",
    "no comma",
    "a comma at the end",
)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_any_other_form(form: str) -> None:
    """A mistake of another program is no attack: it costs the answer, and no ban."""
    paying, empty = two_blocks()
    forms = {
        "no signature": paying.wire().replace(b'"signature":"', b'"signed":"'),
        "no comma": paying.wire() + empty.wire(),
        "a comma at the end": paying.wire() + b",",
        "no block": b"{}",
        "another version": paying.wire().replace(b'"version":4', b'"version":5'),
        "a blank": paying.wire().replace(b'"version":4', b'"version": 4'),
        "keys in another order": json.dumps(
            dict(reversed(json.loads(paying.wire()).items())), separators=(",", ":")
        ).encode(),
    }
    client, _ = scripted(b'{"ok":true,"height":"9"}' if form == "no list" else bodies_answer(forms[form]))
    assert trouble(client.blocks_by_hash(THERE, [paying.header, empty.header])) is FailureKind.MALFORMED


def test_bodies_that_were_not_asked_for() -> None:
    paying, empty = two_blocks()
    for headers, found in (
        ([paying.header], [empty]),
        ([paying.header, empty.header], [empty, paying]),
        ([paying.header, empty.header], [paying, paying]),
        ([paying.header], [paying, paying]),
    ):
        client, _ = scripted(bodies_answer(*(block.wire() for block in found)))
        assert trouble(client.blocks_by_hash(THERE, headers)) is FailureKind.MALFORMED


def test_a_body_under_a_header_with_another_signature_gets_the_one_that_was_checked() -> None:
    paying, _ = two_blocks()
    forged = Block(evolve(paying.header, signature=bytes(64)), paying.transfers)
    client, _ = scripted(bodies_answer(forged.wire()))
    (block,) = outcome(client.blocks_by_hash(THERE, [paying.header])).blocks
    assert block.wire() == paying.wire()


@given(st.integers(0, 9_999), st.integers(0, 127))
def test_a_changed_byte_changes_no_block_that_is_read(at: int, byte: int) -> None:
    blocks = two_blocks()
    answer = bytearray(bodies_answer(*(block.wire() for block in blocks)))
    answer[at % len(answer)] = byte
    client, _ = scripted(bytes(answer))
    with suppress(PeerCallFailed):
        reply = outcome(client.blocks_by_hash(THERE, [block.header for block in blocks]))
        assert {block.wire() for block in reply.blocks} <= {block.wire() for block in blocks}


@pytest.mark.parametrize("part", [b"[]", b"{}", b"1"])
def test_a_body_of_a_million_values_is_malformed(part: bytes) -> None:
    paying, _ = two_blocks()
    client, _ = scripted(bodies_answer(paying.header.wire(b",".join([part] * 1_000_000))))
    assert trouble(client.blocks_by_hash(THERE, [paying.header])) is FailureKind.MALFORMED


@pytest.mark.parametrize("reply", [b"", b"[]", b'{"ok":true,"blocks":{}}', b'{"ok":true,"blocks":['])
def test_a_reply_without_an_array_of_blocks_is_malformed(reply: bytes) -> None:
    client, _ = scripted(reply)
    assert trouble(client.blocks_by_hash(THERE, [two_blocks()[0].header])) is FailureKind.MALFORMED


def test_peers() -> None:
    client, script = scripted({"ok": True, "peers": [{"endpoint": "http://a.example", "nodeId": "x"}] * 120})
    assert outcome(client.peers(THERE)) == ["http://a.example"] * 100
    assert the_request(script) == PeerRequest(path="/p2p/peers?limit=100", max_bytes=65_536, seconds=5.0)


def test_transactions() -> None:
    client, script = scripted({"ok": True, "transactions": [{"n": number} for number in range(300)], "next": "12"})
    found, cursor = outcome(client.transactions(THERE, 4))
    assert (found, cursor) == ([{"n": number} for number in range(256)], 12)
    expected = PeerRequest(path="/p2p/transactions?after=4&limit=256", max_bytes=256 * 1024, seconds=5.0)
    assert the_request(script) == expected


def test_a_long_list_is_taken_apart_elsewhere() -> None:
    """A quarter of a MiB of JSON that somebody has thought of takes a tenth of a second."""
    threads = Stepped()
    client = PeerClient(TEST_PARAMS, Script(PeerReply(200, b'{"ok":true,"transactions":[],"next":"7"}')), threads)
    for work in (client.transactions(THERE, 4), client.headers(THERE, []), client.blocks_by_hash(THERE, [])):
        Deferred.fromCoroutine(work).addErrback(lambda _: None)
    assert len(threads) == 3


def test_as_many_transfers_as_are_asked_for_fit_into_an_answer() -> None:
    maker = ChainBuilder()
    reference = "r" * 64
    longest = maker.transfer("alice", "bob", 10**15, timestamp=2**53 - 1, reference=reference, nonce=10**15, fee=10**15)
    answer = {"ok": True, "transactions": [longest.wire.decode()] * MAX_TRANSACTIONS, "next": str(2**53 - 1)}
    assert len(json.dumps(answer)) < TRANSACTIONS_BYTES


def test_a_transfer_is_offered_byte_for_byte() -> None:
    wire = ChainBuilder().transfer("alice", "bob", 5).wire
    client, script = scripted(RECEIPT)
    assert outcome(client.send_transaction(THERE, wire)) == "accepted"
    request = the_request(script)
    assert request.body == b'{"transaction":' + wire + b"}"
    assert (request.path, request.max_bytes, request.seconds) == ("/p2p/transaction", 4_096, 10.0)


def test_a_block_is_offered_byte_for_byte() -> None:
    wire = ChainBuilder().block().wire()
    client, script = scripted({"ok": True, "hash": "ab" * 32, "state": "connected"})
    assert outcome(client.send_block(THERE, wire)) == "connected"
    request = the_request(script)
    assert request.body == b'{"block":' + wire + b"}"
    assert (request.path, request.max_bytes, request.seconds) == ("/p2p/block", 4_096, 10.0)


@pytest.mark.parametrize("ours", ["", "http://192.0.2.1:8645"])
def test_a_header_is_announced_byte_for_byte(ours: str) -> None:
    header = ChainBuilder().block().header
    client, script = scripted({"ok": True, "hash": "ab" * 32, "state": "wanted"})
    assert outcome(client.announce(THERE, header.wire(), ours)) == "wanted"
    request = the_request(script)
    assert request.body == canonical({"endpoint": ours, "header": json.loads(header.wire())})
    assert (request.path, request.max_bytes, request.seconds) == ("/p2p/header", 4_096, 10.0)
    assert request.kind is CallKind.URGENT


@pytest.mark.parametrize("why", ["nonce 3 is already used", "connected"])
def test_a_refused_offer_has_its_reason_as_state(why: str) -> None:
    """Whatever the reason says, it is no state of an accepted offer."""
    client, _ = scripted({"ok": False, "error": why}, 400)
    state = outcome(client.send_block(THERE, b"{}"))
    assert state.startswith("it answered 400: ")
    assert why in state


@pytest.mark.parametrize("status", [403, 404, 413, 429, 500, 503])
def test_an_offer_that_is_not_looked_at_is_no_receipt(status: int) -> None:
    client, _ = scripted({"ok": False, "error": "no"}, status)
    assert trouble(client.send_block(THERE, b"{}")) is FailureKind.REFUSED


# What is refused

EVERY_CALL = {
    "hello": lambda client: client.hello(THERE, OURS.hello(TEST_PARAMS, TIP, NOW)),
    "status": lambda client: client.status(THERE),
    "headers": lambda client: client.headers(THERE, [bytes(32)]),
    "blocks": lambda client: client.blocks_by_hash(THERE, [two_blocks()[0].header]),
    "peers": lambda client: client.peers(THERE),
    "transactions": lambda client: client.transactions(THERE, 0),
    "transaction": lambda client: client.send_transaction(THERE, b"{}"),
    "block": lambda client: client.send_block(THERE, b"{}"),
    "header": lambda client: client.announce(THERE, b"{}", ""),
}
each_call = pytest.mark.parametrize("call", EVERY_CALL.values(), ids=EVERY_CALL)

NO_REPLIES = {
    "nothing": b"",
    "no JSON": b"<html>",
    "half": b'{"ok":true,"status":{',
    "no UTF-8": b'{"ok":true,"a":"\xff"}',
    "an array": b"[]",
    "a number": b"5",
    "nine levels deep": b'{"a":' + b"[" * 9 + b"]" * 9 + b"}",
    "very deep": b'{"a":' + b"[" * 100_000,
    "a float": b'{"ok":true,"height":1.5}',
    "a key twice": b'{"ok":true,"ok":true}',
}


@each_call
@pytest.mark.parametrize("reply", NO_REPLIES.values(), ids=NO_REPLIES)
def test_responses_that_are_no_answers(call: Any, reply: bytes) -> None:
    client, _ = scripted(reply)
    assert trouble(call(client)) is FailureKind.MALFORMED


@each_call
@pytest.mark.parametrize("status", [201, 204, 301, 403, 404, 500, 503])
def test_an_answer_that_is_no_success(call: Any, status: int) -> None:
    client, _ = scripted({"ok": True, "error": "x" * 1_000}, status)
    with pytest.raises(PeerCallFailed) as failed:
        outcome(call(client))
    assert (failed.value.kind, failed.value.status) == (FailureKind.REFUSED, status)
    assert len(failed.value.detail) < 450


@each_call
@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.TIMEOUT, FailureKind.TOO_LARGE])
def test_a_call_that_fails(call: Any, kind: FailureKind) -> None:
    client, _ = scripted(PeerCallFailed(kind, "no"))
    assert trouble(call(client)) is kind


@pytest.mark.parametrize(
    "status",
    [
        None,
        5,
        [],
        "7",
        {},
        {**STATUS, "height": 7},
        {**STATUS, "height": "-7"},
        {**STATUS, "height": str(2**53)},
        {**STATUS, "hash": "AB" * 32},
        {**STATUS, "hash": "ab"},
        {**STATUS, "cumulativeWork": 99},
        {**STATUS, "cumulativeWork": ""},
        {**STATUS, "snapshots": {}},
        {**STATUS, "snapshots": [7]},
        {**STATUS, "snapshots": [{**CLAIM, "height": 5}]},
        {**STATUS, "snapshots": [{**CLAIM, "digest": "ef"}]},
        {**STATUS, "snapshots": [{"height": "5", "hash": "cd" * 32}]},
        {name: value for name, value in STATUS.items() if name != "snapshots"},
        {**STATUS, "pruneHeight": 1},
        {**STATUS, "pruneHeight": "-1"},
        {**STATUS, "pruneHeight": "9007199254740992"},
        {**STATUS, "cumulativeWork": "-1"},
        {**STATUS, "cumulativeWork": "0x63"},
        {**STATUS, "cumulativeWork": "٣"},
        {**STATUS, "cumulativeWork": "²"},
        {**STATUS, "cumulativeWork": "9" * 79},
        {name: value for name, value in STATUS.items() if name != "cumulativeWork"},
    ],
)
def test_a_status_of_another_form(status: object) -> None:
    client, _ = scripted({"ok": True, "status": status})
    assert trouble(client.status(THERE)) is FailureKind.MALFORMED


@pytest.mark.parametrize("hello", [None, 5, {}, {**KEY.hello(TEST_PARAMS, TIP, NOW).message(), "height": "x"}])
def test_a_hello_of_another_form(hello: object) -> None:
    client, _ = scripted({"ok": True, "hello": hello})
    assert trouble(client.hello(THERE, OURS.hello(TEST_PARAMS, TIP, NOW))) is FailureKind.MALFORMED


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"peers": None},
        {"peers": 5},
        {"peers": "http://a.example"},
        {"peers": {"endpoint": "http://a.example"}},
        {"peers": [5]},
        {"peers": ["http://a.example"]},
        {"peers": [{}]},
        {"peers": [{"endpoint": None}]},
        {"peers": [{"endpoint": ["http://a.example"]}]},
    ],
)
def test_peers_of_another_form(answer: dict[str, object]) -> None:
    client, _ = scripted({"ok": True, **answer})
    assert trouble(client.peers(THERE)) is FailureKind.MALFORMED


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"transactions": []},
        {"transactions": None, "next": "1"},
        {"transactions": {}, "next": "1"},
        {"transactions": "abc", "next": "1"},
        {"transactions": [], "next": 1},
        {"transactions": [], "next": "-1"},
    ],
)
def test_transactions_of_another_form(answer: dict[str, object]) -> None:
    client, _ = scripted({"ok": True, **answer})
    assert trouble(client.transactions(THERE, 0)) is FailureKind.MALFORMED


@pytest.mark.parametrize("answer", [{"ok": True}, {"ok": True, "state": None}, {"ok": True, "state": 5}])
def test_a_receipt_of_another_form(answer: dict[str, object]) -> None:
    client, _ = scripted(answer)
    assert trouble(client.send_block(THERE, b"{}")) is FailureKind.MALFORMED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_response_gives_an_answer_or_one_clear_error(value: object) -> None:
    for call in EVERY_CALL.values():
        client, _ = scripted(dict.fromkeys("hello status peers transactions next state".split(), value))
        with suppress(PeerCallFailed):
            outcome(call(client))


# The page

PAGE = (Path(__file__).parents[2] / "docs" / "peers.md").read_text(encoding="utf-8")
READ = {
    route: (re.findall(r"`(\w+)`", members), int(size) * {"KiB": 1024, "MiB": 1024**2}[unit], time)
    for route, members, size, unit, time in re.findall(
        r"^\| `((?:GET|POST) /p2p/\w+)` \| (.+) \| (\d+) ([KM]iB) \| (.+) \|$", PAGE, re.MULTILINE
    )
}
"""By route, the members of its answer that a node reads, as docs/peers.md names them, the most bytes and the time."""
FULL_ANSWERS = {
    "POST /p2p/hello": {"hello": KEY.hello(TEST_PARAMS, TIP, NOW).message()},
    "GET /p2p/status": {"status": {**STATUS, "peers": 3}},
    "GET /p2p/peers": {"peers": [{"nodeId": KEY.node_id, "endpoint": THERE, "height": "7", "lastSeen": "1"}]},
    "POST /p2p/headers": headers_answer(two_blocks()),
    "POST /p2p/blocks": {"blocks": [json.loads(block.wire()) for block in two_blocks()], "height": "9"},
    "POST /p2p/header": RECEIPT,
    "POST /p2p/block": RECEIPT,
    "POST /p2p/branch": RECEIPT,
    "POST /p2p/transaction": RECEIPT,
    "GET /p2p/transactions": {"transactions": [], "next": "0"},
}
FULL = [evolve(two_blocks()[0].header, transaction_count=2_000)] * 4
CALLS = {
    "POST /p2p/hello": EVERY_CALL["hello"],
    "GET /p2p/status": EVERY_CALL["status"],
    "GET /p2p/peers": EVERY_CALL["peers"],
    "POST /p2p/headers": lambda client: client.headers(THERE, [bytes(32)]),
    "POST /p2p/blocks": lambda client: client.blocks_by_hash(THERE, [*(each.header for each in two_blocks()), *FULL]),
    "POST /p2p/header": EVERY_CALL["header"],
    "POST /p2p/block": EVERY_CALL["block"],
    "POST /p2p/branch": lambda client: client.send_branch(THERE, [b"{}"]),
    "POST /p2p/transaction": EVERY_CALL["transaction"],
    "GET /p2p/transactions": EVERY_CALL["transactions"],
}


def only(names: Sequence[str], value: Any) -> Any:
    """A copy of an answer with the members of these names; hellos, headers and blocks remain whole."""
    if isinstance(value, list):
        return [only(names, item) for item in value]
    if not isinstance(value, dict) or "signature" in value:
        return value
    return {key: only(names, item) for key, item in value.items() if key in names}


@pytest.mark.parametrize("route", CALLS)
def test_the_page_names_the_members_that_are_read(route: str) -> None:
    """Each of them is needed, all others may be missing, and the answer may be as long as the page says."""
    names, size, time = READ[route]
    for missing in ("", *names):
        left = only([name for name in names if name != missing], FULL_ANSWERS[route])
        client, script = scripted(json.dumps(left, separators=(",", ":")).encode())
        if missing:
            assert trouble(CALLS[route](client)) is FailureKind.MALFORMED
        else:
            outcome(CALLS[route](client))
        request = the_request(script)
        assert request.max_bytes == size
        assert time.endswith("progress") if request.min_bytes else time == f"{request.seconds:g} s"


def test_the_page_names_every_route_that_is_called() -> None:
    assert READ.keys() == CALLS.keys()
