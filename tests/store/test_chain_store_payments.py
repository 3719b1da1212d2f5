"""Payments are found by index: as quickly on a long chain as on a short one, however much somebody has sent."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path

import pytest

from svcd.chain.address import encode_address
from svcd.chain.errors import Corrupt
from svcd.chain.transaction import txid_of
from svcd.store import chain_store, transfer_index
from svcd.store.chain_store import MAX_COMPARED, ChainReader, ChainWriter, PlacedTransfer
from svcd.store.database import DatabaseConnection, migrations, open_writer
from svcd.store.packed_transfer import unpack_transfer
from svcd.store.sorted_runs import SortedRuns
from svcd.store.transfer_index import TRANSFERS, address_key, payment_key, place_of, reference_key, txid_key
from tests.chains import TEST_PARAMS, ChainBuilder, key_of

KEYS_OF_SCHEMA_11 = -6844853831635000916, -3417586256760198334, 210535072040000099, 7249745873388538992

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
def connection(tmp_path: Path) -> Iterator[DatabaseConnection]:
    with closing(open_writer(tmp_path / "chain.sqlite")) as writer:
        yield writer


@pytest.fixture
def store(connection: DatabaseConnection) -> ChainReader:
    """The chain of this page."""
    return with_chain(connection)


def with_chain(connection: DatabaseConnection) -> ChainReader:
    store, chain = ChainWriter(connection), ChainBuilder()
    for block in chain.chain(CHAIN).values():
        store.connect_block(store.add_block(block, chain.point_after(block)), block.transfers, undo={}, history=())
    return store


def at(transfers: Iterable[PlacedTransfer]) -> list[tuple[int, int]]:
    return [transfer.place for transfer in transfers]


def after(store: ChainReader, key: bytes, place: tuple[int, int], *, limit: int) -> list[PlacedTransfer]:
    """The oldest transfers of an address after a place."""
    ours = (each for each in store.of_address(key, after=place) if key in (each.sender, each.recipient))
    return list(islice(ours, limit))


def payments(store: ChainReader, amount: int = 5000, *, since: int = 0, limit: int = 9) -> list[tuple[int, int]]:
    return at(store.payments(PAYEE, amount, since=since, limit=limit))


def misses(store: ChainReader, amount: int = 5000, *, since: int = 0, limit: int = 9) -> set[tuple[int, int]]:
    return set(at(store.around(PAYEE, amount, since=since, counted=9, missed=limit)[1]))


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
@pytest.mark.parametrize("compared", [9, 8, 3, 1])
def test_all_payments_are_found_though_not_all_transfers_are_compared(
    connection: DatabaseConnection, store: ChainReader, monkeypatch: pytest.MonkeyPatch, compared: int, runs: int
) -> None:
    if runs == 1:
        # As after a merge: a run that begins below the heights that are asked for.
        connection.execute("DELETE FROM transfer_run WHERE number > 1")
        connection.execute("UPDATE transfer_run SET last = 4")
        connection.execute("UPDATE transfer_entry SET run = 1")
    monkeypatch.setattr(chain_store, "MAX_COMPARED", compared)
    order_1 = store.under_reference(PAYEE[0], limit=99)
    for amount in (1, 4999, 5000, 5001, 9000, 9001):
        for since in range(5):
            oldest = set(at([place for place in order_1 if place.height >= since][:compared]))
            for limit in (1, 2, 9):
                paid, missed = store.around(PAYEE, amount, since=since, counted=limit, missed=9)
                assert at(paid) == payments(store, amount, since=since, limit=limit)
                assert set(at(missed)) == (oldest & ALL_TO_BOB) - set(payments(store, amount))


ALL_TO_BOB = {(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)}
"""What is paid to PAYEE."""


def test_of_few_near_misses_the_nearest_are_kept(store: ChainReader) -> None:
    _, missed = store.around(PAYEE, 5000, since=0, counted=9, missed=1)
    assert at(missed) in ([(2, 0), (2, 1)], [(3, 2), (2, 1)])
    assert store.around(("order-3", PAYEE[1]), 5000, since=0, counted=9, missed=9) == ([], [])


def test_a_transfer_that_is_only_in_the_index_is_damage(connection: DatabaseConnection, store: ChainReader) -> None:
    pay_often(connection, 9, range(4000, 4001))
    connection.execute("DELETE FROM block_transaction WHERE position = 9")
    with pytest.raises(Corrupt, match="a transfer that the index has at height 1 is missing"):
        store.around(PAYEE, 5000, since=0, counted=9, missed=9)


def test_near_misses_begin_at_a_height(store: ChainReader) -> None:
    assert misses(store, since=3) == {(3, 1), (3, 2)}
    assert misses(store, since=3, limit=1) == {(3, 2)}


def test_recipients_are_found_by_reference(store: ChainReader) -> None:
    found = store.under_reference(PAYEE[0], limit=99)
    assert at(found) == sorted({*ALL_TO_BOB, (1, 2)})
    assert store.under_reference(PAYEE[0], limit=2) == found[:2]
    assert store.under_reference(PAYEE[0], after=(2, 0), limit=2) == found[5 - 1 : 7 - 1]
    assert store.under_reference("nobody", limit=9) == []


def answers(store: ChainReader) -> list[object]:
    """Of every kind of question that is answered from the index."""
    alice, nobody = key_of("alice").hash, key_of("nobody").hash
    found: list[object] = []
    for payee in [(reference, key_of(name).hash) for reference in ("order-1", "order-2") for name in ("bob", "carol")]:
        found += [store.payments(payee, 5000, since=since, limit=limit) for since in (0, 2) for limit in (1, 9)]
        found += [
            [set(part) for part in store.around(payee, 5000, since=since, counted=2, missed=2)] for since in (0, 2)
        ]
    found += [at(store.under_reference(reference, limit=99)) for reference in ("order-1", "Order-1", "x")]
    for key in (alice, key_of("bob").hash, nobody):
        found += [store.address_transactions(key, before=(3, 1), limit=limit) for limit in (2, 99)]
        found += [after(store, key, (1, 1), limit=limit) for limit in (2, 99)]
    txids = [txid_of(place.body, TEST_PARAMS) for place in store.address_transactions(alice, before=(9, 0), limit=99)]
    for txid in (*txids, bytes(32)):
        found += [store.transaction(txid, TEST_PARAMS), store.has_transaction(txid, TEST_PARAMS)]
    return found


def test_values_with_the_same_key_are_told_apart(
    store: ChainReader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every transfer is a candidate for every question, as if all had the same key by chance."""
    right = answers(store)
    for module in (transfer_index, chain_store):
        for name in ("txid_key", "address_key", "reference_key", "payment_key"):
            monkeypatch.setattr(module, name, lambda *_: 7)
    with closing(open_writer(tmp_path / "alike.sqlite")) as other:
        assert answers(with_chain(other)) == right


