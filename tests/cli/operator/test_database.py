"""`svc db check`, `verify`, `rebuild` and `compact` on a devnet's data directory, sound and damaged in every table."""

import json
import os
import re
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import pytest

from svcd.chain.params import DEVNET
from svcd.cli.operator import database, verify_chain
from svcd.node import chainstate
from svcd.process.datadir import lock_directory
from svcd.seed_file import render_seed
from svcd.store.chain_store import ChainReader, ChainWriter
from svcd.store.database import WEBHOOKS, DatabaseConnection, UncleanShutdownMarker, connect, open_writer
from svcd.store.mempool_journal import FILE as JOURNAL_FILE
from svcd.store.mempool_journal import JOURNAL, MempoolJournal
from svcd.store.offline_database import Inspector, integrity, open_offline
from svcd.store.packed_transfer import unpack_transfer
from tests.chains import ChainBuilder
from tests.cli.terminal import Terminal
from tests.process_level.test_damage import spoil
from tests.rpc.node import Node, Settings
from tests.store.contents import contents as contents_of
from tests.torture.audit import audit

T = TypeVar("T")
RULES = json.loads((Path(__file__).parents[2] / "vectors" / "svc_protocol.json").read_text())["networks"]["devnet"][
    "rules"
]


@pytest.fixture(autouse=True)
def _briefly_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure this computer by few hashes: as many as a node's operator gets take longer than to verify the chain."""
    monkeypatch.setattr(verify_chain, "_RAW_HASHES", 2)


