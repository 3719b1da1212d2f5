"""Builds the HTTP sites of a node: public, between nodes, and for the operator, each with its OpenAPI document."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

import apsw
from attrs import field, frozen
from twisted.web.resource import Resource

from svcd.chain.encoding import CONTAINER_BYTES, FREE_VALUES, MAX_DEPTH, MEMBER_BYTES, parse_json
from svcd.chain.errors import Corrupt, NotYet, RuleViolation
from svcd.chain_schemas import SOME_ADDRESS
from svcd.interfaces import Clock
from svcd.limits import limit
from svcd.node.status import SOFTWARE_VERSION
from svcd.rpc import schemas
from svcd.rpc.event_schemas import WEBHOOKS
from svcd.rpc.openapi import About, Tag, document
from svcd.store.database import DatabaseUnavailable, DiskError, is_disk_trouble
from svcd.store.pruned import Pruned
from svcd.web.api import UNROUTED_BUCKET, SiteContext, accept
from svcd.web.connections import SiteLimits, UnreadBudget
from svcd.web.field_types import Schema, component
from svcd.web.rate_limits import NO_LIMIT, Clients, RateLimiter
from svcd.web.resources import CORS_HEADERS, Branch, check_host
from svcd.web.responses import (
    Cached,
    ErrorTable,
    HttpError,
    Renderable,
    Response,
    service_unavailable,
    to_response,
)
from svcd.web.routes import Route, object_schema
from svcd.web.site import Site
from svcd.web.slow_path import KleinApi

_MANY_OBJECTS: Final = "Deeply nested JSON, millions of empty arrays, long integers, or a query of thousands of names"
limit(MAX_DEPTH, "levels of nesting in JSON", "levels", _MANY_OBJECTS)
limit(FREE_VALUES, "arrays and objects in JSON of any size, and as many commas", "values", _MANY_OBJECTS)
limit(CONTAINER_BYTES, "bytes of JSON for each further array or object", "bytes", _MANY_OBJECTS)
limit(MEMBER_BYTES, "bytes of JSON for each further comma", "bytes", _MANY_OBJECTS)

_TAGS: Final = (
    Tag("chain", "/rpc/", "The chain, accounts and transfers, for wallets and explorers."),
    Tag(
        "payments", "/rpc/commerce/", "Payments of orders, for shops. They need no token, and the node stores no order."
    ),
    Tag(
        "webhooks",
        "/rpc/commerce/webhooks",
        "Watches: a shop registers one for an order, and the node posts an event to the shop whenever the payment "
        "changes. They need the merchant's management token.",
    ),
    # Not `webhooks` too: generators make a file of each tag, once of the routes and once of the events.
    Tag("events", "", "The events that the node posts to shops. Check the signature before you use one."),
    Tag("nodes", "/p2p/", "The exchange of blocks and transfers between nodes. Other programs do not need it."),
    Tag("operator", "/", "Health, measurements and administration of the node."),
)


def _info(description: str) -> dict[str, object]:
    return {
        "title": "svcd",
        "version": SOFTWARE_VERSION,
        "description": description,
        "contact": {"name": "The developers of svcd"},
        "license": {"name": "MIT", "identifier": "MIT"},
    }


_PUBLIC: Final = """\
The public interface of a node: the chain, payments, webhooks, and the exchange between nodes. No account and no key \
is needed, except for webhooks.

**Answers** are JSON objects in UTF-8. A success has `ok`, which is true, beside its data. Every other answer has \
`ok`, which is false, and `error`, one sentence that says what is wrong and what would be right. The sentences are \
for people and may change; the statuses do not.

**Requests.** Methods and paths are case-sensitive, and paths have no slash at the end. A body is a JSON object, \
whatever its `Content-Type`, and an unknown member in it is an error. An unknown parameter in a query is ignored, and \
a known one must not be repeated. HEAD is answered wherever GET is, and OPTIONS on every path under `/rpc`.

**Numbers.** Heights, slots, nonces, times and amounts in base units are strings of decimal digits, at most \
9007199254740991 (2^53 - 1). Counts are JSON numbers. One coin is 10^8 base units. Members whose names end in `Svc` \
are amounts in coins. Times are in milliseconds since 1970-01-01 UTC, unless a name says seconds. Hex is in lower case.

**Rates.** A client may make so many requests a second of each kind: `read`, `broadcast`, `proofs`, `webhooks` and \
`p2p`. Each route says which rate it counts towards, and as how many requests. Beyond the rate the answer is 429.

**Examples** are invented. Addresses, keys, hashes, ids and signatures in them are placeholders: they repeat where \
real ones differ, and no signature is valid."""


def public_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the public interface, with the webhooks."""
    about = About(info=_info(_PUBLIC), tags=_TAGS, narrowed=narrowed, shared_below="/rpc")
    return _for_network(document(routes, about, WEBHOOKS), narrowed)


