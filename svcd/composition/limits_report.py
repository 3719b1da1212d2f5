"""The limits in force, for `/operator/limits`: those of the configuration, and the LIMITS of each module."""

from typing import Final

from svcd.chain import encoding
from svcd.commerce import (
    circuit_breaker,
    delivery_scheduler,
    payment_list,
    payment_waiters,
    retry_policy,
    sender,
    statement,
    subscriptions,
)
from svcd.composition import file_descriptors
from svcd.config.schema import Config
from svcd.limits import Limit
from svcd.net import meter
from svcd.node import chain_manager, chainstate, disconnected_transfers, mempool, node_context
from svcd.p2p import (
    address_book,
    administration,
    announcements,
    bans,
    block_download,
    branch_push,
    call_budget,
    chain_sync,
    client,
    handshake,
    headers,
    peers,
    relay,
    routes,
    transport,
)
from svcd.process import listener, logs
from svcd.web import channel, connections, rate_limits, slow_path, unsent, untrusted_proxies
from svcd.web import routes as web_routes

_CONSTANTS: Final[tuple[tuple[Limit, ...], ...]] = (
    file_descriptors.LIMITS,
    listener.LIMITS,
    channel.LIMITS,
    connections.LIMITS,
    slow_path.LIMITS,
    unsent.LIMITS,
    web_routes.LIMITS,
    rate_limits.LIMITS,
    untrusted_proxies.LIMITS,
    encoding.LIMITS,
    logs.LIMITS,
    mempool.LIMITS,
    disconnected_transfers.LIMITS,
    node_context.LIMITS,
    chain_manager.LIMITS,
    chainstate.LIMITS,
    handshake.LIMITS,
    address_book.LIMITS,
    call_budget.LIMITS,
    peers.LIMITS,
    chain_sync.LIMITS,
    headers.LIMITS,
    block_download.LIMITS,
    announcements.LIMITS,
    relay.LIMITS,
    branch_push.LIMITS,
    routes.LIMITS,
    client.LIMITS,
    transport.LIMITS,
    meter.LIMITS,
    bans.LIMITS,
    administration.LIMITS,
    statement.LIMITS,
    payment_list.LIMITS,
    payment_waiters.LIMITS,
    subscriptions.LIMITS,
    sender.LIMITS,
    delivery_scheduler.LIMITS,
    retry_policy.LIMITS,
    circuit_breaker.LIMITS,
)


def limits_of(config: Config) -> list[Limit]:
    """The limits of a node with this configuration."""
    return [*config.configured_limits, *(limit for limits in _CONSTANTS for limit in limits)]
