"""A node without a chain starts from a snapshot: headers, state, then blocks; and what may go wrong."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest
from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.chain.block import Block
from svcd.chain.encoding import canonical
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.snapshot import Manifest, check_manifest
from svcd.commerce.chain_follower import StepContext
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import Watch
from svcd.commerce.watch_operations import WatchLimits, WatchRequest
from svcd.commerce.webhook_database import WatchSettings, WebhookDatabase, open_webhook_database
from svcd.metrics.collectors import SyncMetrics
from svcd.node.database_health import DatabaseHealth
from svcd.node.pinned_block import PinnedBlock, UnexpectedBlock
from svcd.node.threads import InlineWorker
from svcd.p2p import client as client_module
from svcd.p2p import headers, snapshot_download, snapshot_start
from svcd.p2p.chain_sync import ASKING_SECONDS
from svcd.p2p.snapshot_download import STALL_SECONDS
from svcd.p2p.snapshot_start import GIVE_UP_SECONDS, NOTHING_SECONDS, RETURN_SECONDS, StartMode
from svcd.p2p.transport import FailureKind, PeerReply
from svcd.process.logs import text_line
from svcd.store.database import DatabaseUnavailable
from svcd.store.pruned import Pruned
from tests.chains import TEST_PARAMS, ChainBuilder, address_of, with_producers
from tests.node.bench import code_of
from tests.p2p.bench import Node, Setting
from tests.p2p.conftest import MakeNode
from tests.p2p.following import BLOCKS, HEADERS, asked_for, boaster, followed, hashes_of, meet
from tests.p2p.memory_transport import Called, MemoryTransport
from tests.p2p.remote_node import RemoteNode, Script, refused, silent, snapshot_of
from tests.p2p.test_branch_push import post
from tests.postgresql import Server
from tests.store.damage import change_last_byte, pages_of
from tests.support import has_result, result_of

MOST, DEPTH, WEEK = 4, 10, 30
LENGTH, AT = 60, 40
FIGURES = ("done", "target", "per_second", "left_seconds")
PATH = f"/p2p/snapshot/{AT}"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every ten blocks, chunks of four accounts, and a week of thirty blocks."""
    monkeypatch.setattr(client_module, "check_manifest", partial(check_manifest, most=MOST))
    monkeypatch.setattr(snapshot_start, "SNAPSHOT_BLOCKS", DEPTH)
    monkeypatch.setattr(snapshot_start, "DEPTH", DEPTH)
    monkeypatch.setattr(snapshot_start, "MIN_BLOCKS", WEEK)


def grow(builder: ChainBuilder, count: int, on: Sequence[Block] = (), name: str = "s") -> list[Block]:
    """Blocks with a transfer each to somebody new."""
    blocks = list(on)
    for number in range(count):
        last = blocks[-1] if blocks else None
        transfer = builder.transfer("alice", f"{name}{number}", 7, nonce=builder.account_after(last, "alice").nonce)
        slot = builder.point_after(last).slot + 2
        blocks.append(builder.block(last, slot=slot, producer=name, transfers=[transfer]))
    return blocks


@pytest.fixture(scope="module")
def chain(builder: ChainBuilder) -> list[Block]:
    return grow(builder, LENGTH)


@pytest.fixture
def fresh(make_node: MakeNode) -> Node:
    """A node without a chain, as the operator starts it who has said nothing."""
    return make_node(start=StartMode.AUTOMATIC)


def archive(node: Node, number: int, chain: Sequence[Block], at: int = AT, **changes: Any) -> RemoteNode:
    """A node with a chain and a snapshot of it."""
    remote = node.remote(number, blocks=chain, **changes)
    remote.serve_snapshot(chain[at - 1], MOST)
    return remote


def prune_height(node: Node) -> int:
    return node.node_context.chain_manager.reader.prune_height()


def has_state_after(node: Node, block: Block) -> bool:
    reader = node.node_context.chain_manager.reader
    accounts = {key: (balance, nonce, held) for key, balance, nonce, held in reader.every_account()}
    expected = node.builder.accounts_after(block)
    return accounts == {key: (a.balance, a.nonce, a.held_since) for key, a in expected.items()}


def chunks_asked(node: Node, remote: RemoteNode) -> list[str]:
    return [path for path in node.transport.paths(remote.endpoint) if path.startswith(f"{PATH}/")]


def test_from_one_peer(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain)
    fresh.meet(remote)
    assert followed(fresh, chain, within=20.0)
    assert prune_height(fresh) == AT + 1
    assert has_state_after(fresh, chain[-1])
    asked = {name for names in asked_for(fresh, remote) for name in names}
    assert asked == set(hashes_of(chain[AT:]))
    assert not fresh.network.network_view().behind


def test_the_node_is_behind_while_it_starts(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain, scripts={PATH: silent})
    fresh.meet(remote)
    fresh.run(2.0)
    assert fresh.network.network_view().behind.startswith("the node starts from a snapshot of the state")
    assert fresh.tip.height == 0


def test_a_start_ends_at_the_block_of_a_producer_that_the_list_here_does_not_allow(
    tmp_path: Path, transport: MemoryTransport
) -> None:
    """The node lacks a change of the list: the chain is followed as far as it allows, and nobody is banned."""
    params = with_producers("abc", (LENGTH - 5, "cde"))
    builder = ChainBuilder(params)
    blocks: list[Block] = []
    for height in range(1, LENGTH + 1):
        producer = "cabc"[height % 3] if height < LENGTH - 5 else "ecde"[height % 3]
        blocks.append(builder.block(blocks[-1] if blocks else None, producer=producer))
    setting = Setting(params=evolve(params, changes=()), start=StartMode.AUTOMATIC)
    node = Node(tmp_path, transport, setting, builder)
    remote = archive(node, 1, blocks, changes_hash=params.changes_hash)
    node.meet(remote)
    assert followed(node, blocks[: LENGTH - 6], within=200.0)
    assert prune_height(node) == AT + 1
    assert node.knows(remote)
    assert node.peers.bans.listed(node.local.now()) == []
    assert "is not followed" in node.status.alarms()["producer-changes"]
    node.close()


def stage_metrics(node: Node) -> dict[tuple[str, str], float]:
    """By figure and stage, what the metrics say of a start from a snapshot."""
    samples = [sample for family in SyncMetrics(node.network).collect() for sample in family.samples]
    prefix = "svcd_sync_snapshot_"
    found = [sample for sample in samples if sample.name.startswith(prefix)]
    return {(sample.name.removeprefix(prefix), sample.labels["stage"]): sample.value for sample in found}


