"""The connection to PostgreSQL: made again when it was lost, one writer at a time, and no word of the password."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from svcd.store import database, postgresql
from svcd.store.database import WEBHOOKS, DatabaseError, DatabaseUnavailable, Migration, migrations
from svcd.store.optional_postgresql import postgresql_at
from svcd.store.postgresql import PostgresqlConnection, parse_address
from tests.postgresql import GENESIS, Server, opened, running
from tests.process_level.running import wait_until
from tests.programs import program

SECRET = "hunter2&/horse"
NEWEST = migrations(WEBHOOKS)[-1].version


@pytest.fixture
def uri(postgresql_server: Server) -> str:
    return postgresql_server.new_schema()


@pytest.fixture
def connection(uri: str) -> Iterator[PostgresqlConnection]:
    with closing(opened(uri)) as connection:
        yield connection


def blocks(connection: PostgresqlConnection) -> list[int]:
    return [height for (height,) in connection.execute("SELECT height FROM followed_block ORDER BY height")]


def test_a_schema_is_made_once_and_by_one_node(uri: str) -> None:
    failed: list[BaseException] = []

    def opens() -> bool:
        try:
            opened(uri).close()
        except DatabaseUnavailable:
            # A node waits a second for the one that makes the schema, which may take longer, and tries again.
            return False
        return True

    def start() -> None:
        try:
            wait_until(opens, "a schema")
        except BaseException as error:
            failed.append(error)

    nodes = [threading.Thread(target=start) for _ in range(4)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    assert failed == []
    with closing(opened(uri)) as connection:
        assert connection.execute("SELECT version, genesis FROM webhook_schema").fetchall() == [(NEWEST, GENESIS)]


def test_a_schema_that_this_program_cannot_use_is_refused(uri: str, connection: PostgresqlConnection) -> None:
    connection.execute("UPDATE webhook_schema SET version = 999")
    with pytest.raises(DatabaseError, match=f"written by a newer svcd .schema 999, this program knows {NEWEST}."):
        opened(uri)
    # A node that runs goes on: newer programs only add to the schema.
    connection.close()
    assert blocks(connection) == []
    connection.execute("UPDATE webhook_schema SET version = 1")
    with pytest.raises(DatabaseError, match=f"written by an older svcd .schema 1, .* {NEWEST} and later"):
        opened(uri)


@pytest.mark.usefixtures("connection")
def test_the_webhooks_of_another_chain_are_refused(uri: str) -> None:
    with pytest.raises(DatabaseError, match="has the webhooks of another chain"):
        opened(uri, b"h" * 32)


def test_a_database_that_cannot_hold_every_text_is_refused(postgresql_server: Server) -> None:
    with psycopg.connect(postgresql_server.uri, autocommit=True) as connection:
        connection.execute("CREATE DATABASE old ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(DatabaseError, match="has the encoding LATIN1: create one with ENCODING 'UTF8'"):
        opened(postgresql_server.uri.replace("/postgres?", "/old?"))


def add_blocks(connection: PostgresqlConnection, *heights: int) -> None:
    connection.executemany("INSERT INTO followed_block VALUES (?, ?, ?)", [(height, b"", b"") for height in heights])


def commit_blocks(connection: PostgresqlConnection, *heights: int) -> None:
    with connection.transaction():
        add_blocks(connection, *heights)


def test_a_transaction_is_committed_as_a_whole_or_not_at_all(connection: PostgresqlConnection) -> None:
    def fails() -> None:
        with connection.transaction():
            add_blocks(connection, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert blocks(connection) == []
    commit_blocks(connection, 1, 2**53)
    assert blocks(connection) == [1, 2**53]
    with pytest.raises(psycopg.errors.UniqueViolation):
        commit_blocks(connection, 3, 1)
    assert blocks(connection) == [1, 2**53]


def test_writing_transactions_wait_for_each_other_and_readers_for_none(
    uri: str, connection: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "_SESSION", b"SET lock_timeout = '50ms'")
    with closing(opened(uri)) as other:
        with connection.transaction():
            add_blocks(connection, 1)
            assert blocks(other) == []
            with pytest.raises(DatabaseUnavailable, match="lock timeout"):
                commit_blocks(other, 2)
        with other.transaction():
            assert blocks(other) == [1]


def test_statements_after_a_lost_connection_are_not_written(uri: str, connection: PostgresqlConnection) -> None:
    (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone()

    def loses_the_connection() -> None:
        with closing(opened(uri)) as other, connection.transaction():
            add_blocks(connection, 1)
            other.execute("SELECT pg_terminate_backend(?::int)", (backend,))
            for height in (2, 3):
                with pytest.raises(DatabaseUnavailable):
                    add_blocks(connection, height)

    with pytest.raises(DatabaseUnavailable):
        loses_the_connection()
    assert blocks(connection) == []
    commit_blocks(connection, 4)
    assert blocks(connection) == [4]


def test_a_primary_that_has_become_a_standby_is_left(connection: PostgresqlConnection) -> None:
    connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(DatabaseUnavailable, match="read-only transaction"):
        commit_blocks(connection, 1)
    # By a new connection, which is one to a primary.
    commit_blocks(connection, 2)
    assert blocks(connection) == [2]


def test_a_node_that_was_stopped_holds_the_lock_for_a_while_only(uri: str, connection: PostgresqlConnection) -> None:
    """As after SIGSTOP: its transaction is open, and nothing more comes from it."""
    assert f"idle_in_transaction_session_timeout = '{postgresql.IDLE_SECONDS}s'" in postgresql._SESSION.decode()

    def goes_on(stopped: PostgresqlConnection) -> None:
        with stopped.transaction():
            add_blocks(stopped, 1)
            # Not before: a busy machine may take longer between two statements.
            stopped.execute("SET idle_in_transaction_session_timeout = '100ms'")
            # Waits until the transaction of the stopped node has been ended.
            commit_blocks(connection, 2)
            add_blocks(stopped, 3)

    with closing(opened(uri)) as stopped, pytest.raises(DatabaseUnavailable):
        goes_on(stopped)
    assert blocks(connection) == [2]


@pytest.mark.slow
def test_a_server_that_was_killed_is_found_again_with_everything_committed() -> None:
    with running(durable=True) as server:
        now = 0.0
        connection = PostgresqlConnection(
            parse_address(server.uri), lambda connection: connection.migrate(GENESIS), lambda: now
        )
        commit_blocks(connection, 1)
        server.stop(signal.SIGQUIT)
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable, match=r"database postgres on /tmp/.* does not answer"):
                blocks(connection)
        server.start()
        # The pause after a failed attempt is not over.
        with pytest.raises(DatabaseUnavailable):
            blocks(connection)
        now += postgresql.MAX_PAUSE
        assert blocks(connection) == [1]
        connection.close()


def test_attempts_to_connect_pause_longer_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, attempts = 0.0, []

    def connect(**_: object) -> None:
        attempts.append(now)
        raise psycopg.OperationalError("connection refused")

    monkeypatch.setattr(postgresql._Connection, "connect", connect)
    connection = PostgresqlConnection(parse_address("postgresql:///svcd"), now=lambda: now)
    for eighth in range(100):
        now = eighth / 8
        with pytest.raises(DatabaseUnavailable, match="database svcd does not answer: connection refused"):
            connection.execute("SELECT 1")
    assert attempts == [0, 0.25, 0.75, 1.75, 3.75, 5.75, 7.75, 9.75, 11.75]


REFUSED = (
    'connection to server at "127.0.0.1", port 5432 failed: FATAL:  password authentication failed for user "svcd"'
)
TOLD = REFUSED.replace("  ", " ")
LATE = "connection timeout expired"
ALL = "Multiple connection attempts failed. All failures were:"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        # With TLS and without it.
        (f"connection failed: {REFUSED}\n{REFUSED}", TOLD),
        # Several addresses of one host, and several hosts.
        (
            f"connection failed: {REFUSED}\n{REFUSED}\n{ALL}\n"
            f"- host: 'db', port: '5432', hostaddr: '::1': connection failed: {REFUSED}\n{REFUSED}\n"
            f"- host: 'db', port: '5432', hostaddr: '127.0.0.1': connection failed: {REFUSED.replace('127', '128')}",
            f"{TOLD}; {TOLD.replace('127', '128')}",
        ),
        (
            f"{LATE}\n{ALL}\n- host: 'a', port: '1', hostaddr: '::1': {LATE}\n- host: 'b', port: '1': {LATE}",
            f"host: 'a', port: '1', hostaddr: '::1': {LATE}; host: 'b', port: '1': {LATE}",
        ),
        (
            "connection failed: connection to server on socket failed: No such file\n\tIs the server running locally?",
            "connection to server on socket failed: No such file; Is the server running locally?",
        ),
        ("canceling statement due to lock timeout\n", "canceling statement due to lock timeout"),
    ],
)
def test_an_error_tells_each_sentence_once(error: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(**_: object) -> None:
        raise psycopg.OperationalError(error)

    monkeypatch.setattr(postgresql._Connection, "connect", connect)
    with pytest.raises(DatabaseUnavailable) as raised:
        PostgresqlConnection(parse_address("postgresql:///svcd")).connect()
    assert str(raised.value) == f"the PostgreSQL database svcd does not answer: {told}"


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://shop:hunter2%26%2Fhorse@127.0.0.1:1/svcd",
        "postgresql://127.0.0.1:1,127.0.0.1:2/svcd?user=shop&password=hunter2%26%2Fhorse",
        "postgresql://shop:hunter2%26%2Fhorse@127.0.0.1:1/svcd?nonsense=hunter2%26%2Fhorse",
        "postgresql://shop:hunter2&/horse@127.0.0.1:1/svcd",
        "postgresql://shop:hunter2&@horse@127.0.0.1:1/svcd",
        "postgresql://shop:1/horse@127.0.0.1:1/svcd",
        "host=127.0.0.1 port=1 dbname=svcd password=hunter2&/horse",
        "host=127.0.0.1 dbname=svcd password='hunter2&/horse",
        "hunter2&/horse",
    ],
)
def test_the_password_is_in_no_error_no_repr_and_no_log(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = []
    with caplog.at_level(logging.DEBUG):
        try:
            connection = PostgresqlConnection(parse_address(uri))
            shown += [repr(connection), repr(connection.address), connection.address.name]
            connection.connect()
        except (DatabaseError, DatabaseUnavailable) as error:
            for each in (error, error.__cause__, error.__context__ if not error.__suppress_context__ else None):
                shown += [str(each), repr(each)]
    shown.append(caplog.text)
    assert len(shown) > 2
    for part in (SECRET, "hunter2%26%2Fhorse", "hunter2", "horse"):
        assert part not in "".join(shown)


def test_a_server_that_hangs_is_given_up(
    connection: PostgresqlConnection, postgresql_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection._connection is not None
    monkeypatch.setattr(connection._connection, "patience", 0.2)
    backend = connection._connection.info.backend_pid
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(DatabaseUnavailable, match="does not answer: no answer for 0 s"):
            blocks(connection)
        assert blocks(connection) == []
    finally:
        os.kill(backend, signal.SIGCONT)


def _listens(path: Path) -> bool:
    """Whether a Unix socket takes connections, which it does only some time after its file is there."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@contextmanager
