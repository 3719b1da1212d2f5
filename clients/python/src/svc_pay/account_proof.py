"""Account proofs: an account, or its absence, against the state root of a header (docs/protocol.md 9 and 13)."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from svc_pay.chain import KEY_BITS, Network, key_hash_of
from svc_pay.chain_proof import check_network
from svc_pay.errors import InvalidInput, InvalidProof
from svc_pay.strict_json import decimal, elements, exact_fields, hex_bytes, must

_PROOF: Final = ("chainId", "genesisHash", "height", "hash", "address", "leaf", "path")
_LEAF: Final = ("address", "balance", "nonce", "heldSince")
_NEVER_HELD: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """An account of the state tree."""

    key: int
    """The key hash of its address."""
    balance: int
    """Base units."""
    nonce: int
    held_since: int | None
    """A slot."""

    @property
    def hash(self) -> bytes:
        """The hash of the leaf in the tree."""
        held = _NEVER_HELD if self.held_since is None else self.held_since
        numbers = b"".join(number.to_bytes(8, "big") for number in (self.balance, self.nonce, held))
        return sha256(b"\0" + self.key.to_bytes(20, "big") + numbers).digest()


def state_root(accounts: Iterable[Leaf]) -> bytes:
    """The root of the tree of these accounts (docs/protocol.md 9)."""
    return _subtree(sorted(accounts, key=lambda account: account.key), 0)


def _subtree(accounts: Sequence[Leaf], depth: int) -> bytes:
    """The root of the accounts, by ascending key, whose first ``depth`` bits are the same."""
    if len(accounts) < 2:
        return accounts[0].hash if accounts else bytes(32)
    middle = bisect_left(accounts, 1, key=lambda account: account.key >> KEY_BITS - 1 - depth & 1)
    halves = _subtree(accounts[:middle], depth + 1) + _subtree(accounts[middle:], depth + 1)
    return sha256(b"\1" + halves).digest()


@dataclass(frozen=True, slots=True)
class AccountProof:
    """A parsed proof, of which only the form has been checked."""

    height: int
    block: bytes
    """The hash of the block after which the account is shown."""
    key: int
    """The key hash of the address that was asked for."""
    leaf: Leaf | None
    """The only account below the end of the path; None if none is there."""
    path: tuple[bytes, ...]
    """The siblings from the deepest one up to the root."""


def parse_account_proof(value: object, network: Network) -> AccountProof:
    """The account proof in the member ``proof`` of an answer; raises InvalidProof."""
    fields = exact_fields(value, _PROOF, "proof")
    check_network(fields, network)
    path = elements(fields["path"], "path")
    must(len(path) <= KEY_BITS, f"path must be an array of at most {KEY_BITS} hashes")
    return AccountProof(
        height=decimal(fields["height"], "height"),
        block=hex_bytes(fields["hash"], 32, "hash"),
        key=_key(fields["address"], network, "address"),
        leaf=None if fields["leaf"] is None else _parse_leaf(fields["leaf"], network),
        path=tuple([hex_bytes(step, 32, f"path[{at}]") for at, step in enumerate(path)]),
    )


def _parse_leaf(value: object, network: Network) -> Leaf:
    fields = exact_fields(value, _LEAF, "leaf")
    held = fields["heldSince"]
    return Leaf(
        key=_key(fields["address"], network, "the address of leaf"),
        balance=decimal(fields["balance"], "balance"),
        nonce=decimal(fields["nonce"], "nonce"),
        held_since=None if held is None else decimal(held, "heldSince"),
    )


def _key(value: object, network: Network, what: str) -> int:
    try:
        if isinstance(value, str):
            return key_hash_of(value, network)
    except InvalidInput:
        pass
    raise InvalidProof(f"{what} is not an address of {network.name}")


def check_account(
    proof: AccountProof, address: str, network: Network, *, block: bytes, height: int, state_root: bytes
) -> Leaf | None:
    """The account of ``address``, or None if it does not exist, after a block that a chain proof shows.

    ``block`` is the hash of that block, and ``state_root`` the one in its header. Raises InvalidProof.
    """
    must(proof.key == key_hash_of(address, network), "the proof is for another address")
    must(proof.block == block, f"the proof is for block {proof.block.hex()}, not of {block.hex()}")
    sentence = f"the proof says that block {block.hex()} is at height {proof.height}; it is at {height}"
    must(proof.height == height, sentence)
    leaf, depth = proof.leaf, len(proof.path)
    node = bytes(32)
    if leaf is not None:
        near = not (leaf.key ^ proof.key) >> KEY_BITS - depth
        must(near, "the account in the proof is not below the end of its path")
        node = leaf.hash
    for at, sibling in enumerate(proof.path):
        on_the_right = proof.key >> KEY_BITS - depth + at & 1
        node = sha256(b"\1" + (sibling + node if on_the_right else node + sibling)).digest()
    must(node == state_root, "the path does not lead to the stateRoot of the block")
    return leaf if leaf is not None and leaf.key == proof.key else None
