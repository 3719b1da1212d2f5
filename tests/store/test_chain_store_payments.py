"""Payments are found by index: as quickly on a long chain as on a short one, however much somebody has sent."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from svcd.chain.address import encode_address
from svcd.chain.errors import Corrupt
from svcd.chain.transaction import txid_of
from svcd.store import chain_store, transfer_index
from svcd.store.chain_store import MAX_SCANNED, ChainReader, ChainWriter, PaidTransfer, StoredTransfer
from svcd.store.database import open_writer
from svcd.store.merge_policy import MergeBudget
from svcd.store.packed_transfer import unpack_transfer
from svcd.store.transfer_index import (
    ADDRESSES,
    PAYMENTS,
    TRANSACTIONS,
    TransferIndexWriter,
    by_address,
    by_recipient,
    by_reference,
    by_txid,
    place_of,
)
from tests.chains import TEST_PARAMS, ChainBuilder, key_of

PAYEE = ("order-1", key_of("bob").hash)

CHAIN = """
genesis: b[1..4]
b1 pays 5000 from alice to bob for order-1
b1 pays 5000 from carol to bob for order-1
b1 pays 5000 from alice to carol for order-1
b1 pays 5000 from alice to bob for order-2
b1 pays 5000 from alice to bob for Order-1
b1 pays 5000 from alice to bob
b2 pays 4999 from alice to bob for order-1
b2 pays 5001 from alice to bob for order-1
b2 pays 9000 from alice to bob for order-1
b3 pays 5000 from alice to bob for order-1
b3 pays 1 from alice to bob for order-1
b3 pays 4999 from carol to bob for order-1
"""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_writer(tmp_path / "chain.sqlite")) as writer:
        yield writer


@pytest.fixture
def store(connection: sqlite3.Connection) -> ChainReader:
    """The chain of this page."""
    return with_chain(connection)


def with_chain(connection: sqlite3.Connection) -> ChainReader:
    store, chain = ChainWriter(connection), ChainBuilder()
    for block in chain.chain(CHAIN).values():
        store.connect_block(store.add_block(block, chain.point_after(block)), block.transfers, undo={}, history=())
    return store


def at(places: Sequence[PaidTransfer | StoredTransfer]) -> list[tuple[int, int]]:
    return [
        (place.height if isinstance(place, PaidTransfer) else place.point.height, place.position) for place in places
    ]


def payments(store: ChainReader, amount: int = 5000, *, since: int = 0, limit: int = 9) -> list[tuple[int, int]]:
    return at(store.payments(PAYEE, amount, since=since, limit=limit))


def misses(store: ChainReader, amount: int = 5000, *, since: int = 0, limit: int = 9) -> set[tuple[int, int]]:
    return set(at(store.near_misses(PAYEE, amount, since=since, limit=limit)))


def test_payments_come_in_the_order_of_the_chain(store: ChainReader) -> None:
    assert payments(store) == [(1, 0), (1, 1), (3, 0)]
    assert payments(store, limit=2) == [(1, 0), (1, 1)]
    assert payments(store, 5001) == [(2, 1)]
    assert payments(store, 5002) == []


def test_payments_begin_at_a_height(store: ChainReader) -> None:
    assert payments(store, since=1) == payments(store)
    assert payments(store, since=2) == payments(store, since=3) == [(3, 0)]
    for since in (4, 2**46 + 1, 2**53 - 1):
        assert payments(store, since=since) == []
        assert misses(store, since=since) == set()


def test_a_payment_comes_with_its_block_and_transfer(store: ChainReader) -> None:
    (place,) = store.payments(PAYEE, 5001, since=0, limit=9)
    block = store.canonical(2)
    assert block is not None
    assert (place.block_hash, place.height, place.slot) == (block.point.hash, block.point.height, block.point.slot)
    assert unpack_transfer(place.stored) == store.bodies(block)[1]


def test_near_misses_are_the_nearest_on_either_side(store: ChainReader) -> None:
    assert misses(store) == {(2, 0), (3, 2), (3, 1), (2, 1), (2, 2)}
    assert misses(store, limit=1) < {(2, 0), (3, 2), (2, 1)}
    assert misses(store, 4999, limit=1) in [{(3, 1), place} for place in payments(store)]


@pytest.mark.parametrize("runs", [4, 1])
@pytest.mark.parametrize("few", [9, 7])
def test_both_are_found_at_once_where_there_are_few(
    connection: sqlite3.Connection, store: ChainReader, monkeypatch: pytest.MonkeyPatch, few: int, runs: int
) -> None:
    if runs == 1:
        # As after a merge: a run that begins below the heights that are asked for.
        connection.execute("DELETE FROM payment_run WHERE number > 1")
        connection.execute("UPDATE payment_run SET last = 4")
        connection.execute("UPDATE payment_entry SET run = 1")
    monkeypatch.setattr(chain_store, "MAX_TOGETHER", few)
    for amount in (1, 4999, 5000, 5001, 9000, 9001):
        for since in range(5):
            for limit in (1, 2, 9):
                paid, missed = store.around(PAYEE, amount, since=since, counted=limit, missed=9)
                assert at(paid) == payments(store, amount, since=since, limit=limit)
                assert set(at(missed)) == misses(store, amount, since=since)


def test_of_few_near_misses_the_nearest_are_kept(store: ChainReader) -> None:
    _, missed = store.around(PAYEE, 5000, since=0, counted=9, missed=1)
    assert at(missed) in ([(2, 0), (2, 1)], [(3, 2), (2, 1)])
    assert store.around(("order-3", PAYEE[1]), 5000, since=0, counted=9, missed=9) == ([], [])


def test_a_transfer_that_is_only_in_the_index_is_damage(connection: sqlite3.Connection, store: ChainReader) -> None:
    pay_often(connection, 9, range(4000, 4001))
    connection.execute("DELETE FROM block_transaction WHERE position = 9")
    with pytest.raises(Corrupt, match="a transfer that the index has at height 1 is missing"):
        store.around(PAYEE, 5000, since=0, counted=9, missed=9)


def test_near_misses_begin_at_a_height(store: ChainReader) -> None:
    assert misses(store, since=3) == {(3, 1), (3, 2)}
    assert misses(store, since=3, limit=1) == {(3, 2)}


def test_recipients_are_found_by_reference(store: ChainReader) -> None:
    found = store.under_reference(PAYEE[0], limit=99)
    assert set(at(found)) >= {*payments(store), *misses(store)}
    assert store.under_reference(PAYEE[0], limit=2) == found[:2]
    assert store.under_reference("nobody", limit=9) == []


def test_received_transfers_are_in_the_order_of_the_chain(store: ChainReader) -> None:
    received = [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)]
    assert at(store.received(PAYEE, (-1, 0), limit=99)) == received
    assert at(store.received(PAYEE, (2, 1), limit=2)) == [(2, 2), (3, 0)]


def test_only_so_many_transfers_to_a_payee_are_sorted(store: ChainReader, monkeypatch: pytest.MonkeyPatch) -> None:
    for most, few in ((8, True), (7, False)):
        monkeypatch.setattr(chain_store, "MAX_SCANNED", most)
        assert store.has_received_few(PAYEE) is few


def answers(store: ChainReader) -> list[object]:
    """Of every kind of question that is answered from the index."""
    alice, nobody = key_of("alice").hash, key_of("nobody").hash
    found: list[object] = []
    for payee in [(reference, key_of(name).hash) for reference in ("order-1", "order-2") for name in ("bob", "carol")]:
        found += [store.payments(payee, 5000, since=since, limit=limit) for since in (0, 2) for limit in (1, 9)]
        found += [set(store.near_misses(payee, 5000, since=0, limit=limit)) for limit in (1, 9)]
        found += [
            [set(part) for part in store.around(payee, 5000, since=since, counted=2, missed=2)] for since in (0, 2)
        ]
        found += [store.received(payee, (1, 0), limit=limit) for limit in (2, 99)]
    found += [set(at(store.under_reference(reference, limit=99))) for reference in ("order-1", "Order-1", "x")]
    for key in (alice, key_of("bob").hash, nobody):
        found += [store.address_transactions(key, before=(3, 1), limit=limit) for limit in (2, 99)]
        found += [store.address_transactions_after(key, (1, 1), limit=limit) for limit in (2, 99)]
    txids = [txid_of(place.body, TEST_PARAMS) for place in store.address_transactions(alice, before=(9, 0), limit=99)]
    for txid in (*txids, bytes(32)):
        found += [store.transaction(txid, TEST_PARAMS), store.has_transaction(txid, TEST_PARAMS)]
    return found


def test_keys_that_begin_alike_are_told_apart(
    store: ChainReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every transfer is a candidate for every question, as if somebody had found many such keys."""
    right = answers(store)
    for module in (transfer_index, chain_store):
        for name in ("by_txid", "by_address", "by_reference", "by_recipient"):
            monkeypatch.setattr(module, name, lambda _: 7)
    with closing(open_writer(tmp_path / "alike.sqlite")) as other:
        assert answers(with_chain(other)) == right


