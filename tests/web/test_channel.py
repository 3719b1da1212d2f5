"""Connections: bodies are capped while they arrive, deadlines are absolute, what is malformed is told in JSON."""

from collections.abc import Callable

import pytest
from twisted.internet.address import IPv6Address
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.internet.tcp import Server
from twisted.logger import capturedLogs, formatEvent

from svcd.web.connections import BodyCaps, UnreadBudget
from svcd.web.rate_limits import Clients
from svcd.web.site import Site
from svcd.web.unsent import PIECE_BYTES
from tests.web.echoing import Echo, Filled, Slow
from tests.web.wire import SEND_BUFFER, Recording, Wire

MakeSite = Callable[..., Site]

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"


def post(size: int, path: bytes = b"/a", extra: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: h\r\n%bContent-Length: %d\r\n\r\n" % (path, extra, size)


def chunked(*chunks: bytes, path: bytes = b"/a") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%b" % (path, body)


class PlainWire(Wire, Server):
    """A plain socket, of which the system takes as many bytes at once as it has room for."""

    room: int | None = 1 << 20
    """None if the connection is lost."""

    def writeSomeData(self, data: bytes) -> int | ConnectionLost:  # noqa: N802
        if self.room is None:
            return ConnectionLost()
        taken = data[: self.room]
        self.received += taken
        self.room -= len(taken)
        return len(taken)


# Sending


@pytest.mark.parametrize("room", [1 << 20, 1_000, 140, 20, 0])
def test_what_the_system_does_not_take_at_once_is_sent_first(make_site: MakeSite, clock: Clock, room: int) -> None:
    wire = PlainWire(make_site(Echo()), reads=False)
    wire.room = room

    for _ in range(3):
        wire.send(GET)
        # Whatever comes later is behind what the transport keeps.
        wire.room += 200
    wire.read()

    assert [response.body for response in wire.responses()] == [b"GET /a "] * 3


def test_a_small_response_needs_no_further_turn_of_the_reactor(make_site_of: MakeSite, clock: Clock) -> None:
    wire = PlainWire(make_site_of(True, Echo()), reads=False)
    wire.send(GET)
    assert wire.unsent == 0
    assert wire.response().body == b"GET /a "


def test_nothing_is_sent_at_once_on_a_connection_that_is_lost(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = PlainWire(make_site(slow), reads=False)
    wire.send(GET)
    wire.room = None
    slow.answer()
    assert wire.unsent > 0
    wire.close()
    assert wire.received == b""


# Requests


def test_pipelined_request_waits_for_the_answer_before_it(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = Wire(make_site(slow))

    wire.send(GET + GET)

    assert len(slow.waiting) == 1
    slow.answer()
    clock.advance(0)
    assert len(slow.waiting) == 1
    slow.answer()
    assert [response.body for response in wire.responses()] == [b"ok", b"ok"]


def test_between_pipelined_requests_others_have_their_turn(make_site: MakeSite, clock: Clock) -> None:
    echo = Echo()
    site = make_site(echo)
    greedy, other = Wire(site), Wire(site, "203.0.113.10")

    greedy.send(GET * 2_000)
    other.send(post(3, b"/other") + b"one")
    assert [path for _, path, _ in echo.seen] == [b"/a", b"/other"]
    clock.advance(0)
    greedy.send(b"")
    clock.advance(0)

    assert len(greedy.responses()) == 2_000


def test_pipelining_client_that_goes_away_gets_no_further_turn(make_site: MakeSite, clock: Clock) -> None:
    echo = Echo()
    wire = Wire(make_site(echo)).send(GET * 3)

    wire.close()
    clock.advance(0)

    assert clock.getDelayedCalls() == []
    assert len(echo.seen) == 1


def test_pipelining_clients_give_way_when_all_places_are_taken(make_site: MakeSite, clock: Clock) -> None:
    """Otherwise those who always have a next request ready could hold every place for ever."""
    site = make_site(Echo(), connections=2, connections_per_client=0)
    wires = [Wire(site).send(GET * 100) for _ in range(2)]

    newcomer = Wire(site).send(GET)

    assert newcomer.response().status == 200
    assert [wire.open for wire in wires] == [False, True]
    clock.advance(0)
    clock.pump([0] * 100)
    assert [len(wire.responses()) for wire in wires] == [1, 100]


def test_few_pipelined_requests_are_answered_in_a_turn_of_the_reactor(make_site: MakeSite, clock: Clock) -> None:
    echo = Echo()
    site = make_site(echo, connections_per_client=0)
    wires = [Wire(site).send(GET.replace(b"/a", b"/%d" % number) * 3) for number in range(20)]
    del echo.seen[:]

    counts = []
    while due := [call for call in clock.getDelayedCalls() if call.getTime() == clock.seconds()]:
        for call in due:
            now_due = call.func
            call.cancel()
            now_due()
        counts.append(len(echo.seen))

    assert counts == [8, 16, 24, 32, 40]
    assert sorted(path for _, path, _ in echo.seen[:20]) == sorted(path for _, path, _ in echo.seen[20:])
    assert all(len(wire.responses()) == 3 for wire in wires)


@pytest.mark.parametrize(
    "request_bytes", [b"GET /a HTTP/1.0\r\n\r\n", GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
)
def test_connection_closes_after_the_answer_if_the_client_wants_it(make_site: MakeSite, request_bytes: bytes) -> None:
    wire = Wire(make_site(Echo())).send(request_bytes)

    assert wire.response().body == b"GET /a "
    assert not wire.open


# Bodies


@pytest.mark.parametrize("request_bytes", [post(16384) + b"x" * 16384, chunked(*[b"x" * 4096] * 4, b"")])
def test_body_at_the_cap_passes(make_site: MakeSite, request_bytes: bytes) -> None:
    echo = Echo()
    wire = Wire(make_site(echo)).send(request_bytes)

    assert wire.response().status == 200
    assert len(echo.seen[0][2]) == 16384


def test_declared_body_over_the_cap_is_refused_before_any_of_it(make_site: MakeSite) -> None:
    echo = Echo()
    wire = Wire(make_site(echo)).send(post(10 * 1024**3))

    refusal = wire.response()
    assert refusal.status == 413
    assert refusal.error == "the body is too large; at most 16384 bytes are accepted here"
    assert refusal.headers["connection"] == "close"
    assert wire.saw_end
    assert echo.seen == []


def test_chunked_body_over_the_cap_is_refused_while_it_arrives(make_site: MakeSite) -> None:
    echo = Echo()
    site = make_site(echo)
    wire = Wire(site).send(chunked(*[b"x" * 4096] * 4))
    assert not wire.received

    wire.send(b"1\r\nx\r\n")

    assert wire.response().status == 413
    assert wire.saw_end
    wire.send(b"0\r\n\r\n" + GET)
    assert len(wire.responses()) == 1
    assert echo.seen == []


def test_body_in_thousands_of_tiny_chunks_is_refused_before_all_are_looked_at(make_site: MakeSite) -> None:
    site = make_site(Echo(), body_caps=BodyCaps(default=100_000))
    wire = Wire(site).send(chunked(*[b"x"] * 256) + b"1\r\nx\r\n" * 10_000)

    refusal = wire.response()

    assert refusal.status == 400
    assert refusal.error == "the body comes in too many chunks of less than 256 bytes"
    assert len(wire.protocol.requests) == 1, "only one request was begun"
    assert site.bodies.bytes == 0, "what was refused is not held any more"


def test_large_body_may_come_in_many_chunks(make_site: MakeSite) -> None:
    echo = Echo()
    chunks = [b"x" * 256] * 1_000
    wire = Wire(make_site(echo, body_caps=BodyCaps(default=256_000))).send(chunked(*chunks, b""))

    assert wire.response().status == 200
    assert len(echo.seen[0][2]) == 256_000


def test_rest_of_a_refused_body_changes_nothing(make_site: MakeSite) -> None:
    echo = Echo()

    complete = Wire(make_site(echo)).send(chunked(b"x" * 20_000, b"small", b"") + GET)
    malformed = Wire(make_site(echo)).send(chunked(b"x" * 20_000) + b"not hexadecimal\r\n")

    assert [complete.response().status, malformed.response().status] == [413, 413]
    assert complete.protocol.requests[0].content.getvalue() == b""
    assert echo.seen == []


def test_one_huge_chunk_is_refused_before_it_is_complete(make_site: MakeSite) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(
        b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n" + b"x" * 20_000
    )

    assert wire.response().status == 413
    assert wire.protocol.requests[0].content.getvalue() == b""
    assert site.bodies.bytes == 0


def test_caps_go_by_method_and_path(make_site: MakeSite) -> None:
    caps = BodyCaps({(b"POST", b"/block"): 100}, default=10)
    site = make_site(Echo(), body_caps=caps)

    assert Wire(site).send(post(100, b"/block?a=b") + b"x" * 100).response().status == 200
    assert Wire(site).send(post(101, b"/block")).response().status == 413
    assert Wire(site).send(post(11, b"/other")).response().status == 413
    assert Wire(site).send(post(11, b"/block").replace(b"POST", b"PUT")).response().status == 413


def test_refusal_closes_our_half_and_throws_away_what_still_comes(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo())).send(post(1_000_000))
    assert wire.saw_end
    assert wire.open

    for _ in range(20):
        wire.send(b"x" * 8192)

    assert wire.paused, "the server reads on"
    assert len(wire.responses()) == 1
    clock.advance(5)
    assert not wire.open


def test_refused_connection_ends_when_the_client_closes(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(post(1_000_000))

    wire.close()

    assert len(site.connections) == 0
    assert clock.getDelayedCalls() == []


def test_expected_continue_is_sent_for_a_body_that_may_come(make_site: MakeSite) -> None:
    wire = Wire(make_site(Echo())).send(post(3, extra=b"Expect: 100-continue\r\n"))
    assert wire.received == b"HTTP/1.1 100 Continue\r\n\r\n"

    wire.send(b"one")

    assert wire.response().body == b"POST /a one"


def test_expected_continue_is_not_sent_for_a_body_over_the_cap(make_site: MakeSite) -> None:
    wire = Wire(make_site(Echo())).send(post(20_000, extra=b"Expect: 100-continue\r\n"))

    assert wire.received.startswith(b"HTTP/1.1 413 ")


def test_all_bodies_together_have_a_bound_and_the_greediest_client_loses_its_oldest(
    make_site: MakeSite, clock: Clock
) -> None:
    site = make_site(Echo(), body_caps=BodyCaps(default=16_000), bodies_bytes=70_000)
    others = [Wire(site, "198.51.100.0").send(post(4_000) + b"x" * 3_999)]
    attackers = [Wire(site, "203.0.113.9").send(post(16_000) + b"x" * 15_999) for _ in range(4)]
    others += [Wire(site, f"198.51.100.{number}").send(post(4_000) + b"x" * 3_999) for number in range(1, 5)]

    assert [wire.received[:12] for wire in attackers] == [b"HTTP/1.1 503", b"", b"", b""]
    refusal = attackers[0].response()
    assert refusal.error == "too many large requests are under way; try again later"
    assert refusal.headers["retry-after"] == "5"
    assert (attackers[0].saw_end, site.bodies.evicted) == (True, 1)
    assert site.bodies.bytes == 3 * 15_999 + 5 * 3_999, "what gave way is not held any more"
    assert attackers[0].protocol.requests[0].content.getvalue() == b""
    for wire in others + attackers[1:]:
        wire.send(b"x")
        assert wire.response().status == 200
    assert site.bodies.bytes == 0


def test_many_networks_that_hold_little_each_do_not_shut_out_an_upload(make_site: MakeSite) -> None:
    """Networks cost nothing: an IPv6 /48 has 256 of those that count as one client."""
    site = make_site(Echo(), body_caps=BodyCaps(default=16_000), bodies_bytes=256 * 2_000)
    attackers = [Wire(site, f"2001:db8:0:{number:x}00::1") for number in range(256)]
    for wire in attackers:
        wire.send(post(16_000) + b"x" * 2_000)
    uploads = [Wire(site, "192.0.2.5").send(post(16_000)) for _ in range(2)]

    for _ in range(8):
        for wire in uploads:
            wire.send(b"x" * 2_000)

    assert [wire.response().status for wire in uploads] == [200] * 2
    gone = [wire for wire in attackers if wire.received]
    assert gone == attackers[: len(gone)], "the oldest gave way"
    assert 0 < site.bodies.evicted == len(gone) <= 16
    assert {wire.response().status for wire in gone} == {503}


def test_body_that_would_take_more_than_its_share_gives_way_itself(make_site: MakeSite) -> None:
    site = make_site(Echo(), body_caps=BodyCaps(default=16_000), bodies_bytes=50_000)
    modest = [Wire(site, f"198.51.100.{number}").send(post(3_000) + b"x" * 2_999) for number in range(2)]
    greedy = [Wire(site).send(post(16_000) + b"x" * size) for size in (8_000, 15_999, 15_999)]

    greedy[0].send(b"x" * 7_999)

    assert [wire.received[:12] for wire in greedy] == [b"HTTP/1.1 503", b"", b""]
    assert [wire.send(b"x").response().status for wire in modest] == [200, 200]


def test_bodies_of_one_client_have_a_bound_of_their_own(make_site: MakeSite) -> None:
    site = make_site(Echo(), bodies_bytes_per_client=25_000)
    first, second, third = [Wire(site).send(post(10_000) + b"x" * 9_999) for _ in range(3)]

    assert first.response().status == 503
    assert first.response().error == "the bodies of one client's requests may have 25000 bytes at once; try again later"
    assert first.response().headers["retry-after"] == "5"
    assert [wire.send(b"x").response().status for wire in (second, third)] == [200, 200]
    assert (site.bodies.bytes, site.bodies.evicted) == (0, 1)


def test_client_behind_a_trusted_proxy_has_its_own_share_of_bodies(make_site: MakeSite) -> None:
    site = make_site(Echo(), clients=Clients(trusted_proxies=["192.0.2.7/32"]), bodies_bytes_per_client=10_000)

    def forwarded(address: bytes) -> Wire:
        return Wire(site, "192.0.2.7").send(post(8_000, extra=b"X-Forwarded-For: %b\r\n" % address) + b"x" * 7_999)

    first, other, second = map(forwarded, (b"203.0.113.9", b"203.0.113.8", b"203.0.113.9"))

    assert first.response().status == 503
    assert [wire.send(b"x").response().status for wire in (other, second)] == [200, 200]


def test_next_request_through_a_proxy_counts_for_its_own_client(make_site: MakeSite) -> None:
    site = make_site(Echo(), clients=Clients(trusted_proxies=["192.0.2.7/32"]), bodies_bytes_per_client=10_000)
    held = Wire(site).send(post(8_000) + b"x" * 7_999)
    proxy = Wire(site, "192.0.2.7").send(post(3, extra=b"X-Forwarded-For: 198.51.100.1\r\n") + b"one")

    proxy.send(post(8_000, extra=b"X-Forwarded-For: 203.0.113.9\r\n") + b"x" * 7_999)

    assert held.response().status == 503


def test_client_without_limits_has_all_there_is(make_site: MakeSite) -> None:
    site = make_site(Echo(), clients=Clients(exempt=["192.0.2.7/32"]), bodies_bytes_per_client=10_000)

    wires = [Wire(site, "192.0.2.7").send(post(8_000) + b"x" * 7_999) for _ in range(4)]

    assert [wire.send(b"x").response().status for wire in wires] == [200] * 4


def test_complete_body_counts_but_is_not_given_up(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow, bodies_bytes_per_client=10_000)
    answered = Wire(site).send(post(8_000) + b"x" * 8_000)

    refused = Wire(site).send(post(8_000) + b"x" * 4_000)

    assert refused.response().status == 503
    slow.answer()
    assert answered.response().status == 200
    assert site.bodies.bytes == 0


def test_bodies_that_give_way_are_logged_once_a_minute(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo(), bodies_bytes_per_client=1_000)

    def overflow() -> None:
        Wire(site).send(post(4_000) + b"x" * 1_001).close()

    with capturedLogs() as logged:
        overflow()
        for _ in range(59):
            overflow()
            clock.advance(1)
        assert len(logged) == 1
        clock.advance(1)
        overflow()

    assert [formatEvent(event) for event in logged] == [
        f"{count} incomplete request bodies were dropped to make room, the last one of 203.0.113.9: "
        "one client's bodies may have 1000 bytes at once"
        for count in (1, 60)
    ]


def test_body_of_a_client_that_goes_away_is_not_held(make_site: MakeSite) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(post(1000) + b"x" * 500)
    assert site.bodies.bytes == 500

    wire.close()

    assert site.bodies.bytes == 0


# Malformed requests


@pytest.mark.parametrize(
    "malformed",
    [
        b"NONSENSE\r\n",
        b"GET /a\r\n",
        b"GET /a HTTP/2.0\r\n",
        b"GET  /a HTTP/1.1\r\n",
        b"G\xffT /a HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n",
        b"GET /" + b"a" * 20_000,
        b"GET /a HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /a HTTP/1.1\r\nbad name: x\r\nA: b\r\n\r\n",
        b"GET /a HTTP/1.1\r\nA: " + b"b" * 17_000 + b"\r\n\r\n",
        b"GET /a HTTP/1.1\r\n" + b"A: b\r\n" * 501 + b"\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ],
)
def test_malformed_request_is_400_in_json(make_site: MakeSite, malformed: bytes) -> None:
    echo = Echo()
    wire = Wire(make_site(echo)).send(malformed)

    refusal = wire.response()
    assert refusal.status == 400
    assert refusal.error == "not a well-formed HTTP/1.1 request with headers of at most 16384 bytes"
    assert wire.saw_end
    wire.send(GET)
    assert len(wire.responses()) == 1
    assert echo.seen == []


@pytest.mark.parametrize("before", [b"", GET])
def test_client_that_takes_http2_for_granted_is_told_so_in_its_protocol(make_site: MakeSite, before: bytes) -> None:
    site, echo = make_site(Echo()), Echo()
    site.recorder = noted = Recording()
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
    wire = Wire(site).send(before)
    answered = bytes(wire.received)
    wire.send(preface).send(GET)

    frames = bytes(wire.received).removeprefix(answered)
    assert (frames[:9], wire.saw_end) == (bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), True), "no SETTINGS without a setting"
    size, kind, flags, stream = int.from_bytes(frames[9:12]), frames[12], frames[13], frames[14:18]
    last, code, sentence = frames[18:22], int.from_bytes(frames[22:26]), frames[26:]
    assert (kind, flags, stream, last) == (7, 0, bytes(4), bytes(4)), "no GOAWAY"
    assert code == 0xD, "not HTTP_1_1_REQUIRED"
    assert size == 8 + len(sentence)
    assert sentence == b"this node answers HTTP/1.1; for HTTP/2, put a proxy in front of it"
    assert (noted.statuses[505], echo.seen) == (1, [])


def test_preface_of_http2_among_the_headers_is_a_malformed_header(make_site: MakeSite) -> None:
    wire = Wire(make_site(Echo())).send(b"POST /a HTTP/1.1\r\nPRI * HTTP/2.0\r\n\r\n")

    assert wire.response().status == 400


def test_content_length_with_thousands_of_digits_is_refused(make_site: MakeSite) -> None:
    wire = Wire(make_site(Echo())).send(b"POST /a HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")

    assert wire.response().status == 413
    assert wire.response().error == "a Content-Length may have at most 18 digits"


@pytest.mark.parametrize(
    "refused",
    [
        post(20_000, b"/rpc/broadcast"),
        b"GET /rpc/status HTTP/9\r\n",
        b"GET /rpc/status?" + b"a" * 20_000,
        b"GET /rpc HTTP/1.1\r\nno colon\r\n\r\n",
        chunked(b"x" * 20_000, path=b"/rpc/broadcast"),
    ],
)
def test_refusals_below_a_prefix_have_its_headers(make_site: MakeSite, refused: bytes) -> None:
    refusal = Wire(make_site(Echo())).send(refused).response()

    assert refusal.status in {400, 413}
    assert refusal.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("path", [b"/p2p/block", b"/rpcs", b"/"])
def test_refusals_elsewhere_do_not(make_site: MakeSite, path: bytes) -> None:
    refusal = Wire(make_site(Echo())).send(post(20_000, path)).response()

    assert "access-control-allow-origin" not in refusal.headers


def test_refusal_of_head_has_no_body(make_site: MakeSite) -> None:
    wire = Wire(make_site(Echo())).send(post(20_000).replace(b"POST", b"HEAD"))

    assert wire.response(head=True).status == 413


def test_refusals_are_told_apart_from_twisted(make_site: MakeSite) -> None:
    headers = Wire(make_site(Echo())).send(b"NONSENSE\r\n").response().headers

    assert headers["server"] == "svcd"
    assert headers["cache-control"] == "no-store"
    assert headers["date"] == "Thu, 01 Jan 1970 00:00:00 GMT"


# Clients that end their half


def test_client_that_ends_its_half_gets_an_answer_that_takes_its_time(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = Wire(make_site(slow)).send(GET * 2).end()

    clock.advance(2)
    slow.answer()
    clock.advance(2)
    assert wire.open
    slow.answer()

    assert [response.body for response in wire.responses()] == [b"ok", b"ok"]
    assert not wire.open
    assert slow.gone == []


@pytest.mark.parametrize("rest", [b"", GET[:9], GET[:-2], post(3) + b"on", b"\r\n"])
def test_an_incomplete_request_before_a_half_close_is_dropped(make_site: MakeSite, clock: Clock, rest: bytes) -> None:
    echo = Echo()
    site = make_site(echo)
    wire = Wire(site).send(GET * 2 + rest).end()
    alone = Wire(site).send(rest).end()

    clock.pump([0] * 2)

    assert not wire.open
    assert not alone.open
    assert len(wire.responses()) == len(echo.seen) == 2
    assert site.bodies.bytes == len(site.connections) == len(clock.getDelayedCalls()) == 0


def test_client_that_ends_its_half_has_little_time_for_all(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = Wire(make_site(slow)).send(GET * 3).end()

    for _ in range(2):
        clock.advance(2)
        slow.answer()
        clock.advance(0)
    clock.advance(0.9)
    assert wire.open
    clock.advance(0.2)

    assert not wire.open
    assert len(wire.responses()) == 2
    assert len(slow.gone) == 1, "what is asked for somebody who is gone is given up"
    assert clock.getDelayedCalls() == []


def test_client_that_ends_its_half_and_never_reads_is_cut_off(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Filled(2 * SEND_BUFFER))
    wire = Wire(site, reads=False).send(GET * 3).end()

    clock.pump([1] * 6)

    assert not wire.open
    assert site.unread.bytes == 0


def test_refused_client_that_ends_its_half_is_closed(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo())).send(post(1_000_000)).end()

    assert wire.response().status == 413
    assert not wire.open
    assert clock.getDelayedCalls() == []


@pytest.mark.parametrize(("refused", "status"), [(post(1_000_000), 413), (b"NONSENSE\r\n\r\n", 400)])
def test_client_that_is_refused_after_it_has_ended_its_half_is_closed_at_once(
    make_site: MakeSite, clock: Clock, refused: bytes, status: int
) -> None:
    wire = Wire(make_site(Echo())).send(GET + refused).end()

    clock.advance(0)

    assert [response.status for response in wire.responses()] == [200, status]
    assert not wire.open
    assert clock.getDelayedCalls() == []


def test_more_of_pipelined_requests_than_is_kept_waits_with_the_client(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = Wire(make_site(slow)).send(GET).send(GET * 1_000)
    assert wire.paused

    slow.answer()
    wire.send(GET)
    assert wire.paused, "while others have their turn"
    wire.end()
    for _ in range(1_001):
        clock.advance(0)
        wire.send(b"")
        slow.answer()

    assert len(wire.responses()) == 1_002
    assert not wire.open


def test_rest_of_a_large_pipelined_request_is_read_when_it_has_its_turn(make_site: MakeSite, clock: Clock) -> None:
    large = post(16_384)
    wire = Wire(make_site(Echo())).send(GET + large[:10]).send(large[10:] + b"x" * 16_383)
    assert wire.paused

    clock.advance(0)
    wire.send(b"x")

    assert [len(response.body) for response in wire.responses()] == [len("GET /a "), len("POST /a ") + 16_384]


def test_client_that_waits_for_its_turn_is_closed_when_the_site_drains(make_site: MakeSite, clock: Clock) -> None:
    echo = Echo()
    site = make_site(echo)
    wire = Wire(site, reads=False).send(GET * 3)

    for connection in site.connections:
        connection.drain()
    clock.advance(0)
    wire.read()

    assert len(wire.responses()) == len(echo.seen) == 1
    assert not wire.open
    assert clock.getDelayedCalls() == []


# Deadlines


def drip(wire: Wire, clock: Clock, data: bytes, every: float) -> float:
    """Send a byte now and then until the server has enough; returns after how many seconds that was."""
    for byte in data:
        if wire.saw_end or not wire.open:
            break
        wire.send(bytes([byte]))
        clock.advance(every)
    return clock.seconds()


def test_connection_that_sends_nothing_is_closed(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))

    clock.advance(9.9)
    assert wire.open
    clock.advance(0.2)
    assert not wire.open
    assert not wire.received


def test_dripped_headers_are_cut_off(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))

    assert drip(wire, clock, GET * 10, every=0.5) == pytest.approx(10, abs=1)

    assert wire.response().status == 408
    assert wire.response().error == "the request's headers did not arrive within 10 seconds"
    clock.advance(5)
    assert not wire.open


def test_headers_within_the_deadline_are_served(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))

    drip(wire, clock, GET, every=9.9 / len(GET))

    assert wire.response().status == 200


def test_dripped_body_is_cut_off(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(post(1000))

    assert drip(wire, clock, b"x" * 1000, every=0.5) == pytest.approx(30, abs=1)

    assert wire.response().status == 408
    assert (wire.open, site.bodies.bytes) == (True, 0), "what is refused is not held"
    assert wire.response().error == "the request's body did not arrive within 30 seconds"


def test_time_for_the_headers_counts_for_the_request(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))
    drip(wire, clock, post(1000), every=9 / len(post(1000)))

    assert drip(wire, clock, b"x" * 1000, every=0.5) == pytest.approx(30, abs=1)


def test_each_request_on_a_connection_has_its_own_deadlines(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))

    for _ in range(20):
        wire.send(GET[:5])
        clock.advance(8)
        wire.send(GET[5:])
        clock.advance(20)

    assert [response.status for response in wire.responses()] == [200] * 20


def test_second_request_that_drips_is_cut_off_too(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo())).send(GET)
    clock.advance(50)

    start = clock.seconds()
    assert drip(wire, clock, GET * 10, every=0.5) - start == pytest.approx(10, abs=1)

    assert [response.status for response in wire.responses()] == [200, 408]


def test_pipelined_body_that_drips_is_cut_off(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo())).send(GET[:5])
    clock.advance(8)
    wire.send(GET[5:] + post(1000))

    start = clock.seconds()
    assert drip(wire, clock, b"x" * 1000, every=0.5) - start == pytest.approx(30, abs=1)

    assert [response.status for response in wire.responses()] == [200, 408]


