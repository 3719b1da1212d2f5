"""Prices for what peers do wrong (docs/threats.md): a key or an address that nobody here listens to for a while."""

from typing import Final
from urllib.parse import urlsplit

from attrs import define, field

from svcd.web.clients import client_group, parse_address

INVALID_SECONDS: Final = 24 * 3_600.0
MALFORMED_SECONDS: Final = 600.0
_HOUR: Final = 3_600.0
_CAPACITY: Final = 10_000


def key_name(node_key: bytes) -> str:
    """How a node's key is called in the list."""
    return f"key:{node_key.hex()}"


def address_name(client: str) -> str:
    """How a client group is called in the list: an IPv4 address, or an IPv6 network."""
    return f"address:{client}"


def endpoint_name(endpoint: str) -> str:
    """How an endpoint is called in the list."""
    return f"endpoint:{endpoint}"


def host_name(endpoint: str) -> str:
    """How the host of an endpoint is called in the list: by the client group of its address if it shows one."""
    host = urlsplit(endpoint).hostname or ""
    address = parse_address(host)
    return f"host:{host}" if address is None else address_name(client_group(address))


@define
class Bans:
    """Who is banned until when (Unix seconds); the operator's own bans have no end."""

    _until: dict[str, float] = field(factory=dict)
    _operators: set[str] = field(factory=set)
    _recent: list[float] = field(factory=list)

    def ban(self, name: str, *, seconds: float, now: float) -> None:
        """Ban ``name``; the longer of two bans stands, and the list is bounded: the first to end goes first."""
        self._until[name] = max(self._until.get(name, 0.0), now + seconds)
        if len(self._until) > _CAPACITY:
            self._until = {other: until for other, until in self._until.items() if until > now}
        while len(self._until) > _CAPACITY:
            del self._until[min(self._until, key=self._until.__getitem__)]

    def ban_node(self, node_key: bytes, endpoint: str, *, whole_host: bool, seconds: float, now: float) -> None:
        """Ban a node at its endpoint, so that another key there is no way out; with ``whole_host`` on every port."""
        for name in [key_name(node_key), endpoint_name(endpoint)] + [host_name(endpoint)] * whole_host:
            self.ban(name, seconds=seconds, now=now)

    def shut_out(self, endpoint: str, now: float) -> bool:
        """Whether the endpoint, or its host, is banned."""
        return any(self.is_banned(name, now) for name in (endpoint_name(endpoint), host_name(endpoint)))

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
        return name in self._operators or self._until.get(name, 0.0) > now

    def ban_for_good(self, name: str) -> None:
        """The operator's ban."""
        self._operators.add(name)

    def unban(self, name: str) -> bool:
        """Lift a ban; whether there was one."""
        known = name in self._operators or name in self._until
        self._operators.discard(name)
        self._until.pop(name, None)
        return known

    def listed(self, now: float) -> dict[str, float | None]:
        """Every ban with its end, None for the operator's."""
        timed: dict[str, float | None] = {name: until for name, until in self._until.items() if until > now}
        return timed | dict.fromkeys(self._operators)

    def until(self) -> dict[str, float]:
        """Every ban that ends, with its end."""
        return dict(self._until)

    def for_good(self) -> list[str]:
        """The operator's bans."""
        return sorted(self._operators)

    def restore(self, until: dict[str, float], operators: list[str]) -> None:
        """Take up what was kept on disk."""
        self._until.update(until)
        self._operators.update(operators)
