"""A site in memory, with a clock that the test moves."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.web.api import Router, SiteContext
from svcd.web.connections import SiteLimits, UnreadBudget
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from svcd.web.resources import CORS_HEADERS, Branch
from svcd.web.responses import HttpError
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi
from tests.web.echoing import Leaf


class Refused(Exception):
    """Stands for the exceptions that a route raises."""


def parse_json(data: bytes) -> object:
    """A parser that refuses floats, with an exception that only the error table knows."""

    def no_float(text: str) -> object:
        raise Refused(f"{text} is not a whole number")

    try:
        return json.loads(data, parse_float=no_float)
    except ValueError as error:
        raise Refused("this is not JSON") from error


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_site_of(clock: Clock) -> Callable[..., Site]:
    """``make_site_of(uses_fast_path, root, **limits)``: a site with a fast path or without.

    Its errors have the ids e1, e2, ….

    For tests with Hypothesis, which pytest-twisted does not run for several parameters of a fixture.
    """
    ids = iter(f"e{n}" for n in range(1, 1_000_000))

    def make(
        uses_fast_path: bool,
        root: Any = None,
        *,
        clients: Clients | None = None,
        router: Router | None = None,
        unread: UnreadBudget | None = None,
        **limits: Any,
    ) -> Site:
        router = root.router() if isinstance(root, Leaf) else router or Router()
        return Site(
            root or Branch(),
            limits=SiteLimits(**limits),
            unread=UnreadBudget() if unread is None else unread,
            clients=clients or Clients(),
            clock=clock,
            new_id=lambda: next(ids),
            headers_by_prefix={b"/rpc": CORS_HEADERS},
            router=router if uses_fast_path else None,
        )

    return make


@pytest.fixture(params=["fast path", "slow path"])
def uses_fast_path(request: pytest.FixtureRequest) -> bool:
    """Whether the sites of a test have a fast path: what they answer does not depend on it."""
    return bool(request.param == "fast path")


@pytest.fixture
def make_site(make_site_of: Callable[..., Site], uses_fast_path: bool) -> Callable[..., Site]:
    """``make_site(root, **limits)``: the same, once with a fast path and once without."""
    return partial(make_site_of, uses_fast_path)


@pytest.fixture
def make_api(clock: Clock) -> Callable[..., KleinApi]:
    """``make_api(*routes, rates=..., **options)``: an API at /rpc; Refused is told as 400."""
    ids = iter(f"a{n}" for n in range(1, 1_000_000))

    def make(
        *routes: object,
        rates: dict[str, Rate] | None = None,
        mount: str = "/rpc",
        router: Router | None = None,
        **options: Any,
    ) -> KleinApi:
        rates = rates or {"read": Rate(per_second=0, burst=1), "broadcast": Rate(per_second=0, burst=1)}
        ports = SiteContext(
            parse_json=parse_json,
            errors={Refused: lambda error: HttpError(400, str(error))},
            limiter=RateLimiter(Clients(), rates, clock),
            clock=clock,
            new_id=lambda: next(ids),
            router=router or Router(),
        )
        api = KleinApi(mount, ports, **options)
        api.add(*routes)
        return api

    return make


@pytest.fixture
def serve_of(make_site_of: Callable[..., Site], make_api: Callable[..., KleinApi]) -> Callable[..., Site]:
    """``serve_of(uses_fast_path, *routes, rates=..., **limits)``: a site with the routes below /rpc.

    Pages of every origin may read them.
    """

    def make(uses_fast_path: bool, *routes: object, rates: dict[str, Rate] | None = None, **limits: Any) -> Site:
        root, router = Branch(), Router()
        root.putChild(b"rpc", make_api(*routes, rates=rates, router=router, shared=True))
        return make_site_of(uses_fast_path, root, router=router, **limits)

    return make


@pytest.fixture
def serve(serve_of: Callable[..., Site], uses_fast_path: bool) -> Callable[..., Site]:
    """``serve(*routes, rates=..., **limits)``: the same, once with a fast path and once without."""
    return partial(serve_of, uses_fast_path)
