"""The address book: known endpoints, safe from a flood of hints (docs/threats.md "Eclipse").

A hash with a secret key chooses the bucket of a hint from the network groups of its address and its source, so that no
sender can aim at the places of others. Only endpoints that this node has called and verified are handed out. Endpoints
are drawn by network group: many endpoints in few groups get no more than the share of these groups.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_network
from itertools import islice
from typing import Final

from attrs import define, evolve, field

from svcd.ip_addresses import prefix
from svcd.limits import limit
from svcd.net.addresses import untranslated
from svcd.net.targets import Endpoint

NEW_BUCKETS: Final = 64
_BOOK_FLOOD: Final = "Filling the book of a node with endpoints of the attacker"
SOURCE_BUCKETS: Final = limit(8, "buckets for the hints of one part of the network", "buckets", _BOOK_FLOOD)
"""Hint buckets that the hints of one source can fill."""
TRIED_BUCKETS: Final = 16
BUCKET_SIZE: Final = 16
HINTS_PER_HOUR: Final = limit(32, "hints from one part of the network in an hour", "hints", _BOOK_FLOOD)
"""From one source."""
OPERATOR: Final = "operator"
"""The source of endpoints that the operator has configured; no network group has this name."""
ANCHOR: Final = "anchor"
"""The source of the anchors of the last run; no network group has this name either."""
FIRST_BACK_OFF: Final = 5.0
MAX_BACK_OFF: Final = 1_800.0
FAMILIAR_BACK_OFF: Final = 15.0
POSTPONED_SECONDS: Final = 300.0
"""About the time between two of the calls that one address gets (svcd.p2p.call_budget)."""
_HOUR: Final = 3_600.0
_FAMILIAR_SECONDS: Final = 86_400.0
_STALE_SECONDS: Final = 30 * 86_400.0
_HOPELESS_FAILURES: Final = 8
_MAX_FAILURES: Final = 32
_GONE_SECONDS: Final = 900.0
_LOST_FAILURES: Final = 3
"""Failed calls in a row after which a verified endpoint gives its place to one that answered."""


@lru_cache(4_096)
def group_of(host: str) -> str:
    """The network group of a host, which may belong to one party: a /16 of IPv4, a /32 of IPv6, a registered domain.

    ``host`` is an address, a name, or the /64 of an IPv6 address. An IPv6 address in which a translator (NAT64) embeds
    an IPv4 address counts as that IPv4 address.
    """
    try:
        network = ip_network(host.strip("[]"))
    except ValueError:
        return "name:" + ".".join(host.lower().split(".")[-2:])
    address = untranslated(network.network_address)
    return prefix(address, v4=16, v6=32)


@lru_cache(4_096)
def group_of_endpoint(endpoint: str) -> str:
    """The group of the host of an endpoint."""
    return group_of(Endpoint(endpoint).host)


@define(kw_only=True, eq=False)
class AddressEntry:
    """One known endpoint; times are the node's seconds."""

    endpoint: Endpoint
    source: str
    """The network group of the node that named it, or OPERATOR or ANCHOR."""
    node_id: str = ""
    """The node that answered our call; "" while none has."""
    height: int = 0
    last_seen: float = 0.0
    failures: int = 0
    next_try: float = 0.0
    verified: bool = False
    group: str = ""
    """The network group in which it answered; for a name, that of the address behind it; "" while unknown."""
    address: str = ""
    """The IP address at which it answered last; "" if it has not."""

    def moved(self, seconds: float) -> "AddressEntry":
        """The same by a clock that is ahead by so many seconds."""
        if abs(seconds) < 1:
            return self
        last_seen, next_try = (moment + seconds if moment else 0.0 for moment in (self.last_seen, self.next_try))
        return evolve(self, last_seen=last_seen, next_try=next_try)

    def by_now(self, now: float) -> "AddressEntry":
        """The same without times that a clock which was ahead has written: calls would wait for them."""
        if self.last_seen <= now and self.next_try <= now + MAX_BACK_OFF:
            return self
        return evolve(self, last_seen=min(self.last_seen, now), next_try=min(self.next_try, now + MAX_BACK_OFF))

    def best_group(self) -> str:
        """Its network group; for a name that has not been called yet, its domain."""
        return self.group or group_of_endpoint(self.endpoint)

    def is_hopeless(self, now: float) -> bool:
        """Whether eight calls in a row have failed, and it has not answered for a quarter of an hour."""
        return self.failures >= _HOPELESS_FAILURES and now - self.last_seen >= _GONE_SECONDS


