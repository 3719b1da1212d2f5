"""`svc db check`, `verify` and `rebuild` on a data directory of a devnet, sound and damaged in every table."""

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from svcd.chain.params import DEVNET
from svcd.console import db_commands
from svcd.node import header_verification, verifier
from svcd.process.datadir import lock_directory
from svcd.store.database import WEBHOOKS, open_writer
from svcd.store.inspection import Inspector
from svcd.store.mark import OpenMark
from tests.process_level.test_damage import spoil
from tests.rpc.node import Node, Settings
from tests.torture.audit import audit
from tests.wallet.terminal import Terminal

T = TypeVar("T")
RULES = json.loads((Path(__file__).parents[1] / "vectors" / "svc_protocol.json").read_text())["networks"]["devnet"][
    "rules"
]


def change(chain: Path, *statements: str) -> None:
    with closing(sqlite3.connect(chain)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount, statement


def contents(chain: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table; blocks by their hash, since their numbers may change."""
    by_hash = "SELECT hash, parent, height, slot, clock, work, issued, header FROM block ORDER BY hash"
    bodies = "SELECT b.hash, t.position, t.body FROM block_transaction t JOIN block b ON b.id = t.block ORDER BY 1, 2"
    undo = "SELECT b.hash, u.data FROM undo u JOIN block b ON b.id = u.block ORDER BY 1"
    canonical = "SELECT c.height, b.hash FROM canonical c JOIN block b ON b.id = c.block ORDER BY 1"
    found = {"block": by_hash, "block_transaction": bodies, "undo": undo, "canonical": canonical}
    for table in ("account", "transaction_place", "address_place", "payment_place", "pool"):
        found[table] = f"SELECT * FROM {table} ORDER BY 1, 2, 3"  # noqa: S608
    with closing(sqlite3.connect(chain)) as connection:
        return {name: connection.execute(query).fetchall() for name, query in found.items()}


# check


def test_a_sound_chain_is_sound(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    assert terminal.ok("db", "check", "data").out == "data is sound: 71 blocks and all that follows from them\n"
    assert json.loads(terminal.ok("--data-dir", "data", "db", "check", "--json").out) == {
        "sound": True,
        "blocks": 71,
        "problems": [],
    }
    assert contents(chain) == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


DAMAGES = {
    "UPDATE account SET balance = balance + 1 WHERE key = (SELECT min(key) FROM account)": "1 of the accounts: not",
    "DELETE FROM undo WHERE block = 9": "block 8: its undo record is missing or wrong",
    "UPDATE undo SET data = x'00' WHERE block = 9": "block 8: an undo record has a wrong length",
    "DELETE FROM transaction_place": "block 1: the index of transfers does not have",
    "DELETE FROM address_place": "block 1: the index of addresses lacks",
    "DELETE FROM payment_place": "block 70: the index of payments lacks",
    "INSERT INTO payment_place VALUES ('x', x'00', 1, 1, 1)": "payment_place has 2 rows and not 1",
    "INSERT INTO transaction_place VALUES (x'00', 1, 1)": "transaction_place has",
    "DELETE FROM canonical WHERE height = 30": "block 30: it is missing",
    "UPDATE block SET clock = clock + 1 WHERE height = 30": "block 30: its chain variables are not those that follow",
    "UPDATE block SET parent = x'00' WHERE height = 30": "block 30: it does not build on the block before it",
    "UPDATE block SET header = CAST(replace(header, 'slot', 'slut') AS BLOB) WHERE height = 9": "block 9: ",
    "UPDATE block SET header = CAST(header || ' ' AS BLOB) WHERE height = 30": "block 30: it is not stored in its can",
    "DELETE FROM block_transaction WHERE block = 3": "block 2: transactionCount is 1, not 0 as there are",
    "UPDATE block_transaction SET body = x'7b7d' WHERE block = 3": "block 2: ",
    "UPDATE block_transaction SET body = x'ff' WHERE block = 3": "block 2: ",
    "INSERT INTO undo VALUES (9999, x'')": "undo has 72 rows and not 71",
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


def test_a_damaged_page_is_found(chain: Path, terminal: Terminal) -> None:
    with chain.open("r+b") as file:
        file.seek(chain.stat().st_size // 2)
        file.write(b"\xa5" * 20_000)
    result = terminal.invoke("db", "check", "data")
    assert result.exit_code == 1
    assert "chain.sqlite" in result.stderr


def test_the_webhooks_file_is_read_too(chain: Path, terminal: Terminal) -> None:
    open_writer(chain.with_name("webhooks.sqlite"), WEBHOOKS).close()
    terminal.ok("db", "check", "data")
    chain.with_name("webhooks.sqlite").write_bytes(b"no database at all" * 1000)
    assert "webhooks.sqlite cannot be opened as a database" in terminal.failure("db", "check", "data")


def test_the_mempool_s_file_is_read_too_and_a_rebuild_leaves_it_alone(chain: Path, terminal: Terminal) -> None:
    mempool = chain.with_name("mempool.sqlite")
    terminal.ok("db", "check", "data")
    mempool.write_bytes(b"no database at all" * 1000)
    assert "mempool.sqlite cannot be opened as a database" in terminal.failure("db", "check", "data")
    terminal.ok("db", "rebuild", "data")
    assert mempool.read_bytes() == b"no database at all" * 1000


def killed(chain: Path, terminal: Terminal) -> None:
    """Leave the files of a node with webhooks that was killed: what it did last is in the logs beside its databases."""
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    terminal.operator.site = node.operator
    terminal.ok("node", "mine", 1)
    webhooks = chain.with_name("webhooks.sqlite")
    with closing(open_writer(webhooks, WEBHOOKS)) as connection:
        OpenMark(webhooks).put()
        connection.execute("CREATE TABLE promised (n INTEGER)")
        left = {path: path.read_bytes() for path in chain.parent.iterdir() if path.name != "lock"}
    node.close()
    for path, content in left.items():
        path.write_bytes(content)


@pytest.mark.parametrize("command", ["check", "rebuild"])
def test_a_killed_node_is_not_told_afterwards_that_its_log_is_missing(
    chain: Path, terminal: Terminal, command: str
) -> None:
    """The command has brought the logs into the files; for lost ones a node with webhooks would not start."""
    killed(chain, terminal)
    marks = [OpenMark(chain), OpenMark(chain.with_name("webhooks.sqlite"))]
    assert all(mark.path.exists() and mark.log.stat().st_size for mark in marks)
    terminal.ok("db", "check", "data")
    terminal.ok("db", command, "data")
    assert not any(mark.misses_log or mark.log.exists() for mark in marks)
    with closing(sqlite3.connect(marks[1].database)) as connection:
        assert connection.execute("SELECT count(*) FROM promised").fetchone() == (0,)
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert node.living.ledger.tip.height == 71
    node.close()


def test_a_log_that_is_missing_stays_missing(chain: Path, terminal: Terminal) -> None:
    """What is lost the node must still hear of."""
    mark = OpenMark(chain)
    mark.put()
    terminal.ok("db", "check", "data")
    assert mark.misses_log


def test_what_cannot_be_checked(chain: Path, terminal: Terminal) -> None:
    assert terminal.failure("db", "check", "nowhere") == (
        "there is no nowhere/chain.sqlite; name the data directory of a node"
    )
    assert not Path("nowhere").exists()
    (chain.parent / "other").mkdir()
    other = shutil.copy(chain, chain.parent / "other")
    change(other, "DELETE FROM canonical WHERE height = 0")
    for command in ("check", "rebuild"):
        assert terminal.failure("db", command, "data/other") == (
            "the database does not begin with the genesis of a network that is known"
        )
    change_version(chain, 99)
    assert terminal.failure("db", "check", "data").endswith(
        "has the schema 99 and this program knows 1: start a newer program"
    )
    lock = lock_directory(chain.parent)
    for command in ("check", "rebuild"):
        assert f"is in use by another node (process {os.getpid()})" in terminal.failure("db", command, "data")
    os.close(lock)


def change_version(chain: Path, version: int) -> None:
    with closing(sqlite3.connect(chain)) as connection:
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
    "UPDATE account SET balance = balance + 1",
    "DELETE FROM account",
    "DELETE FROM undo",
    "DELETE FROM transaction_place",
    "DELETE FROM address_place",
    "DELETE FROM payment_place",
]


@pytest.mark.parametrize("statement", MENDED)
def test_what_follows_from_the_blocks_is_mended(chain: Path, terminal: Terminal, statement: str) -> None:
    before = contents(chain)
    change(chain, statement)
    told = terminal.ok("db", "rebuild", "data").out
    assert "tip          70, " in told
    assert contents(chain) == before
    terminal.ok("db", "check", "data")
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    node.close()


def test_a_damaged_block_ends_the_new_chain_before_it(chain: Path, terminal: Terminal) -> None:
    change(chain, "UPDATE block SET clock = clock + 1 WHERE height = 30")
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["lost"]) == ("29", 41)
    assert told["why"] == "block 30: its chain variables are not those that follow from the headers"
    terminal.ok("db", "check", "data")
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert node.living.ledger.tip.height == 29
    node.close()


def test_what_cannot_be_rebuilt_stays_as_it_is(chain: Path, terminal: Terminal) -> None:
    chain.write_bytes(b"no database at all" * 1000)
    assert "cannot be opened as a database" in terminal.failure("db", "rebuild", "data")
    assert chain.read_bytes() == b"no database at all" * 1000
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_a_damaged_tip_gives_way_to_its_neighbour(chain: Path, terminal: Terminal) -> None:
    """What is told of the new chain is what it is in the end."""
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    terminal.operator.site = node.operator
    terminal.ok("node", "reorganise", 1)
    node.close()
    change(chain, "UPDATE block SET clock = clock + 1 WHERE id IN (SELECT block FROM canonical WHERE height > 69)")
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    node = Node(chain, terminal.clock, Settings(params=DEVNET))
    assert (told["height"], told["hash"]) == ("70", node.living.ledger.tip.hash.hex())
    assert (told["lost"], told["sideBlocks"]) == (2, 4)
    node.close()


def test_transfers_that_cannot_be_read_do_not_stop_it(chain: Path, terminal: Terminal) -> None:
    spoil(chain, "pool")
    assert "wrong: chain.sqlite: database disk image is malformed" in terminal.invoke("db", "check", "data").stderr
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["sideBlocks"]) == ("70", 3)
    assert told["unread"] == ["transfers of undone blocks: it cannot be read: database disk image is malformed"]
    terminal.ok("db", "check", "data")
    chain.with_name("chain.sqlite.old-1").replace(chain)
    assert "not taken    transfers of undone blocks: it cannot be read" in terminal.ok("db", "rebuild", "data").out


def test_a_transfer_of_an_undone_block_that_is_not_what_it_was_is_left_out(chain: Path, terminal: Terminal) -> None:
    fell_out = "INSERT INTO pool SELECT {}, 0, {} FROM block_transaction WHERE block = 3"
    change(chain, fell_out.format("x'01'", "x'7b7d'"), fell_out.format("x'02'", "body"))
    told = json.loads(terminal.ok("db", "rebuild", "data", "--json").out)
    assert (told["height"], told["unread"]) == ("70", [])
    assert len(contents(Path(told["kept"]))["pool"]) == 2
    assert len(contents(chain)["pool"]) == 1


def test_every_old_file_is_kept(chain: Path, terminal: Terminal) -> None:
    kept = [json.loads(terminal.ok("db", "rebuild", "data", "--json").out)["kept"] for _ in range(3)]
    assert kept == [f"data/chain.sqlite.old-{number}" for number in (1, 2, 3)]
    assert all(Path(path).stat().st_size for path in kept)


def test_a_rebuilt_file_has_the_mode_of_the_old_one(chain: Path, terminal: Terminal) -> None:
    chain.chmod(0o640)
    terminal.ok("db", "rebuild", "data")
    found = {path.name: path.stat().st_mode & 0o777 for path in chain.parent.iterdir()}
    assert found == {"chain.sqlite": 0o640, "chain.sqlite.old-1": 0o640, "lock": 0o600}


def test_a_full_disk_is_not_taken_for_a_damaged_file(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever were told to move the old file away would lose it."""
    before = chain.read_bytes()
    real = db_commands.open_writer

    def small(path: Path) -> sqlite3.Connection:
        connection = real(path)
        connection.execute("PRAGMA max_page_count = 24")
        return connection

    monkeypatch.setattr(db_commands, "open_writer", small)
    assert terminal.failure("db", "rebuild", "data") == (
        "data/chain.sqlite.new cannot be written: database or disk is full. Nothing has been changed; it needs as much "
        "room as is in use"
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
def test_an_old_file_that_cannot_be_read_is_not_taken_for_a_lack_of_room(
    chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, question: str, answered: int, told: str
) -> None:
    real, answers = getattr(Inspector, question), iter([True] * answered)

    def failing(inspector: Inspector, *given: Any) -> Any:
        if not next(answers, False):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
            raise error
        return real(inspector, *given)

    before = chain.read_bytes()
    monkeypatch.setattr(Inspector, question, failing)
    assert terminal.failure("db", "rebuild", "data").startswith(told)
    assert chain.read_bytes() == before
    assert sorted(path.name for path in chain.parent.iterdir()) == ["chain.sqlite", "lock"]


def test_a_bar_is_full_when_all_is_done(chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the last block: the accounts are compared after it, and what waits is taken along."""
    moves: list[int] = []
    before: list[int] = []
    after: list[tuple[int, int]] = []
    real = db_commands.click.progressbar

    @contextmanager
    def bar(*, length: int, **options: Any) -> Iterator[Any]:
        moves.clear()
        with real(length=length, **options) as shown:
            move = shown.update
            monkeypatch.setattr(shown, "update", lambda steps: (moves.append(steps), move(steps)))
            yield shown
        # One that is empty and hidden only loads what bars need.
        after.extend([(sum(moves), length)] if length else [])

    def noting(work: Callable[..., T]) -> Callable[..., T]:
        def done(*arguments: Any) -> T:
            result = work(*arguments)
            before.append(sum(moves))
            return result

        return done

    monkeypatch.setattr(db_commands.click, "progressbar", bar)
    for name in ("check_chain", "rebuild"):
        monkeypatch.setattr(db_commands, name, noting(getattr(db_commands, name)))
    terminal.ok("db", "check", "data")
    terminal.ok("db", "rebuild", "data")
    assert (before, after) == ([71, 70], [(72, 72), (71, 71)])


def test_bars_are_shown_to_those_who_watch(chain: Path, terminal: Terminal) -> None:
    assert terminal.ok("db", "check", "data").err == ""
    terminal.watched = True
    assert "Executing the blocks" in terminal.ok("db", "check", "data").err
    assert "Executing the blocks" in terminal.ok("db", "rebuild", "data").err
    assert terminal.ok("db", "check", "data", "--json").err == ""


# verify


def test_headers_that_hold(chain: Path, terminal: Terminal) -> None:
    before = contents(chain)
    lines = terminal.ok("db", "verify", "data", "--headers").out.splitlines()
    assert lines[0] == "headers     70 hold, from block 1 on"
    assert lines[1].startswith("rate        ")
    assert lines[2].startswith("raw Argon2  ")
    record = json.loads(terminal.ok("db", "verify", "data", "--headers", "--count", 10, "--json").out)
    assert (record["first"], record["headers"], record["wrong"]) == ("61", 10, None)
    assert record["ratio"] == pytest.approx(record["headersPerSecond"] / record["argon2PerSecond"], abs=0.01)
    assert contents(chain) == before


def test_every_header_is_worked_on(chain: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []
    real = verifier.check_work
    monkeypatch.setattr(
        verifier, "check_work", lambda header, params: (worked.append(header.height), real(header, params))
    )
    monkeypatch.setattr(header_verification, "BATCH", 16)
    terminal.ok("db", "verify", "data", "--headers")
    assert sorted(worked) == list(range(1, 71))
    worked.clear()
    terminal.ok("db", "verify", "data", "--headers", "--count", 1_000)
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
    result = terminal.invoke("db", "verify", "data", "--headers")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: block 30: ")
    assert WRONG_HEADERS[statement] in result.stderr
    assert result.stderr.count("\n") == 1
    record = json.loads(terminal.invoke("db", "verify", "data", "--headers", "--json").stdout)
    assert (record["headers"], record["wrong"].startswith("block 30: ")) == (29, True)
    terminal.ok("db", "verify", "data", "--headers", "--count", 20)


def test_a_forged_signature_is_found(chain: Path, terminal: Terminal) -> None:
    """The hash leaves the signature out, so that `svc db check` does not see it."""
    with closing(sqlite3.connect(chain)) as connection, connection:
        rows = connection.execute("SELECT header FROM block b JOIN canonical c ON c.block = b.id WHERE c.height = 30")
        header = json.loads(rows.fetchone()[0])
        forged = header["signature"][:-128] + "0" * 128
        connection.execute(
            "UPDATE block SET header = CAST(replace(header, ?, ?) AS BLOB) WHERE height = 30",
            (header["signature"], forged),
        )
    result = terminal.invoke("db", "verify", "data", "--headers")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: block 30: block ")
    assert result.stderr.endswith("is not signed by its producer's key\n")


def test_what_to_verify_has_to_be_said(chain: Path, terminal: Terminal) -> None:
    result = terminal.invoke("db", "verify", "data")
    assert result.exit_code == 2
    assert "say what to verify: --headers" in result.stderr


def test_the_example_of_the_page_prints_what_it_shows(chain: Path, terminal: Terminal) -> None:
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")
    command, *shown = re.findall(r"(?m)^    \$ svc (db verify .*)\n((?:    .*\n)+)", page)[0]
    printed = terminal.ok(*command.split()).out
    assert re.sub(r"[0-9.]+", "#", printed) == re.sub(r"[0-9.]+", "#", "\n".join(shown).replace("    ", "", 1)).replace(
        "\n    ", "\n"
    )
