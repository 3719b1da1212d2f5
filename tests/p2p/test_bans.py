"""Bans: who is not listened to, for how long, and how many may be banned at once."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from svcd.chain.address import node_id
from svcd.p2p import bans as bans_module
from svcd.p2p.bans import (
    MAX_OWN,
    Ban,
    Bans,
    PostBans,
    address_in,
    address_name,
    end_of,
    endpoint_name,
    node_name,
    posts_name,
)

NOW = 1_800_000_000.0
HOUR = 3_600.0


def refuses_posts(bans: Bans, address: str) -> bool:
    """Whether posts from an address that no proxy has are refused at present."""
    clock = Clock()
    clock.advance(NOW)
    return PostBans(bans, clock, lambda *_: False).refuses(address)


def test_everything_has_a_name_of_its_own() -> None:
    assert node_name(node_id(b"k" * 32)) == "node:" + node_id(b"k" * 32)
    assert endpoint_name("http://192.0.2.1") == "endpoint:http://192.0.2.1"
    assert address_name("192.0.2.1") == "address:192.0.2.1"
    assert posts_name("192.0.2.1") == "posts:192.0.2.1"


@pytest.mark.parametrize("text", ["2001:db8:1:2::", "2001:db8:1:2:ff::9", "2001:db8:1:2::/64"])
def test_of_ipv6_an_address_is_its_64(text: str) -> None:
    assert address_name(text) == "address:2001:db8:1:2::/64"


def test_an_ipv4_address_in_ipv6_is_the_ipv4_address() -> None:
    assert address_name("::ffff:192.0.2.1") == "address:192.0.2.1"


def test_an_address_that_a_translator_makes_is_the_ipv4_address() -> None:
    assert address_name("64:ff9b::5db8:d822") == "address:93.184.216.34"
    assert address_in("http://[64:ff9b::5db8:d822]") == "93.184.216.34"


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.1", "169.254.169.254"])
def test_nobody_becomes_an_address_of_ours_by_a_translator_s_prefix(inside: str) -> None:
    """It takes a machine on the same link to send from such an address; a ban of it must not hit our own."""
    assert address_name(f"64:ff9b::{inside}") == "address:64:ff9b::/64"


def test_behind_a_translator_a_ban_is_of_one_ipv4_host() -> None:
    bans = Bans()
    bans.ban_node("n", "http://a.example", address="64:ff9b::102:304", seconds=60, now=NOW)
    assert not bans.is_endpoint_banned("http://b.example", NOW, address="64:ff9b::5db8:d822")
    assert bans.is_endpoint_banned("http://b.example", NOW, address="64:ff9b::102:304")
    assert bans.is_endpoint_banned("http://b.example", NOW, address="1.2.3.4"), (
        "the same host, whichever way it is called"
    )
    assert bans.is_endpoint_banned("http://[64:ff9b::102:304]:80", NOW)


@pytest.mark.parametrize("text", ["", "node.example", "192.0.2.0/24", "192.0.2.1/32", "2001:db8::/56", "2001:db8::/32"])
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        address_name(text)


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
    bans.ban_by_operator("address:192.0.2.1", seconds=None, now=NOW)
    assert bans.is_banned("address:192.0.2.1", NOW + 1e9)
    assert bans.unban("address:192.0.2.1", NOW)
    assert not bans.is_banned("address:192.0.2.1", NOW)
    assert not bans.unban("address:192.0.2.1", NOW)


def test_or_an_end_that_the_operator_gave_it() -> None:
    bans = Bans()
    bans.ban_by_operator("key:a", seconds=60, now=NOW)
    assert bans.is_banned("key:a", NOW + 59)
    assert not bans.is_banned("key:a", NOW + 60)
    assert not bans.unban("key:a", NOW + 60)


def test_the_operator_s_last_word_counts() -> None:
    bans = Bans()
    bans.ban_by_operator("key:a", seconds=None, now=NOW)
    bans.ban_by_operator("key:a", seconds=60, now=NOW)
    assert not bans.is_banned("key:a", NOW + 60)


def test_a_price_is_not_lessened_by_a_ban_of_the_operator_s() -> None:
    bans = Bans()
    bans.ban("key:a", seconds=600, now=NOW, why="nonsense")
    bans.ban_by_operator("key:a", seconds=60, now=NOW)
    assert bans.is_banned("key:a", NOW + 599)
    assert [(ban.own, ban.why) for ban in bans.listed(NOW)] == [(True, ""), (False, "nonsense")]
    assert bans.unban("key:a", NOW)
    assert not bans.is_banned("key:a", NOW)


def test_the_operator_may_ban_so_many_and_replace_one_of_them() -> None:
    bans = Bans()
    for number in range(MAX_OWN):
        bans.ban_by_operator(f"key:{number}", seconds=None, now=NOW)
    bans.ban_by_operator("key:7", seconds=60, now=NOW)
    with pytest.raises(OverflowError, match="you have 1000 bans already; lift some first"):
        bans.ban_by_operator("key:a", seconds=None, now=NOW)
    bans.ban_by_operator("key:a", seconds=None, now=NOW + 60)


def test_those_that_have_not_ended_are_counted() -> None:
    bans = Bans()
    for number in range(3):
        bans.ban(f"node:{number}", seconds=number * 10.0, now=NOW)
    assert bans.count(NOW) == 2
    assert bans.count(NOW + 15) == len(bans.listed(NOW + 15)) == 1


def test_the_list_of_bans() -> None:
    bans = Bans()
    bans.ban("key:over", seconds=1, now=NOW - 2)
    bans.ban("key:a", seconds=600, now=NOW, why="x" * 1_000)
    bans.ban("key:c", seconds=900, now=NOW)
    bans.ban_by_operator("key:b", seconds=None, now=NOW)
    assert bans.listed(NOW) == [
        Ban("key:b", None, "", own=True),
        Ban("key:c", NOW + 900, "", own=False),
        Ban("key:a", NOW + 600, "x" * 200, own=False),
    ]


def test_saved_bans_are_restored() -> None:
    bans, restored = Bans(), Bans()
    bans.ban("key:a", seconds=600, now=NOW)
    bans.ban_by_operator("key:b", seconds=None, now=NOW)
    restored.restore(bans.listed(NOW))
    assert restored.listed(NOW) == bans.listed(NOW)


def test_restoring_keeps_newer_bans() -> None:
    bans = Bans()
    bans.ban_by_operator("key:a", seconds=None, now=NOW)
    bans.restore([Ban("key:a", NOW + 60, "", own=True)])
    assert bans.is_banned("key:a", NOW + 61)


def test_a_flood_of_short_bans_pushes_no_long_one_out() -> None:
    bans = Bans()
    bans.ban("key:a", seconds=86_400, now=NOW)
    for number in range(10_050):
        bans.ban(f"address:{number}", seconds=600, now=NOW)
    assert len(bans.listed(NOW)) == 10_000
    assert bans.is_banned("key:a", NOW)


def test_bans_that_are_over_make_room_first() -> None:
    bans = Bans()
    for number in range(10_000):
        bans.ban(f"address:{number}", seconds=600, now=NOW)
    bans.ban("key:a", seconds=600, now=NOW + 600)
    assert [(ban.name, ban.until) for ban in bans.listed(NOW + 600)] == [("key:a", NOW + 1200)]


def compared(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> int:
    """How many bans are looked at for an action."""
    looks: list[Ban | None] = []

    def look(ban: Ban | None) -> float:
        looks.append(ban)
        return end_of(ban)

    with monkeypatch.context() as patch:
        patch.setattr(bans_module, "end_of", look)
        action()
    return len(looks)


def test_a_ban_looks_at_few_others_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad post must not cost the node more than its sender, and one /48 has addresses for a full list."""
    bans = Bans()
    for number in range(10_000):
        bans.ban(f"posts:{number}", seconds=600 + number, now=NOW)
    assert compared(monkeypatch, lambda: bans.ban("posts:a", seconds=86_400, now=NOW)) <= 8
    assert not bans.is_banned("posts:0", NOW)
    assert bans.is_banned("posts:1", NOW)
    assert compared(monkeypatch, lambda: bans.ban("posts:1", seconds=86_400, now=NOW)) <= 8
    assert compared(monkeypatch, lambda: bans.is_banned("posts:1", NOW)) <= 8


