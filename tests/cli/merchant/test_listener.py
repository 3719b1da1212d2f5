"""The listener of `svc webhook listen`, behind its real HTTP stack."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from cryptography.hazmat.primitives import serialization
from twisted.internet.task import Clock

from svcd.cli.errors import CommandError
from svcd.cli.merchant import listener
from svcd.cli.merchant.listener import (
    MAX_BODY_BYTES,
    CallbackResource,
    InvalidEvent,
    ListenAddress,
    ListenerOutput,
    ReceivedEvent,
    callback_site,
    check_signature,
    parse_event,
    parse_listen_address,
    tls_options,
)
from svcd.commerce.signing import BadSignature
from tests.cli.merchant.events import NOW, OLD_SECRET, SECRET, encoded, event, headers
from tests.cli.terminal import Network
from tests.net.certificates import Signed, make_authority, sign


@define
class Heard:
    """What a listener printed."""

    events: list[tuple[str, bool]] = field(factory=list)
    rejected: list[str] = field(factory=list)
    broken: bool = False

    def event(self, event: ReceivedEvent, again: bool, now: float) -> None:
        if self.broken:
            raise BrokenPipeError
        self.events.append((event.id, again))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def send(heard: Heard) -> Iterator[Callable[..., tuple[int, Any]]]:
    """`send(body, headers, method)` returns status and JSON of the response."""
    clock = Clock()
    clock.advance(NOW)
    callbacks = CallbackResource(
        [SECRET], unit="Token", clock=clock, output=ListenerOutput(heard.event, heard.rejected.append)
    )
    network = Network(clock, callback_site(callbacks, clock=clock, random=lambda size: bytes(size)))

    def send(body: bytes, sent: dict[str, Any] | None = None, method: str = "POST") -> tuple[int, Any]:
        lines = [f"{method} /any/path HTTP/1.1", "Host: 127.0.0.1:8080", f"Content-Length: {len(body)}"]
        for name, values in (headers(body) if sent is None else sent).items():
            lines += [f"{name}: {value}" for value in (values if isinstance(values, list) else [values])]
        wire = network.connect()
        wire.send("\r\n".join([*lines, "Connection: close", "", ""]).encode() + body, 1)
        answer = b"".join(iter(lambda: wire.receive(65536, 60), b""))
        text = answer.partition(b"\r\n\r\n")[2]
        return int(answer.split()[1]), json.loads(text) if text else None

    yield send
    clock.advance(60)
    assert clock.getDelayedCalls() == []


Send = Callable[..., tuple[int, Any]]


def test_an_event_is_printed_and_answered_with_200(send: Send, heard: Heard) -> None:
    body = encoded(event())
    assert send(body) == (200, {"ok": True})
    assert heard.events == [(event()["id"], False)]


def test_a_repeated_event_is_marked_and_answered_with_200(send: Send, heard: Heard) -> None:
    for _ in range(2):
        assert send(encoded(event()))[0] == 200
    assert [again for _, again in heard.events] == [False, True]


def test_the_number_of_remembered_ids_is_bounded(send: Send, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "REMEMBERED_EVENTS", 2)
    for number in (1, 2, 3, 1, 3):
        send(encoded(event(number)))
    assert [again for _, again in heard.events] == [False, False, False, False, True]


def test_a_bad_signature_is_answered_with_401(send: Send, heard: Heard) -> None:
    body = encoded(event())
    twice = {name: [value, value] for name, value in headers(body).items()}
    for sent in ({}, headers(body, secret="forged" * 6), headers(body, NOW - 301), headers(b"other"), twice):
        status, answer = send(body, sent)
        assert (status, answer["ok"]) == (401, False)
        assert heard.rejected.pop() == answer["error"]
    assert heard.events == []


def test_a_signed_body_that_is_no_event_is_answered_with_400(send: Send, heard: Heard) -> None:
    for body in (b"not JSON", b"{}", b""):
        assert send(body)[0] == 400
    assert len(heard.rejected) == 3


def test_a_large_body_is_answered_with_413_before_it_is_read(send: Send, heard: Heard) -> None:
    assert send(b"x" * MAX_BODY_BYTES)[0] == 400
    assert send(b"x" * (MAX_BODY_BYTES + 1))[0] == 413
    assert heard.events == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "OPTIONS"])
def test_other_methods_are_answered_with_405(send: Send, method: str) -> None:
    assert send(b"", {}, method)[0] == 405


def test_a_closed_output_is_answered_with_503(send: Send, heard: Heard) -> None:
    heard.broken = True
    assert send(encoded(event()))[0] == 503
    heard.broken = False
    assert send(encoded(event()))[0] == 200
    assert heard.events == [(event()["id"], False)]


@pytest.mark.parametrize(
    ("text", "place", "url"),
    [
        ("127.0.0.1:8080", ListenAddress("127.0.0.1", 8080), "http://127.0.0.1:9/"),
        ("0.0.0.0:0", ListenAddress("0.0.0.0", 0), "http://0.0.0.0:9/"),  # noqa: S104
        ("[::ffff:127.0.0.1]:8080", ListenAddress("127.0.0.1", 8080), "http://127.0.0.1:9/"),
        ("[::1]:65535", ListenAddress("::1", 65535), "http://[::1]:9/"),
    ],
)
def test_listen_addresses(text: str, place: ListenAddress, url: str) -> None:
    assert parse_listen_address(text) == place
    assert place.url(9, "http") == url


@pytest.mark.parametrize(
    "text", ["", "8080", "127.0.0.1", "::1:8080", "[127.0.0.1", "1.2.3:80", "localhost:80", "1.2.3.4:65536"]
)
def test_invalid_listen_addresses(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 127\.0\.0\.1:8080 or \[::1\]:8080"):
        parse_listen_address(text)


def write_key(path: Path, signed: Signed, password: bytes | None = None) -> Path:
    """The private key as a PEM file."""
    sealed = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(signed.key.private_bytes(pem, pkcs8, sealed))
    return path


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate with its chain; the key is beside it."""
    authority = make_authority("An authority")
    signed = sign("localhost", by=authority)
    write_key(tmp_path / "key.pem", signed)
    path = tmp_path / "certificate.pem"
    path.write_bytes(signed.pem + authority.pem)
    return path


