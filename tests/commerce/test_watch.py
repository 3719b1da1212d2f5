"""The events of a watch as one observation follows the other (docs/webhook-reference.md)."""

from collections.abc import Iterable
from hashlib import sha256

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address
from svcd.commerce.events import UNKNOWN_DROP, EventType, WebhookEvent
from svcd.commerce.payment import ChainTip, Observation, PaymentLocation, PaymentState, payment_state
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.watch import (
    BLOCK_ON_ITS_WAY_MS,
    EndReason,
    EvaluationContext,
    NextEvaluation,
    Watch,
    evaluate,
    next_evaluation,
)

EXPIRES = 100_000


def digest(*what: object) -> bytes:
    return sha256(repr(what).encode()).digest()


def order(required: int = 3) -> Watch:
    return Watch(
        id="svcwh_" + 32 * "0",
        merchant="default",
        terms=PaymentTerms("order-1", encode_address(bytes(20), "svc"), 25, required),
        callback_url="https://shop.example.com/paid",
        host="shop.example.com",
        created_at=0,
        expires_at=EXPIRES,
    )


def at(
    height: int,
    block: int | None = None,
    *,
    fork: str = "",
    txid: bytes = b"",
    pending: bytes = b"",
    arrival: int | None = None,
) -> Observation:
    """The tip at ``height``, with the payment in ``block`` of the branch ``fork`` or in the mempool."""
    location = None
    if block is not None:
        location = PaymentLocation(txid or digest("tx"), digest("block", block, fork), block, 0, 1000 * block)
    tip = ChainTip(height, digest("block", height, fork))
    return Observation(tip, location=location, pending=pending or None, arrival=arrival)


class Evaluated:
    """A watch that is evaluated with one observation after the other, and its events."""

    def __init__(self, watch: Watch, *, height: int = 9, every_depth: bool = True) -> None:
        self.watch = watch
        self.height = height
        self.every_depth = every_depth
        self.events: list[WebhookEvent] = []

    def context(self, now: int = 0, *, synced: bool = True) -> EvaluationContext:
        return EvaluationContext(now=now, tip_before=self.height, may_end=synced, every_depth=self.every_depth)

    def see(self, observation: Observation, now: int = 0, *, synced: bool = True, initial: bool = False) -> list[str]:
        context = self.context(now, synced=synced)
        self.watch, events = evaluate(self.watch, observation._replace(synced=synced), context, initial=initial)
        self.height = observation.tip.height
        self.events += events
        return [event.type.removeprefix("payment.") for event in events]


def all_of(told: Evaluated, observations: Iterable[Observation]) -> list[list[str]]:
    return [told.see(observation) for observation in observations]


PENDING = at(9, pending=digest("tx"))


def test_a_payment_from_the_mempool_to_its_confirmation() -> None:
    told = Evaluated(order())

    events = all_of(told, [at(9), PENDING, PENDING, at(10, 10), at(10, 10), at(11, 10), at(12, 10), at(13, 10)])

    assert events == [[], ["pending"], [], ["confirming"], [], ["confirming"], ["confirmed"], []]
    assert [event.sequence for event in told.events] == [1, 2, 3, 4]
    assert {event.epoch for event in told.events} == {0}
    assert [event.previous_state for event in told.events] == ["unpaid", "pending", "confirming", "confirming"]
    assert not any(event.initial for event in told.events)
    assert told.watch.last_state == "confirmed"


def test_with_one_required_confirmation_the_first_block_confirms() -> None:
    assert all_of(Evaluated(order(required=1)), [at(10, 10), at(11, 10)]) == [["confirmed"], []]


def test_intermediate_depths_can_be_left_out() -> None:
    told = Evaluated(order(required=4), every_depth=False)

    assert all_of(told, [at(10, 10), at(11, 10), at(12, 10), at(13, 10)]) == [["confirming"], [], [], ["confirmed"]]


def test_several_blocks_at_once_are_one_event() -> None:
    assert all_of(Evaluated(order()), [at(10, 10), at(15, 10)]) == [["confirming"], ["confirmed"]]


def test_a_payment_from_before_the_watch_is_an_initial_event() -> None:
    told = Evaluated(order(), height=11)

    assert told.see(at(11, 10), initial=True) == ["confirming"]
    assert told.events[0].initial
    assert told.see(at(12, 10)) == ["confirmed"]
    assert not told.events[1].initial


