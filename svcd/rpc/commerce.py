"""The public routes for merchants (docs/payments.md): requests and verification, which need no account and no key."""

from collections.abc import Callable

from svcd.commerce.looking import Payments
from svcd.commerce.payment import (
    DEFAULT_CONFIRMATIONS,
    HIGH_VALUE_CONFIRMATIONS,
    SETTLEMENT_MODEL,
    payment_record,
)
from svcd.commerce.request import PROTOCOL, VERSION, new_reference, request_record
from svcd.commerce.terms import one_amount, terms_of
from svcd.commerce.uri import PaymentRequest
from svcd.node.ledger import Ledger
from svcd.rpc import payment_fields as fields
from svcd.rpc import schemas
from svcd.web.answers import Answer, Rendered, rendered
from svcd.web.routing import Route, object_schema


class CommerceRoutes:
    """Stateless: the node keeps no order; ``random`` gives so many random bytes."""

    def __init__(
        self, ledger: Ledger, payments: Payments, *, random: Callable[[int], bytes], webhooks_enabled: bool
    ) -> None:
        self._ledger = ledger
        self._params = ledger.params
        self._payments = payments
        self._random = random
        self._info = self._render_info(webhooks_enabled)

    @Route(
        "GET",
        "/rpc/commerce/info",
        "The payment protocol and how much confirmation it advises",
        bucket="read",
        answers={200: object_schema({"commerce": schemas.COMMERCE})},
    )
    def info(self) -> Answer:
        """Answer GET /rpc/commerce/info."""
        return self._info

    def _render_info(self, webhooks_enabled: bool) -> Rendered:
        return rendered(
            {
                "commerce": {
                    "protocol": PROTOCOL,
                    "version": VERSION,
                    "networkId": self._params.network_id,
                    "chainId": self._params.chain_id,
                    "defaultConfirmations": DEFAULT_CONFIRMATIONS,
                    "highValueConfirmations": HIGH_VALUE_CONFIRMATIONS,
                    "hardFinality": False,
                    "settlementModel": SETTLEMENT_MODEL,
                    "webhooksEnabled": webhooks_enabled,
                }
            }
        )

    @Route(
        "POST",
        "/rpc/commerce/payment-request",
        "Make a payment request for an order; nothing is stored",
        bucket="read",
        body_fields=(
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.NEW_REFERENCE,
            fields.LABEL,
            fields.CONFIRMATIONS,
        ),
        answers={200: object_schema({"payment": schemas.PAYMENT_REQUEST})},
    )
    def payment_request(
        self,
        *,
        recipient: object,
        amount: int | None,
        amount_base_units: int | None,
        reference: str | None,
        label: str | None,
        confirmations: int,
    ) -> Answer:
        """Answer POST /rpc/commerce/payment-request."""
        terms = terms_of(
            self._params,
            reference=reference or new_reference(self._random),
            recipient=recipient,
            amount=one_amount(amount, amount_base_units),
            required=confirmations,
        )
        request = PaymentRequest(terms, label)
        return {"payment": request_record(self._params, request, tip_height=self._ledger.tip.height)}

    @Route(
        "GET",
        "/rpc/commerce/payment/{reference}",
        "Whether an order is paid, by reference, recipient and exact amount",
        bucket="read",
        path_fields=(fields.REFERENCE,),
        query_fields=fields.ORDER_QUERY,
        answers={200: object_schema({"payment": schemas.PAYMENT})},
    )
    def payment(
        self,
        reference: str,
        *,
        recipient: object,
        amount: int | None,
        amount_base_units: int | None,
        confirmations: int,
        since_height: int | None,
    ) -> Answer:
        """Answer GET /rpc/commerce/payment/{reference}."""
        terms = terms_of(
            self._params,
            reference=reference,
            recipient=recipient,
            amount=one_amount(amount, amount_base_units),
            required=confirmations,
            since_height=since_height,
        )
        return {"payment": payment_record(terms, self._payments.look(terms))}
