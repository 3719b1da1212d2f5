"""Asking a node whether an order is paid, and making sure that it answers that question (docs/payments.md)."""

from typing import Final
from urllib.parse import urlencode

from svcd.commerce.payment import Terms
from svcd.wallet.answer import Answer, wrong

_PAYMENT: Final = "/rpc/commerce/payment"


def status_path(terms: Terms) -> str:
    """Where the state of the payment stands."""
    query: dict[str, object] = {
        "recipient": terms.recipient,
        "amountBaseUnits": terms.amount,
        "confirmations": terms.required,
    }
    if terms.since_height is not None:
        query["sinceHeight"] = terms.since_height
    return f"{_PAYMENT}/{terms.reference}?{urlencode(query)}"


def check_answer(payment: Answer, terms: Terms) -> None:
    """Raise Unanswered unless the answer is to this question: nobody may take another payment for this one."""
    asked = {"reference": terms.reference, "recipient": terms.recipient, "amount": str(terms.amount)}
    if terms.since_height is not None:
        asked["sinceHeight"] = str(terms.since_height)
    for name, value in asked.items():
        if payment.text(name) != value:
            raise wrong(f"payment.{name} is {payment.text(name)!r} and not {value!r}, which was asked for")
    if payment.count("requiredConfirmations") != terms.required:
        raise wrong(f"payment.requiredConfirmations is not {terms.required}, which was asked for")
