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

from benchmarks.living import feed, opened
from benchmarks.processes import DATABASE
from svcd.node.living import LivingChain
from svcd.node.status import Alone, Identity, Status
from svcd.rpc.resource import ChainRoutes
from svcd.rpc.sites import Sites
from svcd.web.limits import SiteLimits
from svcd.web.site import Site

# Twisted's endpoints are not annotated.
# mypy: allow-untyped-calls


def site_of(living: LivingChain, reactor: Any) -> Site:
    """The chain routes on a site as the node builds it, without the limits on rates."""
    status = Status(
        living.ledger,
        identity=Identity("svcnode_" + "00" * 16, ""),
        peers=Alone(True),
        clock=reactor,
        trouble=lambda: living.trouble,
    )
    routes = ChainRoutes(living.ledger, transfers=living.transfers, status=status, clock=reactor)
    return Sites(reactor, lambda: "").operator([routes], SiteLimits())


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
