"""Making sure that a node answers the question whether an order is paid (docs/payments.md)."""

from svcd.commerce.payment import Terms
from svcd.wallet.answer import Answer, wrong


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
