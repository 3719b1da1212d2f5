"""Events as a node sends them, with valid and forged signatures."""

import hmac
import json
from hashlib import sha256
from typing import Any

SECRET = "the signing secret of these tests"
OLD_SECRET = "the signing secret before that one"
NOW = 1_795_132_801


def event(number: int = 1, **changes: Any) -> dict[str, Any]:
    """The body of an event; ``number`` determines its id."""
    payment = {
        "state": "confirming",
        "canonical": True,
        "txid": "ab" * 32,
        "recipient": "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc",
        "amount": "2500000000",
        "reference": "order-17",
        "confirmations": 3,
        "requiredConfirmations": 12,
    }
    body = {"id": f"svcevt_{number:032x}", "event": "payment.confirming", "epoch": 0, "sequence": number}
    return {**body, "payment": payment, **changes}


def encoded(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def headers(body: bytes, now: int = NOW, secret: str = SECRET) -> dict[str, str]:
    """The headers of a callback, signed at `now`."""
    digest = hmac.new(secret.encode(), f"{now}.".encode() + body, sha256).hexdigest()
    return {"X-Svc-Timestamp": str(now), "X-Svc-Signature": f"v1={digest}"}
