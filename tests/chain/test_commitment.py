"""The state root at the cost of what changed is the state root of the definition (docs/protocol.md 9)."""

from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account, leaf_hash, state_root
from svcd.chain.commitment import Commitment, Row
from tests.chains import rows_of, scan_of

State = dict[bytes, Account]


def loaded(state: State) -> Commitment:
    """The commitment to a state, which sees later changes of the dictionary as changes on disk."""
    commitment = Commitment(scan_of(state))
    commitment.load(rows_of(state), len(state))
    return commitment


def spread_key(number: int) -> bytes:
    return sha256(number.to_bytes(4, "big")).digest()[:20]


def crowded_key(number: int) -> bytes:
    """Keys whose first 140 bits are those of one spread key: somebody ground them to make one bucket deep."""
    return (int.from_bytes(spread_key(0), "big") >> 20 << 20 | number).to_bytes(20, "big")


def many(number: int) -> State:
    return {spread_key(n): Account(n, n % 3, None if n % 2 else n) for n in range(number)}


KEYS = st.integers(0, 300).map(spread_key) | st.integers(0, 50).map(crowded_key)
ACCOUNTS = st.builds(Account, st.integers(0, 2**53), st.integers(0, 9), st.none() | st.integers(0, 2**53))
CHANGES = st.dictionaries(KEYS, ACCOUNTS, max_size=40)


def test_of_no_account() -> None:
    commitment = loaded({})
    assert commitment.root == bytes(32)
    assert Commitment(scan_of({})).root == bytes(32)
    assert commitment.update([], 0) == bytes(32)


def test_of_one_account() -> None:
    state: State = {}
    commitment = loaded(state)
    state[spread_key(1)] = Account(5, 6, 7)
    assert commitment.update(state, 1) == leaf_hash(spread_key(1), 5, 6, 7) == commitment.root


@pytest.mark.parametrize(
    ("count", "depth"), [(0, 0), (1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (15, 2), (16, 3), (1023, 8), (1024, 9)]
)
def test_depth_grows_with_the_number_of_accounts(count: int, depth: int) -> None:
    assert loaded(many(count)).depth == depth
    grown = loaded({})
    grown.update([], count)
    assert grown.depth == depth


@given(CHANGES)
def test_loaded_from_all_rows(state: State) -> None:
    assert loaded(state).root == state_root(state.items())


@pytest.mark.parametrize("expected", [0, 3, 100, 1000])
def test_a_wrong_expectation_of_the_count_gives_the_same_root(expected: int) -> None:
    state = many(100)
    commitment = Commitment(scan_of(state))
    commitment.load(rows_of(state), expected)
    assert commitment.root == state_root(state.items())


@given(CHANGES, st.lists(CHANGES, max_size=6))
def test_any_sequence_of_changes(state: State, batches: list[State]) -> None:
    commitment = loaded(state)
    for changes in batches:
        state |= changes
        assert commitment.update(changes, len(state)) == state_root(state.items())
        assert commitment.root == state_root(state.items())


@given(CHANGES, CHANGES, CHANGES)
def test_a_change_that_was_rolled_back(state: State, refused: State, later: State) -> None:
    commitment, before = loaded(state), dict(state)
    state |= refused
    commitment.update(refused, len(state))
    state.clear()
    state |= before
    assert commitment.update(refused, len(state)) == state_root(before.items())
    state |= later
    assert commitment.update(later, len(state)) == state_root(state.items())


def test_from_nothing_to_thousands_in_blocks_of_any_size() -> None:
    random = Random(7)
    state: State = {}
    commitment = loaded(state)
    accounts = list(many(3000).items())
    while accounts:
        size = random.choice([1, 2, 5, 40, 400, 1500])
        batch, accounts = dict(accounts[:size]), accounts[size:]
        state |= batch
        assert commitment.update(batch, len(state)) == state_root(state.items())
    assert commitment.depth == 10


def test_levels_that_were_added_at_once_are_known_where_they_are_needed() -> None:
    state = many(300)
    commitment = loaded(state)
    root = commitment.root
    assert commitment.update([], 2400) == root
    assert commitment.depth == 10
    for number in range(0, 300, 17):
        state[spread_key(number)] = Account(number + 1)
        assert commitment.update([spread_key(number)], 2400) == state_root(state.items())


def test_an_undone_account_beside_a_level_that_is_not_known_yet() -> None:
    """Accounts older than the last deepening vanish with the blocks that created them."""
    state = many(300)
    commitment = loaded(state)
    commitment.update([], 2400)
    for number in range(0, 300, 3):
        del state[spread_key(number)]
        assert commitment.update([spread_key(number)], 2400) == state_root(state.items())


def test_an_update_reads_a_few_accounts_of_many() -> None:
    state = many(4096)
    rows = rows_of(state)
    read: list[Row] = []

    def scan(first: bytes, last: bytes) -> list[Row]:
        found = [row for row in rows if first <= row[0] <= last]
        read.extend(found)
        return found

    commitment = Commitment(scan)
    commitment.load(rows, len(rows))
    assert read == []
    commitment.update([spread_key(5)], len(rows))
    assert spread_key(5) in {row[0] for row in read}
    assert len(read) < 20


def test_buckets_lie_side_by_side_and_cover_every_key() -> None:
    ranges: list[tuple[int, int]] = []

    def scan(first: bytes, last: bytes) -> list[Row]:
        ranges.append((int.from_bytes(first, "big"), int.from_bytes(last, "big")))
        return []

    commitment = Commitment(scan)
    commitment.load([], 16)
    commitment.update([bytes([index << 5]) + bytes(19) for index in range(8)], 16)
    ranges.sort()
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**160 - 1
    assert [last + 1 for _, last in ranges[:-1]] == [first for first, _ in ranges[1:]]
    assert len(ranges) == 8
