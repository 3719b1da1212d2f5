"""Payment proofs: a transfer, its Merkle path into its block, and the headers on top (docs/payment-proof.md).

A node builds a proof, and its holder checks it offline. Pure functions: checking the work of the headers, which takes
seconds, is left to the caller (:func:`svcd.chain.work.check_work`, in threads).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import evolve, frozen

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address
from svcd.chain.block import Header, parse_header
from svcd.chain.encoding import canonical, decimal_u53, exact_fields, hex_bytes, integer, parse_json
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.merkle import inclusion_path, root_of_path
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, block_entry, block_entry_of, parse_transfer
from svcd.chain.transition import ChainPoint, Workspace, check_place, consensus_root, genesis_point, point_after
from svcd.chain.work import block_work, effective_target
from svcd.commerce.payment_request import PaymentTerms

MAX_HEADERS: Final = 1_000
"""Headers above the payment's block in one answer."""

_ANSWER: Final = frozenset(("ok", "proof", "next"))
_PROOF: Final = frozenset("chainId genesisHash transaction index path parent header headers".split())
_PARENT: Final = frozenset(("slot", "clock", "cumulativeWork"))
_MAX_PATH: Final = 64


class Unproved(Exception):
    """A proof does not prove the payment; the text is one sentence that says why."""


@frozen
class ProofData:
    """What a node reads from its chain for one answer, all from one commit."""

    body: bytes
    """The canonical JSON of the transfer."""
    position: int
    bodies: Sequence[bytes]
    """The canonical JSON of all transfers of its block."""
    parent: ChainPoint
    """The chain up to its block's parent."""
    header: bytes
    """The canonical JSON of its block's header."""
    headers: Sequence[bytes]
    """The canonical JSON of later headers, each the child of the one before."""
    next_height: int | None
    """The first header of the next answer; None if ``headers`` ends at the tip."""


@frozen(kw_only=True)
class Proof:
    """A parsed proof; only its form has been checked."""

    params: NetworkParams
    transfer: Transfer
    position: int
    path: tuple[bytes, ...]
    """The audit path from the transfer to the root in its block's header (RFC 6962 section 2.1.1)."""
    parent: ChainPoint
    """The chain up to the block's parent, as the proof claims it."""
    headers: tuple[Header, ...]
    """Of that block and of those above it."""

    @property
    def block(self) -> Header:
        """The header of the block that holds the transfer."""
        return self.headers[0]

    @property
    def last(self) -> Header:
        """The newest header."""
        return self.headers[-1]

    @property
    def confirmations(self) -> int:
        """The transfer's depth below the newest header: 1 if that is its own block's."""
        return len(self.headers)


# Building a proof


def render_proof(params: NetworkParams, data: ProofData) -> bytes:
    """The whole answer, spliced from stored JSON; hashing a full block takes tens of milliseconds."""
    entries = [block_entry_of(body, params) for body in data.bodies]
    path = [step.hex() for step in inclusion_path(entries, data.position)]
    parent = {
        "slot": str(data.parent.slot),
        "clock": str(data.parent.difficulty_clock),
        "cumulativeWork": f"{data.parent.work:064x}",
    }
    following = "null" if data.next_height is None else f'"{data.next_height}"'
    parts = (
        f'{{"ok":true,"proof":{{"chainId":"{params.chain_id}","genesisHash":"{params.genesis_hash.hex()}"'.encode(),
        b',"transaction":' + data.body,
        f',"index":{data.position},"path":'.encode() + canonical(path),
        b',"parent":' + canonical(parent),
        b',"header":' + data.header,
        b',"headers":[' + b",".join(data.headers) + b"]}",
        f',"next":{following}}}'.encode(),
    )
    return b"".join(parts)


# Parsing a proof


