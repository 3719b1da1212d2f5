"""The public route that gives proofs of payment (docs/payment-proof.md)."""

from typing import Final

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Corrupt
from svcd.commerce.looking import Payments
from svcd.commerce.payment import Terms
from svcd.commerce.proof import MAX_HEADERS, Excerpt, proof_answer
from svcd.commerce.terms import one_amount, terms_of
from svcd.node.ledger import Ledger
from svcd.node.threads import Worker
from svcd.rpc import payment_fields as fields
from svcd.rpc import schemas
from svcd.rpc.fields import parse_height
from svcd.store.chain_store import ChainReader
from svcd.web.answers import Answer, Rendered
from svcd.web.errors import HttpError
from svcd.web.routing import Field, Route, Schema, object_schema

FROM: Final = Field(
    "from",
    parse_height,
    {"type": "integer", "minimum": 0, "maximum": MAX_INTEGER},
    "The height at which `headers` begin: the `next` of the answer before; left out, they begin above the payment.",
    required=False,
)
_PROOF: Final = object_schema(
    {
        "chainId": {"type": "string"},
        "genesisHash": schemas.HASH,
        "transaction": schemas.TRANSFER,
        "index": schemas.COUNT,
        "path": {"type": "array", "items": schemas.HASH},
        "parent": object_schema({"slot": schemas.DECIMAL, "clock": schemas.DECIMAL, "cumulativeWork": schemas.HASH}),
        "header": schemas.HEADER,
        "headers": {"type": "array", "maxItems": MAX_HEADERS, "items": schemas.HEADER},
    }
)
_NEXT: Final[Schema] = {"anyOf": [schemas.DECIMAL, {"type": "null"}]}


class ProofRoutes:
    """Proofs of payment; ``worker`` hashes the transfers of full blocks, which takes longer than the reactor has."""

    def __init__(self, ledger: Ledger, payments: Payments, worker: Worker) -> None:
        self._ledger = ledger
        self._params = ledger.params
        self._payments = payments
        self._worker = worker

    @Route(
        "GET",
        "/rpc/commerce/payment/{reference}/proof",
        "A proof that an order is paid, which can be checked without a node",
        bucket="read",
        cost=4,
        path_fields=(fields.REFERENCE,),
        query_fields=(*fields.ORDER_QUERY, FROM),
        answers={200: object_schema({"proof": _PROOF, "next": _NEXT})},
        errors={404: "No block of the chain holds the payment; the sentence says whether it waits for one."},
    )
    async def proof(
        self,
        reference: str,
        *,
        recipient: object,
        amount: int | None,
        amount_base_units: int | None,
        confirmations: int,
        since_height: int | None,
        from_: int | None,
    ) -> Answer:
        """Answer GET /rpc/commerce/payment/{reference}/proof."""
        terms = terms_of(
            self._params,
            reference=reference,
            recipient=recipient,
            amount=one_amount(amount, amount_base_units),
            required=confirmations,
            since_height=since_height,
        )
        excerpt = await self._ledger.long_reads.ask(lambda reader: _excerpt(reader, terms, from_))
        if excerpt is None:
            waits = "one waits in the mempool" if self._payments.look(terms).pending else "none waits for one either"
            raise HttpError(404, f"no block of the chain holds this payment of {terms.reference}; {waits}")
        return Rendered(await self._worker.run(proof_answer, self._params, excerpt))


def _excerpt(reader: ChainReader, terms: Terms, first: int | None) -> Excerpt | None:
    """What the proof is made of, all of one commit, or None without a payment on the chain; raises HttpError."""
    paid = reader.payments((terms.reference, terms.key), terms.amount, since=terms.since_height or 0, limit=1)
    if not paid:
        return None
    height = paid[0].point.height
    begin = height + 1 if first is None else first
    if begin <= height:
        raise HttpError(400, f"from must be above {height}, the height of the block that holds the payment")
    tip, block = reader.tip(), reader.canonical(height)
    parent = None if block is None else reader.point(block.parent)
    if tip is None or block is None or parent is None:
        raise Corrupt(f"the canonical block at height {height} or its parent is missing")
    headers = reader.headers(begin, limit=MAX_HEADERS)
    following = begin + len(headers)
    return Excerpt(
        body=paid[0].body,
        position=paid[0].position,
        bodies=reader.bodies(block),
        parent=parent,
        header=block.header,
        headers=headers,
        next_height=following if following <= tip.height else None,
    )
