"""Known endpoints: an address book that a flood of hints cannot take over (docs/threats.md "Eclipse").

Hints live in buckets that a secret-keyed hash of the group of the address and the group of the hint's source chooses,
so that no sender can aim at the places of others. Only endpoints that this node has called and verified are handed out.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_network
from itertools import islice
from typing import Final

from attrs import define, field

from svcd.net.addresses import untranslated
from svcd.net.endpoint import Endpoint

NEW_BUCKETS: Final = 64
SOURCE_BUCKETS: Final = 8
"""Of the buckets for hints, those that the hints of one source can be in."""
TRIED_BUCKETS: Final = 16
BUCKET_SIZE: Final = 16
HINTS_PER_HOUR: Final = 32
FIRST_BACK_OFF: Final = 5.0
LONGEST_BACK_OFF: Final = 1_800.0
FAMILIAR_BACK_OFF: Final = 15.0
_HOUR: Final = 3_600.0
_FAMILIAR_SECONDS: Final = 86_400.0
_STALE_SECONDS: Final = 30 * 86_400.0
_HOPELESS_FAILURES: Final = 8
_GONE_SECONDS: Final = 900.0
_LOST_FAILURES: Final = 3
"""Calls in a row after which a verified endpoint gives its place to one that answered."""


@lru_cache(4_096)
def group_of(host: str) -> str:
    """The part of the network that one party may well own: a /16 of IPv4, a /32 of IPv6, a registered domain.

    ``host`` is an address, a name, or the client group of an IPv6 address. An IPv6 address that a translator (NAT64)
    makes of an IPv4 address is that IPv4 address.
    """
    try:
        network = ip_network(host.strip("[]"))
    except ValueError:
        return "name:" + ".".join(host.lower().split(".")[-2:])
    address = untranslated(network.network_address)
    return str(ip_network(f"{address}/{16 if address.version == 4 else 32}", strict=False))


@lru_cache(4_096)
def group_of_endpoint(endpoint: str) -> str:
    """The group of the host of an endpoint."""
    return group_of(Endpoint(endpoint).host)


@define(kw_only=True, eq=False)
class Entry:
    """What is known of one endpoint; times are Unix seconds."""

    endpoint: Endpoint
    source: str
    """The group of whoever told us."""
    node_id: str = ""
    """The node that answered when we called; "" while none has."""
    height: int = 0
    last_seen: float = 0.0
    failures: int = 0
    next_try: float = 0.0
    verified: bool = False
    group: str = ""
    """The part of the network in which it answered: of a name, that of the address behind it; "" while unknown."""

    def part(self) -> str:
        """The part of the network that it is in, as far as that is known: for a name that nobody has called, itself."""
        return self.group or group_of_endpoint(self.endpoint)

    def is_hopeless(self, now: float) -> bool:
        """Whether it did not answer eight times, nor within the last quarter of an hour: nobody is there, it seems."""
        return self.failures >= _HOPELESS_FAILURES and now - self.last_seen >= _GONE_SECONDS


@define
class AddressBook:
    """At most 1,024 hints and 256 verified endpoints; ``secret`` is 32 random bytes that nobody else knows."""

    secret: bytes
    random: Callable[[], float]
    """A number from 0 to 1, for jitter and choices."""
    _new: dict[int, list[Entry]] = field(factory=dict)
    _tried: dict[int, list[Entry]] = field(factory=dict)
    _index: dict[str, Entry] = field(factory=dict)
    _allowance: dict[str, tuple[float, int]] = field(factory=dict)
    _ours: dict[str, float] = field(factory=dict)
    _contests: dict[Endpoint, Endpoint] = field(factory=dict)
    """By verified endpoint, that which is to have its place if it does not answer."""

    def __len__(self) -> int:
        return len(self._index)

    def get(self, endpoint: str) -> Entry | None:
        """What is known of an endpoint."""
        return self._index.get(endpoint)

    def entries(self) -> Iterator[Entry]:
        """Everything, verified or not."""
        return iter(list(self._index.values()))

    def hint(self, endpoint: Endpoint, *, source: str, now: float, trusted: bool = False) -> bool:
        """Note an endpoint that ``source`` (a group) told us of; False if there was no room for it.

        A hint never changes what is known already, and one source is heard 32 times an hour, unless it is ``trusted``:
        the operator's configuration.
        """
        if endpoint in self._index or self.is_ours(endpoint, now):
            return False
        if not trusted and not self._may_hint(source, now):
            return False
        bucket = self._new_bucket(endpoint, source)
        if len(bucket) >= BUCKET_SIZE and not self._make_room(bucket, now, trusted=trusted):
            return False
        entry = Entry(endpoint=endpoint, source=source)
        bucket.append(entry)
        self._index[endpoint] = entry
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

    def _new_bucket(self, endpoint: str, source: str) -> list[Entry]:
        """Where a hint belongs: a part of the network that hints at everything can fill a few buckets only."""
        share = self._place("share", group_of_endpoint(endpoint) + source, SOURCE_BUCKETS)
        return self._new.setdefault(self._place("new", f"{share} {source}", NEW_BUCKETS), [])

    def _make_room(self, bucket: list[Entry], now: float, *, trusted: bool) -> bool:
        """Drop the worst of a full bucket, if it is bad at all: a flood must not push out good hints."""
        worst = max(bucket, key=lambda entry: entry.failures)
        stale = worst.last_seen and now - worst.last_seen >= _STALE_SECONDS
        if not worst.failures and not stale and not trusted:
            return False
        bucket.remove(worst)
        del self._index[worst.endpoint]
        return True

    def succeeded(self, endpoint: Endpoint, *, node_id: str, height: int, now: float, group: str = "") -> Entry:
        """We called ``endpoint`` and ``node_id`` answered, naming it as its own: the newest verification wins.

        ``group`` is that of the address which answered.
        """
        for other in self._index.values():
            if other.node_id == node_id and other.endpoint != endpoint:
                other.verified, other.node_id = False, ""
        entry = self._index.get(endpoint) or Entry(endpoint=endpoint, source="self")
        entry.node_id, entry.height, entry.last_seen = node_id, height, now
        entry.failures, entry.next_try, entry.group = 0, 0.0, group
        self._contests.pop(endpoint, None)
        if not entry.verified:
            self._promote(entry)
        return entry

    def _promote(self, entry: Entry) -> None:
        """Give an entry that answered a place among the verified, or make it wait until one is seen to be free."""
        bucket = self._tried.setdefault(self._place("tried", entry.part(), TRIED_BUCKETS), [])
        if entry not in bucket:
            if len(bucket) >= BUCKET_SIZE:
                oldest = min(bucket, key=lambda other: (other.verified, other.last_seen))
                if oldest.verified:
                    # Whoever has many endpoints must not push out those that still answer.
                    self._contests.setdefault(oldest.endpoint, entry.endpoint)
                    self._put_among_hints(entry)
                    return
                self.forget(oldest.endpoint)
            self._remove_from(self._tried, entry)
            self._remove_from(self._new, entry)
            bucket.append(entry)
        entry.verified = True
        self._index[entry.endpoint] = entry

    def _put_among_hints(self, entry: Entry) -> None:
        entry.verified = False
        if entry.endpoint not in self._index:
            bucket = self._new_bucket(entry.endpoint, entry.source)
            if len(bucket) < BUCKET_SIZE or self._make_room(bucket, entry.last_seen, trusted=False):
                bucket.append(entry)
                self._index[entry.endpoint] = entry

    def contested(self, now: float, *, exclude: Collection[str]) -> Endpoint | None:
        """A verified endpoint to call because another wants its place; None if none is due."""
        due = [endpoint for endpoint in self._contests if self._index[endpoint].next_try <= now]
        return next((endpoint for endpoint in due if endpoint not in exclude), None)

    def _settle(self, entry: Entry) -> None:
        """A verified one does not answer any more: whoever waits for its place, and is still known, gets it."""
        waiting = self._contests.pop(entry.endpoint, None)
        successor = None if waiting is None else self._index.get(waiting)
        if successor is not None and not successor.verified and not successor.failures:
            self.forget(entry.endpoint)
            self._promote(successor)

    def failed(self, endpoint: str, now: float, *, rest: float = 0.0) -> None:
        """We called and nobody answered as we hoped: wait longer each time, from 5 s to 30 min, with jitter.

        Whoever answers there wants to be left alone for ``rest`` seconds at least.
        One that answered within the last day is tried every few seconds: a network that was cut in two must find
        together again at once, and those few cost little.
        """
        entry = self._index.get(endpoint)
        if entry is None:
            return
        familiar = entry.last_seen and now - entry.last_seen < _FAMILIAR_SECONDS
        wait = min(FIRST_BACK_OFF * 2**entry.failures, FAMILIAR_BACK_OFF if familiar else LONGEST_BACK_OFF)
        entry.failures = min(entry.failures + 1, 32)
        entry.next_try = now + max(wait * (0.75 + 0.5 * self.random()), rest)
        if entry.failures >= _HOPELESS_FAILURES:
            entry.verified = False
        if entry.failures >= _LOST_FAILURES:
            self._settle(entry)

    def restore(self, entry: Entry) -> None:
        """Take up an entry that was kept on disk, in the place that it had."""
        if entry.endpoint in self._index:
            return
        if entry.verified:
            self._promote(entry)
            return
        bucket = self._new_bucket(entry.endpoint, entry.source)
        if len(bucket) < BUCKET_SIZE:
            bucket.append(entry)
            self._index[entry.endpoint] = entry

    def try_again(self, endpoint: str) -> None:
        """Let an endpoint be called now, however often it failed."""
        entry = self._index.get(endpoint)
        if entry is not None:
            entry.failures, entry.next_try = 0, 0.0

    def forget(self, endpoint: Endpoint) -> None:
        """Drop an endpoint."""
        entry = self._index.pop(endpoint, None)
        self._contests.pop(endpoint, None)
        if entry is not None:
            self._remove_from(self._new, entry)
            self._remove_from(self._tried, entry)

    def is_mine(self, endpoint: Endpoint, now: float) -> None:
        """The endpoint turned out to be our own: remember that for a day."""
        self.forget(endpoint)
        self._ours[endpoint] = now + 24 * _HOUR
        self._ours = {known: until for known, until in self._ours.items() if until > now}

    def is_ours(self, endpoint: str, now: float) -> bool:
        """Whether the endpoint is known to be our own."""
        return self._ours.get(endpoint, 0.0) > now

    def candidates(self, now: float, *, exclude: Collection[str], tried: bool) -> list[Entry]:
        """Endpoints that may be called now: verified before (``tried``), or hints only."""
        buckets = self._tried if tried else self._new
        entries = [entry for bucket in buckets.values() for entry in bucket]
        return [entry for entry in entries if entry.next_try <= now and entry.endpoint not in exclude]

    def verified(self) -> list[Entry]:
        """Those that we called and that answered."""
        return [entry for entry in self._index.values() if entry.verified]

    def sample(self, limit: int, unless: Callable[[Entry], bool] = lambda _: False) -> list[Entry]:
        """At most ``limit`` verified entries, chosen at random among those that are not ``unless``."""
        shuffled = sorted(self.verified(), key=lambda _: self.random())
        return list(islice((entry for entry in shuffled if not unless(entry)), limit))

    def _place(self, table: str, text: str, buckets: int) -> int:
        digest = sha256(self.secret + table.encode() + b"\0" + text.encode()).digest()
        return int.from_bytes(digest[:8], "big") % buckets

    @staticmethod
    def _remove_from(table: dict[int, list[Entry]], entry: Entry) -> None:
        for bucket in table.values():
            if entry in bucket:
                bucket.remove(entry)


def choose(
    book: AddressBook, count: int, *, now: float, busy: Collection[str], groups: set[str] | None, first: Sequence[str]
) -> list[Endpoint]:
    """At most ``count`` endpoints to greet as peers of our choice.

    ``busy`` are those that are peers or being greeted; ``groups`` the parts of the network that we have a peer in,
    which is added to, or None if that does not matter; ``first`` those that come before all others of their kind.
    """
    chosen: list[Endpoint] = []
    for tried in (True, False):
        candidates = book.candidates(now, exclude=busy, tried=tried)
        for entry in sorted(candidates, key=lambda entry: (entry.endpoint not in first, book.random())):
            if len(chosen) < count and is_welcome(entry.part(), groups):
                chosen.append(entry.endpoint)
    return chosen


def is_welcome(group: str, groups: set[str] | None) -> bool:
    """Whether no peer is in this part of the network yet; if so, one is from now on."""
    if groups is None:
        return True
    if group in groups:
        return False
    groups.add(group)
    return True


def pick_to_try(book: AddressBook, *, now: float, busy: Collection[str]) -> Endpoint | None:
    """One endpoint that is a hint only, by chance, or one whose place another wants; None if none is due.

    Each gets half of the calls where there are both, for strangers can bring about either.
    """
    contested = book.contested(now, exclude=busy)
    if contested is not None and book.random() < 0.5:
        return contested
    hints = book.candidates(now, exclude=busy, tried=False)
    return hints[int(book.random() * len(hints)) % len(hints)].endpoint if hints else contested