def test_other_keys_need_another_schema() -> None:
    """With those of an earlier program every order would be unpaid, so the schema gets a new number with them."""
    keys = txid_key(b"t" * 32), address_key(b"a" * 20), reference_key("order-1"), payment_key("order-1", b"a" * 20, 1)
    assert (migrations()[0].version, keys) == (11, KEYS_OF_SCHEMA_11)


@pytest.mark.parametrize("ask", ["transaction", "address", "payment", "reference"])
def test_an_entry_for_another_transfer_is_damage(connection: DatabaseConnection, store: ChainReader, ask: str) -> None:
    payee, txid = ("order-9", key_of("erin").hash), b"t" * 32
    keys = txid_key(txid), address_key(payee[1]), reference_key(payee[0])
    SortedRuns(connection, TRANSFERS).add(sorted((key, place_of(1, 0)) for key in keys), 1)
    questions: dict[str, Callable[[], object]] = {
        "transaction": lambda: store.transaction(txid, TEST_PARAMS),
        "address": lambda: store.address_transactions(payee[1], before=(9, 0), limit=9),
        "payment": lambda: store.around(payee, 5000, since=0, counted=9, missed=9),
        "reference": lambda: store.under_reference(payee[0], limit=9),
    }
    with pytest.raises(Corrupt, match="the index has a transfer at height 1 under a key that it does not have"):
        questions[ask]()


def body(sender: bytes, payee: tuple[str, bytes], amount: int) -> bytes:
    """A stored payment, which nobody has signed."""
    reference, recipient = payee
    addresses = [encode_address(key, TEST_PARAMS.address_prefix) for key in (recipient, sender)]
    texts = ("1", "3", "0", str(amount), reference, *addresses, "1")
    return '"'.join(texts).encode() + bytes(96)


def pay_often(
    connection: DatabaseConnection,
    first: int,
    amounts: range,
    payee: tuple[str, bytes] = PAYEE,
    parties: Callable[[int], tuple[bytes, bytes]] | None = None,
    *,
    amount: int | None = None,
) -> None:
    """Enter payments into the index and the block at height 1, before those that are there.

    From and to the ``parties`` of a number, or to the payee.
    """
    block = connection.execute("SELECT block FROM canonical WHERE height = 1").fetchone()[0]
    bodies, rows = [], set()
    for number, of_number in enumerate(amounts):
        amount_ = of_number if amount is None else amount
        place = place_of(1, first + number)
        sender, recipient = parties(number) if parties else (payee[1], payee[1])
        bodies.append(((block << 16) + first + number, body(sender, (payee[0], recipient), amount_)))
        keys = reference_key(payee[0]), payment_key(payee[0], recipient, amount_), address_key(sender)
        rows |= {(key, place) for key in (*keys, address_key(recipient))}
    connection.executemany("INSERT INTO block_transaction VALUES (?, ?)", bodies)
    SortedRuns(connection, TRANSFERS).add(sorted(rows), 1)


