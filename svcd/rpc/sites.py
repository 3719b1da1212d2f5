"""The two HTTP faces of the node: the public site, and the operator's (docs/http.md)."""

import sqlite3
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from attrs import frozen
from twisted.web.resource import Resource

from svcd.chain.encoding import parse_json
from svcd.chain.errors import Corrupt, NotYet, RuleViolation
from svcd.ports import Clock
from svcd.rpc.catalog import CatalogRoute
from svcd.rpc.openapi import OpenApiRoute
from svcd.store.database import is_disk_trouble
from svcd.web import cors
from svcd.web.api import Api, Ports
from svcd.web.buckets import Buckets
from svcd.web.clients import Clients, ClientThrottle, Throttle, Unlimited
from svcd.web.errors import ErrorTable, Headers, HttpError
from svcd.web.fast_lane import FastLane
from svcd.web.limits import SiteLimits
from svcd.web.resources import NOT_FOUND, AllowedHosts, Branch
from svcd.web.site import Site

DAMAGED: Final = "the node's database is damaged, and the node stops"
DISK_TROUBLE: Final = "the node cannot write to its disk at present; nothing has changed, so try again later"
ERRORS: Final[ErrorTable] = {
    RuleViolation: lambda violation: HttpError(400, violation.detail),
    NotYet: lambda reason: HttpError(503, reason.detail),
    sqlite3.OperationalError: lambda error: HttpError(503, DISK_TROUBLE) if is_disk_trouble(error) else None,
}
"""How the rooms' exceptions are told to clients."""


def _undamaged(_: BaseException) -> bool:
    return False


@frozen
class Public:
    """What the public site grants, and to whom."""

    limits: SiteLimits
    clients: Clients
    buckets: Buckets


@frozen
class Sites:
    """Builds both sites; ``new_id`` gives the ids of unexpected errors in the log.

    ``is_damage`` tells whether an error means that the node's data are damaged, and ends the node if so.
    """

    clock: Clock
    new_id: Callable[[], str]
    is_damage: Callable[[BaseException], bool] = _undamaged

    def public(
        self,
        rooms: Iterable[object],
        public: Public,
        *,
        peers: Iterable[object] = (),
        pages: Callable[[Ports], Resource] | None = None,
    ) -> Site:
        """``rooms`` under ``/rpc`` with a description of all routes, ``peers`` under ``/p2p``, ``pages`` elsewhere.

        Clients have limits, which are the same for all three.
        """
        ports = self._public_ports(public)
        api = _api("/rpc", rooms, ports, cors.HEADERS)
        between_nodes = _api("/p2p", peers, ports)
        api.add(CatalogRoute(lambda: api.routes))
        api.add(OpenApiRoute(lambda: api.routes + between_nodes.routes))
        root: Any = Branch(pages(ports) if pages else NOT_FOUND)
        root.putChild(b"p2p", between_nodes.resource())
        root.putChild(b"rpc", cors.Cors(api.resource()))
        return self._site(root, public, ports)

    def between_nodes(self, peers: Iterable[object], public: Public) -> Site:
        """``peers`` under ``/p2p`` and nothing else, for an endpoint of their own."""
        root: Any = Branch()
        ports = self._public_ports(public)
        root.putChild(b"p2p", _api("/p2p", peers, ports).resource())
        return self._site(root, public, ports)

    def _site(self, root: Any, public: Public, ports: Ports) -> Site:
        return Site(
            root,
            limits=public.limits,
            clients=public.clients,
            clock=self.clock,
            new_id=self.new_id,
            headers_by_prefix={b"/rpc": cors.HEADERS},
            fast_lane=FastLane(ports.router),
        )

    def operator(self, rooms: Iterable[object], limits: SiteLimits, *, hosts: Collection[str] | None = None) -> Site:
        """``rooms`` at the root for the operator, who is under no rate limit; None for ``hosts`` admits every name."""
        resource: Any = _api("", rooms, self._ports(Unlimited())).resource()
        if hosts is not None:
            resource = AllowedHosts(resource, hosts)
        return Site(resource, limits=limits, clients=Clients(), clock=self.clock, new_id=self.new_id)

    def _public_ports(self, public: Public) -> Ports:
        return self._ports(ClientThrottle(public.clients, public.buckets, self.clock))

    def _ports(self, throttle: Throttle) -> Ports:
        errors = {**ERRORS, Corrupt: self._damaged, sqlite3.DatabaseError: self._damaged}
        return Ports(parse_json=parse_json, errors=errors, throttle=throttle, clock=self.clock, new_id=self.new_id)

    def _damaged(self, error: BaseException) -> HttpError | None:
        return HttpError(503, DAMAGED) if self.is_damage(error) else None


def _api(mount: str, rooms: Iterable[object], ports: Ports, headers: Headers = ()) -> Api:
    api = Api(mount, ports, headers)
    for room in rooms:
        api.add(room)
    return api
