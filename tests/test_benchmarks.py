"""The benchmarks run and show what they should; what they find is no matter for a test."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_module

import pytest
from twisted.internet.task import Clock

from benchmarks.figures import Goal, Rounds, Row, load, percentile_99, save, table
from benchmarks.slow_link import Direction, Pipe
from tests.programs import needs

ROOT = Path(__file__).parent.parent
WITHOUT_WRK = (
    *("transfers", "empty-blocks", "headers", "state-root", "memory", "waiting"),
    *("latency", "sync", "watches", "many-watches", "callbacks", "two-merchants", "trustless", "pruning"),
    *("reorganisation", "open-orders"),
)


def row(*, ratio: float = 1.0, figure: float = 1.0, goal: Goal | None = None) -> Row:
    return Row(name="a", figure=figure, unit="ms", baseline=1.0, baseline_is="ms", ratio=ratio, goal=goal)


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("ratio", ">=", 2), "ok"),
        (Goal("ratio", ">=", 2.1), "short"),
        (Goal("ratio", "<=", 2), "ok"),
        (Goal("ratio", "<=", 1.9), "short"),
        (Goal("figure", "<=", 50), "ok"),
        (Goal("figure", "<=", 49), "short"),
        (None, ""),
    ],
)
def test_a_row_says_whether_its_goal_is_met(goal: Goal | None, verdict: str) -> None:
    assert row(ratio=2, figure=50, goal=goal).verdict == verdict


def test_the_ratio_is_the_median_of_the_ratios_of_the_rounds() -> None:
    rounds = Rounds()
    for figure, baseline in ((10, 100), (30, 100), (1, 2)):
        rounds.add(figure, baseline)
    found = rounds.row("a", unit="/s", baseline_is="/s")
    assert (found.figure, found.baseline, found.ratio, found.spread) == (10, 100, 0.3, (0.1, 0.5))


def test_the_table_has_a_line_for_each_row_under_its_headings() -> None:
    headings, *lines = table([row(goal=Goal("ratio", ">=", 0.5)), row(figure=1234.5)]).splitlines()
    assert headings.split() == ["benchmark", "figure", "baseline", "ratio", "least..most", "wanted"]
    assert lines[0].split() == ["a", "1", "ms", "1", "ms", "1.00", ">=", "0.5", "ok"]
    assert lines[1].split() == ["a", "1,234", "ms", "1", "ms", "1.00"]


def test_the_percentile_of_a_single_answer_is_that_answer() -> None:
    assert percentile_99([3.0]) == 3.0
    assert percentile_99([1.0] * 50 + [9.0] * 50) == 9.0


def test_rows_come_back_from_json(tmp_path: Path) -> None:
    rounds = Rounds([1.0], [2.0])
    rows = [row(goal=Goal("figure", "<=", 2)), rounds.row("b", unit="/s", baseline_is="/s")]
    save(rows, tmp_path / "rows")
    assert load(tmp_path / "rows") == rows


@pytest.mark.parametrize(
    ("benchmark", "option"), [("transfers", "--quick"), ("sync", "--round-trip"), ("beside", "--quick")]
)
def test_a_benchmark_explains_its_options(
    benchmark: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [benchmark, "--help"])
    # As in a process of its own, which has not imported it yet.
    monkeypatch.delitem(sys.modules, f"benchmarks.{benchmark}", raising=False)
    with pytest.raises(SystemExit, match=r"^0$"):
        run_module(f"benchmarks.{benchmark}", run_name="__main__")
    assert option in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.socket
def test_every_benchmark_that_needs_no_wrk_shows_its_rows(tmp_path: Path) -> None:
    wanted = [option for name in WITHOUT_WRK for option in ("--only", name)]
    command = [sys.executable, "-m", "benchmarks", "--quick", *wanted, "--json", str(tmp_path / "rows")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    found = {row["name"]: row for row in json.loads((tmp_path / "rows").read_text())}
    assert [line.split("  ")[0] for line in done.stdout.splitlines()[1:]] == list(found)
    assert list(found) == [
        "transfers connected, 2,000 accounts",
        "transfers connected, 2,000 accounts, processor time",
        "empty blocks connected",
        "40 headers of mainnet verified",
        "state root per account, 500 of 1,000 changed",
        "state root per account, 500 of 100,000 changed",
        "state root per account, 2 of 1,000 changed",
        "state root per account, 2 of 100,000 changed",
        "state root per account, 500 of 2,000 look-alikes changed",
        "state root per account, 500 of 20,000 look-alikes changed",
        "state root per account, 500 of 500 pairs of them changed",
        "state root per account, 2 of 2,000 look-alikes changed",
        "state root per account, 2 of 20,000 look-alikes changed",
        "state root per account, 2 of 500 pairs of them changed",
        "memory with 10,000 accounts",
        "start with 2,000 waiting transfers",
        "memory for each of 2,000 waiting transfers",
        "/rpc/status, 99th percentile, 200-transfer blocks",
        "empty blocks from 1 peer",
        "empty blocks from 2 peers",
        "transfers from 1 peer",
        "transfers from 2 peers",
        "/rpc/status, 99th percentile, catching up with transfers",
        "100 of 400 watches paid, one block after the other",
        "100 of 400 watches paid, each block after the events of the previous one",
        "100 of 400 watches paid, during the events of the previous one",
        "creating the events of 100 payments",
        "creating the events of one more confirmation for 100 payments",
        "creating the events of 100 payments, 3,000 watches, 1,000 active",
        "memory of the process, 3,000 watches, 1,000 active",
        "start of the webhooks, 3,000 watches, 1,000 active",
        "30 events to 10 hosts, median, one more never answers",
        "30 events to 10 hosts, median, one more refuses",
        "a block of 60 transfers while events go out",
        "a confirmation beside 128 watches of another merchant",
        "processor time of a block that 128 watches of another merchant follow",
        "svc verify --trustless, 400 blocks",
        "svc verify --trustless, 400 blocks, fetched",
        "longer commit of a full block that deletes two full ones",
        "longest of these commits",
        "in use on disk with 10 blocks whole",
        "the same after 40 further blocks",
        "file after 40 further blocks, pruned",
        "memory for a reorganisation of 3 full blocks",
        "the same, blocks undone and connected",
        "100 payments of a block read from the feed",
        "100 payments of a block as events of `Orders`, 2,000 open",
        "memory of the node, 100 payments of a block and 2,000 open orders",
    ]
    # By how much one commit is longer than another may be below zero where other programs take the processor.
    difference = found.pop("longer commit of a full block that deletes two full ones")
    assert difference["figure"] != 0
    assert all(row["figure"] > 0 for row in found.values())
    assert all(row["baseline"] != 0 for row in (difference, *found.values()))


@pytest.mark.slow
@pytest.mark.socket
@needs("chromium")
def test_the_wallet_page_is_measured_in_a_browser(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.wallet_page", "--quick", "--json", str(tmp_path / "rows")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second, *_ = found = load(tmp_path / "rows")
    assert len(found) == 4
    # The page, the scripts and the questions are three round trips one after the other; later the scripts are there.
    assert first.figure > 1.2
    assert second.figure > 0.6


def test_a_benchmark_that_cannot_run_is_exit_status_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "reads"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "needs wrk: install it" in done.stderr


def test_programs_that_are_not_installed_are_left_out(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.beside", "--quick"]
    done = subprocess.run(command, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "litecoind is left out, for it is not installed (apt-get install --no-install-recommends litecoind)",
        "hsd is left out, for it is not installed (npm install -g hsd)",
    ]
    assert "there is nothing to measure svcd beside: install litecoind or hsd" in done.stderr


class Socket:
    """One end of a connection that a pipe reads from or writes to."""

    def __init__(self) -> None:
        self.written = b""
        self.calls: list[str] = []

    def write(self, data: bytes) -> None:
        self.written += data

    def __getattr__(self, name: str) -> Callable[[], None]:
        return lambda: self.calls.append(name)


def test_a_line_delays_what_passes() -> None:
    clock, near, far = Clock(), Socket(), Socket()
    pipe = Pipe(Direction(clock, 0.05, None), near, far, 0.0)
    pipe.carry(b"abc")
    clock.advance(0.049)
    assert far.written == b""
    clock.advance(0.002)
    assert far.written == b"abc"


def test_connections_share_the_rate_of_a_line() -> None:
    clock, ends = Clock(), (Socket(), Socket())
    direction = Direction(clock, 0.0, 1_000_000.0)
    for end in ends:
        Pipe(direction, Socket(), end, 0.0).carry(bytes(500_000))
    clock.pump([0.01] * 50)
    assert sum(len(end.written) for end in ends) == pytest.approx(500_000, abs=20_000)
    clock.pump([0.01] * 51)
    assert [len(end.written) for end in ends] == [500_000] * 2


def test_a_line_opens_a_round_trip_later_and_closes_when_everything_has_passed() -> None:
    clock, far = Clock(), Socket()
    pipe = Pipe(Direction(clock, 0.05, None), Socket(), None, 0.1)
    pipe.carry(b"abc")
    pipe.end()
    pipe.target = far
    pipe.run()
    clock.advance(0.099)
    assert (far.written, far.calls) == (b"", [])
    clock.advance(0.002)
    assert (far.written, far.calls) == (b"abc", ["loseConnection"])


def test_a_sender_that_is_faster_than_the_line_waits() -> None:
    clock, near, far = Clock(), Socket(), Socket()
    pipe = Pipe(Direction(clock, 0.0, 1_000_000.0), near, far, 0.0)
    pipe.carry(bytes(5 * 1024 * 1024))
    assert near.calls == ["pauseProducing"]
    clock.pump([0.1] * 53)
    assert near.calls == ["pauseProducing", "resumeProducing"]
    assert len(far.written) == 5 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.socket
@pytest.mark.parametrize("option", ["--round-trip=20", "--mbits=20", "--empty-blocks=300"])
def test_synchronisation_is_measured_behind_a_line(tmp_path: Path, option: str) -> None:
    command = [sys.executable, "-m", "benchmarks.sync", "--quick", option, "--json", str(tmp_path / "rows")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = load(tmp_path / "rows")
    assert found.ratio


@pytest.mark.slow
def test_the_disk_of_a_pruned_node_is_measured(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.pruning",
        "--quick",
        "--behind=10000",
        "--json",
        str(tmp_path / "rows"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (found,) = load(tmp_path / "rows")
    assert found.verdict == "ok"


@pytest.mark.slow
@pytest.mark.socket
def test_a_start_from_a_snapshot_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.snapshot_start", "--quick", "--json", str(tmp_path / "rows")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = {row.name: row for row in load(tmp_path / "rows")}
    assert list(found) == [
        "a new node from a snapshot, 3,000 blocks, 36,000 transfers, 25 in a block",
        "a new node from a snapshot, 3,000 blocks, 36,000 transfers, 25 in a block, processor time",
        "the same from three peers, of which one sends false chunks and is banned",
        "the same from three peers, of which one sends false chunks and is banned, processor time",
        "svc verify --trustless at the new node",
        "svc balance --trustless at the new node",
        "file with the newest 1,500 blocks whole, after 40 further ones",
        "in use with the newest 1,500 blocks whole, after 40 further ones",
    ]
    assert all(row.figure > 0 for row in found.values())
    assert found["file with the newest 1,500 blocks whole, after 40 further ones"].verdict == "ok"
