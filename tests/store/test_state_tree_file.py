"""The file with a level of the state tree: whole and of this program, or not read (docs/storage.md)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.state_tree import InnerNode, Level
from svcd.store.state_tree_file import NoSavedTree, SavedTree, StateTreeFile

BELOW = InnerNode(
    150, 5 << 20, bytes(range(32)), InnerNode(158, 5 << 20 | 8, bytes(32) + b"\1", b"n" * 32, b"m" * 32), b"o" * 32
)
TREE = SavedTree(
    bytes(range(32)), 7, 9, Level(2, bytearray([2, 1, 0, 2]), bytearray(range(128)), {4: BELOW, 7: BELOW.moved(2)})
)


@pytest.fixture
def file(tmp_path: Path) -> StateTreeFile:
    return StateTreeFile(tmp_path / "chain.sqlite")


def names(file: StateTreeFile) -> list[str]:
    return sorted(each.name for each in file.path.parent.iterdir())


def test_a_written_state_tree_is_read_back(file: StateTreeFile) -> None:
    file.write(TREE)
    assert file.read() == TREE
    assert names(file) == ["chain.sqlite-tree"]
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_next_tree_takes_the_place_of_the_last(file: StateTreeFile) -> None:
    file.write(TREE)
    larger = SavedTree(bytes(32), 8, 3, Level(3, bytearray(8), bytearray(256)))
    file.write(larger)
    assert file.read() == larger


def test_a_missing_file(file: StateTreeFile) -> None:
    with pytest.raises(NoSavedTree, match=r"^there is no .*/chain\.sqlite-tree$"):
        file.read()


def test_a_file_that_cannot_be_read(file: StateTreeFile) -> None:
    file.path.mkdir()
    with pytest.raises(NoSavedTree, match="cannot be read: Is a directory"):
        file.read()


@given(st.data())
def test_no_file_that_is_not_as_it_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut off, longer, or with any bit changed."""
    file = StateTreeFile(tmp_path_factory.mktemp("tree") / "chain.sqlite")
    file.write(TREE)
    whole = file.path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    file.path.write_bytes(data.draw(st.sampled_from([bytes(changed), whole[:at], whole + b"\0"])))
    with pytest.raises(NoSavedTree):
        file.read()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda whole: whole[:-1], "is 666 bytes long, which does not fit its contents"),
        (lambda whole: b"svcd state tree\1" + whole[16:], "is not a state tree of this program"),
        (lambda whole: whole[:20] + b"\xff" + whole[21:], "is damaged: its checksum is wrong"),
        (lambda whole: whole[:64] + b"\xff" + whole[65:], "does not fit its contents"),
    ],
)
def test_the_reason_is_told(file: StateTreeFile, damage: Callable[[bytes], bytes], reason: str) -> None:
    file.write(TREE)
    file.path.write_bytes(damage(file.path.read_bytes()))
    with pytest.raises(NoSavedTree, match=reason):
        file.read()


def test_a_disk_that_refuses_the_new_tree_leaves_the_old_one(
    file: StateTreeFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write(TREE)

    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        file.write(SavedTree(bytes(32), 8, 3, TREE.level))
    assert file.read() == TREE
    assert names(file) == ["chain.sqlite-tree"]


def test_a_half_written_tree_of_a_killed_node_is_written_again(file: StateTreeFile) -> None:
    target = file.path.with_name("somebody's")
    target.write_bytes(b"kept")
    file.path.with_name("chain.sqlite-tree.new").symlink_to(target)
    file.write(TREE)
    assert file.read() == TREE
    assert target.read_bytes() == b"kept"
    assert names(file) == ["chain.sqlite-tree", "somebody's"]