def test_the_progress_of_each_stage_is_reported(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain)
    fresh.transport.latency[remote.endpoint] = 0.4
    meet(fresh, remote)
    stages: dict[str, dict[str, Any]] = {}
    shown: dict[str, dict[tuple[str, str], float]] = {}

    def note() -> bool:
        record: Any = fresh.network.record()
        if record["snapshotStart"] is not None:
            stages[record["snapshotStart"]["stage"]] = record["snapshotStart"]
            shown[record["snapshotStart"]["stage"]] = stage_metrics(fresh)
        return fresh.tip.hash == chain[-1].header.hash

    assert fresh.until(note, within=30.0)
    assert list(stages) == ["headers", "state"]
    for stage in stages.values():
        assert 0 < int(stage["done"]) <= int(stage["target"])
    assert stages["state"]["perSecond"] > 0
    assert stages["state"]["secondsLeft"] is not None
    assert fresh.network.record()["snapshotStart"] is None
    # The metrics show the same.
    for name, other in (("headers", "state"), ("state", "headers")):
        stage = stages[name]
        assert shown[name]["done", name] == int(stage["done"])
        assert shown[name]["target", name] == int(stage["target"])
        assert round(shown[name]["per_second", name], 1) == stage["perSecond"]
        assert {shown[name][figure, other] for figure in FIGURES} == {0}
    assert round(shown["state"]["left_seconds", "state"]) == stages["state"]["secondsLeft"]
    assert set(stage_metrics(fresh).values()) == {0}


def test_a_terminal_of_80_columns_shows_rate_and_time_left(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain)
    fresh.transport.latency[remote.endpoint] = 0.8
    bars: list[str] = []

    def look() -> None:
        if (starting := fresh.network.sync.starting) is not None:
            progress, words = starting.bar
            bars.append(f"{progress:.0%} {words}")
        fresh.clock.callLater(0.3, look)

    look()
    with capturedLogs() as events:
        meet(fresh, remote)
        assert followed(fresh, chain, within=40.0)
    assert re.fullmatch(r"100% 60 of 60 headers(, [0-9.]+/s, 0 s left)?", bars[0])
    assert [
        bar for bar in bars if re.fullmatch(r"[0-9]+% [0-9]+ of [0-9]+ chunks, [0-9.]+/s, [0-9.]+ (s|min) left", bar)
    ]
    lines = [formatEvent(event) for event in events if event.get("_on_status_line")]
    assert 0 < len(lines) <= 4, "one in ten seconds"
    assert lines[0].startswith("starting from a snapshot: ")


def test_a_liar_among_three_sources_is_banned(fresh: Node, chain: list[Block]) -> None:
    remotes = [archive(fresh, number, chain) for number in (1, 2, 3)]
    liar = remotes[1]
    manifest, chunks = liar.snapshots[AT]
    liar.snapshots[AT] = manifest, [bytes(len(chunk)) or b"?" for chunk in chunks]
    meet(fresh, *remotes)
    assert followed(fresh, chain, within=30.0)
    assert [fresh.peers.is_banned(remote.key.node_id) for remote in remotes] == [False, True, False]
    assert has_state_after(fresh, chain[-1])


