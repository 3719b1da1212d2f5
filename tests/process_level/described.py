"""What every node says of its public routes, without asking one: the same for all, whatever is switched on."""

from functools import cache
from typing import Any

from svcd.p2p.routes import BlockRoutes, PeerRoutes
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.payment_routes import CommerceRoutes, ProofRoutes
from svcd.rpc.sites import CatalogRoute, OpenApiRoute
from svcd.rpc.webhook_routes import WebhookRoutes
from svcd.web.openapi import document
from svcd.web.routes import routes_of
from tests.rpc.description import Asked, Description
from tests.web.wire import Response

RPC = (ChainRoutes, CommerceRoutes, ProofRoutes, WebhookRoutes, CatalogRoute, OpenApiRoute)


@cache
def description(mount: str) -> Description:
    """Of what is below ``/rpc``, which pages of others may read, or below ``/p2p``."""
    owners = RPC if mount == "/rpc" else (PeerRoutes, BlockRoutes)
    routes = [route for owner in owners for route, _ in routes_of(owner.__new__(owner))]
    described: Any = document(routes, {"title": "svcd", "version": "0"})
    return Description(described, cors=mount == "/rpc")


def check(asked: Asked, response: Response) -> None:
    """Fail unless an answer of a public route is one that the node announces."""
    mount = "/" + asked.path.split("/")[1]
    if mount in ("/rpc", "/p2p"):
        description(mount).check(asked, response)