def change(chain: Path, *statements: str) -> None:
    with closing(connect(chain)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
            assert connection.changes(), statement


def contents(chain: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table; blocks by their hash, since their numbers may change."""
    by_hash = "SELECT hash, parent, height, slot, clock, work, issued, header FROM block ORDER BY hash"
    bodies = "SELECT b.hash, t.position, t.body FROM block_transaction t JOIN block b ON b.id = t.block ORDER BY 1, 2"
    undo = "SELECT b.hash, u.data FROM undo u JOIN block b ON b.id = u.block ORDER BY 1"
    canonical = "SELECT c.height, b.hash FROM canonical c JOIN block b ON b.id = c.block ORDER BY 1"
    found = {"block": by_hash, "block_transaction": bodies, "undo": undo, "canonical": canonical}
    for table in ("disconnected_transfer",):
        found[table] = f"SELECT * FROM {table} ORDER BY 1, 2, 3"  # noqa: S608
    with closing(connect(chain)) as connection:
        rows = {name: connection.execute(query).fetchall() for name, query in found.items()}
        return {**rows, **contents_of(connection, ["account_entry", "transfer_entry"])}


# check


def test_a_sound_chain_is_sound(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    assert terminal.ok("db", "check", "data").out == "data is sound: 71 blocks and all derived data\n"
    assert json.loads(terminal.ok("--data-dir", "data", "db", "check", "--json").out) == {
        "sound": True,
        "blocks": 71,
        "problems": [],
    }
    assert contents(chain) == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


DAMAGES = {
    "UPDATE account_entry SET balance = balance + 1 WHERE key = (SELECT min(key) FROM account_entry)": "1 of the ",
    "INSERT INTO account_entry VALUES (99, zeroblob(20), 1, 0, NULL)": "1 rows of account_entry belong to no run",
    "INSERT INTO transfer_entry VALUES (99, 1, 65536)": "1 rows of transfer_entry belong to no run",
    "DELETE FROM undo WHERE block = 9": "block 8: its undo record is missing or wrong",
    "UPDATE undo SET data = x'00' WHERE block = 9": "block 8: an undo record has a wrong length",
    "DELETE FROM transfer_entry": "block 1: the index does not have",
    "DELETE FROM transfer_entry WHERE place >> 16 = 70 AND key = (SELECT max(key) FROM transfer_entry "
    "WHERE place >> 16 = 70)": "block 70: the index does not have",
    "DELETE FROM transfer_run": "block 1: the index does not have",
    "INSERT INTO transfer_entry SELECT number, 1, first << 16 FROM transfer_run LIMIT 1": "transfer_entry has",
    "DELETE FROM canonical WHERE height = 30": "block 30: the canonical block at height 30 is missing",
    "UPDATE block SET clock = clock + 1 WHERE height = 30": "block 30: its chain variables are not those that follow",
    "UPDATE block SET parent = x'00' WHERE height = 30": "block 30: it does not build on the block before it",
    "UPDATE block SET header = CAST(replace(header, 'slot', 'slut') AS BLOB) WHERE height = 9": "block 9: ",
    "UPDATE block SET header = CAST(header || ' ' AS BLOB) WHERE height = 30": "block 30: it is not stored in its can",
    "DELETE FROM block_transaction WHERE block = 3": "block 2: transactionCount is 1, not 0 as there are",
    "UPDATE block_transaction SET body = x'7b7d' WHERE block = 3": "block 2: ",
    "UPDATE block_transaction SET body = x'ff' WHERE block = 3": "block 2: ",
    "INSERT INTO undo VALUES (9999, x'')": "undo has 72 rows instead of 71",
    "UPDATE block SET clock = clock + 1 WHERE height = 0": "block 0: it is not the genesis",
}


@pytest.mark.parametrize("statement", DAMAGES)
def test_damage_is_found_and_named(chain: Path, terminal: Terminal, statement: str) -> None:
    change(chain, statement)
    result = terminal.invoke("db", "check", "data")
    assert result.exit_code == 1
    assert f"wrong: {DAMAGES[statement]}" in result.stderr
    assert result.stderr.endswith("Error: data is damaged; restore a backup, or try: svc db rebuild data\n")
    record = json.loads(terminal.invoke("db", "check", "data", "--json").stdout)
    assert (record["sound"], len(record["problems"]) > 0) == (False, True)


# compact


def delete_below(connection: DatabaseConnection, height: int) -> None:
    """Delete old blocks, as a node with `keepBlocks` does."""
    store = ChainWriter(connection)
    with store.commit():
        store.delete_old_blocks(below=height, at_most=height)


def test_compacting_gives_the_space_of_deleted_blocks_back(chain: Path, terminal: Terminal) -> None:
    with closing(open_writer(chain)) as connection:
        connection.execute("CREATE TABLE filler (text BLOB)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(3000000))")
        connection.execute("DROP TABLE filler")
        delete_below(connection, 40)
    chain.chmod(0o640)
    before, size = contents(chain), chain.stat().st_size
    assert size > 3_000_000
    told = json.loads(terminal.ok("db", "compact", "data", "--json").out)
    assert told == {"bytesBefore": size, "bytes": chain.stat().st_size}
    assert told["bytes"] < size - 3_000_000
    assert contents(chain) == before
    assert chain.stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]
    assert terminal.ok("db", "check", "data").out == "data is sound: 71 blocks and all derived data\n"
    megabytes = f"{told['bytes'] / 1e6:.1f} MB"
    assert terminal.ok("db", "compact", "data").out == f"data/chain.sqlite has {megabytes} instead of {megabytes}\n"
    with closing(open_writer(chain)) as connection:
        assert ChainReader(connection).prune_height() == 40


def test_compaction_includes_the_write_ahead_log_of_a_killed_node(chain: Path, terminal: Terminal) -> None:
    with closing(open_writer(chain)) as writer:
        writer.execute("UPDATE prune SET height = 1")
        for path in (chain, chain.with_name("chain.sqlite-wal")):
            shutil.copy(path, terminal.folder)
    for name in ("chain.sqlite", "chain.sqlite-wal"):
        shutil.copy(terminal.folder / name, chain.parent)
    terminal.ok("db", "compact", "data")
    with closing(connect(chain)) as connection:
        assert connection.execute("SELECT height FROM prune").fetchall() == [(1,)]
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_a_database_that_another_program_has_open_is_not_compacted(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    with closing(open_writer(chain)) as other:
        other.execute("UPDATE prune SET height = 1")
        refusal = "data/chain.sqlite is unchanged, because chain.sqlite-wal is in use: end every program that has the "
        assert terminal.failure("db", "compact", "data") == f"{refusal}database open, and try again"
        other.execute("UPDATE prune SET height = 2")
    terminal.ok("db", "compact", "data")
    assert contents(chain) == before
    with closing(connect(chain)) as connection:
        assert connection.execute("SELECT height FROM prune").fetchall() == [(2,)]


def test_a_disk_without_room_for_the_copy_changes_nothing(chain: Path, terminal: Terminal) -> None:
    before = chain.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        told = terminal.failure("db", "compact", "data")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert told.startswith("data/chain.sqlite.new cannot be written: ")
    assert told.endswith("Nothing has been changed; it needs as much space as the database will have")
    assert chain.read_bytes() == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_a_damaged_database_is_not_compacted(chain: Path, terminal: Terminal) -> None:
    spoil(chain, "block_transaction")
    before = chain.read_bytes()
    assert "data/chain.sqlite cannot be opened as a database" in terminal.failure("db", "compact", "data")
    assert chain.read_bytes() == before


@pytest.fixture
def pruned(chain: Path) -> Path:
    """The database without the blocks below height 40."""
    with closing(open_writer(chain)) as connection:
        delete_below(connection, 40)
    return chain


def test_a_pruned_chain_is_sound(pruned: Path, terminal: Terminal) -> None:
    before = contents(pruned)
    assert terminal.ok("db", "check", "data").out == "data is sound: 71 blocks and all derived data\n"
    assert contents(pruned) == before


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "INSERT INTO account_entry SELECT number, zeroblob(20), 5, 0, NULL FROM account_run LIMIT 1",
            "the accounts and undo records do not lead back to its state root",
        ),
        ("DELETE FROM undo WHERE block = 60", "undo record of block 59 is missing"),
        ("DELETE FROM transfer_entry", "the index does not have"),
        ("UPDATE block SET header = x'00' WHERE height = 12", "block 12: "),
        ("DELETE FROM history WHERE height = 11", "block 11: its nodes of the history tree are missing or wrong"),
        ("INSERT INTO undo VALUES (10, x'00')", "undo has"),
    ],
)
def test_damage_to_a_pruned_chain_is_found(pruned: Path, terminal: Terminal, statement: str, sentence: str) -> None:
    change(pruned, statement)
    result = terminal.invoke("db", "check", "data")
    assert (result.exit_code, sentence in result.stderr) == (1, True), result.stderr


def test_the_headers_of_a_pruned_chain_are_verified(pruned: Path, terminal: Terminal) -> None:
    result = json.loads(terminal.ok("db", "verify", "data", "--json").out)
    assert (result["first"], result["headers"], result["wrong"]) == ("1", 70, None)


def test_a_pruned_chain_is_not_rebuilt(pruned: Path, terminal: Terminal) -> None:
    before = pruned.read_bytes()
    failed = terminal.failure("db", "rebuild", "data")
    assert re.search(r"has only blocks from height \d+ on, and a rebuild executes every block from the genesis", failed)
    assert (pruned.read_bytes(), [path.name for path in pruned.parent.glob("*.old*")]) == (before, [])


def test_a_damaged_page_is_found(chain: Path, terminal: Terminal) -> None:
    with chain.open("r+b") as file:
        file.seek(chain.stat().st_size // 2)
        file.write(b"\xa5" * 20_000)
    result = terminal.invoke("db", "check", "data")
    assert result.exit_code == 1
    assert "chain.sqlite" in result.stderr


TABLES = ("block", "block_transaction", "canonical", "undo", "history", "account_entry", "transfer_entry", "prune")


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("command", ["check", "verify", "compact", "rebuild"])
def test_a_page_that_fails_its_checksum_is_one_sentence(
    chain: Path, terminal: Terminal, command: str, table: str
) -> None:
    """Or the command does not read it, or rebuilds it."""
    spoil(chain, table)
    before = chain.read_bytes()
    result = terminal.invoke("db", command, "data")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if command in ("check", "compact"):
        assert result.exit_code == 1
    if result.exit_code:
        assert "fails its checksum" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("Error: ")
        assert chain.read_bytes() == before
    elif command == "rebuild":
        terminal.ok("db", "check", "data")


@pytest.mark.parametrize("name", ["node.key", "operator.key"])
def test_a_changed_digit_of_a_key_is_found(chain: Path, terminal: Terminal, name: str) -> None:
    key = chain.with_name(name)
    kind = database.KEY_FILES[name]
    key.touch(mode=0o600)
    key.write_bytes(render_seed(bytes(32), kind))
    terminal.ok("db", "check", "data")
    key.write_bytes(render_seed(bytes(32), kind).replace(b"0", b"1", 1))
    result = terminal.invoke("db", "check", "data")
    assert result.exit_code == 1
    assert f"wrong: data/{name} is damaged, because the {kind.value} in it does not have its checksum" in result.stderr
    assert result.stderr.endswith("the databases in data are sound, and the node does not start with such a key\n")
    key.write_bytes(b'{"format": "svc-keyfile-v2"}')
    terminal.ok("db", "check", "data")


def test_the_webhook_database_is_checked(chain: Path, terminal: Terminal) -> None:
    open_writer(chain.with_name("webhooks.sqlite"), WEBHOOKS).close()
    terminal.ok("db", "check", "data")
    chain.with_name("webhooks.sqlite").write_bytes(b"no database at all" * 1000)
    assert "webhooks.sqlite cannot be opened as a database" in terminal.failure("db", "check", "data")


def violate_a_constraint(path: Path) -> None:
    """Make a file that can be read and is not sound."""
    with closing(connect(path)) as connection:
        connection.execute(
            "CREATE TABLE spoiled (number INTEGER); INSERT INTO spoiled VALUES (NULL); PRAGMA writable_schema = 1;"
            "UPDATE sqlite_schema SET sql = replace(sql, 'INTEGER', 'NOT NULL') WHERE name = 'spoiled';"
        )


def test_the_remedy_is_that_of_the_file_which_is_wrong(chain: Path, terminal: Terminal) -> None:
    """A rebuild of the chain does not mend the webhooks."""
    webhooks = chain.with_name("webhooks.sqlite")
    open_writer(webhooks, WEBHOOKS).close()
    violate_a_constraint(webhooks)
    message = terminal.failure("db", "check", "data")
    assert f"{WEBHOOKS.name} in data is damaged; {WEBHOOKS.last_resort}" in message
    assert "svc db rebuild" not in message


def test_the_journal_is_checked_and_a_rebuild_does_not_change_it(chain: Path, terminal: Terminal) -> None:
    path = chain.with_name(JOURNAL_FILE)
    journal = MempoolJournal(path, DEVNET)
    journal.load()
    journal.write([(1, ChainBuilder(DEVNET).transfer("alice", "bob", 1))], [])
    journal.write([], [1])
    journal.close()
    whole = path.read_bytes()
    terminal.ok("db", "check", "data")
    path.write_bytes(whole + b"torn by a kill")
    terminal.ok("db", "check", "data")
    path.write_bytes(whole[:300] + b"!" + whole[301:])
    message = terminal.failure("db", "check", "data")
    assert message == f"the mempool's journal in data is damaged; {JOURNAL.remedy}"
    (problem,) = json.loads(terminal.invoke("db", "check", "data", "--json").stdout)["problems"]
    assert problem.startswith(f"{JOURNAL_FILE} is damaged in 1 place, ")
    path.write_bytes(b"no journal at all" * 1000)
    assert f"{JOURNAL_FILE} is damaged at its beginning, or no mempool journal" in terminal.failure(
        "db", "check", "data"
    )
    terminal.ok("db", "rebuild", "data")
    assert path.read_bytes() == b"no journal at all" * 1000


def killed(chain: Path, terminal: Terminal) -> None:
    """Leave the files of a killed node with webhooks, with uncheckpointed write-ahead logs."""
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    terminal.operator.site = node.operator
    terminal.ok("node", "mine", 1)
    webhooks = chain.with_name("webhooks.sqlite")
    with closing(open_writer(webhooks, WEBHOOKS)) as connection:
        UncleanShutdownMarker(webhooks).create()
        connection.execute("CREATE TABLE promised (n INTEGER)")
        left = {path: path.read_bytes() for path in chain.parent.iterdir() if path.name != "lock"}
    node.close()
    for path, content in left.items():
        path.write_bytes(content)


@pytest.mark.parametrize("command", ["check", "rebuild", "compact"])
def test_checking_after_a_kill_does_not_make_the_log_look_lost(chain: Path, terminal: Terminal, command: str) -> None:
    """The command checkpoints the logs; a node with webhooks refuses to start if logs are lost."""
    killed(chain, terminal)
    marks = [UncleanShutdownMarker(chain), UncleanShutdownMarker(chain.with_name("webhooks.sqlite"))]
    assert all(mark.path.exists() and mark.log.stat().st_size for mark in marks)
    terminal.ok("db", "check", "data")
    terminal.ok("db", command, "data")
    assert not any(mark.log_is_missing or mark.log.exists() for mark in marks)
    with closing(connect(marks[1].database)) as connection:
        assert connection.execute("SELECT count(*) FROM promised").fetchone() == (0,)
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert node.node_context.chain_manager.tip.height == 71
    node.close()


def test_confirmed_commits_behind_damage_in_a_log_are_found(chain: Path, terminal: Terminal) -> None:
    killed(chain, terminal)
    log = chain.with_name("webhooks.sqlite-wal")
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    for _ in range(2):
        assert "webhooks.sqlite-wal is damaged, and has commits that" in terminal.failure("db", "check", "data")
    assert log.read_bytes() == content


def test_a_missing_log_is_still_reported_after_a_check(chain: Path, terminal: Terminal) -> None:
    """The node must still notice the loss."""
    mark = UncleanShutdownMarker(chain)
    mark.create()
    terminal.ok("db", "check", "data")
    assert mark.log_is_missing


def test_unusable_directories_are_reported(chain: Path, terminal: Terminal) -> None:
    assert terminal.failure("db", "check", "nowhere") == (
        "there is no nowhere/chain.sqlite; give the data directory of a node"
    )
    assert not Path("nowhere").exists()
    (chain.parent / "other").mkdir()
    other = shutil.copy(chain, chain.parent / "other")
    change(other, "DELETE FROM canonical WHERE height = 0")
    for command in ("check", "rebuild"):
        assert terminal.failure("db", command, "data/other") == (
            "the database does not begin with the genesis of a known network (svc --network FILE)"
        )
    change_version(chain, 99)
    assert "was written by a newer svcd (schema 99, this program knows" in terminal.failure("db", "check", "data")
    lock = lock_directory(chain.parent)
    for command in ("check", "rebuild", "compact"):
        assert f"is in use by another node (process {os.getpid()})" in terminal.failure("db", command, "data")
    os.close(lock)


def change_version(chain: Path, version: int) -> None:
    with closing(connect(chain)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


# rebuild


def test_a_rebuilt_chain_is_the_same(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["lost"], told["why"]) == ("70", 0, None)
    assert told["sideBlocks"] == 3
    assert contents(chain) == before
    assert contents(Path(told["kept"])) == before
    audit(chain, RULES)
    names = sorted(path.name for path in chain.parent.iterdir())
    assert names == ["chain.sqlite", "chain.sqlite.old-1", "lock"]


MENDED = [
    "UPDATE account_entry SET balance = balance + 1",
    "DELETE FROM account_entry",
    "DELETE FROM account_run",
    "DELETE FROM undo",
    "DELETE FROM transfer_run",
    "DELETE FROM transfer_entry",
    "DELETE FROM history",
]


@pytest.mark.parametrize("statement", MENDED)
def test_a_rebuild_repairs_derived_data(chain: Path, terminal: Terminal, statement: str) -> None:
    before = contents(chain)
    change(chain, statement)
    told = terminal.ok("db", "rebuild", "data").out
    assert "tip          70, " in told
    assert contents(chain) == before
    terminal.ok("db", "check", "data")
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    node.close()


def test_a_rebuild_leaves_out_side_blocks_that_a_running_node_would_not_store(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chainstate, "SIDE_DEPTH", 2)
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["sideBlocks"]) == ("70", 0)


def test_a_damaged_block_ends_the_new_chain_before_it(chain: Path, terminal: Terminal) -> None:
    change(chain, "UPDATE block SET clock = clock + 1 WHERE height = 30")
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["lost"]) == ("29", 41)
    assert told["why"] == "block 30: its chain variables are not those that follow from the headers"
    terminal.ok("db", "check", "data")
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert node.node_context.chain_manager.tip.height == 29
    node.close()


def test_a_failed_rebuild_changes_nothing(chain: Path, terminal: Terminal) -> None:
    chain.write_bytes(b"no database at all" * 1000)
    assert "cannot be opened as a database" in terminal.failure("db", "rebuild", "data")
    assert chain.read_bytes() == b"no database at all" * 1000
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_a_damaged_tip_is_replaced_by_its_sibling(chain: Path, terminal: Terminal) -> None:
    """The reported tip is that of the final chain."""
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    terminal.operator.site = node.operator
    terminal.ok("node", "reorganise", 1)
    node.close()
    change(chain, "UPDATE block SET clock = clock + 1 WHERE id IN (SELECT block FROM canonical WHERE height > 69)")
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert (told["height"], told["hash"]) == ("70", node.node_context.chain_manager.tip.hash.hex())
    assert (told["lost"], told["sideBlocks"]) == (2, 4)
    node.close()


def test_a_flipped_bit_is_found_in_every_page(chain: Path, terminal: Terminal) -> None:
    """In those that no table uses as well; the page is told, and its table."""
    with closing(connect(chain)) as connection:
        connection.execute("CREATE TABLE made_up (text TEXT); INSERT INTO made_up VALUES (hex(zeroblob(30000)))")
        connection.execute("DROP TABLE made_up")
        used = dict(connection.execute("SELECT pageno, name FROM dbstat"))
    whole = chain.read_bytes()
    pages = len(whole) // 4096
    assert len(used) < pages
    for page in range(2, pages + 1):
        spoiled = bytearray(whole)
        spoiled[(page - 1) * 4096 + 1000] ^= 4
        chain.write_bytes(spoiled)
        with open_offline(chain) as connection:
            (problem,) = integrity(chain, connection)
        user = f"of {used[page]}" if page in used else "unused"
        assert problem in (
            f"page {page}, {user}, fails its checksum",
            f"page {page}, in use or not, fails its checksum",
        )
    assert f"wrong: chain.sqlite: {problem}" in terminal.invoke("db", "check", "data").stderr


def test_unreadable_transfers_do_not_stop_a_rebuild(chain: Path, terminal: Terminal) -> None:
    spoil(chain, "disconnected_transfer")
    assert "of disconnected_transfer, fails its checksum" in terminal.invoke("db", "check", "data").stderr
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["sideBlocks"]) == ("70", 3)
    assert told["unread"] == ["transfers of undone blocks: it cannot be read: a page fails its checksum"]
    terminal.ok("db", "check", "data")
    chain.with_name("chain.sqlite.old-1").replace(chain)
    assert "not copied   transfers of undone blocks: it cannot be read" in terminal.ok("db", "rebuild", "data").out


def test_a_damaged_transfer_of_an_undone_block_is_left_out(chain: Path, terminal: Terminal) -> None:
    with closing(connect(chain)) as connection:
        (packed,) = connection.execute("SELECT body FROM block_transaction WHERE block = 3").fetchone()
    fell_out = "INSERT INTO disconnected_transfer (txid, body) VALUES (x'{}', x'{}')"
    change(chain, fell_out.format("01", "7b7d"), fell_out.format("02", unpack_transfer(packed).hex()))
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["unread"]) == ("70", [])
    assert len(contents(Path(told["kept"]))["disconnected_transfer"]) == 2
    assert len(contents(chain)["disconnected_transfer"]) == 1


def test_every_rebuild_keeps_the_old_file(chain: Path, terminal: Terminal) -> None:
    kept = [json.loads(terminal.ok("db", "rebuild", "data", "--json").out)["kept"] for _ in range(3)]
    assert kept == [f"data/chain.sqlite.old-{number}" for number in (1, 2, 3)]
    assert all(Path(path).stat().st_size for path in kept)


def test_a_rebuilt_file_has_the_mode_of_the_old_one(chain: Path, terminal: Terminal) -> None:
    chain.chmod(0o640)
    terminal.ok("db", "rebuild", "data")
    found = {path.name: path.stat().st_mode & 0o777 for path in chain.parent.iterdir()}
    assert found == {"chain.sqlite": 0o640, "chain.sqlite.old-1": 0o640, "lock": 0o600}


def test_a_full_disk_is_not_reported_as_damage(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving the old file away would lose it."""
    before = chain.read_bytes()
    real = database.open_writer

    def small(path: Path) -> DatabaseConnection:
        connection = real(path)
        connection.execute("PRAGMA max_page_count = 24")
        return connection

    monkeypatch.setattr(database, "open_writer", small)
    assert terminal.failure("db", "rebuild", "data") == (
        "data/chain.sqlite.new cannot be written: database or disk is full. Nothing has been changed; it needs as much "
        "space as the old file uses"
    )
    assert chain.read_bytes() == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


@pytest.mark.parametrize(
    ("question", "answered", "told"),
    [
        ("canonical", 0, "data/chain.sqlite cannot be used: disk I/O error; "),
        ("tip", 0, "data/chain.sqlite cannot be used: disk I/O error; "),
        ("tip", 1, "it cannot be read: disk I/O error"),
    ],
)
def test_an_unreadable_old_file_is_not_reported_as_a_full_disk(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, question: str, answered: int, told: str
) -> None:
    real, answers = getattr(Inspector, question), iter([True] * answered)

    def failing(inspector: Inspector, *given: Any) -> Any:
        if not next(answers, False):
            error = apsw.IOError("disk I/O error")
            raise error
        return real(inspector, *given)

    before = chain.read_bytes()
    monkeypatch.setattr(Inspector, question, failing)
    assert terminal.failure("db", "rebuild", "data").startswith(told)
    assert chain.read_bytes() == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_the_progress_bar_is_full_only_at_the_end(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last block the accounts are compared, and pending transfers copied."""
    moves: list[int] = []
    before: list[int] = []
    after: list[tuple[int, int]] = []
    real = database.click.progressbar

    @contextmanager
    def bar(*, length: int, **options: Any) -> Iterator[Any]:
        moves.clear()
        with real(length=length, **options) as shown:
            move = shown.update
            monkeypatch.setattr(shown, "update", lambda steps: (moves.append(steps), move(steps)))
            yield shown
        # A hidden bar of length 0 only imports what bars need.
        after.extend([(sum(moves), length)] if length else [])

    def noting(work: Callable[..., T]) -> Callable[..., T]:
        def done(*arguments: Any) -> T:
            result = work(*arguments)
            before.append(sum(moves))
            return result

        return done

    monkeypatch.setattr(database.click, "progressbar", bar)
    for name in ("verify_chain", "reindex"):
        monkeypatch.setattr(database, name, noting(getattr(database, name)))
    terminal.ok("db", "check", "data")
    terminal.ok("db", "rebuild", "data")
    assert (before, after) == ([71, 70], [(72, 72), (71, 71)])


def test_progress_bars_are_shown_at_terminals_only(chain: Path, terminal: Terminal) -> None:
    assert terminal.ok("db", "check", "data").err == ""
    terminal.stderr_is_terminal = True
    assert "Executing the blocks" in terminal.ok("db", "check", "data").err
    assert "Executing the blocks" in terminal.ok("db", "rebuild", "data").err
    assert terminal.ok("db", "check", "data", "--json").err == ""


# verify


def test_valid_headers(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    lines = terminal.ok("db", "verify", "data").out.splitlines()
    assert lines[0] == "headers     70 valid, from block 1 on"
    assert lines[1].startswith("rate        ")
    assert lines[2].startswith("raw Argon2  ")
    record = json.loads(terminal.ok("db", "verify", "data", "--count", 10, "--json").out)
    assert (record["first"], record["headers"], record["wrong"]) == ("61", 10, None)
    assert record["ratio"] == pytest.approx(record["headersPerSecond"] / record["argon2PerSecond"], abs=0.01)
    assert contents(chain) == before


def test_every_header_is_verified(chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    real = verify_chain.check_work
    monkeypatch.setattr(
        verify_chain, "check_work", lambda header, params: (worked.append(header.height), real(header, params))
    )
    monkeypatch.setattr(verify_chain, "BATCH", 16)
    terminal.ok("db", "verify", "data")
    assert sorted(worked) == list(range(1, 71))
    worked.clear()
    terminal.ok("db", "verify", "data", "--count", 1_000)
    assert sorted(worked) == list(range(1, 71))


WRONG_HEADERS = {
    'UPDATE block SET header = CAST(replace(header, \'"signature":"\', \'"signature":"00\') AS BLOB)': "signature",
    "UPDATE block SET header = CAST(replace(header, 'slot', 'slut') AS BLOB)": "unknown field",
    "UPDATE block SET header = CAST(replace(header, '\"multiplier\":', '\"multiplier\":1') AS BLOB)": "own hash",
    "DELETE FROM canonical": "is missing",
}


@pytest.mark.parametrize("statement", WRONG_HEADERS)
def test_the_first_bad_header_is_named(chain: Path, terminal: Terminal, statement: str) -> None:
    place = "WHERE height IN (30, 40)"
    change(chain, f"{statement} {place}")
    result = terminal.invoke("db", "verify", "data")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: block 30: ")
    assert WRONG_HEADERS[statement] in result.stderr
    assert result.stderr.count("\n") == 1
    record = json.loads(terminal.invoke("db", "verify", "data", "--json").stdout)
    assert (record["headers"], record["wrong"].startswith("block 30: ")) == (29, True)
    terminal.ok("db", "verify", "data", "--count", 20)


def test_a_forged_signature_is_found(chain: Path, terminal: Terminal) -> None:
    """The block hash does not cover the signature, so `svc db check` does not find it."""
    with closing(connect(chain)) as connection, connection:
        rows = connection.execute("SELECT header FROM block b JOIN canonical c ON c.block = b.id WHERE c.height = 30")
        header = json.loads(rows.fetchone()[0])
        forged = header["signature"][:-128] + "0" * 128
        connection.execute(
            "UPDATE block SET header = CAST(replace(header, ?, ?) AS BLOB) WHERE height = 30",
            (header["signature"], forged),
        )
    result = terminal.invoke("db", "verify", "data")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: block 30: block ")
    assert result.stderr.endswith("is not signed by its producer's key\n")


def test_the_documented_example_matches_the_output(chain: Path, terminal: Terminal) -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text("utf-8")
    command, *shown = re.findall(r"(?m)^    \$ svc (db verify .*)\n((?:    .*\n)+)", page)[0]
    printed = terminal.ok(*command.split()).out
    assert re.sub(r"[0-9.]+", "#", printed) == re.sub(r"[0-9.]+", "#", "\n".join(shown).replace("    ", "", 1)).replace(
        "\n    ", "\n"
    )
