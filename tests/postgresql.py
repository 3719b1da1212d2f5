"""A PostgreSQL server of the tests' own: from Debian's package, as an unprivileged user, on a Unix socket only."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from svcd.store.postgresql import PostgresqlConnection, parse_address
from tests.programs import program

START_SECONDS: Final = 120.0
GENESIS: Final = b"g" * 32
_UNPRIVILEGED: Final = ("postgres", "nobody")
_FAST: Final = ("shared_buffers=16MB", "fsync=off", "full_page_writes=off", "synchronous_commit=off")
"""Where a test does not lose power."""
_schemas: Final = count(1)


class Server:
    """A server with a data directory of its own; ``durable`` if a commit is on the disk before it is told.

    It begins empty, or as a replica of the running server ``standby_of``.
    """

    def __init__(self, folder: Path, *, durable: bool = False, standby_of: "Server | None" = None) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.settings = ["listen_addresses=", f"unix_socket_directories={folder}", *(() if durable else _FAST)]
        # PostgreSQL refuses to run as root.
        self.identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = next(name for name in _UNPRIVILEGED if _exists(name))
            self.identity = {"user": user, "extra_groups": []}
            shutil.chown(folder, user)
        self.process: subprocess.Popen[bytes] | None = None
        if standby_of is None:
            self._run("initdb", f"-D {self.data_dir} -U svcd -A trust -E UTF8 --no-sync --locale=C.UTF-8")
        else:
            self._run("pg_basebackup", f"-D {self.data_dir} -h {standby_of.folder} -U svcd -R -X stream -c fast")

    def _run(self, name: str, options: str) -> None:
        command = [program(name), *options.split()]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **self.identity)

    @property
    def uri(self) -> str:
        """The connection URI of its database, for the user svcd."""
        return f"postgresql://svcd@/postgres?host={self.folder}"

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        settings = [part for setting in self.settings for part in ("-c", setting)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", self.data_dir, *settings],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self.identity,
            )
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self.uri).close()
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise AssertionError((self.folder / "log").read_text()) from None
                time.sleep(0.05)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop the server: SIGINT ends the connections in good order, SIGQUIT as a crash does."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def kill(self) -> None:
        """End all processes of the server without their knowing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (self.process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def new_schema(self) -> str:
        """The connection URI of an empty schema, which is as good as a database and much cheaper."""
        name = f"t{next(_schemas)}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return f"{self.uri}&options=-csearch_path%3D{name}"


@contextmanager
def running(*, durable: bool = False, standby_of: Server | None = None) -> Iterator[Server]:
    """A server that runs inside; without PostgreSQL installed the test is skipped."""
    program("postgres")
    # Not in pytest's folder, into which another user may not look.
    with tempfile.TemporaryDirectory(prefix="svcd-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder, durable=durable, standby_of=standby_of)
        try:
            server.start()
            yield server
        finally:
            server.stop(signal.SIGQUIT)


def opened(uri: str, genesis: bytes = GENESIS) -> PostgresqlConnection:
    """A connection to the database of ``uri``, whose schema is up to date."""
    connection = PostgresqlConnection(parse_address(uri), lambda connection: connection.migrate(genesis))
    connection.connect()
    return connection


def _exists(user: str) -> bool:
    return any(line.startswith(f"{user}:") for line in Path("/etc/passwd").read_text("utf-8").splitlines())
