"""Snapshots: all accounts after a block in chunks, each checked alone against the block's state root (docs/peers.md).

The state tree is cut into subtrees of at most CHUNK_ACCOUNTS accounts, as few and as high as possible. Chunks of one
depth would not do: a key hash can be chosen freely for the price of the account minimum, so anybody can put any number
of accounts below one node of any given depth. The cut follows from the accounts, so all nodes make the same snapshot.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from struct import Struct
from typing import Final

from attrs import field, frozen

from .accounts import KEY_BITS, Account, pack_held_since, unpack_held_since
from .encoding import MAX_INTEGER, canonical, decimal_u53, hex_bytes
from .errors import Refusal, RuleViolation
from .state_root import subtree_root

CHUNK_ACCOUNTS: Final = 16_384
"""Accounts in a chunk, 720,896 bytes; part of the format: another number would cut the same accounts in another way."""
MAX_CHUNKS: Final = 32_768
"""Enough for 4 · 10^8 accounts; a manifest of so many has 3 MiB."""
SNAPSHOT_BLOCKS: Final = 1_440
"""Snapshots are of the blocks whose heights are multiples of this."""
_RECORD: Final = Struct(">20sQQQ")
RECORD_BYTES: Final = _RECORD.size
_KEY_BYTES: Final = KEY_BITS // 8
_EMPTY: Final = bytes(32)
_CHUNK: Final = re.compile("(0|[1-9][0-9]{0,2}):(0|[1-9][0-9]{0,9}):([0-9a-f]{64})")
_MEMBERS: Final = {"chunks", "hash", "height"}


@frozen
class Chunk:
    """A subtree of the state tree whose accounts are sent together."""

    depth: int
    accounts: int
    root: bytes
    """The 32-byte hash over the accounts at ``depth``; zeros over none."""

    @property
    def size(self) -> int:
        """Bytes of the chunk."""
        return self.accounts * RECORD_BYTES


@frozen
class Manifest:
    """What a snapshot consists of: a block, and the chunks of the state after it in ascending order of key hash."""

    height: int
    hash: bytes
    chunks: tuple[Chunk, ...]
    starts: tuple[int, ...] = field(init=False, repr=False, eq=False)
    """For each chunk how many accounts are in those before it, and at the end how many there are in all."""
    firsts: tuple[int, ...] = field(init=False, repr=False, eq=False)
    """For each chunk the least key hash that it can have, as a number; at the end 2^160 if they fill the key space."""

    @starts.default
    def _sums(self) -> tuple[int, ...]:
        return _running_sums(chunk.accounts for chunk in self.chunks)

    @firsts.default
    def _places(self) -> tuple[int, ...]:
        return _running_sums(1 << KEY_BITS - chunk.depth for chunk in self.chunks)

    @property
    def accounts(self) -> int:
        """How many accounts there are."""
        return self.starts[-1]

    def wire(self) -> bytes:
        """The canonical JSON; a chunk is ``depth:accounts:root``."""
        chunks = [f"{chunk.depth}:{chunk.accounts}:{chunk.root.hex()}" for chunk in self.chunks]
        return canonical({"chunks": chunks, "hash": self.hash.hex(), "height": str(self.height)})

    @property
    def digest(self) -> bytes:
        """The 32-byte SHA-256 of :meth:`wire`, by which peers compare their snapshots of a block."""
        return sha256(self.wire()).digest()


def _running_sums(numbers: Iterable[int]) -> tuple[int, ...]:
    sums = [0]
    for number in numbers:
        sums.append(sums[-1] + number)
    return tuple(sums)


def cut(keys: Sequence[bytes], most: int = CHUNK_ACCOUNTS, depth: int = 0) -> Iterator[tuple[int, int, int]]:
    """Cut ``keys``, which share their first ``depth`` bits and ascend, into subtrees of at most ``most`` keys.

    Gives, in order of the keys, the depth of each subtree, and the indexes of its first key and of the one after its
    last. ``most`` is at least 2.
    """
    first = 0
    if depth and keys:
        first = int.from_bytes(keys[0], "big") >> KEY_BITS - depth << KEY_BITS - depth
    # The subtrees that are still to be cut, the leftmost last: depth, least key, first index, end.
    waiting = [(depth, first, 0, len(keys))]
    while waiting:
        depth, first, begin, end = waiting.pop()
        if end - begin <= most:
            yield depth, begin, end
            continue
        middle = first + (1 << KEY_BITS - depth - 1)
        split = bisect_left(keys, middle.to_bytes(_KEY_BYTES, "big"), begin, end)
        waiting += [(depth + 1, middle, split, end), (depth + 1, first, begin, split)]


def join(
    subtrees: Iterable[tuple[int, int, bytes]], most: int = CHUNK_ACCOUNTS, *, depth: int = 0, first: int = 0
) -> tuple[int, bytes]:
    """The number of accounts and the 32-byte root over the subtrees of a :func:`cut`.

    ``subtrees`` are, in order, depth, number of accounts and root of each; ``depth`` and the key ``first`` say below
    which node. Raises RuleViolation(FORMAT) unless they are next to each other and fill the keys of that node, each has
    at most ``most`` accounts, and no two could have been one.
    """
    at, end = first, first + (1 << KEY_BITS - depth)
    joined: list[tuple[int, int, bytes]] = []
    for below, accounts, root in subtrees:
        if not depth <= below <= KEY_BITS or at % (1 << KEY_BITS - below) or at >= end:
            raise RuleViolation(Refusal.FORMAT, f"a chunk of depth {below} cannot follow the chunk before it")
        if accounts > most:
            raise RuleViolation(Refusal.FORMAT, f"a chunk has at most {most} accounts, not {accounts}")
        if (accounts == 0) != (root == _EMPTY):
            raise RuleViolation(Refusal.FORMAT, "the root of a chunk must be zeros exactly if it has no account")
        at += 1 << KEY_BITS - below
        joined.append((below, accounts, root))
        # A right half completes its parent: the left half is what comes before it.
        while len(joined) > 1 and at % (1 << KEY_BITS - joined[-1][0] + 1) == 0 and joined[-1][0] > depth:
            below, right_accounts, right = joined.pop()
            _, left_accounts, left = joined.pop()
            if (accounts := left_accounts + right_accounts) <= most:
                raise RuleViolation(Refusal.FORMAT, f"two chunks of {accounts} accounts together must be one chunk")
            # Over more than one account, so neither half can stand for both.
            joined.append((below - 1, accounts, sha256(b"\1" + left + right).digest()))
    if at != end:
        raise RuleViolation(Refusal.FORMAT, "the chunks do not fill the space of keys")
    [(_, accounts, root)] = joined
    return accounts, root


def parse_manifest(value: object) -> Manifest:
    """The manifest in an answer; raises RuleViolation(FIELDS, FORMAT)."""
    if type(value) is not dict or value.keys() != _MEMBERS:
        raise RuleViolation(Refusal.FIELDS, "a manifest must have exactly the members chunks, hash and height")
    chunks = value["chunks"]
    if type(chunks) is not list or not 1 <= len(chunks) <= MAX_CHUNKS:
        raise RuleViolation(Refusal.FORMAT, f"chunks must be an array of 1 to {MAX_CHUNKS} chunks")
    height, block_hash = decimal_u53(value["height"], "height"), hex_bytes(value["hash"], 32, "hash")
    return Manifest(height, block_hash, tuple([_parse_chunk(chunk) for chunk in chunks]))


def _parse_chunk(value: object) -> Chunk:
    found = _CHUNK.fullmatch(value) if type(value) is str else None
    if found is None or int(found[1]) > KEY_BITS:
        raise RuleViolation(
            Refusal.FORMAT, f"a chunk must be a depth up to {KEY_BITS}, a number of accounts and 64 hex, with : between"
        )
    return Chunk(int(found[1]), int(found[2]), bytes.fromhex(found[3]))


def check_manifest(manifest: Manifest, state_root: bytes, most: int = CHUNK_ACCOUNTS) -> None:
    """Raise RuleViolation unless the chunks are a cut of the accounts of which the block has the ``state_root``.

    The codes are FORMAT and STATE_ROOT. A number of accounts is proven only by its chunk.
    """
    _, root = join([(chunk.depth, chunk.accounts, chunk.root) for chunk in manifest.chunks], most)
    if root != state_root:
        raise RuleViolation(
            Refusal.STATE_ROOT, f"the chunks do not give the state root of block {manifest.height}, {state_root.hex()}"
        )


def pack_account(key20: bytes, balance: int, nonce: int, held_since: int | None) -> bytes:
    """An account in a chunk, RECORD_BYTES bytes: what its leaf in the state tree is the hash of."""
    return _RECORD.pack(key20, balance, nonce, pack_held_since(held_since))


def leaves(records: bytes) -> list[tuple[int, bytes]]:
    """Key and leaf hash of each account in a chunk, for :func:`svcd.chain.state_root.subtree_root`."""
    return [
        (int.from_bytes(records[at : at + _KEY_BYTES], "big"), sha256(b"\0" + records[at : at + RECORD_BYTES]).digest())
        for at in range(0, len(records), RECORD_BYTES)
    ]


def check_chunk(manifest: Manifest, index: int, records: bytes) -> list[tuple[bytes, Account]]:
    """The accounts in a chunk, ascending by key hash; raises RuleViolation (FORMAT, STATE_ROOT) unless they are right.

    The manifest has passed :func:`check_manifest`.
    """
    chunk = manifest.chunks[index]
    if len(records) != chunk.size:
        raise RuleViolation(Refusal.FORMAT, f"chunk {index} must have {chunk.size} bytes, not {len(records)}")
    hashed = leaves(records)
    keys = [key for key, _ in hashed]
    if any(key >= after for key, after in pairwise(keys)):
        raise RuleViolation(Refusal.FORMAT, f"the accounts of chunk {index} do not ascend")
    if keys and not manifest.firsts[index] <= keys[0] <= keys[-1] < manifest.firsts[index + 1]:
        raise RuleViolation(Refusal.FORMAT, f"an account does not belong to chunk {index}")
    if subtree_root(hashed, chunk.depth) != chunk.root:
        raise RuleViolation(Refusal.STATE_ROOT, f"the accounts of chunk {index} do not give its root in the state tree")
    return [_account(index, *record) for record in _RECORD.iter_unpack(records)]


def _account(index: int, key: bytes, balance: int, nonce: int, held: int) -> tuple[bytes, Account]:
    held_since = unpack_held_since(held)
    if max(balance, nonce, held_since or 0) > MAX_INTEGER:
        raise RuleViolation(Refusal.FORMAT, f"a number in chunk {index} is larger than 2^53 - 1")
    return key, Account(balance, nonce, held_since)
