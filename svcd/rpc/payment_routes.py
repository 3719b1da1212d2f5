"""The public routes for merchants (docs/payments.md): requests, verification and lists, without account or key."""

from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final, Unpack

from attrs import evolve

from svcd.chain.address import decode_address
from svcd.chain.transaction import new_reference
from svcd.chain.units import format_amount
from svcd.chain_schemas import PRUNED
from svcd.commerce.payment import (
    DESCRIPTION,
    HASHES_PER_CORE_SECOND,
    HIGH_VALUE_CONFIRMATIONS,
    SETTLEMENT_MODEL,
    ChainTip,
    Observation,
    PaymentState,
    payment_json,
    payment_state,
)
from svcd.commerce.payment_list import (
    BEGINNING,
    Cursor,
    PaymentQuery,
    end_of,
    read_page,
    received_record,
    with_waiting,
)
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_request import (
    DEFAULT_CONFIRMATIONS,
    PROTOCOL,
    VERSION,
    PaymentRequest,
    PaymentTerms,
    parse_terms,
    request_record,
    resolve_amount,
    warning_of,
)
from svcd.commerce.payment_waiters import MAX_SECONDS, PaymentWaiters, TooManyWaiting
from svcd.commerce.reorg_cost import DEFAULT_COIN_PRICE, DEFAULT_HASH_PRICE, advised_confirmations
from svcd.node.chain_manager import ChainManager
from svcd.node.recipient_index import RecipientIndex
from svcd.rpc import fields, schemas
from svcd.rpc.chain_routes import ShowsChain, tip_at
from svcd.rpc.fields import OrderValues, terms_from
from svcd.store.chain_store import MAX_SCANNED
from svcd.web.responses import HttpError, Renderable, Response, json_body, tip_of, to_response, too_many_requests
from svcd.web.routes import Route, object_schema

UNPAID: Final = f"state={PaymentState.UNPAID}"
RETRY_SECONDS: Final = 2
"""The ``Retry-After`` in seconds of a request with ``wait`` if too many clients wait already."""


