"""The public routes for proofs, which are checked without trust in the node (docs/protocol.md 13, payment-proof.md)."""

from collections.abc import Callable
from typing import Final, Unpack

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.bounded_dict import BoundedDict
from svcd.chain.address import decode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.chain_schemas import (
    ADDRESS,
    BASE_UNITS,
    CHAIN_ID,
    GENESIS_HASH,
    HASH,
    HEADER_FIELDS,
    HISTORY_NODE,
    INDEX,
    PRUNED,
    SLOT,
    TIP_HASH,
    TIP_HEIGHT,
    TRANSFER,
    WHOLE_NUMBER,
)
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_request import PaymentTerms
from svcd.deferreds import shielded
from svcd.light.chain_proof import HEADER_FIELDS as PROVEN_FIELDS
from svcd.light.prover import render_account_proof, render_chain_proof, render_chain_section, render_payment_proof
from svcd.limits import limit
from svcd.node.node_context import NodeContext
from svcd.rpc import fields
from svcd.rpc.chain_routes import ShowsChain, tip_at
from svcd.rpc.fields import OrderValues, terms_from
from svcd.store.chain_store import ChainReader, PlacedTransfer
from svcd.web.field_types import Hex, Int, described, or_null, with_example
from svcd.web.rate_limits import Surcharge
from svcd.web.responses import HttpError, Renderable, Response, Tip, json_body
from svcd.web.routes import Field, Route, named_object, object_schema

_NETWORK: Final = {"chainId": CHAIN_ID, "genesisHash": GENESIS_HASH}
_PATH: Final = {"type": "array", "items": HASH}
_CHAIN: Final = {
    "tip": HASH,
    "headers": {
        "type": "array",
        "items": named_object("ProvenHeader", {name: HEADER_FIELDS[name] for name in PROVEN_FIELDS}),
        "description": "The drawn headers and the newest 100, by height; what is missing in a header follows from the "
        "chain before it.",
    },
    "nodes": {
        "type": "array",
        "items": HISTORY_NODE,
        "description": "Nodes of the history tree, which stand for the blocks between the headers.",
    },
}
_PAYMENT_PROOF: Final = named_object(
    "PaymentProof",
    {
        **_NETWORK,
        "transaction": TRANSFER,
        "index": INDEX,
        "path": _PATH,
        "height": WHOLE_NUMBER,
        "chain": named_object("ChainSection", _CHAIN, about="A chain proof that shows the block of the payment too."),
    },
)
_CHAIN_PROOF: Final = named_object("ChainProof", {**_NETWORK, **_CHAIN})
_LEAF: Final = named_object(
    "AccountLeaf",
    {"address": ADDRESS, "balance": BASE_UNITS, "nonce": WHOLE_NUMBER, "heldSince": or_null(SLOT)},
    about="The only account below the end of the path, which need not be the one that was asked for.",
)
_ACCOUNT_PROOF: Final = named_object(
    "AccountProof",
    {
        **_NETWORK,
        "height": described(TIP_HEIGHT, "The height of the block after which the account is shown."),
        "hash": described(TIP_HASH, "The hash of that block, which is the newest one."),
        "address": described(ADDRESS, "The address that was asked for."),
        "leaf": described(or_null(_LEAF), "Null, or the account of another address, if the address has none."),
        "path": described(_PATH, "The hashes beside the path, from the deepest up to the root."),
    },
)
_NOTHING: Final = described(with_example({"type": "null"}, None), "Nothing follows: a proof is one answer.")
TIP: Final = Field(
    "tip", Hex(32), "The block at the end of the chain to prove; the present tip if omitted.", default=None
)
CHAIN: Final = Field(
    "chain", Int(1, 1), "1: the chain from the genesis block is in the proof, as it is if this is omitted.", default=1
)
_MANY_PROOFS: Final = (
    "Asking for proofs of full blocks, or of the chain up to one old tip after another, to keep threads busy"
)
CACHED_PROOFS: Final = limit(4, "chain proofs that are kept, of the newest tips", "proofs", _MANY_PROOFS)
"""At most 0.6 MB each; a light client asks for the tip of an account proof that it got just before."""
OTHER_TIP_TOKENS: Final = limit(
    20.0, "additional cost of a chain proof of another tip, in tokens of proofsPerSecond", "tokens", _MANY_PROOFS
)
CHAIN_TOKENS: Final = limit(
    250.0,
    "additional cost of a payment proof, in tokens of requestsPerSecond",
    "tokens",
    _MANY_PROOFS,
)


