"""How the descriptors that the system grants are shared among clients and everything else (docs/operations.md)."""

from typing import Final

from attrs import evolve
from twisted.logger import Logger

from svcd.commerce import lanes
from svcd.config.schema import Config
from svcd.net.pinned import PLACES
from svcd.process.listening import ACCEPTED_AT_ONCE

FILES: Final = 48
"""Databases with their logs, a backup, pipes, listening sockets: an idle node has 21 open."""
LOOK_UPS: Final = 32
"""Names that are looked up at once, each on a socket."""
OPERATOR_CONNECTIONS: Final = 32
"""Open at once at the operator's socket, and as many at the operator's port."""

_LOG = Logger()


def fitted(config: Config, granted: int) -> Config:
    """``config`` with no more connections for clients than fit among ``granted`` open files; the log says so."""
    limits, most = config.limits, connections_within(granted, config)
    if limits.connections and limits.connections <= most:
        return config
    if limits.connections:
        _LOG.warn(
            "clients get {connections} connections at once, not the {wanted} of [limits] connections: the system lets "
            "the node open {granted} files only, and some are kept for databases, peers and the operator",
            connections=most,
            wanted=limits.connections,
            granted=granted,
        )
    return evolve(config, limits=evolve(limits, connections=most))


def connections_within(granted: int, config: Config) -> int:
    """How many connections each public site may have open where the process may open ``granted`` files.

    Clients get a quarter at least, however few there are.
    """
    sites = 2 if config.p2p.enabled and config.p2p.listen else 1
    # A connection that is refused or gives way has its descriptor for one or two turns of the reactor more.
    closing = 2 * ACCEPTED_AT_ONCE * sites
    peers = config.p2p.outbound * sum(PLACES.values()) if config.p2p.enabled else 0
    callbacks = lanes.PLACES if config.commerce.webhooks.enabled else 0
    reserve = FILES + LOOK_UPS + 2 * OPERATOR_CONNECTIONS + closing + peers + callbacks
    return max(granted - reserve, granted // 4, sites) // sites
