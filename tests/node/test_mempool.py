"""Which transfers may wait for a block, line by line (docs/protocol.md 12)."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from attrs import evolve

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node.mempool import (
    Admission,
    Mempool,
    MempoolEntry,
    RemovalReason,
    TimestampWindow,
    intersection,
)
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of

NOW = TEST_PARAMS.genesis_time + 10**9
PAST = 1000 * TEST_PARAMS.transaction_past_seconds
FUTURE = 1000 * TEST_PARAMS.transaction_future_seconds
WINDOW = TimestampWindow(NOW - PAST, NOW + FUTURE)
FEE = TEST_PARAMS.minimum_fee
RICH = Account(1000 * COIN)


def all_rich(transfer: Transfer) -> dict[bytes, Account]:
    """The accounts of a transfer that only other rules can refuse."""
    return {transfer.sender: RICH, transfer.recipient: RICH}


class Bench:
    """A pool, and people whose accounts the test sets."""

    def __init__(self, *, transactions: int = 50_000, size: int = 2**26, account_minimum: int = 1) -> None:
        params = evolve(TEST_PARAMS, account_minimum=account_minimum)
        self.pool = Mempool(params, max_transactions=transactions, max_bytes=size)
        self.chain = ChainBuilder()
        self.accounts: dict[str, Account] = {}
        self.sequence = 0

    def transfer(self, sender: str, nonce: int = 0, *, fee: int = FEE, amount: int = 1, age: int = 0) -> Transfer:
        return self.chain.transfer(sender, "zoe", amount, nonce=nonce, fee=fee, timestamp=NOW - age)

    def admit(self, transfer: Transfer, sender: str = "alice") -> Admission:
        self.sequence += 1
        recipient = self.accounts.get("zoe", RICH)
        accounts = {transfer.recipient: recipient, transfer.sender: self.accounts.get(sender, RICH)}
        return self.pool.admit(transfer, accounts, window=WINDOW, sequence=self.sequence)

    def add(self, sender: str, nonce: int = 0, *, fee: int = FEE, amount: int = 1, age: int = 0) -> list[bytes]:
        """Take a transfer in; gives the txids that left for it."""
        transfer = self.transfer(sender, nonce, fee=fee, amount=amount, age=age)
        return [entry.transfer.txid for entry in self.admit(transfer, sender).removed]

    def refusal(self, sender: str, nonce: int = 0, *, fee: int = FEE, amount: int = 1, age: int = 0) -> RuleViolation:
        """Why a transfer is not taken in; the pool is as it was."""
        before = [entry.transfer.txid for entry in self.pool.entries()]
        with pytest.raises(RuleViolation) as refusal:
            self.add(sender, nonce, fee=fee, amount=amount, age=age)
        assert [entry.transfer.txid for entry in self.pool.entries()] == before
        return refusal.value

    def waiting(self) -> list[tuple[bytes, int]]:
        """Sender and nonce of what waits, in order of arrival."""
        return [(entry.transfer.sender, entry.transfer.nonce) for entry in self.pool.entries()]

    def settle(self, *, txids: tuple[bytes, ...] = (), **accounts: Account) -> list[int]:
        """Bring the pool up to a new tip; gives the nonces that left."""
        self.accounts |= accounts
        left = self.pool.follow_chain(txids, {key_of(name).hash: account for name, account in accounts.items()})
        return sorted(entry.transfer.nonce for entry in left)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def of(sender: str, *nonces: int) -> list[tuple[bytes, int]]:
    return [(key_of(sender).hash, nonce) for nonce in nonces]


# Coming in


def test_accepted_transfers_are_in_the_mempool(bench: Bench) -> None:
    transfer = bench.transfer("alice")
    admission = bench.admit(transfer)
    assert admission.removed == {}
    assert admission.entry.transfer is transfer
    assert transfer.txid in bench.pool
    assert bench.pool.get(transfer.txid) is admission.entry
    assert bytes(32) not in bench.pool
    assert bench.pool.get(bytes(32)) is None
    assert (len(bench.pool), bench.pool.size) == (1, len(transfer.wire))


def test_checking_takes_nothing_in(bench: Bench) -> None:
    transfer = bench.transfer("alice")
    assert bench.pool.check(transfer, all_rich(transfer), WINDOW) == {}
    assert len(bench.pool) == 0


# Time


def test_a_transfer_that_is_too_old(bench: Bench) -> None:
    refusal = bench.refusal("alice", age=PAST + 1)
    assert refusal.code is Refusal.TIMESTAMP
    assert refusal.detail == f"expired: timestamp must be at least {NOW - PAST} by now"


def test_a_transfer_from_the_future(bench: Bench) -> None:
    refusal = bench.refusal("alice", age=-FUTURE - 1)
    assert refusal.code is Refusal.TIMESTAMP
    assert refusal.detail == f"timestamp lies in the future; it must be at most {NOW + FUTURE} by now"


@pytest.mark.parametrize(("behind", "oldest"), [(0, 0), (2000, 0), (2001, 1), (3000, 1000)])
def test_the_next_block_decides_what_is_too_old(bench: Bench, behind: int, oldest: int) -> None:
    """The next block comes two slots after the tip where blocks are made on demand, and never later than now."""
    tip_slot = 10**6
    now = TEST_PARAMS.slot_time(tip_slot) + behind
    assert bench.pool.window(tip_slot, now) == TimestampWindow(now - oldest - PAST, now + FUTURE)


# Nonces


def test_a_nonce_that_is_used(bench: Bench) -> None:
    bench.accounts["alice"] = Account(1000 * COIN, nonce=7)
    refusal = bench.refusal("alice", 6)
    assert (refusal.code, refusal.detail) == (Refusal.NONCE, "nonce 6 is already used; the next one is 7")


def test_a_nonce_too_far_ahead(bench: Bench) -> None:
    bench.accounts["alice"] = Account(1000 * COIN, nonce=7)
    refusal = bench.refusal("alice", 23)
    assert refusal.code is Refusal.NONCE
    assert refusal.detail == "nonce 23 is too far ahead; the highest nonce accepted now is 22"


def test_the_pending_balance_counts_what_waits_and_is_not_in_a_block_yet(bench: Bench) -> None:
    alice = key_of("alice").hash
    assert bench.pool.pending_balance(alice, Account(7)) == 7
    bench.accounts["alice"] = Account(COIN, nonce=5)
    bench.add("alice", 5, amount=7)
    bench.add("alice", 6, amount=9)
    left = COIN - 7 - 9 - 2 * FEE
    assert bench.pool.pending_balance(alice, Account(COIN, nonce=5)) == left
    assert bench.pool.pending_balance(alice, Account(COIN - 7 - FEE, nonce=6)) == left
    assert bench.pool.pending_balance(alice, Account(1, nonce=6)) == 0


# Replacement


@pytest.mark.parametrize(("fee", "least"), [(10_000, 11_000), (10_005, 11_006), (10_009, 11_010), (10_010, 11_011)])
def test_a_replacement_needs_ten_per_cent_more(bench: Bench, fee: int, least: int) -> None:
    first = bench.transfer("alice", fee=fee)
    bench.admit(first)
    refusal = bench.refusal("alice", fee=least - 1, amount=2)
    assert refusal.code is Refusal.FEE
    assert refusal.detail == f"nonce 0 is taken by a waiting transfer; replacing it needs a fee of {least} base units"
    assert bench.add("alice", fee=least, amount=2) == [first.txid]
    assert first.txid not in bench.pool
    assert len(bench.pool) == 1


def test_the_same_transfer_again_is_no_replacement(bench: Bench) -> None:
    bench.add("alice")
    assert bench.refusal("alice").code is Refusal.FEE


def test_replacing_again_and_again_costs_no_memory(bench: Bench) -> None:
    """The sender's last transfer stays the same while one before it is replaced."""
    bench.add("alice", 1)
    fee = FEE
    for _ in range(100):
        bench.add("alice", 0, fee=fee)
        fee = -(-fee * 11 // 10)
    assert len(bench.pool) == 2
    assert len(bench.pool._evictions._heap) < 70
    assert len(bench.pool._arrivals or []) < 70
    assert [entry.transfer.nonce for entry in bench.pool.since(0, 9)] == [1, 0]


# Balance


def test_all_that_waits_shares_one_balance(bench: Bench) -> None:
    bench.accounts["alice"] = Account(3 * (FEE + 1) + TEST_PARAMS.account_minimum)
    for nonce in range(2):
        bench.add("alice", nonce)
    refusal = bench.refusal("alice", 2, amount=4)
    assert refusal.code is Refusal.BALANCE
    assert refusal.detail == (
        "the balance is 3 base units short of amount, fee, the pending transfers and the 1 base units that the sender"
        " must keep"
    )
    bench.add("alice", 2)


def test_the_sender_keeps_the_account_minimum_beside_all_that_waits() -> None:
    bench = Bench(account_minimum=1_000)
    bench.accounts["alice"] = Account(2 * FEE + 3_000)
    bench.add("alice", amount=500)
    refusal = bench.refusal("alice", 1, amount=1_501)
    assert refusal.code is Refusal.SENDER_MINIMUM
    told = "the sender must keep 1000 base units, and 999 would remain; the amount can be at most 1500 base units"
    assert refusal.detail == told
    bench.add("alice", 1, amount=1_500)


def test_the_recipient_has_the_account_minimum_without_what_waits() -> None:
    bench = Bench(account_minimum=1_000)
    bench.accounts["zoe"] = Account()
    bench.add("bob", amount=1_000)
    refusal = bench.refusal("alice", amount=999)
    assert refusal.code is Refusal.RECIPIENT_MINIMUM
    told = "the recipient must have 1000 base units after the transfer; the amount must be at least 1000 base units"
    assert refusal.detail == told
    bench.accounts["zoe"] = Account(1_000)
    bench.add("alice", amount=1)


def test_transfers_that_leave_less_than_the_account_minimum_leave_the_mempool() -> None:
    bench = Bench(account_minimum=1_000)
    bench.accounts["alice"] = Account(2 * (FEE + 1) + 1_000)
    bench.add("alice", 0)
    bench.add("alice", 1)
    entries = bench.pool.entries()
    poorer = {key_of("alice").hash: Account(2 * (FEE + 1) + 999)}
    assert bench.pool.follow_chain([], poorer, reorganised=True) == {entries[1]: RemovalReason.REORG}


# A full pool


def full(bench: Bench) -> Bench:
    """Room for three, and three wait: with the fees 1, 2 and 3 times the minimum."""
    for factor, sender in enumerate(("alice", "bob", "carol"), 1):
        bench.add(sender, fee=factor * FEE)
    return bench


BY_COUNT: Callable[[], Bench] = lambda: full(Bench(transactions=3))  # noqa: E731
BY_BYTES: Callable[[], Bench] = lambda: full(Bench(size=1499))  # noqa: E731


@pytest.mark.parametrize("make", [BY_COUNT, BY_BYTES])
def test_a_full_pool_takes_nothing_that_pays_no_more(make: Callable[[], Bench]) -> None:
    bench = make()
    refusal = bench.refusal("dave")
    assert refusal.code is Refusal.POOL
    assert refusal.detail == f"the pool is full: for this transfer the fee must exceed {FEE} base units"


@pytest.mark.parametrize("amount", [1, 12, 123, 1234, 12_345, 123_456])
def test_the_fee_that_is_asked_for_is_just_enough(amount: int) -> None:
    bench = full(Bench(transactions=3))
    asked = int(re.findall(r"exceed (\d+)", bench.refusal("dave", amount=amount).detail)[0])
    assert bench.refusal("dave", amount=amount, fee=asked).code is Refusal.POOL
    assert len(bench.add("dave", amount=amount, fee=asked + 1)) == 1


@pytest.mark.parametrize("make", [BY_COUNT, BY_BYTES])
def test_the_floor_is_the_least_fee_that_is_let_in(make: Callable[[], Bench]) -> None:
    bench = make()
    size = len(bench.transfer("dave", fee=FEE).wire)
    floor = bench.pool.floor(size)
    assert floor is not None
    assert bench.refusal("dave", fee=floor - 1).code is Refusal.POOL
    assert len(bench.add("dave", fee=floor)) == 1


def test_there_is_no_floor_while_there_is_room() -> None:
    bench = Bench(transactions=2)
    assert bench.pool.floor(600) == 0
    bench.add("alice")
    assert bench.pool.floor(600) == 0


def test_the_floor_of_a_long_transfer_is_that_of_the_best_that_leaves_for_it() -> None:
    bench = full(Bench(size=1499))
    assert bench.pool.floor(1400) > bench.pool.floor(600) * 2  # type: ignore[operator]
    assert bench.pool.floor(1500) is None


def test_transfers_behind_a_gap_do_not_raise_the_minimum_fee() -> None:
    bench = Bench(transactions=10)
    bench.add("alice", 1, fee=100 * FEE)
    for number in range(9):
        bench.add(f"sender {number}")
    assert bench.pool.floor(600) == 0
    assert len(bench.add("dave")) == 1


def test_pending_transfers_of_a_sender_are_listed_by_nonce(bench: Bench) -> None:
    bench.add("alice", 1)
    bench.add("alice", 0)
    assert [entry.transfer.nonce for entry in bench.pool.sent_by(key_of("alice").hash)] == [0, 1]
    assert bench.pool.sent_by(key_of("bob").hash) == ()


def test_a_transfer_that_another_one_builds_on_stays() -> None:
    bench = Bench(transactions=3)
    bench.add("alice", 0)
    bench.add("alice", 1, fee=4 * FEE)
    bench.add("bob", fee=2 * FEE)
    assert len(bench.add("carol", fee=3 * FEE)) == 1
    assert bench.waiting() == of("alice", 0, 1) + of("carol", 0)
    assert bench.refusal("dave", fee=3 * FEE).code is Refusal.POOL


def test_nobody_drops_a_transfer_to_make_room_for_a_later_one_of_the_same_sender() -> None:
    bench = Bench(transactions=2)
    bench.add("alice", 0)
    bench.add("alice", 1)
    refusal = bench.refusal("alice", 2, fee=9 * FEE)
    assert refusal.code is Refusal.POOL
    assert refusal.detail == "the pool is full of transfers that others build on; send this one again later"
    bench.add("alice", 1, fee=9 * FEE)


# Behind a gap


def test_one_in_ten_may_wait_behind_a_gap() -> None:
    bench = Bench(transactions=20)
    bench.add("alice", 1)
    bench.add("bob", 15)
    refusal = bench.refusal("carol", 3, fee=9 * FEE)
    assert refusal.code is Refusal.POOL
    assert refusal.detail == "too many transfers wait for an earlier nonce; send the one with nonce 0 first"
    bench.add("carol", 0)
    bench.add("alice", 0)
    bench.add("carol", 3)


# How long it takes


def bench_of_senders(number: int, *, age: int = 0) -> Bench:
    """A mempool with transfers of so many senders, two of each."""
    bench = Bench(transactions=2 * number)
    model = bench.transfer("alice", age=age)
    for index in range(2 * number):
        sender, nonce = (index // 2).to_bytes(20, "big"), index % 2
        transfer = evolve(model, sender=sender, nonce=nonce, txid=index.to_bytes(32, "big"))
        bench.pool.admit(transfer, all_rich(transfer), window=WINDOW, sequence=index + 1)
    return bench


def test_expired_transfers_leave_in_steps(bench: Bench) -> None:
    for nonce in range(4):
        bench.add("alice", nonce, age=PAST)
    entries = bench.pool.entries()
    gone = bench.pool.drop([entries[1].transfer.txid])
    assert bench.pool.expire(NOW - PAST + 1, among=entries[:2]) == {entries[0]: RemovalReason.EXPIRY}
    assert bench.pool.expire(NOW - PAST + 1, among=entries) == dict.fromkeys(entries[2:], RemovalReason.EXPIRY)
    assert gone == {entries[1]: RemovalReason.DROPPED}


def test_a_transfer_with_an_earlier_number_takes_its_place(bench: Bench) -> None:
    transfers = [bench.transfer("alice", nonce) for nonce in range(3)]
    for sequence in (2, 3, 1):
        bench.pool.admit(transfers[sequence - 1], all_rich(transfers[sequence - 1]), window=WINDOW, sequence=sequence)
    assert [entry.sequence for entry in bench.pool.since(0, 9)] == [1, 2, 3]
    (gone,) = bench.pool.drop([transfers[2].txid])
    bench.pool.admit(gone.transfer, all_rich(gone.transfer), window=WINDOW, sequence=3)
    assert [entry.sequence for entry in bench.pool.since(1, 9)] == [2, 3], "once"
    assert [entry.sequence for entry in bench.pool.newest(9, before=3)] == [2, 1]
    assert [entry.sequence for entry in bench.pool.newest(2, before=9)] == [3, 2]
    assert [entry.sequence for entry in bench.pool.entries()] == [1, 2, 3]


class Lookups(dict[bytes, MempoolEntry]):
    """Entries by txid; notes the txids that were looked up."""

    def __init__(self, entries: dict[bytes, MempoolEntry]) -> None:
        super().__init__(entries)
        self.keys_read: list[bytes] = []

    def get(self, key: bytes, default: Any = None) -> Any:
        self.keys_read.append(key)
        return super().get(key, default)


def test_asking_for_what_came_last_looks_at_no_more_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of_senders(500)
    bench.pool.since(0, 1)
    lookups = Lookups(bench.pool._entries)
    monkeypatch.setattr(bench.pool, "_entries", lookups)
    assert [entry.sequence for entry in bench.pool.since(400, 10)] == list(range(401, 411))
    assert [entry.sequence for entry in bench.pool.since(995, 10)] == list(range(996, 1001))
    assert len(lookups.keys_read) == 15


def test_asking_again_does_not_go_past_what_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks take what came first, and it is what came first that peers ask for."""
    bench = bench_of_senders(500)
    bench.pool.since(0, 1)
    bench.pool.drop([entry.transfer.txid for entry in bench.pool.entries()[:450]])
    assert [entry.sequence for entry in bench.pool.since(0, 2)] == [451, 452]
    lookups = Lookups(bench.pool._entries)
    monkeypatch.setattr(bench.pool, "_entries", lookups)
    assert [entry.sequence for entry in bench.pool.since(0, 2)] == [451, 452]
    assert len(lookups.keys_read) == 2


def test_of_a_sender_whose_fees_keep_changing_no_more_is_remembered_than_of_others() -> None:
    """How the first transfer of a line ranks is noted anew with each replacement."""
    bench, fee = Bench(), FEE
    for _ in range(90):
        bench.add("alice", fee=fee)
        fee = fee * 11 // 10 + 1
    assert [[entry.sequence for entry in line] for line in bench.pool.lines()] == [[90]]
    assert len(bench.pool._heads) <= 2 + 64


def test_many_that_leave_a_sender_at_once_are_one_piece_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of_senders(50, age=PAST)
    aligned: list[bytes] = []
    align = bench.pool._align

    def watched(sender: bytes, queue: Any) -> None:
        aligned.append(sender)
        align(sender, queue)

    monkeypatch.setattr(bench.pool, "_align", watched)
    assert len(bench.pool.expire(NOW - PAST + 1, bench.pool.entries())) == 100
    assert len(aligned) == 50


# What counts


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
    assert intersection(HELD, keys) == found


class Many(frozenset[bytes]):
    """A set that is too large to be walked through."""

    def __len__(self) -> int:
        return 400_000

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("the small one is to be walked through")


def test_of_many_keys_only_those_that_may_be_meant_are_looked_at() -> None:
    assert intersection(HELD, Many([b"x", b"b", b"c"])) == [b"c", b"b"]
    assert intersection({}, Many([b"x"])) == []
