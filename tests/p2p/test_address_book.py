"""The book of endpoints: buckets, allowances, verification, back-off, and what no flood of hints can do."""

from collections import Counter
from collections.abc import Callable, Collection
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from svcd.net.targets import Endpoint
from svcd.p2p.address_book import (
    BUCKET_SIZE,
    FAMILIAR_BACK_OFF,
    HINTS_PER_HOUR,
    MAX_BACK_OFF,
    NEW_BUCKETS,
    SOURCE_BUCKETS,
    TRIED_BUCKETS,
    AddressBook,
    AddressEntry,
    choose_feeler,
    choose_outbound,
    group_of,
    group_of_endpoint,
)

NOW = 1_800_000_000.0
HOUR = 3_600.0
DAY = 24 * HOUR
FOREVER = 1e12
NEW, TRIED = NEW_BUCKETS * BUCKET_SIZE, TRIED_BUCKETS * BUCKET_SIZE


def new_book(secret: bytes = b"s" * 32) -> AddressBook:
    return AddressBook(secret, Random(1).random)


def endpoint(number: int) -> str:
    """An endpoint in a /16 of its own for each of the first 20,000 numbers."""
    return f"http://{1 + number // 200 % 100}.{1 + number % 200}.{number // 20_000}.1:8645"


def source(number: int) -> str:
    return f"{number // 256}.{number % 256}.0.0/16"


def learn(book: AddressBook, number: int, now: float = NOW) -> str:
    """A hint of its own source that has been verified."""
    book.hint(endpoint(number), source=source(number), now=now)
    book.succeeded(endpoint(number), node_id=f"node {number}", height=number, now=now)
    return endpoint(number)


def fill(book: AddressBook) -> None:
    """Hints of many sources until no more fit."""
    for number in range(10_000):
        book.hint(endpoint(number), source=source(number % 1_000), now=NOW)
    assert len(book) == NEW


def hints(book: AddressBook) -> list[AddressEntry]:
    return book.candidates(FOREVER, exclude=(), tried=False)


def tried(book: AddressBook) -> list[AddressEntry]:
    return book.candidates(FOREVER, exclude=(), tried=True)


# Groups


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("198.51.100.7", "198.51.0.0/16"),
        ("198.51.7.1", "198.51.0.0/16"),
        ("198.52.100.7", "198.52.0.0/16"),
        ("2001:db8:1:2::3", "2001:db8::/32"),
        ("[2001:db8:ffff::1]", "2001:db8::/32"),
        ("2001:db9::1", "2001:db9::/32"),
        ("::1", "::/32"),
        ("64:ff9b::5db8:d822", "93.184.0.0/16"),
        ("[64:ff9b::102:304]", "1.2.0.0/16"),
        ("64:ff9b::a00:1", "64:ff9b::/32"),
        ("2001:db8::/56", "2001:db8::/32"),
        ("node.example", "name:node.example"),
        ("a.b.Node.Example", "name:node.example"),
        ("localhost", "name:localhost"),
        ("exempt", "name:exempt"),
    ],
)
def test_groups(host: str, group: str) -> None:
    assert group_of(host) == group


def test_the_group_of_an_endpoint_is_that_of_its_host() -> None:
    assert group_of_endpoint("http://198.51.100.7:8645") == "198.51.0.0/16"
    assert group_of_endpoint("https://[2001:db8::1]") == "2001:db8::/32"
    assert group_of_endpoint("https://seed.node.example") == "name:node.example"


# Hints


def test_a_hint_is_noted_and_not_handed_out() -> None:
    book = new_book()
    assert book.hint(endpoint(1), source=source(1), now=NOW)
    entry = book.get(endpoint(1))
    assert entry is not None
    assert (entry.endpoint, entry.source, entry.verified, entry.node_id) == (endpoint(1), source(1), False, "")
    assert book.verified() == book.sample(100) == []


def test_the_same_hint_twice_is_one() -> None:
    book = new_book()
    book.hint(endpoint(1), source=source(1), now=NOW)
    assert not book.hint(endpoint(1), source=source(2), now=NOW)
    assert len(book) == 1
    assert book.entries()[0].source == source(1)