def parse_proof(answers: Iterable[bytes], networks: Iterable[NetworkParams]) -> Proof:
    """The proof in a node's answers: the first one and its continuations, in order; raises Unproved."""
    try:
        first, *more = [_parse_answer(answer) for answer in answers]
        proof = _proof(first, _network(first, networks))
        for fields in more:
            if any(fields[name] != first[name] for name in _PROOF - {"headers"}):
                raise Unproved(
                    "the answers belong to different proofs; the chain may have changed, so fetch them again"
                )
            proof = evolve(proof, headers=(*proof.headers, *_headers(fields["headers"], proof.params)))
    except RuleViolation as violation:
        raise Unproved(f"this is not a proof: {violation.detail}") from None
    return proof


def _parse_answer(answer: bytes) -> dict[str, object]:
    fields = exact_fields(parse_json(answer), _ANSWER, "the answer")
    if fields["ok"] is not True:
        raise RuleViolation(Refusal.FORMAT, "ok must be true")
    if fields["next"] is not None:
        decimal_u53(fields["next"], "next")
    return exact_fields(fields["proof"], _PROOF, "proof")


def _network(fields: dict[str, object], networks: Iterable[NetworkParams]) -> NetworkParams:
    known = {params.chain_id: params for params in networks}
    chain_id, genesis_hash = fields["chainId"], hex_bytes(fields["genesisHash"], 32, "genesisHash")
    params = known.get(chain_id) if isinstance(chain_id, str) else None
    if params is None:
        raise Unproved(f"the proof is of an unknown network; it must be of {' or '.join(known)}")
    if genesis_hash != params.genesis_hash:
        raise Unproved(f"the proof is of another network that calls itself {params.chain_id}: its genesis differs")
    return params


def _proof(fields: dict[str, object], params: NetworkParams) -> Proof:
    path = fields["path"]
    if type(path) is not list or len(path) > _MAX_PATH:
        raise RuleViolation(Refusal.FORMAT, f"path must be an array of at most {_MAX_PATH} hashes")
    header = _parse_header("header", fields["header"], params)
    if header.height < 1:
        raise RuleViolation(
            Refusal.HEIGHT, "the block of a payment has a height of at least 1; the genesis has no payments"
        )
    return Proof(
        params=params,
        transfer=parse_transfer(fields["transaction"], params),
        position=integer(fields["index"], "index"),
        path=tuple([hex_bytes(step, 32, f"path[{number}]") for number, step in enumerate(path)]),
        parent=_parent(fields["parent"], header, params),
        headers=(header, *_headers(fields["headers"], params)),
    )


def _parent(value: object, header: Header, params: NetworkParams) -> ChainPoint:
    fields = exact_fields(value, _PARENT, "parent")
    return ChainPoint(
        hash=header.parent_hash,
        height=header.height - 1,
        slot=decimal_u53(fields["slot"], "parent.slot"),
        difficulty_clock=decimal_u53(fields["clock"], "parent.clock"),
        work=int.from_bytes(hex_bytes(fields["cumulativeWork"], 32, "parent.cumulativeWork"), "big"),
        issued=params.issued_after(header.height - 1),
    )


def _headers(value: object, params: NetworkParams) -> list[Header]:
    if type(value) is not list:
        raise RuleViolation(Refusal.FORMAT, "headers must be an array")
    return [_parse_header(f"headers[{number}]", each, params) for number, each in enumerate(value)]


def _parse_header(name: str, value: object, params: NetworkParams) -> Header:
    try:
        return parse_header(value, params)
    except RuleViolation as violation:
        raise RuleViolation(violation.code, f"{name}: {violation.detail}") from None


# Checking a proof


def check_terms(terms: PaymentTerms, proof: Proof) -> None:
    """Raise Unproved unless the transfer meets ``terms``, in a block that counts and deep enough."""
    transfer = proof.transfer
    if transfer.reference != terms.reference:
        reference = "no reference" if transfer.reference is None else f"the reference {transfer.reference}"
        raise Unproved(f"the transfer in the proof carries {reference}, not {terms.reference}")
    # Comparing keys is not enough: a key has an address on every network, with different coins.
    recipient = encode_address(transfer.recipient, proof.params.address_prefix)
    if recipient != terms.recipient:
        raise Unproved(f"the transfer in the proof pays {recipient}, not {terms.recipient}")
    if transfer.amount != terms.amount:
        raise Unproved(f"the transfer in the proof pays {transfer.amount} base units, not {terms.amount}")
    if terms.excludes(proof.block.height):
        raise Unproved(
            f"the payment is in block {proof.block.height}; only block {terms.since_height} and later ones count"
        )
    if proof.confirmations < terms.required:
        raise Unproved(
            f"the proof shows {proof.confirmations} confirmations and {terms.required} are required; "
            "fetch a new one after more blocks"
        )


