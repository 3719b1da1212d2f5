"""A program that imports prepared blocks through the real chain manager, on real threads, until done or killed.

    python -m tests.torture.importer BATCHES DATABASE [STATEMENT]

BATCHES holds a batch a line: blocks in canonical JSON, which has no blanks, with blanks between them. The program says
`open` before it opens the database, the number of each batch once it is committed, and in the end how many SQL
statements it took. With STATEMENT it kills itself when it comes to that statement.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from svcd.interfaces import Timer
from svcd.node import state_tree_keeper
from svcd.node.changes import BlockStatus
from svcd.node.mempool import Mempool
from svcd.node.node_context import NodeContext, NodeThreads, open_node
from svcd.node.threads import ThreadPoolService
from tests.chains import TEST_PARAMS
from tests.node.bench import LATE
from tests.store.statements import trace


@define
class LateClock:
    """The reactor's time, moved to where no block of a test is early."""

    reactor: Any
    start: float

    def seconds(self) -> float:
        return TEST_PARAMS.slot_time(LATE) / 1000 + float(self.reactor.seconds()) - self.start

    def callLater(self, delay: float, call: Any, /, *args: object) -> Timer:  # noqa: N802
        timer: Timer = self.reactor.callLater(delay, call, *args)
        return timer


@define
class Statements:
    """Counts what the writer says to SQLite, and may kill the process when it has said enough."""

    last: int | None
    count: int = 0

    def __call__(self, text: str) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def import_batches(node_context: NodeContext, batches: list[list[bytes]]) -> None:
    for number, batch in enumerate(batches):
        outcomes = await node_context.chain_manager.submit_blocks(batch)
        strange = [outcome for outcome in outcomes if not isinstance(outcome, BlockStatus)]
        if strange:
            raise SystemExit(f"batch {number}: {strange[0]}")
        say(number)


async def run(reactor: Any, batches: Path, database: Path, statement: int | None) -> None:
    writer = ThreadPoolService(reactor, size=1, name="writer")
    verifier = ThreadPoolService(reactor, size=2, name="verifier")
    for service in (writer, verifier):
        service.startService()
    threads = NodeThreads(writer, verifier, 2, verifier, verifier)
    mempool = Mempool(TEST_PARAMS, max_transactions=50_000, max_bytes=2**26)
    # Often, so that many kills come while the file is written.
    state_tree_keeper.MAX_BLOCKS = 2
    statements = Statements(statement)
    say("open")
    try:
        clock = LateClock(reactor, reactor.seconds())
        node_context = await open_node(TEST_PARAMS, database, threads=threads, mempool=mempool, clock=clock)
        trace(node_context.chain.chainstate.store._db, statements)
        await import_batches(node_context, [line.split() for line in batches.read_bytes().splitlines()])
        await node_context.close()
    finally:
        for service in (verifier, writer):
            await service.stopService()
    say(f"statements={statements.count}")


def main(reactor: Any, batches: str, database: str, statement: str = "") -> Deferred[None]:
    return Deferred.fromCoroutine(run(reactor, Path(batches), Path(database), int(statement) if statement else None))


if __name__ == "__main__":
    react(main, sys.argv[1:])
