"""What posts cost, row by row of docs/peers.md "Prices", on the real HTTP stack in memory."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve, frozen

from svcd.chain.errors import Refusal
from svcd.p2p.bans import posts_name
from svcd.web.proxies import MAX_PROXIES
from tests.chains import ChainBuilder
from tests.node.bench import LATE, Stepped
from tests.p2p.bench import RATES
from tests.p2p.conftest import MakeNode
from tests.web.wire import Response, Wire

SOMEBODY, LOOPBACK, PROXY = "198.51.100.7", "127.0.0.1", "203.0.113.80"
RATE, BURST = 200.0, 2_000.0
PAGE = Path(__file__).parents[2] / "docs" / "peers.md"
SECONDS = {"–": 0.0, "10 minutes": 600.0, "24 hours": 86_400.0}


@frozen
class Row:
    """One line of the table."""

    what: str
    status: int
    tokens: str
    ban: str


def rows() -> list[Row]:
    section = PAGE.read_text().partition("\n## Prices\n")[2].partition("\nPeers that this node called")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]
    return [Row(what, int(status), tokens, ban) for what, status, tokens, ban in cells[2:]]


class Poster:
    """Posts to a node with the limits that nodes have by default."""

    def __init__(self, make_node: MakeNode) -> None:
        self.node = make_node(rates={**RATES, "p2p": RATE})
        self.remote = self.node.remote()
        self.builder = ChainBuilder()

    def post(self, path: str, body: bytes, client: str = SOMEBODY, forwarded: str = "") -> Response:
        header = f"X-Forwarded-For: {forwarded}\r\n" if forwarded else ""
        head = f"POST {path} HTTP/1.1\r\nHost: h\r\n{header}Content-Length: {len(body)}\r\n\r\n"
        wire = Wire(self.node.site, client)
        wire.send(head.encode() + body)
        # A transfer is answered at the end of the turn.
        self.node.clock.advance(0)
        response = wire.response()
        wire.close()
        return response

    def missing(self, client: str = SOMEBODY) -> float:
        """How many tokens a client's bucket is short of a full one."""
        return round(self.node.limiter.buckets["p2p"].wait(client, BURST, self.node.clock.seconds()) * RATE, 3)

    def banned(self, client: str = SOMEBODY) -> float:
        """For how many seconds the posts of a client are ignored."""
        now = self.node.local.now()
        bans = [ban for ban in self.node.peers.bans.listed(now) if ban.name == posts_name(client)]
        return sum((ban.until or 0.0) - now for ban in bans)

    def refill(self) -> None:
        """Let the buckets be full again."""
        self.node.run(30)

    # Bodies

    def hello(self, **changes: Any) -> bytes:
        return json.dumps({"hello": evolve(self.remote.hello(), **changes).message()}).encode()

    def value(self, **changes: Any) -> Any:
        """The JSON of a transfer that the mempool takes."""
        fields = {"sender": "alice", "recipient": "bob", "amount": 5, "timestamp": self.builder.params.slot_time(LATE)}
        return json.loads(self.builder.transfer(**(fields | changes)).wire)

    def transfer(self, **changes: Any) -> bytes:
        return json.dumps({"transaction": self.value() | changes}).encode()

    def wire(self, **how: Any) -> bytes:
        return self.builder.block(None, **how).wire()

    def genesis(self) -> bytes:
        wire = Wire(self.node.site, "192.0.2.77").send(b"GET /p2p/blocks?limit=1 HTTP/1.1\r\nHost: h\r\n\r\n")
        (block,) = wire.response().json["blocks"]
        wire.close()
        return json.dumps(block).encode()


BLOCK, TRANSFER, HELLO = "/p2p/block", "/p2p/transaction", "/p2p/hello"
Sent = Iterator[tuple[str, bytes]]


def block(wire: bytes) -> tuple[str, bytes]:
    return BLOCK, b'{"block":' + wire + b"}"


def good(poster: Poster) -> Sent:
    yield block(poster.wire())
    yield (
        TRANSFER,
        b'{"transaction":' + json.dumps(poster.value(), separators=(",", ":"), sort_keys=True).encode() + b"}",
    )
    yield HELLO, poster.hello()


def spelled(poster: Poster) -> Sent:
    for how in ({"indent": 2}, {"sort_keys": True}, {"separators": (", ", " : ")}):
        value = json.loads(poster.wire(producer=f"{how}"))
        yield BLOCK, json.dumps({"block": dict(reversed(value.items()))}, **how).encode() + b"\r\n"  # type: ignore[arg-type]
    wire = poster.wire(producer="plain")
    yield block(wire + b"\n")
    yield block(poster.wire(producer="escaped").replace(b'"slot"', rb'"sl\u006ft"'))
    yield TRANSFER, json.dumps({"transaction": dict(reversed(poster.value().items()))}, indent=1).encode() + b"\n"
    yield HELLO, b" " + poster.hello() + b"\n"