@pytest.mark.parametrize("stage", [HEADERS, f"{PATH}/3"])
def test_a_restart_goes_on_where_it_was(
    tmp_path: Path,
    transport: MemoryTransport,
    builder: ChainBuilder,
    chain: list[Block],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    few_headers(monkeypatch, 20, 20)
    node = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    remote = archive(node, 1, chain)
    left = [2]

    def until_then(called: Called) -> Any:
        left[0] -= 1
        return remote.honest(called) if left[0] >= 0 and stage == HEADERS else None

    remote.scripts = {stage: until_then}
    node.meet(remote)
    node.run(3.0)
    assert node.tip.height == 0
    before = set(chunks_asked(node, remote)) - {f"{PATH}/3"}
    first_headers = len(node.transport.calls_to(remote.endpoint, HEADERS))
    node.close()
    node.transport.calls.clear()
    again = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    remote.scripts = {}
    again.meet(remote)
    assert followed(again, chain, within=20.0)
    proven = again.node_context.chain_manager.proven_work
    assert proven == builder.point_after(chain[-1]).work
    assert prune_height(again) == AT + 1
    assert has_state_after(again, chain[-1])
    if stage == HEADERS:
        assert first_headers >= 2
    else:
        assert before
        assert f"{PATH}/3" in chunks_asked(again, remote)
        assert not before & set(chunks_asked(again, remote))
    again.close()
    last = Node(tmp_path, transport, Setting(start=StartMode.BLOCKS), builder)
    assert last.node_context.chain_manager.proven_work == proven
    last.close()


def begun(fresh: Node, chain: list[Block]) -> None:
    """Bring the node to where it has the state of a snapshot, and none of the blocks after it."""
    fresh.meet(archive(fresh, 1, chain, scripts={BLOCKS: silent}))
    assert fresh.until(lambda: prune_height(fresh), within=20.0)
    assert fresh.tip.height == AT


def note_stops(node: Node) -> list[str]:
    stops: list[str] = []
    node.node_context.threads.health.stop = lambda: stops.append("stop")
    return stops


def posted(node: Node, block: Block) -> str:
    return str(node.post("/p2p/block", b'{"block":' + block.wire() + b"}", "198.51.100.7").json["state"])


@pytest.mark.parametrize("fork", [AT - 1, AT - 6])
def test_a_branch_with_less_work_than_the_headers_have_shown_does_not_end_the_node(
    fresh: Node, builder: ChainBuilder, chain: list[Block], fork: int
) -> None:
    """It has more work than the tip, which stands at the snapshot until the blocks after it have come."""
    begun(fresh, chain)
    stops = note_stops(fresh)
    branch = grow(builder, LENGTH - 1 - fork, chain[:fork], name="x")
    assert builder.point_after(branch[-1]).work > fresh.tip.work
    assert post(fresh, *branch[fork:]).json["state"] == "more"
    assert posted(fresh, branch[fork]) == "deep"
    # By another door, and as a chain to fetch.
    wires = [block.wire() for block in branch[fork:]]
    manager, work = fresh.node_context.chain_manager, builder.point_after(branch[-1]).work
    outcomes = result_of(manager.submit_blocks(wires, proven_work=work))
    assert [code_of(each) for each in outcomes] == [Wait.DEEP, *[Wait.ORPHAN] * (len(wires) - 1)]
    fresh.meet(fresh.remote(2, blocks=branch))
    fresh.run(30.0)
    assert (stops, fresh.tip.height) == ([], AT)


def test_a_branch_with_more_work_than_the_headers_have_shown_ends_the_node(
    fresh: Node, builder: ChainBuilder, chain: list[Block], expected_errors: Callable[..., list[LogEvent]]
) -> None:
    begun(fresh, chain)
    stops = note_stops(fresh)
    branch = grow(builder, LENGTH + 2 - (AT - 1), chain[: AT - 1], name="y")
    assert post(fresh, *branch[AT - 1 :]).json["state"] == "wanted"
    fresh.post("/p2p/block", b'{"block":' + branch[AT - 1].wire() + b"}", "198.51.100.7")
    assert stops == ["stop"]
    assert expected_errors()


@pytest.mark.parametrize("table", ["snapshot_account", "snapshot_chunk", "snapshot_progress", "snapshot_header"])
def test_what_a_disk_has_damaged_is_fetched_again_and_the_node_goes_on(
    tmp_path: Path,
    transport: MemoryTransport,
    builder: ChainBuilder,
    chain: list[Block],
    table: str,
) -> None:
    node = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    remote = archive(node, 1, chain, scripts={f"{PATH}/3": silent})
    node.meet(remote)
    node.run(5.0)
    assert missing_chunks(node) == (3,)
    node.close()
    change_last_byte(node.path, pages_of(node.path, table)[-1])
    again = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    stops: list[None] = []
    again.node_context.threads.health.stop = lambda: stops.append(None)
    remote.scripts = {}
    with capturedLogs() as events:
        again.meet(remote)
        assert followed(again, chain, within=40.0)
    assert prune_height(again) == AT + 1
    assert has_state_after(again, chain[-1])
    assert [text_line(event) for event in events if event["log_format"] == "{why}; it is fetched again"]
    assert stops == []
    again.close()


def test_a_node_is_not_ready_before_it_has_the_blocks_after_the_snapshot(fresh: Node, chain: list[Block]) -> None:
    """Their headers have been proven, so nothing may expire meanwhile, and no block be made."""
    remote = archive(fresh, 1, chain)
    fresh.meet(remote)
    fresh.transport.latency[remote.endpoint] = 3.0
    while fresh.tip.height < LENGTH:
        assert fresh.status.unready()
        fresh.run(0.05)


def test_a_liar_that_was_met_first_does_not_spoil_the_snapshot(fresh: Node, chain: list[Block]) -> None:
    liar, honest = archive(fresh, 1, chain), archive(fresh, 2, chain)
    manifest, chunks = liar.snapshots[AT]
    liar.snapshots[AT] = manifest, [bytes(len(chunk)) or b"?" for chunk in chunks]
    meet(fresh, liar)
    assert fresh.until(lambda: fresh.peers.is_banned(liar.key.node_id), within=20.0)
    fresh.run(NOTHING_SECONDS / 2)
    fresh.meet(honest)
    assert followed(fresh, chain, within=20.0)
    assert prune_height(fresh) == AT + 1


def test_a_short_chain_is_fetched_block_by_block(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain[:WEEK], at=10)
    fresh.meet(remote)
    assert followed(fresh, chain[:WEEK])
    assert prune_height(fresh) == 0


def test_nothing_but_blocks_if_the_operator_says_so(make_node: MakeNode, chain: list[Block]) -> None:
    node = make_node(start=StartMode.BLOCKS)
    node.meet(archive(node, 1, chain))
    assert followed(node, chain)
    assert prune_height(node) == 0


def missing_chunks(node: Node) -> Sequence[int]:
    progress = node.node_context.staging.progress()
    assert progress is not None
    return progress.missing


def end_of_slot(builder: ChainBuilder, block: Block) -> int:
    return TEST_PARAMS.slot_time(builder.point_after(block).slot + 1)


class Webhooks:
    """The database of webhooks beside a node's chain, with one watch, or one that cannot be asked."""

    def __init__(self, folder: Path, database: str) -> None:
        """``database`` is the connection URI of PostgreSQL; "" for a file."""
        self._folder = folder
        self._database = database
        self.refusal: Exception | None = None
        self.asked = 0
        self._opened: WebhookDatabase | None = None

    def open(self, *, since: int | None, created_at: int) -> None:
        """Open it, once there is a chain, and store a watch."""
        settings = WatchSettings(
            every_depth=False,
            new_id=lambda: "unused",
            limits=WatchLimits(9, 9),
            now=lambda: 0,
            database=self._database,
        )
        opening = open_webhook_database(
            TEST_PARAMS,
            self._folder,
            chain=self._folder / "chain.sqlite",
            worker=InlineWorker(),
            health=DatabaseHealth(lambda: None),
            settings=settings,
        )
        self._opened = result_of(Deferred.fromCoroutine(opening))
        watch = Watch(
            id="svcwh_1",
            merchant="default",
            terms=PaymentTerms("order-1", address_of("shop", TEST_PARAMS.address_prefix), 25, 3, since),
            callback_url="https://shop.example.com/paid",
            host="shop.example.com",
            created_at=created_at,
            expires_at=created_at + 1,
            pay_until=None,
        )
        repository = self._opened.operations.repository
        with repository.watches.commit():
            repository.add(watch)

    async def has_active_since(self, height: int, time: int) -> bool:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        assert self._opened is not None
        return await self._opened.has_active_since(height, time)

    async def refuse_below(self, height: int) -> None:
        assert self._opened is not None
        await self._opened.refuse_below(height)

    def register(self, since: int) -> str:
        """What becomes of a merchant's request for another watch: the sentence that refuses it, or ""."""
        assert self._opened is not None
        terms = PaymentTerms(f"order-{since}", address_of("shop", TEST_PARAMS.address_prefix), 25, 3, since)
        url = "https://shop.example.com/paid"
        request = WatchRequest(merchant="default", terms=terms, callback_url=url, host="shop.example.com", ttl_ms=1_000)
        context = StepContext(now=0, synced=True, clock_trusted=True, arrivals_behind=0, term=0)
        (outcome,) = self._opened.operations.register([request], context)
        return str(outcome) if isinstance(outcome, Pruned) else ""

    def close(self) -> None:
        if self._opened is not None:
            result_of(Deferred.fromCoroutine(self._opened.close()))


@pytest.fixture(params=["sqlite", "postgresql"])
def webhooks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Webhooks]:
    """A database of webhooks on either engine, for the node of ``make_node``."""
    database = ""
    if request.param == "postgresql":
        server: Server = request.getfixturevalue("postgresql_server")
        database = server.new_schema()
    webhooks = Webhooks(tmp_path / "node", database)
    yield webhooks
    webhooks.close()