@pytest.mark.parametrize("ask", ["transaction", "address", "payment", "reference"])
def test_an_entry_for_another_transfer_is_damage(connection: sqlite3.Connection, store: ChainReader, ask: str) -> None:
    payee, txid = ("order-9", key_of("erin").hash), b"t" * 32
    entries = {
        TRANSACTIONS: [(by_txid(txid), place_of(1, 0))],
        ADDRESSES: [(by_address(payee[1]), place_of(1, 0))],
        PAYMENTS: [(by_reference(payee[0]), by_recipient(payee[1]), 5000, place_of(1, 0))],
    }
    TransferIndexWriter(connection, MergeBudget()).add(1, 1, entries)
    questions: dict[str, Callable[[], object]] = {
        "transaction": lambda: store.transaction(txid, TEST_PARAMS),
        "address": lambda: store.address_transactions(payee[1], before=(9, 0), limit=9),
        "payment": lambda: store.around(payee, 5000, since=0, counted=9, missed=9),
        "reference": lambda: store.under_reference(payee[0], limit=9),
    }
    with pytest.raises(Corrupt, match="the index has a transfer at height 1 under a key that it does not have"):
        questions[ask]()


def steps_of(connection: sqlite3.Connection, store: ChainReader, since: int = 0) -> int:
    """How many steps SQLite takes for one question of each kind, in tens; they differ a little between its versions."""
    ticks = count()
    connection.set_progress_handler(lambda: next(ticks) and 0, 10)
    store.payments(PAYEE, 5000, since=since, limit=9)
    store.near_misses(PAYEE, 5000, since=since, limit=9)
    store.around(PAYEE, 5000, since=since, counted=9, missed=9)
    connection.set_progress_handler(None, 0)
    return next(ticks)


