"""A watch is shown one state of the chain after the other, and says what is new (docs/webhooks.md "Events")."""

from collections.abc import Iterable
from hashlib import sha256

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.address import encode_address
from svcd.commerce.payment import Place, Sighting, State, Terms, Tip, state_of
from svcd.commerce.watch import Draft, Ending, Event, Moment, Wake, Watch, look, wake

EXPIRES = 100_000


def digest(*what: object) -> bytes:
    return sha256(repr(what).encode()).digest()


def order(required: int = 3) -> Watch:
    return Watch(
        id="svcwh_" + 32 * "0",
        terms=Terms("order-1", encode_address(bytes(20), "svc"), 25, required),
        callback_url="https://shop.example.com/paid",
        host="shop.example.com",
        created_at=0,
        expires_at=EXPIRES,
    )


def at(height: int, block: int | None = None, *, fork: str = "", txid: bytes = b"", pending: bytes = b"") -> Sighting:
    """The tip at ``height``, the payment in ``block`` of the branch ``fork``, or waiting."""
    place = None
    if block is not None:
        place = Place(txid or digest("tx"), digest("block", block, fork), block, 0, 1000 * block)
    return Sighting(Tip(height, digest("block", height, fork)), place=place, pending=pending or None)


class Told:
    """What a watch says while it is shown one sighting after the other."""

    def __init__(self, watch: Watch, *, height: int = 9, every_depth: bool = True) -> None:
        self.watch = watch
        self.height = height
        self.every_depth = every_depth
        self.drafts: list[Draft] = []

    def moment(self, now: int = 0, *, synced: bool = True) -> Moment:
        return Moment(now=now, tip_before=self.height, synced=synced, every_depth=self.every_depth)

    def see(self, sighting: Sighting, now: int = 0, *, synced: bool = True, initial: bool = False) -> list[str]:
        moment = self.moment(now, synced=synced)
        self.watch, drafts = look(self.watch, sighting, moment, initial=initial)
        self.height = sighting.tip.height
        self.drafts += drafts
        return [draft.event.removeprefix("payment.") for draft in drafts]


def all_of(told: Told, sightings: Iterable[Sighting]) -> list[list[str]]:
    return [told.see(sighting) for sighting in sightings]


PENDING = at(9, pending=digest("tx"))


def test_a_payment_from_the_mempool_to_its_confirmation() -> None:
    told = Told(order())

    events = all_of(told, [at(9), PENDING, PENDING, at(10, 10), at(10, 10), at(11, 10), at(12, 10), at(13, 10)])

    assert events == [[], ["pending"], [], ["confirming"], [], ["confirming"], ["confirmed"], []]
    assert [draft.sequence for draft in told.drafts] == [1, 2, 3, 4]
    assert {draft.epoch for draft in told.drafts} == {0}
    assert [draft.previous_state for draft in told.drafts] == ["unpaid", "pending", "confirming", "confirming"]
    assert not any(draft.initial for draft in told.drafts)
    assert told.watch.last_state == "confirmed"


def test_one_confirmation_is_confirmed_at_once() -> None:
    assert all_of(Told(order(required=1)), [at(10, 10), at(11, 10)]) == [["confirmed"], []]


def test_depths_in_between_are_left_out_on_request() -> None:
    told = Told(order(required=4), every_depth=False)

    assert all_of(told, [at(10, 10), at(11, 10), at(12, 10), at(13, 10)]) == [["confirming"], [], [], ["confirmed"]]


def test_several_blocks_at_once_are_one_step() -> None:
    assert all_of(Told(order()), [at(10, 10), at(15, 10)]) == [["confirming"], ["confirmed"]]


def test_what_stands_when_the_watch_begins_is_told_as_such() -> None:
    told = Told(order(), height=11)

    assert told.see(at(11, 10), initial=True) == ["confirming"]
    assert told.drafts[0].initial
    assert told.see(at(12, 10)) == ["confirmed"]
    assert not told.drafts[1].initial


def test_what_only_waited_goes_without_a_word_and_comes_with_one() -> None:
    told = Told(order())

    assert all_of(told, [PENDING, at(9), PENDING]) == [["pending"], [], ["pending"]]
    assert told.watch.epoch == 0


