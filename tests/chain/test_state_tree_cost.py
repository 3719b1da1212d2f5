"""What a state root costs with keys that somebody has chosen: rows read and hashes made."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from random import Random

import pytest
from attrs import define

from svcd.chain import state_tree as tree
from svcd.chain.accounts import Account
from svcd.chain.state_root import state_root
from svcd.chain.state_tree import Overlay, Row, StateTree
from tests.chains import rows_of

PLACES = 500
KEY_BITS = 160


def spread_key(number: int) -> bytes:
    return sha256(b"spread %d" % number).digest()[:20]


def alike(number: int, bits: int, place: int = 0) -> bytes:
    """Keys at one place, which share all but their last ``bits`` bits."""
    return (int.from_bytes(spread_key(-1 - place), "big") >> bits << bits | number).to_bytes(20, "big")


SPREAD = [spread_key(number) for number in range(20_000)]
ALIKE = [alike(number * 7_919 % (1 << 18), 18) for number in range(200_000)]


@define
class Work:
    """Rows read and hashes made."""

    rows: int = 0
    hashes: int = 0


class Disk:
    """Accounts in the order of their keys, and the tree over them; counts what is done."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.accounts = {key: Account(1) for key in keys}
        self.keys = sorted(self.accounts)
        self.work = Work()
        self.tree = StateTree(self.scan)
        self.tree.load(rows_of(self.accounts), len(self.accounts))

    def scan(self, ranges: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        found = [
            (key, one.balance, one.nonce, one.held_since)
            for first, last in ranges
            for key in self.keys[bisect_left(self.keys, first) : bisect_right(self.keys, last)]
            if (one := self.accounts[key])
        ]
        self.work.rows += len(found)
        return found

    @contextmanager
    def counted(self) -> Iterator[Work]:
        self.work = work = Work()

        def hashed(data: bytes) -> object:
            work.hashes += 1
            return sha256(data)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree, "sha256", hashed)
            yield work

    def cost(self, keys: Sequence[bytes]) -> Work:
        """Of a block that changes the accounts of ``keys`` or creates them, and of undoing it."""
        overlay = Overlay(self.tree, len(self.accounts))
        with self.counted() as work:
            before = overlay.accounts(keys)
            overlay.change({key: Account(2) for key in keys}, len(self.accounts) + len(keys) - len(before))
            overlay.copy().undo({key: before.get(key) for key in keys})
        return work


@pytest.fixture(scope="module")
def ordinary() -> Work:
    """A block that changes 2,000 of 20,000 accounts."""
    return Disk(SPREAD).cost(SPREAD[:2_000])


@pytest.fixture(scope="module")
def dense() -> Disk:
    """20,000 accounts that share their first 142 bits, beside as many others."""
    return Disk(SPREAD + ALIKE[:20_000])


def test_many_of_many_look_alikes_cost_no_more_than_five_times_as_many_others(ordinary: Work, dense: Disk) -> None:
    work = dense.cost(Random(1).sample(ALIKE[:20_000], 2_000))
    assert work.rows <= 5 * ordinary.rows
    assert work.hashes <= 5 * ordinary.hashes


def test_one_of_many_look_alikes_costs_its_path(dense: Disk) -> None:
    work = dense.cost(ALIKE[:1])
    assert work.rows <= 20
    assert work.hashes <= 3 * KEY_BITS


@pytest.mark.slow
def test_ten_times_as_many_look_alikes_cost_at_most_three_times_as_much(dense: Disk) -> None:
    more = Disk(SPREAD + ALIKE)
    for count in (1, 2_000):
        keys = Random(2).sample(ALIKE[:20_000], count)
        few, many = dense.cost(keys), more.cost(keys)
        assert many.rows <= 3 * few.rows + 20
        assert many.hashes <= 3 * few.hashes


@pytest.mark.parametrize("each", [2, 21])
def test_look_alikes_at_many_places_cost_their_paths(ordinary: Work, each: int) -> None:
    """A path has a hash for each bit, by the definition of the root: a root before, one after, and one undone."""
    keys = [alike(number * 37, 10, place) for place in range(PLACES) for number in range(each)]
    disk = Disk(SPREAD + keys)
    work = disk.cost(keys[::each])
    assert work.rows * 2_000 / PLACES <= 5 * ordinary.rows
    assert work.hashes <= PLACES * (2 * KEY_BITS + 60)


def test_look_alikes_that_a_block_creates_and_its_undoing(ordinary: Work) -> None:
    disk = Disk(SPREAD)
    work = disk.cost(ALIKE[:2_000])
    assert work.rows <= ordinary.rows
    assert work.hashes <= 5 * ordinary.hashes


def test_keys_that_part_from_one_key_at_every_bit() -> None:
    """The deepest tree there is; a sibling of each node on the path of the deepest account."""
    base = int.from_bytes(SPREAD[0], "big")
    keys = [(base ^ 1 << bit).to_bytes(20, "big") for bit in range(KEY_BITS)]
    disk = Disk([*SPREAD, *keys])
    work = disk.cost([SPREAD[0]])
    assert work.rows <= 20
    assert work.hashes <= 3 * KEY_BITS


def test_a_path_to_one_of_many_look_alikes(dense: Disk) -> None:
    for key in (ALIKE[5], alike(3, 10), alike(1 << 17 | 1, 30)):
        with dense.counted() as work:
            dense.tree.path(key)
        assert work.rows <= 20
        assert work.hashes <= KEY_BITS + 60


def test_look_alikes_that_come_block_by_block_and_go_again() -> None:
    """Each block is on disk before the next; after a reorganisation nothing of the look-alikes is left."""
    disk = Disk(SPREAD[:1_000])
    root = disk.tree.root
    for change in (Account(3), None):
        for start in range(0, 3_000, 1_000):
            now = dict(disk.accounts)
            changes = dict.fromkeys(ALIKE[start : start + 1_000], change)
            for key in changes:
                if change is not None:
                    now[key] = change
                else:
                    del now[key]
            overlay = Overlay(disk.tree, len(disk.accounts))
            with disk.counted() as work:
                assert overlay.change(changes, len(now)) == state_root(now.items())
            assert work.rows <= 10_000
            disk.accounts, disk.keys = now, sorted(now)
            disk.tree.take(overlay)
    assert disk.tree.root == root
    assert not disk.tree.branches