def test_leaving_the_mempool_is_an_event_for_a_watch_that_asks() -> None:
    told = Evaluated(evolve(order(), events=frozenset(EventType)))

    assert all_of(told, [PENDING, at(9), at(9), PENDING, at(10, 10)]) == [
        ["pending"],
        ["dropped"],
        [],
        ["pending"],
        ["confirming"],
    ]
    assert (told.events[1].state, told.events[1].previous_state) == (PaymentState.UNPAID, PaymentState.PENDING)
    assert told.events[1].drop == UNKNOWN_DROP


def test_otherwise_leaving_the_mempool_is_no_event_and_returning_is() -> None:
    told = Evaluated(order())

    assert all_of(told, [PENDING, at(9), PENDING]) == [["pending"], [], ["pending"]]
    assert told.watch.epoch == 0


@pytest.mark.parametrize(
    ("after", "state"),
    [
        pytest.param(at(11), PaymentState.UNPAID, id="gone"),
        pytest.param(at(11, pending=digest("tx")), PaymentState.PENDING, id="back in the mempool"),
        pytest.param(at(11, 11, fork="b"), PaymentState.CONFIRMING, id="in another block"),
        pytest.param(at(11, 10, txid=digest("other")), PaymentState.CONFIRMING, id="paid by another transfer"),
    ],
)
def test_a_reorganisation_reports_the_new_state(after: Observation, state: PaymentState) -> None:
    told = Evaluated(order())
    told.see(at(10, 10))

    assert told.see(after) == ["reorged"]
    assert told.events[-1].epoch == 1
    assert told.watch.state is state
    assert payment_state(told.watch.terms, told.events[-1].observation) is state


def test_a_payment_that_returns_is_in_a_new_epoch() -> None:
    told = Evaluated(order())

    events = all_of(told, [at(10, 10), at(11), at(12, 12, fork="b"), at(14, 12, fork="b"), at(14)])

    assert events == [["confirming"], ["reorged"], ["confirming"], ["confirmed"], ["reorged"]]
    assert [event.epoch for event in told.events] == [0, 1, 1, 1, 2]


def test_a_new_location_that_is_deep_enough_is_confirmed_in_the_same_step() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))

    assert told.see(at(13, 11, fork="b")) == ["reorged", "confirmed"]
    assert [event.previous_state for event in told.events[1:]] == ["confirmed", "confirming"]


def test_a_heavier_but_shorter_chain_reduces_confirmations() -> None:
    told = Evaluated(order())
    told.see(at(20, 10))

    assert told.see(at(19, 10)) == ["reorged", "confirmed"]
    assert told.see(at(19, 10)) == []
    assert told.see(at(11, 10)) == ["reorged"]
    assert told.watch.state is PaymentState.CONFIRMING


def test_a_payment_in_the_same_block_and_deeper_is_not_reorganised() -> None:
    told = Evaluated(order())
    told.see(at(11, 10))

    # Everything above its block has been replaced.
    assert told.see(Observation(ChainTip(11, digest("another")), location=at(11, 10).location)) == []


def test_an_order_that_nobody_paid_expires() -> None:
    told = Evaluated(order())

    assert told.see(at(9), now=EXPIRES - 1) == []
    assert told.see(at(9), now=EXPIRES) == ["expired"]
    assert (told.watch.last_state, told.watch.active, told.watch.ending) == ("expired", False, EndReason.EXPIRED)
    assert told.see(at(10, 10), now=EXPIRES) == []


def test_expiry_reports_the_state_of_the_payment() -> None:
    told = Evaluated(order())
    told.see(at(10, 10))

    assert told.see(at(11, 10), now=EXPIRES) == ["confirming", "expired"]
    assert payment_state(told.watch.terms, told.events[-1].observation) is PaymentState.CONFIRMING


def test_confirmation_wins_over_expiry() -> None:
    told = Evaluated(order())
    told.see(at(10, 10))

    assert told.see(at(12, 10), now=EXPIRES) == ["confirmed"]
    assert told.watch.active


def test_nothing_expires_while_the_node_catches_up() -> None:
    told = Evaluated(order())

    assert told.see(at(9), now=EXPIRES, synced=False) == []
    assert told.see(at(12, 10), now=EXPIRES, synced=False) == ["confirming"]
    assert told.see(at(13, 10), now=EXPIRES) == ["confirmed"]


