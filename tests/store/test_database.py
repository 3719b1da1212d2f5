"""The SQLite file: settings, schema files, readers, roll-backs, a full disk (docs/storage.md)."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import apsw
import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from svcd.store import database
from svcd.store.chain_store import OLDEST
from svcd.store.database import (
    CHAIN,
    WEBHOOKS,
    DatabaseConnection,
    DatabaseCursor,
    DatabaseError,
    DatabaseKind,
    Migration,
    UncleanShutdownMarker,
    attempt,
    connect,
    insert,
    is_damage,
    migrations,
    open_reader,
    open_writer,
    snapshot,
    transaction,
)
from tests.store.contents import contents

NEWEST = migrations()[-1].version


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chain.sqlite"


@pytest.fixture
def writer(path: Path) -> Iterator[DatabaseConnection]:
    """A writer with one table more than the schema, for rows that mean nothing."""
    with closing(open_writer(path)) as connection:
        connection.execute("CREATE TABLE note (text TEXT NOT NULL) STRICT")
        yield connection


def write(connection: DatabaseConnection, text: str) -> None:
    connection.execute("INSERT INTO note VALUES (?)", (text,))


def notes(connection: DatabaseConnection) -> list[str]:
    return [text for (text,) in connection.execute("SELECT text FROM note ORDER BY rowid")]


def setting(connection: DatabaseConnection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_rows_are_inserted_in_order(writer: DatabaseConnection, count: int) -> None:
    rows = [(f"row {number}",) for number in range(count)]
    insert(writer, "note", rows)
    assert notes(writer) == [text for (text,) in rows]


def test_rows_may_replace_others(writer: DatabaseConnection) -> None:
    writer.execute("CREATE UNIQUE INDEX same ON note (text)")
    rows = [(str(number % 9),) for number in range(20)]
    insert(writer, "note", rows, replace=True)
    assert notes(writer) == [text for (text,) in rows[-9:]]


def test_a_row_that_is_refused_rolls_the_transaction_back(writer: DatabaseConnection) -> None:
    writer.execute("CREATE UNIQUE INDEX same ON note (text)")
    rows = [(str(number % 20),) for number in range(40)]
    writer.execute("BEGIN")
    write(writer, "before")
    with pytest.raises(apsw.ConstraintError):
        insert(writer, "note", rows)
    assert not writer.in_transaction
    assert not notes(writer)


def handed_to_the_system() -> int:
    """Bytes of all writes of this process."""
    (line,) = [line for line in Path("/proc/self/io").read_text("ascii").splitlines() if line.startswith("wchar")]
    return int(line.split()[1])


def test_inserted_rows_write_no_page_before_the_commit(writer: DatabaseConnection) -> None:
    """Pages that SQLite would need to undo a statement were seven times as many bytes as a block."""
    writer.execute("CREATE TABLE entry (key BLOB PRIMARY KEY, text BLOB NOT NULL) STRICT, WITHOUT ROWID")
    rows = [(sha256(number.to_bytes(4, "big")).digest(), b"x" * 100) for number in range(20_000)]
    insert(writer, "entry", rows[:10_000])
    with transaction(writer):
        before = handed_to_the_system()
        insert(writer, "entry", rows[10_000:])
        assert handed_to_the_system() - before < 4096
    (count,) = writer.execute("SELECT count(*) FROM entry").fetchone()
    assert count == 20_000


# Settings


@pytest.mark.usefixtures("durable")
def test_the_writer_logs_ahead_and_keeps_the_log_short(writer: DatabaseConnection) -> None:
    assert setting(writer, "journal_mode") == "wal"
    assert setting(writer, "synchronous") == 1, "NORMAL"
    assert setting(writer, "wal_autocheckpoint") == 32_000
    assert setting(writer, "journal_size_limit") == 128 * 2**20


LONG_ATTEMPT = """
import sys
from pathlib import Path
from random import Random
from svcd.store.database import CHAIN, attempt, open_writer, transaction

def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024

connection = open_writer(Path(sys.argv[1]), CHAIN)
connection.execute("PRAGMA cache_size = -1024")
connection.execute("CREATE TABLE page (number INTEGER PRIMARY KEY, text BLOB NOT NULL) STRICT")
with transaction(connection):
    connection.executemany("INSERT INTO page VALUES (?, zeroblob(3000))", ((number,) for number in range(20_000)))
before = peak()
with transaction(connection), attempt(connection):
    connection.execute("UPDATE page SET text = randomblob(3000)")
