"""The routes for merchants, joined together."""

from collections.abc import Callable

from svcd.commerce.looking import Payments
from svcd.node.living import LivingChain
from svcd.node.threads import Worker
from svcd.rpc.commerce import CommerceRoutes
from svcd.rpc.proof import ProofRoutes
from svcd.rpc.webhooks import WebhookRoutes


def merchant_rooms(
    living: LivingChain,
    webhooks: WebhookRoutes,
    *,
    payments: Payments,
    verifier: Worker,
    random: Callable[[int], bytes],
) -> list[object]:
    """Requests, verification, proofs and webhooks on an open chain; ``random`` gives so many random bytes."""
    enabled = not webhooks.offer.problem
    return [
        CommerceRoutes(living.ledger, payments, random=random, webhooks_enabled=enabled),
        ProofRoutes(living.ledger, payments, verifier),
        webhooks,
    ]
