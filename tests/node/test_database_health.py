"""A writer that ends the node when its data contradict themselves, and only then."""

from collections.abc import Callable
from threading import Thread

import apsw
import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, LogLevel, formatEvent, globalLogPublisher

from svcd.chain.errors import Corrupt, Refusal, RuleViolation
from svcd.node.database_health import DatabaseHealth, DiskProbe, ReportingWorker
from svcd.node.threads import InlineWorker
from svcd.store.database import CHAIN, WEBHOOKS, DatabaseKind
from tests.support import result_of

ExpectedErrors = Callable[..., list[LogEvent]]


def sqlite_error(code: int) -> apsw.Error:
    error = apsw.exception_for(code)
    error.args = ("what SQLite says",)
    return error


def fail(error: Exception) -> int:
    raise error


@pytest.fixture
def calls() -> list[str]:
    """One entry for each call of what ends the node."""
    return []


@pytest.fixture
def guard(calls: list[str]) -> ReportingWorker:
    return ReportingWorker(InlineWorker(), DatabaseHealth(lambda: calls.append("damaged")))


def test_work_gives_its_result(guard: ReportingWorker, calls: list[str]) -> None:
    assert result_of(guard.run(divmod, 7, 2)) == (3, 1)
    assert result_of(guard.run(sorted, [1, 2], reverse=True)) == [2, 1]
    assert calls == []


@pytest.mark.parametrize(
    "error",
    [
        Corrupt("the undo record is missing"),
        sqlite_error(apsw.SQLITE_CORRUPT),
        sqlite_error(apsw.SQLITE_CORRUPT_VTAB),
        sqlite_error(apsw.SQLITE_NOTADB),
    ],
)
def test_damage_is_told_once_and_ends_the_node(
    guard: ReportingWorker, calls: list[str], expected_errors: ExpectedErrors, error: Exception
) -> None:
    assert not guard.health.has_told(error)
    with pytest.raises(type(error)) as raised:
        result_of(guard.run(fail, error))
    assert raised.value is error, "whoever asked for the work hears of it too"
    assert calls == ["damaged"]
    assert (guard.health.has_told(error), guard.health.has_told(ValueError())) == (True, False)
    (event,) = expected_errors()
    assert event["log_level"] is LogLevel.critical
    assert formatEvent(event) == (
        f"the database is damaged: {error}. The node stops; try `svc db rebuild`, restore it from a backup, or move it "
        "away and the node fetches the chain again"
    )


@pytest.mark.parametrize(
    ("code", "tells", "remedy"),
    [
        (apsw.SQLITE_FULL, True, "free space on the disk or repair it"),
        (apsw.SQLITE_READONLY, True, "free space on the disk or repair it"),
        (apsw.SQLITE_BUSY, True, "close the program that has locked it"),
        (apsw.SQLITE_IOERR_WRITE, False, ""),
    ],
)
def test_a_failing_disk_is_told_and_waited_for(calls: list[str], code: int, tells: bool, remedy: str) -> None:
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        lines.append(f"{event['log_level'].name}: {formatEvent(event)}")

    guard = ReportingWorker(InlineWorker(), DatabaseHealth(lambda: calls.append("damaged")), tells)
    globalLogPublisher.addObserver(note)
    try:
        with pytest.raises(apsw.Error):
            result_of(guard.run(fail, sqlite_error(code)))
    finally:
        globalLogPublisher.removeObserver(note)
    sentence = (
        "error: the database cannot be written: what SQLite says. The change was not made; "
        f"{remedy}, and the node then continues without a restart"
    )
    assert (lines, calls) == ([sentence] if tells else [], [])
    assert guard.health.trouble == "what SQLite says"