def test_idle_connection_is_closed(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo())).send(GET)

    clock.advance(59.9)
    assert wire.open
    clock.advance(0.2)
    assert not wire.open
    assert len(wire.responses()) == 1


def test_answer_that_never_comes_is_given_up(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    wire = Wire(make_site(slow)).send(GET)

    clock.advance(59.9)
    assert wire.open
    clock.advance(0.2)
    assert not wire.open
    assert len(slow.gone) == 1


@pytest.mark.parametrize("size", [1000, 10 * SEND_BUFFER])
def test_client_that_never_reads_is_cut_off(make_site: MakeSite, clock: Clock, size: int) -> None:
    site = make_site(Filled(size))
    wire = Wire(site, reads=False).send(GET)
    assert wire.unsent > min(size, PIECE_BYTES)

    clock.pump([1] * 70)

    assert not wire.open
    assert len(site.connections) == 0
    assert clock.getDelayedCalls() == []


def test_client_that_asks_to_close_and_never_reads_is_cut_off(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Filled(1000)), reads=False).send(b"GET /a HTTP/1.0\r\n\r\n")
    assert wire.open

    clock.advance(5.1)

    assert not wire.open


def test_client_that_pipelines_and_never_reads_fills_no_memory(make_site: MakeSite, clock: Clock) -> None:
    filled = Filled(2 * SEND_BUFFER)
    wire = Wire(make_site(filled), reads=False).send(GET * 300)

    clock.advance(0)
    assert filled.asked == 1
    assert wire.unsent < 3 * SEND_BUFFER
    while wire.unsent:
        wire.read()
        clock.advance(0)
    assert filled.asked == 300
    assert len(wire.responses()) == 300


