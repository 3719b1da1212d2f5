"""Sweeps of block rewards: what is due, what it costs, and that none follows another too early (docs/block-key.md)."""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.difficulty import multiplier
from svcd.chain.errors import RuleViolation
from svcd.chain.params import MAINNET
from svcd.chain.transaction import Transfer
from svcd.node.mempool import MempoolEntry, Removals
from svcd.node.node_context import NodeContext
from svcd.node.sweeper import FEE_SHARE, Held, Sweep, Sweeper, SweepSettings, holding_loss, plan_sweep
from svcd.store.database import DiskError
from svcd.store.mempool_journal import FILE
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Node, Setting, open_node
from tests.support import has_result, result_of

PARAMS = evolve(TEST_PARAMS, holding_minimum=100 * COIN, account_minimum=1_000_000, halving_blocks=10**6)
ABOVE = 50 * COIN
FEE = PARAMS.minimum_fee
OWN = key_of("own").hash
SHALLOW = 3
"""The depth of the tests with real blocks."""

PAGE = (Path(__file__).parents[2] / "docs" / "block-key.md").read_text("utf-8")
COSTS = r"^\| (?:(\d+) )?days? \| ([0-9.]+) \| ([0-9.]+) % \|$"

units = st.integers(min_value=0, max_value=10**14)


# What is due


def planned(now: Account, deep: Account, *, above: int = ABOVE, fee: int = FEE) -> Sweep | Held:
    return plan_sweep(PARAMS, above=above, now=now, deep=deep, fee=fee)


def rich(coins: float, nonce: int = 0) -> Account:
    return Account(int(coins * COIN), nonce, 1)


def test_the_balance_is_swept_down_to_the_holding_minimum() -> None:
    assert planned(rich(190, 7), rich(170, 7)) == Sweep(70 * COIN - FEE, FEE, 7)


