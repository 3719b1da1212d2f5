"""The webhooks of a stopped node are moved to PostgreSQL and back, and a move that is cut off loses nothing."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve

from svcd.commerce.events import EVENT_RULES
from svcd.store import postgresql, webhook_move
from svcd.store.database import (
    WEBHOOKS,
    DatabaseError,
    DatabaseUnavailable,
    UncleanShutdownMarker,
    connect,
    open_writer,
)
from svcd.store.postgresql import PostgresqlConnection
from svcd.store.sql_connection import SqlConnection, SqliteConnection, mark_as_copy
from svcd.store.webhook_events import EventStore, NewEvent
from svcd.store.webhook_move import COLUMNS, MoveResult, rows_in, to_file, to_postgresql
from svcd.store.webhook_store import AlarmRow, FollowedBlock, WebhookStore
from tests.postgresql import Server, opened
from tests.store.test_webhook_store import NOW, delivered, event, row, save

WATCHES = 1_203


class CutOff(Exception):
    """The move ends here."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with watches and events in every condition."""
    path = tmp_path / "webhooks.sqlite"
    with closing(SqliteConnection(open_writer(path, WEBHOOKS))) as file:
        watches, events = WebhookStore(file), EventStore(file, EVENT_RULES)
        with file.transaction():
            for number in range(WATCHES):
                watches.add(row(f"w{number}", merchant=f"m{number % 3}", reported_mismatches=b"t" * 32 * (number % 2)))
            new = [NewEvent(f"w{number}", event(1, "payment.confirmed")) for number in range(0, WATCHES, 2)]
            events.append([*new, NewEvent("w4", event(2, "payment.reorged"))], NOW)
            events.failed("w2", 1, error="status 500", due=NOW + 5_000, now=NOW, status=500)
            delivered(events, "w6", 1, NOW)
            save(watches, evolve(row("w8", merchant="m2"), ending="closed", state="confirmed", ended_at=NOW))
            watches.follow(0, [FollowedBlock(height, b"%032d" % height, height) for height in range(900)], keep=4_096)
            watches.begin_alarms([AlarmRow("outage:7", "outage", "sentence"), AlarmRow("deep:ab", "deep", "", NOW)])
            file.execute("DELETE FROM watch WHERE id = 'w7'")
    return path


@pytest.fixture
def database(postgresql_server: Server) -> Iterator[PostgresqlConnection]:
    with closing(opened(postgresql_server.new_schema())) as database:
        yield database


def contents(connection: SqlConnection) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: sorted(connection.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall(), key=repr)  # noqa: S608
        for table, columns in COLUMNS.items()
    }


