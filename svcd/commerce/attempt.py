"""One attempt to deliver an event, and what its answer means (docs/webhooks.md "Attempts")."""

from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from attrs import field, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from svcd.commerce.callback_host import Outcome
from svcd.commerce.outbox import Parcel
from svcd.commerce.signing import SigningKeys, signed_headers
from svcd.net.calls import CallFailed, CallLimits, Reply
from svcd.net.targets import BadTarget, Rules, Target
from svcd.node.status import SOFTWARE_VERSION

LIMITS: Final = CallLimits(seconds=10, max_bytes=64 * 1024)
_GONE: Final = 410
_COME_AGAIN: Final = (429, 503)


class Caller(Protocol):
    """Makes calls to addresses that may be called (svcd.net.pinned.PinnedCaller)."""

    def call(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, limits: CallLimits
    ) -> Awaitable[Reply]:
        """The answer; raises CallFailed if there is none."""


@frozen(kw_only=True)
class Verdict:
    """What one attempt came to."""

    outcome: Outcome
    gone: bool = False
    """The receiver wants no more."""
    error: str = ""
    """Why it failed: a category, never a receiver's words."""
    retry_after: str | None = field(default=None, repr=False)


@frozen
class Sender:
    """Sends events to where they belong, under the operator's rules."""

    caller: Caller
    rules: Rules
    keys: SigningKeys
    log = Logger()

    async def send(self, parcel: Parcel, now: int) -> Verdict:
        """Read the URL anew, sign and send at ``now``; the rules may have changed since the watch was registered."""
        try:
            target = self.rules.parse(parcel.url)
            headers = signed_headers(
                self.keys, event_id=parcel.event_id, event=parcel.event, body=parcel.body, timestamp=now // 1000
            )
            headers |= {"Content-Type": "application/json", "User-Agent": f"svcd/{SOFTWARE_VERSION}"}
            reply = await self.caller.call("POST", target, headers=headers, body=parcel.body, limits=LIMITS)
        except BadTarget:
            # That says nothing of the host; other URLs there may be in order.
            return Verdict(outcome=Outcome.UNTRIED, error="refused-url")
        except CallFailed as error:
            return Verdict(outcome=Outcome.FAILED, error=error.category)
        except CancelledError:
            raise
        except Exception:
            # Whatever it is, it must neither lose the event nor be tried for ever.
            self.log.failure("sending event {event_id} failed", event_id=parcel.event_id)
            return Verdict(outcome=Outcome.UNTRIED, error="internal")
        return judge(reply)


def judge(reply: Reply) -> Verdict:
    """What an answer means: 2xx is success, 410 the end of the watch, and everything else is tried again."""
    if 200 <= reply.status <= 299:
        return Verdict(outcome=Outcome.ACCEPTED)
    if reply.status == _GONE:
        return Verdict(outcome=Outcome.REFUSED, gone=True)
    in_trouble = reply.status >= 500 or reply.status in _COME_AGAIN
    return Verdict(
        outcome=Outcome.FAILED if in_trouble else Outcome.REFUSED,
        error=f"status {reply.status}",
        retry_after=reply.headers.get("retry-after") if reply.status in _COME_AGAIN else None,
    )
