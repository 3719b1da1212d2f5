"""Whatever happens to it, the mempool does what the plainest reading of the policy does."""

from collections import ChainMap
from functools import cache
from typing import Any

from attrs import evolve
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node.mempool import Mempool, RemovalReason, TimestampWindow
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.naive_pool import NaivePool, Refused

PARAMS = evolve(TEST_PARAMS, account_minimum=1_000)
PEOPLE = "alice bob carol dave".split()
HASHES = [key_of(name).hash for name in PEOPLE]
START = TEST_PARAMS.genesis_time + 10**9
DAY = 1000 * TEST_PARAMS.transaction_past_seconds
SENDERS = st.sampled_from(PEOPLE)
FEES = [10_000, 10_100, 11_000, 12_100, 20_000, 30_000]
AGES = [0, DAY // 2, DAY, DAY + 1, -600_000, -600_001]


@cache
def transfer(
    sender: str, recipient: str, amount: int, nonce: int, fee: int, timestamp: int, reference: str | None
) -> Transfer:
    return ChainBuilder(PARAMS).transfer(
        sender, recipient, amount, nonce=nonce, fee=fee, timestamp=timestamp, reference=reference
    )


SIZE = len(transfer("alice", "erin", 1, 0, 10_000, START, None).wire)


class Pool(RuleBasedStateMachine):
    """The real pool and the naive one: room for six transfers, or fewer long ones, and for one behind a gap."""

    def __init__(self) -> None:
        super().__init__()
        limits: dict[str, Any] = {"max_transactions": 6, "max_bytes": 5 * SIZE + SIZE // 2 + 100}
        self.pool = Mempool(PARAMS, **limits)
        self.accounts = {key: Account(balance=500_000) for key in HASHES}
        # Erin can receive any amount, and frank, who has no account, only enough for one.
        self.others = {key_of("erin").hash: Account(1_000), key_of("frank").hash: Account()}
        self.model = NaivePool(**limits, account_minimum=1_000, accounts=ChainMap(self.accounts, self.others))
        self.now = START
        self.sequence = 0

    @rule(
        sender=SENDERS,
        recipient=st.sampled_from(["erin", "erin", "frank", "alice"]),
        ahead=st.sampled_from([0, 0, 0, 1, 1, 2, 3, 15, 16, -1]),
        fee=st.sampled_from(FEES),
        amount=st.sampled_from([1, 999, 1_000, 100_000, 400_000, 488_999, 489_000, 489_001]),
        age=st.sampled_from([0] * 6 + AGES),
        reference=st.sampled_from([None, "x" * 64]),
    )
    def admit(
        self, sender: str, recipient: str, ahead: int, fee: int, amount: int, age: int, reference: str | None
    ) -> None:
        nonce = max(self.accounts[key_of(sender).hash].nonce + ahead, 0)
        incoming = transfer(sender, recipient, amount, nonce, fee, self.now - age, reference)
        if incoming.txid in self.pool:
            return
        self.sequence += 1
        arrival: dict[str, Any] = {
            "window": TimestampWindow(self.now - DAY, self.now + 600_000),
            "sequence": self.sequence,
        }
        found: list[bytes] | Refusal
        expected: list[bytes] | Refusal
        try:
            removed = self.pool.admit(incoming, self.accounts | self.others, **arrival).removed
            found = [entry.transfer.txid for entry in removed]
            for entry, reason in removed.items():
                replaced = (entry.transfer.sender, entry.transfer.nonce) == (incoming.sender, incoming.nonce)
                assert reason is (RemovalReason.REPLACED if replaced else RemovalReason.SIZE_LIMIT)
        except RuleViolation as refusal:
            found = refusal.code
        try:
            expected = self.model.admit(incoming, **arrival)
        except Refused as refused:
            expected = refused.code
        assert found == expected

    @precondition(lambda self: list(self.pool.lines()))
    @rule(counts=st.lists(st.integers(0, 3), min_size=4, max_size=4))
    def block(self, counts: list[int]) -> None:
        """Some of the lines go into a block."""
        included = [entry for line, count in zip(self.pool.lines(), counts, strict=False) for entry in line[:count]]
        for entry in included:
            account = self.accounts[entry.transfer.sender]
            to_itself = entry.transfer.recipient == entry.transfer.sender
            spent = entry.transfer.fee + (0 if to_itself else entry.transfer.amount)
            self.accounts[entry.transfer.sender] = Account(account.balance - spent, account.nonce + 1)
        changed = {entry.transfer.sender: self.accounts[entry.transfer.sender] for entry in included}
        self.settle([entry.transfer.txid for entry in included], changed)

    @rule(
        sender=SENDERS,
        nonces=st.sampled_from([-20, -3, -1, 0, 1, 2, 20]),
        balance=st.sampled_from([0, 10_000, 10_001, 120_000, 500_000, 10**9]),
    )
    def blocks_of_others(self, sender: str, nonces: int, balance: int) -> None:
        """Blocks come, or are undone, that hold what was never here."""
        key = key_of(sender).hash
        self.accounts[key] = Account(balance, max(self.accounts[key].nonce + nonces, 0))
        self.settle([], {key: self.accounts[key]})

    def settle(self, txids: list[bytes], accounts: dict[bytes, Account]) -> None:
        left = self.pool.follow_chain(txids, accounts, reorganised=True)
        for entry, reason in left.items():
            used = entry.transfer.nonce < accounts[entry.transfer.sender].nonce
            uncovered = RemovalReason.CONFLICT if used else RemovalReason.REORG
            assert reason is (RemovalReason.BLOCK if entry.transfer.txid in txids else uncovered)
        assert {entry.transfer.txid for entry in left} == self.model.settle(txids, accounts)

    @rule(hours=st.sampled_from([0, 1, 12, 24]))
    def expire(self, hours: int) -> None:
        self.now += hours * 3_600_000
        left = self.pool.expire(self.now - DAY, self.pool.entries())
        assert {entry.transfer.txid for entry in left} == self.model.expire(self.now - DAY)

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        txids = [entry.transfer.txid for entry in self.pool.entries()]
        chosen = data.draw(st.lists(st.sampled_from([*txids, bytes(32)]), max_size=3))
        assert {entry.transfer.txid for entry in self.pool.drop(chosen)} == self.model.drop(chosen)

    @invariant()
    def same_transfers(self) -> None:
        expected = [(entry.transfer.txid, entry.sequence) for entry in self.model.waiting]
        assert [(entry.transfer.txid, entry.sequence) for entry in self.pool.entries()] == expected
        assert (len(self.pool), self.pool.size) == (len(expected), self.model.size)
        assert all(self.pool.get(txid) is not None and txid in self.pool for txid, _ in expected)

    @invariant()
    def same_lines(self) -> None:
        lines = [self.model.line(key, account) for key, account in self.accounts.items()]
        found = list(self.pool.lines())
        assert sorted([entry.transfer.txid for entry in line] for line in found) == sorted(
            [entry.transfer.txid for entry in line] for line in lines if line
        )
        assert found == sorted(found, key=lambda line: (-line[0].rate, line[0].sequence)), "the best comes first"
        for (key, account), line in zip(self.accounts.items(), lines, strict=True):
            assert self.pool.pending_nonce(key, account) == account.nonce + len(line)

    @invariant()
    def in_line_is_what_a_block_could_include(self) -> None:
        found = {entry.transfer.txid for line in self.pool.lines() for entry in line}
        assert {entry.transfer.txid for entry in self.pool.entries() if self.pool.is_in_line(entry)} == found

    @invariant()
    def same_newest(self) -> None:
        for sequence in range(max(self.sequence - 8, 0), self.sequence + 1):
            later = [entry.transfer.txid for entry in self.model.waiting if entry.sequence > sequence]
            assert [entry.transfer.txid for entry in self.pool.since(sequence, 3)] == later[:3]

    @invariant()
    def within_bounds(self) -> None:
        assert len(self.pool) <= 6
        assert self.pool.size <= 5 * SIZE + SIZE // 2 + 100


Pool.TestCase.settings = settings(stateful_step_count=40)
test_the_pool_is_the_naive_one: Any = Pool.TestCase
