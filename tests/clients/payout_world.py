"""A chain that an adversary rules, a node that answers anything, and workers that share a journal: no network."""

import json
from collections.abc import Callable
from typing import Any

import svc_pay
from attrs import define, field
from svc_pay import DEVNET, Key, NodeUnreachable
from svc_pay.calls import Answer, Blocking, Call, OwnNetwork, Pause, Steps
from svc_pay.payouts import PayoutSteps

KEY = Key(b"a key of the payouts".ljust(32))
OWN = KEY.address(DEVNET)
SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
START = 1_795_170_000.0
DAY = 24 * 3600
FUNDS = 10**12
LOST = NodeUnreachable("the node does not answer: it was lost")


def answer(content: object, status: int = 200) -> Answer:
    return Answer(status, None, json.dumps(content).encode())


def refusal(sentence: str, status: int = 400) -> Answer:
    return answer({"ok": False, "error": sentence}, status)


class MemoryJournal:
    """A journal that outlives its workers."""

    def __init__(self) -> None:
        self.entries: list[str] = []

    def read(self, after: int) -> list[str]:
        return self.entries[after:]

    def append(self, sequence: int, entry: str) -> bool:
        assert sequence <= len(self.entries) + 1
        if sequence <= len(self.entries):
            return False
        self.entries.append(entry)
        return True


def number(transaction: dict[str, Any], name: str) -> int:
    return int(transaction[name])


@define
class World:
    """The transfers of the key: those that somebody has got, the chain, and the mempool of an honest node."""

    now: float = START
    known: dict[str, dict[str, Any]] = field(factory=dict)
    """Every transfer that ever left the program, by txid."""
    chain: list[list[str]] = field(factory=list)
    pool: set[str] = field(factory=set)

    @property
    def included(self) -> list[str]:
        return [txid for block in self.chain for txid in block]

    def is_void(self, txid: str) -> bool:
        return number(self.known[txid], "timestamp") + DAY * 1000 <= self.now * 1000

    def mine(self, chosen: Callable[[list[str]], str | None]) -> None:
        """Make a block; ``chosen`` gives, of the transfers with the next nonce, the one that is included, or None."""
        block: list[str] = []
        while True:
            nonce = len(self.included) + len(block)
            ready = [txid for txid, each in self.known.items() if number(each, "nonce") == nonce]
            txid = chosen(ready) if ready else None
            if txid is None:
                break
            block.append(txid)
        self.chain.append(block)
        self.pool -= {txid for txid in self.pool if number(self.known[txid], "nonce") < len(self.included)}

    def mine_pool(self) -> None:
        """Make a block as an honest miner does."""
        self.pool -= {txid for txid in self.pool if self.is_void(txid)}
        self.mine(lambda ready: next((txid for txid in ready if txid in self.pool), None))

    def reorganise(self, depth: int) -> None:
        undone = self.chain[max(0, len(self.chain) - depth) :]
        del self.chain[max(0, len(self.chain) - depth) :]
        self.pool |= {txid for block in undone for txid in block}

    # The honest answers

    def answer(self, call: Call) -> Answer:
        if call.path == "/rpc/consensus":
            return answer({"consensus": {"genesisHash": DEVNET.genesis_hash, "accountMinimum": "1000000"}})
        if call.path == "/rpc/fees":
            return answer({"fees": {"suggestedFee": "10000"}})
        if call.path.startswith("/rpc/balance/"):
            pending = len(self.included)
            waiting = {number(self.known[txid], "nonce") for txid in self.pool}
            while pending in waiting:
                pending += 1
            return account(len(self.included), pending, call.path.rsplit("/", 1)[1])
        if call.path.startswith("/rpc/transaction/"):
            return self.record(call.path.rsplit("/", 1)[1])
        if call.path.startswith("/rpc/mempool/"):
            return answer({"transactions": [{**self.known[txid], "txid": txid} for txid in self.pool], "next": None})
        if call.path.startswith("/rpc/address/"):
            found = [json.loads(self.record(txid).body)["transaction"] for txid in reversed(self.included)]
            return answer({"transactions": found, "next": None})
        assert call.path == "/rpc/broadcast"
        return self.take(self.receive(call))

    def record(self, txid: str) -> Answer:
        for height, block in enumerate(self.chain):
            if txid in block:
                confirmations = len(self.chain) - height
                return answer({"transaction": {**self.known[txid], "txid": txid, "confirmations": confirmations}})
        return refusal("no block of the chain contains it", 404)

    def receive(self, call: Call) -> str:
        """Get a broadcast, without taking it into the mempool; gives the txid."""
        assert call.body is not None
        transaction = json.loads(call.body)["transaction"]
        txid = svc_pay.SignedTransfer.from_text(json.dumps(transaction), DEVNET).txid
        self.known[txid] = transaction
        return txid

    def take(self, txid: str) -> Answer:
        transfer, next_nonce = self.known[txid], len(self.included)
        if txid in self.pool or txid in self.included:
            return answer({"txid": txid, "state": "known"})
        if number(transfer, "nonce") < next_nonce:
            return refusal("the nonce is already used")
        if number(transfer, "nonce") >= next_nonce + 16:
            return refusal("the nonce is too far ahead")
        self.pool -= {each for each in self.pool if self.is_void(each)}
        if self.is_void(txid):
            return refusal("expired")
        for other in list(self.pool):
            if number(self.known[other], "nonce") == number(transfer, "nonce"):
                if 10 * number(transfer, "fee") < 11 * number(self.known[other], "fee"):
                    return refusal("the nonce is taken by a waiting transfer")
                self.pool.remove(other)
        self.pool.add(txid)
        return answer({"txid": txid, "state": "accepted"})


