"""RFC 6962 trees (docs/protocol.md 5)."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from svcd.chain.merkle import inclusion_path, leaf_hash, merkle_root, node_hash, root_of_path

SIZES = range(71)


def leaves_of(size: int) -> list[bytes]:
    return [bytes([number]) * 3 for number in range(size)]


def split_root(leaves: Sequence[bytes]) -> bytes:
    """The definition of RFC 6962: split at the largest power of two below the number of leaves."""
    if len(leaves) < 2:
        return sha256(b"\0" + leaves[0]).digest() if leaves else sha256(b"").digest()
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + split_root(leaves[:half]) + split_root(leaves[half:])).digest()


def split_path(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """The definition of an audit path in RFC 6962 2.1.1."""
    if len(leaves) < 2:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if index < half:
        return [*split_path(leaves[:half], index), split_root(leaves[half:])]
    return [*split_path(leaves[half:], index - half), split_root(leaves[:half])]


def test_rfc_6962(vectors: Path) -> None:
    vector = json.loads((vectors / "rfc6962_merkle.json").read_text())
    leaves = [bytes.fromhex(leaf) for leaf in vector["leaves_hex"]]
    roots = vector["roots_of_first_n_leaves"]
    assert len(roots) == len(leaves) + 1
    assert [merkle_root(leaves[:size]).hex() for size in range(len(roots))] == roots


def test_leaves_and_nodes_are_told_apart() -> None:
    left, right = leaf_hash(b"a"), leaf_hash(b"b")
    assert left == sha256(b"\0a").digest()
    assert node_hash(left, right) == sha256(b"\1" + left + right).digest()
    assert merkle_root([left + right]) != merkle_root([b"a", b"b"])


@pytest.mark.parametrize("size", SIZES)
def test_root_is_that_of_the_definition(size: int) -> None:
    assert merkle_root(leaves_of(size)) == split_root(leaves_of(size))


def test_every_path_of_every_tree_leads_to_its_root() -> None:
    for size in SIZES:
        leaves = leaves_of(size)
        root = merkle_root(leaves)
        for index, leaf in enumerate(leaves):
            path = inclusion_path(leaves, index)
            assert path == split_path(leaves, index)
            assert root_of_path(leaf, index=index, size=size, path=path) == root


def test_a_path_of_another_length_leads_nowhere() -> None:
    for size in SIZES:
        leaves = leaves_of(size)
        for index, leaf in enumerate(leaves):
            path = inclusion_path(leaves, index)
            assert root_of_path(leaf, index=index, size=size, path=[*path, bytes(32)]) is None
            if path:
                assert root_of_path(leaf, index=index, size=size, path=path[:-1]) is None


def test_a_path_of_another_leaf_leads_to_another_root() -> None:
    for size in (*range(20), 33, 64):
        leaves = leaves_of(size)
        root = merkle_root(leaves)
        for index in range(size):
            path = inclusion_path(leaves, index)
            for other in range(size):
                if other != index:
                    assert root_of_path(leaves[other], index=index, size=size, path=path) != root
                    assert root_of_path(leaves[index], index=other, size=size, path=path) != root


@pytest.mark.parametrize(("index", "size"), [(-1, 3), (3, 3), (0, 0), (4, 3)])
def test_no_such_leaf(index: int, size: int) -> None:
    assert root_of_path(b"a", index=index, size=size, path=[bytes(32)] * 2) is None
    with pytest.raises(IndexError, match=f"there is no leaf {index} among {size}"):
        inclusion_path(leaves_of(size), index)