@pytest.mark.parametrize(
    ("after", "state"),
    [
        pytest.param(at(11), State.UNPAID, id="gone"),
        pytest.param(at(11, pending=digest("tx")), State.PENDING, id="back in the mempool"),
        pytest.param(at(11, 11, fork="b"), State.CONFIRMING, id="in another block"),
        pytest.param(at(11, 10, txid=digest("other")), State.CONFIRMING, id="paid by another transfer"),
    ],
)
def test_a_reorganisation_is_told_with_the_new_state(after: Sighting, state: State) -> None:
    told = Told(order())
    told.see(at(10, 10))

    assert told.see(after) == ["reorged"]
    assert told.drafts[-1].epoch == 1
    assert told.watch.state is state
    assert state_of(told.watch.terms, told.drafts[-1].sighting) is state


def test_a_payment_that_comes_back_is_of_a_new_epoch() -> None:
    told = Told(order())

    events = all_of(told, [at(10, 10), at(11), at(12, 12, fork="b"), at(14, 12, fork="b"), at(14)])

    assert events == [["confirming"], ["reorged"], ["confirming"], ["confirmed"], ["reorged"]]
    assert [draft.epoch for draft in told.drafts] == [0, 1, 1, 1, 2]


def test_a_new_place_that_is_deep_enough_is_confirmed_in_the_same_step() -> None:
    told = Told(order())
    told.see(at(12, 10))

    assert told.see(at(13, 11, fork="b")) == ["reorged", "confirmed"]
    assert [draft.previous_state for draft in told.drafts[1:]] == ["confirmed", "confirming"]


def test_a_heavier_chain_that_is_shorter_takes_depth_away() -> None:
    told = Told(order())
    told.see(at(20, 10))

    assert told.see(at(19, 10)) == ["reorged", "confirmed"]
    assert told.see(at(19, 10)) == []
    assert told.see(at(11, 10)) == ["reorged"]
    assert told.watch.state is State.CONFIRMING


def test_a_deeper_payment_whose_block_stands_is_not_reorganised() -> None:
    told = Told(order())
    told.see(at(11, 10))

    # Everything above its block has been replaced.
    assert told.see(Sighting(Tip(11, digest("another")), place=at(11, 10).place)) == []


def test_an_order_that_nobody_paid_expires() -> None:
    told = Told(order())

    assert told.see(at(9), now=EXPIRES - 1) == []
    assert told.see(at(9), now=EXPIRES) == ["expired"]
    assert (told.watch.last_state, told.watch.active, told.watch.ending) == ("expired", False, Ending.EXPIRED)
    assert told.see(at(10, 10), now=EXPIRES) == []


def test_expiry_tells_what_was_seen() -> None:
    told = Told(order())
    told.see(at(10, 10))

    assert told.see(at(11, 10), now=EXPIRES) == ["confirming", "expired"]
    assert state_of(told.watch.terms, told.drafts[-1].sighting) is State.CONFIRMING


def test_confirmation_wins_over_expiry() -> None:
    told = Told(order())
    told.see(at(10, 10))

    assert told.see(at(12, 10), now=EXPIRES) == ["confirmed"]
    assert told.watch.active


def test_nothing_expires_while_the_node_catches_up() -> None:
    told = Told(order())

    assert told.see(at(9), now=EXPIRES, synced=False) == []
    assert told.see(at(12, 10), now=EXPIRES, synced=False) == ["confirmed"]
    assert told.see(at(13, 10), now=EXPIRES) == []


def test_a_confirmed_watch_closes_silently_after_thirty_blocks() -> None:
    told = Told(order())
    told.see(at(12, 10))

    assert told.see(at(41, 10), now=EXPIRES) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=EXPIRES - 1) == []
    assert told.watch.active
    assert told.see(at(42, 10), now=EXPIRES) == []
    assert (told.watch.ending, told.watch.last_state) == (Ending.CLOSED, "confirmed")


def test_it_goes_on_for_twice_the_depth_asked_for() -> None:
    told = Told(order(required=20), height=29)
    told.see(at(29, 10))

    told.see(at(68, 10), now=EXPIRES)
    assert told.watch.active
    told.see(at(69, 10), now=EXPIRES)
    assert told.watch.ending is Ending.CLOSED


