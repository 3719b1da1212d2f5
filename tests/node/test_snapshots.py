"""Snapshots of the state: right after each block, whatever has happened since, and served only while they are right."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import Corrupt
from svcd.chain.snapshot import RECORD_BYTES, check_chunk, check_manifest, pack_account
from svcd.chain.state_root import state_root
from svcd.node import snapshots as module
from svcd.node.database_health import DatabaseHealth, ReportingWorker
from svcd.node.snapshots import DEPTH, Snapshots
from svcd.node.threads import InlineWorker
from svcd.store import external_sort, snapshot_file
from svcd.store.database import NoChecksums
from svcd.store.snapshot_file import SnapshotDamaged, SnapshotFile
from tests.chains import COIN, ChainBuilder, key_of
from tests.node.bench import Node, Stepped, running, snapshots_beside
from tests.process_level.test_damage import spoil
from tests.store.contents import files_of_at_most
from tests.store.damage import overwrite
from tests.store.test_external_sort import small_sort, unnamed_files
from tests.support import has_result, result_of

EVERY = 10
LOSE_UNDO = "DELETE FROM undo WHERE block = (SELECT block FROM canonical WHERE height = ?)"


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot every ten blocks."""
    monkeypatch.setattr(module, "SNAPSHOT_BLOCKS", EVERY)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with running(tmp_path) as node:
        yield node


@pytest.fixture
def chain() -> ChainBuilder:
    return ChainBuilder()


def grow(chain: ChainBuilder, count: int, on: Block | None = None, name: str = "b") -> list[Block]:
    """Blocks with a transfer each to somebody new."""
    blocks: list[Block] = []
    for number in range(count):
        parent = blocks[-1] if blocks else on
        nonce = chain.account_after(parent, "alice").nonce
        transfer = chain.transfer("alice", f"{name}{number}", 7, nonce=nonce)
        slot = chain.point_after(parent).slot + 2
        blocks.append(chain.block(parent, slot=slot, producer=name, transfers=[transfer]))
    return blocks


def made(node: Node, folder: Path, **changes: Any) -> Snapshots:
    snapshots = snapshots_beside(folder / "chain.sqlite", node.chain_manager, **changes)
    check(snapshots)
    return snapshots


def check(snapshots: Snapshots) -> None:
    result_of(Deferred.fromCoroutine(snapshots.check()))


def heights(snapshots: Snapshots) -> list[int]:
    return [file.manifest.height for file in snapshots.served]


def accounts_in(snapshots: Snapshots, file: SnapshotFile) -> dict[bytes, Account]:
    chunks = [result_of(snapshots.chunk(file, index)) for index in range(len(file.manifest.chunks))]
    return dict(each for index, chunk in enumerate(chunks) for each in check_chunk(file.manifest, index, chunk))


def sound(snapshots: Snapshots, chain: ChainBuilder, blocks: list[Block]) -> None:
    """Each snapshot has the accounts after its block."""
    for file in snapshots.served:
        block = blocks[file.manifest.height - 1]
        assert file.manifest.hash == block.header.hash
        check_manifest(file.manifest, block.header.state_root)
        assert accounts_in(snapshots, file) == chain.accounts_after(block)


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        (0, []),
        (EVERY + DEPTH - 1, []),
        (EVERY + DEPTH, [EVERY]),
        (2 * EVERY + DEPTH - 1, [EVERY]),
        (4 * EVERY + DEPTH + 3, [4 * EVERY, 3 * EVERY]),
    ],
)
def test_the_newest_two_are_made(
    node: Node, chain: ChainBuilder, tmp_path: Path, blocks: int, found: list[int]
) -> None:
    grown = grow(chain, blocks)
    node.submit(*grown)
    snapshots = made(node, tmp_path)
    assert heights(snapshots) == found
    sound(snapshots, chain, grown)


