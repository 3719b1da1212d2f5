"""The state tree: the commitment to all accounts, and the root after the accounts that changed (docs/protocol.md 9).

The top levels of the tree over all accounts are kept in flat byte arrays, 33 bytes a node. A node at the deepest level
stands for a *bucket* of accounts, which is read from disk when one of them is needed: of one or two up to a million
accounts, and of up to sixteen from there to 10^7, so that the tree stays small. After a start, a large tree also leaves
out the level above its deepest one, a quarter of its memory.

A key hash can be chosen freely, so any number of accounts may lie in one bucket. Where more than a few do, the tree
goes deeper: the nodes with accounts on both sides (:class:`InnerNode`) are kept down to buckets of a few again.
So a root costs the accounts and the hashes on the way to each changed account, whatever the keys are.

What is read from disk must have the hash that the tree has for it; otherwise the accounts on disk are damaged, which is
found before a block is built on them or refused because of them.

The changes of new blocks are an overlay on the tree, and are merged into the tree once they are on disk. The tree is a
pure function of the accounts; one of its levels, saved after some block, saves reading all of them (:class:`Level`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from hashlib import sha256
from operator import add
from typing import Final, NamedTuple, TypeAlias, Union

from attrs import field, frozen

from .accounts import KEY_BITS, Account, pack_held_since
from .state_root import LEAF, Leaf, common_bits, damaged, leaf_hash, lifted, middle_of, root_of, subtree_root
from .transition import Effect

Row = tuple[bytes, int, int, int | None]
"""An account as it lies on disk: key hash, balance, nonce, held since."""
Scan = Callable[[Sequence[tuple[bytes, bytes]]], list[Row]]
"""The accounts in ranges of key hashes, (first, last) with both bounds included; in any order."""
Node = bytes
"""The 32-byte hash over several accounts. Over none or one, or if it is not known, a byte for that follows the hash.