def _for_network(described: dict[str, object], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """The document with an address of this node's network in the place of mainnet's, which is part of longer examples.

    Without the network, the document as it is.
    """
    examples: Any = narrowed["Address"]["examples"] if narrowed else [SOME_ADDRESS]
    address = str(examples[0])

    def replaced(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: replaced(member) for name, member in value.items()}
        if isinstance(value, list):
            return [replaced(member) for member in value]
        return value.replace(SOME_ADDRESS, address) if isinstance(value, str) else value

    return described if address == SOME_ADDRESS else {name: replaced(member) for name, member in described.items()}


def peers_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the routes between nodes, where they have an endpoint of their own."""
    return document(routes, About(info=_info("A node's interface for other nodes."), tags=_TAGS, narrowed=narrowed))


def operator_document(routes: Iterable[Route], narrowed: Mapping[str, Schema]) -> dict[str, object]:
    """Of the operator's interface."""
    return document(routes, About(info=_info("A node's interface for its operator."), tags=_TAGS, narrowed=narrowed))


MEDIA_TYPE: Final = "application/vnd.oai.openapi+json;version=3.1"


_SUMMARY: Final = "This description, in OpenAPI 3.1"
_DOCUMENT: Final[Schema] = component(
    "OpenApiDocument",
    {
        "type": "object",
        "properties": {"openapi": {"type": "string", "examples": ["3.1.1"]}},
        "required": ["openapi"],
        "description": "A document as https://spec.openapis.org/oas/v3.1.1 describes it.",
    },
)


class _Document:
    """An OpenAPI document, which ``make`` makes on the first request."""

    def __init__(self, make: Callable[[], Mapping[str, object]]) -> None:
        self._make = make
        self._kept: Cached[Response] = Cached()

    def _answer(self) -> Response:
        return self._kept.get(None, self._render)

    def _render(self) -> Response:
        return Response(
            json.dumps(self._make(), separators=(",", ":")).encode(), content_type=MEDIA_TYPE.encode("ascii")
        )


class OpenApiRoute(_Document):
    """The description of the public interface."""

    @Route("GET", "/rpc/openapi.json", _SUMMARY, bucket="read", answers={200: _DOCUMENT}, media_type=MEDIA_TYPE)
    def openapi(self) -> Renderable:
        """Answer GET /rpc/openapi.json."""
        return self._answer()


class PeersOpenApiRoute(_Document):
    """The description of the routes between nodes, where they have an endpoint of their own."""

    @Route("GET", "/p2p/openapi.json", _SUMMARY, bucket="p2p", answers={200: _DOCUMENT}, media_type=MEDIA_TYPE)
    def openapi(self) -> Renderable:
        """Answer GET /p2p/openapi.json."""
        return self._answer()


class OperatorOpenApiRoute(_Document):
    """The description of the operator's interface, which is no secret."""

    @Route(
        "GET", "/operator/openapi.json", _SUMMARY, bucket="operator", answers={200: _DOCUMENT}, media_type=MEDIA_TYPE
    )
    def openapi(self) -> Renderable:
        """Answer GET /operator/openapi.json."""
        return self._answer()


_PREFIX: Final = "/rpc/commerce/"


class CatalogRoute:
    """Lists the merchants' routes among those that ``routes`` returns on the first request."""

    def __init__(self, routes: Callable[[], Iterable[Route]]) -> None:
        self._routes = routes
        self._kept: Cached[Response] = Cached()

    @Route(
        "GET",
        "/rpc/commerce/catalog",
        "This list of the routes for merchants",
        bucket="read",
        answers={200: object_schema({"catalog": schemas.CATALOG})},
    )
    def catalog(self) -> Renderable:
        """Answer GET /rpc/commerce/catalog."""
        return self._kept.get(None, self._render)

    def _render(self) -> Response:
        return to_response({"catalog": [_entry(route) for route in self._routes() if route.path.startswith(_PREFIX)]})


def _entry(route: Route) -> dict[str, str]:
    schemes = [guard.scheme for guard in route.guards if guard.scheme]
    return {
        "method": route.method,
        "path": route.path,
        "description": route.summary,
        "authentication": schemes[0] if schemes else "none",
    }


DAMAGED: Final = "the node's database is damaged, and the node stops"
DISK_TROUBLE: Final = "the node cannot write to its disk at present; nothing has changed, so try again later"
UNAVAILABLE: Final = "the database of the webhooks does not answer at present; try again later"
UNAVAILABLE_SECONDS: Final = 5
"""The ``Retry-After`` of that error."""


def _disk_trouble(error: BaseException) -> HttpError | None:
    return HttpError(503, DISK_TROUBLE) if is_disk_trouble(error) else None


ERRORS: Final[ErrorTable] = {
    RuleViolation: lambda violation: HttpError(400, violation.detail),
    NotYet: lambda reason: HttpError(503, reason.detail),
    Pruned: lambda error: HttpError(410, str(error), members={"pruneHeight": str(error.prune_height)}),
    apsw.Error: _disk_trouble,
    DiskError: _disk_trouble,
    DatabaseUnavailable: lambda _: service_unavailable(UNAVAILABLE, UNAVAILABLE_SECONDS),
}
"""The HTTP errors for exceptions of chain, node and store."""
_OPERATOR_RATES: Final = {UNROUTED_BUCKET: NO_LIMIT, "operator": NO_LIMIT}


def _undamaged(_: BaseException) -> bool:
    return False


@frozen
class PublicSite:
    """The limits of the public sites, which share the rate limits."""

    limits: SiteLimits
    limiter: RateLimiter


@frozen
class SiteFactory:
    """Builds the sites of a node; ``new_id`` makes the ids under which the log has unexpected errors.

    ``is_damage`` says whether an error means a damaged database, and if so stops the node.
    """

    clock: Clock
    new_id: Callable[[], str]
    is_damage: Callable[[BaseException], bool] = _undamaged
    narrowed: Mapping[str, Schema] = field(factory=dict)
    """The components of the OpenAPI documents that this node's network narrows (svcd.chain_schemas.of_network)."""
    unread: UnreadBudget = field(factory=UnreadBudget)
    """Bounds the unread responses of all these sites."""

    def public(
        self,
        routes: Iterable[object],
        public: PublicSite,
        *,
        peers: Iterable[object] = (),
        pages: Callable[[SiteContext], Resource] | None = None,
    ) -> Site:
        """``routes`` and their OpenAPI document under ``/rpc``, ``peers`` under ``/p2p``, ``pages`` elsewhere.

        ``pages`` gets what all routes of the site share.
        """
        context = self._context(public.limiter)
        rpc, p2p = KleinApi("/rpc", context, shared=True), KleinApi("/p2p", context)
        described = OpenApiRoute(lambda: public_document(rpc.routes + p2p.routes, self.narrowed))
        rpc.add(*routes, CatalogRoute(lambda: rpc.routes), described)
        p2p.add(*peers)
        root: Any = Branch(pages(context) if pages else None)
        root.putChild(b"p2p", p2p)
        root.putChild(b"rpc", rpc)
        return self._site(root, public, context)

    def between_nodes(self, peers: Iterable[object], public: PublicSite) -> Site:
        """Only ``peers`` under ``/p2p``, for an endpoint of their own."""
        context = self._context(public.limiter)
        root: Any = Branch()
        p2p = KleinApi("/p2p", context)
        p2p.add(*peers, PeersOpenApiRoute(lambda: peers_document(p2p.routes, self.narrowed)))
        root.putChild(b"p2p", p2p)
        return self._site(root, public, context)

    def operator(
        self,
        routes: Iterable[object],
        limits: SiteLimits,
        *,
        hosts: Collection[str] | None = None,
        described: bool = True,
    ) -> Site:
        """``routes`` at the root, without rate limits, and their OpenAPI document if they are ``described``.

        ``hosts`` are the allowed ``Host`` names, None for any.
        """
        clients = Clients()
        limiter = RateLimiter(clients, _OPERATOR_RATES, self.clock, note_forwarding=False)
        check = accept if hosts is None else partial(check_host, hosts=frozenset(hosts))
        api: Any = KleinApi("", self._context(limiter), check=check)
        api.add(*routes)
        if described:
            api.add(OperatorOpenApiRoute(lambda: operator_document(api.routes, self.narrowed)))
        return Site(api, limits=limits, unread=self.unread, clients=clients, clock=self.clock, new_id=self.new_id)

    def _site(self, root: Any, public: PublicSite, context: SiteContext) -> Site:
        return Site(
            root,
            limits=public.limits,
            unread=self.unread,
            clients=public.limiter.clients,
            clock=self.clock,
            new_id=self.new_id,
            headers_by_prefix={b"/rpc": CORS_HEADERS},
            router=context.router,
        )

    def _context(self, limiter: RateLimiter) -> SiteContext:
        errors = {**ERRORS, Corrupt: self._damaged, apsw.Error: self._of_database}
        return SiteContext(parse_json=parse_json, errors=errors, limiter=limiter, clock=self.clock, new_id=self.new_id)

    def _of_database(self, error: BaseException) -> HttpError | None:
        return _disk_trouble(error) or self._damaged(error)

    def _damaged(self, error: BaseException) -> HttpError | None:
        return HttpError(503, DAMAGED) if self.is_damage(error) else None
