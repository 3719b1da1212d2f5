"""The state root at the cost of what changed is the state root of the definition (docs/protocol.md 9)."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain import state_tree as tree
from svcd.chain.accounts import Account
from svcd.chain.errors import Corrupt
from svcd.chain.state_root import leaf_hash, state_root
from svcd.chain.state_tree import Overlay, Row, StateTree
from svcd.chain.transition import Effect
from tests.chains import rows_of, scan_of

State = dict[bytes, Account]


@pytest.fixture(autouse=True, scope="module")
def small_trees_are_like_large_ones() -> Iterator[None]:
    """They too leave out a level, have branches, and take several batches to split the buckets for a new level.

    Trees with the usual figures are those of the tests of svcd.node.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "_LEFT_OUT_FROM", 0)
        patch.setattr(tree, "_DENSE", 3)
        patch.setattr(tree, "_DENSE_BELOW", 2)
        patch.setattr(tree, "_LONG_WAY", 4)
        patch.setattr(tree, "_SPLIT_AT_ONCE", 1)
        yield


def loaded(state: State) -> StateTree:
    """The tree over a state, which reads its accounts from the dictionary."""
    state_tree = StateTree(scan_of(state))
    state_tree.load(rows_of(state), len(state))
    return state_tree


def over(state_tree: StateTree, state: State) -> Overlay:
    return Overlay(state_tree, len(state))


def changed(state_tree: StateTree, state: State, changes: dict[bytes, Account | None], count: int) -> bytes:
    """The root after changes, which are on disk and in the tree then."""
    state_tree.split_some()
    overlay = over(state_tree, state)
    root = overlay.change(changes, count)
    for key, account in changes.items():
        if account is None:
            state.pop(key, None)
        else:
            state[key] = account
    state_tree.take(overlay)
    assert state_tree.root == overlay.root == root
    return root


def after(state: State, changes: dict[bytes, Account | None]) -> State:
    return {key: account for key, account in {**state, **changes}.items() if account is not None}


def spread_key(number: int) -> bytes:
    return sha256(number.to_bytes(4, "big")).digest()[:20]


def crowded_key(number: int, place: int = 0) -> bytes:
    """Keys whose first 140 bits are those of one spread key: somebody chose them to make one bucket deep."""
    return (int.from_bytes(spread_key(place), "big") >> 20 << 20 | number).to_bytes(20, "big")


def parting_key(bit: int) -> bytes:
    """A key that parts from a spread key at this bit, so that many of them need the deepest tree there is."""
    return (int.from_bytes(spread_key(1), "big") ^ 1 << 159 - bit).to_bytes(20, "big")


def many(number: int) -> State:
    return {spread_key(n): Account(n, n % 3, None if n % 2 else n) for n in range(number)}


KEYS = (
    st.integers(0, 300).map(spread_key)
    | st.builds(crowded_key, st.integers(0, 30), st.integers(0, 2))
    | st.integers(0, 159).map(parting_key)
)
ACCOUNTS = st.builds(Account, st.integers(0, 2**53), st.integers(0, 9), st.none() | st.integers(0, 2**53))
STATES = st.dictionaries(KEYS, ACCOUNTS, max_size=40)
CHANGES = st.dictionaries(KEYS, ACCOUNTS | st.none(), max_size=40)


def test_of_no_account() -> None:
    state_tree = loaded({})
    assert state_tree.root == bytes(32)
    assert StateTree(scan_of({})).root == bytes(32)
    assert over(state_tree, {}).root == bytes(32)
    assert over(state_tree, {}).change({}, 0) == bytes(32)


def test_of_one_account() -> None:
    overlay = over(loaded({}), {})
    assert overlay.change({spread_key(1): Account(5, 6, 7)}, 1) == leaf_hash(spread_key(1), 5, 6, 7) == overlay.root


@pytest.mark.parametrize(
    ("count", "depth"), [(0, 0), (1, 0), (3, 1), (4, 2), (7, 2), (8, 3), (15, 3), (16, 4), (1023, 9), (1024, 10)]
)
def test_depth_grows_with_the_number_of_accounts(count: int, depth: int) -> None:
    assert loaded(many(count)).depth == depth
    grown = loaded({})
    while grown.depth < depth:
        before = grown.depth
        changed(grown, {}, {}, count)
        assert grown.depth in (before, before + 1)
    changed(grown, {}, {}, count)
    assert grown.depth == depth


@pytest.mark.parametrize(
    ("count", "depth"),
    [(2**19, 19), (2**20 - 1, 19), (2**20, 19), (2**22 - 1, 19), (2**22, 20), (10**7, 20), (2**24, 21), (10**8, 22)],
)
def test_of_more_than_a_million_accounts_the_buckets_grow_too(count: int, depth: int) -> None:
    assert tree._depth_for(count) == depth