def known(poster: Poster) -> Sent:
    wire = poster.wire()
    poster.post(*block(wire), client="192.0.2.77")
    yield block(wire)
    yield block(poster.genesis())


def unplaced(poster: Poster) -> Sent:
    first = poster.builder.block(None, producer="nobody here has it")
    yield block(poster.builder.block(first).wire())
    yield block(poster.wire(slot=LATE + poster.builder.params.drift_slots + 3))


def refused_by_the_mempool(poster: Poster) -> Sent:
    for changes in ({"timestamp": 0}, {"nonce": 17}, {"amount": 2000 * 10**8}, {"sender": "nobody"}):
        yield TRANSFER, json.dumps({"transaction": poster.value(**changes)}).encode()


PAID = 1_000_000
"""Base units; no network lets a transfer create an account with less."""


def in_the_chain(poster: Poster) -> Sent:
    transfer = poster.builder.transfer("alice", "bob", PAID, nonce=0)
    poster.node.take(poster.builder.block(transfers=[transfer]))
    # The same again costs the same again.
    for _ in range(2):
        yield TRANSFER, b'{"transaction":' + transfer.wire + b"}"


def with_a_used_nonce(poster: Poster) -> Sent:
    poster.node.take(poster.builder.block(transfers=[poster.builder.transfer("alice", "bob", PAID, nonce=0)]))
    yield TRANSFER, json.dumps({"transaction": poster.value(amount=2 * PAID, nonce=0)}).encode()


def hellos_that_do_not_hold(poster: Poster) -> Sent:
    for changes in ({"network_id": 1}, {"protocol_version": "2.0"}, {"timestamp": 0}, {"height": 9}):
        yield HELLO, poster.hello(**changes)
    overheard = poster.hello()
    poster.post(HELLO, overheard, client="192.0.2.77")
    yield HELLO, overheard


def no_strict_json(poster: Poster) -> Sent:
    for path in (BLOCK, TRANSFER, HELLO):
        for body in (b"", b"[]", b"not JSON", b'{"a":1.5}', b'{"a":1,"a":1}', b"\xff", b'{"a":' * 1_000):
            yield path, body
    wire = poster.wire()
    yield block(wire.replace(b'"version":4', b'"version":4,"version":4'))
    yield block(wire.replace(b'"version":4', b'"version":4.0'))


def malformed_fields(poster: Poster) -> Sent:
    for path, name in ((BLOCK, "block"), (TRANSFER, "transaction"), (HELLO, "hello")):
        for value in ({}, None, [], {"colour": "red"}):
            yield path, json.dumps({name: value}).encode()
        yield path, b"{}"
        yield path, b'{"other":{}}'
    yield TRANSFER, poster.transfer(fee="010000")
    empty = poster.value()
    empty["payload"]["paymentReference"] = ""
    yield TRANSFER, json.dumps({"transaction": empty}).encode()
    whole = json.loads(poster.wire(transfers=[poster.builder.transfer("alice", "bob", 5, nonce=0)]))
    for transfer in (whole["transactions"][0] | {"fee": "010000"}, empty):
        yield block(json.dumps(whole | {"transactions": [transfer]}).encode())
    yield block(json.dumps(whole | {"height": 1}).encode())
    hello = json.loads(poster.hello())["hello"]
    yield HELLO, json.dumps({"hello": hello | {"colour": "red"}}).encode()
    yield HELLO, json.dumps({"hello": hello | {"endpoint": "http://node.example/path"}}).encode()


def another_network(poster: Poster) -> Sent:
    yield TRANSFER, poster.transfer(networkId=1)
    yield block(poster.wire().replace(b'"networkId":3', b'"networkId":1'))


def badly_signed(poster: Poster) -> Sent:
    yield TRANSFER, poster.transfer(signature="00" * 64)
    yield TRANSFER, poster.transfer(timestamp=str(poster.builder.params.slot_time(LATE) + 1))
    # What the mempool would refuse anyway: neither it nor the disk is asked.
    used = poster.builder.transfer("alice", "bob", PAID, nonce=0)
    poster.node.take(poster.builder.block(transfers=[used]))
    for value in (json.loads(used.wire), poster.value(nonce=0), poster.value(nonce=17), poster.value(sender="nobody")):
        yield TRANSFER, json.dumps({"transaction": value | {"signature": "00" * 64}}).encode()


