"""The state root, computed from the accounts that changed (docs/protocol.md 9).

The top levels of the tree over all accounts are kept in flat byte arrays, 33 bytes a node. A node at the deepest level
stands for a bucket of accounts, which is read again when one of them changes: of one or two up to a million accounts,
and of up to sixteen from there to 10^7, so that the tree stays small. After a start, a large tree also leaves out the
level above its deepest known one, a quarter of its memory. The tree is a pure function of the accounts; one of its
levels, saved after some block, saves reading all of them (:class:`Level`).

The changes of new blocks are an overlay on the tree, and are merged into the tree once they are on disk.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import add
from typing import Final

from attrs import frozen

from svcd.chain.accounts import KEY_BITS, Account, leaf_hash, subtree_root
from svcd.chain.transition import Effect

Row = tuple[bytes, int, int, int | None]
"""An account as it lies on disk: key hash, balance, nonce, held since."""
Scan = Callable[[Sequence[tuple[bytes, bytes]]], list[Row]]
"""The accounts in ranges of key hashes, (first, last) with both bounds included; in any order."""
Node = bytes
"""The 32-byte hash over several accounts. Over none or one, or if it is not known, a byte for that follows the hash.

Not a tuple, for a full block makes twenty thousand nodes and the garbage collector would have to track them all.
"""

_MANY: Final = 2
"""Two accounts or more, for which a node has no byte. The byte is the number of accounts, 0 or 1, or _UNKNOWN."""
_UNKNOWN: Final = 3
_SIZE: Final = 32
_NOT_READ: Final[Node] = bytes(_SIZE) + bytes([_UNKNOWN])
_SMALL_BUCKETS: Final = 20
"""From 2^20 accounts on the tree gets one level deeper when their number has grown fourfold, and not when doubled."""
_LEFT_OUT_FROM: Final = 17
"""A level as deep as this, of 4 MB or more, is left out; each of its nodes is one hash of two nodes below it."""
_READ_AT_ONCE: Final = 1_024
"""Buckets that are read together."""
_COPIED_AT_ONCE: Final = 1 << 20
"""Bytes, in 0.1 ms: a copy in one piece would hold the interpreter for longer than other threads should wait."""


@frozen
class Level:
    """All nodes of one level of a tree, from which the levels above can be computed."""

    depth: int
    kinds: bytearray
    """How many accounts are below each node: 0, 1, or 2 for more."""
    hashes: bytearray
    """32 bytes for each node."""


class Commitment:
    """The tree over all accounts on disk."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._kinds: list[bytearray] = [bytearray(1)]
        self._hashes: list[bytearray] = [bytearray(_SIZE)]

    @property
    def root(self) -> bytes:
        """The 32-byte state root."""
        return bytes(self._hashes[0])

    @property
    def depth(self) -> int:
        """How deep the deepest level is that is kept."""
        return len(self._kinds) - 1

    def load(self, rows: Iterable[Row], count: int) -> None:
        """Build the tree from all ``rows`` in ascending order of key; ``count`` says how many to expect."""
        depth = _depth_for(count)
        self._set_level(Level(depth, bytearray(1 << depth), bytearray(_SIZE << depth)))
        bucket: list[Row] = []
        index = 0
        shift = KEY_BITS - self.depth
        for row in rows:
            at = int.from_bytes(row[0], "big") >> shift
            if at != index:
                self._put(self.depth, index, _hashed(bucket, self.depth))
                bucket, index = [], at
            bucket.append(row)
        self._put(self.depth, index, _hashed(bucket, self.depth))
        self._join_all(self.depth)

    def known_level(self) -> Level:
        """A copy of the deepest level all of whose nodes are known."""
        depth = next(depth for depth in range(self.depth, -1, -1) if _UNKNOWN not in self._kinds[depth])
        return Level(depth, _copied(self._kinds[depth]), _copied(self._hashes[depth]))

    def restore(self, level: Level, count: int, stale: Collection[int]) -> None:
        """Build the tree over the ``count`` accounts on disk from one of its levels, which it takes over.

        ``stale`` are the indexes of the nodes at this level below which accounts have changed since it was copied.
        """
        self._set_level(level)
        indexes = sorted(stale)
        for start in range(0, len(indexes), _READ_AT_ONCE):
            some = indexes[start : start + _READ_AT_ONCE]
            for index, node in self._computed(level.depth, some).items():
                self._put(level.depth, index, node)
        self._join_all(level.depth)
        self._deepen(_depth_for(count), _UNKNOWN)

    def _set_level(self, level: Level) -> None:
        """Have this level alone; the array is not copied, which would be a third of the tree's memory for a moment."""
        self._kinds = [*[bytearray()] * level.depth, level.kinds]
        self._hashes = [*[bytearray()] * level.depth, level.hashes]

    def agrees_with_disk(self, keys: Iterable[bytes]) -> bool:
        """Whether the accounts on disk below the buckets of ``keys`` have the hashes that the tree has for them."""
        shift = KEY_BITS - self.depth
        indexes = sorted({int.from_bytes(key, "big") >> shift for key in keys})
        found = self._computed(self.depth, indexes) if indexes else {}
        return all(self.node(self.depth, index) in (node, _NOT_READ) for index, node in found.items())

    def _computed(self, depth: int, indexes: Sequence[int]) -> dict[int, Node]:
        """The nodes ``indexes`` at ``depth``, computed from the accounts on disk."""
        shift = KEY_BITS - depth
        buckets: dict[int, list[Row]] = {index: [] for index in indexes}
        for row in self.rows(depth, indexes):
            buckets[int.from_bytes(row[0], "big") >> shift].append(row)
        return {index: _hashed(sorted(bucket), depth) for index, bucket in buckets.items()}

    def _join_all(self, depth: int) -> None:
        """Compute the levels above ``depth`` from it; all of its nodes are known."""
        for above in range(depth - 1, -1, -1):
            kinds, below, hashes = self._kinds[above + 1], self._hashes[above + 1], bytearray(_SIZE << above)
            counts = bytearray(map(add, kinds[::2], kinds[1::2]))
            for index, count in enumerate(counts):
                # A loop over a million nodes at 10^7 accounts. As in _joined, but a child of no account is all zeros.
                at = 2 * _SIZE * index
                if count >= _MANY:
                    node = sha256(b"\1" + below[at : at + 2 * _SIZE]).digest()
                else:
                    at += 0 if kinds[2 * index] else _SIZE
                    node = bytes(below[at : at + _SIZE])
                hashes[_SIZE * index : _SIZE * (index + 1)] = node
            self._kinds[above], self._hashes[above] = counts.translate(_AT_MOST_MANY), hashes
            if above == depth - 2 and depth - 1 >= _LEFT_OUT_FROM:
                self._kinds[depth - 1], self._hashes[depth - 1] = bytearray(), bytearray()

    def node(self, depth: int, index: int) -> Node:
        """The node over the accounts whose keys begin with the ``depth`` bits of ``index``."""
        if depth >= len(self._kinds):
            return _NOT_READ
        if not self._kinds[depth]:
            return _joined(self.node(depth + 1, 2 * index), self.node(depth + 1, 2 * index + 1))
        kind, digest = self._kinds[depth][index], bytes(self._hashes[depth][index * _SIZE : (index + 1) * _SIZE])
        return digest if kind == _MANY else digest + bytes([kind])

    def level(self, depth: int) -> tuple[bytearray | Mapping[int, int], bytearray]:
        """The kinds and the hashes of all nodes at ``depth``; of a level that is not kept, all are unknown."""
        if depth > self.depth or not self._kinds[depth]:
            return defaultdict(lambda: _UNKNOWN), bytearray()
        return self._kinds[depth], self._hashes[depth]

    def rows(self, depth: int, indexes: Iterable[int]) -> list[Row]:
        """The accounts on disk below nodes at ``depth``, in any order."""
        shift = KEY_BITS - depth
        ranges = [(index << shift, (index + 1 << shift) - 1) for index in sorted(indexes)]
        return self._scan([(first.to_bytes(20, "big"), last.to_bytes(20, "big")) for first, last in ranges])

    def path(self, key20: bytes) -> tuple[Row | None, list[bytes]]:
        """The only account below the end of the path to ``key20``, or None, and the siblings from the deepest one up.

        With them a client computes the root (docs/protocol.md 13); the siblings are 32-byte hashes.
        """
        key, depth = int.from_bytes(key20, "big"), 0
        siblings: list[bytes] = []
        while _kind(self.node(depth, key >> KEY_BITS - depth)) == _MANY:
            index = key >> KEY_BITS - depth - 1
            node, sibling = self.node(depth + 1, index), self.node(depth + 1, index ^ 1)
            if _UNKNOWN in (_kind(node), _kind(sibling)):
                break
            siblings.append(sibling[:_SIZE])
            depth += 1
        rows = sorted(self.rows(depth, [key >> KEY_BITS - depth]))
        while len(rows) > 1:
            depth += 1
            index = key >> KEY_BITS - depth
            beside = [row for row in rows if int.from_bytes(row[0], "big") >> KEY_BITS - depth != index]
            rows = [row for row in rows if row not in beside]
            siblings.append(_hashed(beside, depth)[:_SIZE])
        return rows[0] if rows else None, siblings[::-1]

    def copy(self) -> "Commitment":
        """The same, to be changed alone; takes 30 ms with 10^7 accounts."""
        copy = Commitment(self._scan)
        copy._kinds, copy._hashes = list(map(_copied, self._kinds)), list(map(_copied, self._hashes))
        return copy

    def take(self, overlay: "Overlay") -> None:
        """Merge an overlay on this tree into it, once the overlay's accounts are on disk."""
        self._deepen(overlay.depth, _UNKNOWN)
        for depth, level in enumerate(overlay.levels):
            kinds, hashes = self._kinds[depth], self._hashes[depth]
            if not kinds:
                continue
            for index, node in level.items():
                at = index * _SIZE
                if len(node) == _SIZE:
                    kinds[index], hashes[at : at + _SIZE] = _MANY, node
                else:
                    kinds[index], hashes[at : at + _SIZE] = node[_SIZE], node[:_SIZE]

    def _deepen(self, depth: int, kind: int = 0) -> None:
        for level in range(self.depth + 1, depth + 1):
            self._kinds.append(bytearray(bytes([kind])) * (1 << level))
            self._hashes.append(bytearray(_SIZE << level))

    def _put(self, depth: int, index: int, node: Node) -> None:
        self._kinds[depth][index] = _kind(node)
        self._hashes[depth][index * _SIZE : (index + 1) * _SIZE] = node[:_SIZE]


