"""How many connections are open, and which one gives way."""

from attrs import define, field

from svcd.web.connections import Connections
from tests.support import has_result, result_of


@define(eq=False)
class Peer:
    """A connection that only remembers what it was told."""

    group: str | None = "203.0.113.9"
    told: list[str] = field(factory=list)

    def abort(self) -> None:
        self.told.append("abort")

    def drain(self) -> None:
        self.told.append("drain")


def opened(connections: Connections, *groups: str | None) -> list[Peer]:
    peers = [Peer(group) for group in groups]
    for peer in peers:
        connections.add(peer)
    return peers


def test_cap_of_one_client_leaves_room_for_others() -> None:
    connections = Connections(total=10, per_client=2, untaken=100)
    peers = opened(connections, "a", "a")

    assert not connections.admit("a")
    assert connections.admit("b")
    assert [peer.told for peer in peers] == [[], []]
    assert (connections.refused, connections.gave_way) == (1, 0)


def test_closed_connection_makes_room_for_its_client() -> None:
    connections = Connections(total=10, per_client=1, untaken=100)
    (peer,) = opened(connections, "a")

    connections.remove(peer)
    connections.remove(peer)

    assert connections.admit("a")
    assert len(connections) == connections.clients == 0


def test_connections_that_count_for_nobody_are_not_capped_by_client() -> None:
    connections = Connections(total=10, per_client=1, untaken=100)
    opened(connections, None, None)

    assert connections.admit(None)


def test_the_one_that_waits_longest_gives_way() -> None:
    connections = Connections(total=3, per_client=0, untaken=100)
    first, second, third = opened(connections, "a", "b", "c")
    connections.waits(first)

    assert connections.admit("d")

    assert [first.told, second.told, third.told] == [[], ["abort"], []]
    assert (connections.refused, connections.gave_way) == (0, 1)
    assert len(connections) == 2


def test_none_gives_way_while_all_are_served() -> None:
    connections = Connections(total=2, per_client=0, untaken=100)
    peers = opened(connections, "a", "b")
    for peer in peers:
        connections.is_served(peer)

    assert not connections.admit("c")
    assert connections.refused == 1

    connections.waits(peers[0])
    assert connections.admit("c")
    assert peers[0].told == ["abort"]


def test_who_takes_an_answer_gives_way_after_those_who_wait() -> None:
    connections = Connections(total=3, per_client=0, untaken=100)
    first, second, waiting = opened(connections, "a", "b", "c")
    connections.takes(first, 10)
    connections.takes(second, 10)

    assert [connections.admit("d") for _ in range(2)] == [True, True]
    assert [first.told, second.told, waiting.told] == [[], [], ["abort"]]
    opened(connections, None)
    connections.is_served(second)
    assert connections.admit("d")
    assert connections.untaken_bytes == 10
    assert (first.told, second.told) == ([], []), "the one that had come meanwhile waited"


def test_answers_that_nobody_takes_have_a_bound_and_the_greediest_client_loses_its_oldest() -> None:
    connections = Connections(total=0, per_client=0, untaken=100)
    modest, first, second, newest = opened(connections, "a", "b", "b", "c")
    connections.takes(modest, 40)
    connections.takes(first, 25)
    connections.takes(second, 25)
    assert connections.untaken_bytes == 90

    connections.takes(newest, 15)

    assert [peer.told for peer in (modest, first, second, newest)] == [[], ["abort"], [], []]
    assert connections.untaken_bytes == 80
    assert (len(connections), connections.gave_way) == (3, 1)


def test_those_who_count_for_nobody_are_told_apart() -> None:
    connections = Connections(total=0, per_client=0, untaken=100)
    proxied, greedy, other = opened(connections, None, None, None)
    connections.takes(proxied, 30)
    connections.takes(greedy, 50)
    connections.takes(other, 30)

    assert [proxied.told, greedy.told, other.told] == [[], ["abort"], []]


def test_what_has_been_taken_does_not_count() -> None:
    connections = Connections(total=0, per_client=0, untaken=100)
    taken, closed, served = opened(connections, "a", "a", "a")
    for peer in (taken, closed, served):
        connections.takes(peer, 30)

    connections.waits(taken)
    connections.remove(closed)
    connections.is_served(served)
    connections.takes(closed, 30)

    assert connections.untaken_bytes == 0


def test_closed_connection_does_not_wait_again() -> None:
    connections = Connections(total=1, per_client=0, untaken=100)
    (peer,) = opened(connections, "a")
    connections.remove(peer)

    connections.waits(peer)

    opened(connections, "b")
    assert connections.admit("c")
    assert peer.told == []


def test_bounds_of_zero_are_no_bounds() -> None:
    connections = Connections(total=0, per_client=0, untaken=100)
    opened(connections, *["a"] * 500)

    assert connections.admit("a")


def test_emptied_fires_when_the_last_one_closes() -> None:
    connections = Connections(total=0, per_client=0, untaken=100)
    first, second = opened(connections, "a", "a")
    emptied = connections.emptied()

    connections.remove(first)
    assert not has_result(emptied)
    connections.remove(second)

    result_of(emptied)
    result_of(connections.emptied())