@given(STATES, st.lists(CHANGES, max_size=4), st.lists(CHANGES, max_size=4), st.integers(0, 40))
def test_restored_from_a_level_that_was_copied_earlier(
    state: State, before: list[dict[bytes, Account | None]], since: list[dict[bytes, Account | None]], extra: int
) -> None:
    """As good as one that was loaded from all accounts, whatever changed before and since, and however deep it is."""
    state_tree = loaded(state)
    for changes in before:
        changed(state_tree, state, changes, len(after(state, changes)) + extra)
    level = state_tree.known_level()
    for changes in since:
        changed(state_tree, state, changes, len(after(state, changes)))
    restored = StateTree(scan_of(state))
    restored.restore(level, len(state), {key for changes in since for key in changes})
    assert restored.root == state_root(state.items())
    assert restored.depth >= level.depth
    for changes in (*since, *before):
        assert changed(restored, state, changes, len(after(state, changes))) == state_root(state.items())


@given(STATES, st.lists(CHANGES, max_size=3), KEYS, ACCOUNTS, st.integers(0, 40))
def test_a_change_behind_the_back_of_the_tree_is_noticed_when_it_is_read(
    state: State, before: list[dict[bytes, Account | None]], key: bytes, account: Account, extra: int
) -> None:
    """Whether an account is there that was not, is not there that was, or is another one; and whatever is asked."""
    state_tree = loaded(state)
    for changes in before:
        changed(state_tree, state, changes, len(after(state, changes)) + extra)
    for damaged in (account, None):
        if state.get(key) == damaged:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(state, key, damaged) if damaged else patch.delitem(state, key)
            for ask in (over(state_tree, state).accounts, over(state_tree, state).undo):
                with pytest.raises(Corrupt, match="hash that the state tree has"):
                    ask({key: None})
            with pytest.raises(Corrupt):
                state_tree.path(key)
        assert over(state_tree, state).accounts([key]) == ({key: state[key]} if key in state else {})


def test_a_value_that_no_account_can_have_is_damage() -> None:
    state = many(5)
    state_tree = loaded(state)
    for wrong in (-1, 2**64, "text", None):
        state[spread_key(1)] = Account(wrong)  # type: ignore[arg-type]
        with pytest.raises(Corrupt):
            over(state_tree, state).accounts([spread_key(1)])


@given(STATES)
def test_loaded_from_all_rows(state: State) -> None:
    assert loaded(state).root == state_root(state.items())


def test_of_a_large_tree_the_level_above_the_deepest_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    state_tree = loaded(many(100))
    assert [len(kinds) for kinds in state_tree._kinds] == [1, 2, 4, 8, 16, 0, 64]
    monkeypatch.setattr(tree, "_LEFT_OUT_FROM", 6)
    whole = loaded(many(100))
    assert [len(kinds) for kinds in whole._kinds] == [1, 2, 4, 8, 16, 32, 64]
    nodes = [(depth, index) for depth in range(7) for index in range(1 << depth)]
    assert all(state_tree.node(*each) == whole.node(*each) for each in nodes)


@pytest.mark.parametrize("expected", [0, 3, 100, 1000])
def test_a_wrong_expectation_of_the_count_gives_the_same_root(expected: int) -> None:
    state = many(100)
    state_tree = StateTree(scan_of(state))
    state_tree.load(rows_of(state), expected)
    assert state_tree.root == state_root(state.items())


@given(STATES, st.lists(CHANGES, max_size=6))
def test_any_sequence_of_changes(state: State, batches: list[dict[bytes, Account | None]]) -> None:
    """Each on disk before the next."""
    state_tree = loaded(state)
    for changes in batches:
        wanted = after(state, changes)
        assert changed(state_tree, state, changes, len(wanted)) == state_root(wanted.items())


@given(STATES, st.lists(CHANGES, max_size=6))
def test_any_sequence_of_changes_over_one_state(state: State, batches: list[dict[bytes, Account | None]]) -> None:
    """One laid over the other, as of the blocks of one commit; what is below stays as it is until all is taken."""
    state_tree, below, now = loaded(state), dict(state), dict(state)
    overlay, root = over(state_tree, state), state_tree.root
    for changes in batches:
        now = after(now, changes)
        assert overlay.change(changes, len(now)) == state_root(now.items())
        assert overlay.accounts(list(now | changes)) == {key: now[key] for key in now | changes if key in now}
        assert overlay.count == len(now)
    assert (state_tree.root, state) == (root, below)
    state.clear()
    state |= now
    state_tree.take(overlay)
    assert state_tree.root == state_root(now.items())
    last: dict[bytes, Account | None] = dict.fromkeys(list(now)[::2])
    assert changed(state_tree, state, last, len(now) - len(last)) == state_root(state.items())


@given(STATES, CHANGES, CHANGES)
def test_a_copy_is_left_as_it_was(
    state: State, first: dict[bytes, Account | None], refused: dict[bytes, Account | None]
) -> None:
    overlay, now = over(loaded(state), state), after(state, first)
    root = overlay.change(first, len(now))
    saved = overlay.copy()
    overlay.change(refused, len(after(now, refused)))
    assert (saved.root, saved.count, saved.changed) == (root, len(now), first)
    later: dict[bytes, Account | None] = {spread_key(5): Account(1), spread_key(6): None}
    assert saved.change(later, len(after(now, later))) == state_root(after(now, later).items())