@pytest.mark.parametrize(
    ("start", "since", "after", "begins"),
    [
        (StartMode.AUTOMATIC, None, -1, 0),
        (StartMode.AUTOMATIC, None, 0, AT + 1),
        (StartMode.AUTOMATIC, AT, 0, 0),
        (StartMode.AUTOMATIC, AT + 1, -1, AT + 1),
        (StartMode.SNAPSHOT, None, -1, AT + 1),
        (StartMode.SNAPSHOT, AT, 0, AT + 1),
    ],
)
def test_all_blocks_are_fetched_for_a_watch_whose_payment_may_be_in_a_block_before_the_snapshot(
    make_node: MakeNode,
    builder: ChainBuilder,
    chain: list[Block],
    webhooks: Webhooks,
    start: StartMode,
    since: int | None,
    after: int,
    begins: int,
) -> None:
    """From the height on that it names, or else after its registration."""
    node = make_node(start=start, has_active_watch_since=webhooks.has_active_since)
    webhooks.open(since=since, created_at=end_of_slot(builder, chain[AT - 1]) + after)
    remote = archive(node, 1, chain)
    node.meet(remote)
    assert followed(node, chain)
    assert prune_height(node) == begins
    assert bool(node.transport.calls_to(remote.endpoint, PATH)) is bool(begins)


def test_a_watch_that_comes_after_the_last_look_is_refused_if_it_needs_earlier_blocks(
    make_node: MakeNode, builder: ChainBuilder, chain: list[Block], webhooks: Webhooks
) -> None:
    """The state of millions of accounts takes minutes to become the chain, and a refused merchant asks another node."""
    node = make_node(
        start=StartMode.AUTOMATIC,
        has_active_watch_since=webhooks.has_active_since,
        refuse_watches_below=webhooks.refuse_below,
    )
    webhooks.open(since=None, created_at=end_of_slot(builder, chain[AT - 1]))
    manager, registered = node.node_context.chain_manager, list[str]()
    adopt_snapshot = manager.adopt_snapshot

    def registering(staging: Any) -> Any:
        assert prune_height(node) == 0
        registered.extend(webhooks.register(since) for since in (AT, AT + 1))
        return adopt_snapshot(staging)

    manager.adopt_snapshot = registering  # type: ignore[method-assign]
    node.meet(archive(node, 1, chain))
    assert followed(node, chain)
    sentence = f"this node has only blocks from height {AT + 1} on; give that or more as sinceHeight, or ask a node"
    assert [sentence in each for each in registered] == [True, False]
    assert registered[1] == ""
    assert prune_height(node) == AT + 1


def test_watches_are_refused_only_while_the_state_becomes_the_chain(make_node: MakeNode, chain: list[Block]) -> None:
    """A watch that came before the last look has the node fetch all blocks."""
    refused: list[int] = []
    answers = iter([False, True])

    def refuse(height: int) -> Deferred[None]:
        refused.append(height)
        return succeed(None)

    node = make_node(
        start=StartMode.AUTOMATIC,
        has_active_watch_since=lambda _height, _time: succeed(next(answers)),
        refuse_watches_below=refuse,
    )
    node.meet(archive(node, 1, chain))
    assert followed(node, chain)
    assert (refused, prune_height(node)) == ([AT + 1, 0], 0)


def locked() -> apsw.Error:
    """What SQLite raises if another program has locked the file."""
    return apsw.BusyError("database is locked")


@pytest.mark.parametrize("after", [-1, 0])
@pytest.mark.parametrize("refusal", [DatabaseUnavailable("no connection"), locked()])
def test_a_start_waits_for_a_database_of_webhooks_that_cannot_be_asked(
    make_node: MakeNode,
    builder: ChainBuilder,
    chain: list[Block],
    webhooks: Webhooks,
    refusal: Exception,
    after: int,
) -> None:
    node = make_node(start=StartMode.AUTOMATIC, has_active_watch_since=webhooks.has_active_since)
    webhooks.open(since=None, created_at=end_of_slot(builder, chain[AT - 1]) + after)
    webhooks.refusal = refusal
    remote = archive(node, 1, chain)
    with capturedLogs() as events:
        node.meet(remote)
        node.run(NOTHING_SECONDS + 10.0)
    lines = [text_line(event) for event in events if "webhooks" in event["log_format"]]
    assert len(lines) == 1
    assert "waits for the webhooks' database, to see whether a watch needs the blocks up to 40: " in lines[0]
    assert str(refusal) in lines[0]
    assert node.tip.height == 0
    assert webhooks.asked > NOTHING_SECONDS / 2
    assert node.transport.calls_to(remote.endpoint, PATH) == []
    webhooks.refusal = None
    assert followed(node, chain, within=20.0)
    assert prune_height(node) == (AT + 1 if after == 0 else 0)


def test_a_stop_ends_the_wait_for_a_database_of_webhooks(make_node: MakeNode, chain: list[Block]) -> None:
    webhooks = Webhooks(Path(), "")
    webhooks.refusal = DatabaseUnavailable("no connection")
    node = make_node(start=StartMode.AUTOMATIC, has_active_watch_since=webhooks.has_active_since)
    remote = archive(node, 1, chain)
    node.meet(remote)
    assert node.until(lambda: webhooks.asked > 2)
    stopped = node.begin(node.network.stop())
    node.run(0.1)
    result_of(stopped)
    assert node.transport.calls_to(remote.endpoint, PATH) == []


def test_another_error_of_the_database_of_webhooks_is_logged_and_nothing_is_taken_for_granted(
    make_node: MakeNode, chain: list[Block], expected_errors: Callable[..., list[LogEvent]]
) -> None:
    webhooks = Webhooks(Path(), "")
    webhooks.refusal = apsw.CorruptError("database disk image is malformed")
    node = make_node(start=StartMode.AUTOMATIC, has_active_watch_since=webhooks.has_active_since)
    node.meet(archive(node, 1, chain))
    assert followed(node, chain)
    assert prune_height(node) == 0
    expected_errors(apsw.Error)


@pytest.mark.parametrize("whole", [False, True])
def test_watches_are_looked_at_again_when_a_start_goes_on_after_a_restart(
    tmp_path: Path, transport: MemoryTransport, builder: ChainBuilder, chain: list[Block], whole: bool
) -> None:
    """Even if the whole state is here."""
    node = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    remote = archive(node, 1, chain, scripts={f"{PATH}/3": silent})
    node.meet(remote)
    node.run(5.0)
    if whole:
        # The node waits for the headers of a peer that claims more work.
        node.meet(boaster(node, 2, silent))
        remote.scripts = {}
        assert node.until(lambda: not missing_chunks(node), within=30.0)
    assert bool(missing_chunks(node)) is not whole
    assert node.tip.height == 0
    node.close()
    setting = Setting(start=StartMode.AUTOMATIC, has_active_watch_since=lambda _height, _time: succeed(True))
    again = Node(tmp_path, transport, setting, builder)
    remote.scripts = {}
    again.meet(remote)
    assert followed(again, chain, within=20.0)
    assert prune_height(again) == 0
    again.close()