def test_a_source_is_heard_32_times_an_hour() -> None:
    book = new_book()
    taken = [book.hint(endpoint(number), source=source(1), now=NOW) for number in range(40)]
    assert taken == [True] * HINTS_PER_HOUR + [False] * 8
    assert not book.hint(endpoint(50), source=source(1), now=NOW + HOUR - 1)
    assert book.hint(endpoint(50), source=source(2), now=NOW + HOUR - 1)
    assert book.hint(endpoint(51), source=source(1), now=NOW + HOUR)


def test_the_operator_is_always_heard() -> None:
    book = new_book()
    fill(book)
    for number in range(20_000, 20_040):
        assert book.hint(endpoint(number), source="operator", now=NOW)
        assert book.get(endpoint(number)) is not None
    assert len(hints(book)) == NEW


def test_known_addresses_are_repeated_for_free() -> None:
    book = new_book()
    for _ in range(100):
        book.hint(endpoint(1), source=source(1), now=NOW)
    assert book.hint(endpoint(2), source=source(1), now=NOW)


def test_a_full_book_takes_no_more() -> None:
    book = new_book()
    fill(book)
    before = [entry.endpoint for entry in book.entries()]
    assert not any(
        book.hint(endpoint(number), source=source(number), now=NOW + HOUR) for number in range(10_000, 10_500)
    )
    assert [entry.endpoint for entry in book.entries()] == before


def test_unanswered_addresses_make_room() -> None:
    book = new_book()
    fill(book)
    dead = hints(book)[0]
    book.failed(dead.endpoint, NOW)
    taken = [number for number in range(10_000, 13_000) if book.hint(endpoint(number), source=source(number), now=NOW)]
    assert len(taken) == 1
    assert book.get(dead.endpoint) is None


def test_another_secret_puts_hints_elsewhere() -> None:
    """Who does not know the secret cannot aim at the places of others: what fills one book leaves room in another."""

    def taken(secret: bytes) -> set[str]:
        book = new_book(secret)
        for number in range(2_000):
            book.hint(endpoint(number), source=source(number % 100), now=NOW)
        return {entry.endpoint for entry in book.entries()}

    assert taken(b"a" * 32) == taken(b"a" * 32) != taken(b"b" * 32)


# Floods


def test_a_flood_of_days_fills_no_more_than_the_buckets_of_its_source() -> None:
    book = new_book()
    for hour in range(24 * 30):
        for number in range(HINTS_PER_HOUR):
            book.hint(endpoint(hour * HINTS_PER_HOUR + number), source=source(1), now=NOW + hour * HOUR)
    assert NEW // 16 < len(book) <= SOURCE_BUCKETS * BUCKET_SIZE == NEW // 8


def test_a_flood_of_sources_is_not_remembered_without_end() -> None:
    book = new_book()
    for number in range(5_000):
        book.hint(endpoint(number), source=source(number), now=NOW)
    assert not book.hint(endpoint(6_000), source=source(6_000), now=NOW)
    book.failed(hints(book)[0].endpoint, NOW)
    later = [book.hint(endpoint(number), source=source(number), now=NOW + HOUR) for number in range(6_000, 9_000)]
    assert any(later)


def test_one_part_of_the_network_cannot_push_out_the_verified_of_others() -> None:
    book = new_book()
    honest = [learn(book, number) for number in range(40)]
    for number in range(1_000):
        book.succeeded(f"http://200.1.{number // 250}.{number % 250}", node_id=f"evil {number}", height=0, now=NOW + 1)
    assert set(honest) <= {entry.endpoint for entry in book.verified()}
    assert 0 < len(book.verified()) - len(honest) <= BUCKET_SIZE


# Verification


def test_addresses_that_answered_are_verified_and_handed_out() -> None:
    book = new_book()
    learn(book, 1)
    (entry,) = book.verified()
    assert (entry.endpoint, entry.node_id, entry.height, entry.last_seen) == (endpoint(1), "node 1", 1, NOW)
    assert book.sample(1) == tried(book) == [entry]
    assert hints(book) == []


def crowded_book() -> AddressBook:
    """One whose places for one part of the network are taken, and wanted by one more that answered."""
    book = new_book()
    for number in range(BUCKET_SIZE + 1):
        book.succeeded(f"http://200.1.0.{number}", node_id=f"node {number}", height=0, now=NOW + number)
    return book


OLDEST, NEWEST = "http://200.1.0.0", f"http://200.1.0.{BUCKET_SIZE}"