print(peak() - before)
"""


def test_a_statement_is_planned_once_whatever_it_searches_for(writer: DatabaseConnection, path: Path) -> None:
    """SQLite with STAT4 plans it for every value anew, unless told not to: that took three quarters of a look-up."""
    planned = list[str]()

    def note(*steps: object) -> int:
        planned.append(str(steps))
        return apsw.SQLITE_OK

    with closing(open_reader(path)) as reader:
        reader.authorizer = note
        reader.execute(OLDEST, (1, 0, 1)).fetchall()
        assert planned
        planned.clear()
        reader.execute(OLDEST, (2, 0, 1)).fetchall()
        assert not planned


def test_a_long_attempt_keeps_the_pages_to_which_it_may_return_on_the_disk(path: Path) -> None:
    """A reorganisation of many blocks is one: in memory they would be gigabytes."""
    command = [sys.executable, "-c", LONG_ATTEMPT, str(path)]
    megabytes = int(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert megabytes < 20, "of 80 that change"


def test_a_new_file_gets_every_schema_file_and_every_table_is_strict(path: Path) -> None:
    with closing(open_writer(path)) as connection:
        assert setting(connection, "user_version") == NEWEST
        assert {"block", "account_entry", "disconnected_transfer"} <= contents(connection).keys()
        tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'").fetchall()
        assert {name for name, strict in tables if not strict} == {"sqlite_schema"}
        assert len(tables) > 5


def test_a_reader_cannot_write(writer: DatabaseConnection, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        assert setting(reader, "query_only") == 1
        with pytest.raises(apsw.ReadOnlyError, match="readonly"):
            write(reader, "by a reader")
        reader.execute("PRAGMA query_only = 0")
        with pytest.raises(apsw.ReadOnlyError, match="readonly"):
            write(reader, "by a reader that was told it may")
    assert notes(writer) == []


def test_a_reader_sees_what_is_committed_and_nothing_else(writer: DatabaseConnection, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        with transaction(writer):
            write(writer, "first")
            assert notes(reader) == []
        assert notes(reader) == ["first"]


def test_a_reader_does_not_hold_up_the_writer(writer: DatabaseConnection, path: Path) -> None:
    with closing(open_reader(path)) as reader, snapshot(reader):
        assert notes(reader) == []
        with transaction(writer):
            write(writer, "first")
        assert notes(reader) == []
    assert notes(writer) == ["first"]


def test_a_reader_does_not_make_a_file(path: Path) -> None:
    with pytest.raises(apsw.CantOpenError, match="unable to open"):
        open_reader(path)
    assert not path.exists()


# Schema files


def test_schema_files_are_numbered_without_a_gap() -> None:
    for kind in (database.CHAIN, database.WEBHOOKS):
        numbers = [migration.version for migration in migrations(kind)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert "CREATE TABLE" in migrations(kind)[0].script


def test_an_old_file_gets_what_it_lacks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_writer(path).close()
    known = migrations()
    later = Migration(NEWEST + 1, "CREATE TABLE later (a)")
    monkeypatch.setattr(database, "migrations", lambda _kind: [*known, later])
    with closing(open_writer(path)) as connection:
        assert setting(connection, "user_version") == NEWEST + 1
        assert "later" in contents(connection)
    open_writer(path).close()


def test_a_schema_file_is_applied_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_writer(path).close()
    known = migrations()
    broken = Migration(NEWEST + 1, "CREATE TABLE half (a); CREATE TABLE half (a);")
    monkeypatch.setattr(database, "migrations", lambda _kind: [*known, broken])
    with pytest.raises(DatabaseError, match="half already exists"):
        open_writer(path)
    monkeypatch.undo()
    with closing(open_writer(path)) as connection:
        assert setting(connection, "user_version") == NEWEST
        assert "half" not in contents(connection)


# Files that cannot be used


def refused(path: Path) -> str:
    """What the operator reads; the file must be free for others by then."""
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path)
    with closing(connect(path)) as other:
        other.execute("PRAGMA user_version")
    return str(refusal.value)


def test_a_newer_schema_is_refused_in_one_sentence(path: Path) -> None:
    with closing(open_writer(path)) as connection:
        connection.execute("PRAGMA user_version = 7000")
    assert refused(path) == (
        f"{path} was written by a newer svcd (schema 7000, this program knows {NEWEST}): "
        "run the newer program, or start with another data directory"
    )


def test_a_schema_of_before_the_oldest_that_is_known_is_refused_in_one_sentence(path: Path) -> None:
    with closing(open_writer(path)) as connection:
        connection.execute("PRAGMA user_version = 1")
    assert refused(path) == (
        f"{path} was written by an older svcd (schema 1, this program knows {migrations()[0].version} and later ones): "
        "run the older program, or start with another data directory"
    )


@pytest.mark.parametrize("damage", [b"not a database, but a text of some length" * 100, bytes(4096)])
def test_a_file_that_is_no_database_is_refused_in_one_sentence(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path)
    assert str(refusal.value) == (
        f"{path} cannot be opened as a database: file is not a database; "
        "try `svc db rebuild`, restore it from a backup, or move it away and the node fetches the chain again"
    )
    assert path.read_bytes() == damage


def test_a_damaged_schema_is_refused(path: Path) -> None:
    open_writer(path).close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 400)
    with pytest.raises(DatabaseError, match=r"page fails its checksum; try `svc db rebuild`, restore"):
        open_writer(path)


def test_a_new_file_is_its_owner_s_alone(path: Path) -> None:
    """In whatever folder, with whatever mask: orders and callbacks stand in it."""
    before = os.umask(0)
    try:
        with closing(open_writer(path)):
            modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {f"{path.name}{part}": 0o600 for part in ("", "-shm", "-wal")}


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="cannot be opened for writing: No such file or directory"):
        open_writer(tmp_path / "nowhere" / "chain.sqlite")


def test_a_refused_file_is_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_writer(path).close()
    known = migrations()
    broken = Migration(NEWEST + 1, "CREATE TABLE half (a); nonsense;")
    monkeypatch.setattr(database, "migrations", lambda _kind: [*known, broken])
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path)
    # The exception still refers to the frame that opened the file; a lock in it would block the next program.
    with closing(connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
    assert refusal.value.__cause__ is not None


def test_a_file_that_no_reader_can_read_is_let_go(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(apsw.NotADBError, match="not a database") as refusal:
        open_reader(path)
    # The exception still refers to the frame that opened the file.
    opened = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert str(path) not in opened
    assert refusal.value.__traceback__ is not None


# All or nothing


class Interruption(BaseException):
    """Something that is not even an Exception."""


def lose(connection: DatabaseConnection, exception: type[BaseException] = Interruption) -> None:
    """Write something, and be interrupted."""
    write(connection, "lost")
    raise exception


@pytest.mark.parametrize("exception", [ValueError, Interruption])
def test_a_transaction_is_committed_whole_or_not_at_all(
    writer: DatabaseConnection, exception: type[BaseException]
) -> None:
    with pytest.raises(exception), transaction(writer):
        lose(writer, exception)
    with transaction(writer):
        write(writer, "kept")
    assert notes(writer) == ["kept"]
    assert not writer.in_transaction


def test_a_transaction_waits_for_the_end_of_another(path: Path, writer: DatabaseConnection) -> None:
    with closing(open_writer(path)) as other, transaction(writer):
        other.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(apsw.BusyError, match="locked"), transaction(other):
            pass
        assert not other.in_transaction


def test_an_attempt_that_fails_leaves_the_rest_of_the_transaction(writer: DatabaseConnection) -> None:
    with transaction(writer):
        write(writer, "before")
        with pytest.raises(Interruption), attempt(writer):
            lose(writer)
        with attempt(writer):
            write(writer, "after")
    assert notes(writer) == ["before", "after"]


def test_an_attempt_within_an_attempt(writer: DatabaseConnection) -> None:
    with transaction(writer), attempt(writer):
        write(writer, "outer")
        with pytest.raises(Interruption), attempt(writer):
            lose(writer)
    assert notes(writer) == ["outer"]


def test_a_rolled_back_outer_attempt_undoes_the_inner_one(writer: DatabaseConnection) -> None:
    def outer() -> None:
        with attempt(writer):
            write(writer, "kept by the inner one")
        raise Interruption

    with transaction(writer):
        with pytest.raises(Interruption), attempt(writer):
            outer()
        write(writer, "after")
    assert notes(writer) == ["after"]


def test_an_attempt_alone_is_a_transaction(writer: DatabaseConnection) -> None:
    with attempt(writer):
        write(writer, "kept")
    with pytest.raises(Interruption), attempt(writer):
        lose(writer)
    assert notes(writer) == ["kept"]
    assert not writer.in_transaction


@define
class Stuck:
    """A connection on a disk that refuses one roll-back."""

    connection: DatabaseConnection
    refused: list[str]
    """What it has refused."""

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    def execute(self, statement: str, *values: Any) -> DatabaseCursor:
        if statement.startswith("ROLLBACK") and not self.refused:
            self.refused.append(statement)
            raise apsw.IOError("disk I/O error")
        return self.connection.execute(statement, *values)


def test_a_refused_roll_back_does_not_stop_later_transactions(writer: DatabaseConnection) -> None:
    stuck: Any = Stuck(writer, [])
    with pytest.raises(apsw.IOError, match="disk I/O"), transaction(stuck):
        lose(stuck)
    assert writer.in_transaction, "the lost note still lies open"
    with transaction(stuck):
        write(stuck, "kept")
    assert (notes(writer), stuck.refused) == (["kept"], ["ROLLBACK"])
    assert not writer.in_transaction


def test_a_refused_roll_back_of_an_attempt_takes_the_transaction_with_it(writer: DatabaseConnection) -> None:
    """What the attempt wrote cannot be told from the rest any more."""
    stuck: Any = Stuck(writer, [])

    def within() -> None:
        write(stuck, "before")
        with attempt(stuck):
            lose(stuck)

    with pytest.raises(apsw.IOError, match="disk I/O"), transaction(stuck):
        within()
    assert (notes(writer), stuck.refused) == ([], ["ROLLBACK TO attempt"])
    assert not writer.in_transaction
    with attempt(stuck):
        write(stuck, "kept")
    assert notes(writer) == ["kept"]


def test_a_snapshot_ends_with_an_exception(writer: DatabaseConnection, path: Path) -> None:
    with closing(open_reader(path)) as reader:
        with pytest.raises(Interruption), snapshot(reader):
            raise Interruption
        write(writer, "later")
        assert notes(reader) == ["later"]


# A full disk


def fill(connection: DatabaseConnection, rows: int = 1000) -> None:
    for _ in range(rows):
        write(connection, "x" * 4096)


@pytest.fixture
def full(writer: DatabaseConnection) -> DatabaseConnection:
    """A writer on a disk with room for a few pages more."""
    write(writer, "first")
    limit = writer.execute("PRAGMA page_count").fetchone()[0] + 8
    writer.execute(f"PRAGMA max_page_count = {limit}")
    return writer


def test_a_full_disk_takes_back_the_transaction_and_nothing_else(full: DatabaseConnection) -> None:
    before = contents(full)
    with pytest.raises(apsw.FullError, match="full"), transaction(full):
        fill(full)
    assert not full.in_transaction
    assert contents(full) == before
    with transaction(full):
        write(full, "small")
    assert notes(full) == ["first", "small"]


def test_a_full_disk_within_an_attempt(full: DatabaseConnection) -> None:
    def fill_it() -> None:
        write(full, "second")
        with attempt(full):
            fill(full)

    with pytest.raises(apsw.FullError, match="full"), transaction(full):
        fill_it()
    assert not full.in_transaction
    assert notes(full) == ["first"]


def test_a_disk_that_has_room_again(full: DatabaseConnection) -> None:
    with pytest.raises(apsw.FullError, match="full"), attempt(full):
        fill(full)
    full.execute("PRAGMA max_page_count = 1000000")
    with transaction(full):
        fill(full, 20)
    assert len(notes(full)) == 21
    assert setting(full, "integrity_check") == "ok"


ROWS = 2000


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A database of which every page but the first of one table is spoiled."""
    path = tmp_path / "chain.sqlite"
    with closing(open_writer(path)) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany("INSERT INTO numbers VALUES (?, ?)", [(n, "x" * 100) for n in range(ROWS)])
        leaves = connection.execute("SELECT pageno FROM dbstat WHERE name = 'numbers' AND pagetype = 'leaf'")
        pages = [page for (page,) in leaves]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        for page in pages[1:]:
            file.seek((page - 1) * 4096)
            file.write(b"\xff" * 4096)
    return path


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda db: db.execute("SELECT text FROM numbers WHERE number = ?", (ROWS - 1,)), id="execute"),
        pytest.param(lambda db: db.execute("SELECT text FROM numbers").fetchall(), id="fetchall"),
        pytest.param(lambda db: list(db.execute("SELECT text FROM numbers")), id="iterate"),
        pytest.param(lambda db: _one_by_one(db.execute("SELECT text FROM numbers")), id="fetchone"),
    ],
)
def test_damage_is_shown_and_raised(damaged: Path, read: Callable[[DatabaseConnection], object]) -> None:
    seen: list[BaseException] = []
    with closing(open_reader(damaged, seen.append)) as connection:
        with pytest.raises(apsw.Error) as raised:
            read(connection)
        assert seen == [raised.value]
        assert is_damage(raised.value)


