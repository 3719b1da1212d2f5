"""What a receiver believes, and how it tells it."""

import json

import pytest

from svcd.commerce.signing import BadSignature
from svcd.wallet.callbacks import NoEvent, check_genuine, read_event
from tests.wallet.events import NOW, OLD_SECRET, SECRET, encoded, event, headers

BODY = encoded(event())


def check(body: bytes, sent: dict[str, str], *secrets: str, now: int = NOW) -> None:
    check_genuine(
        body,
        timestamp=sent["X-Svc-Timestamp"],
        signature=sent["X-Svc-Signature"],
        secrets=secrets or (SECRET,),
        now=now,
    )


def test_what_the_node_signed_is_genuine() -> None:
    check(BODY, headers(BODY))
    check(BODY, headers(BODY), now=NOW + 300)


def test_any_of_the_secrets_will_do() -> None:
    for secret in (SECRET, OLD_SECRET):
        check(BODY, headers(BODY, secret=secret), SECRET, OLD_SECRET)
    with pytest.raises(BadSignature):
        check(BODY, headers(BODY, secret="a secret of somebody else's, long enough"), SECRET, OLD_SECRET)


@pytest.mark.parametrize("late", [-301, 301])
def test_a_callback_of_another_time_is_not_genuine(late: int) -> None:
    with pytest.raises(BadSignature, match="X-Svc-Timestamp"):
        check(BODY, headers(BODY), now=NOW + late)


def test_a_changed_byte_is_not_genuine() -> None:
    with pytest.raises(BadSignature, match="X-Svc-Signature"):
        check(BODY + b" ", headers(BODY))


def test_absent_headers_are_not_genuine() -> None:
    for name in ("X-Svc-Timestamp", "X-Svc-Signature"):
        with pytest.raises(BadSignature, match=name):
            check(BODY, headers(BODY) | {name: ""})


def test_an_event_in_one_line() -> None:
    read = read_event(BODY)
    line = "2026-11-20 00:00:01 UTC  payment.confirming  order-17  confirming 3 of 12  svcevt_" + "0" * 31 + "1"
    assert read.line(NOW, again=False) == line
    assert read.line(NOW, again=True) == f"{line}  again"


def test_an_event_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in read_event(encoded(event(event="\x1b[2J"))).line(NOW, again=False)


def test_json_is_one_line_whatever_was_sent() -> None:
    sent = event(extra="\u2028\n")
    written = read_event(json.dumps(sent, indent=2, ensure_ascii=False).encode()).json()
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
def test_what_is_signed_but_no_event(body: bytes) -> None:
    with pytest.raises(NoEvent, match="the body is signed but no"):
        read_event(body)