def test_in_a_full_bucket_the_longest_unseen_is_called_before_it_is_lost() -> None:
    book = crowded_book()
    assert book.next_collision(NOW, exclude=()) == OLDEST
    assert book.next_collision(NOW, exclude={OLDEST}) is None
    assert [entry.endpoint for entry in hints(book)] == [NEWEST]
    assert len(book.verified()) == BUCKET_SIZE


def test_if_it_answers_it_stays() -> None:
    book = crowded_book()
    book.failed(OLDEST, NOW)
    assert book.next_collision(NOW, exclude=()) is None, "it has to wait before it is called again"
    assert book.next_collision(NOW + 20, exclude=()) == OLDEST
    book.succeeded(OLDEST, node_id="node 0", height=0, now=NOW + 20)
    assert book.next_collision(NOW + DAY, exclude=()) is None
    for _ in range(3):
        book.failed(OLDEST, NOW + 30)
    assert OLDEST in {entry.endpoint for entry in book.verified()}
    book.succeeded(NEWEST, node_id="node 16", height=0, now=NOW + 40)
    assert book.next_collision(NOW + 40, exclude=()) == "http://200.1.0.1", "now another has not been seen for longest"


def test_if_it_does_not_answer_three_times_the_other_gets_its_place() -> None:
    book = crowded_book()
    for _ in range(2):
        book.failed(OLDEST, NOW)
    assert book.get(OLDEST) is not None
    book.failed(OLDEST, NOW)
    assert book.get(OLDEST) is None
    assert NEWEST in {entry.endpoint for entry in book.verified()}
    assert hints(book) == []
    assert book.next_collision(NOW + DAY, exclude=()) is None


@pytest.mark.parametrize("how", ["forgotten", "failing"])
def test_an_endpoint_that_is_gone_does_not_displace_another(how: str) -> None:
    book = crowded_book()
    book.forget(NEWEST) if how == "forgotten" else book.failed(NEWEST, NOW)
    for _ in range(3):
        book.failed(OLDEST, NOW)
    assert OLDEST in {entry.endpoint for entry in book.verified()}
    book.forget(OLDEST)
    assert book.next_collision(NOW + DAY, exclude=()) is None


def test_addresses_that_lost_their_verification_are_evicted_first() -> None:
    book = new_book()
    for number in range(BUCKET_SIZE):
        book.succeeded(f"http://200.1.0.{number}", node_id=f"node {number}", height=0, now=NOW + number)
    for _ in range(8):
        book.failed("http://200.1.0.9", NOW)
    book.succeeded("http://200.1.1.1", node_id="one more", height=0, now=NOW + 100)
    assert book.get("http://200.1.0.9") is None
    assert book.get("http://200.1.0.0") is not None


def crowds(book: AddressBook) -> None:
    """Let 64 groups fill the places of verified endpoints, with 16 endpoints each."""
    for number in range(64 * BUCKET_SIZE):
        each = f"http://200.{number % 64}.0.{number // 64}"
        book.succeeded(each, node_id=f"crowd {number}", height=0, now=NOW, group=group_of_endpoint(each))


def verified_of(book: AddressBook, groups: range) -> set[str]:
    return {entry.endpoint for entry in book.verified()} & {endpoint(number) for number in groups}


def test_many_endpoints_of_a_group_give_way_to_one_of_another() -> None:
    book = new_book()
    crowds(book)
    full = len(book.verified())
    for number in range(20):
        learn(book, number, NOW + 1)
    assert len(verified_of(book, range(20))) == 20
    assert full <= len(book.verified()) <= TRIED


def test_the_longest_unseen_of_the_group_gives_way_first_and_remains_a_hint() -> None:
    book = new_book()
    crowd = [f"http://200.1.0.{number}" for number in range(BUCKET_SIZE)]
    for number, each in enumerate(crowd):
        book.succeeded(each, node_id=f"crowd {number}", height=0, now=NOW + number)
    others = [learn(book, number, NOW - 1) for number in range(100)]
    gone = len(hints(book))
    assert gone > 1
    assert {entry.endpoint for entry in hints(book)} == set(crowd[:gone])
    assert {entry.endpoint for entry in book.verified()} == {*crowd[gone:], *others}


