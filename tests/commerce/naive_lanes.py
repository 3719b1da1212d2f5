"""What Lanes must do, said in the simplest way: every question looks at every lane."""

from attrs import define, field

from svcd.commerce.callback_host import Outcome, Task
from svcd.commerce.outbox import Lane

PAUSES = (5, 30, 120, 600, 1800)
LONGEST = (5 + 30 + 120 + 600 + 1800 + (1 + 2 + 4 + 8 + 12 + 24 + 24) * 3600) * 1200


@define
class Waits:
    lane: Lane
    order: int
    called: bool = False
    patient: bool = False


@define
class Breaker:
    failures: int = 0
    broken_since: int | None = None
    probes: int = 0
    probe_at: int = 0


@define
class Naive:
    waiting: dict[str, Waits] = field(factory=dict)
    flying: dict[str, tuple[Lane, Task, bool]] = field(factory=dict)
    woken: dict[str, Lane] = field(factory=dict)
    cancelled: set[str] = field(factory=set)
    breakers: dict[str, Breaker] = field(factory=dict)
    orders: int = 0

    def put(self, lane: Lane) -> None:
        if lane.watch in self.flying:
            if lane.watch not in self.cancelled:
                self.woken[lane.watch] = lane
        elif lane.watch not in self.waiting or self.waiting[lane.watch].lane != lane:
            self.add(lane, patient=False)

    def add(self, lane: Lane, *, patient: bool) -> None:
        self.orders += 1
        self.waiting[lane.watch] = Waits(lane, self.orders, patient=patient)

    def cancel(self, watch: str) -> None:
        self.waiting.pop(watch, None)
        self.woken.pop(watch, None)
        if watch in self.flying:
            self.cancelled.add(watch)
        self.forget()

    def forget(self) -> None:
        known = self.hosts()
        self.breakers = {host: breaker for host, breaker in self.breakers.items() if host in known}

    def hosts(self) -> set[str]:
        return {each.lane.host for each in self.waiting.values()} | {each[0].host for each in self.flying.values()}

    def broken(self) -> int:
        return sum(breaker.broken_since is not None for breaker in self.breakers.values())

    def turns(self, now: int) -> dict[str, tuple[Lane, Task, bool]]:
        """By host: whose turn it is, if this host is the next."""
        if len(self.flying) >= 32:
            return {}
        found = {}
        for host in self.hosts():
            turn = self.turn_of(host, now)
            if turn is not None:
                found[host] = turn
        return found

    def turn_of(self, host: str, now: int) -> tuple[Lane, Task, bool] | None:
        breaker = self.breakers.get(host, Breaker())
        under_way = sum(lane.host == host for lane, *_ in self.flying.values())
        lanes = sorted(
            (each for each in self.waiting.values() if each.lane.host == host), key=lambda e: (e.lane.due, e.order)
        )
        if under_way >= (4 if breaker.broken_since is None else 1):
            return None
        if breaker.broken_since is not None and now < breaker.probe_at:
            old = [each for each in lanes if max(each.lane.due, breaker.broken_since) + LONGEST <= now]
            return (old[0].lane, Task.GIVE_UP, False) if old else None
        ripe = [each for each in lanes if each.called or each.lane.due <= now]
        task = Task.ATTEMPT if breaker.broken_since is None else Task.PROBE
        return (ripe[0].lane, task, ripe[0].lane.due > now) if ripe else None

    def take(self, watch: str, turn: tuple[Lane, Task, bool]) -> None:
        del self.waiting[watch]
        self.flying[watch] = turn

    def end(self, watch: str, outcome: Outcome, again: Lane | None, now: int) -> None:
        lane, task, early = self.flying.pop(watch)
        breaker = self.breakers.setdefault(lane.host, Breaker())
        if outcome in (Outcome.ACCEPTED, Outcome.REFUSED):
            for each in self.waiting.values():
                if each.lane.host == lane.host and (not each.patient or breaker.broken_since is not None):
                    each.called = True
            self.breakers[lane.host] = Breaker()
        elif outcome is Outcome.FAILED:
            breaker.failures += 1
            if breaker.broken_since is not None and task is Task.PROBE:
                breaker.probes += 1
                breaker.probe_at = now + PAUSES[min(breaker.probes, 4)] * 1000
            elif breaker.broken_since is None and breaker.failures >= 5:
                self.breakers[lane.host] = Breaker(breaker.failures, now, 0, now + 5000)
        self.go_on(watch, outcome, again, early=early)
        self.forget()

    def go_on(self, watch: str, outcome: Outcome, again: Lane | None, *, early: bool) -> None:
        if again is not None and watch not in self.cancelled:
            self.add(again, patient=outcome is Outcome.REFUSED or (early and outcome is not Outcome.ACCEPTED))
        elif watch in self.woken:
            self.add(self.woken[watch], patient=False)
        self.woken.pop(watch, None)
        self.cancelled.discard(watch)
