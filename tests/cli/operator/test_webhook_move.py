"""`svc webhook move`, what is left when it is killed, and `svc webhook restored`."""

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from svcd.chain.params import DEVNET
from svcd.commerce.events import EVENT_RULES
from svcd.process.datadir import lock_directory
from svcd.store.database import WEBHOOKS, DatabaseError, open_writer
from svcd.store.sql_connection import SqliteConnection
from svcd.store.webhook_events import EventStore, NewEvent
from svcd.store.webhook_store import WebhookStore
from tests.cli.terminal import Terminal
from tests.postgresql import Server, opened
from tests.store.test_webhook_move import contents, contents_of, moved
from tests.store.test_webhook_store import NOW, event, row

SVC = Path(sys.executable).parent / "svc"


def fill(path: Path, watches: int) -> None:
    with closing(SqliteConnection(open_writer(path, WEBHOOKS))) as file, file.transaction():
        for number in range(watches):
            WebhookStore(file).add(row(f"w{number}"))
        new = [NewEvent(f"w{number}", event(1, "payment.confirmed")) for number in range(watches)]
        EventStore(file, EVENT_RULES).append(new, NOW)


def test_webhooks_are_moved_and_moved_back(chain: Path, terminal: Terminal, postgresql_server: Server) -> None:
    path, uri = chain.with_name("webhooks.sqlite"), postgresql_server.new_schema()
    fill(path, 3)
    before = contents_of(path)
    name = f"the PostgreSQL database postgres on {postgresql_server.folder}"
    terminal.stderr_is_terminal = True
    told = terminal.ok("webhook", "move", "data", "--to", uri)
    settings = "set [commerce.webhooks] database before you start the node"
    assert told.out == f"3 watches and 3 events are in {name}; {settings}\n"
    assert "Moving the webhooks" in told.err
    refusal = terminal.failure("webhook", "move", "data", "--to", uri)
    assert refusal.endswith("webhooks.sqlite was moved to PostgreSQL before")
    record = json.loads(terminal.ok("webhook", "move", "data", "--from", uri, "--json").out)
    assert record == {"watches": 3, "events": 3, "to": "data/webhooks.sqlite"}
    assert contents_of(path) == before


def test_a_move_says_in_one_sentence_why_it_cannot_be(chain: Path, terminal: Terminal) -> None:
    move = ("webhook", "move", "data")
    assert "either --to or --from" in terminal.misuse(*move)
    assert "either --to or --from" in terminal.misuse(*move, "--to", "postgresql:///a", "--from", "postgresql:///b")
    away = "postgresql://svcd:hunter2@127.0.0.1:1/svcd"
    refusal = terminal.failure(*move, "--to", away)
    assert "the PostgreSQL database svcd on 127.0.0.1 does not answer" in refusal
    assert "hunter2" not in refusal
    assert "hunter2" not in terminal.failure(*move, "--to", f"{away}?a=b=c")
    with closing(open_writer(chain.with_name("webhooks.sqlite"), WEBHOOKS)):
        lock = lock_directory(chain.parent)
    assert "node" in terminal.failure(*move, "--to", away)
    assert lock


def test_nodes_are_told_that_their_database_was_restored(terminal: Terminal, postgresql_server: Server) -> None:
    uri = postgresql_server.new_schema()
    assert "does not exist" in terminal.failure("webhook", "restored", uri)
    with closing(opened(uri, DEVNET.genesis_hash)) as connection:
        connection.record_server()
        assert not connection.is_copy()
        told = terminal.ok("webhook", "restored", uri).out
        name = f"the PostgreSQL database postgres on {postgresql_server.folder}"
        assert told == f"the nodes begin a new epoch of every watch in {name}\n"
        assert connection.is_copy()
    assert "hunter2" not in terminal.failure("webhook", "restored", "postgresql://svcd:hunter2@127.0.0.1:1/svcd")


@pytest.mark.slow
def test_a_move_that_is_killed_at_any_moment_loses_nothing(
    chain: Path, postgresql_server: Server, torture: bool
) -> None:
    """Whenever it is killed, one of the two has everything and is in use, and the other is refused to nodes."""
    path, uri, random = chain.with_name("webhooks.sqlite"), postgresql_server.new_schema(), Random(15)
    fill(path, 4_000)
    before = contents_of(path)
    command = [SVC, "webhook", "move", chain.parent]

    def is_in_use() -> bool:
        try:
            with closing(opened(uri, DEVNET.genesis_hash)) as database:
                database.refuse_moved()
                return bool(database.execute("SELECT 1 FROM watch LIMIT 1").fetchall())
        except DatabaseError:
            return False

    began = time.monotonic()
    subprocess.run([*command, "--to", uri], check=True, stdout=subprocess.DEVNULL)
    lasts = time.monotonic() - began
    subprocess.run([*command, "--from", uri], check=True, stdout=subprocess.DEVNULL)
    killed = 0
    for _ in range(100):
        if killed >= 2 and not torture:
            break
        uri = postgresql_server.new_schema()
        for direction in ("--to", "--from"):
            began = time.monotonic()
            moving = subprocess.Popen([*command, direction, uri], stdout=subprocess.DEVNULL)
            try:
                moving.wait(random.uniform(0.3, 1) * lasts)
                # The machine is faster by now, and the next one is killed earlier.
                lasts = min(lasts, time.monotonic() - began)
            except subprocess.TimeoutExpired:
                moving.send_signal(signal.SIGKILL)
                moving.wait()
                killed += 1
                assert moved(path) or not is_in_use()
                # A schema that is left by a killed move is that of a move that goes on.
                if moved(path) != (direction == "--to") or (direction == "--to" and not is_in_use()):
                    subprocess.run([*command, direction, uri], check=True, stdout=subprocess.DEVNULL)
            if direction == "--to":
                assert moved(path)
                with closing(opened(uri, DEVNET.genesis_hash)) as database:
                    database.refuse_moved()
                    assert contents(database) == before
            else:
                assert not moved(path)
                assert not is_in_use()
                assert contents_of(path) == before
    assert killed >= 2