@define
class AddressBook:
    """At most 1,024 hints and 256 verified endpoints; ``secret`` is 32 secret random bytes."""

    secret: bytes
    random: Callable[[], float]
    """A number from 0 to 1, for jitter and choices."""
    _new: dict[int, list[AddressEntry]] = field(factory=dict)
    _tried: dict[int, list[AddressEntry]] = field(factory=dict)
    _index: dict[str, AddressEntry] = field(factory=dict)
    _allowance: dict[str, tuple[float, int]] = field(factory=dict)
    _own: dict[str, float] = field(factory=dict)
    """The endpoints of this node itself, and until when (the node's seconds) they are remembered."""
    _tried_collisions: dict[Endpoint, Endpoint] = field(factory=dict)
    """By verified endpoint, the endpoint that gets its place if it does not answer."""

    def __len__(self) -> int:
        return len(self._index)

    def get(self, endpoint: str) -> AddressEntry | None:
        """What is known of an endpoint."""
        return self._index.get(endpoint)

    def entries(self) -> list[AddressEntry]:
        """Everything, verified or not."""
        return list(self._index.values())

    def hint(self, endpoint: Endpoint, *, source: str, now: float) -> bool:
        """Note an endpoint that ``source`` named: a network group, OPERATOR or ANCHOR; returns whether there is room.

        A hint never changes a known entry, and each network group may give 32 hints an hour.
        """
        trusted = source in (OPERATOR, ANCHOR)
        if endpoint in self._index or self.is_own(endpoint, now):
            return False
        if not trusted and not self._may_hint(source, now):
            return False
        return self._add_hint(AddressEntry(endpoint=endpoint, source=source), now, trusted=trusted)

    def _add_hint(self, entry: AddressEntry, now: float, *, trusted: bool = False) -> bool:
        """Put a new entry into the bucket of its hint; False if there is no room for it."""
        bucket = self._new_bucket(entry.endpoint, entry.source)
        if len(bucket) >= BUCKET_SIZE and not self._make_room(bucket, now, trusted=trusted):
            return False
        bucket.append(entry)
        self._index[entry.endpoint] = entry
        return True

    def _may_hint(self, source: str, now: float) -> bool:
        since, count = self._allowance.get(source, (now, 0))
        if now - since >= _HOUR:
            since, count = now, 0
        if count >= HINTS_PER_HOUR:
            return False
        if source not in self._allowance and len(self._allowance) >= NEW_BUCKETS * BUCKET_SIZE:
            self._allowance = {key: value for key, value in self._allowance.items() if now - value[0] < _HOUR}
            if len(self._allowance) >= NEW_BUCKETS * BUCKET_SIZE:
                return False
        self._allowance[source] = (since, count + 1)
        return True

    def _new_bucket(self, endpoint: str, source: str) -> list[AddressEntry]:
        """The bucket of a hint; the hints of one source can fill a few buckets only."""
        share = self._bucket_number("share", group_of_endpoint(endpoint) + source, SOURCE_BUCKETS)
        return self._new.setdefault(self._bucket_number("new", f"{share} {source}", NEW_BUCKETS), [])

    def _make_room(self, bucket: list[AddressEntry], now: float, *, trusted: bool) -> bool:
        """Drop the worst entry of a full bucket, but no good one: a flood must not push out good hints."""
        worst = max(bucket, key=lambda entry: entry.failures)
        stale = worst.last_seen and now - worst.last_seen >= _STALE_SECONDS
        if not worst.failures and not stale and not trusted:
            return False
        bucket.remove(worst)
        del self._index[worst.endpoint]
        return True

    def succeeded(
        self, endpoint: Endpoint, *, node_id: str, height: int, now: float, group: str = "", address: str = ""
    ) -> AddressEntry:
        """Note that ``node_id`` answered at ``endpoint`` and named it as its own: the newest verification wins.

        ``group`` is the network group of the ``address`` that answered.
        """
        for other in self._index.values():
            if other.node_id == node_id and other.endpoint != endpoint:
                other.verified, other.node_id = False, ""
        entry = self._index.get(endpoint) or AddressEntry(endpoint=endpoint, source="self")
        entry.node_id, entry.height, entry.last_seen = node_id, height, now
        entry.failures, entry.next_try, entry.group, entry.address = 0, 0.0, group, address
        self._tried_collisions.pop(endpoint, None)
        if not entry.verified:
            self._promote(entry)
        return entry

    def _promote(self, entry: AddressEntry) -> None:
        """Move an entry that answered to the verified entries, or let it wait for a place there.

        In a full bucket an entry of the network group with most entries gives way.
        """
        group = entry.best_group()
        bucket = self._tried.setdefault(self._bucket_number("tried", group, TRIED_BUCKETS), [])
        if entry not in bucket:
            if len(bucket) >= BUCKET_SIZE:
                counts = Counter(other.best_group() for other in [*bucket, entry])
                leaving = min(bucket, key=lambda other: (other.verified, -counts[other.best_group()], other.last_seen))
                crowded = counts[leaving.best_group()] > counts[group]
                if leaving.verified and not crowded:
                    # A party with many endpoints must not push out those that still answer.
                    self._tried_collisions.setdefault(leaving.endpoint, entry.endpoint)
                    entry.verified = False
                    if entry.endpoint not in self._index:
                        self._add_hint(entry, entry.last_seen)
                    return
                self.forget(leaving.endpoint)
                if leaving.verified:
                    leaving.verified = False
                    self._add_hint(leaving, leaving.last_seen)
            self._remove_from(self._tried, entry)
            self._remove_from(self._new, entry)
            bucket.append(entry)
        entry.verified = True
        self._index[entry.endpoint] = entry

    def next_collision(self, now: float, *, exclude: Collection[str]) -> Endpoint | None:
        """A verified endpoint to test because another waits for its place; None if none is due."""
        due = [endpoint for endpoint in self._tried_collisions if self._index[endpoint].next_try <= now]
        return next((endpoint for endpoint in due if endpoint not in exclude), None)

    def _give_way(self, entry: AddressEntry) -> None:
        """Give the place of a verified entry that does not answer to the one that waits for it, if still known."""
        waiting = self._tried_collisions.pop(entry.endpoint, None)
        successor = None if waiting is None else self._index.get(waiting)
        if successor is not None and not successor.verified and not successor.failures:
            self.forget(entry.endpoint)
            self._promote(successor)

    def failed(self, endpoint: str, now: float, *, retry_after: float = 0.0) -> None:
        """Note a failed call: the next one waits from 5 s up to 30 min, twice as long each time, with jitter.

        It waits at least ``retry_after`` seconds, as the node there requested. An endpoint that answered within the
        last day is called every 15 s: a network that was partitioned must heal quickly, and such calls cost little.
        """
        entry = self._index.get(endpoint)
        if entry is None:
            return
        familiar = entry.last_seen and now - entry.last_seen < _FAMILIAR_SECONDS
        wait = min(FIRST_BACK_OFF * 2**entry.failures, FAMILIAR_BACK_OFF if familiar else MAX_BACK_OFF)
        entry.failures = min(entry.failures + 1, _MAX_FAILURES)
        entry.next_try = now + max(wait * (0.75 + 0.5 * self.random()), retry_after)
        if entry.failures >= _HOPELESS_FAILURES:
            entry.verified = False
        if entry.failures >= _LOST_FAILURES:
            self._give_way(entry)

    def postpone(self, endpoint: str, now: float) -> None:
        """Let an endpoint that could not be called wait for its next call, about as long as such calls are apart."""
        entry = self._index.get(endpoint)
        if entry is not None:
            entry.next_try = now + POSTPONED_SECONDS * (0.75 + 0.5 * self.random())

    def restore(self, entry: AddressEntry) -> None:
        """Take an entry from disk, in the bucket that it had."""
        if entry.endpoint in self._index:
            return
        if entry.verified:
            self._promote(entry)
        else:
            self._add_hint(entry, entry.last_seen)

    def try_again(self, endpoint: str) -> None:
        """Let an endpoint be called at once, however often calls have failed."""
        entry = self._index.get(endpoint)
        if entry is not None:
            entry.failures, entry.next_try = 0, 0.0

    def forget(self, endpoint: Endpoint) -> None:
        """Remove an endpoint."""
        entry = self._index.pop(endpoint, None)
        self._tried_collisions.pop(endpoint, None)
        if entry is not None:
            self._remove_from(self._new, entry)
            self._remove_from(self._tried, entry)

    def remember_own(self, endpoint: Endpoint, now: float) -> None:
        """Remember for a day that an endpoint leads to this node itself."""
        self.forget(endpoint)
        self._own[endpoint] = now + 24 * _HOUR
        self._own = {known: until for known, until in self._own.items() if until > now}

    def is_own(self, endpoint: str, now: float) -> bool:
        """Whether an endpoint is known to lead to this node itself."""
        return self._own.get(endpoint, 0.0) > now

    def candidates(self, now: float, *, exclude: Collection[str], tried: bool) -> list[AddressEntry]:
        """Endpoints that are due for a call: verified ones (``tried``), or hints."""
        buckets = self._tried if tried else self._new
        return [
            entry
            for bucket in buckets.values()
            for entry in bucket
            if entry.next_try <= now and entry.endpoint not in exclude
        ]

    def verified(self) -> list[AddressEntry]:
        """The verified entries."""
        return [entry for entry in self._index.values() if entry.verified]

    def sample(self, limit: int, unless: Callable[[AddressEntry], bool] = lambda _: False) -> list[AddressEntry]:
        """At most ``limit`` verified entries, drawn by network group among those that are not ``unless``."""
        drawn = draw_by_group(self.verified(), self.random)
        return list(islice((entry for entry in drawn if not unless(entry)), limit))

    def _bucket_number(self, table: str, text: str, buckets: int) -> int:
        digest = sha256(self.secret + table.encode() + b"\0" + text.encode()).digest()
        return int.from_bytes(digest[:8], "big") % buckets

    @staticmethod
    def _remove_from(table: dict[int, list[AddressEntry]], entry: AddressEntry) -> None:
        for bucket in table.values():
            if entry in bucket:
                bucket.remove(entry)


