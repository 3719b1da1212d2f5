"""`svc webhook` at a terminal, in front of the routes of a node in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from svcd.commerce.sender import CallbackTester, SendingMerchant, WebhookSender
from svcd.commerce.signing import SigningKeys
from svcd.interfaces import milliseconds
from svcd.net.addresses import AddressPolicy
from svcd.net.calls import Reply
from svcd.net.http_client import PinnedClient
from svcd.net.targets import Rules, Target
from svcd.net.trust import load_trust
from svcd.rpc.webhook_routes import Merchant, WebhookPolicy, WebhookRoutes
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from tests.cli.terminal import Terminal
from tests.commerce.watched import Watched
from tests.net.conftest import Answers
from tests.rpc.node import COMMON, UNLIMITED, PublicSite

TOKEN = "management-token-of-these-tests-0123"
READ_ONLY = "read-only-token-of-these-tests-01234"


@frozen
class Answering:
    """A receiver that answers 204 after a while, or 500 at the path /broken."""

    terminal: Terminal

    async def call(self, method: str, target: Target, **_: Any) -> Reply:
        self.terminal.clock.rightNow += 0.042
        return Reply(status=500 if target.path == "/broken" else 204, headers={}, body=b"")


@pytest.fixture
def watched(terminal: Terminal, tmp_path: Path) -> Iterator[Watched]:
    """An in-memory node with webhooks, behind the terminal."""
    watched = Watched(tmp_path, terminal.clock)
    reactor: Any = terminal.clock
    policy = AddressPolicy(allow_private=False)
    caller = PinnedClient(reactor, resolver=Answers(["93.184.215.14"]), policy=policy, trust=load_trust())
    merchant = Merchant(name="default", token=TOKEN, keys=SigningKeys("s" * 32), read_only_token=READ_ONLY)
    offer = WebhookPolicy(problem="", merchants=(merchant,), default_ttl=86_400, max_ttl=604_800)
    rules = Rules.for_callbacks()
    callers = {"default": caller}
    sender = WebhookSender(rules, {"default": SendingMerchant(Answering(terminal), merchant.keys)})
    tester = CallbackTester(sender, watched.database.operations.repository.chain, terminal.clock, lambda: "7" * 32)
    routes = WebhookRoutes(
        watched.node.params,
        offer,
        webhooks=watched.webhooks,
        rules=rules,
        callers=callers,
        tester=tester,
        now=lambda: milliseconds(watched.clock),
    )
    public = PublicSite(COMMON, RateLimiter(Clients(), {**UNLIMITED, "webhooks": Rate(0, 1)}, terminal.clock))
    terminal.public.site = watched.node.sites.public([routes], public)
    yield watched
    watched.close()