class Overlay:
    """The accounts as changed by blocks that are not on disk yet, and the tree over these and all other accounts."""

    def __init__(self, base: Commitment, count: int) -> None:
        """An overlay without changes on ``base``, with ``count`` accounts on disk."""
        self._base = base
        self.count = count
        self.changed: dict[bytes, Account | None] = {}
        """Every account that was touched, as it is now; None if it does not exist."""
        self.levels: list[dict[int, Node]] = [{} for _ in range(base.depth + 1)]
        """The nodes that are not as in the tree below, by depth and index."""
        self._buckets: dict[int, tuple[bytes, ...]] = {}
        """The keys in each bucket that was read, by its index; tuples, which the garbage collector does not track."""
        self._rows: dict[bytes, Row] = {}
        """The accounts in these buckets as they are now, by key."""

    @property
    def root(self) -> bytes:
        """The 32-byte state root."""
        return self._node(0, 0)[:_SIZE]

    @property
    def depth(self) -> int:
        """How many levels below the root are kept."""
        return len(self.levels) - 1

    def copy(self, base: Commitment | None = None) -> "Overlay":
        """The same, to go back to; on ``base``, if it is given, which is a copy of the tree below."""
        copy = Overlay(base or self._base, self.count)
        copy.changed, copy.levels = dict(self.changed), [dict(level) for level in self.levels]
        copy._buckets, copy._rows = dict(self._buckets), dict(self._rows)
        return copy

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """Those accounts of ``keys`` that exist: see :class:`svcd.chain.transition.StateView`."""
        # If an account changes, its whole bucket is needed, so the bucket is read at once.
        self._read(keys)
        return {key: Account(*row[1:]) for key in keys if (row := self._rows.get(key))}

    def apply(self, effect: Effect) -> bytes:
        """Apply the effect of a block; returns the state root after it."""
        return self.change(effect.after, self.count + sum(account is None for account in effect.before.values()))

    def undo(self, before: Mapping[bytes, Account | None]) -> bytes:
        """Restore the accounts that the last block touched, None for one that it created; returns the state root."""
        return self.change(before, self.count - sum(account is None for account in before.values()))

    def change(self, accounts: Mapping[bytes, Account | None], count: int) -> bytes:
        """The state root after accounts have changed, None for a removed one; ``count`` exist now."""
        self.changed.update(accounts)
        self.count = count
        if self.depth < _depth_for(count):
            self._deepen(_depth_for(count))
        buckets = self._read(accounts)
        for key, account in accounts.items():
            if account is not None:
                if key not in self._rows:
                    self._buckets[buckets[key]] += (key,)
                self._rows[key] = key, account.balance, account.nonce, account.held_since
            elif self._rows.pop(key, None):
                self._buckets[buckets[key]] = tuple([other for other in self._buckets[buckets[key]] if other != key])
        touched = set(buckets.values())
        deepest = self.levels[self.depth]
        for index in touched:
            deepest[index] = _hashed([self._rows[key] for key in sorted(self._buckets[index])], self.depth)
        for depth in range(self.depth - 1, -1, -1):
            touched = {index >> 1 for index in touched}
            self._join(depth, touched)
        return self.root

    def _deepen(self, depth: int) -> None:
        # A new level costs no walk: its nodes are unknown until a neighbour changes.
        more = depth - self.depth
        self.levels += [{} for _ in range(more)]
        read, self._buckets = self._buckets, {}
        for index in read:
            self._buckets.update(dict.fromkeys(range(index << more, (index + 1) << more), ()))
        self._distribute(self._rows)

    def _read(self, keys: Iterable[bytes]) -> dict[bytes, int]:
        """The bucket of each key; all of them have been read then."""
        shift = KEY_BITS - self.depth
        buckets = {key: int.from_bytes(key, "big") >> shift for key in keys}
        self._fill(buckets.values())
        return buckets

    def _fill(self, indexes: Iterable[int]) -> None:
        missing = {index for index in indexes if index not in self._buckets}
        if not missing:
            return
        rows = {row[0]: row for row in self._base.rows(self.depth, missing)}
        self._buckets.update(dict.fromkeys(missing, ()))
        self._rows.update(rows)
        self._distribute(rows)

    def _distribute(self, keys: Iterable[bytes]) -> None:
        """Put accounts into their buckets."""
        shift = KEY_BITS - self.depth
        for key in keys:
            self._buckets[int.from_bytes(key, "big") >> shift] += (key,)

    def _hash(self, depth: int, index: int) -> Node:
        """Hash the accounts below a node that is unknown, for its level is new."""
        more = self.depth - depth
        buckets = range(index << more, (index + 1) << more)
        self._fill(buckets)
        keys = sorted([key for each in buckets for key in self._buckets[each]])
        node = self.levels[depth][index] = _hashed([self._rows[key] for key in keys], depth)
        return node

    def _node(self, depth: int, index: int) -> Node:
        return self.levels[depth].get(index) or self._base.node(depth, index)

    def _join(self, depth: int, indexes: Iterable[int]) -> None:
        """Compute the nodes ``indexes`` at ``depth`` from their two children each."""
        level, below = self.levels[depth], self.levels[depth + 1]
        depth += 1
        kinds, hashes = self._base.level(depth)
        for index in indexes:
            # A full block has seventeen thousand: no function of ours is called for most of them.
            at = 2 * index
            left: bytes | bytearray | None = below.get(at)
            if left is None:
                left = hashes[at * _SIZE : (at + 1) * _SIZE] if kinds[at] == _MANY else self._base.node(depth, at)
            at += 1
            right: bytes | bytearray | None = below.get(at)
            if right is None:
                right = hashes[at * _SIZE : (at + 1) * _SIZE] if kinds[at] == _MANY else self._base.node(depth, at)
            both = left + right
            if len(both) == 2 * _SIZE:
                level[index] = sha256(b"\1" + both).digest()
                continue
            left = self._hash(depth, at - 1) if _kind(left) == _UNKNOWN else left
            right = self._hash(depth, at) if _kind(right) == _UNKNOWN else right
            level[index] = _joined(bytes(left), bytes(right))


