"""One payout is never two payments: random lies, time-outs, kills, reorganisations and workers of one key."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from svc_pay import PayoutState
from svc_pay.calls import Answer, Call, Steps
from svc_pay.errors import NodeUnreachable

from tests.clients.payout_world import (
    LOST,
    SHOP,
    MemoryJournal,
    Worker,
    World,
    account,
    answer,
    number,
    refusal,
    steps_of,
)

IDS = [f"payout-{place}" for place in range(5)]
WORKERS = st.integers(0, 2)
SMALL = st.integers(0, 8)
WHAT = st.sampled_from(["pay", "pay", "advance", "advance", "check", "reassign"])
COUNTS = st.sampled_from([1, 2, 5, 10, 20, 100])
MANNERS = ["lie", "relay and refuse", "refuse", "lose", "fail"]


def amount_of(payout_id: str) -> int:
    return 10**8 + IDS.index(payout_id)


class Payouts(RuleBasedStateMachine):
    """Three workers, and an adversary that is the node, the network and the miner."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.journal = MemoryJournal()
        self.workers = [self.worker() for _ in range(3)]

    def worker(self) -> Worker:
        return Worker(steps_of(self.world, self.journal))

    # Workers

    def steps(self, worker: Worker, what: str, payout_id: str) -> Steps[Any]:
        if what == "advance":
            return worker.payouts.advance()
        if what == "pay":
            amount = amount_of(payout_id)
            return worker.payouts.pay(payout_id, recipient=SHOP, amount=amount, reference=payout_id)
        return worker.payouts.check(payout_id) if what == "check" else worker.payouts.reassign(payout_id)

    @rule(place=WORKERS, payout_id=st.sampled_from(IDS), what=WHAT, count=COUNTS, data=st.data())
    def begin(self, place: int, payout_id: str, what: str, count: int, data: st.DataObject) -> None:
        """Begin a call, and run it for so many steps; then the other workers go on, or this one is killed."""
        worker = self.workers[place]
        if worker.running is None:
            worker.start(self.steps(worker, what, payout_id))
        self.run(worker, count, data)

    @rule(place=WORKERS, count=COUNTS, data=st.data())
    def go_on(self, place: int, count: int, data: st.DataObject) -> None:
        self.run(self.workers[place], count, data)

    def run(self, worker: Worker, count: int, data: st.DataObject) -> None:
        manners = data.draw(st.sampled_from([["honest"], ["honest", *MANNERS], MANNERS]))
        for _ in range(count):
            if worker.running is not None:
                worker.go_on(lambda call: self.node(call, data, manners))

    @rule(place=WORKERS)
    def kill(self, place: int) -> None:
        self.workers[place] = self.worker()

    # The adversary

    def node(self, call: Call, data: st.DataObject, manners: list[str]) -> Answer | NodeUnreachable:
        how = data.draw(st.sampled_from(manners))
        if call.path == "/rpc/broadcast" and how != "refuse":
            # Whatever it answers, it may include the transfer from now on.
            txid = self.world.receive(call)
            if how == "lie":
                return answer({"txid": txid, "state": "accepted"})
        if how == "honest":
            return self.world.answer(call)
        if how == "lose":
            return LOST
        if how == "fail":
            return refusal("not now", 503)
        return self.lie(call, data) if how == "lie" else refusal("no")

    def lie(self, call: Call, data: st.DataObject) -> Answer:
        if call.path.startswith("/rpc/balance/"):
            return account(data.draw(SMALL | st.just(10**9)), data.draw(SMALL | st.just(10**9)))
        if call.path.startswith("/rpc/transaction/"):
            txid = call.path.rsplit("/", 1)[1]
            depth = data.draw(SMALL)
            return answer({"transaction": {"txid": txid, "confirmations": depth}}) if depth else refusal("none", 404)
        if call.path.startswith(("/rpc/mempool/", "/rpc/address/")):
            records: list[dict[str, Any]] = [
                {**each, "txid": txid, "nonce": str(number(each, "nonce") + data.draw(st.integers(0, 1)))}
                for txid, each in self.world.known.items()
            ]
            return answer({"transactions": [{**each, "confirmations": 9} for each in records], "next": None})
        if call.path == "/rpc/fees":
            return answer({"fees": {"suggestedFee": str(data.draw(st.integers(0, 2_000_000)))}})
        return self.world.answer(call)

    @rule(hours=st.integers(-1, 30))
    def wait(self, hours: int) -> None:
        self.world.now += hours * 3600

    @rule(data=st.data())
    def mine(self, data: st.DataObject) -> None:
        self.world.mine(lambda ready: data.draw(st.sampled_from([None, *ready])))

    @rule(depth=st.integers(1, 5))
    def reorganise(self, depth: int) -> None:
        self.world.reorganise(depth)

    # The laws

    @invariant()
    def no_payout_is_two_payments(self) -> None:
        paid = [self.world.known[txid]["payload"] for txid in self.world.included]
        references = [payload["paymentReference"] for payload in paid]
        assert len(references) == len(set(references))
        for payload in paid:
            assert (payload["recipient"], int(payload["amount"])) == (SHOP, amount_of(payload["paymentReference"]))

    @invariant()
    def a_payout_has_one_nonce_and_a_nonce_one_payout(self) -> None:
        """Then no chain whatsoever can execute two transfers of one payout."""
        pairs = {(each["payload"]["paymentReference"], each["nonce"]) for each in self.world.known.values()}
        assert len(pairs) == len({payout for payout, _ in pairs}) == len({nonce for _, nonce in pairs})

    def teardown(self) -> None:
        """With an honest node, also after all lies, every stored payout is paid in the end."""
        worker = self.worker()
        for _ in range(8):
            found = worker.do(worker.payouts.advance(), self.world.answer)
            assert PayoutState.CONFLICTED not in {each.state for each in found}
            if not found:
                break
            self.world.mine_pool()
        stored = worker.do(worker.payouts.stored(), self.world.answer)
        assert {each.state for each in stored} <= {PayoutState.PAID}
        paid = [self.world.known[txid]["payload"]["paymentReference"] for txid in self.world.included]
        assert sorted(paid) == sorted(each.id for each in stored)


TestPayouts = Payouts.TestCase
