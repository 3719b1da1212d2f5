"""How far catching up has come: reckoned while it runs, and logged now and then."""

from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.chain.params import DEVNET
from svcd.chain.transition import genesis_point
from svcd.node.changes import AppliedBlock, BlockStage, ChainChange, CommittedBlock
from svcd.p2p.progress import WINDOW_SECONDS, SyncProgress, SyncStage, SyncStatus


@pytest.fixture
def said() -> Iterator[list[LogEvent]]:
    """What it writes to the log."""
    with capturedLogs() as events:
        yield events


@pytest.fixture
def clock() -> Clock:
    """A clock that has run for a while."""
    clock = Clock()
    clock.advance(100.0)
    return clock


@pytest.fixture
def progress(clock: Clock) -> SyncProgress:
    return SyncProgress(clock)


def present(progress: SyncProgress) -> SyncStatus:
    """The snapshot of a node that is catching up."""
    snapshot = progress.snapshot()
    assert snapshot is not None
    return snapshot


def change(*transfers: int) -> ChainChange:
    """Blocks with so many transfers each."""
    point = genesis_point(DEVNET)
    applied = tuple(AppliedBlock(point, count, (b"",) * count) for count in transfers)
    return ChainChange(point, (), applied, {}, newest=CommittedBlock(point.hash, b"", b"", b""))


def test_nothing_is_known_before_and_after(progress: SyncProgress) -> None:
    assert progress.snapshot() is None
    progress.begin(10, lambda: 110)
    assert progress.snapshot() is not None
    progress.end()
    assert progress.snapshot() is None


