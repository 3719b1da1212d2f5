"""Signatures of events: the vectors, other implementations, and what a receiver must refuse."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.signing import BadSignature, SigningKeys, signed_headers, verify

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "webhook_signature.json").read_text(encoding="utf-8"))
SECRET = "a-signing-secret-of-thirty-two-characters"
EVENT_ID = "svcevt_0123456789abcdef0123456789abcdef"
BODY = b'{"event":"payment.confirmed"}'
AT = 1_790_000_000

secrets = st.text(min_size=1, max_size=100).filter(lambda text: text.isprintable())
timestamps = st.integers(0, 10**12)


def headers(*, secret: str = SECRET, body: bytes = BODY, at: int = AT) -> dict[str, str]:
    return signed_headers(SigningKeys(secret), event_id=EVENT_ID, event="payment.confirmed", body=body, timestamp=at)


def check(*, body: bytes = BODY, timestamp: str = str(AT), signature: str = "", secret: str = SECRET, now: int = AT):
    verify(body, timestamp=timestamp, signature=signature or sign(), secret=secret, now=now)


def sign(body: bytes = BODY, at: int = AT) -> str:
    return headers(body=body, at=at)["X-Svc-Signature"]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["what"])
def test_the_vectors(case: dict[str, object]) -> None:
    keys = SigningKeys(str(case["secret"]), str(case["previousSecret"]))
    body = str(case["body"]).encode("utf-8")
    timestamp = int(str(case["timestamp"]))
    assert signed_headers(
        keys, event_id=str(case["eventId"]), event=str(case["event"]), body=body, timestamp=timestamp
    ) == {
        "X-Svc-Event": case["event"],
        "X-Svc-Event-Id": case["eventId"],
        "X-Svc-Timestamp": str(case["timestamp"]),
        "X-Svc-Signature": case["xSvcSignature"],
        "webhook-id": case["eventId"],
        "webhook-timestamp": str(case["timestamp"]),
        "webhook-signature": case["webhookSignature"],
    }
    verify(body, timestamp=str(timestamp), signature=str(case["xSvcSignature"]), secret=keys.current, now=timestamp)


def openssl(key: bytes, message: bytes) -> bytes:
    mac = HMAC(key, SHA256())
    mac.update(message)
    return mac.finalize()


def by_hand(key: bytes, message: bytes) -> bytes:
    """HMAC as RFC 2104 defines it."""
    block = (hashlib.sha256(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block) + message).digest()
    return hashlib.sha256(bytes(byte ^ 0x5C for byte in block) + inner).digest()


@given(secrets, timestamps, st.binary(max_size=300))
def test_other_implementations_agree(secret: str, timestamp: int, body: bytes) -> None:
    sent = headers(secret=secret, body=body, at=timestamp)
    for mac in (openssl, by_hand):
        digest = mac(secret.encode(), f"{timestamp}.".encode() + body)
        assert sent["X-Svc-Signature"] == "v1=" + digest.hex()
        standard = mac(secret.encode(), f"{EVENT_ID}.{timestamp}.".encode() + body)
        assert sent["webhook-signature"] == "v1," + base64.b64encode(standard).decode()


def test_during_a_rotation_both_secrets_sign() -> None:
    keys = SigningKeys("the new secret", "the old secret")
    both = signed_headers(keys, event_id=EVENT_ID, event="payment.pending", body=BODY, timestamp=AT)
    new, old = both["webhook-signature"].split(" ")
    assert new == headers(secret="the new secret")["webhook-signature"]
    assert old == headers(secret="the old secret")["webhook-signature"]
    verify(BODY, timestamp=str(AT), signature=both["X-Svc-Signature"], secret="the new secret", now=AT)


def test_no_repr_contains_a_key() -> None:
    assert "secret" not in repr(SigningKeys("the new secret", "the old secret"))


@given(secrets, timestamps, st.binary(max_size=100))
def test_a_signature_verifies(secret: str, timestamp: int, body: bytes) -> None:
    sent = headers(secret=secret, body=body, at=timestamp)
    verify(body, timestamp=str(timestamp), signature=sent["X-Svc-Signature"], secret=secret, now=timestamp)


@pytest.mark.parametrize("away", [-300, -299, 0, 299, 300])
def test_five_minutes_are_tolerated(away: int) -> None:
    check(now=AT + away)


@pytest.mark.parametrize("away", [-301, 301, 10**6, -(10**6)])
def test_more_than_five_minutes_are_refused(away: int) -> None:
    with pytest.raises(BadSignature, match="within 300 s"):
        check(now=AT + away)


@pytest.mark.parametrize("timestamp", ["", "now", "-1", "+1790000000", "1790000000.0", " 1790000000", "１", "9" * 16])
def test_a_timestamp_must_be_digits(timestamp: str) -> None:
    with pytest.raises(BadSignature, match="in digits"):
        check(timestamp=timestamp)


def test_a_timestamp_is_signed_as_it_is_written() -> None:
    with pytest.raises(BadSignature, match="HMAC-SHA256"):
        check(timestamp=f"0{AT}")


def test_hex_digits_of_either_case_are_accepted() -> None:
    check(signature=sign().upper())
    check(signature="V1=" + sign()[3:])
    check(signature="v1=" + sign()[3:].upper())


@pytest.mark.parametrize("signature", ["v2=", "sha256=", "v1,", "v1", "=", ""])
def test_the_prefix_is_required(signature: str) -> None:
    with pytest.raises(BadSignature, match="must begin with v1="):
        verify(BODY, timestamp=str(AT), signature=signature + sign()[3:], secret=SECRET, now=AT)


@pytest.mark.parametrize(
    "signature",
    [
        "v1=",
        "v1=00",
        f"v1={'0' * 64}",
        "v1=ü",
        "v1=\ud800",
        "v1=" + sign()[3:-1],
        sign() + "0",
        sign() + " ",
        f"{sign()},{sign()}",
        sign(BODY + b" "),
        sign(at=AT + 1),
        headers(secret=SECRET + "x")["X-Svc-Signature"],
    ],
)
def test_another_signature_is_refused(signature: str) -> None:
    with pytest.raises(BadSignature, match="HMAC-SHA256"):
        check(signature=signature)


@given(st.binary(max_size=60).filter(lambda body: body != BODY))
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadSignature, match="HMAC-SHA256"):
        check(body=body)
