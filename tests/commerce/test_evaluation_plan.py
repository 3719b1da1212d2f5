"""The plan gives every merchant its part, and a watch of many as quickly as one of few."""

from time import thread_time

from svcd.commerce.evaluation_plan import NEWEST, EvaluationPlan
from svcd.store.webhook_store import WatchName


def plan_of(**watches: int) -> EvaluationPlan:
    """A plan with so many watches of each merchant."""
    plan = EvaluationPlan(0, 0)
    for merchant, count in watches.items():
        plan.add([WatchName(f"{merchant}-{number}", merchant) for number in range(count)], NEWEST)
    return plan


def test_merchants_take_turns_and_each_has_its_order() -> None:
    plan = plan_of(big=4, small=1)
    assert list(plan.take(3)) == ["big-0", "small-0", "big-1"]
    assert list(plan.take(3)) == ["big-2", "big-3"]
    assert not plan


def test_a_watch_that_is_added_again_keeps_its_place_and_has_both_heights() -> None:
    plan = plan_of(shop=2)
    plan.add([WatchName("shop-0", "shop")], 7)
    assert plan.take(1) == {"shop-0": {NEWEST, 7}}


def test_a_watch_takes_no_longer_the_more_there_are() -> None:
    def seconds(watches: int) -> float:
        plan = plan_of(shop=watches)
        began = thread_time()
        while plan:
            plan.take(200)
        return thread_time() - began

    few, many = (min(seconds(watches) for _ in range(3)) for watches in (2_000, 40_000))
    # Twenty times the watches take about twenty times as long, and took two hundred times as long.
    assert many < 80 * few