def account(nonce: int, pending_nonce: int, address: str = OWN) -> Answer:
    numbers = {"balance": FUNDS, "pendingBalance": FUNDS, "nonce": nonce, "pendingNonce": pending_nonce}
    return answer({"account": {"address": address, **{name: str(value) for name, value in numbers.items()}}})


def steps_of(world: World, journal: svc_pay.Journal, **given: Any) -> PayoutSteps:
    settings = {"confirmations": 2, "maximum_fee": 1_000_000, "clock": lambda: world.now}
    return PayoutSteps(journal, KEY, DEVNET, **settings | given)


@define
class Worker:
    """A process that runs one call after the other, step by step, until it is killed."""

    payouts: PayoutSteps
    running: Steps[Any] | None = None
    step: Call | Pause | Blocking | OwnNetwork | None = None
    result: Any = None
    error: svc_pay.SvcPayError | None = None

    def start(self, steps: Steps[Any]) -> None:
        self.running, self.result, self.error = steps, None, None
        self._resume(lambda: next(steps))

    def go_on(self, node: Callable[[Call], Answer | NodeUnreachable]) -> None:
        """Do what the call asks for, and resume it up to its next question."""
        running, step = self.running, self.step
        assert running is not None
        if isinstance(step, Call):
            came = node(step)
            if isinstance(came, NodeUnreachable):
                self._resume(lambda: running.throw(came))
            else:
                self._resume(lambda: running.send(came))
            return
        if isinstance(step, Blocking):
            step.run()
        self._resume(lambda: running.send(None))

    def _resume(self, resumed: Callable[[], Call | Pause | Blocking | OwnNetwork]) -> None:
        try:
            self.step = resumed()
        except StopIteration as stop:
            self.running, self.result = None, stop.value
        except svc_pay.SvcPayError as error:
            self.running, self.error = None, error

    def finish(self, node: Callable[[Call], Answer | NodeUnreachable]) -> Any:
        """Run to the end; gives the result, or raises the error."""
        while self.running is not None:
            self.go_on(node)
        if self.error is not None:
            raise self.error
        return self.result

    def do(self, steps: Steps[Any], node: Callable[[Call], Answer | NodeUnreachable]) -> Any:
        """Run a call from its beginning to its end."""
        self.start(steps)
        return self.finish(node)