def test_a_depth_that_is_reached_while_the_node_catches_up_is_told_once_it_is_in_step() -> None:
    told = Evaluated(order())
    told.see(at(10, 10), synced=False)

    assert [told.see(at(height, 10), synced=False) for height in (11, 12, 13)] == [["confirming"], [], []]
    due = next_evaluation(told.watch, 13, told.context(synced=False))
    assert due == NextEvaluation(None, 0), "no further block is awaited"
    assert told.see(at(13, 10)) == ["confirmed"]
    assert [event.state for event in told.events] == ["confirming", "confirming", "confirmed"]


def test_a_confirmed_payment_stays_so_while_the_node_is_out_of_step() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))

    assert told.see(at(13, 10), synced=False) == []
    assert told.watch.state is PaymentState.CONFIRMED


def test_a_payment_that_is_reorganised_while_the_node_catches_up_is_confirmed_again_once_it_is_in_step() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))

    assert told.see(at(13, 11, fork="b"), synced=False) == ["reorged"]
    assert told.events[-1].state is PaymentState.CONFIRMING
    assert told.see(at(13, 11, fork="b")) == ["confirmed"]


# A deadline for the payment to be seen

SOON = 10_000
OVER = SOON + BLOCK_ON_ITS_WAY_MS
"""When nobody waits for a block of a time before SOON any more."""


def deadline(required: int = 3) -> Evaluated:
    return Evaluated(evolve(order(required), pay_until=SOON))


def test_a_payment_that_nobody_has_seen_by_the_deadline_expires() -> None:
    told = deadline()

    assert told.see(at(9), now=SOON - 1) == []
    assert told.see(at(9), now=OVER - 1) == []
    assert told.see(at(9), now=OVER, synced=False) == []
    assert told.see(at(9), now=OVER) == ["expired"]
    assert told.watch.ending is EndReason.EXPIRED


def test_a_payment_that_was_seen_in_time_is_followed_until_it_is_confirmed_and_closed() -> None:
    told = deadline()

    assert told.see(PENDING, now=SOON - 1) == ["pending"]
    assert told.see(PENDING, now=SOON) == []
    assert told.see(at(10, 10), now=3 * SOON) == ["confirming"]
    assert told.see(at(12, 10), now=4 * SOON) == ["confirmed"]
    assert told.see(at(41, 10), now=OVER) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=OVER - 1) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=OVER) == []
    assert told.watch.ending is EndReason.CLOSED, "long before the end of its lifetime"


def test_a_payment_that_is_gone_after_the_deadline_expires() -> None:
    told = deadline()
    told.see(PENDING, now=SOON - 1)

    assert told.see(at(10), now=SOON - 1) == []
    assert told.see(PENDING, now=SOON - 1) == ["pending"]
    assert told.see(at(10), now=OVER) == ["expired"]


def test_a_block_of_a_time_before_the_deadline_is_waited_for() -> None:
    """The time of a block is 1,000 for each height here."""
    told = deadline()
    assert told.see(at(9), now=OVER - 2) == []
    assert told.see(at(10, 9), now=OVER - 1) == ["confirming"]
    assert told.see(at(11, 9), now=OVER + 1) == ["confirmed"]
    late = deadline()
    assert late.see(at(10, 10), now=OVER - 1) == []
    assert late.see(at(10, 10), now=OVER) == ["expired"]


def test_a_deadline_at_the_end_of_the_lifetime_waits_for_no_block() -> None:
    told = Evaluated(evolve(order(), pay_until=EXPIRES))
    assert told.see(at(9), now=EXPIRES - 1) == []
    assert told.see(at(9), now=EXPIRES) == ["expired"]


def test_a_payment_that_comes_back_after_the_deadline_was_not_seen_in_time() -> None:
    """The same answer as if the node had been in step when the payment had gone."""
    told = deadline()
    told.see(PENDING, now=SOON - 1)

    assert told.see(at(10), now=SOON, synced=False) == []
    assert told.see(PENDING, now=SOON, synced=False) == []
    assert told.see(PENDING, now=SOON) == []
    assert told.see(PENDING, now=OVER) == ["expired"]


