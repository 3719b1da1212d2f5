"""Payment proofs: a transfer, its Merkle path into its block, and the headers on top (docs/payment-proof.md).

A node builds a proof, and its holder checks it offline. Pure functions: checking the work of the headers, which takes
seconds, is left to the caller (:func:`svcd.chain.work.check_work`, in threads).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address
from svcd.chain.block import Header, parse_header
from svcd.chain.encoding import canonical, decimal_u53, exact_fields, hex_bytes, integer, parse_json
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.history import History, clock_of, digest_of, node_json, parse_node, slot_of
from svcd.chain.merkle import inclusion_path, root_of_path
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, block_entry, block_entry_of, parse_transfer
from svcd.chain.transition import ChainHead, ChainPoint, Workspace, check_header, genesis_head
from svcd.chain.work import block_work, effective_target
from svcd.commerce.payment import PaymentWork, work_record
from svcd.commerce.payment_request import PaymentTerms
from svcd.light.chain_proof import (
    RECENT,
    SAMPLES,
    ChainProof,
    ProvenChain,
    Unproved,
    check_chain,
    check_network,
    network_fields,
    parse_chain_section,
)

MAX_HEADERS: Final = 1_000
"""Headers above the payment's block in one answer."""

_ANSWER: Final = frozenset(("ok", "proof", "next"))
_PROOF: Final = frozenset("chainId genesisHash transaction index path parent header headers".split())
_PARENT: Final = frozenset(("slot", "clock", "cumulativeWork", "history"))
_FROM_GENESIS: Final = frozenset("chainId genesisHash transaction index path height chain".split())
_MAX_PATH: Final = 64


@frozen
class ProofData:
    """What a node reads from its chain for one answer, all from one commit."""

    body: bytes
    """The canonical JSON of the transfer."""
    position: int
    bodies: Sequence[bytes]
    """The canonical JSON of all transfers of its block."""
    parent: ChainHead
    """Its block's parent."""
    header: bytes
    """The canonical JSON of its block's header."""
    headers: Sequence[bytes]
    """The canonical JSON of later headers, each the child of the one before."""
    next_height: int | None
    """The first header of the next answer; None if ``headers`` ends at the tip."""
    work: PaymentWork | None
    """Up to the tip, as the node says: not part of the proof."""


@frozen(kw_only=True)
class Proof:
    """A parsed proof; only its form has been checked."""

    params: NetworkParams
    transfer: Transfer
    position: int
    path: tuple[bytes, ...]
    """The audit path from the transfer to the root in its block's header (RFC 6962 section 2.1.1)."""
    parent: ChainHead
    """The block's parent, as the proof claims it; its producers are unknown."""
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
    path = _hex_path(params, data.bodies, data.position)
    point = data.parent.point
    parent = {
        "slot": str(point.slot),
        "clock": str(point.difficulty_clock),
        "cumulativeWork": f"{point.work:064x}",
        "history": [node_json(node) for node in data.parent.history.mountains],
    }
    following = "null" if data.next_height is None else f'"{data.next_height}"'
    parts = (
        f'{{"ok":true,"proof":{{"chainId":"{params.chain_id}","genesisHash":"{params.genesis_hash.hex()}"'.encode(),
        b',"transaction":' + data.body,
        f',"index":{data.position},"path":'.encode() + canonical(path),
        b',"parent":' + canonical(parent),
        b',"header":' + data.header,
        b',"headers":[' + b",".join(data.headers) + b"]}",
        f',"next":{following}'.encode(),
        b"}" if data.work is None else b',"work":' + canonical(work_record(data.work)) + b"}",
    )
    return b"".join(parts)


def render_genesis_proof(
    params: NetworkParams,
    *,
    body: bytes,
    position: int,
    bodies: Sequence[bytes],
    height: int,
    chain: Mapping[str, object],
) -> bytes:
    """The whole answer with a proof from the genesis; hashing a full block takes tens of milliseconds.

    ``body`` is the canonical JSON of the transfer, at ``position`` among the ``bodies`` of its block at ``height``, and
    ``chain`` a chain section that shows this block (:func:`svcd.light.prover.render_chain_section`).
    """
    proof: dict[str, object] = {
        **network_fields(params),
        "transaction": json.loads(body),
        "index": position,
        "path": _hex_path(params, bodies, position),
        "height": str(height),
        "chain": chain,
    }
    return canonical({"ok": True, "proof": proof, "next": None})


def _hex_path(params: NetworkParams, bodies: Sequence[bytes], position: int) -> list[str]:
    entries = [block_entry_of(body, params) for body in bodies]
    return [step.hex() for step in inclusion_path(entries, position)]


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
    value = parse_json(answer)
    if type(value) is dict:
        # What the node says of the work proves nothing; the headers do.
        value.pop("work", None)
    fields = exact_fields(value, _ANSWER, "the answer")
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
        raise Unproved(
            f"the proof is for another network; without the network's file it must be for {' or '.join(known)}"
        )
    if genesis_hash != params.genesis_hash:
        raise Unproved(f"the proof is for another network that calls itself {params.chain_id}: its genesis differs")
    return params


