"""Account proofs: an account, or its absence, against the state root of a header (docs/protocol.md 9 and 13)."""

from hashlib import sha256
from typing import Final

from attrs import frozen

from ..chain.accounts import KEY_BITS, Account
from ..chain.address import decode_address
from ..chain.encoding import decimal_u53, exact_fields, hex_bytes
from ..chain.errors import Refusal, RuleViolation
from ..chain.params import NetworkParams
from ..chain.state_root import leaf_hash
from .chain_proof import Unproved, check_network

_PROOF: Final = frozenset("chainId genesisHash height hash address leaf path".split())
_LEAF: Final = frozenset("address balance nonce heldSince".split())


@frozen
class AccountProof:
    """A parsed account proof; only its form has been checked."""

    height: int
    block: bytes
    """The hash of the block after which the account is shown."""
    key: bytes
    """The 20-byte key hash of the address asked for."""
    leaf: tuple[bytes, Account] | None
    """The only account below the end of the path, by key hash; None if none is there."""
    path: tuple[bytes, ...]
    """The siblings from the deepest one up to the root."""


def parse_account_proof(value: object, params: NetworkParams) -> AccountProof:
    """The account proof in the JSON object ``proof`` of a node's answer; raises Unproved."""
    try:
        fields = exact_fields(value, _PROOF, "proof")
        check_network(fields, params)
        path = fields["path"]
        if type(path) is not list or len(path) > KEY_BITS:
            raise RuleViolation(Refusal.FORMAT, f"path must be an array of at most {KEY_BITS} hashes")
        return AccountProof(
            height=decimal_u53(fields["height"], "height"),
            block=hex_bytes(fields["hash"], 32, "hash"),
            key=decode_address(fields["address"], params.address_prefix, "address"),
            leaf=None if fields["leaf"] is None else _parse_leaf(fields["leaf"], params),
            path=tuple([hex_bytes(step, 32, f"path[{number}]") for number, step in enumerate(path)]),
        )
    except RuleViolation as violation:
        raise Unproved(f"this is not an account proof: {violation.detail}") from None


def _parse_leaf(value: object, params: NetworkParams) -> tuple[bytes, Account]:
    fields = exact_fields(value, _LEAF, "leaf")
    held = fields["heldSince"]
    account = Account(
        balance=decimal_u53(fields["balance"], "balance"),
        nonce=decimal_u53(fields["nonce"], "nonce"),
        held_since=None if held is None else decimal_u53(held, "heldSince"),
    )
    return decode_address(fields["address"], params.address_prefix, "the address of leaf"), account


def check_account(proof: AccountProof, *, block: bytes, height: int, state_root: bytes) -> Account | None:
    """The account, or None if it does not exist, in the state after a block that a chain proof shows.

    ``block`` is the hash of that block, and ``state_root`` the one in its header. Raises Unproved.
    """
    if proof.block != block:
        raise Unproved(f"the proof is for block {proof.block.hex()}, not of {block.hex()}")
    if proof.height != height:
        raise Unproved(f"the proof says that block {block.hex()} is at height {proof.height}; it is at {height}")
    depth, key = len(proof.path), int.from_bytes(proof.key, "big")
    node = bytes(32)
    if proof.leaf is not None:
        leaf_key, account = proof.leaf
        if (int.from_bytes(leaf_key, "big") ^ key) >> (KEY_BITS - depth):
            raise Unproved("the account in the proof is not below the end of its path")
        node = leaf_hash(leaf_key, account.balance, account.nonce, account.held_since)
    for level, sibling in zip(range(depth - 1, -1, -1), proof.path, strict=True):
        pair = sibling + node if key >> (KEY_BITS - 1 - level) & 1 else node + sibling
        node = sha256(b"\1" + pair).digest()
    if node != state_root:
        raise Unproved("the path does not lead to the stateRoot of the block")
    return account if proof.leaf is not None and leaf_key == proof.key else None
