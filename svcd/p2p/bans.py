"""Prices for what peers do wrong (docs/peers.md "Prices"), and the operator's own bans.

What is banned has a name: ``node:`` a node by its id, ``endpoint:`` one place, ``address:`` everybody at an address,
who is neither listened to nor called, and ``posts:`` what is posted from an address. Of IPv6 an address is its /64,
from which one machine may choose; one that a translator (NAT64) makes of an IPv4 address is that IPv4 address. Posts
are signed by nobody, so a node at the same address need not answer for them.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_network
from math import inf
from typing import Final, Protocol

from attrs import define, field, frozen

from svcd.chain.address import node_id
from svcd.net.addresses import untranslated
from svcd.net.endpoint import Endpoint
from svcd.ports import Clock
from svcd.web.clients import Address, parse_address

MALFORMED_TOKENS: Final = 20.0
"""What a malformed post costs beside the request: tokens of the sender's bucket."""
PERSISTENT_BAN_SECONDS: Final = 600.0
"""How long the posts of an address are ignored that goes on with malformed ones."""
BANNED: Final = "this address is banned here for a while: it sent what breaks the rules"
INVALID_SECONDS: Final = 24 * 3_600.0
MAX_OWN: Final = 1_000
KINDS: Final = ("node", "endpoint", "address", "posts")
_HOUR: Final = 3_600.0
_CAPACITY: Final = 10_000
_WHY_SIZE: Final = 200


@frozen
class Ban:
    """What is not listened to, not called, or neither."""

    name: str
    until: float | None
    """Unix seconds; None: for good."""
    why: str
    """What it is the price of; "" where nobody said."""
    own: bool
    """Whether it is the operator's."""


def key_name(node_key: bytes) -> str:
    """What a node is called in the list."""
    return node_name(node_id(node_key))


def node_name(node: str) -> str:
    """What a node is called in the list, by its id."""
    return f"node:{node}"


def endpoint_name(endpoint: str) -> str:
    """What an endpoint, in whatever spelling, is called in the list; raises BadTarget for what is none."""
    return f"endpoint:{Endpoint(endpoint)}"


def address_name(address: str) -> str:
    """What everybody at an address is called in the list; raises ValueError for what is none."""
    return f"address:{_group(address)}"


def posts_name(address: str) -> str:
    """What is posted from an address, as the list calls it; raises ValueError for what is none."""
    return f"posts:{_group(address)}"


@lru_cache(4_096)
def _group(text: str) -> str:
    address = _read(text)
    if address is not None:
        return _group_of(address)
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen == 64:
        return str(network)
    raise ValueError(f"{text!r} is neither an address nor a /64 of IPv6")


def _group_of(address: Address) -> str:
    return str(ip_network((int(address), 64), strict=False)) if isinstance(address, IPv6Address) else str(address)


def _read(text: str) -> Address | None:
    """The address in ``text``, an IPv4 address in IPv6 as IPv4 (mapped, or made by a translator); None for none."""
    address = parse_address(text)
    return address and untranslated(address)


def address_in(endpoint: str) -> str:
    """The address that an endpoint shows, an IPv4 address in IPv6 as IPv4; "" for a name."""
    return str(_read(Endpoint(endpoint).host) or "")


