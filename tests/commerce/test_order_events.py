"""The cases of tests/vectors/order_events.json as watches see them: what a shop is told about an order, and when."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from attrs import define, evolve, field
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.chain.transaction import Transfer
from svcd.commerce.events import EventType
from svcd.commerce.payment import SETTLEMENT_MODEL
from svcd.interfaces import milliseconds
from tests.chains import COIN, address_of
from tests.clients.vectors import vectors
from tests.commerce.watched import Watched
from tests.rpc.conftest import present
from tests.rpc.node import PARAMS
from tests.submitting import submitted

CASES = vectors("order_events")["cases"]
MEMBERS = vectors("order_events")["members"]
SHOP = "bob"
EVENTS = [each.value for each in EventType if each is not EventType.ALARM]


@define(eq=False)
class Story:
    """A node with the watches of a case, and the chain that its steps make."""

    watched: Watched
    transfers: Mapping[str, Mapping[str, Any]]
    blocks: list[Block] = field(factory=list)
    """The canonical chain without the genesis block."""
    made: dict[str, Transfer] = field(factory=dict)
    count: int = 0
    """Blocks that were made."""

    def transfer(self, name: str) -> Transfer:
        """The transfer of this name: each has a sender of its own, but one that replaces another."""
        if name not in self.made:
            given = self.transfers[name]
            replaced = given.get("replaces")
            sender = f"payer {replaced or name}"
            recipient = sender if replaced else "carol" if "elsewhere" in given else SHOP
            self.made[name] = self.watched.node.builder.transfer(
                sender,
                recipient,
                int(given.get("amount", 1)),
                nonce=0,
                fee=50_000 if replaced else None,
                reference=given.get("reference"),
            )
        return self.made[name]

    def tell(self) -> list[dict[str, Any]]:
        """The events since the last time, in the form of the cases."""
        for _ in range(20):
            self.watched.clock.advance(0)
        names = {transfer.txid.hex(): name for name, transfer in self.made.items()}
        bodies = self.watched.events()
        for body in bodies:
            check_members(body)
        return [_told(body, names) for body in bodies]

    def do(self, step: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Do a step; gives the events."""
        told: list[dict[str, Any]] = []
        match step:
            case {"mempool": str(name)}:
                submitted(self.watched.node_context.transaction_pool, self.transfer(name), self.watched.clock)
            case {"blocks": [*blocks], "undone": int(count)}:
                del self.blocks[-count:]
                branch = self._branch(blocks)
                self.watched.node.take(*branch)
            case {"blocks": [*blocks]}:
                for names in blocks:
                    self.watched.clock.advance(2)
                    dated = milliseconds(self.watched.clock) - 1000 * int(step.get("secondsAgo", 0))
                    slot = self.watched.node.params.slot_at(dated)
                    self._add(names, slot)
                    self.watched.node.take(self.blocks[-1])
                    told += self.tell()
            case {"seconds": int(seconds)}:
                self.watched.clock.advance(seconds)
                self.watched.poll()
            case {"restart": "node"}:
                self.watched.again()
            case {"restart": "shop"}:
                pass
            case _:
                raise AssertionError(step)
        return told + self.tell()

    def _branch(self, blocks: list[list[str]]) -> list[Block]:
        """Blocks on the last one, a second apart: heavier than those in whose place they come."""
        first = len(self.blocks)
        for names in blocks:
            self._add(names, (self.blocks[-1].header.slot if self.blocks else 0) + 1)
        return self.blocks[first:]

    def _add(self, names: list[str], slot: int) -> None:
        builder = self.watched.node.builder
        parent = self.blocks[-1] if self.blocks else None
        transfers = [self.transfer(name) for name in names]
        # No block is made twice.
        self.count += 1
        self.blocks.append(builder.block(parent, slot=slot, producer=f"producer {self.count}", transfers=transfers))


def check_members(body: Mapping[str, Any]) -> None:
    """Every teller of the cases says it in bodies with the same members."""
    payment = body["payment"]
    expected = {*MEMBERS["payment"], *(MEMBERS["transfer"] if payment["confirmations"] or "txid" in payment else [])}
    expected |= {*(MEMBERS["block"] if payment["confirmations"] else [])}
    assert {*body} == {*MEMBERS["body"], *MEMBERS.get(body["event"], [])}
    assert {*payment} - {"work", "sinceHeight"} == expected
    assert (payment["hardFinality"], payment["settlementModel"]) == (False, SETTLEMENT_MODEL)


def _told(body: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    payment = body["payment"]
    told = {
        "event": body["event"],
        "reference": payment["reference"],
        "state": payment["state"],
        "confirmations": payment["confirmations"],
    }
    if "txid" in payment:
        told["transfer"] = names[payment["txid"]]
    if "mismatch" in body:
        told["mismatch"] = {"kind": body["mismatch"]["kind"], "transfer": names[body["mismatch"]["txid"]]}
        if "more" in body["mismatch"]:
            told["mismatch"]["more"] = True
    return told


def story_of(case: Mapping[str, Any], folder: Path, clock: Clock) -> Story:
    """The beginning of a case."""
    people = ["bob", "carol", *(f"payer {name}" for name in case["transfers"])]
    allocations = tuple((address_of(name, "svcd"), 10 * COIN) for name in people)
    watched = Watched(folder, clock, params=evolve(PARAMS, allocations=allocations))
    story = Story(watched, case["transfers"])
    # The slots before the first block are one long gap.
    story.do({"blocks": [[]]})
    for order in case["orders"]:
        watched.register(
            order["reference"],
            int(order["amount"]),
            recipient=SHOP,
            required=order["confirmations"],
            since=int(order["sinceHeight"]) if "sinceHeight" in order else None,
            ttl=7 * 86_400,
            pay_within=order.get("payWithinSeconds"),
            events=EVENTS,
        )
    return story


@pytest.fixture
def clock() -> Clock:
    return present()


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_a_watch_tells_what_the_cases_say(case: dict[str, Any], tmp_path: Path, clock: Clock) -> None:
    story = story_of(case, tmp_path, clock)
    try:
        for number, step in enumerate(case["steps"], 1):
            told = story.do(step)
            assert by_order(told) == by_order(step.get("events", [])), f"step {number}: {json.dumps(step)}"
    finally:
        story.watched.close()


def by_order(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The events of each order: only these have an order among them."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        grouped.setdefault(event["reference"], []).append(event)
    return grouped