def test_answers_that_nobody_takes_have_a_bound(make_site: MakeSite) -> None:
    unread = UnreadBudget(7 * SEND_BUFFER, 7 * SEND_BUFFER)
    site = make_site(Filled(2 * SEND_BUFFER), unread=unread)
    wires = [Wire(site, f"203.0.113.{number}", reads=False).send(GET) for number in (1, 2, 2, 3, 4, 5, 6)]

    assert [wire.open for wire in wires] == [False, False, False, False, True, True, True]
    assert 6 * SEND_BUFFER <= unread.bytes < 7 * SEND_BUFFER
    wires[-1].read()
    assert wires[-1].response().status == 200
    assert 4 * SEND_BUFFER <= unread.bytes < 5 * SEND_BUFFER


def test_unread_answers_of_one_client_have_a_bound_of_their_own(make_site: MakeSite) -> None:
    unread = UnreadBudget(100 * SEND_BUFFER, 5 * SEND_BUFFER)
    site = make_site(Filled(2 * SEND_BUFFER), unread=unread)
    other = Wire(site, "203.0.113.10", reads=False).send(GET)
    wires = [Wire(site, reads=False).send(GET) for _ in range(3)]

    assert [wire.open for wire in (other, *wires)] == [True, False, True, True]
    assert unread.of_client("203.0.113.9") < 5 * SEND_BUFFER
    for wire in (other, *wires):
        wire.close()
    assert unread.bytes == 0


