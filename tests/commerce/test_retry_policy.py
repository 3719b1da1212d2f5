"""Delays between attempts, Retry-After, and delays between probes."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.commerce.retry_policy import (
    MAX_ATTEMPTS,
    RETRY_DELAYS,
    RETRY_PERIOD,
    next_attempt,
    next_attempt_after_refusal,
    parse_retry_after,
    probe_delay,
)

NOW = 1_790_000_000_000
HOUR = 3_600_000


def pause(attempts: int, *, chance: float = 0.5, retry_after: str | None = None, barred: bool = False) -> int:
    due = next_attempt(attempts, NOW, chance=chance, retry_after=retry_after, barred=barred)
    assert due is not None
    return due - NOW


def test_sixteen_attempts_over_about_seventy_six_hours() -> None:
    seconds = [pause(attempts) / 1000 for attempts in range(1, 16)]
    hours = [3600 * number for number in (1, 2, 4, 8, 12, 24, 24)]
    assert seconds == [1, 2, 4, 8, 30, 120, 600, 1800, *hours]
    assert 75.5 < sum(seconds) / 3600 < 76
    assert MAX_ATTEMPTS == 16
    assert next_attempt(16, NOW, chance=0.5) is None
    assert next_attempt(17, NOW, chance=0.5, retry_after="5") is None


def test_jitter_is_a_fifth_to_either_side() -> None:
    assert [pause(5, chance=chance) for chance in (0.0, 0.25, 0.5, 0.75, 1.0)] == [24000, 27000, 30000, 33000, 36000]
    assert sum(pause(attempts, chance=1.0, barred=True) for attempts in range(1, 16)) == RETRY_PERIOD


@given(begins=st.floats(0, 5), chances=st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_after_an_outage_of_five_seconds_the_next_attempt_is_within_five_more(
    begins: float, chances: list[float]
) -> None:
    """Whenever the event was made during the outage, and whatever the jitter."""
    at = begins
    for attempts, chance in enumerate(chances, 1):
        if at < 5:
            at += pause(attempts, chance=chance) / 1000
    assert 5 <= at <= 10


@pytest.mark.parametrize(("followed", "pauses"), [(False, [300_000, 3_600_000]), (True, [500, 500])])
def test_a_refused_event_gets_two_more_attempts(followed: bool, pauses: list[int]) -> None:
    dues = [next_attempt_after_refusal(refusals, NOW, chance=0.5, followed=followed) for refusals in (1, 2, 3)]
    assert dues == [NOW + pauses[0], NOW + pauses[1], None]


@given(st.integers(1, 15), st.floats(0, 1))
def test_no_delay_is_outside_the_jitter(attempts: int, chance: float) -> None:
    step = RETRY_DELAYS[attempts - 1]
    assert step * 8 // 10 <= pause(attempts, chance=chance) <= step * 12 // 10


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("0", 120),
        ("119", 120),
        ("120", 120),
        ("150", 150),
        (" 150\t", 150),
        ("000150", 150),
        ("240", 240),
        ("241", 240),
        ("9" * 20, 240),
        ("9" * 10_000, 240),
        ("Mon, 01 Jan 1990 00:00:00 GMT", 120),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 240),
    ],
)
def test_retry_after_is_honoured_up_to_twice_the_regular_delay(retry_after: str, seconds: int) -> None:
    for chance in (0.0, 0.5, 1.0):
        assert pause(6, chance=chance, retry_after=retry_after) == seconds * 1000


@pytest.mark.parametrize(
    "retry_after",
    [
        *("", "soon", "-1", "1.5", "1e3", "+5", "０", "²", "12 34", "5s", "\xff\xfe", "x" * 10_000),
        *("Mon, 99 Jan 2026 00:00:00 GMT", "Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 01 Jan 2026 99:00:00 GMT"),
    ],
)
def test_a_retry_after_that_is_neither_number_nor_date_is_ignored(retry_after: str) -> None:
    assert parse_retry_after(retry_after, NOW) is None
    assert pause(6, chance=1.0, retry_after=retry_after) == 144_000


@pytest.mark.parametrize(
    "text", ["Mon, 21 Sep 2026 14:55:50 GMT", "Monday, 21-Sep-26 14:55:50 GMT", "Mon Sep 21 14:55:50 2026"]
)
def test_a_date_has_three_forms(text: str) -> None:
    at = int(datetime(2026, 9, 21, 14, 55, 50, tzinfo=UTC).timestamp()) * 1000
    assert parse_retry_after(text, at - 150_000) == 150_000


@given(st.text(max_size=80), st.integers(0, 2 * NOW))
def test_any_text_is_parsed_or_ignored(text: str, now: int) -> None:
    due = next_attempt(5, now, chance=0.5, retry_after=text)
    assert due is not None
    assert now + RETRY_DELAYS[4] <= due <= now + 2 * RETRY_DELAYS[4]


def test_probe_delays_grow_to_five_minutes() -> None:
    assert [probe_delay(probes) // 1000 for probes in (0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 10**6)] == [
        *(1, 2, 4, 8, 30, 120, 300, 300),
        *(300, 300, 300, 300),
    ]
