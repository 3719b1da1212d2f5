"""How many connections are open, and which one gives way."""

from collections.abc import Callable

import pytest
from attrs import define, field, frozen
from twisted.internet.task import Clock

from svcd.web.connections import AT_ONCE, Budget, Connections, PipelineQueue, UnreadBudget
from tests.support import has_result, result_of


@define(eq=False)
class Peer:
    """A connection that only remembers what it was told."""

    connections: Connections
    group: str | None = "203.0.113.9"
    told: list[str] = field(factory=list)

    def abort(self) -> None:
        self.told.append("abort")

    def evict(self) -> None:
        self.connections.evict(self)

    def holds(self, size: int) -> None:
        """So many bytes of its answer are unread, after some of it was sent."""
        self.connections.mark_unread(self, self.group, size)

    def drain(self) -> None:
        self.told.append("drain")


def opened(connections: Connections, *groups: str | None) -> list[Peer]:
    peers = [Peer(connections, group) for group in groups]
    for peer in peers:
        connections.add(peer)
    return peers


def test_cap_of_one_client_leaves_room_for_others() -> None:
    connections = Connections(total=10, per_client=2, unread=UnreadBudget(100, 100))
    peers = opened(connections, "a", "a")

    assert not connections.admit("a")
    assert connections.admit("b")
    assert [peer.told for peer in peers] == [[], []]
    assert (connections.refused, connections.evicted) == (1, 0)


def test_closed_connection_makes_room_for_its_client() -> None:
    connections = Connections(total=10, per_client=1, unread=UnreadBudget(100, 100))
    (peer,) = opened(connections, "a")

    connections.remove(peer)
    connections.remove(peer)

    assert connections.admit("a")
    assert len(connections) == connections.clients == 0


def test_connections_that_count_for_nobody_are_not_capped_by_client() -> None:
    connections = Connections(total=10, per_client=1, unread=UnreadBudget(100, 100))
    opened(connections, None, None)

    assert connections.admit(None)


def test_the_longest_idle_connection_gives_way() -> None:
    connections = Connections(total=3, per_client=0, unread=UnreadBudget(100, 100))
    first, second, third = opened(connections, "a", "b", "c")
    connections.mark_waiting(first)

    assert connections.admit("d")

    assert [first.told, second.told, third.told] == [[], ["abort"], []]
    assert (connections.refused, connections.evicted) == (0, 1)
    assert len(connections) == 2


def test_no_connection_gives_way_while_all_are_served() -> None:
    connections = Connections(total=2, per_client=0, unread=UnreadBudget(100, 100))
    peers = opened(connections, "a", "b")
    for peer in peers:
        connections.mark_served(peer)

    assert not connections.admit("c")
    assert connections.refused == 1

    connections.mark_waiting(peers[0])
    assert connections.admit("c")
    assert peers[0].told == ["abort"]


def test_reading_connections_give_way_after_idle_ones() -> None:
    unread = UnreadBudget(100, 100)
    connections = Connections(total=3, per_client=0, unread=unread)
    first, second, waiting = opened(connections, "a", "b", "c")
    first.holds(10)
    second.holds(10)

    assert [connections.admit("d") for _ in range(2)] == [True, True]
    assert [first.told, second.told, waiting.told] == [[], [], ["abort"]]
    opened(connections, None)
    connections.mark_served(second)
    assert connections.admit("d")
    assert unread.bytes == 10
    assert (first.told, second.told) == ([], []), "the one that had come meanwhile waited"


def test_answers_that_nobody_takes_have_a_bound_and_the_greediest_client_loses_its_oldest() -> None:
    unread = UnreadBudget(100, 60)
    connections = Connections(total=0, per_client=0, unread=unread)
    modest, first, second, newest = opened(connections, "a", "b", "b", "c")
    modest.holds(30)
    first.holds(25)
    second.holds(25)
    assert unread.bytes == 80

    newest.holds(25)

    assert [peer.told for peer in (modest, first, second, newest)] == [[], ["abort"], [], []]
    assert unread.bytes == 80
    assert (len(connections), connections.evicted) == (3, 1)


