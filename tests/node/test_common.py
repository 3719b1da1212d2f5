"""What two collections have in common."""

from collections.abc import Iterator

import pytest

from svcd.node.common import common

HELD = {b"c": 3, b"a": 1, b"b": 2}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ([b"b", b"x", b"a", b"b"], [b"b", b"a"]),
        (dict.fromkeys([b"a", b"c"]), [b"a", b"c"]),
        (dict.fromkeys([b"x", b"a", b"y", b"c"]), [b"c", b"a"]),
        (frozenset([b"c", b"b"]), [b"b", b"c"]),
        (frozenset([b"a", b"x", b"y", b"c"]), [b"c", b"a"]),
        (frozenset(), []),
    ],
)
def test_order_and_content(keys: list[bytes], found: list[bytes]) -> None:
    assert common(HELD, keys) == found


class Many(frozenset[bytes]):
    """A set that is too large to be walked through."""

    def __len__(self) -> int:
        return 400_000

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("the small one is to be walked through")


def test_of_many_keys_only_those_that_may_be_meant_are_looked_at() -> None:
    assert common(HELD, Many([b"x", b"b", b"c"])) == [b"c", b"b"]
    assert common({}, Many([b"x"])) == []
