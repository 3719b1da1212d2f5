"""Runs the reactor of Twisted, for the commands that serve: `svc webhook listen` and `svc devnet`."""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import react
from twisted.scripts.twistd import ServerOptions, runApp  # type: ignore[attr-defined]

T = TypeVar("T")


def run_in_reactor(work: Callable[[Any], Coroutine[Any, Any, T]], /) -> T:
    """Run ``work(reactor)`` to its end; raises what it raises, or click.Abort if a signal stops it by cancelling it."""
    results: list[T] = []
    failures: list[Exception] = []

    async def keep_outcome(reactor: Any) -> None:
        # react() calls this before the reactor handles signals: until then Ctrl-C would be an exception anywhere in it.
        started: Deferred[None] = Deferred()
        reactor.callWhenRunning(started.callback, None)
        await started
        running = Deferred.fromCoroutine(work(reactor))
        ended: Deferred[None] = Deferred()

        def cancel() -> "Deferred[None]":
            # The connections are closed next: the work would report them as failures of the node.
            running.cancel()
            return ended

        reactor.addSystemEventTrigger("before", "shutdown", cancel)
        try:
            results.append(await running)
        except CancelledError:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            ended.callback(None)

    # react() exits the process at the end, but the command still has to print its result.
    with suppress(SystemExit):
        react(keep_outcome)
    for failure in failures:
        raise failure
    if not results:
        raise click.Abort
    return results[0]


def run_twistd(arguments: Sequence[str]) -> None:
    """Run `twistd` with ``arguments`` in this process until it is stopped."""
    options = ServerOptions()  # type: ignore[no-untyped-call]
    options.parseOptions(arguments)  # type: ignore[no-untyped-call]
    runApp(options)  # type: ignore[no-untyped-call]
