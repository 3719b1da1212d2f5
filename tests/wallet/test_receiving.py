"""The receiver of `svc webhook listen`, behind its real HTTP stack."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import define, field
from treq.client import HTTPClient
from twisted.internet.task import Clock

from svcd.wallet import receiving
from svcd.wallet.agents import WholeBody
from svcd.wallet.callbacks import Event
from svcd.wallet.receiving import MAX_BODY_BYTES, Callbacks, Told, site_of
from tests.wallet.events import NOW, SECRET, encoded, event, headers
from tests.wallet.terminal import Network

URL = "http://127.0.0.1:8080/any/path"


@define
class Heard:
    """What a receiver told."""

    events: list[tuple[str, bool]] = field(factory=list)
    refused: list[str] = field(factory=list)
    broken: bool = False

    def event(self, event: Event, again: bool, now: float) -> None:
        if self.broken:
            raise BrokenPipeError
        self.events.append((event.id, again))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def send(heard: Heard) -> Iterator[Callable[..., tuple[int, Any]]]:
    """`send(body, headers, method)`: status and JSON of the answer."""
    clock = Clock()
    clock.advance(NOW)
    callbacks = Callbacks([SECRET], clock=clock, told=Told(heard.event, heard.refused.append))
    network = Network(site_of(callbacks, clock=clock, random=lambda size: bytes(size)))
    client = HTTPClient(network.agent(clock), data_to_body_producer=WholeBody)

    def send(body: bytes, sent: dict[str, Any] | None = None, method: str = "POST") -> tuple[int, Any]:
        given = headers(body) if sent is None else sent
        asked = client.request(method, URL, data=body or None, headers=given, reactor=clock)
        answers: list[Any] = []
        asked.addCallback(lambda answer: answer.content().addCallback(lambda text: (answer.code, text)))
        asked.addBoth(answers.append)
        while network.flush():
            pass
        status, text = answers[0]
        return status, json.loads(text) if text else None

    yield send
    for pump in network.pumps:
        pump.client.transport.loseConnection()
    network.flush()
    clock.advance(60)
    assert clock.getDelayedCalls() == []


Send = Callable[..., tuple[int, Any]]


def test_a_genuine_event_is_told_and_200(send: Send, heard: Heard) -> None:
    body = encoded(event())
    assert send(body) == (200, {"ok": True})
    assert heard.events == [(event()["id"], False)]


def test_a_second_delivery_is_told_as_such_and_200(send: Send, heard: Heard) -> None:
    for _ in range(2):
        assert send(encoded(event()))[0] == 200
    assert [again for _, again in heard.events] == [False, True]


def test_only_so_many_ids_are_remembered(send: Send, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "REMEMBERED", 2)
    for number in (1, 2, 3, 1, 3):
        send(encoded(event(number)))
    assert [again for _, again in heard.events] == [False, False, False, False, True]


def test_what_is_not_genuine_is_401_and_no_event(send: Send, heard: Heard) -> None:
    body = encoded(event())
    twice = {name: [value, value] for name, value in headers(body).items()}
    for sent in ({}, headers(body, secret="forged" * 6), headers(body, NOW - 301), headers(b"other"), twice):
        status, answer = send(body, sent)
        assert (status, answer["ok"]) == (401, False)
        assert heard.refused.pop() == answer["error"]
    assert heard.events == []


def test_what_is_signed_but_no_event_is_400(send: Send, heard: Heard) -> None:
    for body in (b"not JSON", b"{}", b""):
        assert send(body)[0] == 400
    assert len(heard.refused) == 3


def test_too_large_a_body_is_413_before_it_is_read(send: Send, heard: Heard) -> None:
    assert send(b"x" * MAX_BODY_BYTES)[0] == 400
    assert send(b"x" * (MAX_BODY_BYTES + 1))[0] == 413
    assert heard.events == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_other_methods_are_405(send: Send, method: str) -> None:
    assert send(b"", {}, method)[0] == 405


def test_what_nobody_reads_is_503_so_that_the_node_tries_again(send: Send, heard: Heard) -> None:
    heard.broken = True
    assert send(encoded(event()))[0] == 503
    heard.broken = False
    assert send(encoded(event()))[0] == 200
    assert heard.events == [(event()["id"], False)]