def _proof(fields: dict[str, object], params: NetworkParams) -> Proof:
    header = _parse_header("header", fields["header"], params)
    if header.height < 1:
        raise RuleViolation(
            Refusal.HEIGHT, "the block of a payment has a height of at least 1; the genesis has no payments"
        )
    return Proof(
        params=params,
        transfer=parse_transfer(fields["transaction"], params),
        position=integer(fields["index"], "index"),
        path=_path(fields["path"]),
        parent=_parent(fields["parent"], header, params),
        headers=(header, *_headers(fields["headers"], params)),
    )


def _path(value: object) -> tuple[bytes, ...]:
    if type(value) is not list or len(value) > _MAX_PATH:
        raise RuleViolation(Refusal.FORMAT, f"path must be an array of at most {_MAX_PATH} hashes")
    return tuple([hex_bytes(step, 32, f"path[{number}]") for number, step in enumerate(value)])


def _parent(value: object, header: Header, params: NetworkParams) -> ChainHead:
    fields = exact_fields(value, _PARENT, "parent")
    history = fields["history"]
    if type(history) is not list or len(history) != header.height.bit_count():
        raise RuleViolation(
            Refusal.FORMAT, f"parent.history must be an array of {header.height.bit_count()} nodes at this height"
        )
    point = ChainPoint(
        hash=header.parent_hash,
        height=header.height - 1,
        slot=decimal_u53(fields["slot"], "parent.slot"),
        difficulty_clock=decimal_u53(fields["clock"], "parent.clock"),
        work=int.from_bytes(hex_bytes(fields["cumulativeWork"], 32, "parent.cumulativeWork"), "big"),
        issued=params.issued_after(header.height - 1),
    )
    mountains = tuple([parse_node(node, f"parent.history[{number}]") for number, node in enumerate(history)])
    return ChainHead(point=point, history=History(header.height, mountains))


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
    check_payment(terms, proof.params, proof.transfer, height=proof.block.height)
    check_depth(terms, proof.confirmations)


def check_payment(terms: PaymentTerms, params: NetworkParams, transfer: Transfer, *, height: int) -> None:
    """Raise Unproved unless a transfer in the block at ``height`` meets ``terms``, however deep it is."""
    if transfer.reference != terms.reference:
        reference = "no reference" if transfer.reference is None else f"the reference {transfer.reference}"
        raise Unproved(f"the transfer in the proof has the reference {reference}, not {terms.reference}")
    # Comparing keys is not enough: a key has an address on every network, with different coins.
    recipient = encode_address(transfer.recipient, params.address_prefix)
    if recipient != terms.recipient:
        raise Unproved(f"the transfer in the proof pays {recipient}, not {terms.recipient}")
    if transfer.amount != terms.amount:
        raise Unproved(f"the transfer in the proof pays {transfer.amount} base units, not {terms.amount}")
    if terms.excludes(height):
        raise Unproved(f"the payment is in block {height}; only block {terms.since_height} and later ones count")


