"""The one place where a command meets the reactor and the operating system."""

import os
import shutil
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import click
from twisted.internet.task import react

from svcd.wallet.agents import operator_agent, public_agent
from svcd.wallet.session import Outside

T = TypeVar("T")


def run_in_reactor(work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
    """Run ``work(reactor)`` to its end; raises what it raises, or click.Abort when a signal stops the reactor."""
    results: list[T] = []
    failures: list[Exception] = []

    async def keep_outcome(reactor: Any) -> None:
        try:
            results.append(await work(reactor))
        except Exception as error:
            failures.append(error)

    # react ends the process when it is done; the command still has its result to show.
    with suppress(SystemExit):
        react(keep_outcome)
    for failure in failures:
        raise failure
    if not results:
        raise click.Abort
    return results[0]


def _attended() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def outside() -> Outside:
    """The real network, randomness and terminal."""
    return Outside(
        run=run_in_reactor,
        agent=public_agent,
        operator_agent=operator_agent,
        random=os.urandom,
        environment=os.environ,
        watched=sys.stderr.isatty,
        attended=_attended,
        columns=_columns,
    )
