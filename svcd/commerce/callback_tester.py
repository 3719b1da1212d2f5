"""Sends a signed test event to a callback, so that a merchant sees whether it would be reached (docs/webhooks.md)."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from attrs import define, field, frozen

from svcd.chain.encoding import canonical
from svcd.commerce.events import ChainIdentity
from svcd.commerce.sender import WebhookSender
from svcd.interfaces import Clock, milliseconds
from svcd.limits import STALLING_RECEIVER, Limit

TEST_EVENT: Final = "webhook.test"
MAX_TESTS: Final = 2

LIMITS: Final = (Limit("tests of callbacks at once, of a merchant", MAX_TESTS, "things", STALLING_RECEIVER),)


class TooManyTests(Exception):
    """The merchant's other tests have not ended yet."""


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
    """Sends tests, each once; ``new_id`` returns 32 random hex characters."""

    _sender: WebhookSender
    _chain: ChainIdentity
    _clock: Clock
    _new_id: Callable[[], str]
    _running: Counter[str] = field(init=False, factory=Counter)
    """Tests that have not ended, by merchant."""

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
