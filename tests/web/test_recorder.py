"""What a site tells its recorder."""

from collections.abc import Callable

from attrs import define, field
from twisted.internet.task import Clock

from svcd.web.answers import Answer
from svcd.web.buckets import Rate
from svcd.web.routing import Field, Route, object_schema
from svcd.web.site import Site, Unrecorded
from tests.web.echoing import Slow
from tests.web.wire import Wire

NAME = Field("name", str, {"type": "string"}, "Anything.")


@define
class Notes:
    """A recorder that writes down what it is told."""

    answers: list[tuple[str, bytes, int, float | None]] = field(factory=list)
    buckets: list[str] = field(factory=list)

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        self.answers.append((route, method, status, seconds))

    def throttled(self, bucket: str) -> None:
        self.buckets.append(bucket)


class Room:
    """Two routes."""

    @Route("GET", "/rpc/thing/{name}", "A thing", bucket="read", path_fields=(NAME,), answers={200: object_schema({})})
    def thing(self, name: str) -> Answer:
        if name == "broken":
            raise ValueError(name)
        return {}


def recorded(site: Site) -> Notes:
    notes = Notes()
    site.recorder = notes
    return notes


def asked(site: Site, path: str, method: str = "GET") -> None:
    Wire(site).send(f"{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())


def test_a_route_is_told_with_its_placeholders(serve: Callable[..., Site]) -> None:
    site = serve(Room())
    notes = recorded(site)
    asked(site, "/rpc/thing/1?x=y")
    asked(site, "/rpc/thing/2", "HEAD")
    assert notes.answers == [("/rpc/thing/{name}", b"GET", 200, 0.0), ("/rpc/thing/{name}", b"HEAD", 200, 0.0)]


def test_what_meets_no_route_is_told_without_its_path(serve: Callable[..., Site]) -> None:
    site = serve(Room())
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
    site = serve(Room())
    notes = recorded(site)
    asked(site, "/rpc/thing/broken")
    expected_errors(ValueError)
    assert notes.answers == [("/rpc/thing/{name}", b"GET", 500, 0.0)]


def test_what_asks_too_often_is_told_with_its_bucket(serve: Callable[..., Site]) -> None:
    site = serve(Room(), rates={"read": Rate(per_second=1, burst=1)})
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
    site = serve(Room(), rates={"read": Rate(per_second=1, burst=1)})
    assert isinstance(site.recorder, Unrecorded)
    asked(site, "/rpc/thing/1")
    asked(site, "/rpc/thing/1")
    assert dict(site.answers) == {200: 1, 429: 1}
