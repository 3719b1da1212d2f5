"""What the DeliveryScheduler must do, in the simplest way: every question looks at every queue."""

from attrs import define, evolve, field

from svcd.commerce.circuit_breaker import DeliveryOutcome, OpenBreaker
from svcd.commerce.delivery_scheduler import DeliveryKind
from svcd.store.webhook_events import WatchQueue

PAUSES = (1, 2, 4, 8, 30, 120, 600, 1800)
HURRIED = 15_000
BARRED = 300
LONGEST = (sum(max(pause, BARRED) for pause in PAUSES) + (1 + 2 + 4 + 8 + 12 + 24 + 24) * 3600) * 1200


@define
class Waits:
    queue: WatchQueue
    order: int
    woken_early: bool = False
    not_wakeable: bool = False


@define
class Breaker:
    failures: int = 0
    broken_since: int | None = None
    probes: int = 0
    probe_at: int = 0
    hurried_at: int | None = None

    def closed(self) -> "Breaker":
        return Breaker(hurried_at=self.hurried_at)

    def hurry(self, now: int) -> None:
        at = now if self.hurried_at is None else max(now, self.hurried_at + HURRIED)
        if self.broken_since is not None and at < self.probe_at:
            self.probe_at = self.hurried_at = at


@define
class NaiveScheduler:
    waiting: dict[str, Waits] = field(factory=dict)
    in_flight: dict[str, tuple[WatchQueue, DeliveryKind, bool]] = field(factory=dict)
    woken: dict[str, WatchQueue] = field(factory=dict)
    cancelled: set[str] = field(factory=set)
    breakers: dict[str, Breaker] = field(factory=dict)
    """Of every host that is known."""
    kept: dict[str, Breaker] = field(factory=dict)
    """Of hosts that are not known yet."""
    orders: int = 0
    max_in_flight: int = 32

    def put(self, queue: WatchQueue, now: int) -> None:
        if queue.watch in self.in_flight:
            if queue.watch not in self.cancelled:
                self.woken[queue.watch] = as_urgent(queue, self.woken.get(queue.watch))
            return
        waits = self.waiting.get(queue.watch)
        queue = as_urgent(queue, None if waits is None else waits.queue)
        if waits is None or waits.queue != queue or waits.queue.urgent != queue.urgent:
            self.add(queue, not_wakeable=False)
        if queue.urgent and queue.due <= now:
            self.hurry(queue.receiver, now)

    def add(self, queue: WatchQueue, *, not_wakeable: bool) -> None:
        self.orders += 1
        self.waiting[queue.watch] = Waits(queue, self.orders, not_wakeable=not_wakeable)
        if queue.receiver not in self.breakers:
            self.breakers[queue.receiver] = self.kept.pop(queue.receiver, Breaker())

    def hurry(self, host: str, now: int) -> None:
        if host in self.breakers:
            self.breakers[host].hurry(now)

    def restore(self, host: str, breaker: OpenBreaker) -> None:
        if host not in self.breakers:
            self.kept[host] = Breaker(0, breaker.opened_at, breaker.probes, breaker.probe_at)

    def cancel(self, watch: str) -> None:
        self.waiting.pop(watch, None)
        self.woken.pop(watch, None)
        if watch in self.in_flight:
            self.cancelled.add(watch)
        self.forget()

    def forget(self) -> None:
        known = self.hosts()
        self.breakers = {host: breaker for host, breaker in self.breakers.items() if host in known}

    def hosts(self) -> set[str]:
        return {each.queue.receiver for each in self.waiting.values()} | {
            each[0].receiver for each in self.in_flight.values()
        }

    def broken(self) -> int:
        return sum(breaker.broken_since is not None for breaker in self.breakers.values())

    def deliveries(self, now: int) -> dict[str, tuple[WatchQueue, DeliveryKind, bool]]:
        """By host: its next delivery."""
        if len(self.in_flight) >= self.max_in_flight:
            return {}
        found = {}
        for host in self.hosts():
            delivery = self.delivery_of(host, now)
            if delivery is not None:
                found[host] = delivery
        return found

    def delivery_of(self, host: str, now: int) -> tuple[WatchQueue, DeliveryKind, bool] | None:
        breaker = self.breakers[host]
        under_way = sum(queue.receiver == host for queue, *_ in self.in_flight.values())
        waiting = sorted(
            (each for each in self.waiting.values() if each.queue.receiver == host),
            key=lambda e: (e.queue.due, e.order),
        )
        if under_way >= (min(4, self.max_in_flight // 2) if breaker.broken_since is None else 1):
            return None
        if breaker.broken_since is not None and now < breaker.probe_at:
            old = [each for each in waiting if max(each.queue.due, breaker.broken_since) + LONGEST <= now]
            return (old[0].queue, DeliveryKind.GIVE_UP, False) if old else None
        ripe = [each for each in waiting if each.woken_early or each.queue.due <= now]
        kind = DeliveryKind.ATTEMPT if breaker.broken_since is None else DeliveryKind.PROBE
        if kind is DeliveryKind.PROBE:
            ripe = [each for each in ripe if each.queue.urgent and each.queue.due <= now] or ripe
        return (ripe[0].queue, kind, ripe[0].queue.due > now) if ripe else None

    def take(self, watch: str, delivery: tuple[WatchQueue, DeliveryKind, bool]) -> None:
        del self.waiting[watch]
        self.in_flight[watch] = delivery

    def end(self, watch: str, outcome: DeliveryOutcome, again: WatchQueue | None, now: int) -> None:
        queue, kind, early = self.in_flight.pop(watch)
        breaker = self.breakers[queue.receiver]
        closes = outcome is DeliveryOutcome.ERROR and breaker.broken_since is not None
        if outcome in (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED) or closes:
            for each in self.waiting.values():
                if each.queue.receiver == queue.receiver and (
                    not each.not_wakeable or breaker.broken_since is not None
                ):
                    each.woken_early = True
            self.breakers[queue.receiver] = breaker.closed()
        elif outcome is DeliveryOutcome.ERROR:
            self.breakers[queue.receiver] = breaker.closed()
        elif outcome is DeliveryOutcome.FAILED:
            breaker.failures += 1
            if breaker.broken_since is not None and kind is DeliveryKind.PROBE:
                breaker.probes += 1
                breaker.probe_at = now + min(PAUSES[min(breaker.probes, 7)], 300) * 1000
            elif breaker.broken_since is None and breaker.failures >= 5:
                self.breakers[queue.receiver] = Breaker(breaker.failures, now, 0, now + 1000, breaker.hurried_at)
        self.go_on(queue, outcome, again, now, early=early)
        self.forget()

    def go_on(
        self, queue: WatchQueue, outcome: DeliveryOutcome, again: WatchQueue | None, now: int, *, early: bool
    ) -> None:
        accepted, renewed = outcome is DeliveryOutcome.ACCEPTED, self.woken.pop(queue.watch, None)
        if again is not None and queue.watch not in self.cancelled:
            following = as_urgent(as_urgent(again, renewed), None if accepted else queue)
            self.add(following, not_wakeable=(early and not accepted) or outcome is DeliveryOutcome.REJECTED)
        elif renewed is not None:
            following = renewed
            self.add(renewed, not_wakeable=False)
        if renewed is not None and renewed.urgent and following.due <= now:
            self.hurry(queue.receiver, now)
        self.cancelled.discard(queue.watch)


def as_urgent(queue: WatchQueue, other: WatchQueue | None) -> WatchQueue:
    """The queue, urgent if one of the two is."""
    return evolve(queue, urgent=queue.urgent or (other is not None and other.urgent))
