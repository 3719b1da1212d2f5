"""What Lanes must do, said in the simplest way: every question looks at every queue."""

from attrs import define, field

from svcd.commerce.circuit_breaker import DeliveryOutcome
from svcd.commerce.delivery_scheduler import DeliveryKind
from svcd.store.webhook_events import WatchQueue

PAUSES = (1, 2, 4, 8, 30, 120, 600, 1800)
LONGEST = (sum(PAUSES) + (1 + 2 + 4 + 8 + 12 + 24 + 24) * 3600) * 1200


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


@define
class NaiveScheduler:
    waiting: dict[str, Waits] = field(factory=dict)
    in_flight: dict[str, tuple[WatchQueue, DeliveryKind, bool]] = field(factory=dict)
    woken: dict[str, WatchQueue] = field(factory=dict)
    cancelled: set[str] = field(factory=set)
    breakers: dict[str, Breaker] = field(factory=dict)
    orders: int = 0

    def put(self, queue: WatchQueue) -> None:
        if queue.watch in self.in_flight:
            if queue.watch not in self.cancelled:
                self.woken[queue.watch] = queue
        elif queue.watch not in self.waiting or self.waiting[queue.watch].queue != queue:
            self.add(queue, not_wakeable=False)

    def add(self, queue: WatchQueue, *, not_wakeable: bool) -> None:
        self.orders += 1
        self.waiting[queue.watch] = Waits(queue, self.orders, not_wakeable=not_wakeable)

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
        if len(self.in_flight) >= 32:
            return {}
        found = {}
        for host in self.hosts():
            delivery = self.delivery_of(host, now)
            if delivery is not None:
                found[host] = delivery
        return found

    def delivery_of(self, host: str, now: int) -> tuple[WatchQueue, DeliveryKind, bool] | None:
        breaker = self.breakers.get(host, Breaker())
        under_way = sum(queue.receiver == host for queue, *_ in self.in_flight.values())
        waiting = sorted(
            (each for each in self.waiting.values() if each.queue.receiver == host),
            key=lambda e: (e.queue.due, e.order),
        )
        if under_way >= (4 if breaker.broken_since is None else 1):
            return None
        if breaker.broken_since is not None and now < breaker.probe_at:
            old = [each for each in waiting if max(each.queue.due, breaker.broken_since) + LONGEST <= now]
            return (old[0].queue, DeliveryKind.GIVE_UP, False) if old else None
        ripe = [each for each in waiting if each.woken_early or each.queue.due <= now]
        kind = DeliveryKind.ATTEMPT if breaker.broken_since is None else DeliveryKind.PROBE
        return (ripe[0].queue, kind, ripe[0].queue.due > now) if ripe else None

    def take(self, watch: str, delivery: tuple[WatchQueue, DeliveryKind, bool]) -> None:
        del self.waiting[watch]
        self.in_flight[watch] = delivery

    def end(self, watch: str, outcome: DeliveryOutcome, again: WatchQueue | None, now: int) -> None:
        queue, kind, early = self.in_flight.pop(watch)
        breaker = self.breakers.setdefault(queue.receiver, Breaker())
        closes = outcome is DeliveryOutcome.ERROR and breaker.broken_since is not None
        if outcome in (DeliveryOutcome.ACCEPTED, DeliveryOutcome.REJECTED) or closes:
            for each in self.waiting.values():
                if each.queue.receiver == queue.receiver and (
                    not each.not_wakeable or breaker.broken_since is not None
                ):
                    each.woken_early = True
            self.breakers[queue.receiver] = Breaker()
        elif outcome is DeliveryOutcome.ERROR:
            self.breakers[queue.receiver] = Breaker()
        elif outcome is DeliveryOutcome.FAILED:
            breaker.failures += 1
            if breaker.broken_since is not None and kind is DeliveryKind.PROBE:
                breaker.probes += 1
                breaker.probe_at = now + min(PAUSES[min(breaker.probes, 7)], 300) * 1000
            elif breaker.broken_since is None and breaker.failures >= 5:
                self.breakers[queue.receiver] = Breaker(breaker.failures, now, 0, now + 1000)
        self.go_on(watch, outcome, again, early=early)
        self.forget()

    def go_on(self, watch: str, outcome: DeliveryOutcome, again: WatchQueue | None, *, early: bool) -> None:
        if again is not None and watch not in self.cancelled:
            in_vain = early and outcome is not DeliveryOutcome.ACCEPTED
            self.add(again, not_wakeable=in_vain or outcome is DeliveryOutcome.REJECTED)
        elif watch in self.woken:
            self.add(self.woken[watch], not_wakeable=False)
        self.woken.pop(watch, None)
        self.cancelled.discard(watch)
