"""The mapping that forgets its oldest entries."""

from svcd.bounded_dict import BoundedDict


def test_the_oldest_entry_gives_way() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    entries["a"] = entries["b"] = 1
    entries["c"] = 2
    assert list(entries.items()) == [("b", 1), ("c", 2)]


def test_an_entry_that_is_set_again_is_the_newest() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    entries["a"] = entries["b"] = 1
    entries["a"] = 3
    entries["c"] = 2
    assert list(entries.items()) == [("a", 3), ("c", 2)]


def test_a_removed_entry_leaves_room() -> None:
    entries: BoundedDict[str, int] = BoundedDict(2)
    entries["a"] = entries["b"] = 1
    assert entries.pop("a", None) == 1
    entries["c"] = 2
    assert list(entries) == ["b", "c"]