def test_bans_that_are_made_longer_again_and_again_are_remembered_once() -> None:
    bans = Bans()
    for number in range(10_000):
        bans.ban(f"posts:{number % 10}", seconds=600, now=NOW + number)
    assert len(bans.listed(NOW + 10_000)) == 10
    assert len(bans._ends) <= 100


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 50), st.integers(0, 20), st.booleans()), max_size=40)
)
def test_bans_end_in_time_whatever_is_lengthened_lifted_and_dropped(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    """Compared with a list of all, of which the three that end last are kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bans_module, "_CAPACITY", 3)
        bans, now = Bans(), NOW
        ends: dict[str, float] = {}
        for name, seconds, passed, lift in steps:
            now += passed
            ends = {each: end for each, end in ends.items() if end > now}
            if lift:
                assert bans.unban(name, now) == (ends.pop(name, None) is not None)
                continue
            bans.ban(name, seconds=seconds, now=now)
            ends[name] = max(now + seconds, ends.get(name, 0.0))
            if len(ends) > 3:
                del ends[min(ends, key=lambda each: (ends[each], each))]
            assert {ban.name: ban.until for ban in bans.listed(now)} == ends


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
    bans.ban_node("n", "http://192.0.2.1:8645", seconds=60, now=NOW, why="its block broke a rule")
    assert bans.is_banned(node_name("n"), NOW)
    assert bans.is_endpoint_banned("http://192.0.2.1:8645", NOW + 59)
    assert not bans.is_endpoint_banned("http://192.0.2.1:8646", NOW)
    assert not bans.is_endpoint_banned("http://192.0.2.1:8645", NOW + 60)
    assert not refuses_posts(bans, "192.0.2.1")
    assert {ban.why for ban in bans.listed(NOW)} == {"its block broke a rule"}


@pytest.mark.parametrize(
    ("address", "others", "remotes"),
    [
        ("192.0.2.1", ["http://192.0.2.1:8080", "https://192.0.2.1"], ["http://192.0.2.2:8080"]),
        (
            "2001:db8:1:2::1",
            ["http://[2001:db8:1:2::1]", "http://[2001:db8:1:2:9::9]:8080"],
            ["http://[2001:db8:1:3::1]"],
        ),
    ],
)
def test_or_with_everybody_at_its_address(address: str, others: list[str], remotes: list[str]) -> None:
    bans = Bans()
    bans.ban_node("n", "https://node.example", address=address, seconds=60, now=NOW)
    assert all(bans.is_endpoint_banned(other, NOW) for other in others)
    assert not any(bans.is_endpoint_banned(remote, NOW) for remote in remotes)
    assert bans.is_endpoint_banned("https://other.example", NOW, address=address), "whatever name leads there"
    assert not bans.is_endpoint_banned("https://other.example", NOW, address="192.0.2.9")
    assert refuses_posts(bans, address)


def test_an_address_that_posted_nonsense_is_called_all_the_same() -> None:
    """Posts are signed by nobody: whoever shares an address with an honest node must not cut it off from us."""
    bans = Bans()
    bans.ban(posts_name("192.0.2.1"), seconds=60, now=NOW)
    assert refuses_posts(bans, "192.0.2.1")
    assert not bans.is_endpoint_banned("http://192.0.2.1:8645", NOW)
