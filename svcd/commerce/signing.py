"""Signatures of events (docs/webhook-reference.md "Signatures").

Each attempt has its own signature, which covers its timestamp and the body. There are two forms: the node's own, and
that of Standard Webhooks (https://www.standardwebhooks.com), which has verifiers in many languages.
"""

import re
from base64 import b64encode
from hmac import compare_digest
from hmac import digest as hmac_digest
from typing import Final

from attrs import field, frozen

TOLERANCE_SECONDS: Final = 300
_PREFIX: Final = "v1="
_TIMESTAMP: Final = re.compile(r"[0-9]{1,15}")


class BadSignature(ValueError):
    """A signature or its timestamp is invalid; the text is one sentence that says why."""


@frozen
class SigningKeys:
    """The signing secret and, during a rotation, the previous one; empty if there is none."""

    current: str = field(repr=False)
    previous: str = field(default="", repr=False)


def signed_headers(keys: SigningKeys, *, event_id: str, event: str, body: bytes, timestamp: int) -> dict[str, str]:
    """The headers that name and sign an event; ``timestamp`` is the Unix time of this attempt in seconds.

    X-Svc-Signature is under the current secret only, webhook-signature under both.
    """
    secrets = [secret for secret in (keys.current, keys.previous) if secret]
    return {
        "X-Svc-Event": event,
        "X-Svc-Event-Id": event_id,
        "X-Svc-Timestamp": str(timestamp),
        "X-Svc-Signature": _PREFIX + _digest(keys.current, str(timestamp), body).hex(),
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(_standard_signature(secret, event_id, timestamp, body) for secret in secrets),
    }


def verify(body: bytes, *, timestamp: str, signature: str, secret: str, now: int) -> None:
    """Verify X-Svc-Timestamp and X-Svc-Signature of an event that arrived at ``now``, Unix time in seconds.

    Raises:
        BadSignature: the timestamp is malformed or too far from now, or the signature is wrong.
    """
    if not _TIMESTAMP.fullmatch(timestamp):
        raise BadSignature("X-Svc-Timestamp must be a Unix time in seconds, in digits")
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise BadSignature(f"X-Svc-Timestamp must be within {TOLERANCE_SECONDS} s of the receiver's clock")
    if signature[: len(_PREFIX)].lower() != _PREFIX:
        raise BadSignature("X-Svc-Signature must begin with v1=")
    # As bytes, because compare_digest refuses non-ASCII text, which a header may contain.
    given = signature[len(_PREFIX) :].lower().encode("utf-8", "surrogatepass")
    if not compare_digest(given, _digest(secret, timestamp, body).hex().encode("ascii")):
        raise BadSignature(
            "X-Svc-Signature must be the HMAC-SHA256 of timestamp, dot and body under the signing secret"
        )


def _standard_signature(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    return "v1," + b64encode(_digest(secret, f"{event_id}.{timestamp}", body)).decode("ascii")


def _digest(secret: str, prefix: str, body: bytes) -> bytes:
    return hmac_digest(secret.encode("utf-8"), prefix.encode("ascii") + b"." + body, "sha256")