def _one_by_one(cursor: DatabaseCursor) -> None:
    while cursor.fetchone() is not None:
        pass


def test_an_intact_database_is_read_without_a_warning(damaged: Path) -> None:
    seen: list[BaseException] = []
    with closing(open_reader(damaged, seen.append)) as connection:
        assert connection.execute("SELECT text FROM numbers WHERE number = 0").fetchone() == ("x" * 100,)
        assert list(connection.execute("SELECT number FROM numbers WHERE number < 3")) == [(0,), (1,), (2,)]
    assert seen == []


def test_a_file_that_another_program_has_locked(path: Path) -> None:
    """The disk is not to blame, and nothing has to be freed."""
    with closing(open_writer(path)) as connection, closing(connect(path)) as other:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseError) as refusal, database.explaining_errors(path):
            other.execute("BEGIN IMMEDIATE")
        assert str(refusal.value) == f"{path} cannot be used: database is locked; close the program that has locked it"
        connection.execute("ROLLBACK")


def test_a_log_that_is_missed(tmp_path: Path) -> None:
    mark = UncleanShutdownMarker(tmp_path / "chain.sqlite")
    mark.create()
    assert not mark.log_is_missing, "without a database there is nothing to miss"
    mark.database.touch()
    assert mark.log_is_missing
    mark.log.touch()
    assert not mark.log_is_missing
    mark.log.unlink()
    mark.remove()
    assert not mark.log_is_missing, "it was closed in order"
    mark.remove()


