"""Payment proofs: a transfer, its Merkle path into its block, and the chain of that block (docs/payment-proof.md).

Its holder checks it offline. Checking the work of the headers, which takes seconds, is left to the caller
(:func:`svcd.chain.work.check_work`, in threads).
"""

from collections.abc import Iterable
from typing import Final, Protocol

from attrs import frozen

from ..chain.accounts import Account
from ..chain.address import encode_address
from ..chain.block import Header
from ..chain.encoding import decimal_u53, exact_fields, hex_bytes, integer, parse_json
from ..chain.errors import Refusal, RuleViolation
from ..chain.merkle import root_of_path
from ..chain.params import NetworkParams
from ..chain.transaction import Transfer, block_entry, parse_transfer
from ..chain.transition import Workspace
from .chain_proof import (
    RECENT,
    SAMPLES,
    ChainProof,
    ProvenChain,
    Unproved,
    check_chain,
    check_network,
    parse_chain_section,
)

_ANSWER: Final = frozenset(("ok", "proof", "next"))
_PROOF: Final = frozenset("chainId genesisHash transaction index path height chain".split())
_MAX_PATH: Final = 64


class OrderTerms(Protocol):
    """What an order asks for."""

    @property
    def reference(self) -> str:
        """The payment reference."""

    @property
    def recipient(self) -> str:
        """The address."""

    @property
    def amount(self) -> int:
        """Base units."""

    @property
    def since_height(self) -> int | None:
        """Transfers in blocks below this height do not count."""


@frozen(kw_only=True)
class Proof:
    """A parsed proof; only its form has been checked."""

    params: NetworkParams
    transfer: Transfer
    position: int
    path: tuple[bytes, ...]
    """The audit path from the transfer to the root in its block's header (RFC 6962 section 2.1.1)."""
    height: int
    """Of that block."""
    chain: ChainProof


@frozen
class ProvenPayment:
    """The result of a check; it holds once the participation work of all headers of ``chain`` has been checked."""

    confirmations: int
    chain: ProvenChain


# Parsing a proof


def proof_in(answer: bytes, networks: Iterable[NetworkParams], what: str = "the answer") -> Proof:
    """The proof in a node's answer, which sentences call ``what``; raises Unproved."""
    try:
        fields = exact_fields(parse_json(answer, counted=False), _ANSWER, what)
        if fields["ok"] is not True or fields["next"] is not None:
            raise RuleViolation(Refusal.FORMAT, "ok must be true, and next null")
        proof = exact_fields(fields["proof"], _PROOF, "proof")
    except RuleViolation as violation:
        raise Unproved(f"this is not a proof: {violation.detail}") from None
    known = {params.chain_id: params for params in networks}
    chain_id = proof["chainId"]
    params = known.get(chain_id) if isinstance(chain_id, str) else None
    if params is None:
        raise Unproved(
            f"the proof is for another network; without the network's file it must be for {' or '.join(known)}"
        )
    return parse_proof(proof, params)


def parse_proof(value: object, params: NetworkParams) -> Proof:
    """The proof in the JSON object ``proof`` of a node's answer; raises Unproved."""
    try:
        fields = exact_fields(value, _PROOF, "proof")
        check_network(fields, params)
        return Proof(
            params=params,
            transfer=parse_transfer(fields["transaction"], params),
            position=integer(fields["index"], "index"),
            path=_path(fields["path"]),
            height=decimal_u53(fields["height"], "height"),
            chain=parse_chain_section(fields["chain"], params),
        )
    except RuleViolation as violation:
        raise Unproved(f"this is not a proof: {violation.detail}") from None


def _path(value: object) -> tuple[bytes, ...]:
    if type(value) is not list or len(value) > _MAX_PATH:
        raise RuleViolation(Refusal.FORMAT, f"path must be an array of at most {_MAX_PATH} hashes")
    return tuple([hex_bytes(step, 32, f"path[{number}]") for number, step in enumerate(value)])


# Checking a proof


def check_payment(terms: OrderTerms, proof: Proof) -> None:
    """Raise Unproved unless the transfer meets ``terms``, in a block that counts, however deep it is."""
    transfer = proof.transfer
    if transfer.reference != terms.reference:
        reference = "no reference" if transfer.reference is None else f"the reference {transfer.reference}"
        raise Unproved(f"the transfer in the proof has {reference}, not {terms.reference}")
    # Comparing keys is not enough: a key has an address on every network, with different coins.
    recipient = encode_address(transfer.recipient, proof.params.address_prefix)
    if recipient != terms.recipient:
        raise Unproved(f"the transfer in the proof pays {recipient}, not {terms.recipient}")
    if transfer.amount != terms.amount:
        raise Unproved(f"the transfer in the proof pays {transfer.amount} base units, not {terms.amount}")
    if terms.since_height is not None and proof.height < terms.since_height:
        raise Unproved(f"the payment is in block {proof.height}; only block {terms.since_height} and later ones count")


def check_depth(required: int, confirmations: int) -> None:
    """Raise Unproved unless ``confirmations`` are as many as are ``required``."""
    if confirmations < required:
        raise Unproved(
            f"the proof shows {confirmations} confirmations and {required} are required; "
            "fetch a new one after more blocks"
        )


def check(proof: Proof, *, minimum_work: int = 0, recent: int = RECENT, samples: int = SAMPLES) -> ProvenPayment:
    """Everything that the proof shows, but the work of its headers; raises Unproved.

    The arguments are those of :func:`svcd.light.chain_proof.check_chain`.
    """
    chain = check_chain(proof.chain, proof.params, minimum_work=minimum_work, recent=recent, samples=samples)
    block = chain.headers.get(proof.height)
    if block is None:
        raise Unproved(f"the chain section does not show the block at height {proof.height}")
    try:
        _check_transfer(proof, block)
    except RuleViolation as violation:
        raise Unproved(violation.detail) from None
    return ProvenPayment(chain.tip.height - proof.height + 1, chain)


def _check_transfer(proof: Proof, block: Header) -> None:
    """Raise RuleViolation or Unproved unless the block of a valid header has the signed transfer at its position."""
    transfer, params = proof.transfer, proof.params
    transfer.check_signature()
    # The accounts are unknown offline. With sufficient ones, the rules about times still apply.
    kept = Account(params.account_minimum)
    sender = Account(kept.balance + transfer.amount + transfer.fee, transfer.nonce)
    Workspace(params, slot=block.slot, before={transfer.recipient: kept, transfer.sender: sender}).transfer(transfer)
    size, path = block.transaction_count, proof.path
    root = root_of_path(block_entry(transfer), index=proof.position, size=size, path=path)
    if root is None:
        raise Unproved(f"no path of {len(path)} hashes belongs to transaction {proof.position} of {size}")
    if root != block.transactions_root:
        raise Unproved("the path does not lead from the transfer to the transactionsRoot of the header")