def _hashed(rows: list[Row], depth: int) -> Node:
    leaves = [(int.from_bytes(row[0], "big"), leaf_hash(*row)) for row in rows]
    root = subtree_root(leaves, depth)
    return root if len(leaves) >= _MANY else root + bytes([len(leaves)])


def _kind(node: bytes | bytearray) -> int:
    """How many accounts there are below a node, up to _MANY, or _UNKNOWN."""
    return _MANY if len(node) == _SIZE else node[_SIZE]


def _joined(left: Node, right: Node) -> Node:
    """The node over two that are known."""
    if _kind(left) + _kind(right) >= _MANY:
        return sha256(b"\1" + left[:_SIZE] + right[:_SIZE]).digest()
    # A subtree of one account is its leaf at any depth, and the empty side is all zeros.
    return left if _kind(left) else right


_AT_MOST_MANY: Final = bytes([min(count, _MANY) for count in range(256)])


def _copied(data: bytearray) -> bytearray:
    copy = bytearray(len(data))
    for start in range(0, len(data), _COPIED_AT_ONCE):
        copy[start : start + _COPIED_AT_ONCE] = data[start : start + _COPIED_AT_ONCE]
    return copy


def _depth_for(count: int) -> int:
    doubled = max(count.bit_length() - 1, 0)
    return doubled if doubled < _SMALL_BUCKETS else _SMALL_BUCKETS - 1 + (doubled - _SMALL_BUCKETS) // 2