def test_older_ones_are_removed_as_the_chain_grows(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    blocks = grow(chain, 3 * EVERY + DEPTH)
    node.submit(*blocks[: 2 * EVERY + DEPTH])
    snapshots = made(node, tmp_path)
    assert heights(snapshots) == [2 * EVERY, EVERY]
    node.submit(*blocks[2 * EVERY + DEPTH :])
    check(snapshots)
    assert heights(snapshots) == [3 * EVERY, 2 * EVERY]
    assert sorted(path.name for path in tmp_path.glob("snapshot-*")) == ["snapshot-20", "snapshot-30"]


def test_a_snapshot_whose_block_was_undone_is_made_again(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    ours = grow(chain, EVERY + DEPTH)
    node.submit(*ours)
    snapshots = made(node, tmp_path)
    theirs = ours[:5] + grow(chain, EVERY + DEPTH, ours[4], "t")
    node.submit(*theirs[5:])
    assert node.tip == theirs[-1].header.hash
    check(snapshots)
    assert heights(snapshots) == [EVERY]
    sound(snapshots, chain, theirs)


def test_one_whose_block_was_undone_while_it_was_made_is_not_served(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    ours = grow(chain, EVERY + DEPTH)
    node.submit(*ours)
    files = Stepped()
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, files=files)
    checked = Deferred.fromCoroutine(snapshots.check())
    files.step()
    theirs = ours[:5] + grow(chain, EVERY + DEPTH, ours[4], "t")
    node.submit(*theirs[5:])
    files.finish()
    result_of(checked)
    check_again = Deferred.fromCoroutine(snapshots.check())
    files.finish()
    result_of(check_again)
    sound(snapshots, chain, theirs)
    assert heights(snapshots) == [EVERY]


def test_they_are_kept_over_a_restart(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    blocks = grow(chain, 2 * EVERY + DEPTH)
    node.submit(*blocks)
    before = [(file.path, file.digest, file.path.stat().st_ino) for file in made(node, tmp_path).served]
    again = made(node, tmp_path)
    assert [(file.path, file.digest, file.path.stat().st_ino) for file in again.served] == before
    sound(again, chain, blocks)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-1],
        lambda data: data[:40] + data[44:],
        lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:],
        lambda data: data + b"\0",
    ],
)
def test_a_file_that_is_no_snapshot_is_made_again(node: Node, chain: ChainBuilder, tmp_path: Path, damage: Any) -> None:
    blocks = grow(chain, EVERY + DEPTH)
    node.submit(*blocks)
    (file,) = made(node, tmp_path).served
    right = file.path.read_bytes()
    file.path.write_bytes(damage(right))
    again = made(node, tmp_path)
    sound(again, chain, blocks)
    assert file.path.read_bytes() == right