def contents_of(path: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(open_writer(path, WEBHOOKS)) as connection:
        return contents(SqliteConnection(connection))


def moved(path: Path) -> bool:
    with closing(open_writer(path, WEBHOOKS)) as connection:
        return SqliteConnection(connection).is_moved()


def quietly(_: int) -> Callable[[int], object]:
    return lambda rows: None


def test_every_column_of_every_table_is_moved(path: Path) -> None:
    with closing(connect(path)) as file:
        tables = [name for (name,) in file.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        # What nodes that share a database tell each other is of no use to the next ones.
        assert set(tables) - set(COLUMNS) == {"lease", "node_report", "asked_again", "open_breaker"}
        for table, columns in COLUMNS.items():
            assert sorted(columns) == sorted(info[1] for info in file.execute(f"PRAGMA table_info({table})"))


def test_webhooks_are_moved_to_postgresql_and_back(path: Path, database: PostgresqlConnection) -> None:
    before, steps = contents_of(path), list[int]()
    mark_as_copy(path)

    def begin(rows: int) -> Callable[[int], object]:
        steps.append(-rows)
        return steps.append

    result = MoveResult(WATCHES - 1, WATCHES // 2 + 2)
    assert to_postgresql(path, database, begin) == result
    assert sum(steps) == 0, "the bar ends at its end"
    assert contents(database) == before
    assert rows_in(database) == -steps[0]
    assert database.is_copy()
    assert moved(path)
    database.refuse_moved()
    # New ones come after those that were moved.
    WebhookStore(database).add(row("new"))
    EventStore(database, EVENT_RULES).append([NewEvent("new", event(1))], NOW)
    watch, _ = WebhookStore(database).page("default", after=None, state=None, host=None, scan=9, limit=9)
    assert [each.id for each in watch] == ["new"]

    before = contents(database)
    assert before["watch"][-1] != before["watch"][0]
    assert to_file(database, path, quietly) == MoveResult(WATCHES, WATCHES // 2 + 3)
    assert contents_of(path) == before
    with closing(open_writer(path, WEBHOOKS)) as file:
        assert SqliteConnection(file).is_copy()
    assert not moved(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(DatabaseError, match="are in the data directory of a node"):
        database.refuse_moved()
    with pytest.raises(DatabaseError, match="was moved to a file before"):
        to_file(database, path, quietly)
    # What is left there is of no use any more.
    to_postgresql(path, database, quietly)
    assert contents(database) == before


def test_a_node_that_is_started_during_a_move_writes_nothing(
    path: Path, database: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that has found the webhooks here before the move had ended."""
    to_postgresql(path, database, quietly)
    before = contents(database)
    monkeypatch.setattr(postgresql, "_SESSION", b"SET lock_timeout = '50ms'")

    def register(node: PostgresqlConnection) -> None:
        with node.transaction():
            WebhookStore(node).add(row("late"))

    def late(copied: Path) -> None:
        # The copy is complete, and what the node registered now would be lost.
        assert len(contents_of(copied)["watch"]) == len(before["watch"])
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            register(node)

    def begin(_: int) -> Callable[[int], object]:
        node.connect()
        return lambda rows: None

    monkeypatch.setattr(webhook_move, "sync", late)
    with closing(PostgresqlConnection(database.address, resume=PostgresqlConnection.refuse_moved)) as node:
        to_file(database, path, begin)
        for why in ("was moved or restored meanwhile", "are in the data directory of a node"):
            with pytest.raises(DatabaseUnavailable, match=why):
                register(node)
    assert contents(database) == contents_of(path) == before


def test_a_target_with_webhooks_is_refused(path: Path, database: PostgresqlConnection) -> None:
    database.execute("INSERT INTO followed_block (height, hash, work) VALUES (1, ?, ?)", (b"", b""))
    with pytest.raises(DatabaseError, match="is not empty; name a new one"):
        to_postgresql(path, database, quietly)
    with pytest.raises(DatabaseError, match=r"webhooks\.sqlite has webhooks of its own; move the file away"):
        to_file(database, path, quietly)
    assert not moved(path)
    assert len(contents_of(path)["watch"]) == WATCHES - 1


def test_a_database_that_a_node_uses_is_refused(
    path: Path, database: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_move, "USERS_SECONDS", 0)
    with closing(opened("postgresql://svcd@/postgres?host=" + database.address.parameters["host"])) as node:
        node.connect()
        for move in (lambda: to_postgresql(path, database, quietly), lambda: to_file(database, path, quietly)):
            with pytest.raises(DatabaseError, match="is in use by another connection of the same user"):
                move()


def test_a_file_that_lacks_its_newest_events_is_not_moved(path: Path, database: PostgresqlConnection) -> None:
    UncleanShutdownMarker(path).create()
    with pytest.raises(DatabaseError, match=r"webhooks\.sqlite-wal is missing"):
        to_postgresql(path, database, quietly)
    with pytest.raises(DatabaseError, match=r"nothing\.sqlite is missing"):
        to_postgresql(path.with_name("nothing.sqlite"), database, quietly)


@pytest.mark.parametrize("where", ["in the middle", "before the mark", "after the mark"])
def test_a_move_to_postgresql_that_is_cut_off_is_ended_by_the_next(
    path: Path, database: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    steps = 0

    def cut_off(*_: object) -> None:
        raise CutOff

    def step(_: int) -> None:
        nonlocal steps
        steps += 1
        if steps == 3 and where == "in the middle":
            raise CutOff

    if where == "before the mark":
        monkeypatch.setattr(webhook_move, "mark_as_moved", cut_off)
    if where == "after the mark":
        monkeypatch.setattr(UncleanShutdownMarker, "remove", cut_off)
    with pytest.raises(CutOff):
        to_postgresql(path, database, lambda _: step)
    monkeypatch.undo()
    assert moved(path) == (where == "after the mark")
    if where == "in the middle":
        assert contents(database)["watch"] == []
        database.refuse_moved()
    else:
        with pytest.raises(DatabaseError, match="end their move with `svc webhook move`"):
            database.refuse_moved()
    if not moved(path):
        # The node has gone on with its file meanwhile.
        with closing(SqliteConnection(open_writer(path, WEBHOOKS))) as file, file.transaction():
            delivered(EventStore(file, EVENT_RULES), "w0", 1, NOW + 1)
    before = contents_of(path)
    to_postgresql(path, database, quietly)
    assert contents(database) == before
    assert moved(path)
    database.refuse_moved()
    with pytest.raises(DatabaseError, match="was moved to PostgreSQL before"):
        to_postgresql(path, database, quietly)


@pytest.mark.parametrize("where", ["in the middle", "before the note", "after the note"])
def test_a_move_to_a_file_that_is_cut_off_is_ended_by_the_next(
    path: Path, database: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    to_postgresql(path, database, quietly)
    before = contents(database)

    def cut_off(*_: object) -> None:
        raise CutOff

    if where == "before the note":
        monkeypatch.setattr(PostgresqlConnection, "set_moved", cut_off)
    if where == "after the note":
        monkeypatch.setattr(webhook_move, "replace_database", cut_off)
    with pytest.raises(CutOff):
        to_file(database, path, lambda _: cut_off if where == "in the middle" else lambda rows: None)
    monkeypatch.undo()
    assert moved(path), "no node begins with the file"
    to_file(database, path, quietly)
    assert contents_of(path) == before
    assert not moved(path)
    assert [each.name for each in path.parent.iterdir()].count("webhooks.sqlite.new") == 0
