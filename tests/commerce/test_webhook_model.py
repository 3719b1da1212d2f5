"""Laws of the webhooks, whatever chain, mempool, clock and merchants do (docs/webhook-reference.md)."""

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from svcd.chain.block import Block
from svcd.chain.errors import RuleViolation
from svcd.chain.transaction import Transfer
from svcd.commerce.events import EventType
from svcd.interfaces import milliseconds
from tests.commerce.watched import Watched
from tests.rpc.conftest import present
from tests.submitting import submitted

MERCHANTS = ("default", "books")
NAMES = ("payment", "duplicate", "replacement", "too-little")
MAX_PAIRS = 3


@define
class Side:
    """The watch of one merchant, and what the merchant has heard of it."""

    identifier: str
    merchant: str
    heard: list[dict[str, Any]] = field(factory=list)
    """In order."""
    cancelled: bool = False
    unpaid: bool = True
    """Whether the watch counted no payment as one in time after the last operation."""

    @property
    def told(self) -> list[dict[str, Any]]:
        """The events of the payment."""
        return [body for body in self.heard if "mismatch" not in body]

    @property
    def state(self) -> str:
        """The state that the merchant knows."""
        return str(self.told[-1]["payment"]["state"]) if self.told else "unpaid"

    @property
    def was_on_chain(self) -> bool:
        """Whether the merchant has heard of a payment in a block."""
        return any(body["epoch"] > 0 or body["payment"]["state"] in {"confirming", "confirmed"} for body in self.told)

    @property
    def was_confirmed(self) -> bool:
        return any(body["event"] == "payment.confirmed" for body in self.told)

    @property
    def expired(self) -> bool:
        return any(body["event"] == "payment.expired" for body in self.told)


@define
class Pair:
    """Watches of two merchants from the same registration."""

    required: int
    pay_until: int | None
    expires_at: int
    drops: bool
    """Whether they want payment.dropped."""
    sides: list[Side]

    @property
    def deadline(self) -> int:
        """Until when the payment must have been seen."""
        return self.expires_at if self.pay_until is None else self.pay_until