def test_a_payment_that_a_reorganisation_moves_after_the_deadline_was_seen_in_time() -> None:
    told = deadline()
    told.see(at(10, 5), now=SOON - 1)

    assert told.see(at(11), now=SOON, synced=False) == ["reorged"]
    assert told.see(at(12, 12, fork="b"), now=SOON, synced=False) == ["confirming"]
    assert told.see(at(14, 12, fork="b"), now=SOON) == ["confirmed"]


@pytest.mark.parametrize("synced", [True, False])
def test_a_first_look_after_the_deadline_goes_by_the_time_of_the_block(synced: bool) -> None:
    """As after a restart: the time of a block is 1,000 for each height here."""
    for block, events in ((9, ["confirmed"]), (10, ["expired"])):
        told = deadline()
        seen = told.see(at(14, block), now=OVER, synced=synced)
        assert [*seen, *told.see(at(14, block), now=OVER)][-1:] == events


def test_a_payment_that_came_in_time_is_evaluated_later() -> None:
    """The node connected blocks, for instance: what counts is when the transfer came, not when somebody looks."""
    told = deadline()
    came = at(9, pending=digest("tx"), arrival=SOON - 1)
    assert told.see(came, now=SOON + 6_000) == ["pending"]
    assert told.see(at(12, 12, arrival=SOON - 1), now=SOON + 7_000) == ["confirming"]
    late = deadline()
    assert late.see(came._replace(arrival=SOON), now=OVER) == ["expired"]


def test_a_payment_that_came_in_time_is_in_a_later_block_before_it_is_evaluated() -> None:
    for arrival, events in ((SOON - 1, ["confirming"]), (SOON, ["expired"]), (None, ["expired"])):
        assert deadline().see(at(12, 12, arrival=arrival), now=OVER) == events


def test_an_arrival_by_a_clock_that_was_ahead_is_not_after_the_present() -> None:
    ahead = PENDING._replace(arrival=100 * SOON)
    assert deadline().see(ahead, now=SOON - 1) == ["pending"]
    assert deadline().see(at(12, 9, arrival=100 * SOON), now=SOON) == ["confirmed"]
    # While the clock is not trusted, the present is no measure.
    doubting = deadline()
    assert doubting.see(ahead, now=SOON - 1, synced=False) == []
    assert doubting.see(ahead._replace(arrival=SOON - 1), now=-100 * SOON, synced=False) == ["pending"]


def test_a_watch_with_a_deadline_ends_with_its_lifetime_at_the_latest() -> None:
    told = deadline(required=9)
    told.see(at(10, 9), now=SOON - 1)

    assert told.see(at(11, 9), now=EXPIRES - 1) == ["confirming"]
    assert told.see(at(12, 9), now=EXPIRES) == ["confirming", "expired"]


def test_the_next_evaluation_is_at_the_deadline_and_then_at_the_end() -> None:
    told = deadline()
    told.see(PENDING)
    assert next_evaluation(told.watch, 9, told.context()).at == OVER
    assert next_evaluation(told.watch, 9, told.context(OVER, synced=False)).at == OVER
    assert next_evaluation(told.watch, 9, told.context(OVER)).at == EXPIRES
    told.see(at(12, 10))
    assert next_evaluation(told.watch, 12, told.context(OVER)) == NextEvaluation(42, EXPIRES)


def test_a_confirmed_watch_closes_silently_after_thirty_blocks() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))

    assert told.see(at(41, 10), now=EXPIRES) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=EXPIRES - 1) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=EXPIRES) == []
    assert (told.watch.ending, told.watch.last_state) == (EndReason.CLOSED, "confirmed")


def test_a_confirmed_watch_lasts_for_twice_the_required_confirmations() -> None:
    told = Evaluated(order(required=20), height=29)
    told.see(at(29, 10))

    told.see(at(68, 10), now=EXPIRES)
    assert told.watch.active
    told.see(at(69, 10), now=EXPIRES)
    assert told.watch.ending is EndReason.CLOSED


def test_a_late_reorganisation_and_the_expiry_after_it_are_reported() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))

    assert told.see(at(20), now=EXPIRES) == ["reorged"]
    assert told.watch.active
    assert told.see(at(42), now=EXPIRES) == ["expired"]


def test_a_second_confirmation_extends_the_watch() -> None:
    told = Evaluated(order())
    told.see(at(12, 10))
    told.see(at(20), now=EXPIRES)
    told.see(at(30, 28, fork="b"), now=EXPIRES)

    told.see(at(59, 28, fork="b"), now=EXPIRES)
    assert told.watch.active
    told.see(at(60, 28, fork="b"), now=EXPIRES)
    assert told.watch.ending is EndReason.CLOSED