@define
class Bans:
    """Who is banned until when."""

    _prices: dict[str, Ban] = field(factory=dict)
    _own: dict[str, Ban] = field(factory=dict)
    _recent: list[float] = field(factory=list)

    def ban(self, name: str, *, seconds: float, now: float, why: str = "") -> None:
        """Ban ``name``; the longer of two bans stands, and the list is bounded: the first to end goes first."""
        if now + seconds >= end_of(self._prices.get(name)):
            self._prices[name] = Ban(name, now + seconds, why[:_WHY_SIZE], own=False)
        if len(self._prices) > _CAPACITY:
            self._prices = {ban.name: ban for ban in self._prices.values() if end_of(ban) > now}
        while len(self._prices) > _CAPACITY:
            del self._prices[min(self._prices, key=lambda other: end_of(self._prices[other]))]

    def ban_node(
        self, node_key: bytes, endpoint: str, *, address: str = "", seconds: float, now: float, why: str = ""
    ) -> None:
        """Ban a node at its endpoint, so that another key there is no way out; with ``address`` everybody there."""
        names = [key_name(node_key), endpoint_name(endpoint), *([address_name(address)] if address else [])]
        for name in names:
            self.ban(name, seconds=seconds, now=now, why=why)

    def shut_out(self, endpoint: str, now: float, *, address: str = "") -> bool:
        """Whether an endpoint must not be called: it is banned, or the address in it, or the one that it leads to."""
        at = [address_name(text) for text in (address_in(endpoint), address) if text]
        return any(self.is_banned(name, now) for name in [endpoint_name(endpoint), *at])

    def forbids(self, node_key: bytes, endpoint: str, address: str, now: float) -> bool:
        """Whether a node must not be talked to: it is banned itself, or where it is."""
        return self.is_banned(key_name(node_key), now) or self.shut_out(endpoint, now, address=address)

    def hides(self, node: str, endpoint: str, now: float) -> bool:
        """Whether others must not be sent to a node, by its id: it is banned itself, or where it can be called."""
        return self.is_banned(node_name(node), now) or self.shut_out(endpoint, now)

    def is_ignored(self, address: str, now: float) -> bool:
        """Whether nothing that is posted from an address is listened to."""
        return self.is_banned(posts_name(address), now) or self.is_banned(address_name(address), now)

    def may_ban_outbound(self, outbound: int, now: float) -> bool:
        """Whether one more of ``outbound`` peers may be banned over consensus: at most half of them in an hour.

        If most of those we chose break the rules, we are more likely to be wrong than they are.
        """
        self._recent = [when for when in self._recent if now - when < _HOUR]
        if (len(self._recent) + 1) * 2 > max(outbound, 2):
            return False
        self._recent.append(now)
        return True

    def is_banned(self, name: str, now: float) -> bool:
        """Whether ``name`` is banned at present."""
        return max(end_of(self._own.get(name)), end_of(self._prices.get(name))) > now

    def ban_by_operator(self, name: str, *, seconds: int | None, now: float) -> Ban:
        """The operator's ban, for good where ``seconds`` is None; takes the place of an earlier one of the operator's.

        Raises:
            OverflowError: there are 1,000 already.
        """
        self._own = {ban.name: ban for ban in self._own.values() if end_of(ban) > now and ban.name != name}
        if len(self._own) >= MAX_OWN:
            raise OverflowError(f"there are {MAX_OWN} bans of yours already; lift some first")
        self._own[name] = Ban(name, None if seconds is None else now + seconds, "", own=True)
        return self._own[name]

    def unban(self, name: str, now: float) -> bool:
        """Lift a ban, whoever made it; whether there was one."""
        ends = [end_of(bans.pop(name, None)) for bans in (self._own, self._prices)]
        return max(ends) > now

    def standing(self, now: float) -> list[Ban]:
        """Every ban that has not ended."""
        return [ban for ban in (*self._own.values(), *self._prices.values()) if end_of(ban) > now]

    def listed(self, now: float) -> list[Ban]:
        """The same: the operator's first, then those that last longest."""
        return sorted(self.standing(now), key=lambda ban: (not ban.own, -end_of(ban), ban.name))

    def count(self, now: float) -> int:
        """How many have not ended."""
        return sum(end_of(ban) > now for bans in (self._own, self._prices) for ban in bans.values())

    def restore(self, bans: Iterable[Ban]) -> None:
        """Take up what was kept on disk; what was banned since stands."""
        for ban in bans:
            (self._own if ban.own else self._prices).setdefault(ban.name, ban)


def end_of(ban: Ban | None) -> float:
    """When a ban ends, in Unix seconds: infinity for one without an end, 0.0 where there is no ban."""
    if ban is None:
        return 0.0
    return float("inf") if ban.until is None else ban.until


class PostBans:
    """Bans of posts by the address they come from, since no node signs them."""

    def __init__(self, bans: Bans, clock: Clock, forwards: Callable[[str, float], bool]) -> None:
        """``forwards`` tells of an address and a Unix time whether a proxy forwards many clients from there."""
        self._bans = bans
        self._clock = clock
        self._forwards = forwards

    def ignores(self, client: str | None) -> bool:
        """Whether posts from ``client`` are refused: the address is banned, or its posts are, where those can be."""
        if client is None:
            return False
        now = self._clock.seconds()
        if self._can_be_banned(client):
            return self._bans.is_ignored(client, now)
        return self._bans.is_banned(address_name(client), now)

    def _can_be_banned(self, client: str) -> bool:
        """Whether the clients that post from an address are few enough to pay for each other.

        All clients behind a proxy that is not trusted post from its address, and the proxy is mostly on loopback.
        """
        address = parse_address(client)
        return address is not None and not address.is_loopback and not self._forwards(client, self._clock.seconds())

    def price_of_block(self, client: str | None, why: str) -> float:
        """Have an address pay for a block that breaks a rule: by a ban, or else by as many tokens as it can owe."""
        return 0.0 if self.ban(client, seconds=INVALID_SECONDS, why=why) else inf

    def ban(self, client: str | None, *, seconds: float, why: str) -> bool:
        """Ignore posts from an address for a while; False where those are never banned."""
        if client is None or not self._can_be_banned(client):
            return False
        self._bans.ban(posts_name(client), seconds=seconds, now=self._clock.seconds(), why=f"it posted: {why}")
        return True


class TakesPosts(Protocol):
    """An object with routes that take posts."""

    post_bans: PostBans


def ban_persistent(room: TakesPosts, client: str) -> None:
    """Ban the posts of a client that goes on with malformed ones."""
    room.post_bans.ban(client, seconds=PERSISTENT_BAN_SECONDS, why="malformed posts for a minute on end")