def test_addresses_of_one_ipv6_subscriber_share_the_bound_of_unread_answers(make_site: MakeSite) -> None:
    site = make_site(Filled(2 * SEND_BUFFER), unread=UnreadBudget(100 * SEND_BUFFER, 3 * SEND_BUFFER))
    addresses = ("2001:db8::1", "2001:db8:0:ff::1", "2001:db8:0:100::1")
    wires = [Wire(site, IPv6Address("TCP", address, 50_000), reads=False).send(GET) for address in addresses]

    assert [wire.open for wire in wires] == [False, True, True]


def test_client_behind_a_trusted_proxy_has_its_own_share_of_unread_answers(make_site: MakeSite) -> None:
    clients = Clients(trusted_proxies=["192.0.2.7"])
    site = make_site(Filled(2 * SEND_BUFFER), clients=clients, unread=UnreadBudget(100 * SEND_BUFFER, 3 * SEND_BUFFER))
    named = [GET.replace(b"Host", b"X-Forwarded-For: 203.0.113.%d\r\nHost" % number) for number in (9, 9, 10)]
    wires = [Wire(site, "192.0.2.7", reads=False).send(request) for request in named]

    assert [wire.open for wire in wires] == [False, True, True]


def test_client_that_reads_slowly_but_steadily_stays_while_others_read_nothing(make_site: MakeSite) -> None:
    unread = UnreadBudget(40 * PIECE_BYTES, 16 * PIECE_BYTES)
    site = make_site(Filled(10 * PIECE_BYTES), unread=unread)
    steady = Wire(site, reads=False).send(GET)
    attackers = []
    while steady.unsent:
        attackers.append(Wire(site, f"198.51.100.{len(attackers)}", reads=False).send(GET))
        assert steady.open
        assert unread.bytes <= 40 * PIECE_BYTES
        steady.read_once()

    assert steady.response().body == b"x" * (10 * PIECE_BYTES)
    assert [attacker.open for attacker in attackers] == [False] * 7 + [True] * 3


