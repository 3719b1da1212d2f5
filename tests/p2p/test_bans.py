"""Bans: who is not listened to, for how long, and how many may be banned at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.p2p.bans import Bans, address_name, key_name

NOW = 1_800_000_000.0


def test_keys_and_addresses_have_names_of_their_own() -> None:
    assert key_name(bytes.fromhex("ab" * 32)) == "key:" + "ab" * 32
    assert address_name("192.0.2.1") == "address:192.0.2.1"
    assert address_name("2001:db8::/56") == "address:2001:db8::/56"


def test_a_ban_ends() -> None:
    bans = Bans()
    bans.ban("key:a", seconds=600, now=NOW)
    assert bans.is_banned("key:a", NOW)
    assert bans.is_banned("key:a", NOW + 599.9)
    assert not bans.is_banned("key:a", NOW + 600)
    assert not bans.is_banned("key:b", NOW)


@pytest.mark.parametrize("order", [(600, 86_400), (86_400, 600)])
def test_the_longer_of_two_bans_stands(order: tuple[int, int]) -> None:
    bans = Bans()
    for seconds in order:
        bans.ban("key:a", seconds=seconds, now=NOW)
    assert bans.is_banned("key:a", NOW + 86_399)
    assert not bans.is_banned("key:a", NOW + 86_400)


def test_the_operator_s_ban_has_no_end_until_it_is_lifted() -> None:
    bans = Bans()
    bans.ban_for_good("address:192.0.2.1")
    assert bans.is_banned("address:192.0.2.1", NOW + 1e9)
    assert bans.unban("address:192.0.2.1")
    assert not bans.is_banned("address:192.0.2.1", NOW)
    assert not bans.unban("address:192.0.2.1")


def test_a_ban_that_ends_can_be_lifted_too() -> None:
    bans = Bans()
    bans.ban("key:a", seconds=600, now=NOW)
    assert bans.unban("key:a")
    assert not bans.is_banned("key:a", NOW)


def test_what_is_listed() -> None:
    bans = Bans()
    bans.ban("key:over", seconds=1, now=NOW - 2)
    bans.ban("key:a", seconds=600, now=NOW)
    bans.ban_for_good("key:b")
    assert bans.listed(NOW) == {"key:a": NOW + 600, "key:b": None}


def test_what_is_kept_is_taken_up_again() -> None:
    bans, restored = Bans(), Bans()
    bans.ban("key:a", seconds=600, now=NOW)
    bans.ban_for_good("key:b")
    restored.restore(bans.until(), bans.for_good())
    assert restored.listed(NOW) == bans.listed(NOW)


def test_a_flood_of_short_bans_pushes_no_long_one_out() -> None:
    bans = Bans()
    bans.ban("key:a", seconds=86_400, now=NOW)
    for number in range(10_050):
        bans.ban(f"address:{number}", seconds=600, now=NOW)
    assert len(bans.until()) == 10_000
    assert bans.is_banned("key:a", NOW)


def test_bans_that_are_over_make_room_first() -> None:
    bans = Bans()
    for number in range(10_000):
        bans.ban(f"address:{number}", seconds=600, now=NOW)
    bans.ban("key:a", seconds=600, now=NOW + 600)
    assert bans.until() == {"key:a": NOW + 1200}


# Not more than half


@pytest.mark.parametrize(("outbound", "allowed"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 3), (8, 4), (64, 32)])
def test_at_most_half_of_the_outbound_peers_in_an_hour(outbound: int, allowed: int) -> None:
    bans = Bans()
    assert [bans.may_ban_outbound(outbound, NOW) for _ in range(allowed + 1)] == [True] * allowed + [False]


def test_an_hour_later_it_begins_anew() -> None:
    bans = Bans()
    assert bans.may_ban_outbound(2, NOW)
    assert not bans.may_ban_outbound(2, NOW + 3_599)
    assert bans.may_ban_outbound(2, NOW + 3_600)


@given(st.integers(2, 64))
def test_with_every_ban_there_is_one_peer_less_and_half_of_them_stay(outbound: int) -> None:
    bans, left = Bans(), outbound
    while bans.may_ban_outbound(left, NOW):
        left -= 1
    assert outbound > left >= outbound / 2


# A node at its endpoint


def test_a_node_is_banned_with_its_endpoint() -> None:
    bans = Bans()
    bans.ban_node(b"k" * 32, "http://192.0.2.1:8645", whole_host=False, seconds=60, now=NOW)
    assert bans.is_banned(key_name(b"k" * 32), NOW)
    assert bans.shut_out("http://192.0.2.1:8645", NOW + 59)
    assert not bans.shut_out("http://192.0.2.1:8646", NOW)
    assert not bans.shut_out("http://192.0.2.1:8645", NOW + 60)


@pytest.mark.parametrize(
    ("banned", "others"),
    [
        ("http://192.0.2.1:8645", ["http://192.0.2.1:1", "https://192.0.2.1"]),
        ("http://[2001:db8:1::1]:8645", ["http://[2001:db8:1::1]", "http://[2001:db8:1:ff::9]:7"]),
        ("http://node.example:8645", ["https://node.example"]),
    ],
)
def test_or_with_its_whole_host(banned: str, others: list[str]) -> None:
    bans = Bans()
    bans.ban_node(b"k" * 32, banned, whole_host=True, seconds=60, now=NOW)
    assert all(bans.shut_out(other, NOW) for other in others)
    for other in ("http://192.0.2.2:8645", "http://[2001:db8:2::1]", "http://other.example"):
        assert not bans.shut_out(other, NOW)


def test_an_address_that_posted_nonsense_is_not_called_either() -> None:
    bans = Bans()
    bans.ban(address_name("192.0.2.1"), seconds=60, now=NOW)
    assert bans.shut_out("http://192.0.2.1:8645", NOW)
