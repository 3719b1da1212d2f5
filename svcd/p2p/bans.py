"""Bans for breaking the rules (docs/peers.md "Prices"), and bans by the operator.

:meth:`svcd.p2p.peers.Peers.ban` bans a peer, :class:`PostBans` the posts from an address, svcd/p2p/administration.py
what the operator names. svcd/p2p/service.py writes the bans to ``peers.json``: the operator's at once, others every
minute.

The name of a ban says what it covers: ``node:`` a node by its id, ``endpoint:`` one endpoint, ``address:`` all nodes
and clients at an address, and ``posts:`` the posts from an address. Of IPv6 the /64 counts as the address, for one
machine may choose within it; an address in which a translator (NAT64) embeds an IPv4 address counts as the latter.
Posts are not signed, so a ban of posts does not affect a node at the same address.

A ban lasts so many of the node's own seconds, which run evenly: nothing that happens to the computer's clock ends it or
makes it longer. It does not go on while the node is off, since only that clock could tell for how long.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from heapq import heapify, heappop, heappush
from ipaddress import IPv6Network, ip_network
from math import inf
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.errors import ProducerViolation, RuleViolation, StateViolation
from svcd.interfaces import Clock
from svcd.ip_addresses import Address, parse_address, prefix
from svcd.limits import MALFORMED_POSTS, ORPHANS, limit
from svcd.net.addresses import untranslated
from svcd.net.targets import Endpoint

MALFORMED_TOKENS: Final = limit(20.0, "good posts that a malformed one costs as much as", "posts", MALFORMED_POSTS)
"""Tokens that a malformed post draws from the sender's bucket, beside the cost of the request."""
FLOOD_BAN_SECONDS: Final = limit(600.0, "ban for a flood of malformed posts", "seconds", MALFORMED_POSTS)
"""How long the posts of an address that keeps sending malformed ones are refused."""
BANNED: Final = "this address is banned here for a while: it broke the rules"
INVALID_BAN_SECONDS: Final = limit(24 * 3_600.0, "ban for an invalid block", "seconds", ORPHANS)

MAX_OWN: Final = 1_000
KINDS: Final = ("node", "endpoint", "address", "posts")
_HOUR: Final = 3_600.0
_CAPACITY: Final = 10_000
_SPARE: Final = 64
_WHY_SIZE: Final = 200


@frozen
class Ban:
    """A ban of a node, an endpoint, an address, or the posts of an address."""

    name: str
    until: float | None
    """Seconds by the node's clock; None for a ban without an end."""
    why: str
    """The reason; "" if none was given."""
    own: bool
    """Whether the operator made the ban."""

    def moved(self, seconds: float) -> "Ban":
        """The same by a clock that is ahead by so many seconds."""
        return self if self.until is None else evolve(self, until=self.until + seconds)


def node_name(node_id: str) -> str:
    """The name of a ban of a node."""
    return f"node:{node_id}"


def endpoint_name(endpoint: str) -> str:
    """The name of a ban of an endpoint, in any form; raises BadTarget for other text."""
    return f"endpoint:{Endpoint(endpoint)}"


def address_name(address: str) -> str:
    """The name of a ban of an address; raises ValueError for other text."""
    return f"address:{_group(address)}"


def posts_name(address: str) -> str:
    """The name of a ban of posts from an address; raises ValueError for other text."""
    return f"posts:{_group(address)}"


@lru_cache(4_096)
def _group(text: str) -> str:
    address = _read(text)
    if address is not None:
        return prefix(address, v4=32, v6=64)
    network = ip_network(text)
    if isinstance(network, IPv6Network) and network.prefixlen == 64:
        return str(network)
    raise ValueError(f"{text!r} is neither an address nor a /64 of IPv6")


def _read(text: str) -> Address | None:
    """The address in ``text``, an IPv4 address in IPv6 as IPv4 (mapped, or made by a translator); None for none."""
    address = parse_address(text)
    return address and untranslated(address)


@lru_cache(4_096)
def address_in(endpoint: str) -> str:
    """The address in an endpoint, an IPv4 address in IPv6 as IPv4; "" for a name."""
    return str(_read(Endpoint(endpoint).host) or "")


