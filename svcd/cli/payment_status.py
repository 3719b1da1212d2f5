"""The state of a payment as a node reports it."""

from svcd.cli.http_client import NodeClient, ResponseObject, invalid_response
from svcd.commerce.payment_request import PaymentTerms, status_path


def payment_status(node: NodeClient, terms: PaymentTerms) -> ResponseObject:
    """The node's payment object for ``terms``; raises CommandError, even if it is for other terms."""
    payment = node.get(status_path(terms)).object("payment")
    expected = {"reference": terms.reference, "recipient": terms.recipient, "amount": str(terms.amount)}
    if terms.since_height is not None:
        expected["sinceHeight"] = str(terms.since_height)
    for name, value in expected.items():
        if payment.text(name) != value:
            raise invalid_response(f"payment.{name} is {payment.text(name)!r}, but {value!r} was requested")
    if payment.count("requiredConfirmations") != terms.required:
        raise invalid_response(f"payment.requiredConfirmations is not {terms.required}, which was requested")
    return payment