def test_client_that_never_reads_gives_way_when_all_places_are_taken(make_site: MakeSite) -> None:
    site = make_site(Filled(2 * SEND_BUFFER), connections=2, connections_per_client=0)
    wires = [Wire(site, reads=False).send(GET) for _ in range(2)]

    newcomer = Wire(site).send(GET)

    assert [wire.open for wire in wires] == [False, True]
    assert newcomer.response().status == 200


@pytest.mark.parametrize(
    "request_bytes", [GET, GET.replace(b"/a", b"/%61"), GET.replace(b"Host", b"Connection: close\r\nHost")]
)
def test_large_answer_is_passed_on_in_pieces(make_site: MakeSite, clock: Clock, request_bytes: bytes) -> None:
    wire = Wire(make_site(Filled(5 * PIECE_BYTES)), reads=False).send(request_bytes)

    pieces = []
    while wire.unsent:
        pieces.append(wire.unsent)
        wire.read_once()
        clock.advance(1)
    assert max(pieces) < PIECE_BYTES + 1000
    assert len(pieces) == 5
    assert wire.response().body == b"x" * (5 * PIECE_BYTES)
    assert wire.open != (b"close" in request_bytes)


def test_client_that_reads_slowly_gets_all_of_it(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Filled(10 * SEND_BUFFER)), reads=False).send(GET)
    clock.advance(50)

    wire.read()

    assert len(wire.response().body) == 10 * SEND_BUFFER
    clock.advance(50)
    assert wire.open, "the connection is idle now"


def test_one_timer_serves_a_connection(make_site: MakeSite, clock: Clock) -> None:
    wire = Wire(make_site(Echo()))

    for _ in range(50):
        wire.send(GET)
        wire.send(post(3) + b"one")
        assert len(clock.getDelayedCalls()) == 1

    wire.close()
    assert clock.getDelayedCalls() == []