def test_a_stop_while_the_watches_are_checked_begins_no_download(make_node: MakeNode, chain: list[Block]) -> None:
    answer: Deferred[bool] = Deferred()
    node = make_node(start=StartMode.AUTOMATIC, has_active_watch_since=lambda _height, _time: answer)
    remote = archive(node, 1, chain, scripts={PATH: silent})
    node.meet(remote)
    node.run(5.0)
    stopped = node.begin(node.network.stop())
    node.run(1.0)
    assert not has_result(stopped)
    answer.callback(False)
    node.run(1.0)
    assert node.transport.calls_to(remote.endpoint, PATH) == []
    result_of(stopped)


@pytest.mark.parametrize("path", [HEADERS, PATH, f"{PATH}/0"])
def test_a_stop_waits_for_nothing_that_trickles(fresh: Node, chain: list[Block], path: str) -> None:
    remote = archive(fresh, 1, chain, scripts={path: silent})
    fresh.transport.dripping.add(remote.endpoint)
    fresh.meet(remote)
    assert fresh.until(lambda: path in fresh.transport.paths(remote.endpoint))
    stopped = fresh.begin(fresh.network.stop())
    fresh.run(0.1)
    result_of(stopped)


def test_a_snapshot_of_a_short_chain_if_the_operator_says_so(make_node: MakeNode, chain: list[Block]) -> None:
    node = make_node(start=StartMode.SNAPSHOT)
    node.meet(archive(node, 1, chain[:WEEK], at=10))
    assert followed(node, chain[:WEEK])
    assert prune_height(node) == 11


def test_without_a_snapshot_all_blocks_are_fetched(fresh: Node, chain: list[Block]) -> None:
    fresh.meet(fresh.remote(blocks=chain))
    assert followed(fresh, chain, within=NOTHING_SECONDS + 20.0)
    assert prune_height(fresh) == 0


def test_a_snapshot_too_near_the_tip_is_not_taken(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain, at=LENGTH)
    fresh.meet(remote)
    assert followed(fresh, chain, within=NOTHING_SECONDS + 20.0)
    assert prune_height(fresh) == 0


def test_an_empty_boast_delays_and_does_no_more(fresh: Node, chain: list[Block]) -> None:
    fresh.meet(boaster(fresh, 1, silent), fresh.remote(2, blocks=chain[:20]))
    assert followed(fresh, chain[:20], within=90.0)


@pytest.mark.parametrize("common", [0, 45])
def test_the_chain_with_the_most_work_is_taken(
    fresh: Node, builder: ChainBuilder, chain: list[Block], common: int
) -> None:
    """Even if another one has been staged, and its state is being fetched."""
    longer = grow(builder, LENGTH + 12 - common, chain[:common], "l")
    shorter = archive(fresh, 1, chain, scripts={PATH: silent})
    fresh.meet(shorter)
    fresh.run(2.0)
    fresh.meet(archive(fresh, 2, longer))
    fresh.run(2.0)
    shorter.scripts.clear()
    assert followed(fresh, longer, within=60.0)
    assert has_state_after(fresh, longer[-1])


def few_headers(monkeypatch: pytest.MonkeyPatch, first: int, most: int) -> None:
    """Let the node ask for so many headers at first, and at most."""
    monkeypatch.setattr(headers, "FIRST_HEADERS", first)
    monkeypatch.setattr(headers, "MAX_HEADERS", most)