def check_tip(tip: bytes, proof: Proof) -> None:
    """Raise Unproved unless the newest header is of the block with the hash ``tip``, which the caller trusts."""
    if proof.last.hash == tip:
        return
    if any(header.hash == tip for header in proof.headers):
        raise Unproved(
            f"the tip {tip.hex()} is in the proof but is not its last block, {proof.last.hash.hex()} at height "
            f"{proof.last.height}; ask a node that you trust for the block at that height"
        )
    raise Unproved(
        f"the proof ends in block {proof.last.hash.hex()} at height {proof.last.height}, not in {tip.hex()}; "
        "ask a node that you trust for the block at that height, or fetch the proof again"
    )


def check(proof: Proof) -> None:
    """Raise Unproved unless all parts of the proof are valid and consistent; the headers' work is not checked."""
    try:
        _check_transfer(proof)
        _check_parent(proof.params, proof.parent)
    except RuleViolation as violation:
        raise Unproved(violation.detail) from None
    point = proof.parent
    for header in proof.headers:
        if header.parent_hash != point.hash:
            raise Unproved(f"the header at height {header.height} does not build on the one before it")
        try:
            point = _check_header(proof.params, point, header)
        except RuleViolation as violation:
            raise Unproved(f"the header at height {header.height} is not valid: {violation.detail}") from None


def _check_transfer(proof: Proof) -> None:
    transfer, block = proof.transfer, proof.block
    transfer.check_signature()
    # The sender's account is unknown offline. With a sufficient one, the rules about times still apply.
    sender = {transfer.sender: Account(transfer.amount + transfer.fee, transfer.nonce)}
    Workspace(proof.params, slot=block.slot, before=sender).transfer(transfer)
    if block.transaction_count > proof.params.max_block_transactions:
        raise Unproved(f"transactionCount is {block.transaction_count}, more than a block holds")
    root = root_of_path(block_entry(transfer), index=proof.position, size=block.transaction_count, path=proof.path)
    if root is None:
        raise Unproved(
            f"no path of {len(proof.path)} hashes belongs to transaction {proof.position} of {block.transaction_count}"
        )
    if root != block.transactions_root:
        raise Unproved("the path does not lead from the transfer to the transactionsRoot of the header")


def _check_parent(params: NetworkParams, parent: ChainPoint) -> None:
    """Raise Unproved if no valid chain can have the values in ``parent``."""
    if parent.height == 0:
        if parent != genesis_point(params):
            raise Unproved("the block of height 1 must build on the genesis")
        return
    gaps = parent.height - 1
    least, most = (parent.height * block_work(target) for target in (params.max_target, params.min_target))
    clocks = range(gaps, min(gaps * params.gap_cap_slots, parent.slot - 1) + 1)
    if parent.difficulty_clock not in clocks or not least <= parent.work <= most:
        raise Unproved(f"no chain of {parent.height} blocks has the slot, the clock and the work that parent states")


def _check_header(params: NetworkParams, parent: ChainPoint, header: Header) -> ChainPoint:
    """The chain after ``header``; raises RuleViolation for every rule that needs neither accounts nor work."""
    check_place(params, parent, header)
    header.check_signature()
    point = point_after(params, parent, header)
    if header.consensus_root != consensus_root(params, point):
        raise RuleViolation(Refusal.CONSENSUS_ROOT, "consensusRoot is not that of this chain")
    return point


def expected_evaluations(proof: Proof) -> int:
    """The expected number of Argon2id evaluations behind the work of all headers, rounded down.

    It trusts the multipliers in the headers, which cannot be checked offline; a forger would claim the highest.
    """
    return sum(2**256 // effective_target(header.base_target, header.multiplier) for header in proof.headers)