@pytest.mark.parametrize(
    ("observations", "now", "every_depth", "expected"),
    [
        ([at(9)], 0, True, NextEvaluation(None, EXPIRES)),
        ([at(10, 10)], 0, True, NextEvaluation(11, EXPIRES)),
        ([at(10, 10)], 0, False, NextEvaluation(12, EXPIRES)),
        ([at(12, 10)], 0, True, NextEvaluation(None, EXPIRES)),
        ([at(12, 10), at(13, 10)], EXPIRES, True, NextEvaluation(42, None)),
        ([at(12, 10), at(20)], EXPIRES, True, NextEvaluation(42, None)),
        ([at(9)], EXPIRES, True, NextEvaluation(None, None)),
    ],
)
def test_the_next_evaluation(
    observations: list[Observation], now: int, every_depth: bool, expected: NextEvaluation
) -> None:
    told = Evaluated(order(), every_depth=every_depth)
    for observation in observations:
        told.see(observation, now=now)

    assert next_evaluation(told.watch, told.height, told.context(now)) == expected


def test_an_expiry_during_catch_up_is_not_forgotten() -> None:
    told = Evaluated(order())
    told.see(at(9), now=EXPIRES, synced=False)

    assert next_evaluation(told.watch, 9, told.context(EXPIRES, synced=False)) == NextEvaluation(None, EXPIRES)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[Observation, int, bool]]:
    """Observations as chains give them: a payment in a block, in the mempool or nowhere; tips rise and fall.

    With each goes the time, and whether the node is in sync with the network.
    """
    story, height, now = [], 10, 0
    for _ in range(draw(st.integers(1, 12))):
        height = max(height + draw(st.integers(-2, 4)), 1)
        now += draw(st.sampled_from([0, 1_000, EXPIRES]))
        kind = draw(st.sampled_from(["none", "waits", "block", "block", "block"]))
        block = draw(st.integers(1, height)) if kind == "block" else None
        fork = draw(st.sampled_from("ab"))
        arrival = None if kind == "none" else draw(st.sampled_from([None, now - 1_500, now, now + EXPIRES]))
        pending = digest("tx") if kind == "waits" else b""
        observation = at(height, block, fork=fork, pending=pending, arrival=arrival)
        story.append((observation, now, draw(st.booleans())))
    return story


@given(
    story=stories(),
    required=st.integers(1, 4),
    every_depth=st.booleans(),
    pay_until=st.sampled_from([None, 2_000, 10_000, EXPIRES]),
)
def test_laws_of_every_story(
    story: list[tuple[Observation, int, bool]], required: int, every_depth: bool, pay_until: int | None
) -> None:
    told = Evaluated(evolve(order(required), pay_until=pay_until), every_depth=every_depth)
    for observation, now, synced in story:
        before = told.watch
        said = told.see(observation, now=now, synced=synced)
        # Seeing the same again says nothing.
        assert told.see(observation, now=now, synced=synced) == []
        if before.active:
            assert ("expired" in said) == (told.watch.ending is EndReason.EXPIRED)
            late = before.is_late(observation, told.context(now, synced=synced))
            state = PaymentState.UNPAID if late else payment_state(told.watch.terms, observation)
            is_deep = state is PaymentState.CONFIRMED
            waits = is_deep and told.watch.state is PaymentState.CONFIRMING
            assert waits or told.watch.state is state
            assert not (waits and synced), "what is deep enough is confirmed at the latest once the node is in step"
            due = next_evaluation(told.watch, told.height, told.context(now, synced=synced))
            assert not (waits and told.watch.active) or due.at == 0
        else:
            assert told.watch == before
    assert [event.sequence for event in told.events] == list(range(1, len(told.events) + 1))
    epochs = [event.epoch for event in told.events]
    assert epochs == sorted(epochs)
    assert max(epochs, default=0) == sum(event.type is EventType.REORGED for event in told.events)
    confirmed = [event.epoch for event in told.events if event.type is EventType.CONFIRMED]
    assert len(confirmed) == len(set(confirmed))
    for event in told.events:
        if event.type is EventType.CONFIRMED:
            assert event.observation.confirmations >= required
            assert event.observation.synced
