"""What reaches a receiver of callbacks: whether a node signed it just now, and what it says (docs/webhooks.md).

Functions of values, so that a forged or stale callback can be shown to them without a port.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

from attrs import frozen

from svcd.commerce.signing import BadSignature, verify
from svcd.wallet.answer import Answer, parse_object
from svcd.wallet.failed import Unanswered
from svcd.wallet.show import moment, plain


class NoEvent(Exception):
    """It is signed, but what it says is no event of svcd."""


@frozen
class Event:
    """What one event says, of what a person wants to see."""

    id: str
    name: str
    reference: str
    state: str
    confirmations: int
    required: int
    body: bytes

    def line(self, now: float, *, again: bool) -> str:
        """The event in one line; ``now`` is the Unix time in seconds, ``again`` whether it was here before."""
        state = f"{self.state} {self.confirmations} of {self.required}"
        words = [moment(int(now * 1000)), self.name, self.reference, state, self.id, "again" if again else ""]
        return plain("  ".join(words).rstrip())

    def json(self) -> str:
        """The body on one line, in ASCII."""
        return json.dumps(json.loads(self.body), separators=(",", ":"))


def check_genuine(body: bytes, *, timestamp: str, signature: str, secrets: Sequence[str], now: int) -> None:
    """Check that one of ``secrets`` signed ``body`` just now, Unix time in seconds; raises BadSignature."""
    *others, last = secrets
    for secret in others:
        with suppress(BadSignature):
            verify(body, timestamp=timestamp, signature=signature, secret=secret, now=now)
            return
    verify(body, timestamp=timestamp, signature=signature, secret=last, now=now)


def read_event(body: bytes) -> Event:
    """The event in a body whose signature is right; raises NoEvent."""
    answer = parse_object(body, "the body")
    if answer is None:
        raise NoEvent("the body is signed but no JSON object")
    try:
        return _event(answer, body)
    except Unanswered as unread:
        raise NoEvent(f"the body is signed but no event: {unread}") from None


def _event(answer: Answer, body: bytes) -> Event:
    payment = answer.object("payment")
    return Event(
        id=answer.text("id"),
        name=answer.text("event"),
        reference=payment.text("reference"),
        state=payment.text("state"),
        confirmations=payment.count("confirmations"),
        required=payment.count("requiredConfirmations"),
        body=body,
    )