class ProofRoutes(ShowsChain):
    """Proofs of chain, accounts and payments."""

    log = Logger()

    def __init__(self, node: NodeContext, payments: PaymentLookup) -> None:
        self._chain_manager = node.chain_manager
        self._chain = node.chain
        self._params = node.chain_manager.params
        self._payments = payments
        self._bodies: BoundedDict[bytes, bytes] = BoundedDict(CACHED_PROOFS)
        """The answers with the chain proofs of the newest tips, by the hash of the tip."""
        self._making = DeferredLock()
        """One chain proof is made at a time, for all clients that ask for it."""
        self._finding = DeferredLock()
        """One account is looked up at a time: a block waits in the writer's queue for one look-up, not for all."""

    @Route(
        "GET",
        "/rpc/proof/chain",
        "A proof of the chain with the most work that this node knows, for clients that know only the genesis block",
        bucket="proofs",
        shows_chain=True,
        cost=2,
        query_fields=(TIP,),
        with_charge=True,
        surcharges=(Surcharge(OTHER_TIP_TOKENS, "with a `tip` before the newest block, unless its proof is cached"),),
        answers={200: object_schema({"proof": _CHAIN_PROOF})},
        errors={404: "The block is not, or is no longer, on the chain of this node: ask for the present tip."},
    )
    async def chain(self, charge: Callable[[float], None], *, tip: bytes | None) -> Renderable:
        """Answer GET /rpc/proof/chain."""
        block_hash = self._chain_manager.tip.hash if tip is None else tip
        _, now = self._chain_manager.read(lambda reader: _canonical(reader, block_hash))
        body = self._bodies.get(block_hash)
        if body is None and block_hash == now.hash:
            # A client that goes away does not stop what the next one needs.
            making = self._making.run(lambda: Deferred.fromCoroutine(self._make(block_hash)))
            body = await shielded(making, self._failed_unheard)
        elif body is None:
            charge(OTHER_TIP_TOKENS)
            body = await self._read_proof(block_hash)
        return Response(body, tip=tip_at(now))

    def _failed_unheard(self, failure: Failure) -> None:
        if failure.check(HttpError) is None:  # type: ignore[no-untyped-call]
            self.log.failure("making a proof failed", failure)

    async def _make(self, block_hash: bytes) -> bytes:
        if block_hash not in self._bodies:
            self._bodies[block_hash] = await self._read_proof(block_hash)
        return self._bodies[block_hash]

    def _read_proof(self, block_hash: bytes) -> Deferred[bytes]:
        return self._chain_manager.long_reads.ask(lambda reader: _chain_proof(reader, self._params, block_hash))

    @Route(
        "GET",
        "/rpc/proof/account/{address}",
        "A proof of an account, or that there is none, against the stateRoot of the tip",
        bucket="proofs",
        shows_chain=True,
        path_fields=(fields.ADDRESS,),
        answers={200: object_schema({"proof": _ACCOUNT_PROOF})},
    )
    async def account(self, address: str) -> Renderable:
        """Answer GET /rpc/proof/account/{address}."""
        key = decode_address(address, self._params.address_prefix)
        account_path = self._chain.chainstate.account_path
        # A client that goes away does not let the next one into the queue.
        finding = self._finding.run(lambda: self._chain.writer.run(account_path, key))
        found = await shielded(finding, self._failed_unheard)
        proof = render_account_proof(self._params, address, tip=found.tip, leaf=found.leaf, siblings=found.siblings)
        return Response(json_body({"proof": proof}), tip=tip_at(found.tip))

    @Route(
        "GET",
        "/rpc/commerce/payment/{reference}/proof",
        "A proof that an order is paid, which can be checked without a node",
        bucket="read",
        shows_chain=True,
        cost=4,
        path_fields=(fields.REFERENCE,),
        query_fields=(*fields.ORDER_QUERY, CHAIN),
        with_charge=True,
        surcharges=(Surcharge(CHAIN_TOKENS, "for the chain in the proof"),),
        one_of=fields.AMOUNTS,
        answers={200: object_schema({"proof": _PAYMENT_PROOF, "next": _NOTHING})},
        errors={
            404: "No block of the chain holds the payment; the sentence says whether it waits for one.",
            410: "This node has only later blocks than those in which the payment may be.",
        },
        error_members=PRUNED,
    )
    async def proof(
        self,
        reference: str,
        charge: Callable[[float], None],
        *,
        chain: int,
        **order: Unpack[OrderValues],
    ) -> Renderable:
        """Answer GET /rpc/commerce/payment/{reference}/proof."""
        terms = terms_from(self._params, reference, order)
        charge(CHAIN_TOKENS)
        body, tip = await self._chain_manager.long_reads.ask(lambda reader: _payment_proof(reader, self._params, terms))
        if body is None:
            self._payments.check_kept(terms)
            pending = self._payments.find(terms).pending
            waits = "one waits in the mempool" if pending else "the mempool has none either"
            raise HttpError(404, f"no block of the chain contains this payment of {terms.reference}; {waits}", tip=tip)
        return Response(body, tip=tip)


def _chain_proof(reader: ChainReader, params: NetworkParams, block_hash: bytes) -> bytes:
    """The answer with the chain proof whose tip has this hash; raises HttpError."""
    proof = render_chain_proof(reader, params, _canonical(reader, block_hash))
    return json_body({"proof": proof})


def _canonical(reader: ChainReader, block_hash: bytes) -> ChainPoint:
    """The canonical block with this hash; raises HttpError."""
    block = reader.stored(block_hash)
    if block is None or not reader.is_canonical(block):
        sentence = f"no block of the chain has the hash {block_hash.hex()}; ask without tip for the present one"
        raise HttpError(404, sentence, tip=tip_at(reader.existing_tip()))
    return block.point


def _payment_proof(reader: ChainReader, params: NetworkParams, terms: PaymentTerms) -> tuple[bytes | None, Tip]:
    """The whole answer, None if the chain has no payment, and the tip, all of one commit."""
    tip = reader.existing_tip()
    paid = _first_payment(reader, terms)
    if paid is None:
        return None, tip_at(tip)
    height = paid.height
    body = render_payment_proof(
        params,
        body=paid.body,
        position=paid.position,
        bodies=reader.bodies(reader.existing(height)),
        height=height,
        chain=render_chain_section(reader, tip, including=[height]),
    )
    return body, tip_at(tip)


def _first_payment(reader: ChainReader, terms: PaymentTerms) -> PlacedTransfer | None:
    paid = reader.payments((terms.reference, terms.key), terms.amount, since=terms.since_height or 0, limit=1)
    return paid[0] if paid else None