def test_a_damaged_chunk_is_never_sent(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    blocks = grow(chain, EVERY + DEPTH)
    node.submit(*blocks)
    snapshots = made(node, tmp_path)
    (file,) = snapshots.served
    data = bytearray(file.path.read_bytes())
    data[RECORD_BYTES + 25] ^= 1
    file.path.write_bytes(data)
    with pytest.raises(SnapshotDamaged, match="does not have its checksum"):
        result_of(snapshots.chunk(file, 0))
    assert snapshots.served == []
    check(snapshots)
    sound(snapshots, chain, blocks)


def test_a_read_that_ends_after_its_snapshot_was_replaced_hurts_the_new_one_in_nothing(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    """Both have the name of their height."""
    ours = grow(chain, EVERY + DEPTH)
    node.submit(*ours)
    reader = Stepped()
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, reader=reader)
    check(snapshots)
    (old,) = snapshots.served
    late = snapshots.chunk(old, 0)
    theirs = ours[:5] + grow(chain, EVERY + DEPTH, ours[4], "t")
    node.submit(*theirs[5:])
    check(snapshots)
    (new,) = snapshots.served
    assert new.path == old.path
    with capturedLogs() as events:
        reader.step()
        with pytest.raises(SnapshotDamaged):
            result_of(late)
    assert events == []
    check(snapshots)
    assert snapshots.served == [new]
    read = snapshots.chunk(new, 0)
    reader.step()
    assert dict(check_chunk(new.manifest, 0, result_of(read))) == chain.accounts_after(theirs[EVERY - 1])


@pytest.mark.parametrize("damage", ["a page", "a record", "the checksums"])
def test_damage_of_the_database_ends_the_node(
    node: Node, chain: ChainBuilder, tmp_path: Path, expected_errors: Callable[..., list[Any]], damage: str
) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    if damage == "a record":
        node.connections[0].execute(LOSE_UNDO, (EVERY + 1,))
    node.connections[0].execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if damage == "a page":
        spoil(tmp_path / "chain.sqlite", "undo")
    elif damage == "the checksums":
        overwrite(tmp_path / "chain.sqlite", 1, 20, b"\0")
    stopped: list[bool] = []
    health = DatabaseHealth(lambda: stopped.append(True))
    snapshots = snapshots_beside(
        tmp_path / "chain.sqlite", node.chain_manager, files=ReportingWorker(InlineWorker(), health)
    )
    with pytest.raises((apsw.IOError, Corrupt, NoChecksums)):
        check(snapshots)
    assert (snapshots.served, stopped) == ([], [True])
    assert len(expected_errors()) == 1


def test_files_are_deleted_in_a_thread(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    """A file of some hundred MiB takes a tenth of a second."""
    blocks = grow(chain, 2 * EVERY + DEPTH)
    node.submit(*blocks[: EVERY + DEPTH])
    files = Stepped()
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, files=files)
    checked = Deferred.fromCoroutine(snapshots.check())
    files.finish()
    result_of(checked)
    (file,) = snapshots.served
    data = file.path.read_bytes()
    file.path.write_bytes(bytes(len(data)))
    with pytest.raises(SnapshotDamaged):
        result_of(snapshots.chunk(file, 0))
    assert (snapshots.served, file.path.exists()) == ([], True)
    checked = Deferred.fromCoroutine(snapshots.check())
    assert (len(files), file.path.exists()) == (1, True)
    files.step()
    assert not file.path.exists()
    files.finish()
    result_of(checked)
    assert file.path.read_bytes() == data


def test_a_snapshot_that_was_damaged_while_another_was_made_is_made_at_once(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    """Its new file, which takes the place of the damaged one, stays."""
    blocks, files = grow(chain, 3 * EVERY + DEPTH), Stepped()
    node.submit(*blocks[: 2 * EVERY + DEPTH])
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, files=files)
    checked = Deferred.fromCoroutine(snapshots.check())
    files.finish()
    result_of(checked)
    node.submit(*blocks[2 * EVERY + DEPTH :])
    checked = Deferred.fromCoroutine(snapshots.check())
    # The oldest is deleted, and the newest is next.
    files.step()
    (file,) = snapshots.served
    file.path.write_bytes(bytes(file.path.stat().st_size))
    with pytest.raises(SnapshotDamaged):
        result_of(snapshots.chunk(file, 0))
    files.finish()
    result_of(checked)
    assert heights(snapshots) == [3 * EVERY, 2 * EVERY]
    checked = Deferred.fromCoroutine(snapshots.check())
    files.finish()
    result_of(checked)
    sound(snapshots, chain, blocks)
    assert sorted(path.name for path in tmp_path.glob("snapshot-*")) == ["snapshot-20", "snapshot-30"]


def test_no_transaction_reads_once_the_accounts_have_been_read(
    node: Node, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one does, the write-ahead log keeps all later commits, and hashing the accounts takes minutes."""
    node.submit(*grow(chain, EVERY + DEPTH))
    read_chunks, left = snapshot_file._read_chunks, []

    def checkpoint() -> tuple[int, int, int]:
        with node.store.commit():
            node.connections[0].execute("UPDATE prune SET height = height")
        return node.connections[0].execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def reading(*args: Any) -> Any:
        left.append(checkpoint())
        return read_chunks(*args)

    monkeypatch.setattr(snapshot_file, "_read_chunks", reading)
    assert heights(made(node, tmp_path)) == [EVERY]
    assert left == [(0, 0, 0)]


def test_a_link_in_the_place_of_the_new_file_is_not_followed(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    blocks = grow(chain, EVERY + DEPTH)
    node.submit(*blocks)
    other = tmp_path / "other"
    other.write_text("of somebody else")
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager)
    check(snapshots)
    (file,) = snapshots.served
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        result_of(snapshots.chunk(file, 0))
    (tmp_path / "snapshot-10.new").symlink_to(other)
    check(snapshots)
    sound(snapshots, chain, blocks)
    assert other.read_text() == "of somebody else"


def test_accounts_that_do_not_give_the_state_root_are_not_made_into_one(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    # Of an account that no later block has touched.
    node.connections[0].execute("UPDATE account_entry SET balance = balance + 1 WHERE key = ?", (key_of("b0").hash,))
    with pytest.raises(Corrupt):
        made(node, tmp_path)
    assert list(tmp_path.glob("snapshot-*")) == []


def test_what_later_blocks_have_changed_need_not_fit_into_memory(
    node: Node, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_sort(monkeypatch)
    blocks = grow(chain, 2 * EVERY + DEPTH)
    node.submit(*blocks)
    snapshots = made(node, tmp_path)
    assert heights(snapshots) == [2 * EVERY, EVERY]
    sound(snapshots, chain, blocks)


@pytest.mark.slow
def test_a_snapshot_is_made_whatever_full_blocks_have_changed_since(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    """More than 4 MiB of undo records, of accounts that are created, emptied and changed again and again."""
    blocks = grow(chain, EVERY - 1)
    nonce = chain.account_after(blocks[-1], "alice").nonce
    half = chain.params.max_block_transactions
    amount = COIN // 100
    paying = [chain.transfer("alice", f"s{number}", amount, nonce=nonce + number) for number in range(half)]
    slot = chain.point_after(blocks[-1]).slot + 2
    blocks.append(chain.block(blocks[-1], slot=slot, producer="b", transfers=paying))
    for turn in range(DEPTH + 15):
        paying = [chain.transfer(f"s{number}", f"r{number}", 1, nonce=turn) for number in range(half)]
        slot += 2
        blocks.append(chain.block(blocks[-1], slot=slot, producer="b", transfers=paying))
    for block in blocks:
        node.submit(block)
    ((size,),) = node.connections[0].execute(
        "SELECT sum(length(data)) FROM undo JOIN canonical USING (block) WHERE height > ?", (EVERY,)
    )
    assert size > 4 * 1024 * 1024
    snapshots = made(node, tmp_path)
    assert heights(snapshots) == [2 * EVERY, EVERY]
    sound(snapshots, chain, blocks)


def test_a_block_below_undo_records_that_were_deleted_has_none(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    node.submit(*grow(chain, 2 * EVERY + DEPTH))
    node.connections[0].execute("UPDATE prune SET height = ? + 1", (EVERY + 1,))
    assert heights(made(node, tmp_path)) == [2 * EVERY]
    assert [path.name for path in tmp_path.glob("snapshot-*")] == ["snapshot-20"]


def test_a_block_whose_undo_records_begin_right_after_it_has_one(
    node: Node, chain: ChainBuilder, tmp_path: Path
) -> None:
    node.submit(*grow(chain, 2 * EVERY + DEPTH))
    node.connections[0].execute("UPDATE prune SET height = ?", (EVERY + 1,))
    assert heights(made(node, tmp_path)) == [2 * EVERY, EVERY]


def test_no_snapshot_is_made_while_the_node_catches_up(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    assert made(node, tmp_path, may_make=lambda: False).served == []


def test_a_stop_gives_up_the_one_that_is_being_made(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, sleep=lambda _: snapshots.stopService())
    check(snapshots)
    assert snapshots.served == []
    assert list(tmp_path.glob("snapshot-*")) == []


def test_a_stop_gives_up_the_accounts_that_are_being_sorted(
    node: Node, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_sort(monkeypatch)
    node.submit(*grow(chain, EVERY + DEPTH))
    before = unnamed_files()
    rests: list[int] = []

    def stop_later(_: float) -> None:
        rests.append(unnamed_files())
        if len(rests) == 20:
            snapshots.stopService()

    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, sleep=stop_later)
    check(snapshots)
    assert len(rests) == 20
    assert unnamed_files() == before < max(rests)
    assert snapshots.served == []
    assert list(tmp_path.glob("snapshot-*")) == []


@pytest.mark.parametrize("refused", ["open", "write", "read"])
def test_a_disk_that_refuses_the_accounts_that_are_being_sorted_is_tried_again_later(
    node: Node, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    small_sort(monkeypatch)
    blocks = grow(chain, EVERY + DEPTH)
    node.submit(*blocks)
    now = [0.0]

    def lost(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    before = unnamed_files()
    with monkeypatch.context() as patched, capturedLogs() as events, ExitStack() as limited:
        if refused == "open":
            patched.setattr(external_sort, "TemporaryFile", lost)
        elif refused == "read":
            patched.setattr(external_sort.os, "pread", lost)
        else:
            limited.enter_context(files_of_at_most(200))
        snapshots = made(node, tmp_path, seconds=lambda: now[0])
    assert [formatEvent(event) for event in events if "snapshot" in event["log_format"]] == [
        "the snapshot of block 10 cannot be written: "
        + ("[Errno 27] File too large" if refused == "write" else "[Errno 5] Input/output error")
        + ". It is tried again in 600.0 s"
    ]
    assert unnamed_files() == before
    assert list(tmp_path.glob("snapshot-*")) == []
    now[0] = module.RETRY_SECONDS
    check(snapshots)
    assert heights(snapshots) == [EVERY]
    sound(snapshots, chain, blocks)


def test_a_full_disk_is_tried_again_later(
    node: Node, chain: ChainBuilder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    now = [0.0]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_file.os, "fsync", full)
        snapshots = made(node, tmp_path, seconds=lambda: now[0])
    assert list(tmp_path.glob("snapshot-*")) == []
    check(snapshots)
    assert snapshots.served == []
    now[0] = module.RETRY_SECONDS
    check(snapshots)
    assert heights(snapshots) == [EVERY]


def test_the_thread_rests_three_times_as_long_as_it_works(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    now, rests = [0.0], []

    def seconds() -> float:
        now[0] += 0.25
        return now[0]

    made(node, tmp_path, seconds=seconds, sleep=rests.append)
    assert len(rests) >= 2
    assert set(rests) == {0.25 * module.REST}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=st.integers(2, 9),
    accounts=st.dictionaries(st.binary(min_size=20, max_size=20), st.integers(0, 2**53 - 1), max_size=30),
)
def test_a_file_has_the_accounts_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int, accounts: dict[bytes, int]
) -> None:
    monkeypatch.setattr(snapshot_file, "_PIECE_ACCOUNTS", pieces)
    state = {key: Account(balance) for key, balance in sorted(accounts.items())}
    records = [pack_account(key, each.balance, 0, None) for key, each in state.items()]
    point = ChainBuilder().point_after(None)
    snapshot_file.write_snapshot(tmp_path / "one", point, state_root(state.items()), records, lambda: None)
    file = SnapshotFile.open(tmp_path / "one")
    assert dict(check_chunk(file.manifest, 0, file.chunk(0))) == state


def test_a_snapshot_on_disk_is_served_once_it_has_been_read(node: Node, chain: ChainBuilder, tmp_path: Path) -> None:
    node.submit(*grow(chain, EVERY + DEPTH))
    made(node, tmp_path)
    files = Stepped()
    snapshots = snapshots_beside(tmp_path / "chain.sqlite", node.chain_manager, files=files)
    checked = Deferred.fromCoroutine(snapshots.check())
    assert not has_result(checked)
    assert snapshots.at(EVERY) is None
    files.finish()
    assert snapshots.at(EVERY) is not None