def breaking_a_rule(poster: Poster) -> Sent:
    for rule in (Refusal.BLOCK_SIGNATURE, Refusal.TRANSACTIONS_ROOT, Refusal.WORK, Refusal.HEIGHT):
        wire = poster.wire(break_=rule)
        yield block(wire)
        yield block(wire)
    yield block(poster.builder.block(poster.builder.block(None, break_=Refusal.WORK)).wire())


def breaking_a_rule_of_the_state(poster: Poster) -> Sent:
    bad = poster.builder.block(None, break_=Refusal.STATE_ROOT)
    yield block(bad.wire())
    yield block(bad.wire())
    yield block(poster.builder.block(bad, producer="after").wire())
    yield block(poster.wire(break_=Refusal.NONCE))


EACH: dict[str, Callable[[Poster], Sent]] = {
    "a good block, transfer or hello": good,
    "the same in another encoding: blanks, line ends, keys in another order, escapes": spelled,
    "a block that is known, the genesis as `/p2p/blocks` shows it among them": known,
    "a block whose parent is not known, or that is early": unplaced,
    "a transfer that the mempool here refuses: time, nonce too far ahead, fee, balance": refused_by_the_mempool,
    "a transfer that is in the chain": in_the_chain,
    "another transfer whose nonce is used": with_a_used_nonce,
    "a well-formed hello that does not hold: network, version, clock, replay, signature": hellos_that_do_not_hold,
    "no strict JSON: an empty body, a key twice, a fraction": no_strict_json,
    'a field that is missing, unknown or of another form: `"010000"`, an empty reference': malformed_fields,
    "a block or transfer of another network": another_network,
    "a transfer that is badly signed": badly_signed,
    "a block that breaks a rule: its signature, transactions, work or place": breaking_a_rule,
    "a block that breaks a rule which only its execution reveals, or builds on one": breaking_a_rule_of_the_state,
}
"""Of the rows those that tell of one post by itself."""


@pytest.fixture
def poster(make_node: MakeNode) -> Poster:
    return Poster(make_node)


def row(what: str) -> Row:
    (found,) = [row for row in rows() if row.what == what]
    return found


@pytest.mark.parametrize("what", EACH)
def test_a_post_costs_what_the_table_says(poster: Poster, what: str) -> None:
    told = row(what)
    for path, body in EACH[what](poster):
        poster.refill()
        assert poster.missing() == 0
        answer = poster.post(path, body)
        assert (answer.status, body) == (told.status, body), answer.body
        assert poster.missing() == float(told.tokens), body
        assert poster.banned() == SECONDS[told.ban], body
        poster.node.peers.bans.unban(posts_name(SOMEBODY), poster.node.local.now())


def test_the_table_has_no_other_rows() -> None:
    assert [row.what for row in rows() if row.what not in EACH] == [FLOOD, SHARED, REFUSED, TOO_MANY]


FLOOD = "any of the last four that keep the bucket empty for a minute"
SHARED = "the same through a proxy that is not trusted, or from loopback"
REFUSED = "a good block or transfer while posts are refused"
TOO_MANY = "more than the bucket holds"


@pytest.mark.parametrize("path", [BLOCK, TRANSFER, HELLO])
def test_malformed_posts_that_go_on(poster: Poster, path: str) -> None:
    told = row(FLOOD)
    began = poster.node.clock.seconds()
    while not poster.banned() and poster.node.clock.seconds() - began < 120:
        while poster.post(path, b"{}").status == told.status and not poster.banned():
            pass
        poster.node.clock.advance(0.1)
    assert 60 <= poster.node.clock.seconds() - began < 65
    assert poster.banned() == pytest.approx(SECONDS[told.ban], abs=0.2)
    (ban,) = poster.node.peers.bans.listed(poster.node.local.now())
    assert ban.why == "it posted: malformed posts for a whole minute"


def test_a_peer_that_obeys_retry_after_is_never_banned(poster: Poster) -> None:
    for _ in range(120):
        while (answer := poster.post(BLOCK, b"{}")).status == 400:
            pass
        poster.node.clock.advance(int(answer.headers["retry-after"]))
    assert poster.banned() == 0


def test_an_empty_read_bucket_bans_nobody(poster: Poster) -> None:
    """Who catches up keeps the bucket empty for long, and one mistake is no flood."""
    for _ in range(100):
        poster.node.limiter.buckets["p2p"].owe(SOMEBODY, BURST, poster.node.clock.seconds())
        poster.node.clock.advance(1)
    poster.refill()
    poster.post(BLOCK, b"{}")
    assert poster.banned() == 0


