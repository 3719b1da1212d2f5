"""Whatever comes, in whatever pieces: each request is answered once and in order, and every connection ends."""

from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.web.site import Site
from tests.web.echoing import Echo, Slow
from tests.web.test_channel import GET, chunked, post
from tests.web.wire import Wire

MakeSite = Callable[..., Site]

WHOLE = {
    GET: b"GET /a ",
    post(3) + b"one": b"POST /a one",
    post(9_000, b"/b") + b"x" * 9_000: b"POST /b " + b"x" * 9_000,
    chunked(b"tw", b"o", b""): b"POST /a two",
}
LAST = [
    GET.replace(b"1.1", b"1.0"),
    GET.replace(b"Host", b"Connection: close\r\nHost"),
    post(1_000_000),
    post(9) + b"half",
    GET[:9],
    b"NONSENSE\r\n\r\n",
    b"x" * 70_000,
]
WHATEVER = st.one_of(
    st.sampled_from([*WHOLE, GET * 40, *LAST]),
    st.sampled_from(["answer", "answer", "turn", "read", "end", "drain"]),
    st.sampled_from([0.1, 2.0, 7.0]),
)


def nothing_is_left(site: Site, clock: Clock) -> bool:
    left = [site.bodies.bytes, len(site.connections), site.unread.bytes, len(clock.getDelayedCalls())]
    return left == [0, 0, 0, 0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    asked=st.lists(st.sampled_from([*WHOLE]), min_size=1, max_size=20),
    cuts=st.lists(st.tuples(st.sampled_from([1, 20, 400, 30_000]), st.booleans()), min_size=1),
    reads=st.booleans(),
    ends=st.booleans(),
    uses_fast_path=st.booleans(),
)
def test_every_request_is_answered_once(
    make_site_of: MakeSite,
    clock: Clock,
    asked: list[bytes],
    cuts: list[tuple[int, bool]],
    reads: bool,
    ends: bool,
    uses_fast_path: bool,
) -> None:
    site, data = make_site_of(uses_fast_path, Echo()), b"".join(asked)
    wire = Wire(site, reads=reads)
    while data:
        for size, has_turns in cuts:
            wire.send(data[:size])
            data = data[size:]
            if has_turns:
                clock.advance(0)
                wire.read()
        cuts = [(400, False), *cuts]
    if ends:
        wire.end()
    for _ in asked:
        clock.advance(0)
        wire.read()

    assert [response.body for response in wire.responses()] == [WHOLE[each] for each in asked]
    assert wire.open is not ends
    wire.close()
    assert nothing_is_left(site, clock)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=st.lists(WHATEVER, max_size=40), reads=st.booleans(), uses_fast_path=st.booleans())
def test_every_connection_ends(
    make_site_of: MakeSite, clock: Clock, events: list[bytes | str | float], reads: bool, uses_fast_path: bool
) -> None:
    slow = Slow()
    site = make_site_of(uses_fast_path, slow)
    wire, ended = Wire(site, reads=reads), False
    for event in events:
        if isinstance(event, bytes):
            wire.send(b"" if ended else event)
        elif isinstance(event, float):
            clock.advance(event)
        elif event == "turn":
            clock.advance(0)
        elif event == "read":
            wire.read()
        elif event == "answer" and slow.waiting and wire.open:
            slow.answer()
        elif event == "end":
            wire.end()
            ended = True
        elif event == "drain":
            site.draining = True
            for connection in site.connections:
                connection.drain()
    wire.read()

    if ended and not wire.paused:
        clock.pump([1.0] * 6)
        assert not wire.open, "who has ended its half has five seconds"
    clock.pump([1.0] * 200)
    assert not wire.open
    assert nothing_is_left(site, clock)
