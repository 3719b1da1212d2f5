"""Sites: who may connect, and how a site closes."""

from collections.abc import Callable

import pytest
from twisted.internet.address import IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.web.field_types import Custom
from svcd.web.rate_limits import Clients, Rate
from svcd.web.request import Recorder
from svcd.web.responses import Renderable
from svcd.web.routes import Field, Route, object_schema
from svcd.web.site import Site
from tests.support import has_result, result_of
from tests.web.echoing import Echo, Slow
from tests.web.wire import Recording, Wire

MakeSite = Callable[..., Site]

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def draining(site: Site, seconds: float = 10) -> "Deferred[None]":
    return Deferred.fromCoroutine(site.drain(seconds))


# Connections


def test_connection_over_the_cap_of_its_client_is_closed_at_once(make_site: MakeSite) -> None:
    site = make_site(Echo(), connections_per_client=2)
    wires = [Wire(site) for _ in range(3)]

    assert [wire.open for wire in wires] == [True, True, False]
    assert Wire(site, "203.0.113.10").open
    wires[0].close()
    assert Wire(site).open


def test_addresses_of_one_ipv6_subscriber_count_together(make_site: MakeSite) -> None:
    site = make_site(Echo(), connections_per_client=1)

    assert Wire(site, IPv6Address("TCP", "2001:db8::1", 1)).open
    assert not Wire(site, IPv6Address("TCP", "2001:db8:0:ff::2", 1)).open
    assert Wire(site, IPv6Address("TCP", "2001:db8:0:100::2", 1)).open


@pytest.mark.parametrize("clients", [Clients(exempt=["203.0.113.0/24"]), Clients(trusted_proxies=["203.0.113.9/32"])])
def test_exempt_clients_and_proxies_may_open_more(make_site: MakeSite, clients: Clients) -> None:
    site = make_site(Echo(), clients=clients, connections_per_client=1)

    assert all(Wire(site).open for _ in range(5))


def test_unix_socket_may_open_more(make_site: MakeSite) -> None:
    site = make_site(Echo(), connections_per_client=1)

    assert all(Wire(site, UNIXAddress(b"/run/svcd.sock")).open for _ in range(5))


def test_oldest_incomplete_request_gives_way_to_a_new_connection(make_site: MakeSite) -> None:
    site = make_site(Echo(), connections=3, connections_per_client=0)
    drips = [Wire(site).send(b"GET / HTTP/1.1\r\nX: ") for _ in range(3)]

    newcomer = Wire(site).send(GET)

    assert [drip.open for drip in drips] == [False, True, True]
    assert newcomer.response().status == 200
    assert len(site.connections) == 3


def test_request_that_is_complete_does_not_give_way(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow, connections=2, connections_per_client=0)
    served = [Wire(site).send(GET) for _ in range(2)]

    assert not Wire(site).open

    slow.answer()
    assert served[0].response().body == b"ok"
    assert Wire(site).open
    assert [wire.open for wire in served] == [False, True], "the one that was answered has made room"


def test_connection_that_begins_a_request_is_the_youngest(make_site: MakeSite) -> None:
    site = make_site(Echo(), connections=2, connections_per_client=0)
    first, second = Wire(site), Wire(site)
    first.send(GET[:5])

    Wire(site)

    assert (first.open, second.open) == (True, False)


# Answers


def test_answers_are_counted_by_status(make_site: MakeSite) -> None:
    site = make_site(Echo())
    notes = recorded(site)
    Wire(site).send(GET).send(GET)
    Wire(site).send(b"NONSENSE\r\n")

    assert notes.statuses == {200: 2, 400: 1}