@pytest.mark.parametrize(
    ("now", "deep", "fee", "held"),
    [
        (rich(150), rich(150), FEE, Held.SMALL),
        (Account(150 * COIN + 1), Account(150 * COIN + 1), FEE, None),
        (rich(99), rich(99), FEE, Held.SMALL),
        (Account(), Account(), FEE, Held.SMALL),
        (rich(190), rich(150), FEE, Held.NOT_DEEP),
        (rich(190, 1), rich(190, 0), FEE, Held.NOT_DEEP),
        (rich(190), Account(), FEE, Held.NOT_DEEP),
        (rich(160), rich(160), 60 * COIN // FEE_SHARE, None),
        (rich(160), rich(160), 60 * COIN // FEE_SHARE + 1, Held.FEE),
    ],
)
def test_a_sweep_is_due_at_its_amount_and_depth(now: Account, deep: Account, fee: int, held: Held | None) -> None:
    found = planned(now, deep, fee=fee)
    assert found is held if held else isinstance(found, Sweep)


@given(balance=units, before=units, nonce=st.integers(0, 1), above=units, fee=units)
def test_a_sweep_leaves_the_holding_minimum(balance: int, before: int, nonce: int, above: int, fee: int) -> None:
    """Also if a reorganisation takes away everything that the key got since."""
    deep = Account(min(balance, before))
    found = planned(Account(balance, nonce), deep, above=above, fee=fee)
    if isinstance(found, Sweep):
        assert deep.balance - found.amount - found.fee == PARAMS.holding_minimum
        assert found.amount + found.fee > above
        assert found.fee * FEE_SHARE <= found.amount + found.fee
        assert nonce == deep.nonce == found.nonce


# What it costs


def test_the_documented_costs() -> None:
    """docs/block-key.md has them, in days of rewards at the lowest multiplier."""
    day = 8640
    costs = {days: holding_loss(MAINNET, days * day) / 10_000 / day for days in (1, 7, 30, 90, 365)}
    assert {days: round(cost, 2) for days, cost in costs.items()} == {1: 0.1, 7: 0.58, 30: 1.96, 90: 3.76, 365: 3.76}


@pytest.mark.parametrize(("days", "average", "fewer"), re.findall(COSTS, PAGE, re.MULTILINE))
def test_the_documented_losses(days: str, average: str, fewer: str) -> None:
    """The table of docs/block-key.md "Sweeping the rewards"."""
    length = int(days or 1) * 86_400 // MAINNET.slot_seconds
    earned = sum(multiplier(MAINNET, Account(held_since=0), slot) for slot in range(length)) / length / 10_000
    assert (f"{earned:.3f}", f"{100 * (1 - earned / 1.1):.1f}") == (average, fewer)


def test_there_are_documented_losses() -> None:
    assert [row[0] for row in re.findall(COSTS, PAGE, re.MULTILINE)] == ["", "7", "30", "90", "180", "365"]


@given(age=st.integers(0, 1_000))
def test_the_cost_is_what_the_schedule_says(age: int) -> None:
    """Slot by slot: the difference between a holding that goes on and one that begins again."""
    end = PARAMS.multiplier_schedule[-1][0]
    going_on, begun_again = Account(held_since=0), Account(held_since=age)
    slots = range(age, age + end)
    lost = sum(multiplier(PARAMS, going_on, slot) - multiplier(PARAMS, begun_again, slot) for slot in slots)
    assert holding_loss(PARAMS, age) == lost


# With a chain


class Bench:
    """A node whose key is "own", with its sweeper; a block is made every two slots."""

    def __init__(self, folder: Path, params: Any = PARAMS) -> None:
        self.folder = folder
        self.builder = ChainBuilder(params)
        self.clock = Clock()
        self.clock.advance(params.slot_time(10) / 1000)
        self.may = True
        self.signed: dict[bytes, Transfer] = {}
        """Every sweep that ever was in the mempool, by txid."""
        self.blocks: list[Block] = []
        """The canonical chain from height 1 on."""
        self.open()

    def open(self) -> None:
        params = self.builder.params
        self.node: Node = open_node(self.folder, Setting(params=params, clock=self.clock))
        result_of(Deferred.fromCoroutine(self.node.transaction_pool.load()))
        settings = SweepSettings(
            seed=key_of("own").seed,
            pay_to=self.builder.address("vault"),
            above=ABOVE,
            may_send=lambda: self.may,
            depth=SHALLOW,
        )
        self.node.transaction_pool.subscribe(self)
        self.sweeper = Sweeper(cast(NodeContext, self.node), settings)
        self.sweeper.startService()
        self.node.settle()

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        self.signed |= {e.transfer.txid: e.transfer for e in added if e.transfer.sender == OWN}

    def close(self) -> None:
        result_of(self.sweeper.stopService())
        self.node.settle()
        self.node.close()

    def restart(self) -> None:
        self.close()
        self.open()

    @property
    def tip(self) -> Block | None:
        return self.blocks[-1] if self.blocks else None

    def waiting(self) -> list[Transfer]:
        return [entry.transfer for entry in self.node.mempool.sent_by(OWN)]

    def own(self) -> Account:
        return self.builder.account_after(self.tip, "own")

    def mine(self, count: int = 1, producer: str = "own", *, include: bool = True) -> None:
        for _ in range(count):
            self.extend(self.tip, [(producer, self.waiting() if include else [])])

    def extend(self, parent: Block | None, made: Sequence[tuple[str, Sequence[Transfer]]], *, later: int = 0) -> None:
        """Put blocks behind ``parent``, which may be below the tip; transfers that are not valid there are left out.

        The first of them is ``later`` slots later than usual.
        """
        branch: list[Block] = []
        for producer, transfers in made:
            behind = branch[-1] if branch else parent
            slot = (behind.header.slot if behind else 0) + PARAMS.slots_per_block + (0 if branch else later)
            kept: list[Transfer] = []
            for transfer in transfers:
                try:
                    self.builder.block(behind, slot=slot, producer=producer, transfers=[*kept, transfer])
                except RuleViolation:
                    continue
                kept.append(transfer)
            branch.append(self.builder.block(behind, slot=slot, producer=producer, transfers=kept))
        now = PARAMS.slot_time(branch[-1].header.slot) / 1000
        self.clock.advance(max(now - self.clock.seconds(), 0))
        self.node.submit(*branch)
        if self.node.tip == branch[-1].header.hash:
            self.blocks[parent.header.height if parent else 0 :] = branch
        self.node.settle()

    def wait_a_day(self) -> None:
        """Until every transfer that waits has expired."""
        self.extend(self.tip, [("p", [])], later=PARAMS.transaction_past_seconds + 1)
        self.node.transaction_pool.expire()
        self.node.settle()

    def reorganise(self, depth: int, made: Sequence[tuple[str, Sequence[Transfer]]]) -> None:
        below = len(self.blocks) - depth
        self.extend(self.blocks[below - 1] if below else None, made)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def with_a_sweep(bench: Bench) -> Transfer:
    """Earn until a sweep waits; it is left out of blocks."""
    while not bench.waiting():
        assert len(bench.blocks) < 30
        bench.mine(include=False)
    return bench.waiting()[0]


def test_a_node_earns_and_sweeps(bench: Bench) -> None:
    bench.mine(7)
    assert bench.sweeper.held is Held.SMALL
    bench.mine(3)
    assert (bench.own().balance, bench.sweeper.held) == (200 * COIN, Held.NOT_DEEP)
    bench.mine()
    assert (bench.sweeper.held, bench.sweeper.sweeps) == (None, 1)
    (sweep,) = bench.waiting()
    assert (sweep.recipient, sweep.amount, sweep.fee) == (key_of("vault").hash, 60 * COIN - FEE, FEE)
    assert bench.sweeper.record() == {
        "payTo": bench.builder.address("vault"),
        "unit": "SVC",
        "sweepAbove": "50",
        "surplus": "120",
        "waitsFor": None,
        "transfers": 1,
        "lastTxid": sweep.txid.hex(),
    }
    bench.mine()
    assert bench.builder.account_after(bench.tip, "vault").balance == 60 * COIN - FEE
    assert (bench.own().nonce, bench.waiting()) == (1, [])
    assert bench.sweeper.held is Held.NOT_DEEP
    bench.mine(SHALLOW - 1)
    assert bench.sweeper.sweeps == 1
    bench.mine()
    assert bench.sweeper.sweeps == 2
    assert bench.sweeper.swept == sum(each.amount for each in bench.signed.values())


def test_a_waiting_sweep_is_not_followed_by_another(bench: Bench) -> None:
    sweep = with_a_sweep(bench)
    bench.mine(2 * SHALLOW, include=False)
    assert (bench.waiting(), bench.sweeper.held) == ([sweep], Held.WAITING)


def test_a_sweep_survives_a_restart(bench: Bench) -> None:
    sweep = with_a_sweep(bench)
    bench.restart()
    bench.mine(include=False)
    assert [each.wire for each in bench.waiting()] == [sweep.wire]
    assert (list(bench.signed), bench.sweeper.held) == ([sweep.txid], Held.WAITING)


def test_a_sweep_that_a_reorganisation_undoes_is_not_signed_again(bench: Bench) -> None:
    sweep = with_a_sweep(bench)
    bench.mine(2)
    assert bench.own().nonce == 1
    bench.reorganise(2, [("p", [])] * 3)
    assert bench.own().nonce == 0
    bench.mine(SHALLOW, "p", include=False)
    assert ([each.txid for each in bench.waiting()], list(bench.signed)) == ([sweep.txid], [sweep.txid])


def test_a_sweep_that_the_node_has_lost_gets_the_same_nonce_again(bench: Bench) -> None:
    """The network may still have it: of two transfers with one nonce only one can be in the chain."""
    sweep = with_a_sweep(bench)
    bench.node.transaction_pool.drop([sweep.txid])
    bench.node.settle()
    (again,) = bench.waiting()
    assert (again.nonce, bench.sweeper.sweeps) == (sweep.nonce, 2)


def test_an_expired_sweep_is_signed_again(bench: Bench) -> None:
    sweep = with_a_sweep(bench)
    bench.wait_a_day()
    (again,) = bench.waiting()
    assert again.txid != sweep.txid
    assert again.nonce == sweep.nonce


def test_no_sweep_while_the_node_is_not_in_step(bench: Bench) -> None:
    bench.may = False
    bench.mine(14)
    assert (bench.signed, bench.sweeper.held) == ({}, Held.NOT_SYNCED)
    bench.may = True
    bench.mine(include=False)
    assert len(bench.waiting()) == 1


def test_a_transfer_that_another_program_signs_is_left_in_peace(bench: Bench) -> None:
    """It waits, and the sweep would replace it by a higher fee: the sweep waits for it, and until it is deep."""
    bench.mine(5)
    other = bench.builder.transfer("own", "vault", COIN, nonce=0, timestamp=int(bench.clock.seconds() * 1000))
    assert bench.node.send(other) == "accepted"
    bench.mine(9, include=False)
    assert bench.waiting() == [other]
    assert bench.sweeper.held is Held.WAITING
    bench.mine()
    assert bench.sweeper.held is Held.NOT_DEEP


def test_a_transfer_that_arrives_in_the_same_turn_is_left_in_peace(bench: Bench) -> None:
    bench.may = False
    bench.mine(14)
    bench.may = True
    other = bench.builder.transfer("own", "vault", COIN, nonce=0, timestamp=int(bench.clock.seconds() * 1000))
    result = bench.node.transaction_pool.submit(other)
    bench.sweeper.chain_changed(bench.node.witness.changes[-1])
    bench.node.settle()
    assert result_of(result) == "accepted"
    assert bench.waiting() == [other]


def test_a_fee_above_the_bound_holds_the_sweep_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.node.fees.Fees.suggested", lambda _: COIN)
    bench.mine(14)
    assert (bench.signed, bench.sweeper.held) == ({}, Held.FEE)


def test_a_refused_sweep_is_logged_and_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        monkeypatch.setattr("svcd.node.sweeper.milliseconds", lambda _: 1)
        bench.mine(11)
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert bench.sweeper.held is Held.REFUSED
    (event,) = [each for each in events if "was refused" in (each.get("log_format") or "")]
    assert "timestamp" in event["why"]
    assert formatEvent(event).startswith("the sweep of 59.9999 SVC to ")
    monkeypatch.undo()
    bench.mine(include=False)
    assert len(bench.waiting()) == 1


def test_a_disk_that_refuses_the_sweep_is_tried_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise DiskError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(bench.node.journal, "write", full)
        bench.mine(11)
    assert (bench.sweeper.held, bench.waiting(), bench.sweeper.sweeps) == (Held.REFUSED, [], 0)
    bench.mine(include=False)
    assert len(bench.waiting()) == 1


def test_the_log_names_the_sweep_and_its_cost(tmp_path: Path) -> None:
    bench = Bench(tmp_path, evolve(PARAMS, unit="Token"))
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        sweep = with_a_sweep(bench)
    finally:
        globalLogPublisher.removeObserver(events.append)
    (event,) = [each for each in events if "sweeping" in (each.get("log_format") or "")]
    assert (event["amount"], event["txid"], event["after"]) == ("59.9999", sweep.txid.hex(), 10_000)
    assert event["before"] == multiplier(PARAMS, bench.own(), bench.tip.header.slot if bench.tip else 0)
    told = formatEvent(event)
    assert told.startswith("sweeping 59.9999 Token from ")
    assert ", for a fee of 0.0001 Token; the holding" in told
    assert bench.sweeper.record()["unit"] == "Token"
    bench.close()


def test_a_stopped_sweeper_sends_nothing(bench: Bench) -> None:
    result_of(bench.sweeper.stopService())
    bench.mine(20, include=False)
    assert bench.signed == {}


def test_a_stop_that_is_cut_off_cancels_no_sweep_and_logs_no_error(bench: Bench) -> None:
    """The fixture that looks for logged errors is a part of the test."""
    bench.may = False
    bench.mine(14)
    bench.may = True
    bench.sweeper.chain_changed(bench.node.witness.changes[-1])
    stopped = bench.sweeper.stopService()
    assert not has_result(stopped)
    stopped.cancel()
    with pytest.raises(CancelledError):
        result_of(stopped)
    bench.node.settle()
    assert has_result(bench.sweeper.stopService())


def test_the_account_of_every_earlier_height_is_read(bench: Bench) -> None:
    """At every height, of accounts that exist, that did not yet, and that never will."""
    bench.mine(14)
    bench.mine(4, "p")
    reader = bench.node.store
    for name in ("own", "vault", "p", "alice", "nobody"):
        for height in range(len(bench.blocks) + 1):
            then = bench.builder.accounts_after(bench.blocks[height - 1] if height else None).get(key_of(name).hash)
            assert reader.account_after(key_of(name).hash, height) == then, (name, height)


class Sweeping(RuleBasedStateMachine):
    """Blocks, reorganisations of up to SHALLOW blocks, restarts and losses of the mempool, in any order.

    The rest of the network has kept every sweep, and puts any of them into any block that may have it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.closing = ExitStack()
        self.bench = Bench(Path(mkdtemp()))
        self.bench.mine(10)

    def teardown(self) -> None:
        self.bench.close()

    producers = st.sampled_from(["own", "own", "p"])

    @rule(count=st.integers(1, 4), producer=producers, include=st.booleans())
    def mine(self, count: int, producer: str, include: bool) -> None:
        self.bench.mine(count, producer, include=include)

    @rule(made=st.lists(st.tuples(producers, st.booleans()), min_size=2, max_size=SHALLOW + 1), data=st.data())
    def reorganise(self, made: list[tuple[str, bool]], data: st.DataObject) -> None:
        known = sorted(self.bench.signed.values(), key=lambda each: each.txid)
        some = data.draw(st.permutations(known)) if known else []
        self.bench.reorganise(len(made) - 1, [(producer, some if has else []) for producer, has in made])

    @rule()
    def restart(self) -> None:
        self.bench.restart()

    @rule()
    def restart_without_the_mempool(self) -> None:
        self.bench.close()
        for path in self.bench.folder.glob(f"{FILE}*"):
            path.unlink()
        self.bench.open()

    @rule()
    def forget(self) -> None:
        self.bench.node.transaction_pool.drop([each.txid for each in self.bench.waiting()])
        self.bench.node.settle()

    @rule()
    def a_day_passes(self) -> None:
        self.bench.wait_a_day()

    @invariant()
    def the_holding_minimum_is_kept(self) -> None:
        for block in self.bench.blocks:
            account = self.bench.builder.account_after(block, "own")
            assert account.nonce == 0 or account.balance >= PARAMS.holding_minimum

    @invariant()
    def only_one_is_under_way(self) -> None:
        """Of the sweeps that the chain could still include, all have one nonce."""
        nonce = self.bench.own().nonce
        assert len({each.nonce for each in self.bench.signed.values() if each.nonce >= nonce}) <= 1


TestSweeping = pytest.mark.slow(Sweeping.TestCase)
