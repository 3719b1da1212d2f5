"""Numbers of things and durations in words."""

import pytest

from svcd.cli.rendering import confirmations_of
from svcd.quantities import counted, duration


def test_numbers_of_things() -> None:
    assert [counted(number, "block") for number in (0, 1, 2, 2_000)] == [
        "0 blocks",
        "1 block",
        "2 blocks",
        "2,000 blocks",
    ]
    assert [counted(number, "peer left", "peers left") for number in (1, 2)] == ["1 peer left", "2 peers left"]
    assert [confirmations_of(count, 12) for count in (1, 12, 12_345)] == ["1 of 12", "12 of 12", "12,345 (12 required)"]


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