def like(name: str, number: int) -> bytes:
    """An address with all bytes of another one but the last three."""
    return key_of(name).hash[:-3] + number.to_bytes(3, "big")


Send = Callable[[DatabaseConnection, int], None]
ALICE, BOB = key_of("alice").hash, key_of("bob").hash
LOOK_ALIKES: dict[str, Send] = {
    "between look-alikes of sender and recipient": lambda connection, many: pay_often(
        connection, 1000, range(1, many), ("other", b""), lambda n: (like("alice", n), like("bob", n))
    ),
    "between look-alikes under the reference": lambda connection, many: pay_often(
        connection, 1000, range(1, many), PAYEE, lambda n: (like("alice", n), like("bob", n))
    ),
    "other amounts to the payee": lambda connection, many: pay_often(connection, 1000, range(6_000, 6_000 + many)),
    "the amount to the payee": lambda connection, many: pay_often(
        connection, 1000, range(many), PAYEE, lambda _: (ALICE, BOB), amount=5000
    ),
    "the amount to look-alikes of the payee": lambda connection, many: pay_often(
        connection, 1000, range(many), PAYEE, lambda n: (ALICE, like("bob", n)), amount=5000
    ),
    "from the sender to many": lambda connection, many: pay_often(
        connection, 1000, range(1, many), ("other", b""), lambda n: (ALICE, like("dave", n))
    ),
}
"""What a stranger can send for 4 coins."""


QUESTIONS: dict[str, Callable[[ChainReader], object]] = {
    "a verification": lambda store: store.around(PAYEE, 5000, since=0, counted=9, missed=9),
    "a verification of what was not paid": lambda store: store.around(PAYEE, 7, since=0, counted=9, missed=9),
    "the first payment": lambda store: store.payments(PAYEE, 5000, since=0, limit=1),
    "the newest of an address": lambda store: store.address_transactions(PAYEE[1], before=(9, 0), limit=10),
    "the oldest of an address": lambda store: after(store, PAYEE[1], (-1, 0), limit=10),
    "the newest of a sender": lambda store: store.address_transactions(key_of("alice").hash, before=(9, 0), limit=10),
    "a reference": lambda store: store.under_reference(PAYEE[0], limit=10),
    "a transaction": lambda store: store.has_transaction(bytes(32), TEST_PARAMS),
}


def steps_of(connection: DatabaseConnection, ask: Callable[[], object]) -> int:
    """How many steps SQLite takes, in tens: some tens for each row that is read."""
    ticks = count()
    connection.set_progress_handler(lambda: next(ticks) < 0, 10)
    ask()
    connection.set_progress_handler(None)
    return next(ticks)


@pytest.mark.parametrize("sent", LOOK_ALIKES)
@pytest.mark.parametrize("many", [2_000, pytest.param(40_000, marks=pytest.mark.slow)])
def test_no_question_takes_ten_times_as_long_whatever_a_stranger_sends(
    connection: DatabaseConnection, store: ChainReader, sent: str, many: int
) -> None:
    before = {name: steps_of(connection, lambda: ask(store)) for name, ask in QUESTIONS.items()}  # noqa: B023
    LOOK_ALIKES[sent](connection, many)
    after = {name: steps_of(connection, lambda: ask(store)) for name, ask in QUESTIONS.items()}  # noqa: B023
    assert {name: (after[name], few) for name, few in before.items() if after[name] > 10 * few} == {}
    assert at(store.payments(PAYEE, 5000, since=2, limit=9)) == [(3, 0)]


def test_a_payment_is_found_whatever_is_sent_before_it_under_its_reference(
    connection: DatabaseConnection, store: ChainReader
) -> None:
    pay_often(connection, 1000, range(6_000, 6_000 + MAX_COMPARED))
    assert payments(store) == at(store.around(PAYEE, 5000, since=0, counted=9, missed=9)[0]) == [(1, 0), (1, 1), (3, 0)]
    # Of other amounts those count that came first.
    assert (3, 2) not in misses(store, limit=MAX_COMPARED)
    assert (3, 2) in misses(store, since=2, limit=MAX_COMPARED)
