"""Each question that the store answers, and each change that it makes (docs/storage.md)."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import Corrupt
from svcd.store.chain_store import ChainReader, ChainWriter, StoredBlock
from svcd.store.database import DatabaseConnection, open_reader, open_writer
from svcd.store.transfer_index import address_key, payment_key, place_of, reference_key, txid_key
from svcd.store.undo_records import pack, unpack
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.store.contents import STATE, contents, room_for_pages
from tests.store.statements import trace

NEWEST = (2**53, 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.sqlite"


@pytest.fixture
def connection(path: Path) -> Iterator[DatabaseConnection]:
    with closing(open_writer(path)) as writer:
        yield writer


@pytest.fixture
def store(connection: DatabaseConnection) -> ChainWriter:
    return ChainWriter(connection)


@pytest.fixture
def chain() -> ChainBuilder:
    return ChainBuilder()


def put(store: ChainWriter, chain: ChainBuilder, *blocks: Block) -> list[StoredBlock]:
    """Store blocks off the canonical chain."""
    return [store.add_block(block, chain.point_after(block)) for block in blocks]


def grow(store: ChainWriter, chain: ChainBuilder, *blocks: Block) -> list[StoredBlock]:
    """Store blocks as the canonical chain; what they do to accounts is left out."""
    stored = put(store, chain, *blocks)
    for at, block in zip(stored, blocks, strict=True):
        store.connect_block(at, block.transfers, undo={}, history=())
    return stored


def paying(chain: ChainBuilder) -> dict[str, Block]:
    return chain.chain(
        """
        genesis: b[1..3]
        b1 pays 5000 from alice to bob for order-1
        b1 pays 6000 from bob to carol
        b2 pays 7000 from alice to alice for order-1
        b3 pays 5000 from carol to bob for order-1
        """
    )


# An empty database


def test_an_empty_database_has_no_answers(store: ChainWriter) -> None:
    assert store.tip() is None
    assert store.point(bytes(32)) is None
    assert store.stored(bytes(32)) is None
    assert store.canonical(0) is None
    assert store.account(bytes(20)) is None
    assert store.accounts([bytes(20)]) == {}
    assert list(store.every_account()) == []
    assert store.count_accounts() == 0
    assert store.transaction(bytes(32), TEST_PARAMS) is None
    assert store.address_transactions(bytes(20), before=NEWEST, limit=9) == []
    assert store.disconnected() == []


# Blocks


def test_a_stored_block_comes_back_whole(store: ChainWriter, chain: ChainBuilder) -> None:
    block = paying(chain)["b1"]
    (added,) = put(store, chain, block)
    stored = store.stored(block.header.hash)
    assert stored == added
    assert stored.parent == TEST_PARAMS.genesis_hash
    assert stored.point == chain.point_after(block) == store.point(block.header.hash)
    assert stored.header == block.header.wire()
    assert store.bodies(stored) == [transfer.wire for transfer in block.transfers]
    assert store.block_header(stored, TEST_PARAMS).wire() == block.header.wire()
    assert store.block(stored, TEST_PARAMS).wire() == block.wire() == store.wire(stored)


def test_a_block_is_stored_once(store: ChainWriter, chain: ChainBuilder) -> None:
    block = chain.block()
    put(store, chain, block)
    with pytest.raises(apsw.ConstraintError):
        put(store, chain, block)


def test_a_header_that_is_not_what_was_stored_is_corrupt(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    block = chain.block()
    (stored,) = put(store, chain, block)
    fields = json.loads(stored.header)
    fields["slot"] = "77"
    connection.execute("UPDATE block SET header = ?", (json.dumps(fields).encode(),))
    damaged = store.stored(block.header.hash)
    assert damaged is not None
    with pytest.raises(Corrupt, match="height 1 does not have its own hash"):
        store.block_header(damaged, TEST_PARAMS)
    with pytest.raises(Corrupt, match="height 1 does not have its own hash"):
        store.block(damaged, TEST_PARAMS)
    with pytest.raises(Corrupt, match="height 1 does not have its own hash"):
        store.wire(damaged)


def test_a_deleted_block_is_gone_with_its_transfers(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    blocks = paying(chain)
    kept, gone = put(store, chain, blocks["b2"], blocks["b1"])
    connection.execute("UPDATE block SET parent = ? WHERE id = ?", (bytes(32), kept.id))
    assert store.side_blocks.delete_with_descendants(gone.id, gone.point.hash) == []
    assert store.stored(gone.point.hash) is None
    assert store.bodies(gone) == []
    assert store.bodies(kept) == [transfer.wire for transfer in blocks["b2"].transfers]
    assert len(contents(connection)["block_transaction"]) == 1


def test_descendants_of_a_deleted_block_are_deleted(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    blocks = chain.chain("genesis: b[1..4]\nb2: c[3..5]\nb1: d2")
    stored = dict(zip(blocks, put(store, chain, *blocks.values()), strict=True))
    gone = store.side_blocks.delete_with_descendants(stored["b2"].id, stored["b2"].point.hash)
    assert sorted(gone) == sorted(blocks[name].header.hash for name in ("b3", "b4", "c3", "c4", "c5"))
    left = {block_hash for (block_hash,) in connection.execute("SELECT hash FROM block")}
    assert left == {blocks["b1"].header.hash, blocks["d2"].header.hash}


def test_work_is_a_number_of_any_size(store: ChainWriter, chain: ChainBuilder) -> None:
    for exponent in (7, 8, 64, 255):
        block = chain.block(producer=f"p{exponent}")
        store.add_block(block, evolve(chain.point_after(block), work=2**exponent))
        point = store.point(block.header.hash)
        assert point is not None
        assert point.work == 2**exponent


# The canonical chain


def test_the_tip_is_the_newest_canonical_block(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..2]\nb1: c[2..4]")
    first, second = grow(store, chain, blocks["b1"], blocks["b2"])
    sides = put(store, chain, blocks["c2"], blocks["c3"], blocks["c4"])
    assert store.tip() == second.point
    assert store.canonical(1) == first
    assert store.canonical(2) == second
    assert store.canonical(3) is None
    assert [store.is_canonical(block) for block in (first, second, *sides)] == [True, True, False, False, False]


def test_the_last_common_block_is_the_first_of_a_locator_that_is_canonical(
    store: ChainWriter, chain: ChainBuilder
) -> None:
    blocks = chain.chain("genesis: b[1..4]\nb2: c[3..4]")
    put(store, chain, blocks["c3"], blocks["c4"])
    grow(store, chain, *[blocks[f"b{height}"] for height in range(1, 5)])
    hashes = {name: block.header.hash for name, block in blocks.items()}
    assert store.last_common([hashes["b4"], hashes["b1"]]) == 4
    assert store.last_common([hashes["c4"], hashes["c3"], hashes["b2"], hashes["b1"]]) == 2
    assert store.last_common([bytes(32), hashes["b1"], hashes["b3"]]) == 1
    assert store.last_common([hashes["c4"], bytes(32)]) == 0
    assert store.last_common([]) == 0


def test_headers_are_those_of_the_canonical_chain_in_order(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b[1..4]\nb1: c[2..4]")
    put(store, chain, blocks["c2"], blocks["c3"], blocks["c4"])
    grow(store, chain, *[blocks[f"b{height}"] for height in range(1, 5)])
    headers = [blocks[f"b{height}"].header.wire() for height in range(1, 5)]
    assert store.headers(1, limit=9) == headers
    assert store.headers(2, limit=2) == headers[1:3]
    assert store.headers(5, limit=9) == []


def test_a_height_has_one_canonical_block(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = chain.chain("genesis: b1\ngenesis: c1")
    grow(store, chain, blocks["b1"])
    with pytest.raises(apsw.ConstraintError):
        grow(store, chain, blocks["c1"])


def test_transfers_are_found_by_their_id(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = paying(chain)
    stored = grow(store, chain, blocks["b1"], blocks["b2"])
    for at, block in zip(stored, (blocks["b1"], blocks["b2"]), strict=True):
        for position, transfer in enumerate(block.transfers):
            found = store.transaction(transfer.txid, TEST_PARAMS)
            assert found is not None
            assert (found.block_hash, found.slot) == (at.point.hash, at.point.slot)
            assert (found.place, found.body) == ((at.point.height, position), transfer.wire)
            parties = (transfer.sender, transfer.recipient, transfer.reference, transfer.amount)
            assert (found.sender, found.recipient, found.reference, found.amount) == parties


def test_transfers_of_side_branches_are_not_found(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = paying(chain)
    put(store, chain, *blocks.values())
    (transfer,) = blocks["b2"].transfers
    assert store.transaction(transfer.txid, TEST_PARAMS) is None
    assert store.address_transactions(key_of("alice").hash, before=NEWEST, limit=9) == []


def places(store: ChainReader, name: str, before: tuple[int, int] = NEWEST, limit: int = 100) -> list[tuple[int, int]]:
    found = store.address_transactions(key_of(name).hash, before=before, limit=limit)
    return [transfer.place for transfer in found]


def test_transfers_are_found_by_address_newest_first(store: ChainWriter, chain: ChainBuilder) -> None:
    grow(store, chain, *paying(chain).values())
    assert places(store, "bob") == [(3, 0), (1, 1), (1, 0)]
    assert places(store, "carol") == [(3, 0), (1, 1)]
    assert places(store, "alice") == [(2, 0), (1, 0)], "a transfer to oneself is listed once"
    assert places(store, "dave") == []


def test_transfers_are_paged_by_height_and_position(store: ChainWriter, chain: ChainBuilder) -> None:
    grow(store, chain, *paying(chain).values())
    assert places(store, "bob", limit=2) == [(3, 0), (1, 1)]
    assert places(store, "bob", before=(1, 1), limit=2) == [(1, 0)]
    assert places(store, "bob", before=(1, 0), limit=2) == []
    assert places(store, "bob", before=(3, 0), limit=1) == [(1, 1)]


def test_transfers_are_indexed_by_id_party_reference_and_payment(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    blocks = paying(chain)
    grow(store, chain, *blocks.values())
    expected = []
    for height, block in enumerate(blocks.values(), 1):
        for place, transfer in enumerate(block.transfers, place_of(height, 0)):
            keys = {txid_key(transfer.txid), address_key(transfer.sender), address_key(transfer.recipient)}
            if transfer.reference is not None:
                keys.add(reference_key(transfer.reference))
                keys.add(payment_key(transfer.reference, transfer.recipient, transfer.amount))
            expected += [(key, place) for key in keys]
    assert sorted(connection.execute("SELECT key, place FROM transfer_entry")) == sorted(expected)


def test_disconnecting_a_block_takes_back_all_that_connecting_wrote(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    blocks = paying(chain)
    stored = [
        store.add_block(block, chain.point_after(block), side_work=chain.point_after(block).work)
        for block in blocks.values()
    ]
    before = []
    undo: dict[bytes, Account | None] = {bytes(20): None, b"\1" * 20: Account(7, 8, 9), b"\2" * 20: Account(1, 0)}
    for at, block in zip(stored, blocks.values(), strict=True):
        before.append(contents(connection))
        store.connect_block(at, block.transfers, undo=undo, history=())
    for at in reversed(stored):
        assert store.disconnect_block(at) == undo
        assert contents(connection) == before.pop()


def test_a_missing_undo_record_is_corrupt(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    (stored,) = grow(store, chain, chain.block())
    connection.execute("DELETE FROM undo")
    before = contents(connection)
    with pytest.raises(Corrupt, match="undo record of the canonical block at height 1 is missing"):
        store.disconnect_block(stored)
    assert contents(connection) == before


# Accounts

ACCOUNTS = {bytes([n]) * 20: Account(10 * n, n, None if n % 2 else n) for n in (3, 1, 2, 255)}


def test_accounts_come_back(store: ChainWriter) -> None:
    store.write_accounts(ACCOUNTS)
    assert store.accounts([*ACCOUNTS, bytes(20)]) == ACCOUNTS
    assert {key: store.account(key) for key in ACCOUNTS} == ACCOUNTS
    assert store.count_accounts() == 4


def test_accounts_are_changed_and_removed(store: ChainWriter) -> None:
    store.write_accounts(ACCOUNTS)
    store.write_accounts({b"\1" * 20: Account(5, 6, 7), b"\2" * 20: None, b"\4" * 20: None})
    assert store.account(b"\1" * 20) == Account(5, 6, 7)
    assert store.account(b"\2" * 20) is None
    assert store.count_accounts() == 3


def test_an_account_may_cease_to_hold_the_minimum(store: ChainWriter) -> None:
    store.write_accounts({bytes(20): Account(5, 6, 7)})
    store.write_accounts({bytes(20): Account(5, 6)})
    assert store.account(bytes(20)) == Account(5, 6, None)


def test_accounts_are_read_within_bounds(store: ChainWriter) -> None:
    store.write_accounts(ACCOUNTS)
    rows = [(key, a.balance, a.nonce, a.held_since) for key, a in sorted(ACCOUNTS.items())]
    assert list(store.every_account()) == rows
    assert sorted(store.account_rows([(bytes(20), b"\xff" * 20)])) == rows
    assert sorted(store.account_rows([(b"\1" * 20, b"\3" * 20)])) == rows[:3], "both bounds are included"
    assert store.account_rows([(b"\1" * 19 + b"\2", b"\3" * 19 + b"\2")]) == rows[1:2]
    assert sorted(store.account_rows([(b"\1" * 20, b"\1" * 20), (b"\3" * 20, b"\4" * 20)])) == [rows[0], rows[2]]


# Transfers of undone blocks


def test_disconnected_transfers_are_kept_in_order_until_they_are_forgotten(
    store: ChainWriter, chain: ChainBuilder
) -> None:
    transfers = [chain.transfer("alice", "bob", n) for n in range(1, 4)]
    last = store.save_disconnected([transfers[0], transfers[1]])
    assert store.save_disconnected([transfers[2]]) == last + 1
    assert [body for _, body in store.disconnected()] == [transfer.wire for transfer in transfers]
    store.forget_disconnected(last)
    assert [body for _, body in store.disconnected()] == [transfers[2].wire]


def test_a_transfer_that_is_disconnected_again_survives_forgetting_the_first_time(
    store: ChainWriter, chain: ChainBuilder
) -> None:
    transfers = [chain.transfer("alice", "bob", n) for n in range(1, 4)]
    first = store.save_disconnected(transfers)
    assert store.save_disconnected([transfers[2], transfers[0]]) > first
    store.forget_disconnected(first)
    assert [body for _, body in store.disconnected()] == [transfers[2].wire, transfers[0].wire]


# Speed


def plans(connection: DatabaseConnection, ask: Callable[[], object]) -> list[str]:
    """How SQLite goes about what ``ask`` asks."""
    asked: list[str] = []
    trace(connection, asked.append)
    ask()
    trace(connection, None)
    assert asked
    return [row[3] for statement in set(asked) for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]


def test_no_question_walks_through_a_whole_table(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    blocks = paying(chain)
    *_, last = grow(store, chain, *blocks.values())
    store.set_prune_height(1)
    txid, alice = blocks["b2"].transfers[0].txid, key_of("alice").hash
    for ask in (
        lambda: store.point(last.point.hash),
        lambda: store.stored(last.point.hash),
        lambda: store.canonical(2),
        lambda: store.headers(2, limit=9),
        lambda: store.is_canonical(last),
        lambda: store.bodies(last),
        lambda: store.some_bodies(last, first=1, limit=2),
        lambda: store.account(alice),
        lambda: store.accounts([alice]),
        lambda: store.account_rows([(bytes(20), b"\xff" * 20)]),
        lambda: store.transaction(txid, TEST_PARAMS),
        lambda: store.address_transactions(alice, before=NEWEST, limit=10),
        lambda: list(store.of_address(alice, after=(0, 0))),
        lambda: store.around(("order-1", alice), 5000, since=0, counted=9, missed=9),
        lambda: store.payments(("order-1", alice), 5000, since=0, limit=9),
        lambda: store.under_reference("order-1", limit=9),
        lambda: store.producers(1, 2),
        lambda: store.fees_in(2),
        lambda: store.figures(last),
        lambda: store.replaced_blocks(1, limit=3),
        lambda: store.write_accounts({bytes(20): Account(1), alice: None}),
        lambda: store.save_disconnected(blocks["b2"].transfers[:1]),
        lambda: store.disconnect_block(last),
        lambda: store.delete_old_blocks(below=2, at_most=2),
        lambda: store.side_blocks.delete_with_descendants(last.id, last.point.hash),
    ):
        # The ranges of account_rows and the branches of replaced_blocks are no tables; of runs there are few.
        short = (
            "CONSTANT ROW",
            "range",
            "side",
            "r",
            "account_run",
            "transfer_run",
            "(subquery",
        )
        begins = tuple(f"SCAN {name}" for name in short)
        walks = [plan for plan in plans(connection, ask) if plan.startswith("SCAN") and not plan.startswith(begins)]
        assert walks == []


def test_the_tip_is_found_at_the_end_of_its_table(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    grow(store, chain, chain.block())
    assert not any("TEMP B-TREE" in plan for plan in plans(connection, store.tip)), "nothing is sorted"


def test_figures_of_blocks(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = paying(chain)
    for stored, block in zip(grow(store, chain, *blocks.values()), blocks.values(), strict=True):
        figures = store.figures(stored)
        assert figures.size == len(block.wire())
        assert list(figures.fees) == sorted(transfer.fee for transfer in block.transfers)


def test_replaced_blocks_and_what_builds_on_them(store: ChainWriter, chain: ChainBuilder) -> None:
    blocks = chain.chain(
        """
        genesis: b[1..5]
        b1: c2 c3
        b3: d4
        genesis: e1
        """
    )
    grow(store, chain, *[blocks[f"b{height}"] for height in range(1, 6)])
    put(store, chain, *[blocks[name] for name in ("c2", "c3", "d4", "e1")])

    def side(first: int, limit: int = 9) -> list[bytes]:
        return [stored.point.hash for stored in store.replaced_blocks(first, limit=limit)]

    assert side(1) == [blocks[name].header.hash for name in ("d4", "c3", "c2")]
    assert side(1, limit=2) == [blocks[name].header.hash for name in ("d4", "c3")]
    assert side(2) == [blocks["d4"].header.hash]
    assert side(4) == []


# Commits


class Interruption(BaseException):
    """Something that is not even an Exception."""


def put_and_stop(store: ChainWriter, chain: ChainBuilder, block: Block) -> None:
    put(store, chain, block)
    raise Interruption


def test_a_commit_is_whole_and_an_attempt_is_a_part_of_it(
    store: ChainWriter, connection: DatabaseConnection, chain: ChainBuilder
) -> None:
    block, other = chain.block(producer="p"), chain.block(producer="q")
    before = contents(connection)
    with pytest.raises(Interruption), store.commit():
        put_and_stop(store, chain, block)
    assert contents(connection) == before
    with store.commit():
        put(store, chain, block)
        with pytest.raises(Interruption), store.attempt():
            put_and_stop(store, chain, other)
    assert store.stored(block.header.hash)
    assert store.stored(other.header.hash) is None


def test_a_snapshot_of_a_reader_sees_one_commit(store: ChainWriter, path: Path, chain: ChainBuilder) -> None:
    with closing(open_reader(path)) as connection:
        reader = ChainReader(connection)
        with reader.snapshot():
            assert reader.tip() is None
            with store.commit():
                grow(store, chain, chain.block())
            assert reader.tip() is None
            assert reader.canonical(1) is None
        assert reader.tip() == store.tip() is not None


def test_every_table_is_known_to_these_tests(connection: DatabaseConnection) -> None:
    snapshots = {"snapshot_header", "snapshot_progress", "snapshot_chunk", "snapshot_account"}
    others = {"block", "block_transaction", "disconnected_transfer", "prune", "checked_producers"}
    assert contents(connection).keys() == {*STATE, *snapshots, *others}


# A disk that refuses


def test_a_disk_that_takes_a_few_pages_and_no_block_takes_nothing(path: Path, store: ChainWriter) -> None:
    """Else a node on a full disk would be ready for a moment, again and again."""
    store.probe()
    with room_for_pages(5, path.with_name(f"{path.name}-wal")):
        for _ in range(10):
            with pytest.raises(apsw.Error):
                store.probe()
    store.probe()


NUMBERS = st.integers(0, 2**63 - 1)
KEYS = st.binary(min_size=20, max_size=20)
SOME_ACCOUNTS = st.builds(Account, NUMBERS, NUMBERS, st.none() | NUMBERS)
BEFORE = st.dictionaries(KEYS, st.none() | SOME_ACCOUNTS, max_size=20)


@given(BEFORE)
def test_packed_accounts_are_unpacked_in_the_same_order_from_45_bytes_each(before: dict[bytes, Account | None]) -> None:
    packed = pack(before)
    assert list(unpack(packed).items()) == list(before.items())
    assert len(packed) == 45 * len(before)


def test_no_account_is_not_an_empty_account() -> None:
    key = bytes(20)
    assert unpack(pack({key: None})) == {key: None}
    assert unpack(pack({key: Account()})) == {key: Account()}
    assert unpack(pack({key: Account(held_since=0)})) == {key: Account(held_since=0)}


@pytest.mark.parametrize("length", [1, 44, 46, 91])
def test_a_record_of_a_wrong_length_is_corrupt(length: int) -> None:
    with pytest.raises(Corrupt, match="wrong length"):
        unpack(bytes(length))
