"""A site in memory, with a clock that the test moves."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.web import cors
from svcd.web.api import Api, Ports
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients, ClientThrottle
from svcd.web.errors import HttpError
from svcd.web.limits import SiteLimits
from svcd.web.resources import Branch
from svcd.web.site import Site


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
def make_site(clock: Clock) -> Callable[..., Site]:
    """``make_site(root, **limits)``: a site whose errors have the ids e1, e2, …"""
    ids = iter(f"e{n}" for n in range(1, 1_000_000))

    def make(root: Any = None, *, clients: Clients | None = None, **limits: Any) -> Site:
        return Site(
            root or Branch(),
            limits=SiteLimits(**limits),
            clients=clients or Clients(),
            clock=clock,
            new_id=lambda: next(ids),
            headers_by_prefix={b"/rpc": cors.HEADERS},
        )

    return make


@pytest.fixture
def make_api(clock: Clock) -> Callable[..., Api]:
    """``make_api(*rooms, rates=...)``: an API at /rpc; Refused is told as 400."""
    ids = iter(f"a{n}" for n in range(1, 1_000_000))

    def make(*rooms: object, rates: dict[str, Rate] | None = None, mount: str = "/rpc") -> Api:
        rates = rates or {"read": Rate(per_second=0, burst=1), "broadcast": Rate(per_second=0, burst=1)}
        ports = Ports(
            parse_json=parse_json,
            errors={Refused: lambda error: HttpError(400, str(error))},
            throttle=ClientThrottle(Clients(), Buckets(rates), clock),
            clock=clock,
            new_id=lambda: next(ids),
        )
        api = Api(mount, ports)
        for room in rooms:
            api.add(room)
        return api

    return make


@pytest.fixture
def serve(make_site: Callable[..., Site], make_api: Callable[..., Api]) -> Callable[..., Site]:
    """``serve(*rooms, rates=..., **limits)``: a site with the rooms' routes below /rpc, readable from every origin."""

    def make(*rooms: object, rates: dict[str, Rate] | None = None, **limits: Any) -> Site:
        root = Branch()
        root.putChild(b"rpc", cors.Cors(make_api(*rooms, rates=rates).resource()))
        return make_site(root, **limits)

    return make