def test_answers_that_one_client_does_not_take_have_a_bound_of_their_own() -> None:
    unread = UnreadBudget(1_000, 60)
    connections = Connections(total=0, per_client=0, unread=unread)
    other, first, second, third = opened(connections, "a", "b", "b", "b")
    other.holds(60)
    first.holds(30)
    second.holds(30)
    assert connections.evicted == 0

    third.holds(30)

    assert [peer.told for peer in (other, first, second, third)] == [[], ["abort"], [], []]
    assert unread.of_client("b") == 60


def test_answer_above_the_bound_of_a_client_is_given_up() -> None:
    unread = UnreadBudget(1_000, 60)
    (peer,) = opened(Connections(total=0, per_client=0, unread=unread), "a")

    peer.holds(61)

    assert peer.told == ["abort"]
    assert unread.bytes == 0


@pytest.mark.parametrize("group", ["b", None], ids=["one client", "nobody's"])
def test_steady_readers_stay_and_the_longest_stalled_one_goes(group: str | None) -> None:
    unread = UnreadBudget(100, 100)
    connections = Connections(total=0, per_client=0, unread=unread)
    steady, stalled, newest = opened(connections, group, group, group)
    steady.holds(40)
    stalled.holds(40)
    steady.holds(39)

    newest.holds(30)

    assert [peer.told for peer in (steady, stalled, newest)] == [[], ["abort"], []]


def test_clients_with_half_a_share_or_less_count_as_one() -> None:
    unread = UnreadBudget(100, 80)
    connections = Connections(total=0, per_client=0, unread=unread)
    stalled, two_answers, newest = opened(connections, "a", "b", "c")
    stalled.holds(30)
    two_answers.holds(40)

    newest.holds(40)

    assert [peer.told for peer in (stalled, two_answers, newest)] == [["abort"], [], []]


def test_sites_share_the_bound_of_unread_answers() -> None:
    unread = UnreadBudget(100, 60)
    rpc, peers = (Connections(total=2, per_client=0, unread=unread) for _ in range(2))
    (first,), (second, served) = opened(rpc, "a"), opened(peers, "b", "c")
    first.holds(60)
    peers.mark_served(served)

    second.holds(50)

    assert (first.told, rpc.evicted, len(rpc)) == (["abort"], 1, 0)
    assert (second.told, peers.evicted, unread.bytes) == ([], 0, 50)
    opened(rpc, "d", "e")
    assert rpc.admit("f"), "one of its own that waits gives way"
    assert second.told == []


def test_a_full_site_closes_no_connection_of_another() -> None:
    unread = UnreadBudget(100, 60)
    full, other = (Connections(total=1, per_client=0, unread=unread) for _ in range(2))
    (served,), (reader,) = opened(full, "a"), opened(other, "b")
    full.mark_served(served)
    reader.holds(10)

    assert not full.admit("c")
    assert reader.told == []


def test_those_who_count_for_nobody_are_told_apart() -> None:
    connections = Connections(total=0, per_client=0, unread=UnreadBudget(100, 30))
    proxied, greedy, other = opened(connections, None, None, None)
    proxied.holds(30)
    greedy.holds(50)
    other.holds(30)

    assert [proxied.told, greedy.told, other.told] == [[], ["abort"], []]


def test_acknowledged_bytes_do_not_count() -> None:
    unread = UnreadBudget(100, 100)
    connections = Connections(total=0, per_client=0, unread=unread)
    taken, closed, served = opened(connections, "a", "a", "a")
    for peer in (taken, closed, served):
        peer.holds(30)

    connections.mark_waiting(taken)
    connections.remove(closed)
    connections.mark_served(served)
    closed.holds(30)

    assert unread.bytes == 0


def test_closed_connection_does_not_wait_again() -> None:
    connections = Connections(total=1, per_client=0, unread=UnreadBudget(100, 100))
    (peer,) = opened(connections, "a")
    connections.remove(peer)

    connections.mark_waiting(peer)

    opened(connections, "b")
    assert connections.admit("c")
    assert peer.told == []


def test_bounds_of_zero_are_no_bounds() -> None:
    connections = Connections(total=0, per_client=0, unread=UnreadBudget(100, 100))
    opened(connections, *["a"] * 500)

    assert connections.admit("a")