Not a tuple, for a full block makes twenty thousand nodes and the garbage collector would have to track them all.
"""
Bucket: TypeAlias = dict[bytes, bytes]
"""The hash of each account in a bucket by its key hash; of bytes alone, so that the garbage collector need not look."""
Place: TypeAlias = int
"""Where a node is: a bit 1, and the bits that the key hashes below it begin with."""

_MANY: Final = 2
"""Two accounts or more, for which a node has no byte. The byte is the number of accounts, 0 or 1, or _UNKNOWN."""
_UNKNOWN: Final = 3
"""The kind of a node at a new level whose parent has not been split yet (:meth:`StateTree.split_some`)."""
_SIZE: Final = 32
_EMPTY: Final = bytes(_SIZE)
_NONE: Final[Node] = _EMPTY + b"\0"
_NOT_READ: Final[Node] = _EMPTY + bytes([_UNKNOWN])
_NEVER_HELD: Final = pack_held_since(None)
_ROOT: Final[Place] = 1
_DENSE: Final = 20
"""A bucket with more accounts is one no longer: of 10^7 accounts by chance one in two thousand."""
_DENSE_BELOW: Final = 6
"""The same of a bucket below a branch, where to read and hash more would cost a block more than an ordinary one."""
_LONG_WAY: Final = 16
"""Accounts that share so many bits more than their bucket does are no bucket: the hashes between are not made twice."""
_SMALL_BUCKETS: Final = 20
"""From 2^20 accounts on the tree gets one level deeper when their number has grown fourfold, and not when doubled."""
_LEFT_OUT_FROM: Final = 17
"""A level as deep as this, of 4 MB or more, is left out; each of its nodes is one hash of two nodes below it."""
_READ_AT_ONCE: Final = 1_024
"""Accounts whose buckets are read together."""
_SPLIT_AT_ONCE: Final = 256
"""Buckets that each batch of blocks splits for a new level, besides one for each account that changed."""
_COPIED_AT_ONCE: Final = 1 << 20
"""Bytes, in 0.1 ms: a copy in one piece would hold the interpreter for longer than other threads should wait."""


# The tree below a bucket with many accounts


class InnerNode(NamedTuple):
    """A node with accounts on both sides, and those below it, where many accounts lie close together."""

    depth: int
    """How many bits the keys of its accounts have in common."""
    key: int
    """A key hash that begins with these bits; the others are 0."""
    left: "Child"
    right: "Child"
    node: bytes
    """The 32-byte hash over its accounts where its parent has it, which may be some levels higher."""

    def moved(self, depth: int) -> "InnerNode":
        """The same below a parent at another depth; ``depth`` is one more than that."""
        own = sha256(b"\1" + _digest(self.left) + _digest(self.right)).digest()
        return self._replace(node=lifted(own, self.key, self.depth, depth))

    def find(self, key: int) -> tuple[Place, Node]:
        """The bucket in which an account of ``key`` is or would be, and its hash."""
        at = self
        while (common := common_bits(key, at.key)) >= at.depth:
            child = at.right if key >> KEY_BITS - 1 - at.depth & 1 else at.left
            if not isinstance(child, InnerNode):
                return _place(key, at.depth + 1), child
            at = child
        return _place(key, common + 1), _NONE


Child: TypeAlias = Union[InnerNode, Node]  # noqa: UP007 - InnerNode is not defined yet where an annotation needs this
"""What is below one side of a branch; a node is a bucket."""


def _place(key: int, depth: int) -> Place:
    return (1 << KEY_BITS | key) >> KEY_BITS - depth


def _depth(place: Place) -> int:
    return place.bit_length() - 1


def _first_key(place: Place) -> int:
    return (place << KEY_BITS - _depth(place)) - (1 << KEY_BITS)


def _digest(child: Child) -> bytes:
    return child.node if isinstance(child, InnerNode) else child[:_SIZE]


def _build(
    leaves: Sequence[Leaf],
    begin: int,
    end: int,
    place: Place,
    buckets: MutableMapping[Place, Bucket] | None = None,
    *,
    most: int,
) -> Child:
    """The tree at ``place`` over leaves, which ascend; its buckets, the first of ``most``, are added to ``buckets``."""
    if _is_bucket(leaves, begin, end, _depth(place), most):
        if buckets is not None:
            buckets[place] = {key.to_bytes(20, "big"): leaf for key, leaf in leaves[begin:end]}
        return _node(root_of(leaves, begin, end, _depth(place)), end - begin)
    first = leaves[begin][0]
    at = common_bits(first, leaves[end - 1][0])
    middle, side = middle_of(leaves, begin, end, at), _place(first, at) << 1
    left = _build(leaves, begin, middle, side, buckets, most=_DENSE_BELOW)
    right = _build(leaves, middle, end, side | 1, buckets, most=_DENSE_BELOW)
    return _branch(at, first, left, right, _depth(place))


def _is_bucket(leaves: Sequence[Leaf], begin: int, end: int, depth: int, most: int) -> bool:
    """Whether leaves, which ascend, are few enough and far enough from each other to be hashed together."""
    if not _MANY <= end - begin <= most:
        return end - begin < _MANY
    least = 1 << max(KEY_BITS - depth - _LONG_WAY, 0)
    # As one loop, since a full block asks for two thousand buckets.
    before = leaves[begin][0]
    for key, _ in leaves[begin + 1 : end]:
        if key ^ before < least:
            return False
        before = key
    return True


def _branch(at: int, key: int, left: Child, right: Child, depth: int) -> InnerNode:
    node = lifted(sha256(b"\1" + _digest(left) + _digest(right)).digest(), key, at, depth)
    return InnerNode(at, key >> KEY_BITS - at << KEY_BITS - at, left, right, node)


def _node(digest: bytes, count: int) -> Node:
    return digest if count >= _MANY else digest + bytes([count])


def _hashed(bucket: Bucket, depth: int) -> Node:
    if len(bucket) < _MANY:
        return next(iter(bucket.values())) + b"\1" if bucket else _NONE
    return root_of(_leaves(bucket), 0, len(bucket), depth)


def _leaves(bucket: Bucket) -> list[Leaf]:
    return [(int.from_bytes(key, "big"), bucket[key]) for key in sorted(bucket)]


def _kind(node: Node | bytearray) -> int:
    """How many accounts there are below a node, up to _MANY, or _UNKNOWN."""
    return _MANY if len(node) == _SIZE else node[_SIZE]


def _joined(left: Node, right: Node) -> Node:
    """The node over two that are known."""
    if _kind(left) + _kind(right) >= _MANY:
        return sha256(b"\1" + left[:_SIZE] + right[:_SIZE]).digest()
    # A subtree of one account is its leaf at any depth, and the empty side is all zeros.
    return left if _kind(left) else right


def _bounds(place: Place) -> tuple[bytes, bytes]:
    first = _first_key(place)
    return first.to_bytes(20, "big"), (first | (1 << KEY_BITS - _depth(place)) - 1).to_bytes(20, "big")


@frozen
class Level:
    """All nodes of one level of a tree, from which the levels above can be computed, and the branches below it."""

    depth: int
    kinds: bytearray
    """How many accounts are below each node: 0, 1, or 2 for more."""
    hashes: bytearray
    """32 bytes for each node."""
    branches: dict[Place, InnerNode] = field(factory=dict)
    """What is below those nodes that have too many accounts for a bucket, by their place."""


class StateTree:
    """The tree over all accounts on disk."""

    def __init__(self, scan: Scan) -> None:
        self._scan = scan
        self._kinds: list[bytearray] = [bytearray(1)]
        self._hashes: list[bytearray] = [bytearray(_SIZE)]
        self.branches: dict[Place, InnerNode] = {}
        """Below nodes with too many accounts for a bucket: at the deepest level, or above it if not split."""
        self._unsplit: int | None = None
        """The first node above the deepest level that may not be split yet; None if all are."""
        self._changed = 0
        """How many accounts have changed since some buckets were split for a new level."""

    @property
    def root(self) -> bytes:
        """The 32-byte state root."""
        return bytes(self._hashes[0])

    @property
    def depth(self) -> int:
        """How deep the deepest level is that is kept."""
        return len(self._kinds) - 1

    def load(self, rows: Iterable[Row], count: int) -> None:
        """Build the tree from all ``rows`` in ascending order of key; ``count`` says how many to expect.

        Raises Corrupt if a row has numbers that no account can have.
        """
        depth = _depth_for(count)
        self._set_level(Level(depth, bytearray(1 << depth), bytearray(_SIZE << depth)))
        leaves: list[Leaf] = []
        index, shift = 0, KEY_BITS - depth
        for row in rows:
            key = int.from_bytes(row[0], "big")
            if key >> shift != index:
                self._put(index, _build(leaves, 0, len(leaves), 1 << depth | index, most=_DENSE))
                leaves, index = [], key >> shift
            leaves.append((key, leaf_hash(*row)))
        self._put(index, _build(leaves, 0, len(leaves), 1 << depth | index, most=_DENSE))
        self._join_all()

    def known_level(self) -> Level:
        """A copy of the deepest level all of whose nodes are known, and what is below it."""
        above, branches = self.depth, dict(self.branches)
        if self._unsplit is None:
            return Level(above, _copied(self._kinds[-1]), _copied(self._hashes[-1]), branches)
        above -= 1
        branches = {place: branch for place, branch in branches.items() if _depth(place) == above}
        for place in {place >> 1 for place in self.branches if _depth(place) > above}:
            index = place ^ 1 << above
            left, right = self._child(2 * index), self._child(2 * index + 1)
            if isinstance(left, InnerNode) and right == _NONE:
                branches[place] = left.moved(above)
            elif isinstance(right, InnerNode) and left == _NONE:
                branches[place] = right.moved(above)
            else:
                branches[place] = _branch(above, _first_key(place), left, right, above)
        return Level(above, _copied(self._kinds[above]), _copied(self._hashes[above]), branches)

    def _copied_level(self, depth: int, branches: dict[Place, InnerNode]) -> Level:
        return Level(depth, _copied(self._kinds[depth]), _copied(self._hashes[depth]), branches)

    def _child(self, index: int) -> Child:
        return self.branches.get(1 << self.depth | index) or self.node(self.depth, index)

    def restore(self, level: Level, count: int, stale: Collection[bytes]) -> None:
        """Build the tree over the ``count`` accounts on disk from one of its levels, which it takes over.

        ``stale`` are the keys of the accounts that have changed since it was copied. Whether the accounts on disk give
        the root of the tree is for the caller to check.
        """
        self._set_level(level)
        keys = sorted(stale)
        for start in range(0, len(keys), _READ_AT_ONCE):
            overlay = Overlay(self, count)
            overlay.read_again(keys[start : start + _READ_AT_ONCE])
            self._merge(overlay)
        self._join_all()
        self._deepen(count)

    def _set_level(self, level: Level) -> None:
        """Have this level alone; the array is not copied, which would be a third of the tree's memory for a moment."""
        self._kinds = [*[bytearray()] * level.depth, level.kinds]
        self._hashes = [*[bytearray()] * level.depth, level.hashes]
        self.branches, self._unsplit = level.branches, None

    def _join_all(self) -> None:
        """Compute the levels above the deepest one from it."""
        for above in range(self.depth - 1, -1, -1):
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
            if above == self.depth - 2 and self.depth - 1 >= _LEFT_OUT_FROM:
                self._kinds[self.depth - 1], self._hashes[self.depth - 1] = bytearray(), bytearray()

    def node(self, depth: int, index: int) -> Node:
        """The node over the accounts whose keys begin with the ``depth`` bits of ``index``."""
        if depth >= len(self._kinds):
            return _NOT_READ
        if not self._kinds[depth]:
            return _joined(self.node(depth + 1, 2 * index), self.node(depth + 1, 2 * index + 1))
        kind, digest = self._kinds[depth][index], bytes(self._hashes[depth][index * _SIZE : (index + 1) * _SIZE])
        return digest if kind == _MANY else digest + bytes([kind])

    def level(self, depth: int) -> tuple[bytearray | Mapping[int, int], bytearray]:
        """The kinds and the hashes of all nodes at ``depth``; of a level that is left out, all are unknown."""
        if not self._kinds[depth]:
            return defaultdict(lambda: _UNKNOWN), bytearray()
        return self._kinds[depth], self._hashes[depth]

    def rows(self, places: Iterable[Place]) -> list[Row]:
        """The accounts on disk below nodes, none of which is below another, in any order."""
        return self._scan([_bounds(place) for place in sorted(places, key=_first_key)])

    def path(self, key20: bytes) -> tuple[Row | None, list[bytes]]:
        """The only account below the end of the path to ``key20``, or None, and the siblings from the deepest one up.

        With them a client computes the root (docs/protocol.md 13); the siblings are 32-byte hashes. Raises Corrupt.
        """
        key, depth = int.from_bytes(key20, "big"), 0
        siblings: list[bytes] = []
        node = self.node(0, 0)
        while _kind(node) == _MANY and depth < self.depth:
            index = key >> KEY_BITS - depth - 1
            below, sibling = self.node(depth + 1, index), self.node(depth + 1, index ^ 1)
            if _kind(below) == _UNKNOWN:
                break
            siblings.append(sibling[:_SIZE])
            depth, node = depth + 1, below
        child: Child = self.branches.get(_place(key, depth), node)
        while isinstance(child, InnerNode):
            common = min(common_bits(key, child.key), child.depth)
            siblings += [_EMPTY] * (common - depth)
            if common < child.depth:
                beside, child = child.moved(common + 1).node, _NONE
            elif key >> KEY_BITS - 1 - common & 1:
                beside, child = _digest(child.left), child.right
            else:
                beside, child = _digest(child.right), child.left
            siblings.append(beside)
            depth = common + 1
        rows = sorted(self.rows([_place(key, depth)]))
        leaves = [(int.from_bytes(row[0], "big"), leaf_hash(*row)) for row in rows]
        begin, end = 0, len(rows)
        if _node(root_of(leaves, begin, end, depth), end) != child:
            raise damaged()
        while end - begin > 1:
            middle = middle_of(leaves, begin, end, depth)
            depth += 1
            if key >> KEY_BITS - depth & 1:
                siblings.append(root_of(leaves, begin, middle, depth))
                begin = middle
            else:
                siblings.append(root_of(leaves, middle, end, depth))
                end = middle
        return rows[begin] if end > begin else None, siblings[::-1]

    def copy(self) -> "StateTree":
        """The same, to be changed alone; takes 30 ms with 10^7 accounts."""
        copy = StateTree(self._scan)
        copy._kinds, copy._hashes = list(map(_copied, self._kinds)), list(map(_copied, self._hashes))
        copy.branches, copy._unsplit, copy._changed = dict(self.branches), self._unsplit, self._changed
        return copy

    def take(self, overlay: "Overlay") -> None:
        """Merge an overlay on this tree into it, once the overlay's accounts are on disk."""
        self._changed += len(overlay.changed)
        self._merge(overlay)
        self._deepen(overlay.count)

    def _merge(self, overlay: "Overlay") -> None:
        for depth, level in enumerate(overlay.levels):
            kinds, hashes = self._kinds[depth], self._hashes[depth]
            if not kinds:
                continue
            for index, node in level.items():
                kinds[index] = _MANY if len(node) == _SIZE else node[_SIZE]
                hashes[index * _SIZE : (index + 1) * _SIZE] = node[:_SIZE]
        for place, branch in overlay.branches.items():
            if branch is not None:
                self.branches[place] = branch
            else:
                self.branches.pop(place, None)

    def _put(self, index: int, child: Child) -> None:
        """Set a node at the deepest level."""
        if isinstance(child, InnerNode):
            self.branches[1 << self.depth | index] = child
        self._kinds[-1][index] = _MANY if isinstance(child, InnerNode) else _kind(child)
        self._hashes[-1][index * _SIZE : (index + 1) * _SIZE] = _digest(child)

    # A new level

    def _deepen(self, count: int) -> None:
        """Add a level if so many accounts ask for one; its nodes are unknown until their parents are split."""
        if self._unsplit is None and self.depth < _depth_for(count):
            size = 2 << self.depth
            self._kinds.append(bytearray([_UNKNOWN]) * size)
            self._hashes.append(bytearray(_SIZE * size))
            self._unsplit = self._changed = 0

    def split_some(self) -> None:
        """Split some buckets for a new level, if there is one.

        Their number follows from that of the accounts that changed, so a level is complete before the next one is due.
        Raises Corrupt. Takes about as long as the blocks that changed the accounts.
        """
        if self._unsplit is None:
            return
        kinds, at = self._kinds[-1], 2 * self._unsplit
        some: list[int] = []
        most, self._changed = _SPLIT_AT_ONCE + self._changed, 0
        while len(some) < most:
            at = kinds.find(_UNKNOWN, at)
            if at < 0:
                break
            some.append(at >> 1)
            at += 2
        self._split(some)
        self._unsplit = None if at < 0 else at >> 1

    def split_above(self, places: Iterable[Place]) -> None:
        """Have the nodes at ``places`` of the deepest level, which may be new; raises Corrupt."""
        if self._unsplit is not None:
            self._split({(place ^ 1 << self.depth) >> 1 for place in places})

    def _split(self, indexes: Iterable[int]) -> None:
        above = self.depth - 1
        some = [index for index in indexes if self._kinds[-1][2 * index] == _UNKNOWN]
        dense = {index for index in some if 1 << above | index in self.branches}
        buckets: dict[int, list[Leaf]] = {index: [] for index in some if index not in dense}
        if buckets:
            for row in self.rows([1 << above | index for index in buckets]):
                key = int.from_bytes(row[0], "big")
                buckets[key >> KEY_BITS - above].append((key, leaf_hash(*row)))
        for index, leaves in buckets.items():
            leaves.sort()
            if _node(subtree_root(leaves, above), len(leaves)) != self.node(above, index):
                raise damaged()
            middle = middle_of(leaves, 0, len(leaves), above) if leaves else 0
            side = 2 << above | 2 * index
            self._put(2 * index, _build(leaves, 0, middle, side, most=_DENSE))
            self._put(2 * index + 1, _build(leaves, middle, len(leaves), side | 1, most=_DENSE))
        for index in dense:
            branch = self.branches.pop(1 << above | index)
            left, right = branch.left, branch.right
            if branch.depth > above:
                moved = branch.moved(above + 1)
                left, right = (_NONE, moved) if branch.key >> KEY_BITS - 1 - above & 1 else (moved, _NONE)
            self._put(2 * index, left)
            self._put(2 * index + 1, right)


