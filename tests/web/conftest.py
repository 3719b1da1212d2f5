"""A site in memory, with a clock that the test moves."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.web import cors
from svcd.web.api import Api, Ports
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients, ClientThrottle
from svcd.web.errors import HttpError
from svcd.web.fast_lane import FastLane
from svcd.web.limits import SiteLimits
from svcd.web.resources import Branch
from svcd.web.router import Router
from svcd.web.site import Site
from tests.web.echoing import Leaf


class Refused(Exception):
    """Stands for the exceptions of a room behind the routes."""


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
    """``make_site_of(has_lane, root, **limits)``: a site whose errors have the ids e1, e2, …, with a fast lane or not.

    For tests with Hypothesis, which pytest-twisted does not run for several parameters of a fixture.
    """
    ids = iter(f"e{n}" for n in range(1, 1_000_000))

    def make(
        has_lane: bool,
        root: Any = None,
        *,
        clients: Clients | None = None,
        router: Router | None = None,
        **limits: Any,
    ) -> Site:
        lane = root.fast_lane() if isinstance(root, Leaf) else FastLane(router or Router())
        return Site(
            root or Branch(),
            limits=SiteLimits(**limits),
            clients=clients or Clients(),
            clock=clock,
            new_id=lambda: next(ids),
            headers_by_prefix={b"/rpc": cors.HEADERS},
            fast_lane=lane if has_lane else None,
        )

    return make


@pytest.fixture(params=["fast lane", "long way"])
def has_lane(request: pytest.FixtureRequest) -> bool:
    """Whether the sites of a test have a fast lane: what they answer does not depend on it."""
    return bool(request.param == "fast lane")


@pytest.fixture
def make_site(make_site_of: Callable[..., Site], has_lane: bool) -> Callable[..., Site]:
    """``make_site(root, **limits)``: the same, once with a fast lane and once without."""
    return partial(make_site_of, has_lane)


@pytest.fixture
def make_api(clock: Clock) -> Callable[..., Api]:
    """``make_api(*rooms, rates=...)``: an API at /rpc; Refused is told as 400."""
    ids = iter(f"a{n}" for n in range(1, 1_000_000))

    def make(
        *rooms: object, rates: dict[str, Rate] | None = None, mount: str = "/rpc", router: Router | None = None
    ) -> Api:
        rates = rates or {"read": Rate(per_second=0, burst=1), "broadcast": Rate(per_second=0, burst=1)}
        ports = Ports(
            parse_json=parse_json,
            errors={Refused: lambda error: HttpError(400, str(error))},
            throttle=ClientThrottle(Clients(), Buckets(rates), clock),
            clock=clock,
            new_id=lambda: next(ids),
            router=router or Router(),
        )
        api = Api(mount, ports, cors.HEADERS)
        for room in rooms:
            api.add(room)
        return api

    return make


@pytest.fixture
def serve_of(make_site_of: Callable[..., Site], make_api: Callable[..., Api]) -> Callable[..., Site]:
    """``serve_of(has_lane, *rooms, rates=..., **limits)``: a site with the rooms' routes below /rpc.

    Pages of every origin may read them.
    """

    def make(has_lane: bool, *rooms: object, rates: dict[str, Rate] | None = None, **limits: Any) -> Site:
        root, router = Branch(), Router()
        root.putChild(b"rpc", cors.Cors(make_api(*rooms, rates=rates, router=router).resource()))
        return make_site_of(has_lane, root, router=router, **limits)

    return make


@pytest.fixture
def serve(serve_of: Callable[..., Site], has_lane: bool) -> Callable[..., Site]:
    """``serve(*rooms, rates=..., **limits)``: the same, once with a fast lane and once without."""
    return partial(serve_of, has_lane)
