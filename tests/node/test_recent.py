"""The mapping that forgets its oldest entries."""

from svcd.recent import Recent


def test_the_oldest_entry_gives_way() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"] = recent["b"] = 1
    recent["c"] = 2
    assert list(recent.items()) == [("b", 1), ("c", 2)]


def test_an_entry_that_is_set_again_is_the_newest() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"] = recent["b"] = 1
    recent["a"] = 3
    recent["c"] = 2
    assert list(recent.items()) == [("a", 3), ("c", 2)]


def test_a_removed_entry_leaves_room() -> None:
    recent: Recent[str, int] = Recent(2)
    recent["a"] = recent["b"] = 1
    assert recent.pop("a", None) == 1
    recent["c"] = 2
    assert list(recent) == ["b", "c"]