def body(payee: tuple[str, bytes], amount: int) -> bytes:
    """The canonical JSON of a payment from its recipient, which nobody has signed."""
    reference, address = payee[0], encode_address(payee[1], TEST_PARAMS.address_prefix)
    return (
        f'{{"fee":"1","networkId":3,"nonce":"0","payload":{{"amount":"{amount}","paymentReference":"{reference}",'
        f'"recipient":"{address}"}},"senderAddress":"{address}","senderPublicKey":"{"0" * 64}",'
        f'"signature":"{"0" * 128}","timestamp":"1","type":1,"version":2}}'
    ).encode()


def pay_often(connection: sqlite3.Connection, first: int, amounts: range, payee: tuple[str, bytes] = PAYEE) -> None:
    """Enter payments into the index and the block at height 1."""
    entries = [
        (by_reference(payee[0]), by_recipient(payee[1]), amount, place_of(1, first + position))
        for position, amount in enumerate(amounts)
    ]
    block = connection.execute("SELECT block FROM canonical WHERE height = 1").fetchone()[0]
    bodies = [((block << 16) + first + position, body(payee, amount)) for position, amount in enumerate(amounts)]
    connection.executemany("INSERT OR IGNORE INTO block_transaction VALUES (?, ?)", bodies)
    TransferIndexWriter(connection, MergeBudget()).add(
        1, 1, {TRANSACTIONS: [], ADDRESSES: [], PAYMENTS: sorted(entries)}
    )


def test_other_payments_cost_nothing(connection: sqlite3.Connection, store: ChainReader) -> None:
    before = steps_of(connection, store)
    pay_often(connection, 1000, range(1, 5_000), ("order-0", PAYEE[1]))
    pay_often(connection, 1000, range(1, 5_000), (PAYEE[0], key_of("carol").hash))
    # One step for each of the others would be 1,000 tens.
    assert steps_of(connection, store) < 2 * before < 500


@pytest.mark.parametrize("since", [0, 2])
def test_wrong_amounts_in_any_number_cost_only_so_much(
    connection: sqlite3.Connection, store: ChainReader, monkeypatch: pytest.MonkeyPatch, since: int
) -> None:
    pay_often(connection, 1000, range(6000, 6000 + MAX_SCANNED))
    pay_often(connection, 1000, range(3000, 4000))
    some = steps_of(connection, store, since)
    pay_often(connection, 5000, range(10_000, 30_000))
    assert steps_of(connection, store, since) <= some * 1.2
    monkeypatch.setattr(chain_store, "MAX_SCANNED", 100_000)
    assert since == 0 or steps_of(connection, store, since) > 1.5 * some
