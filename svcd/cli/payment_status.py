"""The state of a payment as a node reports it, at once or when it has changed (docs/payments.md)."""

from collections.abc import Callable
from typing import Final

from svcd.cli.answers import ResponseObject
from svcd.cli.errors import CommandError, is_final
from svcd.cli.http_client import NodeClient
from svcd.commerce.payment_request import PaymentTerms, status_path

LONG_POLL_SECONDS: Final = 20
"""For how long a node may keep its answer; less than a request may take."""
_PAUSE_SECONDS: Final = 2.0
"""Before a node is asked again that did not answer, or that did not wait."""


def awaited_payment(
    node: NodeClient, terms: PaymentTerms, seconds: int, told: Callable[[ResponseObject], None]
) -> ResponseObject:
    """The payment when it is settled, or after ``seconds``; ``told`` gets each answer before that.

    Raises CommandError if the node refuses the question, or does not answer at last.
    """
    end = node.clock.monotonic() + seconds
    payment = payment_status(node, terms)
    while not is_settled(payment) and (left := end - node.clock.monotonic()) > 0:
        told(payment)
        asked = node.clock.monotonic()
        wait = max(min(LONG_POLL_SECONDS, int(left)), 1)
        try:
            payment = payment_status(node, terms, f"&wait={wait}&state={payment.text('state')}")
        except CommandError as error:
            if is_final(error) or end - node.clock.monotonic() <= _PAUSE_SECONDS:
                raise
        if not is_settled(payment) and node.clock.monotonic() - asked < 1:
            node.clock.sleep(_PAUSE_SECONDS)
    return payment


def is_settled(payment: ResponseObject) -> bool:
    """Whether a payment has its confirmations, on a node that is in sync."""
    return payment.text("state") == "confirmed" and ("node" not in payment or payment.object("node").flag("synced"))


def payment_status(node: NodeClient, terms: PaymentTerms, waiting: str = "") -> ResponseObject:
    """The node's payment object for ``terms``; raises CommandError, even if it is for other terms.

    ``waiting`` is the part of the query that lets the node wait for a change.
    """
    payment = node.get(status_path(terms) + waiting).object("payment")
    payment.check(
        reference=terms.reference,
        recipient=terms.recipient,
        amount=str(terms.amount),
        requiredConfirmations=terms.required,
        sinceHeight=None if terms.since_height is None else str(terms.since_height),
    )
    return payment
