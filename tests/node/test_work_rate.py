"""What a node says of its search for work."""

from svcd.node.work_rate import RATE_SECONDS, AttemptCounts, WorkRate, expected_attempts
from tests.chains import ChainBuilder


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