@define
class Bans:
    """All bans. ``now`` is always the time by the node's clock, in seconds."""

    _automatic: dict[str, Ban] = field(factory=dict)
    _ends: list[tuple[float, str]] = field(factory=list)
    """A heap of the ends and names of the automatic bans, and of some that were replaced or lifted."""
    _own: dict[str, Ban] = field(factory=dict)
    _recent: list[float] = field(factory=list)

    def _order_ends(self) -> None:
        self._ends = [(end_of(ban), name) for name, ban in self._automatic.items()]
        heapify(self._ends)

    def ban(self, name: str, *, seconds: float, now: float, why: str = "") -> None:
        """Ban ``name``; the longer of two bans applies. The list is bounded: the first ban to end makes room."""
        until = now + seconds
        if until < end_of(self._automatic.get(name)):
            return
        self._automatic[name] = Ban(name, until, why[:_WHY_SIZE], own=False)
        heappush(self._ends, (until, name))
        while self._ends and (self._ends[0][0] <= now or len(self._automatic) > _CAPACITY):
            self._drop_first()
        if len(self._ends) > 2 * len(self._automatic) + _SPARE:
            self._order_ends()

    def _drop_first(self) -> None:
        """Drop the ban that ends first, or ended first, unless it was replaced or lifted."""
        until, name = heappop(self._ends)
        if end_of(self._automatic.get(name)) == until:
            del self._automatic[name]

    def ban_node(
        self, node_id: str, endpoint: str, *, address: str = "", seconds: float, now: float, why: str = ""
    ) -> None:
        """Ban a node and its endpoint, so that a new key does not evade the ban; with ``address`` all nodes there."""
        names = [node_name(node_id), endpoint_name(endpoint), *([address_name(address)] if address else [])]
        for name in names:
            self.ban(name, seconds=seconds, now=now, why=why)

    def is_endpoint_banned(self, endpoint: str, now: float, *, address: str = "") -> bool:
        """Whether an endpoint must not be called: the endpoint, its address, or the address of its name is banned."""
        at = [address_name(text) for text in (address_in(endpoint), address) if text]
        return any(self.is_banned(name, now) for name in [endpoint_name(endpoint), *at])

    def forbids(self, node_id: str, endpoint: str, now: float, *, address: str = "") -> bool:
        """Whether a node is banned: its id, its endpoint or its address."""
        return self.is_banned(node_name(node_id), now) or self.is_endpoint_banned(endpoint, now, address=address)

    def may_ban_outbound(self, outbound: int, now: float) -> bool:
        """Whether one more of ``outbound`` peers may be banned for breaking a rule: at most half of them in an hour.

        If most outbound peers break the rules, this node is more likely to be wrong than they are.
        """
        self._recent = [when for when in self._recent if now - when < _HOUR]
        if (len(self._recent) + 1) * 2 > max(outbound, 2):
            return False
        self._recent.append(now)
        return True

    def is_banned(self, name: str, now: float) -> bool:
        """Whether ``name`` is banned at present."""
        return max(end_of(self._own.get(name)), end_of(self._automatic.get(name))) > now

    def ban_by_operator(self, name: str, *, seconds: int | None, now: float) -> Ban:
        """Ban ``name`` for the operator, without an end if ``seconds`` is None; replaces an earlier such ban.

        Raises:
            OverflowError: there are 1,000 already.
        """
        self._own.pop(name, None)
        if len(self._own) >= MAX_OWN:
            self._own = {ban.name: ban for ban in self._own.values() if end_of(ban) > now}
        if len(self._own) >= MAX_OWN:
            raise OverflowError(f"you have {MAX_OWN} bans already; lift some first")
        self._own[name] = Ban(name, None if seconds is None else now + seconds, "", own=True)
        return self._own[name]

    def unban(self, name: str, now: float) -> bool:
        """Lift all bans of ``name``; False if there was none."""
        ends = [end_of(bans.pop(name, None)) for bans in (self._own, self._automatic)]
        return max(ends) > now

    def active(self, now: float) -> list[Ban]:
        """All bans that have not ended."""
        return [ban for ban in (*self._own.values(), *self._automatic.values()) if end_of(ban) > now]

    def listed(self, now: float) -> list[Ban]:
        """The same, the operator's bans first, then those that last longest."""
        return sorted(self.active(now), key=lambda ban: (not ban.own, -end_of(ban), ban.name))

    def count(self, now: float) -> int:
        """How many bans have not ended."""
        return sum(end_of(ban) > now for bans in (self._own, self._automatic) for ban in bans.values())

    def restore(self, bans: Iterable[Ban]) -> None:
        """Add bans of an earlier run; newer ones are kept."""
        for ban in bans:
            (self._own if ban.own else self._automatic).setdefault(ban.name, ban)
        self._order_ends()


def end_of(ban: Ban | None) -> float:
    """When a ban ends, in the node's seconds: infinity for a ban without an end, 0.0 for None."""
    if ban is None:
        return 0.0
    return float("inf") if ban.until is None else ban.until


class PostBans:
    """Bans of posts, by the address that they come from, since they are not signed."""

    def __init__(self, bans: Bans, clock: Clock, forwards: Callable[[str, float], bool]) -> None:
        """``forwards`` says for an address and a Unix time whether a proxy forwards many clients from there."""
        self._bans = bans
        self._clock = clock
        self._forwards = forwards

    def refuses(self, client: str | None) -> bool:
        """Whether posts from ``client`` are answered with 403: its address is banned, or its posts are.

        A ban of posts has no effect on a proxy or on loopback, see :meth:`_can_be_banned`.
        """
        if client is None:
            return False
        now = self._clock.seconds()
        posts_banned = self._can_be_banned(client) and self._bans.is_banned(posts_name(client), now)
        return posts_banned or self._bans.is_banned(address_name(client), now)

    def _can_be_banned(self, client: str) -> bool:
        """Whether posts from an address may be banned.

        All clients of an untrusted proxy post from its address, which is mostly on loopback.
        """
        address = parse_address(client)
        return address is not None and not address.is_loopback and not self._forwards(client, self._clock.seconds())

    def penalise_invalid_block(self, client: str | None, violation: RuleViolation) -> float:
        """Ban the posts of a client that posted an invalid block; gives the tokens to charge.

        Infinity, as many as a client can owe, if its posts may not be banned. A violation that only execution reveals
        has no penalty: the client may pass blocks on before it executes them. One of the list of producers costs as
        much as a malformed post: this node may be the one that lacks a change of the list.
        """
        if isinstance(violation, StateViolation):
            return 0.0
        if isinstance(violation, ProducerViolation):
            return MALFORMED_TOKENS
        return 0.0 if self.ban(client, seconds=INVALID_BAN_SECONDS, why=violation.detail) else inf

    def ban(self, client: str | None, *, seconds: float, why: str) -> bool:
        """Ban the posts from an address; False if they may not be banned."""
        if client is None or not self._can_be_banned(client):
            return False
        self._bans.ban(posts_name(client), seconds=seconds, now=self._clock.seconds(), why=f"it posted: {why}")
        return True