class CommerceRoutes(ShowsChain):
    """Stateless: the node keeps no order; ``random`` gives so many random bytes."""

    def __init__(
        self,
        chain_manager: ChainManager,
        payments: PaymentLookup,
        waiters: PaymentWaiters,
        *,
        random: Callable[[int], bytes],
        webhooks_enabled: bool,
    ) -> None:
        self._chain_manager = chain_manager
        self._waiters = waiters
        self._params = chain_manager.params
        self._payments = payments
        self._random = random
        self._info = self._render_info(webhooks_enabled)

    @Route(
        "GET",
        "/rpc/commerce/info",
        "The payment protocol, which is experimental, and how much confirmation it advises",
        bucket="read",
        answers={200: object_schema({"commerce": schemas.COMMERCE})},
    )
    def info(self) -> Renderable:
        """Answer GET /rpc/commerce/info."""
        return self._info

    def _render_info(self, webhooks_enabled: bool) -> Response:
        return to_response(
            {
                "commerce": {
                    "protocol": PROTOCOL,
                    "version": VERSION,
                    "networkId": self._params.network_id,
                    "chainId": self._params.chain_id,
                    "genesisHash": self._params.genesis_hash.hex(),
                    "description": DESCRIPTION,
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
        shows_chain=True,
        body_fields=(
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.NEW_REFERENCE,
            fields.LABEL,
            fields.CONFIRMATIONS,
        ),
        one_of=fields.AMOUNTS,
        body_name="NewPaymentRequest",
        answers={200: object_schema({"payment": schemas.PAYMENT_REQUEST})},
        example={"payment": {"warning": None}},
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
    ) -> Renderable:
        """Answer POST /rpc/commerce/payment-request."""
        terms = parse_terms(
            self._params,
            reference=reference or new_reference(self._random),
            recipient=recipient,
            amount=resolve_amount(amount, amount_base_units),
            required=confirmations,
        )
        request = PaymentRequest(terms, label)
        warning, tip = None, self.tip
        if terms.amount < self._params.account_minimum:
            account, read = self._chain_manager.read(lambda reader: reader.account(terms.key))
            warning = warning_of(self._params, terms.amount, balance=account.balance if account else 0)
            tip = tip_at(read)
        record = request_record(self._params, request, tip_height=self._chain_manager.tip.height, warning=warning)
        return Response(json_body({"payment": record}), tip=tip)

    @Route(
        "GET",
        "/rpc/commerce/payment/{reference}",
        "Whether an order is paid, by reference, recipient and exact amount",
        bucket="read",
        shows_chain=True,
        path_fields=(fields.REFERENCE,),
        query_fields=(*fields.ORDER_QUERY, fields.WAIT, fields.STATE),
        one_of=fields.AMOUNTS,
        answers={200: object_schema({"payment": schemas.PAYMENT})},
        errors={410: "This node has only later blocks than those in which the payment may be."},
        error_members=PRUNED,
        with_client=True,
        seconds=MAX_SECONDS + 5,
    )
    def payment(
        self,
        reference: str,
        *,
        wait: int | None,
        state: PaymentState | None,
        client: str | None,
        **order: Unpack[OrderValues],
    ) -> Renderable | Coroutine[Any, Any, Renderable]:
        """Answer GET /rpc/commerce/payment/{reference}."""
        terms = terms_from(self._params, reference, order)
        if wait is None:
            return self._payments.show(terms, _render_payment)
        if state is None:
            raise HttpError(400, f"state is missing: with wait, give the state of the last answer, such as {UNPAID}")
        return self._changed(terms, state, wait, client)

    @Route(
        "GET",
        "/rpc/commerce/confirmations",
        "How many confirmations make undoing a payment cost more than its amount",
        bucket="read",
        shows_chain=True,
        query_fields=(fields.AMOUNT, fields.AMOUNT_BASE_UNITS, fields.COIN_PRICE, fields.HASH_PRICE),
        one_of=fields.AMOUNTS,
        answers={200: object_schema({"confirmations": schemas.CONFIRMATIONS})},
    )
    def confirmations(
        self, *, amount: int | None, amount_base_units: int | None, coin_price: int | None, hash_price: int | None
    ) -> Renderable:
        """Answer GET /rpc/commerce/confirmations."""
        wanted, tip = resolve_amount(amount, amount_base_units), self._chain_manager.tip
        recent = self._payments.costs.recent(ChainTip(tip.height, tip.hash))
        coin_price, hash_price = coin_price or DEFAULT_COIN_PRICE, hash_price or DEFAULT_HASH_PRICE
        advice = advised_confirmations(wanted, coin_price, hash_price, recent.hashes_per_block)
        record = {
            "confirmations": advice.confirmations,
            "capped": advice.capped,
            "amount": str(wanted),
            "amountSvc": format_amount(wanted),
            "coinPrice": format_amount(coin_price),
            "hashPrice": format_amount(hash_price),
            "costToUndo": format_amount(advice.cost),
            "hashesPerBlock": str(recent.hashes_per_block),
            "hashesPerSecond": str(recent.hashes_per_second),
            "hashesPerCoreSecond": HASHES_PER_CORE_SECOND,
            "blocks": recent.blocks,
        }
        return Response(json_body({"confirmations": record}), tip=tip_at(tip))

    async def _changed(self, terms: PaymentTerms, state: PaymentState, wait: int, client: str | None) -> Renderable:
        """The payment once it has changed."""
        try:
            observation = await self._waiters.changed(terms, state, seconds=wait, client=client)
        except TooManyWaiting as many:
            raise too_many_requests(RETRY_SECONDS, str(many)) from many
        return _render_payment(terms, observation)


def _render_payment(terms: PaymentTerms, observation: Observation) -> Response:
    tip = tip_of(observation.tip.height, observation.tip.hash)
    payment = payment_json(terms, observation, payment_state(terms, observation))
    return Response(f'{{"ok":true,"payment":{payment}}}'.encode("ascii"), tip=tip)


class PaymentListRoutes(ShowsChain):
    """Transfers to an address, on the chain and in the mempool that ``incoming`` follows."""

    def __init__(self, chain_manager: ChainManager, payments: PaymentLookup, incoming: RecipientIndex) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._payments = payments
        self._incoming = incoming

    @Route(
        "GET",
        "/rpc/commerce/payments",
        "The transfers that an address has received, with their mismatches if an amount is given",
        bucket="read",
        shows_chain=True,
        cost=4,
        query_fields=(
            fields.RECIPIENT,
            fields.LISTED_REFERENCE,
            *fields.LISTED_AMOUNTS,
            fields.SINCE_HEIGHT,
            fields.LIMIT,
            fields.AFTER,
        ),
        answers={200: schemas.PAYMENTS},
        example={"payments": {"mismatch": None}},
        errors={410: "This node has only later blocks than those from which on to list."},
        error_members=PRUNED,
    )
    async def payments(
        self,
        *,
        recipient: object,
        reference: str | None,
        amount: int | None,
        amount_base_units: int | None,
        since_height: int | None,
        limit: int,
        after: Cursor | None,
    ) -> Renderable:
        """Answer GET /rpc/commerce/payments."""
        key = decode_address(recipient, self._params.address_prefix, "recipient")
        asked: int | None = None
        if amount is not None or amount_base_units is not None:
            asked = resolve_amount(amount, amount_base_units)
        begin = BEGINNING if since_height is None else end_of(since_height - 1)
        cursor = Cursor(begin, 0) if after is None else evolve(after, on_chain=max(after.on_chain, begin))
        query = PaymentQuery(key=key, reference=reference, after=cursor, limit=limit)
        order = None
        if asked is not None:
            order = asked, self._paid_by(reference, recipient, asked, since_height)
        waiting = self._incoming.oldest(key, after=query.after.arrival)
        # Taken before the chain is read: a transfer that a block includes meanwhile is found twice, not never.
        entries = list(islice(waiting, MAX_SCANNED + 1))
        page = await self._chain_manager.long_reads.ask(lambda reader: read_page(reader, self._params, query))
        page = with_waiting(page, entries, query)
        answer = {
            "payments": [received_record(each, self._params, page.tip, order) for each in page.received],
            "next": None if page.next is None else str(page.next),
            "tip": {"height": str(page.tip.height), "hash": page.tip.hash.hex()},
        }
        return Response(json_body(answer), tip=tip_at(page.tip))

    def _paid_by(self, reference: str | None, recipient: object, amount: int, since: int | None) -> bytes | None:
        """The txid of the transfer that counts as the payment of the order; raises HttpError without a reference."""
        if reference is None:
            raise HttpError(400, "an amount belongs to one order: give its reference too")
        terms = parse_terms(
            self._params,
            reference=reference,
            recipient=recipient,
            amount=amount,
            required=DEFAULT_CONFIRMATIONS,
            since_height=since,
        )
        return self._payments.find(terms).txid
