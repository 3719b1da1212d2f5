"""What every test gets: a deadline, a check that nothing went wrong unseen, the vectors, and no silent skips.

pytest-twisted runs each test on a real reactor but waits for ever for a Deferred that never fires, and passes a test
although an error was logged, a Deferred's failure was dropped or a timer was left behind. The hooks here
close those gaps.
"""

import functools
import gc
import inspect
import os
import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from attrs import evolve
from hypothesis import given, settings, strategies
from twisted.internet import task
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, globalLogPublisher
from twisted.python.failure import Failure

from svcd.store import database
from svcd.store.database import DatabaseConnection
from tests.measured import tell_greenlets_apart
from tests.postgresql import Server, running

DEADLINE_SECONDS = 120.0
GRACE_SECONDS = 3.0
# What `svc` remembers for a user is remembered for the tests alone, also in processes that they start.
_STATE = tempfile.TemporaryDirectory(prefix="svcd-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name
# The commands of the pages run for a user who has read the one warning, whichever test starts `svc` first.
_WARNINGS = Path(_STATE.name, "svc", "warnings")
_WARNINGS.parent.mkdir(mode=0o700)
_WARNINGS.write_text("SVC_WALLET_PASSWORD\n", encoding="utf-8")
_WARNINGS.chmod(0o600)

REQUIRE_ALL = os.environ.get("SVCD_REQUIRE_ALL") == "1"

settings.register_profile("few", max_examples=5, deadline=None)
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("torture", max_examples=10_000, deadline=None, print_blob=True)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
settings.load_profile(PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    # Where a shell runs the tests in the background it ignores Ctrl-C for them, and for the processes they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tell_greenlets_apart()
    config.addinivalue_line(
        "markers", f"deadline(seconds): fail a coroutine test after so long, not {DEADLINE_SECONDS}"
    )


def pytest_collection_finish() -> None:
    """Take what is imported by now out of the collector's sight, so that a `gc.collect()` per test costs little."""
    _first_example()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Do the same with what a module leaves behind, such as chains that are cached for the modules after it."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


@settings(max_examples=1, database=None)
@given(strategies.none())
def _first_example(_: None) -> None:
    """Hypothesis asks once who refers to its random source, and the collector does not show it what is frozen."""


# Deadlines


def bounded(coroutine: Coroutine[Any, Any, Any], seconds: float) -> "Deferred[Any]":
    """The outcome of a coroutine, or a TimeoutError, even if the coroutine ignores its cancellation."""
    from twisted.internet import reactor

    outcome: Deferred[Any] = Deferred()
    running = Deferred.fromCoroutine(coroutine)

    def late() -> None:
        outcome.errback(TimeoutError(f"the test did not end within {seconds:g} s"))
        running.cancel()

    def ended(result: Any) -> None:
        if timer.active():
            timer.cancel()
            outcome.callback(result)

    timer = reactor.callLater(seconds, late)
    running.addBoth(ended)
    return outcome


def with_deadline(test: Callable[..., Coroutine[Any, Any, Any]], seconds: float) -> "Callable[..., Deferred[Any]]":
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> "Deferred[Any]":
        return bounded(test(*args, **kwargs), seconds)

    return run


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    marker = pyfuncitem.get_closest_marker("deadline")
    seconds = float(marker.args[0]) if marker else DEADLINE_SECONDS
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    if hypothesis is not None:
        if inspect.iscoroutinefunction(hypothesis.inner_test):
            hypothesis.inner_test = with_deadline(hypothesis.inner_test, seconds)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = with_deadline(pyfuncitem.obj, seconds)


# Nothing goes wrong unseen


class LoggedErrors:
    """Errors logged during a test: events that carry a failure, and critical ones."""

    def __init__(self) -> None:
        self.events: list[LogEvent] = []

    def observe(self, event: LogEvent) -> None:
        if event.get("log_failure") is not None or event.get("log_level") is LogLevel.critical:
            self.events.append(event)

    def expect(self, *types: type[BaseException]) -> list[LogEvent]:
        """Take the errors of these types (of every type, when none is named) off the list; there must be one."""
        gc.collect()
        taken = [event for event in self.events if not types or _is_of(event.get("log_failure"), types)]
        assert taken, f"no error of {types or 'any type'} was logged"
        self.events = [event for event in self.events if event not in taken]
        return taken


def _is_of(failure: Failure | None, types: tuple[type[BaseException], ...]) -> bool:
    return failure is not None and failure.check(*types) is not None


def _describe(event: LogEvent) -> str:
    failure = event.get("log_failure")
    return failure.getTraceback() if failure is not None else str(event.get("log_format"))


def _timers() -> list[Any]:
    from twisted.internet import reactor

    return reactor.getDelayedCalls()


def _priority() -> int:
    """The nice value of this thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def _left_behind(before: list[Any]) -> list[Any]:
    """Timers that were not there before; a closing connection gets a moment to cancel its own."""
    from twisted.internet import reactor

    known = [timer.func for timer in before]
    give_up_at = reactor.seconds() + GRACE_SECONDS
    while left := [timer for timer in _timers() if timer.func not in known]:
        if reactor.seconds() >= give_up_at:
            break
        pytest_twisted.blockon(task.deferLater(reactor, 0.01))
    return left


@pytest.fixture(autouse=True)
def _nothing_unseen(request: pytest.FixtureRequest) -> Iterator[LoggedErrors]:
    if "tmp_path" in request.fixturenames:
        # Made before all else, for it is removed after the test and everything in it must have been closed by then.
        request.getfixturevalue("tmp_path")
    errors = LoggedErrors()
    timers, priority = _timers(), _priority()
    globalLogPublisher.addObserver(errors.observe)
    yield errors
    left = _left_behind(timers)
    for timer in left:
        timer.cancel()
    # A Deferred reports a failure nobody looked at when it is collected, and failures sit in reference cycles.
    gc.collect()
    globalLogPublisher.removeObserver(errors.observe)
    problems = ["logged an error nobody expected:\n" + _describe(event) for event in errors.events]
    problems += [f"left a timer behind: {timer}" for timer in left]
    if _priority() != priority:
        # All tests after it would be starved by the programs beside them.
        problems.append(f"left its thread at priority {_priority()}, not {priority}")
    if problems:
        pytest.fail("the test " + "\nand ".join(problems), pytrace=False)


@pytest.fixture
def expected_errors(_nothing_unseen: LoggedErrors) -> Callable[..., list[LogEvent]]:
    """`expected_errors(ValueError)`, called after the fact: such errors were logged and are no reason to fail."""
    return _nothing_unseen.expect


# No waiting for the disk

_prepare_as_a_node_does = database._prepare


def _prepare_without_sync(connection: DatabaseConnection, path: Path, kind: database.DatabaseKind) -> None:
    _prepare_as_a_node_does(connection, path, evolve(kind, synchronous="OFF"))


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Databases that are opened in the process of the tests do not wait for the disk.

    Sync protects from a power loss, which no test causes; thousands of new databases would wait longer than they work.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_prepare", _prepare_without_sync)
        yield


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is written when: databases wait for the disk as those of a node do."""
    monkeypatch.setattr(database, "_prepare", _prepare_as_a_node_does)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """A PostgreSQL for all tests that need only schemas of their own; it does not wait for the disk."""
    with running() as server:
        yield server


# No silent skips


def _no_skip(report: Any) -> Any:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"SVCD_REQUIRE_ALL=1 allows no skips: {reason}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _no_skip((yield))


# Vectors


@pytest.fixture(scope="session")
def vectors() -> Path:
    """The folder of the test vectors that are part of the project."""
    return Path(__file__).parent / "vectors"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, visibly, what reads the published vectors where they are said not to be there."""
    if os.environ.get("SVCD_VECTORS") == "none":
        left_out = [item for item in items if "public_vectors" in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def public_vectors() -> Path:
    """The folder of the published vectors (BIP-350, RFC 8032, Wycheproof, …), which are not part of the project."""
    folder = os.environ.get("SVCD_VECTORS")
    if not folder:
        pytest.skip("SVCD_VECTORS is not set: it names the folder of the published test vectors")
    return Path(folder)


# Long counts


@pytest.fixture(scope="session")
def torture() -> bool:
    """Whether long counts are wanted (`make torture`): `kills = 200 if torture else 10`."""
    return PROFILE == "torture"
