"""What is remembered of a peer and of those who did not deliver: enough, and never more than there is room for."""

from svcd.p2p import peer
from svcd.p2p.peer import CLAIM_SECONDS, FIRST_DOUBT, Doubts, Peer

ROOM = peer._REMEMBERED


def peer_at(part: int, host: int = 1) -> Peer:
    """A peer in one of 65,536 parts of the network."""
    address = f"{part // 256}.{part % 256}.0.{host}"
    identity = {"node_key": bytes(32), "node_id": "svcnode_" + 32 * "0"}
    return Peer(endpoint=f"http://{address}:8645", outbound=False, greeted=0.0, address=address, **identity)


def test_of_what_a_peer_has_the_newest_is_remembered() -> None:
    known = peer_at(1)
    items = [number.to_bytes(32, "big") for number in range(ROOM + 1)]
    for item in items:
        known.note(item)
    assert [known.has(item) for item in (items[0], items[1], items[-1])] == [False, True, True]


def test_what_is_held_against_one_is_held_against_its_part_of_the_network() -> None:
    doubts = Doubts()
    doubts.add(peer_at(1), 0.0)
    neighbour = peer_at(1, host=2)
    assert doubts.holds_against(neighbour, FIRST_DOUBT - 1)
    assert not doubts.holds_against(neighbour, FIRST_DOUBT)
    assert not doubts.holds_against(peer_at(2), 0.0)
    neighbour.delivered(0.0, gained=False)
    assert not doubts.holds_against(neighbour, 0.0)
    neighbour.doubt(0.0)
    assert doubts.holds_against(neighbour, 0.0)
    doubts.lift(neighbour)
    assert not doubts.holds_against(neighbour, 0.0)


def test_of_many_parts_of_the_network_the_last_to_disappoint_are_remembered() -> None:
    doubts = Doubts()
    for part in range(ROOM + 1):
        doubts.add(peer_at(part), 0.0)
    held = [doubts.holds_against(peer_at(part), 1.0) for part in (0, 1, ROOM)]
    assert held == [False, True, True]


def test_of_many_that_are_gone_the_last_are_remembered_if_they_come_back() -> None:
    doubts = Doubts()
    for part in range(ROOM + 1):
        gone = peer_at(part)
        gone.doubt(7.0)
        doubts.keep(gone)
    back = [peer_at(part) for part in (0, 1, ROOM)]
    for known in back:
        doubts.bring_back(known)
    assert [(known.doubts, known.doubted_until) for known in back] == [(0, 0.0), (1, 67.0), (1, 67.0)]


def test_a_claim_that_delivers_is_as_good_as_new() -> None:
    known = peer_at(1)
    assert not known.is_pressing(0.0)
    known.delivered(0.0, gained=True)
    assert not known.is_pressing(0.0), "without a claim there is nothing to press for"
    known.claimed_since = 0.0
    assert known.is_pressing(CLAIM_SECONDS - 1)
    known.delivered(30.0, gained=False)
    assert known.is_pressing(30.0 + CLAIM_SECONDS - 1)
    assert not known.is_pressing(30.0 + CLAIM_SECONDS)
