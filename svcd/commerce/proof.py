"""A payment that can be checked without a node: its transfer, the path into its block, and the headers on top of it.

A node builds proofs and whoever holds one checks it, offline (docs/payment-proof.md). Functions of values: the work of
the headers, which takes seconds, is for the caller to check by :func:`svcd.chain.work.check_work`, in threads.
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
from svcd.chain.transition import ChainPoint, Workspace, check_place, consensus_root, extend, genesis_point
from svcd.chain.work import block_work, effective_target
from svcd.commerce.payment import Terms, is_old

MAX_HEADERS: Final = 1_000
"""Headers on top of the payment's block in one answer."""

_ANSWER: Final = frozenset(("ok", "proof", "next"))
_PROOF: Final = frozenset("chainId genesisHash transaction index path parent header headers".split())
_PARENT: Final = frozenset(("slot", "clock", "cumulativeWork"))
_LONGEST_PATH: Final = 64


class Unproved(Exception):
    """A proof does not prove what it should; the text is one sentence that says why."""


@frozen
class Excerpt:
    """What a node reads of its chain for one answer; everything in it is of one commit."""

    body: bytes
    """The canonical JSON of the transfer."""
    position: int
    bodies: Sequence[bytes]
    """Those of all transfers of its block."""
    parent: ChainPoint
    """The chain before its block."""
    header: bytes
    """The canonical JSON of its block's header."""
    headers: Sequence[bytes]
    """Later headers, each on the one before."""
    next_height: int | None
    """The height of the header that the next answer begins with; None if the last one is that of the tip."""


@frozen(kw_only=True)
class Proof:
    """What a proof says; nothing in it is checked but the form."""

    params: NetworkParams
    transfer: Transfer
    position: int
    path: tuple[bytes, ...]
    """The audit path of the transfer to the root in its block's header (RFC 6962 section 2.1.1)."""
    parent: ChainPoint
    """What the chain is said to have been before that block."""
    headers: tuple[Header, ...]
    """Of that block and of those on top of it."""

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
        """How deep the transfer lies under the newest header: 1 in that block itself."""
        return len(self.headers)


# What a node does


def proof_answer(params: NetworkParams, excerpt: Excerpt) -> bytes:
    """The whole answer, spliced from what is stored; tens of milliseconds of hashing where the block is full."""
    entries = [block_entry_of(body, params) for body in excerpt.bodies]
    path = [step.hex() for step in inclusion_path(entries, excerpt.position)]
    parent = {
        "slot": str(excerpt.parent.slot),
        "clock": str(excerpt.parent.clock),
        "cumulativeWork": f"{excerpt.parent.work:064x}",
    }
    following = "null" if excerpt.next_height is None else f'"{excerpt.next_height}"'
    parts = (
        f'{{"ok":true,"proof":{{"chainId":"{params.chain_id}","genesisHash":"{params.genesis_hash.hex()}"'.encode(),
        b',"transaction":' + excerpt.body,
        f',"index":{excerpt.position},"path":'.encode() + canonical(path),
        b',"parent":' + canonical(parent),
        b',"header":' + excerpt.header,
        b',"headers":[' + b",".join(excerpt.headers) + b"]}",
        f',"next":{following}}}'.encode(),
    )
    return b"".join(parts)


# What the holder of a proof does: reading


def parse_proof(answers: Iterable[bytes], networks: Iterable[NetworkParams]) -> Proof:
    """The proof in a node's answers: the first one, and those that continue it, in order; raises Unproved."""
    try:
        first, *more = [_parsed(answer) for answer in answers]
        proof = _proof(first, _network(first, networks))
        for fields in more:
            if any(fields[name] != first[name] for name in _PROOF - {"headers"}):
                raise Unproved("the answers are not of one proof: fetch them again, the chain may have changed between")
            proof = evolve(proof, headers=(*proof.headers, *_headers(fields["headers"], proof.params)))
    except RuleViolation as violation:
        raise Unproved(f"this is no proof: {violation.detail}") from None
    return proof


def _parsed(answer: bytes) -> dict[str, object]:
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
        raise Unproved(f"the proof is of a network that is not known; it must be of {' or '.join(known)}")
    if genesis_hash != params.genesis_hash:
        raise Unproved(f"the proof is of another network that calls itself {params.chain_id}: its genesis differs")
    return params


