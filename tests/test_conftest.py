"""The hooks of conftest.py, tried on a small test suite of its own in another pytest."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SUITE = """
import pytest
from hypothesis import Phase, given, settings, strategies
from twisted.internet import defer, reactor
from twisted.logger import Logger

log = Logger()

async def test_coroutine_passes():
    await defer.succeed(None)

async def test_coroutine_fails():
    assert await defer.succeed(1) == 2

@pytest.mark.deadline(0.1)
async def test_never_fires():
    await defer.Deferred()

@pytest.mark.deadline(0.1)
async def test_ignores_cancellation():
    while True:
        try:
            await defer.Deferred()
        except defer.CancelledError:
            pass

@pytest.mark.deadline(0.1)
@settings(phases=[Phase.generate])
@given(strategies.integers())
async def test_hypothesis_never_fires(number):
    await defer.Deferred()

@given(strategies.integers())
async def test_hypothesis_passes(number):
    await defer.succeed(number)

def test_next_one_passes():
    pass

def test_logs_an_error():
    try:
        1 / 0
    except ZeroDivisionError:
        log.failure("dividing")

def test_expects_the_error(expected_errors):
    test_logs_an_error()
    [event] = expected_errors(ZeroDivisionError)
    assert event["log_format"] == "dividing"

def test_expects_another_error(expected_errors):
    with pytest.raises(AssertionError):
        expected_errors(KeyError)

def test_drops_a_failure():
    defer.fail(KeyError("nobody looks"))

def test_leaves_a_timer():
    reactor.callLater(60, print)

def test_timer_that_soon_ends():
    reactor.callLater(0.05, int)

def test_skips():
    pytest.skip("no luck today")

def test_counts_are_short(torture):
    assert not torture

def test_public(public_vectors):
    assert public_vectors.name == "given"
"""


def outcomes(folder: Path, *options: str, **environment: str) -> dict[str, str]:
    """Each test's outcome ("ERROR" is one that passed and failed in its teardown)."""
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "test_suite.py").write_text(SUITE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SVCD_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-rA", "-W", "error", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    run = subprocess.run(
        [*command, *options, str(folder)],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    found = re.findall(
        r"^(PASSED|FAILED|ERROR|SKIPPED) (?:\[\d+\] )?test_suite\.py(?:::(\w+)|:\d+: )(.*)", run.stdout, re.M
    )
    assert found, run.stdout + run.stderr
    return {name or rest: outcome for outcome, name, rest in found}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outcomes(tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize(
    ("test", "outcome"),
    [
        ("test_coroutine_passes", "PASSED"),
        ("test_coroutine_fails", "FAILED"),
        ("test_never_fires", "FAILED"),
        ("test_ignores_cancellation", "FAILED"),
        ("test_hypothesis_never_fires", "FAILED"),
        ("test_hypothesis_passes", "PASSED"),
        ("test_next_one_passes", "PASSED"),
        ("test_logs_an_error", "ERROR"),
        ("test_expects_the_error", "PASSED"),
        ("test_expects_another_error", "PASSED"),
        ("test_drops_a_failure", "ERROR"),
        ("test_leaves_a_timer", "ERROR"),
        ("test_timer_that_soon_ends", "PASSED"),
        ("no luck today", "SKIPPED"),
    ],
)
def test_outcome(plain: dict[str, str], test: str, outcome: str) -> None:
    assert plain.get(test) == outcome


def test_missing_vectors_are_named(plain: dict[str, str]) -> None:
    assert plain["SVCD_VECTORS is not set: it names the folder of the published test vectors"] == "SKIPPED"


def test_vectors_come_from_the_environment_and_a_skip_fails_where_all_is_required(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "-k", "public or skips", SVCD_REQUIRE_ALL="1", SVCD_VECTORS="/somewhere/given")
    assert found["test_public"] == "PASSED"
    assert found["test_skips"] == "FAILED"


def test_published_vectors_said_not_to_be_there_are_left_out(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "-k", "public or next", SVCD_REQUIRE_ALL="1", SVCD_VECTORS="none")
    assert "test_public" not in found
    assert found["test_next_one_passes"] == "PASSED"


def test_long_counts_come_with_the_torture_profile(plain: dict[str, str], tmp_path: Path) -> None:
    assert plain["test_counts_are_short"] == "PASSED"
    assert outcomes(tmp_path, "-k", "counts", HYPOTHESIS_PROFILE="torture") == {"test_counts_are_short": "FAILED"}