@pytest.mark.parametrize("rule", [Refusal.WORK, Refusal.BLOCK_SIGNATURE])
def test_an_invalid_block_from_loopback(poster: Poster, rule: Refusal) -> None:
    told = row(SHARED)
    answer = poster.post(*block(poster.wire(break_=rule)), client=LOOPBACK)
    assert answer.status == told.status
    assert (told.tokens, poster.missing(LOOPBACK)) == ("all", 2 * BURST)
    assert SECONDS[told.ban] == poster.banned(LOOPBACK) == 0
    assert poster.post(*block(poster.wire()), client=LOOPBACK).status == 429
    poster.node.run(10.1)
    assert poster.post(*block(poster.wire()), client=LOOPBACK).status == 200


def test_an_invalid_block_through_a_proxy(poster: Poster) -> None:
    for client in ("192.0.2.1", "192.0.2.2"):
        poster.post(HELLO, poster.hello(), client=PROXY, forwarded=client)
    poster.refill()
    poster.post(*block(poster.wire(break_=Refusal.WORK)), client=PROXY, forwarded="192.0.2.1")
    assert (poster.banned(PROXY), poster.missing(PROXY)) == (0, 2 * BURST)
    poster.node.run(10.1)
    assert poster.post(*block(poster.wire()), client=PROXY, forwarded="192.0.2.2").status == 200
    assert "[http] trustedProxies" in poster.node.clients.proxies.alarm(poster.node.clock.seconds())


def test_an_invalid_block_through_a_proxy_that_others_want_to_be_forgotten(poster: Poster) -> None:
    """Whoever has many addresses could write the header from all of them, and have the proxy banned after that."""
    proxy, untrusted = "9.9.9.9", poster.node.clients.proxies
    for client in ("192.0.2.1", "192.0.2.2"):
        poster.post(HELLO, poster.hello(), client=proxy, forwarded=client)
    for number in range(2 * MAX_PROXIES):
        for client in ("192.0.2.1", "192.0.2.2"):
            untrusted.note(f"2a02:898:1:{number:x}::1", client, poster.node.clock.seconds())
    poster.refill()
    poster.post(*block(poster.wire(break_=Refusal.WORK)), client=proxy, forwarded="192.0.2.1")
    assert (poster.banned(proxy), poster.missing(proxy)) == (0, 2 * BURST)


def test_a_ban_from_before_it_was_seen_to_be_a_proxy_does_not_count(poster: Poster) -> None:
    poster.post(*block(poster.wire(break_=Refusal.WORK)), client=PROXY, forwarded="192.0.2.1")
    assert poster.banned(PROXY) == 86_400
    assert poster.post(*block(poster.wire()), client=PROXY, forwarded="192.0.2.1").status == 403
    assert poster.post(*block(poster.wire()), client=PROXY, forwarded="192.0.2.2").status == 200


def test_the_operator_s_ban_of_a_proxy_counts(poster: Poster) -> None:
    poster.node.peers.bans.ban_by_operator(f"address:{LOOPBACK}", seconds=None, now=poster.node.local.now())
    assert poster.post(*block(poster.wire()), client=LOOPBACK).status == 403


def test_a_flood_from_loopback_is_held_by_the_bucket_alone(poster: Poster) -> None:
    began = poster.node.clock.seconds()
    posts = 0
    while poster.node.clock.seconds() - began < 90:
        while poster.post(BLOCK, b"{}", client=LOOPBACK).status == 400:
            posts += 1
        poster.node.clock.advance(0.5)
    assert posts < (BURST + 90 * RATE) / 20
    assert poster.banned(LOOPBACK) == 0


def test_good_posts_while_posts_are_refused(poster: Poster) -> None:
    told = row(REFUSED)
    poster.post(*block(poster.wire(break_=Refusal.WORK)))
    for path, body in (block(poster.wire()), (TRANSFER, poster.transfer())):
        poster.refill()
        assert poster.post(path, body).status == told.status
        assert poster.missing() == float(told.tokens)
    assert poster.node.tip.height == 0


def test_more_than_the_bucket_holds(poster: Poster) -> None:
    told = row(TOO_MANY)
    poster.node.limiter.buckets["p2p"].owe(SOMEBODY, BURST, poster.node.clock.seconds())
    answer = poster.post(*block(poster.wire()))
    assert (answer.status, told.tokens) == (told.status, "0")
    assert answer.headers["retry-after"] == "1"
    assert poster.missing() == BURST
    assert poster.banned() == SECONDS[told.ban]


def test_hanging_up_before_the_refusal_is_no_cheaper(make_node: MakeNode) -> None:
    checker = Stepped()
    node = make_node(rates={**RATES, "p2p": RATE}, checker=checker)
    body = b'{"block":{}}'
    wire = Wire(node.site, SOMEBODY)
    wire.send(b"POST /p2p/block HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    wire.close()
    checker.finish()
    assert node.limiter.buckets["p2p"].wait(SOMEBODY, BURST, node.clock.seconds()) * RATE == pytest.approx(21)