def test_emptied_fires_when_the_last_one_closes() -> None:
    connections = Connections(total=0, per_client=0, unread=UnreadBudget(100, 100))
    first, second = opened(connections, "a", "a")
    emptied = connections.emptied()

    connections.remove(first)
    assert not has_result(emptied)
    connections.remove(second)

    result_of(emptied)
    result_of(connections.emptied())


# Which connection gives way when a resource is used up


def test_oldest_share_of_the_client_that_holds_most_gives_way() -> None:
    budget: Budget[str] = Budget()
    for connection, client, size in (("m", "modest", 40), ("first", "greedy", 25), ("second", "greedy", 25)):
        budget.add(connection, client, size)

    assert budget.oldest_of_largest_holder() == "first"
    assert (budget.bytes, budget.of_client("greedy"), budget.of_client("other")) == (90, 50, 0)
    assert budget.release("first") == "greedy"
    assert budget.oldest_of_largest_holder() == "m"


def test_clients_that_hold_no_more_than_they_need_count_as_one() -> None:
    budget: Budget[str] = Budget()
    for connection, client, size in (("old", "small", 10), ("m", "modest", 40), ("g", "greedy", 41)):
        budget.add(connection, client, size)

    assert budget.oldest_of_largest_holder(modest=40) == "g"
    assert budget.oldest_of_largest_holder(modest=41) == "old"


def test_connections_without_a_client_are_told_apart() -> None:
    budget: Budget[str] = Budget()
    for connection, size in (("a", 30), ("b", 50), ("c", 30)):
        budget.add(connection, None, size)

    assert budget.oldest_of_largest_holder() == "b"
    assert budget.release("b") is None


def test_share_that_grows_keeps_its_age() -> None:
    budget: Budget[str] = Budget()
    for connection in ("first", "second", "first"):
        budget.add(connection, "client", 10)

    assert budget.oldest_of("client") == "first"


def test_share_that_is_kept_counts_and_does_not_give_way() -> None:
    budget: Budget[str] = Budget()
    budget.add("complete", "client", 100)
    budget.keep("complete")
    budget.keep("unknown")
    assert not budget

    budget.add("incomplete", "client", 1)

    assert list(budget) == ["incomplete"]
    assert budget.oldest_of_largest_holder() == budget.oldest_of("client") == "incomplete"
    assert budget.of_client("client") == 101
    budget.release("complete")
    budget.release("complete")
    assert budget.bytes == 1


def test_shares_of_no_bytes() -> None:
    budget: Budget[str] = Budget()
    for connection in ("first", "second"):
        budget.add(connection, "client", 0)

    assert budget.oldest_of_largest_holder() == "first"
    for connection in ("first", "second"):
        budget.release(connection)
    assert not budget


# Turns among connections: few in each turn of the reactor, and none for whoever is gone


@frozen(eq=False)
class Waiting:
    """Does what the test says when it is its turn."""

    resume: Callable[[], object]


def test_the_first_to_wait_go_on_first_and_few_at_once() -> None:
    clock = Clock()
    turns, gone_on = PipelineQueue(clock), list[int]()
    for number in range(2 * AT_ONCE):
        turns.wait(Waiting(lambda number=number: gone_on.append(number)))  # type: ignore[misc]

    due = clock.getDelayedCalls()
    due[0].func()
    assert gone_on == list(range(AT_ONCE))
    clock.advance(0)

    assert gone_on == list(range(2 * AT_ONCE))
    assert clock.getDelayedCalls() == []


def test_a_connection_closed_in_another_turn_gets_no_turn() -> None:
    clock = Clock()
    turns, gone_on = PipelineQueue(clock), list[str]()
    second = Waiting(lambda: gone_on.append("second"))
    turns.wait(Waiting(lambda: turns.forget(second)))
    turns.wait(second)
    turns.wait(Waiting(lambda: gone_on.append("third")))

    clock.advance(0)

    assert gone_on == ["third"]


def test_a_connection_that_waits_again_has_a_later_turn() -> None:
    clock = Clock()
    turns, gone_on = PipelineQueue(clock), list[str]()
    greedy = Waiting(lambda: (gone_on.append("greedy"), len(gone_on) < 3 and turns.wait(greedy)))
    turns.wait(greedy)
    turns.wait(Waiting(lambda: gone_on.append("other")))

    clock.advance(0)

    assert gone_on == ["greedy", "other", "greedy"]
