"""The small main that every benchmark shares, and how one runs on the reactor."""

import argparse
from collections.abc import Callable, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from benchmarks.figures import Row, save, table

T = TypeVar("T")
Measure = Callable[[Path, bool], list[Row]]
"""A benchmark: it gets an empty folder on disk and whether to be quick, and gives its rows."""


def main(measure: Measure) -> None:
    """Run one benchmark by itself: ``python -m benchmarks.NAME [--quick] [--json FILE]``."""
    parser = argparse.ArgumentParser(description=measure.__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE instead of showing them")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="svcd-benchmark-") as folder:
        rows = measure(Path(folder), arguments.quick)
    if arguments.json is None:
        print(table(rows))
    else:
        save(rows, arguments.json)


def on_reactor(work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """What the coroutine of ``work(reactor)`` returns; a failure of it is shown and ends the process with status 1."""
    results: list[T] = []

    async def run(reactor: Any) -> None:
        results.append(await work(reactor))

    try:
        react(lambda reactor: Deferred.fromCoroutine(run(reactor)))
    except SystemExit as end:
        if end.code:
            raise
    return results[0]