def test_a_displaced_endpoint_does_not_displace_the_other_group() -> None:
    book = new_book()
    crowds(book)
    for number in range(20):
        learn(book, number, NOW + 1)
    crowds(book)
    assert len(verified_of(book, range(20))) == 20


def test_a_sample_is_random_and_as_large_as_asked() -> None:
    book = new_book()
    for number in range(60):
        learn(book, number)
    first, second = ([entry.endpoint for entry in book.sample(20)] for _ in range(2))
    assert len(set(first)) == len(set(second)) == 20
    assert set(first) != set(second)
    assert len(book.sample(1_000)) == len(book.verified())


# Drawing


def crowd(number: int) -> Endpoint:
    """Endpoints of which many are in each of three groups."""
    return Endpoint(f"http://{200 + number % 3}.1.0.{1 + number // 3}")


def book_with_a_crowd(seed: int, *, verified: bool) -> AddressBook:
    """One with 36 endpoints in three groups, and six in a group each."""
    book = AddressBook(bytes([seed]) * 32, Random(seed).random)
    for number, each in enumerate([*map(crowd, range(36)), *(Endpoint(endpoint(number)) for number in range(6))]):
        book.hint(each, source="operator", now=NOW)
        if verified:
            book.succeeded(each, node_id=f"node {number}", height=0, now=NOW, group=group_of_endpoint(each))
    return book


def first_chosen(book: AddressBook, **changes: Any) -> Endpoint:
    options: dict[str, Any] = {"now": NOW, "busy": (), "groups": set(), "preferred": ()} | changes
    (chosen,) = choose_outbound(book, 1, **options)
    return chosen


def feeler(book: AddressBook) -> Endpoint:
    chosen = choose_feeler(book, now=NOW, busy=())
    assert chosen is not None
    return chosen


DRAWS: dict[str, tuple[bool, Callable[[AddressBook], Endpoint]]] = {
    "verified": (True, first_chosen),
    "hints": (False, first_chosen),
    "where groups may repeat": (True, lambda book: first_chosen(book, groups=None)),
    "feelers": (False, feeler),
    "handed out": (True, lambda book: book.sample(1)[0].endpoint),
}


@pytest.mark.parametrize(("verified", "draw"), DRAWS.values(), ids=DRAWS)
def test_many_endpoints_in_few_groups_get_the_share_of_these_groups(
    verified: bool, draw: Callable[[AddressBook], Endpoint]
) -> None:
    """Three of nine groups have six of seven endpoints: they are drawn in a third of the cases."""
    drawn = [draw(book_with_a_crowd(seed, verified=verified)) for seed in range(200)]
    of_the_crowd = sum(each in {crowd(number) for number in range(36)} for each in drawn)
    assert 200 * 0.2 < of_the_crowd < 200 * 0.5


def test_every_endpoint_of_a_group_is_drawn_at_times() -> None:
    drawn = {first_chosen(book_with_a_crowd(seed % 256, verified=True)) for seed in range(256)}
    assert len(drawn) > 30


def test_without_diverse_groups_all_endpoints_are_drawn() -> None:
    book = book_with_a_crowd(1, verified=True)
    chosen = choose_outbound(book, 100, now=NOW, busy=(), groups=None, preferred=())
    assert Counter(chosen) == Counter(entry.endpoint for entry in book.entries())
    assert len({group_of_endpoint(each) for each in chosen[:9]}) == 9


# Back-off


def waits(book: AddressBook, failures: int, now: float = NOW) -> list[float]:
    """How long the next try is put off after each of so many failures in a row."""
    entry = book.get(endpoint(1))
    assert entry is not None
    found = []
    for _ in range(failures):
        book.failed(endpoint(1), now)
        found.append(entry.next_try - now)
    return found


def test_the_wait_doubles_from_5_seconds_to_30_minutes() -> None:
    book = AddressBook(b"s" * 32, lambda: 0.5)
    book.hint(endpoint(1), source=source(1), now=NOW)
    assert waits(book, 11) == [5, 10, 20, 40, 80, 160, 320, 640, 1280, MAX_BACK_OFF, 1800]


def test_an_address_that_answered_today_is_tried_every_few_seconds() -> None:
    book = AddressBook(b"s" * 32, lambda: 0.5)
    learn(book, 1)
    assert waits(book, 5) == [5, 10, FAMILIAR_BACK_OFF, 15, 15]
    assert waits(book, 5, NOW + DAY) == [160, 320, 640, 1280, 1800]


