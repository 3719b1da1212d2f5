"""Few lines a minute of what happens, and counts in the place of the others; times are in seconds."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from svcd.node.news import AT_ONCE, OWN, SHARED, WINDOW_SECONDS, LineBudget, News, Topic

PAYMENT, TIP, REORGANISATION = Topic.PAYMENT, Topic.TIP, Topic.REORGANISATION


@pytest.fixture
def said() -> Iterator[list[LogEvent]]:
    with capturedLogs() as events:
        yield events


def flood(budget: LineBudget, topic: Topic, count: int, now: float = 0.0) -> int:
    """How many of so many lines are written."""
    return sum(budget.admits(topic, now) for _ in range(count))


def test_a_flood_is_cut_off_and_hides_no_line_of_another_topic() -> None:
    budget = LineBudget()
    assert flood(budget, PAYMENT, 2_000) == OWN + SHARED
    assert [flood(budget, topic, 100, 59.0) for topic in (TIP, REORGANISATION)] == [OWN, OWN]


def test_the_counts_come_once_when_the_minute_is_over() -> None:
    budget = LineBudget()
    flood(budget, PAYMENT, 2_000)
    flood(budget, TIP, OWN + 1, 10.0)
    assert not budget.take_counts(WINDOW_SECONDS - 0.1)
    assert budget.take_counts(WINDOW_SECONDS) == {PAYMENT: 2_000 - OWN - SHARED, TIP: 1}
    assert not budget.take_counts(WINDOW_SECONDS)


def test_the_next_minute_begins_with_its_first_line() -> None:
    budget = LineBudget()
    flood(budget, PAYMENT, 2_000)
    assert flood(budget, PAYMENT, 2_000, 100.0) == OWN + SHARED
    assert flood(budget, PAYMENT, 2_000, 100.0 + WINDOW_SECONDS - 0.1) == 0
    assert flood(budget, PAYMENT, 2_000, 100.0 + WINDOW_SECONDS) == OWN + SHARED


def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    budget = LineBudget()
    flood(budget, PAYMENT, 2_000, 3_600.0)
    assert flood(budget, PAYMENT, 1, 0.0) == 1


@given(st.lists(st.tuples(st.sampled_from(Topic), st.floats(0, 20)), max_size=300))
def test_any_minute_has_few_lines_and_every_line_is_written_or_counted(lines: list[tuple[Topic, float]]) -> None:
    budget, now = LineBudget(), 0.0
    written: list[float] = []
    counted = 0
    for topic, wait in lines:
        now += wait
        counted += budget.take_counts(now).total()
        if budget.admits(topic, now):
            written.append(now)
    counted += budget.take_counts(now + WINDOW_SECONDS).total()
    assert len(written) + counted == len(lines)
    most = 2 * (SHARED + OWN * len(Topic))
    for began in written:
        assert sum(began <= at < began + WINDOW_SECONDS for at in written) <= most


def test_what_was_left_out_is_one_line_with_counts(said: list[LogEvent]) -> None:
    clock = Clock()
    news = News(clock)
    for number in range(2_000):
        news.info("payment {number}", PAYMENT, number=number)
    news.warn("gone", Topic.GIVEN_UP)
    news.sum_up()
    assert len(said) == OWN + SHARED + 1
    assert [formatEvent(said[0]), said[-1]["log_level"].name] == ["payment 0", "warn"]
    clock.advance(WINDOW_SECONDS)
    news.sum_up()
    news.sum_up()
    assert len(said) == OWN + SHARED + 2
    assert formatEvent(said[-1]) == "more in that minute: 1,986 payments seen"
    assert said[-1]["payment"] == 1_986


def test_lines_that_come_with_too_many_others_are_only_counted(said: list[LogEvent]) -> None:
    assert AT_ONCE > OWN + SHARED
    clock = Clock()
    news = News(clock)
    news.leave_out(PAYMENT, 1_980)
    assert said == []
    clock.advance(WINDOW_SECONDS)
    news.sum_up()
    assert [formatEvent(event) for event in said] == ["more in that minute: 1,980 payments seen"]


def test_the_counts_come_before_the_next_line(said: list[LogEvent]) -> None:
    clock = Clock()
    news = News(clock)
    for _ in range(OWN + SHARED + 1):
        news.info("payment", PAYMENT)
    clock.advance(WINDOW_SECONDS)
    news.info("next", TIP)
    assert [formatEvent(event) for event in said[-2:]] == ["more in that minute: 1 payment seen", "next"]


def test_warnings_have_a_budget_and_counts_of_their_own(said: list[LogEvent]) -> None:
    """With [log] level = "warn", nothing of the level info is written."""
    clock = Clock()
    news = News(clock)
    for _ in range(100):
        news.info("payment", PAYMENT)
    for _ in range(OWN + SHARED + 3):
        news.warn("gone", Topic.GIVEN_UP)
    clock.advance(WINDOW_SECONDS)
    news.sum_up()
    warned = [formatEvent(event) for event in said if event["log_level"].name == "warn"]
    assert warned == ["gone"] * (OWN + SHARED) + ["more in that minute: 3 events given up"]
    assert formatEvent(said[-1]) == f"more in that minute: {100 - OWN - SHARED} payments seen"
