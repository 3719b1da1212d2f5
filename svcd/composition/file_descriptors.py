"""Open files: raising the process's limit, and how many connections of clients fit (docs/troubleshooting.md)."""

import resource
from typing import Final

from attrs import evolve
from twisted.logger import Logger

from svcd.commerce.delivery_scheduler import max_deliveries_in_flight
from svcd.composition.merchants import look_ups
from svcd.config.schema import Config
from svcd.limits import IDLE_CONNECTIONS, limit
from svcd.net.http_client import MAX_CALLS
from svcd.process.listener import ACCEPTED_AT_ONCE

OPEN_FILES: Final = 16_384
"""The limit that systemd/svcd.service grants too: enough for connections of clients and peers and the databases."""
FILES: Final = 48
"""Databases with their logs, a backup, pipes, listening sockets: an idle node has 21 open."""
LOOK_UPS: Final = 16
"""Concurrent DNS look-ups for peers, each on a socket."""
OPERATOR_CONNECTIONS: Final = limit(32, "connections of the operator", "connections", IDLE_CONNECTIONS)
"""Concurrent connections to the operator's socket, and as many to the operator's port."""

HEALTH_CONNECTIONS: Final = limit(32, "connections for health checks", "connections", IDLE_CONNECTIONS)
"""Concurrent connections to the port for health checks."""
HEALTH_CONNECTIONS_PER_CLIENT: Final = limit(
    8, "connections of one client for health checks", "connections", IDLE_CONNECTIONS
)
_LOG = Logger()


def raise_open_files_limit() -> int:
    """Raise the soft RLIMIT_NOFILE to OPEN_FILES, or as far as the hard limit allows, and return the limit in force.

    Many shells start with 1,024. A soft limit that is higher stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target)


def fit_connections(config: Config, open_files: int) -> Config:
    """Lower `[limits] connections` of ``config`` to what fits among ``open_files`` descriptors, and log it."""
    limits, maximum = config.limits, max_connections(open_files, config)
    if limits.connections and limits.connections <= maximum:
        return config
    if limits.connections:
        _LOG.warn(
            "clients get {connections} connections at once, not the {wanted} of [limits] connections: the system lets "
            "the node open {granted} files only, and some are kept for databases, peers and the operator",
            connections=maximum,
            wanted=limits.connections,
            granted=open_files,
        )
    return evolve(config, limits=evolve(limits, connections=maximum))


def max_connections(open_files: int, config: Config) -> int:
    """How many connections each public site may have where the process may have ``open_files`` descriptors.

    Clients get at least a quarter of them, however few there are.
    """
    sites = 2 if config.p2p.enabled and config.p2p.listen else 1
    # A connection that is refused or evicted keeps its descriptor for one or two iterations of the reactor.
    closing = 2 * ACCEPTED_AT_ONCE * sites
    peers = config.p2p.outbound * sum(MAX_CALLS.values()) if config.p2p.enabled else 0
    merchants = len(config.commerce.all_merchants) if config.commerce.webhooks.enabled else 0
    callbacks = look_ups(merchants) + max_deliveries_in_flight(merchants)
    health = HEALTH_CONNECTIONS if config.operator.health_listen else 0
    reserved = FILES + LOOK_UPS + 2 * OPERATOR_CONNECTIONS + health + closing + peers + callbacks
    return max(open_files - reserved, open_files // 4, sites) // sites