def test_a_peer_whose_chain_changes_between_two_replies_is_not_doubted(
    fresh: Node, builder: ChainBuilder, chain: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers that both chains have are not fetched again."""
    few_headers(monkeypatch, 10, 10)
    longer = grow(builder, LENGTH + 12 - 25, chain[:25], "l")
    remote = archive(fresh, 1, chain)
    remote.serve_snapshot(longer[AT - 1], MOST)
    seen = count(1)

    def changes(called: Called) -> Any:
        if next(seen) == 4:
            remote.blocks = longer
        return remote.honest(called)

    remote.scripts = {HEADERS: changes}
    meet(fresh, remote)
    assert followed(fresh, longer, within=30.0)
    assert prune_height(fresh) > 0
    assert not fresh.peer(remote).unproven_claims


@pytest.mark.parametrize(("latency", "most"), [(0.01, 40), (2.0, 10)])
def test_how_many_headers_are_requested_follows_the_line(
    fresh: Node, chain: list[Block], monkeypatch: pytest.MonkeyPatch, latency: float, most: int
) -> None:
    few_headers(monkeypatch, 10, 40)
    remote = archive(fresh, 1, chain)
    fresh.transport.latency[remote.endpoint] = latency
    meet(fresh, remote)
    assert followed(fresh, chain, within=90.0)
    asked = [
        json.loads(called.request.body or b"")["limit"] for called in fresh.transport.calls_to(remote.endpoint, HEADERS)
    ]
    assert (asked[0], max(asked)) == (10, most)


def test_a_block_on_the_genesis_does_not_stop_it(fresh: Node, builder: ChainBuilder, chain: list[Block]) -> None:
    """Anybody can make one, while the start is under way or before."""
    own = builder.block(None, slot=2, producer="mallory")
    remote = archive(fresh, 1, chain, scripts={f"{PATH}/0": silent})
    fresh.meet(remote)
    fresh.run(2.0)
    fresh.take(own)
    assert fresh.tip.height == 1
    remote.scripts.clear()
    assert followed(fresh, chain, within=40.0)
    assert prune_height(fresh) == AT + 1


def test_a_header_that_breaks_a_rule_has_its_sender_banned(
    fresh: Node, builder: ChainBuilder, chain: list[Block]
) -> None:
    last = chain[-2]
    bad = builder.block(last, slot=builder.point_after(last).slot + 2, producer="x", break_=Refusal.CONSENSUS_ROOT)
    liar, honest = archive(fresh, 1, [*chain[:-1], bad]), archive(fresh, 2, chain)
    liar.work = honest.tip.work + 1
    meet(fresh, liar, honest)
    assert followed(fresh, chain, within=60.0)
    assert fresh.peers.is_banned(liar.key.node_id)
    assert not fresh.peers.is_banned(honest.key.node_id)


def test_no_blocks_are_requested_before_the_snapshot_is_loaded(fresh: Node, chain: list[Block]) -> None:
    remote = archive(fresh, 1, chain, scripts={PATH: silent})
    fresh.meet(remote)
    fresh.run(5.0)
    assert fresh.transport.calls_to(remote.endpoint, BLOCKS) == []


# Peers that name snapshots and do not deliver them

NEWEST = LENGTH - DEPTH
MANIFEST = f"/p2p/snapshot/{NEWEST}"
STATUS = "/p2p/status"


def names(remote: RemoteNode, height: int) -> Script:
    """A script of ``/p2p/status``: each time another snapshot of the same block."""
    digests = count(1)
    block_hash = remote.builder.point_after(remote.blocks[height - 1] if height else None).hash

    def answer(called: Called) -> PeerReply:
        reply = remote.honest(called)
        assert isinstance(reply, PeerReply)
        body = json.loads(reply.body)
        claim = {"height": str(height), "hash": block_hash.hex(), "digest": f"{next(digests):064x}"}
        body["status"]["snapshots"] = [claim]
        return evolve(reply, body=canonical(body))

    return answer


def naming(node: Node, number: int, chain: Sequence[Block], answer: Script, height: int = NEWEST) -> RemoteNode:
    """A node that names snapshots without end, and answers by a script if it is asked for one."""
    remote = node.remote(number, blocks=chain)
    remote.scripts = {STATUS: names(remote, height), f"/p2p/snapshot/{height}": answer}
    return remote


UNHELPFUL: dict[str, Script] = {
    "silent": silent,
    "missing": lambda _: refused(404),
    "busy": lambda _: PeerReply(429, b"{}", 5.0),
    "another": lambda _: PeerReply(200, canonical({"ok": True})),
}


@pytest.mark.parametrize("kind", [*UNHELPFUL, "trickling"])
def test_a_peer_that_names_snapshots_and_delivers_none_does_not_keep_the_node_from_that_of_another(
    fresh: Node, chain: list[Block], kind: str
) -> None:
    idle = naming(fresh, 1, chain, UNHELPFUL.get(kind, silent))
    if kind == "trickling":
        fresh.transport.dripping.add(idle.endpoint)
    meet(fresh, idle, archive(fresh, 2, chain))
    assert followed(fresh, chain, within=STALL_SECONDS + 20.0)
    assert prune_height(fresh) == AT + 1
    assert idle.endpoint in {called.endpoint for called in fresh.transport.calls if called.path == MANIFEST}


@pytest.mark.parametrize("kind", [*UNHELPFUL, "trickling"])
def test_a_peer_that_names_snapshots_and_delivers_none_does_not_keep_the_node_from_all_blocks(
    fresh: Node, chain: list[Block], kind: str
) -> None:
    idle = naming(fresh, 1, chain, UNHELPFUL.get(kind, silent))
    if kind == "trickling":
        fresh.transport.dripping.add(idle.endpoint)
    meet(fresh, idle, fresh.remote(2, blocks=chain))
    assert followed(fresh, chain, within=GIVE_UP_SECONDS + STALL_SECONDS + 20.0)
    assert prune_height(fresh) == 0


def test_several_peers_that_name_snapshots_and_deliver_none_cost_a_minute_each(fresh: Node, chain: list[Block]) -> None:
    idle = [naming(fresh, number, chain, silent) for number in range(1, 6)]
    meet(fresh, *idle, archive(fresh, 6, chain, at=NEWEST))
    assert followed(fresh, chain, within=len(idle) * STALL_SECONDS + 20.0)
    assert prune_height(fresh) == NEWEST + 1


def test_a_peer_that_was_busy_for_a_while_is_asked_again(fresh: Node, chain: list[Block]) -> None:
    busy = archive(fresh, 1, chain, scripts={PATH: UNHELPFUL["busy"]})
    meet(fresh, busy, fresh.remote(2, blocks=chain))
    fresh.run(3 * STALL_SECONDS)
    assert fresh.tip.height == 0
    busy.scripts = {}
    assert followed(fresh, chain, within=20.0)
    assert prune_height(fresh) == AT + 1


@pytest.mark.parametrize("height", [0, 1, AT - 1, AT + 1])
def test_a_snapshot_of_a_block_of_which_honest_nodes_make_none_is_not_asked_for(
    fresh: Node, chain: list[Block], height: int
) -> None:
    """The genesis included, whose state every node has."""
    stops = note_stops(fresh)
    remote = naming(fresh, 1, chain, silent, height=height)
    fresh.meet(remote)
    fresh.run(NOTHING_SECONDS / 2)
    assert fresh.tip.height == 0
    assert followed(fresh, chain, within=NOTHING_SECONDS)
    assert prune_height(fresh) == 0
    assert stops == []
    assert not any("/snapshot/" in path for path in fresh.transport.paths(remote.endpoint))


def test_a_snapshot_at_a_height_of_none_does_not_delay_one(fresh: Node, chain: list[Block]) -> None:
    meet(fresh, naming(fresh, 1, chain, silent, height=AT + 1), archive(fresh, 2, chain))
    assert followed(fresh, chain, within=20.0)
    assert prune_height(fresh) == AT + 1


# Outages, and peers that leave


def lose(node: Node, *remotes: RemoteNode, silently: bool = False) -> Callable[[], None]:
    """Let the line to others break; the result repairs it."""

    class Void:
        def answer(self, _request: object) -> FailureKind | None:
            return None if silently else FailureKind.UNREACHABLE

    node.transport.responders.update({remote.endpoint: Void() for remote in remotes})
    return lambda: node.transport.responders.update({remote.endpoint: remote for remote in remotes})


def halfway(node: Node, remote: RemoteNode, *others: RemoteNode) -> None:
    """Meet peers, and bring the start to where one chunk is missing of the snapshot that the first one serves."""
    remote.scripts[f"{PATH}/3"] = silent
    meet(node, remote, *others)
    assert node.until(lambda: node.node_context.staging.progress() and missing_chunks(node) == (3,), within=20.0)
    node.transport.calls.clear()
    del remote.scripts[f"{PATH}/3"]


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize("seconds", [120.0, 2 * GIVE_UP_SECONDS])
def test_an_outage_costs_no_chunks(fresh: Node, chain: list[Block], seconds: float, silently: bool) -> None:
    remote, other = archive(fresh, 1, chain), fresh.remote(2, blocks=chain)
    halfway(fresh, remote, other)
    repair = lose(fresh, remote, other, silently=silently)
    fresh.run(seconds)
    assert fresh.tip.height == 0
    assert missing_chunks(fresh) == (3,)
    repair()
    assert followed(fresh, chain, within=90.0)
    assert prune_height(fresh) == AT + 1
    assert set(chunks_asked(fresh, remote)) == {f"{PATH}/3"}


@pytest.mark.parametrize("path", [HEADERS, PATH])
def test_an_outage_at_the_begin_of_a_start_does_not_end_it(fresh: Node, chain: list[Block], path: str) -> None:
    remote, other = archive(fresh, 1, chain), fresh.remote(2, blocks=chain)
    remote.scripts = other.scripts = {path: silent}
    meet(fresh, remote, other)
    assert fresh.until(lambda: fresh.transport.calls_to(remote.endpoint, path))
    repair = lose(fresh, remote, other)
    fresh.run(2 * GIVE_UP_SECONDS)
    remote.scripts, other.scripts = {}, {}
    repair()
    assert followed(fresh, chain, within=90.0)
    assert prune_height(fresh) == AT + 1


def test_an_outage_between_two_replies_with_headers_does_not_end_the_start(
    fresh: Node, chain: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The headers that are here are too few for a start from a snapshot, or show no snapshot."""
    few_headers(monkeypatch, 20, 20)
    remote = archive(fresh, 1, chain)
    repairs: list[Callable[[], None]] = []

    def answer(called: Called) -> Any:
        repairs.append(lose(fresh, remote))
        return remote.honest(called)

    remote.scripts = {HEADERS: answer}
    fresh.meet(remote)
    fresh.run(2 * GIVE_UP_SECONDS)
    assert fresh.node_context.staging.tip().height == 20
    remote.scripts = {}
    repairs[0]()
    assert followed(fresh, chain, within=90.0)
    assert prune_height(fresh) == AT + 1


@pytest.mark.parametrize("ours", [0, 5])
def test_a_claim_of_a_long_chain_without_headers_stops_no_node(
    make_node: MakeNode, chain: list[Block], ours: int
) -> None:
    """While a network is young all nodes could start from a snapshot, if there were one."""
    node = make_node(start=StartMode.AUTOMATIC)
    node.take(*chain[:ours])
    node.meet(boaster(node, 1, silent, work=2**60))
    node.run(ASKING_SECONDS + 1)
    for _ in range(70):
        assert node.status.unready() == ""
        node.run(1)


def test_a_node_that_may_be_alone_ends_a_start_whose_peers_have_left(make_node: MakeNode, chain: list[Block]) -> None:
    node = make_node(start=StartMode.AUTOMATIC, alone=True)
    remote = archive(node, 1, chain)
    halfway(node, remote)
    lose(node, remote)
    node.run(GIVE_UP_SECONDS - 30.0)
    assert node.network.network_view().behind
    node.run(60.0)
    assert not node.network.network_view().behind


def test_the_rest_of_a_snapshot_is_waited_for_though_another_could_be_had(fresh: Node, chain: list[Block]) -> None:
    remote, other = archive(fresh, 1, chain), archive(fresh, 2, chain, at=NEWEST)
    halfway(fresh, remote)
    repair = lose(fresh, remote)
    fresh.meet(other)
    fresh.run(RETURN_SECONDS - 60.0)
    assert missing_chunks(fresh) == (3,)
    repair()
    assert followed(fresh, chain, within=60.0)
    assert prune_height(fresh) == AT + 1
    assert set(chunks_asked(fresh, remote)) == {f"{PATH}/3"}


@pytest.mark.parametrize("away", [False, True])
def test_another_snapshot_is_begun_where_the_rest_of_the_first_does_not_come(
    fresh: Node, chain: list[Block], away: bool
) -> None:
    remote, other = archive(fresh, 1, chain), archive(fresh, 2, chain, at=20)
    halfway(fresh, remote)
    if away:
        lose(fresh, remote)
    else:
        remote.scripts = {f"{PATH}/3": silent}
    fresh.meet(other)
    assert followed(fresh, chain, within=RETURN_SECONDS + STALL_SECONDS + 30.0)
    assert prune_height(fresh) == 21


def test_a_newer_snapshot_is_begun_after_an_outage_in_which_the_first_has_become_old(
    fresh: Node, builder: ChainBuilder, chain: list[Block]
) -> None:
    """Its block is too near the headers, or above them, that were fetched before the outage."""
    remote = archive(fresh, 1, chain)
    halfway(fresh, remote)
    repair = lose(fresh, remote)
    fresh.run(2 * GIVE_UP_SECONDS)
    remote.blocks = grow(builder, 20, chain, "m")
    remote.snapshots.clear()
    remote.serve_snapshot(remote.blocks[LENGTH + 9], MOST)
    repair()
    assert followed(fresh, remote.blocks, within=RETURN_SECONDS + 60.0)
    assert prune_height(fresh) == LENGTH + 11


@pytest.mark.parametrize("away", [False, True])
def test_all_blocks_are_fetched_where_nobody_has_the_rest_of_a_snapshot_for_long(
    fresh: Node, chain: list[Block], away: bool
) -> None:
    remote, other = archive(fresh, 1, chain), fresh.remote(2, blocks=chain)
    halfway(fresh, remote, other)
    if away:
        lose(fresh, remote)
    else:
        remote.scripts = {f"{PATH}/3": silent}
    fresh.run(GIVE_UP_SECONDS - 60.0)
    assert missing_chunks(fresh) == (3,)
    assert followed(fresh, chain, within=STALL_SECONDS + 80.0)
    assert prune_height(fresh) == 0


def false_counts(builder: ChainBuilder, block: Block) -> list[tuple[Manifest, list[bytes]]]:
    """Manifests that join to the state root, each of which says of one chunk that it has an account less."""
    manifest, records = snapshot_of(builder, block, MOST)
    found: list[tuple[Manifest, list[bytes]]] = []
    for index, chunk in enumerate(manifest.chunks):
        fewer = evolve(chunk, accounts=max(chunk.accounts - 1, 0))
        changed = evolve(manifest, chunks=(*manifest.chunks[:index], fewer, *manifest.chunks[index + 1 :]))
        with suppress(RuleViolation):
            check_manifest(changed, block.header.state_root, most=MOST)
            found.append((changed, records))
    return found


@pytest.mark.parametrize("honest", [False, True])
def test_a_state_that_is_provably_false_is_given_up(
    fresh: Node, builder: ChainBuilder, chain: list[Block], honest: bool
) -> None:
    liar = archive(fresh, 1, chain)
    liar.snapshots[AT] = false_counts(builder, chain[AT - 1])[-1]
    other = fresh.remote(2, blocks=chain)
    meet(fresh, liar, other)
    assert fresh.until(lambda: fresh.peers.is_banned(liar.key.node_id), within=20.0)
    progress = fresh.node_context.staging.progress()
    assert progress is not None
    assert 0 < len(progress.missing) < len(progress.manifest.chunks)
    if honest:
        other.serve_snapshot(chain[AT - 1], MOST)
    assert followed(fresh, chain, within=NOTHING_SECONDS + 30.0)
    assert prune_height(fresh) == (AT + 1 if honest else 0)


def test_snapshots_are_not_begun_without_end(
    fresh: Node, builder: ChainBuilder, chain: list[Block], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer names another manifest again and again, of which it sends one chunk."""
    monkeypatch.setattr(snapshot_start, "MAX_BEGUN", 3)
    false = false_counts(builder, chain[AT - 1])[-4:]
    liar, other = archive(fresh, 1, chain), fresh.remote(2, blocks=chain)
    liar.scripts = {f"{PATH}/{index}": silent for index in range(1, 40)}
    begun: list[bytes] = []
    for snapshot in false:
        liar.snapshots[AT] = snapshot
        if not begun:
            meet(fresh, liar, other)
        fresh.run(RETURN_SECONDS + 2 * STALL_SECONDS)
        progress = fresh.node_context.staging.progress()
        if progress is not None:
            begun.append(progress.manifest.digest)
    assert begun == [manifest.digest for manifest, _ in false[:3]]
    assert fresh.tip.hash == chain[-1].header.hash
    assert prune_height(fresh) == 0
    assert not fresh.peers.is_banned(liar.key.node_id)


# A block that the operator knows


def block_at(chain: Sequence[Block], height: int) -> PinnedBlock:
    return PinnedBlock(height, chain[height - 1].header.hash)


@pytest.mark.parametrize("start", StartMode)
@pytest.mark.parametrize("height", [5, AT, LENGTH])
def test_the_chain_with_the_expected_block_is_followed_though_another_has_more_work(
    make_node: MakeNode, builder: ChainBuilder, chain: list[Block], start: StartMode, height: int
) -> None:
    longer = grow(builder, LENGTH + 12, name="l")
    node = make_node(start=start, expect=block_at(chain, height))
    other, honest = archive(node, 1, longer), archive(node, 2, chain)
    meet(node, other, honest)
    assert followed(node, chain, within=10.0)
    assert prune_height(node) == (0 if start is StartMode.BLOCKS else AT + 1)
    assert not node.peers.is_banned(other.key.node_id)
    node.run(30.0)
    assert node.tip.hash == chain[-1].header.hash


@pytest.mark.parametrize("start", StartMode)
def test_a_chain_without_the_expected_block_is_followed_no_further_and_nobody_is_banned(
    make_node: MakeNode, builder: ChainBuilder, chain: list[Block], start: StartMode
) -> None:
    node = make_node(start=start, expect=PinnedBlock(7, bytes(32)))
    remote = archive(node, 1, chain)
    node.meet(remote)
    node.run(NOTHING_SECONDS + 30.0)
    assert node.tip.height < 7
    assert not node.peers.is_banned(remote.key.node_id)
    outcomes = result_of(node.node_context.chain_manager.submit_blocks([chain[6].wire()]))
    assert [type(outcome) for outcome in outcomes] == [UnexpectedBlock if node.tip.height == 6 else NotYet]


def test_no_state_is_taken_of_a_chain_that_ends_before_the_expected_block(
    make_node: MakeNode, chain: list[Block]
) -> None:
    """It may not get that block, and then the chain that has it could not be followed any more."""
    node = make_node(start=StartMode.SNAPSHOT, expect=PinnedBlock(LENGTH + 1, bytes(32)))
    node.meet(archive(node, 1, chain))
    assert followed(node, chain, within=NOTHING_SECONDS + 20.0)
    assert prune_height(node) == 0


def test_a_restart_remembers_how_much_work_the_headers_have_shown(
    tmp_path: Path, transport: MemoryTransport, builder: ChainBuilder, chain: list[Block]
) -> None:
    """A chain with more work than the state's block and less than the headers leaves the chain below the blocks."""
    node = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    remote = archive(node, 1, chain, scripts={BLOCKS: silent})
    node.meet(remote)
    assert node.until(lambda: node.tip.height == AT, within=20.0)
    node.close()
    again = Node(tmp_path, transport, Setting(start=StartMode.AUTOMATIC), builder)
    less = again.remote(2, blocks=grow(builder, AT + 3, name="x"))
    again.meet(less)
    again.run(20.0)
    assert again.tip.hash == chain[AT - 1].header.hash
    again.meet(remote)
    remote.scripts = {}
    assert followed(again, chain, within=30.0)
    again.close()


class SlowLine:
    """The line of a node, on which a chunk alone takes ``seconds``; replies with chunks share it equally."""

    def __init__(self, node: Node, seconds: float) -> None:
        self._clock, self._waits = node.transport.clock, node.transport.waiting_for
        self._seconds = seconds
        self._coming: list[tuple[RemoteNode, Called, Deferred[PeerReply], list[float]]] = []
        self.chunks = 0.0
        """How many chunks' bytes have come."""
        self._move()

    def of(self, remote: RemoteNode) -> Script:
        def script(called: Called) -> Deferred[PeerReply]:
            reply: Deferred[PeerReply] = Deferred()
            self._coming.append((remote, called, reply, [0.0]))
            return reply

        return script

    def _move(self) -> None:
        self._coming = [each for each in self._coming if each[1].path in self._waits(each[0].endpoint, PATH)]
        for remote, called, reply, come in self._coming:
            more = 0.25 / self._seconds / len(self._coming)
            size = called.request.max_bytes - client_module.ENVELOPE_BYTES
            if called.request.on_bytes is not None:
                called.request.on_bytes(int((come[0] + more) * size) - int(come[0] * size))
            come[0] += more
            self.chunks += more
            if come[0] >= 1:
                reply.callback(remote.honest(called))
        self._clock.callLater(0.25, self._move)


@pytest.mark.parametrize("sources", [1, 3, 8])
@pytest.mark.parametrize("seconds", [2.0, 12.0, 25.0])
def test_over_a_slow_line_that_more_sources_do_not_make_slower(
    fresh: Node, chain: list[Block], monkeypatch: pytest.MonkeyPatch, sources: int, seconds: float
) -> None:
    line = SlowLine(fresh, seconds)
    remotes = [archive(fresh, number, chain) for number in range(1, sources + 1)]
    sizes = [chunk.size for chunk in remotes[0].snapshots[AT][0].chunks]
    monkeypatch.setattr(snapshot_download, "WINDOW_BYTES", 8 * max(sizes))
    chunks = len(sizes)
    for remote in remotes:
        fresh.transport.dripping.add(remote.endpoint)
        remote.scripts = {f"{PATH}/{index}": line.of(remote) for index in range(chunks)}
    meet(fresh, *remotes)
    assert fresh.until(lambda: fresh.tip.height, within=60 + 3 * seconds * chunks)
    assert prune_height(fresh) == AT + 1
    assert line.chunks < 1.8 * chunks


def test_bytes_that_never_become_a_chunk_do_not_hold_a_start(fresh: Node, chain: list[Block]) -> None:
    def moves(called: Called) -> None:
        def more() -> None:
            if called.request.on_bytes is not None and called.path in fresh.transport.waiting_for(
                called.endpoint, PATH
            ):
                called.request.on_bytes(called.request.max_bytes // 20)
                fresh.transport.clock.callLater(1.0, more)

        more()

    remotes = [archive(fresh, number, chain) for number in (1, 2, 3)]
    for remote in remotes:
        fresh.transport.dripping.add(remote.endpoint)
        remote.scripts = {f"{PATH}/{index}": moves for index in range(len(remote.snapshots[AT][0].chunks))}
    meet(fresh, *remotes)
    assert fresh.until(lambda: fresh.tip.height, within=GIVE_UP_SECONDS + 3 * STALL_SECONDS)
    assert prune_height(fresh) == 0
