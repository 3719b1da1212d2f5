"""The index of waiting transfers by recipient finds what a scan of the mempool would find."""

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
