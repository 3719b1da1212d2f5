"""A test of a callback: signed, sent once, and told by status and time (docs/webhook-reference.md)."""

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.commerce.events import ChainIdentity
from svcd.commerce.sender import CallbackTester, SendingMerchant, TooManyTests, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.net.calls import CallFailed, Reply
from svcd.net.targets import Rules
from tests.support import has_result, result_of

URL = "https://shop.example.com/paid"


class Receiver:
    """Leaves each call open until the test answers it."""

    def __init__(self) -> None:
        self.calls: list[Deferred[Reply]] = []

    def call(self, method: str, target: object, **_: object) -> "Deferred[Reply]":
        self.calls.append(Deferred())
        return self.calls[-1]


def make_tester(receiver: Receiver, clock: Clock) -> CallbackTester:
    sending = {name: SendingMerchant(receiver, SigningKeys(name * 32)) for name in ("a", "b")}
    chain = ChainIdentity(network_id=2, chain_id="SVC-DEVNET", genesis_hash=bytes(32))
    return CallbackTester(WebhookSender(Rules.for_callbacks(), sending), chain, clock, lambda: "7" * 32)


def begin(tester: CallbackTester, merchant: str, url: str = URL) -> "Deferred[dict[str, object]]":
    return Deferred.fromCoroutine(tester.test(merchant, url))


def test_two_tests_of_a_merchant_at_once() -> None:
    receiver = Receiver()
    tester = make_tester(receiver, Clock())
    running = [begin(tester, "a") for _ in range(2)]
    with pytest.raises(TooManyTests):
        result_of(begin(tester, "a"))
    # Those of another merchant are not in the way.
    begin(tester, "b")
    assert len(receiver.calls) == 3

    receiver.calls[0].callback(Reply(status=200, headers={}, body=b"words of the receiver"))
    assert result_of(running[0]) == {
        "id": "svcevt_" + "7" * 32,
        "event": "webhook.test",
        "status": 200,
        "error": None,
        "milliseconds": 0,
    }
    begin(tester, "a")
    assert len(receiver.calls) == 4
    assert not has_result(running[1])


def test_a_callback_that_gives_no_answer() -> None:
    receiver, clock = Receiver(), Clock()
    running = begin(make_tester(receiver, clock), "a")
    clock.advance(10)
    receiver.calls[0].errback(CallFailed("timeout", "shop.example.com did not answer within 10 s"))
    told = result_of(running)
    assert (told["status"], told["error"], told["milliseconds"]) == (None, "timeout", 10_000)
