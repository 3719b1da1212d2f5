"""Sends an event or a test event to its receiver, and interprets the answer (docs/webhook-reference.md "Attempts")."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError
from twisted.logger import Logger

from svcd.chain.encoding import canonical
from svcd.commerce.circuit_breaker import DeliveryOutcome
from svcd.commerce.events import ChainIdentity
from svcd.commerce.signing import SigningKeys, signed_headers
from svcd.interfaces import Clock, milliseconds
from svcd.limits import STALLING_RECEIVER, limit
from svcd.net.calls import CallFailed, CallLimits, Reply
from svcd.net.meter import MAX_HEAD_BYTES
from svcd.net.targets import BadTarget, Rules, Target
from svcd.node.status import SOFTWARE_VERSION

CALL_LIMITS: Final = CallLimits(
    seconds=limit(10, "time for an attempt", "seconds", STALLING_RECEIVER),
    max_bytes=limit(
        MAX_HEAD_BYTES,
        "headers of a response to a callback",
        "bytes",
        STALLING_RECEIVER,
    ),
)
TEST_EVENT: Final = "webhook.test"
MAX_TESTS: Final = limit(2, "tests of callbacks at once, of a merchant", "tests", STALLING_RECEIVER)
"""Tests of a merchant that may run at once."""

_GONE: Final = 410
_RETRY_LATER: Final = (429, 503)
_HOST_FAILED: Final = (429, 502, 503, 504)
"""The statuses of a host that accepts no event at present: a proxy sends 502 and 504 if the shop is down.

A 500 may be for one kind of event only, so it must not delay the others.
"""
_BARRED: Final = (401, 403, 404, 405)
"""The statuses of what stands before the receiver: a firewall or login says 401 or 403; a proxy without the route, or
with a static page for the time of maintenance, 404 or 405. They say nothing about the event."""
_MAY_CHANGE: Final = (408, 409, 425, 429)
"""The statuses below 500 that refuse the attempt, not the event (RFC 9110, RFC 8470, RFC 6585)."""


class Caller(Protocol):
    """Calls hosts whose addresses may be called (svcd.net.http_client.PinnedClient)."""

    def call(
        self, method: str, target: Target, *, headers: Mapping[str, str], body: bytes | None, limits: CallLimits
    ) -> Awaitable[Reply]:
        """The reply, without its body; raises CallFailed if there is none."""


@frozen(kw_only=True)
class DeliveryResult:
    """The result of one attempt."""

    outcome: DeliveryOutcome
    gone: bool = False
    """Whether the receiver answered 410 and wants no more events."""
    barred: bool = False
    """Whether a firewall or proxy may have answered in the receiver's place."""
    refused: bool = False
    """Whether the receiver would answer any further attempt in the same way."""
    status: int | None = None
    """Of the receiver's answer, if there was one."""
    error: str = ""
    """Why the attempt failed: a category, never a receiver's words."""
    retry_after: str | None = field(default=None, repr=False)
    """The receiver's Retry-After."""


class Event(Protocol):
    """An event to send: of a watch (svcd.commerce.outbox.OutboundEvent), or a test."""

    @property
    def merchant(self) -> str:
        """The name of the merchant whose event it is."""

    @property
    def event_id(self) -> str:
        """``svcevt_…``."""

    @property
    def type(self) -> str:
        """Such as ``payment.confirmed``."""

    @property
    def url(self) -> str:
        """The callback."""

    @property
    def body(self) -> bytes:
        """Exactly the bytes that are signed and sent."""


@frozen
class SendingMerchant:
    """The HTTP client and the keys for the events of one merchant."""

    caller: Caller
    keys: SigningKeys