@pytest.mark.parametrize(("number", "wait"), [(0.0, 3.75), (0.5, 5.0), (1.0, 6.25)])
def test_the_wait_is_a_quarter_more_or_less_by_chance(number: float, wait: float) -> None:
    book = AddressBook(b"s" * 32, lambda: number)
    book.hint(endpoint(1), source=source(1), now=NOW)
    assert waits(book, 1) == [wait]


def test_a_failed_endpoint_is_no_candidate_until_its_next_call() -> None:
    book = AddressBook(b"s" * 32, lambda: 0.5)
    book.hint(endpoint(1), source=source(1), now=NOW)
    book.failed(endpoint(1), NOW)
    assert book.candidates(NOW + 4.9, exclude=(), tried=False) == []
    assert [entry.endpoint for entry in book.candidates(NOW + 5, exclude=(), tried=False)] == [endpoint(1)]
    assert book.candidates(NOW + 5, exclude={endpoint(1)}, tried=False) == []


def test_an_answer_ends_the_wait() -> None:
    book = new_book()
    book.hint(endpoint(1), source=source(1), now=NOW)
    waits(book, 10)
    book.succeeded(endpoint(1), node_id="node 1", height=1, now=NOW)
    assert [entry.failures for entry in book.candidates(NOW, exclude=(), tried=True)] == [0]


def test_an_address_that_fails_8_times_is_not_handed_out() -> None:
    book = new_book()
    learn(book, 1)
    waits(book, 7)
    assert len(book.verified()) == 1
    waits(book, 1)
    assert book.verified() == []
    assert len(tried(book)) == 1


# Ourselves


def test_our_own_endpoint_is_remembered_for_a_day() -> None:
    book = new_book()
    learn(book, 1)
    book.remember_own(endpoint(1), NOW)
    assert book.get(endpoint(1)) is None
    assert tried(book) == hints(book) == []
    assert book.is_own(endpoint(1), NOW + DAY - 1)
    assert not book.hint(endpoint(1), source=source(1), now=NOW + DAY - 1)
    assert not book.is_own(endpoint(1), NOW + DAY)
    assert book.hint(endpoint(1), source=source(1), now=NOW + DAY)


def test_forgetting() -> None:
    book = new_book()
    learn(book, 1)
    book.hint(endpoint(2), source=source(2), now=NOW)
    book.forget(endpoint(1))
    book.forget(endpoint(2))
    book.forget(endpoint(3))
    assert len(book) == len(hints(book)) == len(tried(book)) == 0


# Taking it up again


def copy_of(book: AddressBook) -> AddressBook:
    copy = new_book(book.secret)
    for entry in book.entries():
        copy.restore(entry)
    return copy


def test_restoring_gives_the_saved_addresses() -> None:
    book = new_book()
    for number in range(30):
        learn(book, number)
    for number in range(30, 400):
        book.hint(endpoint(number), source=source(number), now=NOW)
    book.failed(endpoint(3), NOW)
    before = {entry.endpoint: entry for entry in book.entries()}
    copy = copy_of(book)
    assert {entry.endpoint: entry for entry in copy.entries()} == before
    assert Counter(hints(copy)) == Counter(hints(book))
    assert Counter(tried(copy)) == Counter(tried(book))