class WebhookModel(RuleBasedStateMachine):
    """A node that catches up, falls out of step and restarts, with the watches of two merchants over one payment."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp())
        self.watched = Watched(self.folder, present())
        builder = self.watched.node.builder
        self.transfers = {
            "payment": builder.transfer("alice", "bob", 5000, nonce=0, reference="order-1"),
            "duplicate": builder.transfer("carol", "bob", 5000, nonce=0, reference="order-1"),
            "replacement": builder.transfer("alice", "carol", 1, nonce=0, fee=20_000),
            "too-little": builder.transfer("bob", "bob", 4999, nonce=0, reference="order-1"),
        }
        self.blocks: dict[bytes, Block] = {}
        self.pairs: list[Pair] = []

    def teardown(self) -> None:
        self.watched.close()
        shutil.rmtree(self.folder)

    # Operations

    @precondition(lambda self: len(self.pairs) < MAX_PAIRS)
    @rule(
        required=st.integers(1, 5),
        pay_within=st.sampled_from([None, 60, 60, 300]),
        ttl=st.sampled_from([300, 3600]),
        drops=st.booleans(),
    )
    def register(self, required: int, pay_within: int | None, ttl: int, drops: bool) -> None:
        events = set(EventType) - {EventType.ALARM} - (set() if drops else {EventType.DROPPED})
        # A registration with the terms of another would return the watch of that one.
        host = f"shop-{len(self.pairs)}.example.com"
        sides, now = list[Side](), self.now
        for merchant in MERCHANTS:
            begun = self.watched.register(
                required=required, pay_within=pay_within, ttl=ttl, events=events, host=host, merchant=merchant
            )
            sides.append(Side(begun["id"], merchant))
        pay_until = None if pay_within is None else now + 1000 * pay_within
        self.pairs.append(Pair(required, pay_until, now + 1000 * ttl, drops, sides))
        self._hear()

    @precondition(lambda self: self.pairs and not self.pairs[-1].sides[0].cancelled)
    @rule()
    def cancel(self) -> None:
        """What one merchant does concerns no other."""
        side = self.pairs[-1].sides[0]
        self.watched.cancel(side.identifier, side.merchant)
        side.cancelled = True
        self._hear()

    @rule(synced=st.booleans())
    def be_in_step(self, synced: bool) -> None:
        self.watched.synced = synced
        self._hear()

    @rule(name=st.sampled_from(NAMES))
    def broadcast(self, name: str) -> None:
        pool = self.watched.node_context.transaction_pool
        # Refused if it is spent, or has no higher fee than the one with its nonce.
        with suppress(RuleViolation):
            submitted(pool, self.transfers[name], self.watched.clock)
        self._hear()

    @rule(
        undone=st.sampled_from([0, 0, 0, 1, 2, 4]),
        further=st.integers(1, 4),
        names=st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        at=st.integers(0, 2),
        is_late=st.booleans(),
        synced=st.booleans(),
    )
    def blocks_arrive(self, undone: int, further: int, names: list[str], at: int, is_late: bool, synced: bool) -> None:
        """Several at once, on the tip or on a block below it; one has transfers, and may be as old as its parent."""
        self.watched.synced = synced
        parent = self._tip()
        for _ in range(undone):
            parent = None if parent is None else self.blocks.get(parent.header.parent_hash)
        new = []
        for number in range(undone + further):
            parent = self._block_on(parent, names if number == at else [], is_late=is_late)
            new.append(parent)
        self.watched.node.take(*new)
        self._hear()

    @rule(seconds=st.sampled_from([59, 61, 301, 3601]), synced=st.booleans())
    def wait(self, seconds: int, synced: bool) -> None:
        self.watched.synced = synced
        self.watched.clock.advance(seconds)
        self._hear()

    @rule()
    def restart(self) -> None:
        self.watched.again()
        self._hear()

    @property
    def now(self) -> int:
        return milliseconds(self.watched.clock)

    def _tip(self) -> Block | None:
        return self.blocks.get(self.watched.node_context.chain_manager.tip.hash)

    def _block_on(self, parent: Block | None, names: list[str], *, is_late: bool) -> Block:
        """A block of this moment if it ``is_late``, else of a moment shortly after its parent's."""
        builder, params = self.watched.node.builder, self.watched.node.params
        slot = builder.point_after(parent).slot + params.slots_per_block
        present_slot = params.slot_at(self.now)
        self.watched.clock.advance(max(slot - present_slot, 0))
        transfers: list[Transfer] = []
        for name in names:
            sender = {"payment": "alice", "replacement": "alice", "duplicate": "carol", "too-little": "bob"}[name]
            fresh = all(each.sender != self.transfers[name].sender for each in transfers)
            if fresh and builder.account_after(parent, sender).nonce == 0:
                transfers.append(self.transfers[name])
        # Each block has a producer of its own: otherwise the same operations would give the same block again.
        producer, slot = f"p{len(self.blocks)}", max(slot, present_slot) if is_late else slot
        block = builder.block(parent, slot=slot, producer=producer, transfers=transfers)
        self.blocks[block.header.hash] = block
        return block

    def _hear(self) -> None:
        """What follows from the operation, as the merchants hear it."""
        for _ in range(20):
            self.watched.clock.advance(0)
        self.watched.poll()
        sides = {side.identifier: side for pair in self.pairs for side in pair.sides}
        for body in sorted(self.watched.events(), key=lambda body: int(body["sequence"])):
            side = sides[body["subscriptionId"]]
            pair = next(pair for pair in self.pairs if side in pair.sides)
            assert not side.cancelled, "a cancelled watch sends nothing"
            self._check_event(pair, side, body)
            side.heard.append(body)

    # Laws

    def _check_event(self, pair: Pair, side: Side, body: dict[str, Any]) -> None:
        payment, synced = body["payment"], self.watched.synced
        assert body["node"]["synced"] is synced
        if side.heard:
            before = side.heard[-1]
            assert (body["epoch"], body["sequence"]) > (before["epoch"], before["sequence"])
        if "mismatch" in body:
            txids = [each["mismatch"]["txid"] for each in side.heard if "mismatch" in each]
            assert body["mismatch"]["txid"] not in txids, "each wrong payment is told once"
            assert body["mismatch"]["kind"] != "late" or side.expired
            return
        assert not side.expired, "an expired watch tells nothing of the payment any more"
        assert payment["state"] != "confirmed" or synced
        match body["event"]:
            case "payment.confirmed":
                assert payment["state"] == "confirmed"
                assert payment["confirmations"] >= pair.required
            case "payment.expired":
                assert synced
                assert self.now >= (pair.deadline if payment["state"] == "unpaid" else pair.expires_at)
            case "payment.dropped":
                assert (side.state, body["previousState"], payment["state"]) == ("pending", "pending", "unpaid")
                dropped = body["dropped"]
                paying = {self.transfers[name].txid.hex() for name in ("payment", "duplicate")}
                assert dropped.get("txid") in {None, *paying}
                assert ("txid" in dropped) is (dropped["reason"] != "unknown")
                assert ("replacedBy" in dropped) is (dropped["reason"] == "replaced")
                if "replacedBy" in dropped:
                    assert dropped["replacedBy"] == self.transfers["replacement"].txid.hex()

    @invariant()
    def each_merchant_hears_the_same(self) -> None:
        # What comes after the end of a watch is reported by the last watch of its order, which may be cancelled.
        any_cancelled = any(side.cancelled for pair in self.pairs for side in pair.sides)

        def of(side: Side) -> list[dict[str, Any]]:
            own = ("id", "subscriptionId")
            expired = next((at for at, body in enumerate(side.heard) if body["event"] == "payment.expired"), None)
            heard = side.heard if expired is None or not any_cancelled else side.heard[: expired + 1]
            return [{name: value for name, value in body.items() if name not in own} for body in heard]

        for pair in self.pairs:
            one, other = pair.sides
            if one.cancelled or other.cancelled:
                shorter, longer = sorted(map(of, pair.sides), key=len)
                assert longer[: len(shorter)] == shorter
            else:
                assert of(one) == of(other)

    @invariant()
    def what_a_merchant_knows_is_what_verification_says(self) -> None:
        for pair in self.pairs:
            for side in pair.sides:
                shown = self.watched.show(side.identifier, side.merchant)
                assert shown["active"] is (shown.get("ending") is None)
                if shown["active"]:
                    self._check_active(pair, side, shown["payment"])
                elif shown["ending"] == "expired" and not side.cancelled:
                    self._check_expired(side, shown["payment"])

    def _check_active(self, pair: Pair, side: Side, payment: dict[str, Any]) -> None:
        at = payment.get("blockTime")
        # A payment that has left the mempool, and was in no block, counts like one that was never seen.
        in_time = not side.unpaid or side.was_on_chain
        is_late = not in_time and self.now >= pair.deadline and (at is None or int(at) >= pair.deadline)
        state = "unpaid" if is_late and pair.pay_until is not None else payment["state"]
        side.unpaid = state == "unpaid"
        known = {state}
        if state == "unpaid" and not pair.drops:
            known.add("pending")
        if state == "confirmed" and not self.watched.synced:
            known.add("confirming")
        assert side.state in known
        if self.watched.synced and not side.was_confirmed:
            assert self.now < pair.expires_at, "an order that is not confirmed ends with the lifetime of its watch"
            assert payment["state"] != "unpaid" or self.now < min(pair.deadline + 60_000, pair.expires_at)

    def _check_expired(self, side: Side, payment: dict[str, Any]) -> None:
        assert side.expired
        of_order = [each for pair in self.pairs for each in pair.sides if each.merchant == side.merchant]
        told = {body["mismatch"]["txid"] for each in of_order for body in each.heard if "mismatch" in body}
        # A new watch takes over the late transfers of the ended ones, and a cancelled one reports none.
        is_last = all(each.expired for each in of_order) and not of_order[-1].cancelled
        if is_last and payment["canonical"] and not side.was_confirmed:
            assert payment["txid"] in told, "what arrives after the end of the last watch is reported as late"


TestWebhooks = WebhookModel.TestCase
TestWebhooks.settings = settings(max_examples=settings().max_examples // 3 + 1, stateful_step_count=30)