def test_a_certificate_with_its_chain(certificate: Path) -> None:
    options = tls_options(certificate, certificate.parent / "key.pem")
    assert len(options.extraCertChain) == 1
    options.getContext()


def test_invalid_certificates_and_keys_are_reported(certificate: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(CommandError, match=r"key\.pem does not contain a valid certificate in PEM format"):
        tls_options(key, key)
    with pytest.raises(
        CommandError, match=r"certificate\.pem does not contain an unencrypted private key in PEM format"
    ):
        tls_options(certificate, certificate)
    with pytest.raises(CommandError, match="cannot be read: no such file or directory"):
        tls_options(tmp_path / "gone.pem", key)
    other = write_key(tmp_path / "other.pem", make_authority("Another one"))
    with pytest.raises(CommandError, match=r"the key in .*other\.pem does not belong to the first certificate"):
        tls_options(certificate, other)
    sealed = write_key(tmp_path / "sealed.pem", make_authority("A third one"), b"password")
    with pytest.raises(CommandError, match="an unencrypted private key"):
        tls_options(certificate, sealed)


BODY = encoded(event())


def check(body: bytes, sent: dict[str, str], *secrets: str, now: int = NOW) -> None:
    check_signature(
        body,
        timestamp=sent["X-Svc-Timestamp"],
        signature=sent["X-Svc-Signature"],
        secrets=secrets or (SECRET,),
        now=now,
    )


def test_any_of_the_secrets_is_accepted() -> None:
    for secret in (SECRET, OLD_SECRET):
        check(BODY, headers(BODY, secret=secret), SECRET, OLD_SECRET)
    with pytest.raises(BadSignature):
        check(BODY, headers(BODY, secret="a secret of somebody else's, long enough"), SECRET, OLD_SECRET)


def test_an_event_in_one_line() -> None:
    read = parse_event(BODY, "Token")
    line = "2026-11-20 00:00:01 UTC  payment.confirming  order-17  confirming 3 of 12  svcevt_" + "0" * 31 + "1"
    assert read.line(NOW, repeated=False) == line
    assert read.line(NOW, repeated=True) == f"{line}  again"


@pytest.mark.parametrize(
    ("more", "notes"),
    [
        ({"node": {"synced": True}}, []),
        ({"node": {"synced": False}}, ["the node is not synced"]),
        ({"event": "payment.mismatched", "mismatch": {"kind": "late", "amountSvc": "2.5"}}, ["late: 2.5 Token"]),
        (
            {"event": "node.alarm", "alarm": {"kind": "outage"}, "node": {"synced": False}},
            ["outage", "the node is not synced"],
        ),
    ],
)
def test_further_content_of_an_event_follows_its_id(more: dict[str, Any], notes: list[str]) -> None:
    read = parse_event(encoded(event(**more)), "Token")
    assert read.line(NOW, repeated=True).split("  ")[-len(notes) - 2 :] == [read.id, *notes, "again"]


def test_an_event_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in parse_event(encoded(event(event="\x1b[2J")), "Token").line(NOW, repeated=False)


def test_json_is_printed_on_one_line() -> None:
    sent = event(extra="\u2028\n")
    written = parse_event(json.dumps(sent, indent=2, ensure_ascii=False).encode(), "Token").json()
    assert written.isascii()
    assert len(written.splitlines()) == 1
    assert json.loads(written) == sent


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        encoded({}),
        encoded(event(id=7)),
        encoded(event(payment=[])),
        encoded(event(payment={"state": "confirming"})),
    ],
)
def test_signed_bodies_that_are_no_events_are_rejected(body: bytes) -> None:
    with pytest.raises(InvalidEvent, match="the body is signed but is not"):
        parse_event(body, "Token")