def test_an_address_that_is_restored_twice_is_held_once() -> None:
    book = new_book()
    for number, verified in enumerate((False, True, True, False)):
        book.restore(AddressEntry(endpoint=endpoint(number // 2), source=source(1), verified=verified))
    assert [entry.endpoint for entry in hints(book)] == [endpoint(0)]
    assert [entry.endpoint for entry in tried(book)] == [endpoint(1)]
    assert len(book) == 2


def test_more_than_fits_is_not_restored() -> None:
    book = new_book()
    for number in range(20_000):
        book.restore(AddressEntry(endpoint=endpoint(number), source=source(1), verified=number % 2 == 0))
    assert len(tried(book)) <= TRIED
    assert len(hints(book)) <= SOURCE_BUCKETS * BUCKET_SIZE


# Whatever happens


class BookMachine(RuleBasedStateMachine):
    """Any order of events leaves a book whose tables and index agree, whose bounds hold, and whose verified stay."""

    numbers = st.integers(0, 60).map(lambda number: number * 7)
    few = st.integers(0, 5)
    ids = st.integers(0, 20)

    @initialize(seed=st.integers(0, 3))
    def begin(self, seed: int) -> None:
        self.book = AddressBook(bytes([seed]) * 32, Random(seed).random)
        self.now = NOW
        self.heard: Counter[str] = Counter()
        self.verified: dict[str, str] = {}

    def known(self) -> dict[str, str]:
        return {entry.endpoint: entry.node_id for entry in self.book.verified()}

    def crowded(self, number: int) -> str:
        """Endpoints of which many are in the same part of the network."""
        return f"http://20.{number % 3}.{number // 7}.1"

    @rule(number=numbers, of=few)
    def hint(self, number: int, of: int) -> None:
        before = self.known()
        self.heard[source(of)] += self.book.hint(self.crowded(number), source=source(of), now=self.now)
        assert self.known() == before
        assert self.heard[source(of)] <= HINTS_PER_HOUR

    @rule(number=numbers, who=ids)
    def answered(self, number: int, who: int) -> None:
        before = self.known()
        self.book.succeeded(self.crowded(number), node_id=f"node {who}", height=number, now=self.now)
        after = self.known()
        contested = self.book.next_collision(FOREVER, exclude=())
        assert after.get(self.crowded(number)) == f"node {who}" or contested in after
        moved = {endpoint for endpoint, node in before.items() if node == f"node {who}"}
        left = Counter(group_of_endpoint(endpoint) for endpoint in after)
        for lost in before.keys() - after.keys() - moved:
            groups = left[group_of_endpoint(lost)], left[group_of_endpoint(self.crowded(number))]
            assert groups[0] >= groups[1], "who answered before loses its place only to a smaller group"

    @rule(number=numbers)
    def did_not_answer(self, number: int) -> None:
        self.book.failed(self.crowded(number), self.now)
        entry = self.book.get(self.crowded(number))
        if entry is not None:
            assert self.now + 3.75 <= entry.next_try <= self.now + 1.25 * MAX_BACK_OFF
            assert entry not in self.book.candidates(self.now, exclude=(), tried=entry in tried(self.book))

    @rule(number=numbers)
    def is_ours(self, number: int) -> None:
        self.book.remember_own(self.crowded(number), self.now)
        assert self.book.get(self.crowded(number)) is None

    @rule(seconds=st.sampled_from([1.0, 60.0, HOUR]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        if seconds == HOUR:
            self.heard.clear()

    @rule()
    def restart(self) -> None:
        before = self.known()
        copy = AddressBook(self.book.secret, self.book.random)
        for entry in self.book.entries():
            copy.restore(entry)
        self.book = copy
        self.heard.clear()
        assert self.known() == before

    @invariant()
    def the_tables_and_the_index_agree(self) -> None:
        if not hasattr(self, "book"):
            return
        entries: Collection[Any] = self.book.entries()
        assert Counter(hints(self.book) + tried(self.book)) == Counter(entries)
        assert len({entry.endpoint for entry in entries}) == len(entries) == len(self.book)
        assert len(hints(self.book)) <= NEW
        assert len(tried(self.book)) <= TRIED

    @invariant()
    def a_node_is_verified_at_one_endpoint(self) -> None:
        if hasattr(self, "book"):
            assert len(set(self.known().values())) == len(self.known())
            assert {entry.endpoint for entry in self.book.verified()} <= {e.endpoint for e in tried(self.book)}


TestBook = BookMachine.TestCase
TestBook.settings = settings(stateful_step_count=30)


# Where a name leads


def test_the_part_of_the_network_is_that_of_the_address_once_it_is_known() -> None:
    entry = AddressEntry(endpoint="https://seed.node.example", source="x")
    assert entry.best_group() == "name:node.example"
    entry.group = "198.51.0.0/16"
    assert entry.best_group() == "198.51.0.0/16"


def test_names_that_lead_to_one_part_of_the_network_share_a_bucket() -> None:
    book = AddressBook(b"s" * 32, Random(1).random)
    for number in range(200):
        endpoint = f"https://party{number}.example"
        book.succeeded(endpoint, node_id=f"{number}", height=0, now=NOW, group="80.1.0.0/16")
    assert len(book.verified()) == BUCKET_SIZE
