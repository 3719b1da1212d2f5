"""The public route that lists the transfers that an address has received (docs/payments.md)."""

from itertools import islice

from attrs import evolve

from svcd.chain.address import decode_address
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
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS, parse_terms, resolve_amount
from svcd.node.chain_manager import ChainManager
from svcd.node.recipient_index import RecipientIndex
from svcd.rpc import fields, schemas
from svcd.rpc.tip import ShowsChain, tip_at
from svcd.store.chain_store import LOOKED_AT
from svcd.web.responses import HttpError, Renderable, Response, json_body
from svcd.web.routes import Route


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
        "The transfers that an address has received, and against an amount what is wrong with each",
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
        entries = list(islice(waiting, LOOKED_AT + 1))
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
