"""Token buckets: how often one client may ask, with bounded memory and without a clock of their own."""

from collections.abc import Mapping
from math import inf
from operator import itemgetter
from typing import Final

from attrs import field, frozen
from attrs.validators import ge

MAX_CLIENTS: Final = 20_000
"""How many clients one bucket remembers at once."""
PERSISTENT_SECONDS: Final = 60.0
"""For how long refused requests must have kept a client's bucket empty before it counts as persistent."""
_EMPTY: Final = 0.9
"""The part of a bucket that is gone when it counts as empty: a client that waits the second that a 429 asks for comes
below that again with the default burst of ten seconds, one that does not wait never does."""


@frozen
class Rate:
    """What a bucket lets through: ``per_second`` tokens flow in, up to ``burst``; a rate of 0 sets no limit."""

    per_second: float = field(validator=ge(0))
    burst: float = field(validator=ge(1))


class Bucket:
    """The token bucket of every client under one rate.

    It is kept as the time at which the client's bucket will be full again (the "virtual scheduling" form of ITU-T I.371
    Annex A): one number per client, and a client whose time has passed is the same as one never seen.
    """

    def __init__(self, rate: Rate, max_clients: int = MAX_CLIENTS) -> None:
        self._rate = rate
        self._max_clients = max_clients
        self._full_at: dict[str, float] = {}
        self._capacity = rate.burst / rate.per_second if rate.per_second else 0.0

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, client: str, cost: float, now: float) -> float:
        """Take ``cost`` tokens and return 0.0, or take none and return after how many seconds they will be there.

        ``now`` is in seconds. A cost above the burst counts as the whole burst; otherwise it could never be paid.
        """
        wait = self.wait(client, cost, now)
        if wait or not self._rate.per_second:
            return wait
        self._remember(client, max(self._full_at.get(client, now), now) + self._seconds(cost))
        return 0.0

    def wait(self, client: str, cost: float, now: float) -> float:
        """What :meth:`take` would return; nothing is taken."""
        full_at = self._full_at.get(client)
        if full_at is None:
            return 0.0
        if full_at > now + 2 * self._capacity:
            # More than anybody can owe: the clock was set back, which must not shut a client out for as long.
            full_at = self._full_at[client] = now + self._capacity
        wait = full_at + self._seconds(cost) - now - self._capacity
        return wait if wait > 1e-9 else 0.0

    def owe(self, client: str, tokens: float, now: float) -> None:
        """Take ``tokens`` even if there are less; the next ones are there when these have been paid.

        Nobody owes more than a whole burst.
        """
        if self._rate.per_second:
            full_at = max(self._full_at.get(client, now), now) + tokens / self._rate.per_second
            self._remember(client, min(full_at, now + 2 * self._capacity))

    def _seconds(self, cost: float) -> float:
        """How long ``cost`` tokens take to flow in."""
        return (cost if cost < self._rate.burst else self._rate.burst) / self._rate.per_second

    def _remember(self, client: str, full_at: float) -> None:
        if client not in self._full_at and len(self._full_at) >= self._max_clients:
            self._forget()
        self._full_at[client] = full_at

    def _forget(self) -> None:
        """Drop the quarter of the clients that owe least: those whose bucket is full again, or soon will be."""
        by_debt = sorted(self._full_at.items(), key=itemgetter(1))
        self._full_at = dict(by_debt[len(by_debt) // 4 + 1 :])


class Persistence:
    """Tells the clients that have kept a bucket empty by refused requests alone, whatever good requests cost.

    Kept as in :class:`Bucket`, and beside each client since when the bucket has been empty.
    """

    def __init__(self, rate: Rate, max_clients: int = MAX_CLIENTS) -> None:
        self._rate = rate
        self._max_clients = max_clients
        self._capacity = rate.burst / rate.per_second if rate.per_second else 0.0
        self._of: dict[str, tuple[float, float | None]] = {}
        """By client when the bucket will be full again, and since when it has been empty, in seconds."""

    def __len__(self) -> int:
        return len(self._of)

    def note(self, client: str, tokens: float, now: float) -> bool:
        """Draw ``tokens`` for a refused request at ``now``; whether the bucket has been empty for a minute."""
        if not self._rate.per_second:
            return False
        full_at, since = self._of.get(client, (now, None))
        if full_at - now < _EMPTY * self._capacity:
            since = None
        full_at = min(max(full_at, now) + tokens / self._rate.per_second, now + 2 * self._capacity)
        if since is None and full_at - now >= _EMPTY * self._capacity:
            since = now
        if client not in self._of and len(self._of) >= self._max_clients:
            by_debt = sorted(self._of.items(), key=lambda item: item[1][0])
            self._of = dict(by_debt[len(by_debt) // 4 + 1 :])
        self._of[client] = full_at, since
        return since is not None and now - since >= PERSISTENT_SECONDS


class Buckets:
    """Named buckets; a route names the one that it draws from."""

    def __init__(self, rates: Mapping[str, Rate], max_clients: int = MAX_CLIENTS) -> None:
        self.rates = dict(rates)
        self._buckets = {name: Bucket(rate, max_clients) for name, rate in rates.items()}
        self._persistence = {name: Persistence(rate, max_clients) for name, rate in rates.items()}
        self.short_until = -inf
        """When everybody who has been refused so far can be served again, in seconds."""

    @classmethod
    def per_second(cls, rates: Mapping[str, float], burst_seconds: float) -> "Buckets":
        """Buckets that let ``rates`` a second through by name, and ``burst_seconds`` worth of them at once."""
        return cls({name: Rate(rate, max(rate * burst_seconds, 1)) for name, rate in rates.items()})

    def take(self, name: str, client: str, cost: float, now: float) -> float:
        """As :meth:`Bucket.take`, from the bucket ``name``; raises KeyError for a name without a rate."""
        wait = self._buckets[name].take(client, cost, now)
        if wait:
            self.short_until = max(self.short_until, now + wait)
        return wait

    def wait(self, name: str, client: str, cost: float, now: float) -> float:
        """As :meth:`Bucket.wait`, for the bucket ``name``."""
        return self._buckets[name].wait(client, cost, now)

    def owe(self, name: str, client: str, tokens: float, now: float) -> None:
        """As :meth:`Bucket.owe`, to the bucket ``name``."""
        self._buckets[name].owe(client, tokens, now)

    def penalise(self, name: str, client: str, tokens: float, now: float, *, paid: float) -> bool:
        """The same for a refused request that has ``paid`` tokens before.

        Returns whether such requests alone have kept the client's bucket empty for a minute.
        """
        self._buckets[name].owe(client, tokens, now)
        return self._persistence[name].note(client, paid + tokens, now)
