"""The index of waiting transfers by recipient finds what a scan of the mempool would find."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.node.mempool import MempoolEntry
from svcd.node.recipient_index import RecipientIndex, ReferenceIndex
from tests.chains import ChainBuilder, key_of

PEOPLE = ("alice", "bob", "carol")
BUILDER = ChainBuilder()
TRANSFERS = {name: BUILDER.transfer("dave", name, 1, nonce=0, timestamp=0) for name in PEOPLE}


@given(
    st.lists(st.tuples(st.sampled_from(PEOPLE), st.booleans()), max_size=30),
    st.data(),
)
def test_the_index_finds_what_a_scan_finds(arrivals: list[tuple[str, bool]], data: st.DataObject) -> None:
    entries = [MempoolEntry(TRANSFERS[name], number) for number, (name, _) in enumerate(arrivals, 1)]
    index, waiting = RecipientIndex(entries[:5]), entries[:5]
    for entry, (_, one_leaves) in zip(entries[5:], arrivals[5:], strict=False):
        leaving = [data.draw(st.sampled_from(waiting))] if one_leaves and waiting else []
        index.pool_changed([entry], leaving)
        waiting = [each for each in waiting if each not in leaving] + [entry]
    limit, edge = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 31))
    for name in PEOPLE:
        key = key_of(name).hash
        expected = [entry for entry in waiting if entry.transfer.recipient == key]
        before = [entry for entry in reversed(expected) if entry.sequence < edge]
        assert index.newest(key, limit=limit, before=edge) == before[:limit]
        assert list(index.oldest(key, after=edge)) == [entry for entry in expected if entry.sequence > edge]
    index.pool_changed([], waiting)
    assert not any(list(index.oldest(key_of(name).hash)) for name in PEOPLE)


class CountedNumber(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedNumber.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        CountedNumber.compared += 1
        return int(self) > int(other)


@pytest.mark.parametrize("leaving", [0, 400])
def test_a_page_does_not_pass_all_that_wait_for_one_recipient(leaving: int) -> None:
    bob = key_of("bob").hash
    entries = [MempoolEntry(TRANSFERS["bob"], number) for number in range(1, 4_001)]
    index = RecipientIndex(entries)
    index.pool_changed([], entries[2_000 : 2_000 + leaving])
    CountedNumber.compared = 0
    assert index.newest(bob, limit=2, before=CountedNumber(2_001)) == [entries[1_999], entries[1_998]]
    assert next(index.oldest(bob, after=CountedNumber(2_000))) is entries[2_000 + leaving]
    assert CountedNumber.compared < 40


def test_a_transfer_that_comes_again_under_its_number_is_there_once() -> None:
    entries = [MempoolEntry(TRANSFERS["bob"], number) for number in (1, 2, 3)]
    index = RecipientIndex(entries)
    index.pool_changed([], [entries[1]])
    index.pool_changed([entries[1]], [])
    assert index.newest(key_of("bob").hash, limit=9) == entries[::-1]


def test_a_transfer_that_leaves_before_it_was_announced_is_ignored() -> None:
    first, second = (MempoolEntry(TRANSFERS["bob"], number) for number in (1, 2))
    index = RecipientIndex()
    index.pool_changed([], [first])
    index.pool_changed([first], [second])
    assert index.newest(key_of("bob").hash, limit=9) == [first]


def test_transfers_by_reference_and_not_those_without_one() -> None:
    named = BUILDER.transfer("dave", "bob", 1, nonce=0, timestamp=0, reference="order-1")
    entries = [MempoolEntry(named, 1), MempoolEntry(TRANSFERS["bob"], 2), MempoolEntry(named, 3)]
    index = ReferenceIndex(entries)
    assert index.newest("order-1", limit=9) == [entries[2], entries[0]]
    assert index.newest("order-2", limit=9) == []
    index.pool_changed([], entries)
    assert index.newest("order-1", limit=9) == []
