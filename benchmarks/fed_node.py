"""A node that connects blocks from a file while it serves: ``python -m benchmarks.fed_node FOLDER BLOCKS PORT``.

It serves the chain in FOLDER. At a line on its standard input it begins to hand in BLOCKS, a file
with one block a line; at the end of its input it stops.
"""

import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.task import react
from twisted.internet.threads import deferToThread

from benchmarks.local_node import feed, opened
from benchmarks.processes import DATABASE
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import PaymentWaiters
from svcd.node.network_view import NoPeers
from svcd.node.node_context import NodeContext
from svcd.node.recipient_index import RecipientIndex
from svcd.node.status import Status
from svcd.rpc.chain_routes import ChainRoutes
from svcd.rpc.feed_routes import FeedRoutes
from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.web.connections import SiteLimits
from svcd.web.rate_limits import NO_LIMIT, Clients, RateLimiter
from svcd.web.site import Site

# Twisted's endpoints are not annotated.
# mypy: allow-untyped-calls


def site_of(node_context: NodeContext, reactor: Any) -> Site:
    """The routes of the chain and of feeds on a site as the node builds it, without the limits on rates."""
    status = Status(
        node_context.chain_manager,
        node_id="svcnode_" + "00" * 16,
        endpoint="",
        peers=NoPeers(True),
        guard=node_context.guard,
        trouble=lambda: node_context.trouble,
    )
    routes = ChainRoutes(
        node_context.chain_manager, transaction_pool=node_context.transaction_pool, status=status, clock=reactor
    )
    chain_manager, pool = node_context.chain_manager, node_context.transaction_pool
    payments = PaymentLookup.subscribed(chain_manager, pool)
    waiters = PaymentWaiters.subscribed(payments, chain_manager, pool, clock=reactor)
    feed_routes = FeedRoutes(chain_manager, payments, waiters, RecipientIndex.subscribed(pool))
    limiter = RateLimiter(Clients(), {"read": NO_LIMIT, "broadcast": NO_LIMIT}, reactor)
    return SiteFactory(reactor, lambda: "").public([routes, feed_routes], PublicSite(SiteLimits(), limiter))


async def serve(reactor: Any, folder: Path, blocks: Path, port: str) -> None:
    """Serve until the standard input ends."""
    batches = [[block] for block in blocks.read_bytes().splitlines()]
    async with opened(folder / DATABASE, reactor) as node_context:
        endpoint = serverFromString(reactor, f"tcp:{port}:interface=127.0.0.1")
        listening = await endpoint.listen(site_of(node_context, reactor))
        if await deferToThread(sys.stdin.readline):
            await feed(node_context.chain_manager, batches)
            await deferToThread(sys.stdin.readline)
        await listening.stopListening()


def main() -> None:
    """Serve as the command line says."""
    folder, blocks, port = sys.argv[1:]
    react(lambda reactor: Deferred.fromCoroutine(serve(reactor, Path(folder), Path(blocks), port)))


if __name__ == "__main__":
    main()