def test_two_files_of_one_node_end_it_once(calls: list[str], expected_errors: ExpectedErrors) -> None:
    chain = DatabaseHealth(lambda: calls.append("damaged"))
    assert chain.of(WEBHOOKS).is_damage(sqlite_error(apsw.SQLITE_CORRUPT))
    assert chain.is_damage(Corrupt("second"))
    assert calls == ["damaged"]
    (event,) = expected_errors()
    sentence = "the webhooks' database is damaged: what SQLite says. The node stops; move it away"
    assert formatEvent(event).startswith(sentence)


def test_a_chain_that_the_webhooks_find_damaged_is_not_laid_to_their_database(
    calls: list[str], expected_errors: ExpectedErrors
) -> None:
    """Or the operator would move the sound one away, with the orders of the merchants."""
    webhooks = DatabaseHealth(lambda: calls.append("damaged")).of(WEBHOOKS)
    with pytest.raises(Corrupt):
        result_of(ReportingWorker(InlineWorker(), webhooks, log=False).run(fail, Corrupt("a block is missing")))
    assert calls == ["damaged"]
    (event,) = expected_errors()
    assert formatEvent(event).startswith("the database is damaged: a block is missing. The node stops; try `svc db re")


def test_two_threads_that_see_damage_at_once_end_it_once(calls: list[str], expected_errors: ExpectedErrors) -> None:
    """One reader sees it while another is about to tell of it."""
    chain = DatabaseHealth(lambda: calls.append("damaged"))

    class Meanwhile(Corrupt):
        """Another thread sees damage, to the end, while this error is being put into words."""

        def __str__(self) -> str:
            other = Thread(target=chain.of(WEBHOOKS).is_damage, args=(Corrupt("second"),))
            other.start()
            other.join()
            return "first"

    assert chain.is_damage(Meanwhile())
    assert calls == ["damaged"]
    (event,) = expected_errors()
    assert event["why"] == "first"


@pytest.mark.parametrize(
    "error",
    [
        sqlite_error(apsw.SQLITE_BUSY),
        apsw.ConnectionClosedError("Cannot operate on a closed database."),
        RuleViolation(Refusal.NONCE, "nonce must be 3"),
        ZeroDivisionError(),
    ],
)
def test_another_error_is_no_damage(guard: ReportingWorker, calls: list[str], error: Exception) -> None:
    """That nothing is logged is what the fixture for errors that nobody expected looks for."""
    done: Deferred[int] = guard.run(fail, error)
    with pytest.raises(type(error)):
        result_of(done)
    assert calls == []


class Failing:
    """What the disk does when something is written, as SQLite says it."""

    def __init__(self) -> None:
        self.code = apsw.SQLITE_FULL
        self.tried = 0

    def write(self) -> None:
        self.tried += 1
        if self.code:
            raise sqlite_error(self.code)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [(CHAIN, "the chain's database cannot be written"), (WEBHOOKS, "the webhooks' database cannot be written")],
)
def test_a_disk_is_tried_again_until_it_takes_something(calls: list[str], kind: DatabaseKind, sentence: str) -> None:
    failing = Failing()
    guard = DatabaseHealth(lambda: calls.append("damaged"), kind)
    disk = DiskProbe(guard, InlineWorker(), failing.write)

    def try_again() -> str:
        result_of(Deferred.fromCoroutine(disk.try_again()))
        return disk.trouble

    assert (disk.trouble, try_again(), failing.tried) == ("", "", 0), "what is well is left in peace"
    with pytest.raises(apsw.Error):
        result_of(ReportingWorker(InlineWorker(), guard).run(failing.write))
    assert disk.trouble == f"{sentence}: what SQLite says"
    assert [try_again(), try_again()] == [disk.trouble] * 2
    failing.code = 0
    assert (try_again(), failing.tried, calls) == ("", 4, [])


def test_trouble_with_one_file_is_not_that_of_another(calls: list[str]) -> None:
    chain = DatabaseHealth(lambda: calls.append("damaged"))
    with pytest.raises(apsw.Error):
        result_of(ReportingWorker(InlineWorker(), chain.of(WEBHOOKS)).run(fail, sqlite_error(apsw.SQLITE_FULL)))
    assert chain.trouble == ""