def pooler(server: Server, mode: str, folder: Path) -> Iterator[str]:
    """PgBouncer before a server; gives the connection URI."""
    path = program("pgbouncer")
    (folder / "users").write_text('"svcd" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\npostgres = host={server.folder}\n[pgbouncer]\npool_mode = {mode}\nlisten_addr =\n"
        f"unix_socket_dir = {folder}\nauth_type = trust\nauth_file = {folder}/users\n"
    )
    folder.chmod(0o755)
    if server.identity:
        shutil.chown(folder, server.identity["user"])
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [path, folder / "pgbouncer.ini"], stdout=output, stderr=output, cwd=folder, **server.identity
        )
    try:
        wait_until(partial(_listens, folder / ".s.PGSQL.6432"), "a pooler that listens")
        yield f"postgresql://svcd@/postgres?host={folder}&port=6432"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def outside() -> Iterator[Path]:
    """A folder that another user may look into."""
    with tempfile.TemporaryDirectory(prefix="svcd-pooler-") as name:
        yield Path(name)


def test_a_pooler_of_transactions_is_refused_and_one_of_sessions_is_used(outside: Path) -> None:
    """Under the name of a prepared statement another client may have prepared another one there."""
    with running() as server:
        with pooler(server, "session", outside) as uri, closing(opened(uri)) as one, closing(opened(uri)) as other:
            for height in range(20):
                commit_blocks(one, 2 * height)
                commit_blocks(other, 2 * height + 1)
                assert blocks(one) == blocks(other) == list(range(2 * height + 2))
        with pooler(server, "transaction", outside) as uri, closing(opened(uri)) as one, closing(opened(uri)) as other:
            used = 0

            def use() -> None:
                nonlocal used
                for used in range(100, 200):
                    with one.transaction():
                        # While this one is busy, the other one gets another session of the server.
                        assert blocks(other)
                    commit_blocks(other, used)

            with pytest.raises(DatabaseUnavailable, match="is behind a pooler in transaction mode"):
                use()
            refused = one if one._refusal else other
            with pytest.raises(DatabaseError, match="let it pool whole sessions for svcd, or name the server itself"):
                refused.connect()
        with closing(opened(server.uri)) as connection:
            # Nothing was lost, and nothing went astray.
            assert blocks(connection) in ([*range(40), *range(100, end)] for end in (used, used + 1))