def check_depth(terms: PaymentTerms, confirmations: int) -> None:
    """Raise Unproved unless ``confirmations`` are as many as ``terms`` require."""
    if confirmations < terms.required:
        raise Unproved(
            f"the proof shows {confirmations} confirmations and {terms.required} are required; "
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
        _check_transfer(proof.params, proof.transfer, proof.block, position=proof.position, path=proof.path)
        _check_parent(proof.params, proof.parent)
    except RuleViolation as violation:
        raise Unproved(violation.detail) from None
    parent = proof.parent
    for header in proof.headers:
        if header.parent_hash != parent.point.hash:
            raise Unproved(f"the header at height {header.height} does not build on the one before it")
        try:
            parent = check_header(proof.params, parent, header)
            header.check_signature()
        except RuleViolation as violation:
            raise Unproved(f"the header at height {header.height} is not valid: {violation.detail}") from None


def _check_transfer(
    params: NetworkParams, transfer: Transfer, block: Header, *, position: int, path: tuple[bytes, ...]
) -> None:
    """Raise RuleViolation or Unproved unless the block of a valid header has the signed transfer at ``position``."""
    transfer.check_signature()
    # The accounts are unknown offline. With sufficient ones, the rules about times still apply.
    kept = Account(params.account_minimum)
    sender = Account(kept.balance + transfer.amount + transfer.fee, transfer.nonce)
    Workspace(params, slot=block.slot, before={transfer.recipient: kept, transfer.sender: sender}).transfer(transfer)
    if block.transaction_count > params.max_block_transactions:
        raise Unproved(f"transactionCount is {block.transaction_count}, more than a block holds")
    root = root_of_path(block_entry(transfer), index=position, size=block.transaction_count, path=path)
    if root is None:
        raise Unproved(f"no path of {len(path)} hashes belongs to transaction {position} of {block.transaction_count}")
    if root != block.transactions_root:
        raise Unproved("the path does not lead from the transfer to the transactionsRoot of the header")


def _check_parent(params: NetworkParams, parent: ChainHead) -> None:
    """Raise Unproved if no valid chain can have the values in ``parent``."""
    point, history = parent.point, parent.history
    if point.height == 0:
        if parent != genesis_head(params):
            raise Unproved("the block of height 1 must build on the genesis")
        return
    gaps = point.height - 1
    minimum, maximum = (point.height * block_work(target) for target in (params.max_target, params.min_target))
    clocks = range(gaps, min(gaps * params.gap_cap_slots, point.slot - 1) + 1)
    if point.difficulty_clock not in clocks or not minimum <= point.work <= maximum:
        raise Unproved(f"no chain of {point.height} blocks has the slot, the clock and the work that parent states")
    last = history.mountains[-1]
    if history.work != point.work or (slot_of(last), clock_of(last)) != (point.slot, point.difficulty_clock):
        raise Unproved("parent.history does not have the work, the slot and the clock that parent states")
    # With an odd number of blocks the last mountain is the parent's own leaf.
    if history.blocks % 2 and digest_of(last) != point.hash:
        raise Unproved("parent.history ends in another block than the parentHash of the header")


# A proof from the genesis, whose chain section takes the place of the headers (docs/protocol.md 13)


@frozen(kw_only=True)
class GenesisProof:
    """A parsed proof from the genesis; only its form has been checked."""

    params: NetworkParams
    transfer: Transfer
    position: int
    path: tuple[bytes, ...]
    """The audit path from the transfer to the root in its block's header."""
    height: int
    """Of that block."""
    chain: ChainProof


@frozen
class ProvenPayment:
    """The result of a check; it holds once the participation work of all headers of ``chain`` has been checked."""

    confirmations: int
    chain: ProvenChain


def genesis_proof_in(answer: bytes, networks: Iterable[NetworkParams]) -> GenesisProof | None:
    """The proof from the genesis in a node's answer; None if the answer has another form. Raises Unproved."""
    try:
        value = parse_json(answer)
        proof = value.get("proof") if type(value) is dict else None
        if type(proof) is not dict or "chain" not in proof:
            return None
        fields = exact_fields(value, _ANSWER, "the answer")
        if fields["ok"] is not True or fields["next"] is not None:
            raise RuleViolation(Refusal.FORMAT, "ok must be true, and next null")
        proof = exact_fields(proof, _FROM_GENESIS, "proof")
        return parse_genesis_proof(proof, _network(proof, networks))
    except RuleViolation as violation:
        raise Unproved(f"this is not a proof: {violation.detail}") from None


def parse_genesis_proof(value: object, params: NetworkParams) -> GenesisProof:
    """The proof in the JSON object ``proof`` of a node's answer; raises Unproved."""
    try:
        fields = exact_fields(value, _FROM_GENESIS, "proof")
        check_network(fields, params)
        return GenesisProof(
            params=params,
            transfer=parse_transfer(fields["transaction"], params),
            position=integer(fields["index"], "index"),
            path=_path(fields["path"]),
            height=decimal_u53(fields["height"], "height"),
            chain=parse_chain_section(fields["chain"], params),
        )
    except RuleViolation as violation:
        raise Unproved(f"this is not a proof: {violation.detail}") from None


def check_from_genesis(
    proof: GenesisProof, *, minimum_work: int = 0, recent: int = RECENT, samples: int = SAMPLES
) -> ProvenPayment:
    """Everything that the proof shows, but the work of its headers; raises Unproved.

    The arguments are those of :func:`svcd.light.chain_proof.check_chain`.
    """
    chain = check_chain(proof.chain, proof.params, minimum_work=minimum_work, recent=recent, samples=samples)
    block = chain.headers.get(proof.height)
    if block is None:
        raise Unproved(f"the chain section does not show the block at height {proof.height}")
    try:
        _check_transfer(proof.params, proof.transfer, block, position=proof.position, path=proof.path)
    except RuleViolation as violation:
        raise Unproved(violation.detail) from None
    return ProvenPayment(chain.tip.height - proof.height + 1, chain)


# The cost of a forgery


def expected_evaluations(proof: Proof) -> int:
    """The expected number of Argon2id evaluations behind the work of all headers, rounded down.

    It trusts the multipliers in the headers, which cannot be checked offline; a forger would claim the highest.
    """
    return sum(2**256 // effective_target(header.base_target, header.multiplier) for header in proof.headers)
