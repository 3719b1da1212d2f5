"""What a node says of its search for work, and how long it lasts."""

import pytest

from svcd.node.durations import duration
from svcd.node.work_rate import RATE_SECONDS, AttemptCounts, WorkRate, expected_attempts
from tests.chains import ChainBuilder


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (62.4, "62 s"),
        (119, "119 s"),
        (120, "2 min"),
        (150, "2.5 min"),
        (599, "10 min"),
        (3_600, "60 min"),
        (12_600, "3.5 h"),
        (90_000, "25 h"),
        (10 * 86_400, "10 days"),
        (4_000 * 86_400, "4,000 days"),
    ],
)
def test_a_duration_in_few_digits(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_half_of_the_values_take_two_attempts(chain: ChainBuilder) -> None:
    header = chain.block().header
    assert expected_attempts(header) == 2**256 * 10_000 // (header.base_target * header.multiplier)


def test_rate_and_expectation() -> None:
    rate = WorkRate(13, 3.94, 240)
    assert rate.words == "3.9 attempts/s, 240 attempts for a block on average: 61 s"
    assert rate.record() == {
        "height": "13",
        "attemptsPerSecond": 3.94,
        "attemptsExpected": "240",
        "secondsExpected": 60.9,
    }


def test_no_time_is_expected_before_an_attempt_was_counted() -> None:
    rate = WorkRate(13, 0.0, 2_400)
    assert rate.words == "2,400 attempts for a block on average"
    assert rate.record()["secondsExpected"] is None


def test_the_rate_is_that_of_the_last_minute() -> None:
    counts = AttemptCounts()
    assert counts.per_second == 0.0
    for number in range(41):
        counts.note(5.0 * number, 10 * number if number <= 20 else 200 + 50 * (number - 20))
    assert counts.per_second == 10.0
    counts.note(200.0 + RATE_SECONDS + 1, 1_200)
    assert counts.per_second == 0.0, "only the newest count is left"
    counts.clear()
    assert counts.per_second == 0.0