# Page checksums


def flip(path: Path, at: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def finds_damage(path: Path) -> bool:
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("SELECT * FROM text").fetchall()
            return connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]
    except (apsw.Error, DatabaseError) as error:
        return is_damage(error)


@settings(max_examples=60)
@given(st.integers(0, 2**20), st.integers(0, 7))
def test_a_flipped_bit_is_damage_and_no_answer(at: int, bit: int) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "chain.sqlite")
        with closing(open_writer(path)) as connection:
            connection.execute("CREATE TABLE text (text TEXT)")
            connection.executemany("INSERT INTO text VALUES (?)", [(str(n) * 3000,) for n in range(9)])
        assert not finds_damage(path)
        flip(path, at % path.stat().st_size, bit)
        assert finds_damage(path)


@pytest.mark.parametrize("kind", [CHAIN, WEBHOOKS])
def test_a_database_without_checksums_is_refused(path: Path, kind: DatabaseKind) -> None:
    """That of an older program, and one whose first page says that there are none."""
    sentence = (
        f"{path} has no page checksums, without which damage would not be noticed: an older svcd wrote it, or its "
        f"first page is damaged; {kind.last_resort}"
    )
    with closing(sqlite3.connect(path)) as old:
        old.execute("CREATE TABLE old (row)")
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path, kind)
    assert str(refusal.value) == sentence
    path.unlink()
    open_writer(path, kind).close()
    flip(path, 20, 3)
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path, kind)
    assert str(refusal.value) == sentence
    with pytest.raises(DatabaseError):
        open_reader(path)


