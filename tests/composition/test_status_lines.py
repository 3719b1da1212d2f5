"""What a node says by itself: its start, its heartbeat, and the status line of a terminal."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from attrs import define, field
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.chain.params import DEVNET
from svcd.chain.transition import genesis_point
from svcd.composition.services import own_origin, page_url
from svcd.composition.status_lines import BlockProduction, Heartbeat, StartLines, StatusLine, has_heartbeat
from svcd.config.schema import Config
from svcd.node.news import News
from svcd.node.work_rate import WorkRate
from svcd.p2p.progress import SyncStage, SyncStatus
from svcd.process.logs import LogThread, TerminalObserver, text_line

GENESIS = DEVNET.genesis_hash.hex()


@define
class Shown:
    """A status, and a miner."""

    behind: str = ""
    why_no_block: str = ""
    alone: bool = False
    enabled: bool = True
    waits_for: str = ""
    work_rate: WorkRate | None = None
    counted: int = 0
    history: Any = field(factory=lambda: SimpleNamespace(still_seconds=43.0))

    def summary(self) -> str:
        return "height 12, alone"

    def count_attempts(self) -> None:
        self.counted += 1


def production(shown: Shown, *, enabled: bool = True, on_demand: bool = False, every: int = 0) -> BlockProduction:
    parts: Any = shown
    return BlockProduction(parts, enabled, None if on_demand else parts, every)


@pytest.fixture
def said() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events


@pytest.mark.parametrize(
    ("shown", "sentence"),
    [
        (
            Shown(work_rate=WorkRate(13, 4.0, 240)),
            "searching block 13: 4.0 attempts/s, 240 attempts for a block on average: 60 s",
        ),
        (Shown(), "the next block is being prepared"),
        (Shown(why_no_block="no peer"), "no block is made now: no peer"),
        (Shown(waits_for="the list"), "no block is made now: the list"),
        (Shown(enabled=False), "the next block comes from another node"),
        (Shown(enabled=False, behind="no peer"), "the next block comes from another node; waits: no peer"),
        (
            Shown(enabled=False, alone=True),
            "nobody makes blocks: the node is alone, and its participation is switched off",
        ),
    ],
)
def test_what_is_waited_for(shown: Shown, sentence: str) -> None:
    assert production(shown).sentence() == sentence


def test_a_devnet_waits_for_a_command() -> None:
    assert production(Shown(), on_demand=True).sentence() == "the next block is made on demand, by svc node mine 1"
    assert production(Shown(), on_demand=True, every=10).sentence() == (
        "a block is made every 10 s, and on demand, by svc node mine 1"
    )


def test_heartbeats_come_every_minute_at_first_and_every_ten_later() -> None:
    assert [minute for minute in range(45) if has_heartbeat(minute)] == [*range(1, 11), 20, 30, 40]


def base_of(clock: Clock, printed: list[str]) -> Any:
    return SimpleNamespace(
        reactor=clock,
        news=News(clock),
        config=SimpleNamespace(data_dir=Path("/data")),
        greeting="Welcome",
        log=SimpleNamespace(print=printed.append),
        node_context=SimpleNamespace(
            chain_manager=SimpleNamespace(params=DEVNET, tip=genesis_point(DEVNET)),
            transaction_pool=SimpleNamespace(mempool=["a transfer"]),
        ),
    )


def test_the_heartbeat_counts_and_speaks(said: list[LogEvent]) -> None:
    clock, shown = Clock(), Shown(work_rate=WorkRate(13, 4.0, 240))
    heartbeat = Heartbeat(base_of(clock, []), production(shown))
    for _ in range(12 * 25):
        clock.advance(5)
        heartbeat.beat()
    assert shown.counted == 12 * 25
    assert len(said) == 1 + 10 + 1
    assert said[0]["attemptsPerSecond"] == 4.0
    assert formatEvent(said[0]).startswith("searching block 13: 4.0 attempts/s")
    shown.enabled = False
    clock.advance(600)
    heartbeat.beat()
    assert len(said) == 1 + 10 + 1


def network_of(*, alone: bool = False, known: int = 3, **state: Any) -> Any:
    peers = SimpleNamespace(settings=SimpleNamespace(alone=alone), book=[None] * known)
    sync, progress = (
        SimpleNamespace(starting=state.get("starting")),
        SimpleNamespace(snapshot=lambda: state.get("sync")),
    )
    return SimpleNamespace(peers=peers, sync=sync, progress=progress)


@pytest.mark.parametrize(
    ("network", "peers"),
    [
        (None, "peers: none, because [p2p] enabled is false"),
        (network_of(), "peers known: 3"),
        (network_of(alone=True, known=0), "peers known: 0; the node needs none: [participation] alone is set"),
    ],
)
def test_the_start_is_a_block_of_lines_and_the_greeting(said: list[LogEvent], network: Any, peers: str) -> None:
    printed: list[str] = []
    start = StartLines(base_of(Clock(), printed), production(Shown()), network, url="http://127.0.0.1:18645/")
    start.startService()
    assert [formatEvent(event) for event in said] == [
        f"network SVC-DEVNET, genesis {GENESIS}",
        "data in /data",
        f"chain: height 0, tip {GENESIS}, 1 transfer in the mempool",
        peers,
        "the next block is being prepared",
        "open http://127.0.0.1:18645/ in a browser",
    ]
    assert printed == ["Welcome\n"]


def shown_at_a_terminal(shown: Shown, network: Any, **made: Any) -> list[str]:
    written: list[str] = []
    terminal = TerminalObserver(text_line, LogThread(), written.append, lambda: 200)
    line = StatusLine(terminal, Clock(), production(shown, **made), network)
    line.startService()
    line.stopService()
    return written


def test_the_status_line_tells_height_rate_and_age_and_goes_with_the_node() -> None:
    assert shown_at_a_terminal(Shown(work_rate=WorkRate(13, 4.0, 240)), None) == [
        "height 12, alone, 4.0 attempts/s, a block in 60 s on average, no new tip for 43 s",
        "\r\x1b[K",
    ]
    assert shown_at_a_terminal(Shown(), None, on_demand=True)[0] == (
        "height 12, alone, blocks on demand, no new tip for 43 s"
    )
    assert shown_at_a_terminal(Shown(), None, on_demand=True, every=10)[0] == (
        "height 12, alone, a block every 10 s, no new tip for 43 s"
    )


def test_while_catching_up_the_status_line_is_a_bar() -> None:
    sync = SyncStatus(500, 1_000, 10.0, 20.0, SyncStage.FETCH, 50.0, 1)
    assert shown_at_a_terminal(Shown(), network_of(sync=sync))[0] == (
        "[##########----------]  50% 500 of 1000 blocks, 10.0/s, 50 s left"
    )


@pytest.mark.parametrize(
    ("listen", "public", "names", "url"),
    [
        ("tcp:8645:interface=127.0.0.1", "", (), "http://127.0.0.1:8645/"),
        ("tcp:8645", "", (), "http://127.0.0.1:8645/"),
        ("tcp:8645:interface=0.0.0.0", "", (), "http://127.0.0.1:8645/"),
        ("tcp:8645:interface=10.0.0.7", "", (), "http://10.0.0.7:8645/"),
        ("tcp6:8645:interface=\\:\\:1", "", (), "http://[::1]:8645/"),
        ("ssl:8645:privateKey=a:certKey=b", "", (), "https://127.0.0.1:8645/"),
        ("tcp:8645", "https://node.example", (), "https://node.example/"),
        ("tcp:8645", "", ("shop.lan",), "http://shop.lan:8645/"),
        ("tcp:8645", "", ("shop.lan", "127.0.0.1"), "http://127.0.0.1:8645/"),
        ("unix:/run/svcd.sock", "", (), ""),
        ("unix:/run/svcd.sock", "https://node.example", (), "https://node.example/"),
    ],
)
def test_the_url_to_open(listen: str, public: str, names: tuple[str, ...], url: str) -> None:
    http = SimpleNamespace(listen=listen, public_url=public, allowed_hosts=names)
    config = cast(Config, SimpleNamespace(http=http))
    assert page_url(config) == url
    assert own_origin(config).startswith("http")
