"""What is said to be flat, and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.soak.flat import CACHES, FEWEST, MIB, SLACK, courses

COUNTS = st.integers(min_value=FEWEST, max_value=400)
FIGURES = st.sampled_from(sorted(SLACK))


def grown(values: list[float], figure: str, databases: float = 0) -> bool:
    """What is said of a figure that took these values while the databases grew so much each time, and nothing else."""
    samples = [
        dict.fromkeys(SLACK, 5.0) | {figure: value, "databases": number * databases}
        for number, value in enumerate(values)
    ]
    said = {course.figure: course.grown for course in courses(samples)}
    assert {name for name, more in said.items() if more} <= {figure}
    return said[figure]


@given(FIGURES, COUNTS, st.randoms(use_true_random=False))
def test_load_that_comes_and_goes_is_no_leak(figure: str, count: int, chance: object) -> None:
    """Most samples are lifted, by any amount; one in four is not."""
    lifted = [0.0 if number % 4 == 0 else chance.uniform(0, 1e12) for number in range(count)]  # type: ignore[attr-defined]
    assert not grown(lifted, figure)


@given(FIGURES, COUNTS, st.floats(min_value=1.0, max_value=100.0))
def test_growth_with_the_work_is_a_leak_under_any_load(figure: str, count: int, times: float) -> None:
    """It grows by so many times the slack from the middle of the first third to that of the last one, and a bit."""
    each = 3.0 * times * SLACK[figure] / count
    assert grown([number * each + (number % 3) * SLACK[figure] for number in range(count)], figure)


@given(FIGURES, COUNTS)
def test_growth_that_ends_early_is_no_leak(figure: str, count: int) -> None:
    opened = [min(number / (count * 0.3), 1.0) * 100 * SLACK[figure] for number in range(count)]
    assert not grown(opened, figure)


@given(FIGURES, COUNTS)
def test_a_step_that_is_not_taken_back_is_a_leak(figure: str, count: int) -> None:
    assert grown([0.0 if number < count * 0.7 else 1.01 * SLACK[figure] for number in range(count)], figure)


def test_growth_by_the_caches_of_sqlite_is_no_leak_and_by_twice_that_is() -> None:
    for times, said in ((CACHES, False), (2 * CACHES, True)):
        values = [float(number * times * MIB) for number in range(60)]
        assert grown(values, "memory", databases=MIB) is said
        assert grown(values, "threads", databases=MIB)


def test_few_samples_say_nothing() -> None:
    with pytest.raises(AssertionError, match="23 samples tell nothing; there must be 24"):
        grown([0.0] * (FEWEST - 1), "threads")