class Overlay:
    """The accounts as changed by blocks that are not on disk yet, and the tree over these and all other accounts."""

    def __init__(self, base: StateTree, count: int) -> None:
        """An overlay without changes on ``base``, with ``count`` accounts on disk."""
        self._base = base
        self.count = count
        self.changed: dict[bytes, Account | None] = {}
        """Every account that was touched, as it is now; None if it does not exist."""
        self.levels: list[dict[int, Node]] = [{} for _ in range(base.depth + 1)]
        """The nodes that are not as in the tree below, by depth and index."""
        self.branches: dict[Place, InnerNode | None] = {}
        """The branches that are not as in the tree below, by their places at its deepest level; None for none."""
        self._buckets: dict[Place, Bucket] = {}
        """The buckets that were read, as they are now; never changed, but replaced."""
        self._rows: dict[bytes, Row] = {}
        """The accounts in these buckets as they are on disk, by key."""

    @property
    def root(self) -> bytes:
        """The 32-byte state root."""
        return self._node(0, 0)[:_SIZE]

    @property
    def depth(self) -> int:
        """How many levels below the root are kept."""
        return len(self.levels) - 1

    def copy(self, base: StateTree | None = None) -> "Overlay":
        """The same, to go back to; on ``base``, if it is given, which is a copy of the tree below."""
        copy = Overlay(base or self._base, self.count)
        copy.changed, copy.levels = dict(self.changed), [dict(level) for level in self.levels]
        copy.branches, copy._buckets, copy._rows = dict(self.branches), dict(self._buckets), dict(self._rows)
        return copy

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """Those accounts of ``keys`` that exist: see :class:`svcd.chain.transition.StateView`.

        Raises Corrupt if what is on disk does not have the hash that the tree has for it.
        """
        # If an account changes, its whole bucket is needed, so the bucket is read at once.
        self._read(keys)
        found: dict[bytes, Account] = {}
        for key in keys:
            if key in self.changed:
                account = self.changed[key]
                if account is not None:
                    found[key] = account
            elif row := self._rows.get(key):
                found[key] = Account(*row[1:])
        return found

    def apply(self, effect: Effect) -> bytes:
        """Apply the effect of a block; returns the state root after it. Raises Corrupt."""
        return self.change(effect.after, self.count + sum(account is None for account in effect.before.values()))

    def undo(self, before: Mapping[bytes, Account | None]) -> bytes:
        """Restore the accounts that the last block touched, None for one that it created; returns the state root.

        Raises Corrupt.
        """
        return self.change(before, self.count - sum(account is None for account in before.values()))

    def change(self, accounts: Mapping[bytes, Account | None], count: int) -> bytes:
        """The state root after accounts have changed, None for a removed one; ``count`` exist now. Raises Corrupt."""
        self._read(accounts)
        self.changed.update(accounts)
        self.count = count
        touched: Collection[int] = self._change_buckets(accounts)
        for depth in range(self.depth - 1, -1, -1):
            touched = {index >> 1 for index in touched}
            self._join(depth, touched)
        return self.root

    def read_again(self, keys: Sequence[bytes]) -> None:
        """Have accounts as they are on disk, which the tree below does not know; only the deepest level is right then.

        Nothing is checked, for there are no hashes to check against.
        """
        self._read(keys, checked=False)
        self._change_buckets({key: Account(*row[1:]) if (row := self._rows.get(key)) else None for key in keys})

    def _change_buckets(self, accounts: Mapping[bytes, Account | None]) -> Collection[int]:
        """Change accounts whose buckets have been read; gives the indexes of the changed nodes at the deepest level."""
        top, shift = 1 << self.depth, KEY_BITS - self.depth
        touched: dict[Place, Bucket] = {}
        dense: defaultdict[Place, list[tuple[int, bytes | None]]] = defaultdict(list)
        for key, account in accounts.items():
            leaf = None
            if account is not None:
                held = account.held_since
                packed = LEAF.pack(key, account.balance, account.nonce, _NEVER_HELD if held is None else held)
                leaf = sha256(packed).digest()
            number = int.from_bytes(key, "big")
            place = top | number >> shift
            bucket = touched.get(place)
            if bucket is None:
                if place not in self._buckets:
                    dense[place].append((number, leaf))
                    continue
                bucket = touched[place] = self._buckets[place].copy()
            if leaf is not None:
                bucket[key] = leaf
            else:
                bucket.pop(key, None)
        deepest = self.levels[-1]
        for place, bucket in touched.items():
            leaves = _leaves(bucket) if len(bucket) >= _MANY else []
            if _is_bucket(leaves, 0, len(leaves), self.depth, _DENSE):
                self._buckets[place] = bucket
                deepest[place ^ top] = root_of(leaves, 0, len(leaves), self.depth) if leaves else _hashed(bucket, 0)
            else:
                del self._buckets[place]
                self._put(place, _build(leaves, 0, len(leaves), place, self._buckets, most=_DENSE))
        for place, changes in dense.items():
            changes.sort()
            self._put(place, self._changed_child(self._branch(place) or _NONE, place, changes))
        return [place ^ top for place in (*touched, *dense)]

    def _put(self, place: Place, child: Child) -> None:
        self.branches[place] = child if isinstance(child, InnerNode) else None
        self.levels[-1][place ^ 1 << self.depth] = child.node if isinstance(child, InnerNode) else child

    def _changed_child(self, child: Child, place: Place, changes: Sequence[tuple[int, bytes | None]]) -> Child:
        """What is at ``place`` after ``changes`` of accounts below it, one or more, ascending; None for a removed one.

        ``child`` is there now.
        """
        if not isinstance(child, InnerNode):
            bucket = self._buckets.pop(place, {}).copy()
            for key, leaf in changes:
                if leaf is not None:
                    bucket[key.to_bytes(20, "big")] = leaf
                else:
                    bucket.pop(key.to_bytes(20, "big"), None)
            return _build(_leaves(bucket), 0, len(bucket), place, self._buckets, most=_DENSE_BELOW)
        at = min(child.depth, common_bits(changes[0][0], child.key), common_bits(changes[-1][0], child.key))
        left, right = child.left, child.right
        if at < child.depth:
            moved = child.moved(at + 1)
            left, right = (_NONE, moved) if child.key >> KEY_BITS - 1 - at & 1 else (moved, _NONE)
        middle, side = middle_of(changes, 0, len(changes), at), _place(child.key, at) << 1
        if middle:
            left = self._changed_child(left, side, changes[:middle])
        if middle < len(changes):
            right = self._changed_child(right, side | 1, changes[middle:])
        if right == _NONE:
            return self._raised(left, side, place)
        if left == _NONE:
            return self._raised(right, side | 1, place)
        return _branch(at, child.key, left, right, _depth(place))

    def _raised(self, child: Child, place: Place, to: Place) -> Child:
        """A child that takes the place ``to`` of its parent, whose other side has become empty."""
        if isinstance(child, InnerNode):
            return child.moved(_depth(to))
        bucket = self._buckets.pop(place, None)
        if bucket is not None:
            self._buckets[to] = bucket
        else:
            self._buckets.pop(to, None)
        return lifted(child, _first_key(place), _depth(place), _depth(to)) if _kind(child) == _MANY else child

    def _branch(self, place: Place) -> InnerNode | None:
        return self.branches[place] if place in self.branches else self._base.branches.get(place)

    def _read(self, keys: Iterable[bytes], *, checked: bool = True) -> None:
        """Read the buckets of ``keys`` that have not been read yet."""
        top, shift = 1 << self.depth, KEY_BITS - self.depth
        numbers = [int.from_bytes(key, "big") for key in keys]
        missing = {place for number in numbers if (place := top | number >> shift) not in self._buckets}
        if not missing:
            return
        self._base.split_above(missing)
        has_branches = self.branches or self._base.branches
        wanted: dict[Place, Node] = {}
        for number in numbers:
            place = top | number >> shift
            if place not in missing:
                continue
            branch = self._branch(place) if has_branches else None
            if branch is None:
                wanted[place] = self._node(self.depth, place ^ top)
                continue
            place, node = branch.find(number)
            if place not in self._buckets:
                wanted[place] = node
        if wanted:
            self._fill(wanted, checked=checked)

    def _fill(self, wanted: Mapping[Place, Node], *, checked: bool) -> None:
        top, shift = 1 << self.depth, KEY_BITS - self.depth
        found: dict[Place, Bucket] = {place: {} for place in wanted}
        changed, kept = self.changed, self._rows
        for row in self._base.rows(wanted):
            key, balance, nonce, held = row
            # One that is on disk only until the blocks here are: its bucket is what was left beside it.
            if key in changed:
                continue
            number = int.from_bytes(key, "big")
            bucket = found.get(top | number >> shift)
            if bucket is None:
                bucket = found[self._find(number)]
            bucket[key] = leaf_hash(key, balance, nonce, held)
            kept[key] = row
        if checked:
            for place, bucket in found.items():
                if _hashed(bucket, place.bit_length() - 1) != wanted[place]:
                    raise damaged()
        self._buckets.update(found)

    def _find(self, key: int) -> Place:
        """The bucket in which an account of ``key`` is or would be."""
        branch = self._branch(_place(key, self.depth))
        return _place(key, self.depth) if branch is None else branch.find(key)[0]

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
            else:
                level[index] = _joined(bytes(left), bytes(right))


_AT_MOST_MANY: Final = bytes([min(count, _MANY) for count in range(256)])


def _copied(data: bytearray) -> bytearray:
    copy = bytearray(len(data))
    for start in range(0, len(data), _COPIED_AT_ONCE):
        copy[start : start + _COPIED_AT_ONCE] = data[start : start + _COPIED_AT_ONCE]
    return copy


def _depth_for(count: int) -> int:
    doubled = max(count.bit_length() - 1, 0)
    return doubled if doubled < _SMALL_BUCKETS else _SMALL_BUCKETS - 1 + (doubled - _SMALL_BUCKETS) // 2