def draw_by_group(entries: Collection[AddressEntry], random: Callable[[], float]) -> list[AddressEntry]:
    """The entries in a random order, in rounds with one of each network group that has any left."""
    if not entries:
        # So it is each second, for a node that has fewer peers than it wants and knows no others.
        return []
    drawn: Counter[str] = Counter()
    order: list[tuple[int, float, AddressEntry]] = []
    for entry in sorted(entries, key=lambda _: random()):
        group = entry.best_group()
        order.append((drawn[group], random(), entry))
        drawn[group] += 1
    return [entry for *_, entry in sorted(order, key=lambda each: each[:2])]


def choose_outbound(
    book: AddressBook,
    count: int,
    *,
    now: float,
    busy: Collection[str],
    groups: set[str] | None,
    preferred: Sequence[str],
) -> list[Endpoint]:
    """At most ``count`` endpoints to connect to as outbound peers, verified ones first, drawn by network group.

    ``busy`` are endpoints of peers and of handshakes under way; ``groups`` the network groups with an outbound peer, to
    which those of the chosen are added, or None if peers need not be diverse; ``preferred`` endpoints come before
    others.
    """
    chosen: list[Endpoint] = []
    for tried in (True, False):
        drawn = draw_by_group(book.candidates(now, exclude=busy, tried=tried), book.random)
        for entry in sorted(drawn, key=lambda entry: entry.endpoint not in preferred):
            if len(chosen) < count and take_group(entry.best_group(), groups):
                chosen.append(entry.endpoint)
    return chosen


def take_group(group: str, groups: set[str] | None) -> bool:
    """Add a network group to ``groups``; False if it is there already. None takes any."""
    if groups is None:
        return True
    if group in groups:
        return False
    groups.add(group)
    return True


def choose_feeler(book: AddressBook, *, now: float, busy: Collection[str]) -> Endpoint | None:
    """An endpoint to test: a random hint, or a verified one whose place another waits for; None if none is due.

    If there are both kinds, each gets half of the calls, because strangers can cause either.
    """
    contested = book.next_collision(now, exclude=busy)
    if contested is not None and book.random() < 0.5:
        return contested
    hints = draw_by_group(book.candidates(now, exclude=busy, tried=False), book.random)
    return hints[0].endpoint if hints else contested