def test_date_is_that_of_the_clock(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(GET)
    clock.advance(2)
    wire.send(GET)

    dates = [response.headers["date"] for response in wire.responses()]
    assert dates == ["Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:02 GMT"]


def test_only_http_1_1_is_offered_over_tls(make_site: MakeSite) -> None:
    assert make_site(Echo()).acceptableProtocols() == [b"http/1.1"]


# Draining


def test_site_without_requests_is_drained_at_once(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo())
    idle = Wire(site).send(GET)

    result_of(draining(site))

    assert not idle.open
    assert clock.getDelayedCalls() == []


def test_the_first_request_of_a_new_connection_may_still_arrive(make_site: MakeSite, clock: Clock) -> None:
    site = make_site(Echo())
    new, silent = Wire(site), Wire(site)
    drained = draining(site)

    clock.advance(0.9)
    new.send(GET)
    assert new.response().body == b"GET / "
    assert new.response().headers["connection"] == "close"
    assert not new.open
    assert silent.open
    clock.advance(0.2)

    result_of(drained)
    assert not silent.open
    assert clock.getDelayedCalls() == []


def test_request_under_way_is_answered_and_its_connection_closed(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow)
    wire = Wire(site).send(GET + GET)
    drained = draining(site)
    assert not has_result(drained)

    slow.answer()

    result_of(drained)
    assert wire.response().body == b"ok"
    assert wire.response().headers["connection"] == "close"
    assert not wire.open


def test_request_that_has_begun_may_be_completed(make_site: MakeSite) -> None:
    site = make_site(Echo())
    wire = Wire(site).send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\no")
    drained = draining(site)

    wire.send(b"ne")

    result_of(drained)
    assert wire.response().body == b"POST / one"


def test_draining_is_bounded(make_site: MakeSite, clock: Clock) -> None:
    slow = Slow()
    site = make_site(slow)
    wire = Wire(site).send(GET)
    drained = draining(site, 10)

    clock.advance(9.9)
    assert not has_result(drained)
    clock.advance(0.2)

    result_of(drained)
    assert not wire.open
    assert len(slow.gone) == 1
    assert clock.getDelayedCalls() == []


def test_nobody_is_let_in_while_it_drains(make_site: MakeSite) -> None:
    slow = Slow()
    site = make_site(slow)
    Wire(site).send(GET)
    drained = draining(site)

    assert not Wire(site).open

    slow.answer()
    result_of(drained)


# What a site tells its recorder

NAME = Field("name", Custom({"type": "string"}), "Anything.")


class Routes:
    """Two routes."""

    @Route("GET", "/rpc/thing/{name}", "A thing", bucket="read", path_fields=(NAME,), answers={200: object_schema({})})
    def thing(self, name: str) -> Renderable:
        if name == "broken":
            raise ValueError(name)
        return {}


def recorded(site: Site) -> Recording:
    notes = Recording()
    site.recorder = notes
    return notes


def asked(site: Site, path: str, method: str = "GET") -> None:
    Wire(site).send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())


def test_a_route_is_told_with_its_placeholders(serve: Callable[..., Site]) -> None:
    site = serve(Routes())
    notes = recorded(site)
    asked(site, "/rpc/thing/1?x=y")
    asked(site, "/rpc/thing/2", "HEAD")
    assert notes.answers == [("/rpc/thing/{name}", b"GET", 200, 0.0), ("/rpc/thing/{name}", b"HEAD", 200, 0.0)]


def test_unknown_paths_are_recorded_without_their_path(serve: Callable[..., Site]) -> None:
    site = serve(Routes())
    notes = recorded(site)
    asked(site, "/rpc/thing/1", "DELETE")
    asked(site, "/rpc/thing/1", "OPTIONS")
    asked(site, "/nowhere/at/all")
    Wire(site).send(b"NONSENSE\r\n")
    assert notes.answers == [
        ("", b"DELETE", 405, 0.0),
        ("", b"OPTIONS", 204, 0.0),
        ("", b"GET", 404, 0.0),
        ("", b"", 400, None),
    ]


def test_a_failure_is_told_with_its_route(serve: Callable[..., Site], expected_errors: Callable[..., object]) -> None:
    site = serve(Routes())
    notes = recorded(site)
    asked(site, "/rpc/thing/broken")
    expected_errors(ValueError)
    assert notes.answers == [("/rpc/thing/{name}", b"GET", 500, 0.0)]


def test_throttled_requests_are_recorded_with_their_bucket(serve: Callable[..., Site]) -> None:
    site = serve(Routes(), rates={"read": Rate(per_second=1, burst=1)})
    notes = recorded(site)
    asked(site, "/rpc/thing/1")
    asked(site, "/rpc/thing/1")
    assert notes.buckets == ["read"]
    assert [(route, status) for route, _, status, _ in notes.answers] == [
        ("/rpc/thing/{name}", 200),
        ("/rpc/thing/{name}", 429),
    ]


def test_an_answer_is_told_with_the_time_since_the_last_byte(make_site: Callable[..., Site], clock: Clock) -> None:
    slow = Slow()
    site = make_site(slow)
    notes = recorded(site)
    wire = Wire(site).send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n.")
    clock.advance(2)
    wire.send(b".")
    clock.advance(3)
    slow.answer()
    assert notes.answers == [("", b"POST", 200, 3.0)]


def test_a_site_has_a_recorder_from_the_start(serve: Callable[..., Site]) -> None:
    site = serve(Routes(), rates={"read": Rate(per_second=1, burst=1)})
    assert type(site.recorder) is Recorder
    wire = Wire(site)
    wire.send(2 * b"GET /rpc/thing/1 HTTP/1.1\r\nHost: h\r\n\r\n")
    site.clock.advance(0)
    assert [response.status for response in wire.responses()] == [200, 429]