@given(STATES, STATES)
def test_undoing_a_block_restores_the_state_root(state: State, changes: State) -> None:
    overlay, root = over(loaded(state), state), state_root(state.items())
    effect = Effect({key: state.get(key) for key in changes}, changes, 0)
    assert overlay.apply(effect) == state_root((state | changes).items())
    assert overlay.undo(effect.before) == root
    assert overlay.count == len(state)


def test_from_nothing_to_thousands_in_blocks_of_any_size() -> None:
    random = Random(7)
    state: State = {}
    state_tree = loaded(state)
    accounts = list(many(3000).items())
    while accounts:
        size = random.choice([1, 2, 5, 40, 400, 1500])
        batch, accounts = dict(accounts[:size]), accounts[size:]
        root = changed(state_tree, state, {**batch}, len(state) + len(batch))
        assert root == state_root(state.items())
    for _ in range(1500):
        changed(state_tree, state, {}, len(state))
    assert state_tree.depth == 11


def test_levels_that_were_added_at_once_are_known_where_they_are_needed() -> None:
    state = many(300)
    state_tree = loaded(state)
    root = state_tree.root
    for depth in (9, 9, 9):
        assert changed(state_tree, state, {}, 2400) == root
        assert state_tree.depth == depth
    for number in range(0, 300, 17):
        changes: dict[bytes, Account | None] = {spread_key(number): Account(number + 1)}
        assert changed(state_tree, state, changes, 2400) == state_root(state.items())


def test_levels_that_were_added_over_changes_are_known_where_they_are_needed() -> None:
    """What was laid over the tree before they were added is found where it belongs."""
    state = many(300)
    overlay, now = over(loaded(state), state), dict(state)
    for count in (300, 2400):
        for number in range(count % 7, 300, 17):
            now[spread_key(number)] = Account(number + count)
            assert overlay.change({spread_key(number): now[spread_key(number)]}, count) == state_root(now.items())


def test_an_undone_account_beside_a_level_that_is_not_known_yet() -> None:
    """Accounts older than the last deepening vanish with the blocks that created them."""
    state = many(300)
    state_tree = loaded(state)
    changed(state_tree, state, {}, 2400)
    for number in range(0, 300, 3):
        assert changed(state_tree, state, {spread_key(number): None}, 2400) == state_root(state.items())


@given(STATES, CHANGES, st.lists(KEYS, min_size=1, max_size=5), st.sampled_from([0, 40, 2400]))
def test_a_path_leads_from_an_account_or_its_absence_to_the_root(
    state: State, changes: dict[bytes, Account | None], keys: list[bytes], count: int
) -> None:
    """Whatever is asked for, and where levels are not known yet."""
    state_tree = loaded(state)
    changed(state_tree, state, changes, count)
    for key in (*keys, *state):
        row, siblings = state_tree.path(key)
        assert (Account(*row[1:]) if row is not None and row[0] == key else None) == state.get(key)
        assert root_over(key, row, siblings) == state_root(state.items())


def root_over(key: bytes, row: Row | None, siblings: Sequence[bytes]) -> bytes:
    """The root to which a path leads, as docs/protocol.md 13 computes it."""
    node = bytes(32) if row is None else leaf_hash(*row)
    bits = f"{int.from_bytes(key, 'big'):0160b}"[: len(siblings)]
    assert row is None or f"{int.from_bytes(row[0], 'big'):0160b}".startswith(bits)
    for bit, sibling in zip(reversed(bits), siblings, strict=True):
        node = sha256(b"\1" + (sibling + node if bit == "1" else node + sibling)).digest()
    return node


def test_an_update_reads_a_few_accounts_of_many() -> None:
    state = many(4096)
    rows = rows_of(state)
    read: list[Row] = []

    def scan(ranges: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        found = scan_of(state)(ranges)
        read.extend(found)
        return found

    state_tree = StateTree(scan)
    state_tree.load(rows, len(rows))
    assert read == []
    overlay = Overlay(state_tree, len(rows))
    assert overlay.accounts([spread_key(5)]) == {spread_key(5): state[spread_key(5)]}
    once = len(read)
    overlay.change({spread_key(5): Account(1)}, len(rows))
    assert len(read) == once, "what was read to see what there is serves for the root too"
    assert spread_key(5) in {row[0] for row in read}
    assert len(read) < 20


def test_buckets_lie_side_by_side_and_cover_every_key() -> None:
    ranges: list[tuple[int, int]] = []

    def scan(wanted: Sequence[tuple[bytes, bytes]]) -> list[Row]:
        ranges.extend((int.from_bytes(first, "big"), int.from_bytes(last, "big")) for first, last in wanted)
        return []

    state_tree = StateTree(scan)
    state_tree.load([], 16)
    Overlay(state_tree, 16).change({bytes([index << 4]) + bytes(19): Account() for index in range(16)}, 16)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 2**160 - 1
    assert [last + 1 for _, last in ranges[:-1]] == [first for first, _ in ranges[1:]]
    assert len(ranges) == 16