def test_a_password_that_was_changed_in_the_file_is_used_by_the_next_connection(
    postgresql_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes need no restart; what else has changed in the file waits for one."""
    file, used = tmp_path / "database", list[dict[str, Any]]()
    connect = postgresql._Connection.connect

    def noted(**parameters: Any) -> Any:
        used.append(parameters)
        return connect(**parameters)

    monkeypatch.setattr(postgresql._Connection, "connect", noted)
    uri = postgresql_server.uri.replace("svcd@", "svcd:{}@")
    file.write_text(uri.format("old"))
    connection = postgresql_at(uri.format("old"), lambda connection: None, credentials_in=file)
    for text, password in [
        (uri.format("old"), "old"),
        (uri.format("new").replace("/postgres?", "/elsewhere?") + "\n", "new"),
        ("postgresql://is being written", "old"),
    ]:
        file.write_text(text)
        connection.connect()
        assert used[-1]["password"] == password
        assert used[-1]["dbname"] == "postgres"
        connection.close()
    file.unlink()
    connection.connect()
    connection.close()


def test_a_change_of_the_schema_that_must_wait_lets_the_nodes_go_on(
    uri: str, connection: PostgresqlConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for a table after it would wait as long as, say, a dump takes."""
    commit_blocks(connection, 1)
    newer = [*migrations(WEBHOOKS), Migration(NEWEST + 1, "ALTER TABLE event ADD COLUMN made_up INTEGER")]
    for module in (database, postgresql):
        monkeypatch.setattr(module, "migrations", lambda _: newer)
    with psycopg.connect(uri) as dump:
        dump.execute("SELECT FROM event")
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="lock timeout"):
            opened(uri)
        assert time.monotonic() - began < 4
        assert blocks(connection) == [1]
