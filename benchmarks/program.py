"""The small main that every benchmark shares, and how one runs on the reactor."""

import argparse
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from benchmarks.figures import Row, save, table

T = TypeVar("T")
Measure = Callable[[Path, bool], list[Row]]
"""A benchmark: it gets an empty folder on disk and whether to be quick, and gives its rows."""


class MeasureAt(Protocol):
    """The same at a number that the command line gives."""

    def __call__(self, folder: Path, quick: bool, *, number: float) -> list[Row]:
        """Its rows."""


_NONE: Final[Mapping[str, tuple[str, MeasureAt]]] = MappingProxyType({})


def main(measure: Measure, options: Mapping[str, tuple[str, MeasureAt]] = _NONE) -> None:
    """Run one benchmark by itself: ``python -m benchmarks.NAME [--quick] [--json FILE]``.

    ``options`` are what it can measure instead, by the name of an option that takes a number: what that is, and the
    benchmark, which gets it too.
    """
    parser = argparse.ArgumentParser(description=measure.__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it runs, not to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE instead of showing them")
    # argparse cannot print the usage of a group without members.
    instead = parser.add_mutually_exclusive_group() if options else parser
    for name, (unit, _) in options.items():
        instead.add_argument(f"--{name}", type=float, metavar=unit, help="measure this instead")
    arguments = parser.parse_args()
    for name, (_, measure_at) in options.items():
        number = getattr(arguments, name.replace("-", "_"))
        if number is not None:
            measure = partial(measure_at, number=number)
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
