"""A node that connects blocks from a file while it serves: ``python -m benchmarks.fed_node FOLDER BLOCKS PORT``.

It serves the public site of the chain in FOLDER. At a line on its standard input it begins to hand in BLOCKS, a file
with one block a line; at the end of its input it stops.
"""

import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.task import react
from twisted.internet.threads import deferToThread

from benchmarks.living import feed, opened
from benchmarks.processes import DATABASE
from svcd.node.living import LivingChain
from svcd.node.status import Alone, Identity, Status
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Public, Sites
from svcd.web.buckets import Buckets, Rate
from svcd.web.clients import Clients
from svcd.web.limits import SiteLimits
from svcd.web.site import Site

# Twisted's endpoints are not annotated.
# mypy: allow-untyped-calls


def site_of(living: LivingChain, reactor: Any) -> Site:
    """The public site as the node builds it, for clients without limits."""
    status = Status(living.ledger, identity=Identity("svcnode_" + "00" * 16, ""), peers=Alone(True), clock=reactor)
    routes = ChainRoutes(living.ledger, transfers=living.transfers, status=status, clock=reactor)
    clients = Clients(exempt=["127.0.0.0/8"])
    buckets = Buckets({name: Rate(0, 1) for name in ("read", "broadcast")})
    return Sites(reactor, lambda: "").public([routes], Public(SiteLimits(), clients, buckets))


async def serve(reactor: Any, folder: Path, blocks: Path, port: str) -> None:
    """Serve until the standard input ends."""
    batches = [[block] for block in blocks.read_bytes().splitlines()]
    async with opened(folder / DATABASE, reactor) as living:
        endpoint = serverFromString(reactor, f"tcp:{port}:interface=127.0.0.1")
        listening = await endpoint.listen(site_of(living, reactor))
        if await deferToThread(sys.stdin.readline):
            await feed(living.ledger, batches)
            await deferToThread(sys.stdin.readline)
        await listening.stopListening()


def main() -> None:
    """Serve as the command line says."""
    folder, blocks, port = sys.argv[1:]
    react(lambda reactor: Deferred.fromCoroutine(serve(reactor, Path(folder), Path(blocks), port)))


if __name__ == "__main__":
    main()