def test_a_late_reorganisation_is_told_and_its_end_too() -> None:
    told = Told(order())
    told.see(at(12, 10))

    assert told.see(at(20), now=EXPIRES) == ["reorged"]
    assert told.watch.active
    assert told.see(at(42), now=EXPIRES) == ["expired"]


def test_confirming_anew_lengthens_the_watch() -> None:
    told = Told(order())
    told.see(at(12, 10))
    told.see(at(20), now=EXPIRES)
    told.see(at(30, 28, fork="b"), now=EXPIRES)

    told.see(at(59, 28, fork="b"), now=EXPIRES)
    assert told.watch.active
    told.see(at(60, 28, fork="b"), now=EXPIRES)
    assert told.watch.ending is Ending.CLOSED


@pytest.mark.parametrize(
    ("sightings", "now", "every_depth", "expected"),
    [
        ([at(9)], 0, True, Wake(None, EXPIRES)),
        ([at(10, 10)], 0, True, Wake(11, EXPIRES)),
        ([at(10, 10)], 0, False, Wake(12, EXPIRES)),
        ([at(12, 10)], 0, True, Wake(None, EXPIRES)),
        ([at(12, 10), at(13, 10)], EXPIRES, True, Wake(42, None)),
        ([at(12, 10), at(20)], EXPIRES, True, Wake(42, None)),
        ([at(9)], EXPIRES, True, Wake(None, None)),
    ],
)
def test_when_it_has_something_to_say_by_itself(
    sightings: list[Sighting], now: int, every_depth: bool, expected: Wake
) -> None:
    told = Told(order(), every_depth=every_depth)
    for sighting in sightings:
        told.see(sighting, now=now)

    assert wake(told.watch, told.height, told.moment(now)) == expected


def test_a_time_that_came_while_catching_up_is_not_forgotten() -> None:
    told = Told(order())
    told.see(at(9), now=EXPIRES, synced=False)

    assert wake(told.watch, 9, told.moment(EXPIRES, synced=False)) == Wake(None, EXPIRES)


@st.composite
def stories(draw: st.DrawFn) -> list[tuple[Sighting, int]]:
    """Sightings such as chains give: a payment in a block, waiting or nowhere, tips that go up and sometimes down."""
    story, height, now = [], 10, 0
    for _ in range(draw(st.integers(1, 12))):
        height = max(height + draw(st.integers(-2, 4)), 1)
        now += draw(st.sampled_from([0, 1_000, EXPIRES]))
        kind = draw(st.sampled_from(["none", "waits", "block", "block", "block"]))
        block = draw(st.integers(1, height)) if kind == "block" else None
        fork = draw(st.sampled_from("ab"))
        story.append((at(height, block, fork=fork, pending=digest("tx") if kind == "waits" else b""), now))
    return story


@given(story=stories(), required=st.integers(1, 4), every_depth=st.booleans())
def test_laws_of_every_story(story: list[tuple[Sighting, int]], required: int, every_depth: bool) -> None:
    told = Told(order(required), every_depth=every_depth)
    for sighting, now in story:
        before = told.watch
        said = told.see(sighting, now=now)
        # Seeing the same again says nothing.
        assert told.see(sighting, now=now) == []
        if before.active:
            assert ("expired" in said) == (told.watch.ending is Ending.EXPIRED)
            assert evolve(told.watch, ending=None).state is state_of(told.watch.terms, sighting)
        else:
            assert told.watch == before
    assert [draft.sequence for draft in told.drafts] == list(range(1, len(told.drafts) + 1))
    epochs = [draft.epoch for draft in told.drafts]
    assert epochs == sorted(epochs)
    assert max(epochs, default=0) == sum(draft.event is Event.REORGED for draft in told.drafts)
    confirmed = [draft.epoch for draft in told.drafts if draft.event is Event.CONFIRMED]
    assert len(confirmed) == len(set(confirmed))
    for draft in told.drafts:
        if draft.event is Event.CONFIRMED:
            assert draft.sighting.confirmations >= required