def test_an_opening_that_was_killed_before_the_first_table_is_begun_anew(path: Path) -> None:
    path.with_name(f"{path.name}.new").touch()
    open_writer(path).close()
    assert path.read_bytes()[20] == 8
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (CHAIN, "restore it from a backup, or move it away and the node fetches the chain again"),
        (WEBHOOKS, "move it away and register the webhooks still open anew"),
    ],
)
def test_an_empty_file_is_damage_and_no_new_database(path: Path, kind: DatabaseKind, advice: str) -> None:
    open_writer(path, kind).close()
    os.truncate(path, 0)
    with pytest.raises(DatabaseError) as refusal:
        open_writer(path, kind)
    assert str(refusal.value) == f"{path} is empty, which no database of svcd is: {advice}"


def test_a_log_without_its_database_loses_no_confirmed_commit_in_silence(tmp_path: Path) -> None:
    path = killed(tmp_path, WEBHOOKS, lambda connection: order(connection, 1))
    path.unlink()
    with pytest.raises(DatabaseError, match=f"wal has commits of a database that is missing: restore {path}"):
        open_writer(path, WEBHOOKS)


def test_a_log_of_the_chain_without_its_database_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    path = killed(tmp_path, CHAIN, lambda connection: order(connection, 1))
    path.unlink()
    with closing(open_writer(path)) as connection, pytest.raises(apsw.SQLError, match="no such table: promised"):
        connection.execute("SELECT n FROM promised")


