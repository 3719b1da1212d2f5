"""The state of a payment as a node reports it."""

from svcd.cli.answers import ResponseObject
from svcd.cli.http_client import NodeClient
from svcd.commerce.payment_request import PaymentTerms, status_path


def payment_status(node: NodeClient, terms: PaymentTerms) -> ResponseObject:
    """The node's payment object for ``terms``; raises CommandError, even if it is for other terms."""
    payment = node.get(status_path(terms)).object("payment")
    payment.check(
        reference=terms.reference,
        recipient=terms.recipient,
        amount=str(terms.amount),
        requiredConfirmations=terms.required,
        sinceHeight=None if terms.since_height is None else str(terms.since_height),
    )
    return payment
