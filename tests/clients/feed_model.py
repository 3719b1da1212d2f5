"""A node in memory that has only a feed, and a shop that reads it with any store: for cases and laws of orders."""

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field, frozen
from svc_pay import DEVNET, Order, WatchEvent, format_amount
from svc_pay.calls import Answer, Blocking, Call, Pause
from svc_pay.order_store import OrderStore, StoredOrder, Update
from svc_pay.orders import OrderSteps, Reading

SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
PAYER = "svcd1qwv5rncn0lmw4h7ny97sugyxaamll6rc3xzlfeq"
WHOLE = 65_535


def digest(*parts: object) -> str:
    """A hash that is made of these."""
    return sha256(repr(parts).encode()).hexdigest()


@frozen
class Block:
    """A block: the transfers to the shop have the positions of their names."""

    hash: str
    time: int
    names: tuple[str, ...]


@define(eq=False)
class Node:
    """A chain and a mempool, of which transfers are given by name: ``reference``, ``amount``, ``replaces``."""

    transfers: Mapping[str, Mapping[str, Any]]
    now: int = 1_700_000_000_000
    """Unix milliseconds."""
    ahead: int = 0
    """By how many milliseconds the clock of the shop is wrong."""
    blocks: list[Block] = field(factory=list)
    mempool: dict[str, int] = field(factory=dict)
    """When each waiting transfer came, the oldest first."""
    made: int = 0
    synced: bool = True
    rows: int = 10**6
    """Transfers that one answer looks at, those that pay nothing included: after them it ends."""

    def __attrs_post_init__(self) -> None:
        self.connect([[], []])

    # The chain

    def connect(self, blocks: Sequence[Sequence[str]], seconds_ago: int = 0) -> None:
        """Add blocks, each 2 seconds after the last, and dated so, or so many seconds earlier."""
        for names in blocks:
            self.now += 2_000
            # Reorganisations may have dated blocks into the future.
            self.add(names, max(self.now - 1000 * seconds_ago, self.blocks[-1].time + 1 if self.blocks else 0))

    def reorganise(self, undone: int, blocks: Sequence[Sequence[str]]) -> None:
        """Put blocks in the place of the newest ones."""
        back = [name for block in self.blocks[-undone:] for name in block.names]
        del self.blocks[-undone:]
        for names in blocks:
            self.add(names, self.blocks[-1].time + 1_000)
        included = {self.nonce(name) for block in self.blocks for name in block.names}
        for name in back:
            if self.nonce(name) not in included:
                self.mempool.setdefault(name, self.now)

    def add(self, names: Sequence[str], time: int) -> None:
        """Add a block."""
        self.made += 1
        self.blocks.append(Block(digest("block", self.made), time, tuple(names)))
        used = {self.nonce(name) for name in names}
        self.mempool = {name: at for name, at in self.mempool.items() if self.nonce(name) not in used}

    def submit(self, name: str) -> None:
        """A transfer comes into the mempool."""
        self.mempool = {each: at for each, at in self.mempool.items() if self.nonce(each) != self.nonce(name)}
        self.mempool[name] = self.now

    def nonce(self, name: str) -> str:
        """The nonce of a transfer, by the name of the first one that has it."""
        return str(self.transfers[name].get("replaces", name))

    def pays(self, name: str) -> bool:
        """Whether the transfer is to the shop."""
        given = self.transfers[name]
        return "replaces" not in given and "elsewhere" not in given

    def do(self, step: Mapping[str, Any]) -> Sequence[Callable[[], None]]:
        """What a step of a case does, after each part of which the shop asks."""
        match step:
            case {"mempool": str(name)}:
                return [lambda: self.submit(name)]
            case {"undone": int(count), "blocks": [*blocks]}:
                return [lambda: self.reorganise(count, blocks)]
            case {"blocks": [*blocks]}:
                ago = int(step.get("secondsAgo", 0))
                return [lambda names=names: self.connect([names], ago) for names in blocks]  # type: ignore[misc]
            case {"seconds": int(seconds)}:
                return [lambda: self.pass_time(seconds)]
            case _:
                return [lambda: None]

    def pass_time(self, seconds: int) -> None:
        """Let time pass."""
        self.now += 1000 * seconds

    # The feed

    def txid(self, name: str) -> str:
        """The id of a transfer."""
        return digest("transfer", name)

    def cursor(self, height: int, position: int, waiting: Sequence[str]) -> str:
        """The place after a transfer, with the hashes of this chain."""
        heights = [height]
        while heights[-1] > 0:
            heights.append(max(height - 2 ** (len(heights) - 1), 0))
        hashes = [[each, self.blocks[each].hash[:32]] for each in heights]
        return json.dumps([height, position, hashes, digest(sorted(waiting))[:8] if waiting else ""])

    def feed(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The answer of the route, without waiting."""
        limit, since = int(query["limit"]), int(query["sinceHeight"])
        begin, entries = (-1, WHOLE), list[dict[str, Any]]()
        if "after" in query:
            height, position, hashes, _ = json.loads(query["after"])
            known = next(h for h, part in hashes if h < len(self.blocks) and self.blocks[h].hash.startswith(part))
            begin = (height, position) if known == height else (known, WHOLE)
            if known != height:
                entries.append({"type": "rewind", "height": str(known), "hash": self.blocks[known].hash})
        begin = max(begin, (since - 1, WHOLE))
        seen, end = 0, (len(self.blocks) - 1, WHOLE)
        for height, block in enumerate(self.blocks):
            for position, name in enumerate(block.names):
                if (height, position) <= begin:
                    continue
                if len(entries) == limit or seen == self.rows:
                    end = begin
                    break
                seen, begin = seen + 1, (height, position)
                if self.pays(name):
                    at = {"height": str(height), "hash": block.hash, "time": str(block.time), "position": position}
                    entries.append({"type": "payment", **self._transfer(name), **at})
            else:
                continue
            break
        waiting = [name for name in self.mempool if self.pays(name)]
        pending = [{**self._transfer(name), "arrivalTime": str(self.mempool[name])} for name in waiting]
        tip = {"height": str(len(self.blocks) - 1), "hash": self.blocks[-1].hash}
        feed = {"entries": entries, "pending": pending, "next": self.cursor(*end, waiting), "tip": tip}
        return {"ok": True, "feed": {**feed, "node": {**tip, "synced": self.synced}}}

    def _transfer(self, name: str) -> dict[str, Any]:
        given = self.transfers[name]
        amount = int(given["amount"])
        told = {"txid": self.txid(name), "reference": given.get("reference"), "sender": PAYER}
        return {**told, "amount": str(amount), "amountSvc": format_amount(amount)}

    def has_news(self, query: Mapping[str, str]) -> bool:
        """Whether a question that waits is answered at once."""
        feed = self.feed(query)["feed"]
        place, pending = json.loads(feed["next"])[:2], json.loads(feed["next"])[3]
        known = json.loads(query["after"])[3]
        return bool(feed["entries"]) or place != [len(self.blocks) - 1, WHOLE] or pending != known

    def answer(self, call: Call) -> Answer:
        """The answer to a call of the shop."""
        assert urlsplit(call.path).path == f"/rpc/commerce/feed/{SHOP}"
        assert int(call.query.get("minHeight", 0)) < len(self.blocks)
        return Answer(200, None, json.dumps(self.feed(call.query)).encode())


class MemoryOrders:
    """The plainest store."""

    def __init__(self) -> None:
        self.stored: str | None = None
        self.rows: dict[str, StoredOrder] = {}
        self.bodies: dict[int, str] = {}
        self.count = 0
        self.written: list[str] = []
        """The bodies of all events that there have been."""

    def place(self) -> str | None:
        return self.stored

    def orders(self, references: Sequence[str]) -> list[StoredOrder]:
        return [self.rows[each] for each in references if each in self.rows]

    def affected(self, *, height: int, now: int, above: int, after: str, limit: int) -> list[StoredOrder]:
        def matters(row: StoredOrder) -> bool:
            awaits = row.awaits is not None and row.awaits <= height
            return awaits or (row.due is not None and row.due <= now) or (row.top is not None and row.top > above)

        found = [row for _, row in sorted(self.rows.items()) if row.reference > after and matters(row)]
        return found[:limit]

    def events(self, limit: int) -> list[tuple[int, str]]:
        return sorted(self.bodies.items())[:limit]

    def write(self, update: Update) -> bool:
        if update.place is not None:
            if self.stored != update.place[0]:
                return False
            self.stored = update.place[1]
        for row in update.added:
            self.rows.setdefault(row.reference, row)
        self.rows |= {row.reference: row for row in update.changed if row.reference in self.rows}
        if update.removed is not None:
            self.rows.pop(update.removed, None)
        for body in update.events:
            self.count += 1
            self.bodies[self.count] = body
            self.written.append(body)
        if update.told is not None:
            self.bodies = {number: body for number, body in self.bodies.items() if number > update.told}
        return True


class _Client:
    network = DEVNET


class Shop:
    """A shop that reads the feed of a node; only what it has stored survives :meth:`restart`."""

    def __init__(self, node: Node, store: OrderStore) -> None:
        self.node = node
        self.store = store
        client: Any = _Client()
        self.steps = OrderSteps(
            client,
            SHOP,
            store,
            since_height=0,
            clock=lambda: (node.now + node.ahead) / 1000,
            even_clock=lambda: node.now / 1000,
        )
        self.pauses: list[float] = []
        self.calls: list[Call] = []
        self.killed_at: set[int] = set()
        """The uses of the store before which the shop is killed, and started again at once."""
        self.uses = 0
        self.told: list[WatchEvent] = []
        """All events that the shop was told."""
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not stored."""
        self.reading = Reading(self.steps)
        self._next: Any = None
        self._call: Call | None = None

    def add(self, order: Order, pay_until: int | None = None) -> None:
        """Follow an order."""
        self.run(self.steps.add(order, pay_until))

    def remove(self, reference: str) -> None:
        """Follow it no longer."""
        self.run(self.steps.remove(reference))

    def run(self, steps: Any) -> None:
        """Run steps that ask no node."""
        for step in steps:
            assert isinstance(step, Blocking)
            step.run()

    def tell(self, answer: Callable[[Call], Answer] | None = None) -> list[WatchEvent]:
        """The events until the shop waits for a change: its wait is over now, and then it goes on."""
        before = len(self.told)
        self._go_on(answer or self.node.answer)
        return self.told[before:]

    def _go_on(self, answer: Callable[[Call], Answer]) -> None:
        outcome: Answer | None = None
        if self._call is not None:
            outcome, self._call = answer(self._call), None
        while True:
            if self._next is None:
                self._next = self.reading.next()
            try:
                step = self._next.send(outcome)
            except StopIteration as stop:
                self.told.append(stop.value)
                self._next = outcome = None
                continue
            outcome = None
            if isinstance(step, Blocking):
                self.uses += 1
                if self.uses in self.killed_at:
                    self.restart()
                else:
                    step.run()
            elif isinstance(step, Pause):
                self.pauses.append(step.seconds)
                if not self.node.synced:
                    return
            else:
                assert isinstance(step, Call)
                self.calls.append(step)
                if "wait" in step.query and not self.node.has_news(step.query):
                    self._call = step
                    return
                outcome = answer(step)
