"""Webhooks joined together on an open chain."""

from collections.abc import Callable

from attrs import frozen

from svcd.commerce.attempt import Sender
from svcd.commerce.delivery import Deliveries
from svcd.commerce.desk import Desk
from svcd.commerce.stored_outbox import StoredOutbox
from svcd.commerce.webhooks import Surroundings, Webhooks
from svcd.node.living import LivingChain


@frozen
class Merchants:
    """What is done for merchants while the node runs."""

    webhooks: Webhooks
    deliveries: Deliveries

    def record(self) -> dict[str, object]:
        """How they stand, for the operator (docs/operations.md "Operator interface")."""
        counts, standing = self.deliveries.counts(), self.webhooks.standing
        since = standing.waiting_since
        return {
            "watches": standing.watches,
            "waiting": counts.waiting,
            "inFlight": counts.in_flight,
            "oldestWaitingSince": None if since is None else str(since),
            "brokenHosts": counts.broken_hosts,
            "abandoned": counts.abandoned,
        }


def join(
    desk: Desk, living: LivingChain, *, sender: Sender, synced: Callable[[], bool], chance: Callable[[], float]
) -> Merchants:
    """Let the open ``desk`` hear of chain and mempool, and send what it has to say.

    ``synced`` tells whether the tip may be taken for the network's; ``chance`` gives numbers from 0 to 1.
    """
    transfers, ledger = living.transfers, living.ledger
    deliveries = Deliveries(StoredOutbox(desk.subscriptions, desk.worker), sender, clock=living.clock, chance=chance)
    around = Surroundings(clock=living.clock, synced=synced, busy=lambda: ledger.busy, settled=transfers.settled)
    webhooks = Webhooks(desk.subscriptions, desk.worker, sender=deliveries, surroundings=around)
    webhooks.begin(transfers.mempool.entries())
    # After the mempool, which takes back what a block that is undone held.
    ledger.subscribe(webhooks)
    transfers.subscribe(webhooks)
    return Merchants(webhooks, deliveries)