def _proof(fields: dict[str, object], params: NetworkParams) -> Proof:
    path = fields["path"]
    if type(path) is not list or len(path) > _LONGEST_PATH:
        raise RuleViolation(Refusal.FORMAT, f"path must be an array of at most {_LONGEST_PATH} hashes")
    header = _in_place("header", fields["header"], params)
    if header.height < 1:
        raise RuleViolation(Refusal.HEIGHT, "the block of a payment has height 1 at least; the genesis holds none")
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
        clock=decimal_u53(fields["clock"], "parent.clock"),
        work=int.from_bytes(hex_bytes(fields["cumulativeWork"], 32, "parent.cumulativeWork"), "big"),
        issued=params.issued_after(header.height - 1),
    )


def _headers(value: object, params: NetworkParams) -> list[Header]:
    if type(value) is not list:
        raise RuleViolation(Refusal.FORMAT, "headers must be an array")
    return [_in_place(f"headers[{number}]", each, params) for number, each in enumerate(value)]


def _in_place(name: str, value: object, params: NetworkParams) -> Header:
    try:
        return parse_header(value, params)
    except RuleViolation as violation:
        raise RuleViolation(violation.code, f"{name}: {violation.detail}") from None


# What the holder of a proof does: checking


def check_terms(terms: Terms, proof: Proof) -> None:
    """Raise Unproved unless the transfer is what ``terms`` ask for, in a block that counts and deep enough."""
    transfer = proof.transfer
    if transfer.reference != terms.reference:
        reference = "no reference" if transfer.reference is None else f"the reference {transfer.reference}"
        raise Unproved(f"the transfer in the proof carries {reference}, not {terms.reference}")
    # The address and not the key alone: a key has an address on every network, and coins of one are none of another.
    recipient = encode_address(transfer.recipient, proof.params.address_prefix)
    if recipient != terms.recipient:
        raise Unproved(f"the transfer in the proof pays {recipient}, not {terms.recipient}")
    if transfer.amount != terms.amount:
        raise Unproved(f"the transfer in the proof pays {transfer.amount} base units, not {terms.amount}")
    if is_old(terms, proof.block.height):
        raise Unproved(
            f"the payment stands in block {proof.block.height}; only block {terms.since_height} and later ones count"
        )
    if proof.confirmations < terms.required:
        raise Unproved(
            f"the proof shows {proof.confirmations} confirmations and {terms.required} are required; "
            "fetch a new one when more blocks have come"
        )


def check_tip(tip: bytes, proof: Proof) -> None:
    """Raise Unproved unless the newest header is that of the block with the hash ``tip``, which the caller trusts."""
    if proof.last.hash == tip:
        return
    if any(header.hash == tip for header in proof.headers):
        raise Unproved(
            f"the tip {tip.hex()} stands in the proof but is not its last block, {proof.last.hash.hex()} at height "
            f"{proof.last.height}; ask a node that you trust for the block at that height"
        )
    raise Unproved(
        f"the proof ends in block {proof.last.hash.hex()} at height {proof.last.height}, not in {tip.hex()}; "
        "ask a node that you trust for the block at that height, or fetch the proof again"
    )


def check(proof: Proof) -> None:
    """Raise Unproved unless everything in the proof holds together, save the work of its headers."""
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
    # Nobody offline knows the sender's account: it is taken to have what it needs, so that the times are left to check.
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
    """Raise Unproved where no chain can be as ``parent`` says, whoever made it."""
    if parent.height == 0:
        if parent != genesis_point(params):
            raise Unproved("the block of height 1 must build on the genesis")
        return
    gaps = parent.height - 1
    least, most = (parent.height * block_work(target) for target in (params.max_target, params.min_target))
    clocks = range(gaps, min(gaps * params.gap_cap_slots, parent.slot - 1) + 1)
    if parent.clock not in clocks or not least <= parent.work <= most:
        raise Unproved(f"no chain of {parent.height} blocks has the slot, the clock and the work that parent states")


def _check_header(params: NetworkParams, parent: ChainPoint, header: Header) -> ChainPoint:
    """The chain after ``header``; raises RuleViolation for all that can be seen without the accounts and the work."""
    check_place(params, parent, header)
    header.check_signature()
    point = extend(params, parent, header)
    if header.consensus_root != consensus_root(params, point):
        raise RuleViolation(Refusal.CONSENSUS_ROOT, "consensusRoot is not that of this chain")
    return point


def evaluations(proof: Proof) -> int:
    """How many evaluations of Argon2id it takes on average to make the work of all headers, rounded down.

    With the multipliers that they state: that these were earned nobody sees offline, and a forger claims the highest.
    """
    return sum(2**256 // effective_target(header.base_target, header.multiplier) for header in proof.headers)
