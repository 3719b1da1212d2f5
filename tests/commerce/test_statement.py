"""The statement of an account: whatever happens on the chain, the entries add up to the balance."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import Block, genesis_header
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.transition import genesis_point
from svcd.commerce import statement
from svcd.commerce.statement import BEGINNING, Entry, EntryType, StatementQuery, read_statement
from svcd.store import database
from svcd.store.chain_store import ChainWriter
from svcd.store.database import DatabaseConnection
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of
from tests.node.trees import CHAINS, PEOPLE, Sprout, grow

REWARD, FEE = TEST_PARAMS.initial_reward, TEST_PARAMS.minimum_fee
CHAIN = """
genesis: b[1..5]
b1 pays 5000 from alice to bob for order-1
b2 is by bob
b2 pays 7 from bob to alice
b2 pays 8 from bob to bob
b4 is by bob
b5 pays 9 from carol to bob
"""


@contextmanager
def stored(builder: ChainBuilder, blocks: list[Block]) -> Iterator[ChainWriter]:
    """A database in memory with the genesis block and ``blocks``, each on the one before."""
    with closing(DatabaseConnection(":memory:")) as connection:
        for migration in database.migrations():
            connection.execute(migration.script)
        store = ChainWriter(connection)
        genesis = Block(genesis_header(TEST_PARAMS, state_root=bytes(32), consensus_root=bytes(32)), ())
        store.connect_block(store.add_block(genesis, genesis_point(TEST_PARAMS)), (), undo={}, history=())
        for block in blocks:
            store.connect_block(
                store.add_block(block, builder.point_after(block)), block.transfers, undo={}, history=()
            )
        accounts = dict(builder.accounts_after(blocks[-1] if blocks else None))
        store.write_accounts(accounts)
        yield store


def change_of(entry: Entry) -> int:
    """What an entry adds to the balance, as docs/http.md says."""
    if entry.type in (EntryType.SENT, EntryType.SELF):
        return -entry.fee - (entry.amount if entry.type is EntryType.SENT else 0)
    return entry.amount


def entries(store: ChainWriter, name: str, *, limit: int = 100, start: int = 0, end: int = MAX_INTEGER) -> list[Entry]:
    """All entries, page by page."""
    found: list[Entry] = []
    begin: tuple[int, int] | None = BEGINNING
    while begin is not None:
        query = StatementQuery(key=key_of(name).hash, start=start, end=end, begin=begin, limit=limit)
        page = read_statement(store, TEST_PARAMS, query)
        assert len(page.entries) <= limit
        found += page.entries
        assert page.next is None or page.next > begin
        begin = page.next
    return found


@given(chain=CHAINS, limit=st.integers(1, 9), looked_at=st.integers(1, 9), summed=st.integers(0, 9))
def test_the_entries_of_every_account_add_up_to_its_balance(
    chain: list[Sprout], limit: int, looked_at: int, summed: int
) -> None:
    builder = ChainBuilder()
    blocks = grow(builder, chain)
    with stored(builder, blocks) as store, pytest.MonkeyPatch.context() as patch:
        whole = {name: entries(store, name) for name in (*PEOPLE, "frank", "p", "q")}
        patch.setattr(statement, "BLOCKS_LOOKED_AT", looked_at)
        patch.setattr(statement, "FEES_SUMMED", summed)
        for name, found in whole.items():
            assert entries(store, name, limit=limit) == found
            assert sum(change_of(entry) for entry in found) == builder.account_after(blocks[-1], name).balance
            middle = TEST_PARAMS.slot_time(builder.point_after(blocks[len(blocks) // 2]).slot)
            assert entries(store, name, end=middle) + entries(store, name, start=middle, limit=limit) == found


@pytest.fixture
def store() -> Iterator[ChainWriter]:
    """The chain of this page."""
    builder = ChainBuilder()
    with stored(builder, list(builder.chain(CHAIN).values())) as store:
        yield store


def test_the_fields_of_each_entry(store: ChainWriter) -> None:
    found = [(e.type, e.height, e.index, e.amount, e.fee, change_of(e), e.reference) for e in entries(store, "bob")]
    assert found == [
        (EntryType.ALLOCATION, 0, 0, 1000 * COIN, 0, 1000 * COIN, None),
        (EntryType.RECEIVED, 1, 0, 5000, 0, 5000, "order-1"),
        (EntryType.SENT, 2, 0, 7, FEE, -7 - FEE, None),
        (EntryType.SELF, 2, 1, 8, FEE, -FEE, None),
        (EntryType.REWARD, 2, 2, REWARD + 2 * FEE, 0, REWARD + 2 * FEE, None),
        (EntryType.REWARD, 4, 0, REWARD, 0, REWARD, None),
        (EntryType.RECEIVED, 5, 0, 9, 0, 9, None),
    ]


def test_the_other_side_and_the_time_of_an_entry(store: ChainWriter) -> None:
    builder = ChainBuilder()
    _, received, sent, itself, reward, *_ = entries(store, "bob")
    assert [each.counterparty for each in (received, sent, itself, reward)] == [
        builder.address("alice"),
        builder.address("alice"),
        builder.address("bob"),
        None,
    ]
    assert received.time == TEST_PARAMS.slot_time(2)
    assert reward.txid is None


def test_the_page_of_an_account_never_seen_is_empty(store: ChainWriter) -> None:
    page = read_statement(store, TEST_PARAMS, StatementQuery(key=bytes(20), limit=9))
    assert (page.entries, page.next, page.balance, page.tip.height) == ((), None, 0, 5)


def test_the_first_millisecond_belongs_to_a_period_and_the_last_does_not(store: ChainWriter) -> None:
    times = [entry.time for entry in entries(store, "bob")]
    assert [entry.time for entry in entries(store, "bob", start=times[2], end=times[5])] == times[2:5]
    assert entries(store, "bob", start=times[-1] + 1) == []
    assert entries(store, "bob", end=times[0]) == []
    assert entries(store, "bob", start=times[5], end=times[2]) == []