@frozen
class WebhookSender:
    """Signs and sends events under the operator's rules for callback URLs."""

    rules: Rules
    merchants: Mapping[str, SendingMerchant]
    """By the name of the merchant; changes when the merchants are reloaded."""
    log = Logger()

    async def send(self, event: Event, now: int) -> DeliveryResult:
        """Sign and send ``event``, of one of the merchants, at ``now``, Unix milliseconds.

        The URL is checked on each attempt, because the rules may have changed since the registration.
        """
        merchant = self.merchants.get(event.merchant)
        if merchant is None:
            # Removed while its test waited for the callback's address.
            return DeliveryResult(outcome=DeliveryOutcome.NOT_COUNTED, error="merchant-removed")
        try:
            target = self.rules.parse(event.url)
            headers = signed_headers(
                merchant.keys, event_id=event.event_id, event=event.type, body=event.body, timestamp=now // 1000
            )
            headers |= {"Content-Type": "application/json", "User-Agent": f"svcd/{SOFTWARE_VERSION}"}
            reply = await merchant.caller.call("POST", target, headers=headers, body=event.body, limits=CALL_LIMITS)
        except BadTarget:
            # This does not count against the host: its other URLs may be allowed.
            return DeliveryResult(outcome=DeliveryOutcome.NOT_COUNTED, error="refused-url")
        except CallFailed as error:
            return DeliveryResult(outcome=DeliveryOutcome.FAILED, error=error.category)
        except CancelledError:
            raise
        except Exception:
            # A bug here must neither lose the event nor cause endless retries.
            self.log.failure("sending event {event_id} failed", event_id=event.event_id)
            return DeliveryResult(outcome=DeliveryOutcome.NOT_COUNTED, error="internal")
        return interpret_reply(reply)


def interpret_reply(reply: Reply) -> DeliveryResult:
    """The result that a reply means: 2xx is success, 410 ends the watch, and most 4xx that are not barred refuse."""
    if 200 <= reply.status <= 299:
        return DeliveryResult(outcome=DeliveryOutcome.ACCEPTED, status=reply.status)
    if reply.status == _GONE:
        return DeliveryResult(outcome=DeliveryOutcome.REJECTED, gone=True, status=_GONE, error=f"status {_GONE}")
    if reply.status in _HOST_FAILED:
        outcome = DeliveryOutcome.FAILED
    else:
        outcome = DeliveryOutcome.ERROR if reply.status >= 500 else DeliveryOutcome.REJECTED
    return DeliveryResult(
        outcome=outcome,
        refused=400 <= reply.status <= 499 and reply.status not in (*_MAY_CHANGE, *_BARRED),
        barred=reply.status in _BARRED,
        status=reply.status,
        error=f"status {reply.status}",
        retry_after=reply.headers.get("retry-after") if reply.status in _RETRY_LATER else None,
    )


class TooManyTests(Exception):
    """As many tests of the merchant are running as may run at once."""


@frozen(kw_only=True)
class OutboundTest:
    """An event that belongs to no watch."""

    merchant: str
    event_id: str
    type: str
    url: str = field(repr=False)
    body: bytes = field(repr=False)


@define
class CallbackTester:
    """Sends signed test events, each once, so that a merchant can try a callback; ``new_id`` returns 32 hex digits."""

    _sender: WebhookSender
    _chain: ChainIdentity
    _clock: Clock
    _new_id: Callable[[], str]
    _running: Counter[str] = field(init=False, factory=Counter)
    """The number of running tests, by merchant."""

    async def test(self, merchant: str, url: str) -> dict[str, object]:
        """Send a test to ``url``; returns the outcome in the API's form, without the receiver's words.

        Raises TooManyTests.
        """
        if self._running[merchant] >= MAX_TESTS:
            raise TooManyTests
        self._running[merchant] += 1
        try:
            return await self._test(merchant, url)
        finally:
            self._running[merchant] -= 1

    async def _test(self, merchant: str, url: str) -> dict[str, object]:
        began, now = self._clock.seconds(), milliseconds(self._clock)
        event_id = f"svcevt_{self._new_id()}"
        body = canonical(
            {
                "id": event_id,
                "event": TEST_EVENT,
                "createdAt": str(now),
                "networkId": self._chain.network_id,
                "chainId": self._chain.chain_id,
                "genesisHash": self._chain.genesis_hash.hex(),
            }
        )
        event = OutboundTest(merchant=merchant, event_id=event_id, type=TEST_EVENT, url=url, body=body)
        result = await self._sender.send(event, now)
        return {
            "id": event_id,
            "event": TEST_EVENT,
            "status": result.status,
            "error": result.error or None,
            "milliseconds": round((self._clock.seconds() - began) * 1000),
        }