def test_rate_and_time_left(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(10, lambda: 110)
    before = present(progress)
    assert (before.height, before.target, before.blocks_per_second, before.seconds_left) == (10, 110, 0.0, None)
    clock.advance(4)
    progress.connected(20, 30)
    soon = present(progress)
    assert (soon.height, soon.blocks_per_second, soon.seconds_left) == (30, 5.0, 16.0)
    clock.advance(4)
    progress.connected(60, 90)
    later = present(progress)
    assert (later.height, later.blocks_per_second, later.seconds_left) == (90, 10.0, 2.0)


def test_rates_are_those_of_the_last_minute(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(0, lambda: 10_000)
    progress.connected(6_000, 6_000)
    for height in range(6_001, 6_001 + 2 * WINDOW_SECONDS):
        clock.advance(1)
        progress.connected(1, height)
    assert present(progress).blocks_per_second == 1.0


def test_every_time_it_begins_anew(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(0, lambda: 100)
    progress.sent_by("http://a")
    clock.advance(10)
    progress.connected(100, 100)
    progress.end()
    clock.advance(10)
    progress.begin(100, lambda: 200)
    clock.advance(10)
    progress.connected(10, 110)
    now = present(progress)
    assert (now.blocks_per_second, now.seconds_left, now.peers_used) == (1.0, 90.0, 0)
    assert progress.blocks == 110


def test_a_tip_beyond_the_target_is_the_target(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(0, lambda: 10)
    clock.advance(1)
    progress.connected(12, 12)
    assert (present(progress).target, present(progress).seconds_left) == (12, 0.0)


def test_transfers_are_counted_while_it_catches_up(progress: SyncProgress, clock: Clock) -> None:
    progress.chain_changed(change(7))
    progress.begin(0, lambda: 10)
    clock.advance(2)
    progress.chain_changed(change(3, 5))
    assert present(progress).transactions_per_second == 4.0
    progress.end()
    progress.chain_changed(change(9))
    assert progress.transactions == 8


def test_peers_are_counted_once(progress: SyncProgress) -> None:
    progress.begin(0, lambda: 10)
    for endpoint in ("http://a", "http://b", "http://a"):
        progress.sent_by(endpoint)
    assert present(progress).peers_used == 2


def test_the_oldest_batch_is_waited_for(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(0, lambda: 100)
    clock.advance(1)  # nothing is here yet
    progress.enters(1, BlockStage.PARSE)
    clock.advance(2)
    progress.enters(1, BlockStage.VERIFY)
    progress.enters(2, BlockStage.PARSE)
    clock.advance(4)
    progress.enters(2, BlockStage.VERIFY)
    progress.enters(1, BlockStage.CONNECT)
    clock.advance(8)
    progress.leaves(1)
    clock.advance(16)  # the second one is verified
    progress.leaves(2)
    clock.advance(32)
    assert progress.waited() == {SyncStage.FETCH: 33, SyncStage.PARSE: 2, SyncStage.VERIFY: 20, SyncStage.CONNECT: 8}
    assert present(progress).slowest_stage is SyncStage.FETCH


def test_the_slowest_stage_is_that_of_the_last_minute(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(0, lambda: 100)
    for _ in range(5):
        clock.advance(20)
        progress.waited()
    progress.enters(1, BlockStage.CONNECT)
    assert present(progress).slowest_stage is SyncStage.FETCH
    for _ in range(40):
        clock.advance(1)
        progress.waited()
    assert present(progress).slowest_stage is SyncStage.CONNECT
    assert progress.waited()[SyncStage.FETCH] == 100


def test_nobody_waits_while_nothing_is_to_be_caught_up_with(progress: SyncProgress, clock: Clock) -> None:
    clock.advance(10)
    progress.begin(0, lambda: 1)
    progress.end()
    clock.advance(10)
    progress.begin(0, lambda: 1)
    clock.advance(1)
    progress.end()
    clock.advance(10)
    assert progress.waited() == {SyncStage.FETCH: 1, SyncStage.PARSE: 0, SyncStage.VERIFY: 0, SyncStage.CONNECT: 0}


def test_a_terminal_shows_rate_and_time_left_in_80_columns(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(1_000_000, lambda: 9_000_000)
    clock.advance(3)
    progress.connected(10_000, 1_010_000)
    done, words = present(progress).bar
    assert round(done, 3) == 0.112
    assert words == "1010000 of 9000000 blocks, 3333.3/s, 40 min left"
    assert len(words) < 80 - len("[##------------------]  11% ")


def test_the_record_for_the_operator(progress: SyncProgress, clock: Clock) -> None:
    progress.begin(10, lambda: 110)
    assert present(progress).record()["secondsLeft"] is None
    progress.sent_by("http://a")
    clock.advance(3)
    progress.chain_changed(change(1))
    progress.connected(20, 30)
    assert present(progress).record() == {
        "height": "30",
        "target": "110",
        "blocksPerSecond": 6.7,
        "transactionsPerSecond": 0.3,
        "slowestStage": "fetch",
        "secondsLeft": 12,
        "peersUsed": 1,
    }


def test_it_says_so_every_ten_seconds(progress: SyncProgress, clock: Clock, said: list[LogEvent]) -> None:
    progress.begin(0, lambda: 1_000)
    for height in range(1, 211):
        clock.advance(0.1)
        progress.chain_changed(change(2))
        progress.connected(1, height)
    assert len(said) == 2
    assert formatEvent(said[0]) == (
        f"catching up: block {said[0]['height']} of 1000, 90 s left; 10.0 blocks/s, 20.0 transfers/s; "
        "most of the time waits for blocks to arrive"
    )
    assert said[0]["_on_status_line"]


def test_it_is_caught_up_with_a_height(progress: SyncProgress) -> None:
    assert progress.target == 0
    progress.begin(0, lambda: 7)
    assert progress.target == 7
    progress.end()
    assert progress.target == 0


@pytest.mark.parametrize(("seconds", "lines"), [(0.9, []), (1.0, ["catching up ended at block 7"])])
def test_the_end_is_logged_if_it_took_a_second(
    progress: SyncProgress, clock: Clock, said: list[LogEvent], seconds: float, lines: list[str]
) -> None:
    progress.begin(0, lambda: 7)
    progress.connected(7, 7)
    said.clear()
    clock.advance(seconds)
    for _ in range(2):
        progress.end()
    assert [formatEvent(event) for event in said] == lines


def test_it_says_nothing_of_blocks_that_come_by_themselves(progress: SyncProgress, said: list[LogEvent]) -> None:
    progress.connected(1, 1)
    assert said == []
    assert progress.blocks == 0