# A log in which something has changed


def order(connection: DatabaseConnection, number: int) -> None:
    with transaction(connection):
        connection.execute("INSERT INTO promised VALUES (?, ?)", (number, "x" * 3_000))


def promised(path: Path, kind: DatabaseKind = WEBHOOKS) -> list[int]:
    with closing(open_writer(path, kind)) as connection:
        return [number for (number,) in connection.execute("SELECT n FROM promised ORDER BY n")]


def killed(folder: Path, kind: DatabaseKind, work: Callable[[DatabaseConnection], object]) -> Path:
    """The database and the log that a kill after ``work`` leaves, in a folder of their own."""
    path, left = folder / "open.sqlite", folder / "left.sqlite"
    with closing(open_writer(path, kind)) as connection:
        connection.execute("CREATE TABLE promised (n INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        work(connection)
        for part in ("", "-wal"):
            Path(f"{left}{part}").write_bytes(Path(f"{path}{part}").read_bytes())
    return left


def ten_orders(connection: DatabaseConnection) -> None:
    for number in range(10):
        order(connection, number)


@pytest.mark.parametrize("seed", range(40))
def test_a_flipped_bit_in_a_log_loses_no_confirmed_commit_in_silence(tmp_path: Path, seed: int) -> None:
    path, random = killed(tmp_path, WEBHOOKS, ten_orders), Random(seed)
    log = path.with_name(f"{path.name}-wal")
    content = bytearray(log.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    log.write_bytes(content)
    refusal = ""
    found = list(range(10))
    try:
        found = promised(path)
    except DatabaseError as error:
        refusal = str(error)
    # The newest may have been interrupted by a power failure.
    assert found in [list(range(9)), list(range(10))]
    if refusal:
        assert refusal == (
            f"{log} is damaged, and has commits that would be lost with what is damaged: restore it, or to go on "
            "without them, move it away and register the webhooks still open anew"
        )
        assert log.read_bytes() == content, "a second start finds it, too"


def test_a_damaged_log_of_the_chain_costs_blocks_that_peers_have(tmp_path: Path) -> None:
    path = killed(tmp_path, CHAIN, ten_orders)
    log = path.with_name(f"{path.name}-wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    found = promised(path, CHAIN)
    assert found == list(range(len(found)))
    assert 0 < len(found) < 10


def test_a_log_that_ends_anywhere_is_that_of_a_power_failure(tmp_path: Path) -> None:
    path = killed(tmp_path, WEBHOOKS, ten_orders)
    log = path.with_name(f"{path.name}-wal")
    content = log.read_bytes()
    database = path.read_bytes()
    for length in (0, 1, 31, 32, 33, 5_000, len(content) // 2, len(content) - 4_000, len(content) - 1, len(content)):
        path.write_bytes(database)
        log.write_bytes(content[:length])
        found = promised(path)
        assert found == list(range(len(found)))


def test_what_is_left_of_an_earlier_log_is_no_damage(tmp_path: Path) -> None:
    def work(connection: DatabaseConnection) -> None:
        ten_orders(connection)
        connection.execute("PRAGMA wal_checkpoint(RESTART)")
        order(connection, 10)

    path = killed(tmp_path, WEBHOOKS, work)
    assert path.with_name(f"{path.name}-wal").stat().st_size > 10 * 4_096
    assert promised(path) == list(range(11))


def test_what_is_left_of_a_transaction_that_was_rolled_back_is_no_damage(tmp_path: Path) -> None:
    def work(connection: DatabaseConnection) -> None:
        order(connection, 0)
        connection.execute("PRAGMA cache_size = 10")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO promised VALUES (?, ?)", [(n, "x" * 3_000) for n in range(1, 500)])
        connection.execute("ROLLBACK")
        order(connection, 1)
        order(connection, 2)

    path = killed(tmp_path, WEBHOOKS, work)
    assert path.with_name(f"{path.name}-wal").stat().st_size > 100 * 4_096
    assert promised(path) == [0, 1, 2]
