"""Nodes that share one PostgreSQL: processes of their own, shops that go on asking, and a receiver over HTTPS."""

import json
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from attrs import define, field

from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from tests.chains import address_of
from tests.cluster.auditor import Order, audit
from tests.cluster.line import Line
from tests.process_level.conftest import DEVNET as ON_DEMAND
from tests.process_level.receiver import Receiver
from tests.process_level.running import DEADLINE, RunningNode, free_port, wait_until

TOKEN: Final = "the-management-token-of-this-test-long"
SECRET: Final = "the signing secret of this test, longer"
SHOP: Final = address_of("shop", "svcd")
REQUIRED: Final = 2
TIMEOUT: Final = 10.0
"""Seconds after which a client gives a node up and asks another one, as a load balancer does."""
PAUSE: Final = 0.1
"""Seconds between the orders of the shops."""


class TimedReceiver(Receiver):
    """Notes when each event came first."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.first: dict[str, float] = {}

    def take(self, headers: Any, body: bytes) -> None:
        """See :class:`Receiver`."""
        self.first.setdefault(headers["X-Svc-Event-Id"], time.monotonic())
        super().take(headers, body)

    def came_after(self, moment: float) -> list[float]:
        """How many seconds after a moment each event came that had not come before."""
        return sorted(at - moment for at in list(self.first.values()) if at > moment)


class Unanswered(Exception):
    """No answer, or one that asks to come again."""


@define(eq=False)
class Member:
    """One of the nodes, started again and again under the same name and port."""

    name: str
    folder: Path
    port: int
    options: Sequence[str]
    inside: Sequence[str] = ()
    line: Line | None = None
    """To PostgreSQL."""
    serving: bool = False
    """Whether the load balancer sends requests to it."""
    node: RunningNode = field(init=False)
    past_logs: list[str] = field(factory=list, init=False)

    def start(self) -> None:
        """Start it, and return when it answers."""
        self.node = RunningNode(self.folder / self.name, self.port, *self.options, inside=self.inside)
        self.node.wait_ready()
        self.serving = True

    def kill(self) -> None:
        """Kill -9."""
        self.serving = False
        self.node.kill()
        self._check_log()

    def stop(self) -> None:
        """End it as an operator does who has told the load balancer before."""
        self.serving = False
        self.node.terminate()
        assert self.node.wait_ended() == 0, self.node.output
        self._check_log()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.node.process.send_signal(number)

    def _check_log(self) -> None:
        text = self.node.output
        self.past_logs.append(text)
        assert "Traceback" not in text, text

    def record(self) -> dict[str, Any]:
        """What `svc node status` says of its webhooks; empty if it does not answer."""
        connection = HTTPConnection("localhost", timeout=TIMEOUT)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT)
        try:
            connection.sock.connect(str(self.node.socket))
            connection.request("GET", "/operator/status")
            return dict(json.loads(connection.getresponse().read())["status"]["webhooks"])
        except (OSError, HTTPException, KeyError, TypeError):
            return {}
        finally:
            connection.close()

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        return self.record().get("role") == "leader"

    def knows_leader_of(self, other: "Member") -> bool:
        """Whether both name the same leader."""
        known = self.record().get("leader")
        return known is not None and known == other.record().get("leader")


class Cluster:
    """Nodes behind one name."""

    def __init__(self, folder: Path, receiver: TimedReceiver, authority: bytes, addresses: Sequence[str]) -> None:
        """``addresses`` are the connection URIs of the database, one for each node."""
        self.folder = folder
        self.receiver = receiver
        pem = folder / "authority.pem"
        pem.write_bytes(authority)
        ports = [free_port() for _ in addresses]
        seeds = ",".join(f'"http://127.0.0.1:{port}"' for port in ports)
        common = (
            *ON_DEMAND,
            f"--set=p2p.seeds=[{seeds}]",
            "--set=commerce.webhooks.enabled=true",
            f"--set=commerce.webhooks.manageToken={TOKEN}",
            f"--set=commerce.webhooks.signingSecret={SECRET}",
            '--set=commerce.webhooks.callbackNetworks=["127.0.0.1/32", "::1/128"]',
            f"--set=commerce.webhooks.extraCaFile={pem}",
        )
        self.members = [
            Member(
                f"node-{number}",
                folder,
                port,
                (
                    *common,
                    f"--set=http.publicUrl=http://127.0.0.1:{port}",
                    f"--set=commerce.webhooks.database={address}",
                ),
            )
            for number, (port, address) in enumerate(zip(ports, addresses, strict=True))
        ]
        self.shops = Shops(self)

    def start(self) -> None:
        """Start all nodes, and wait until one leads and all have met."""
        for member in self.members:
            member.start()
        wait_until(self.is_well, "nodes that have met, and a leader")

    def is_well(self) -> bool:
        """Whether exactly one node leads, and all have the same tip."""
        return sum(member.leads for member in self.members) == 1 and len(set(map(self.tip, self.members))) == 1

    def tip(self, member: Member) -> tuple[int, str]:
        """Height and hash of a node's tip."""
        status = member.node.status()
        return int(status["height"]), status["hash"]

    @property
    def leader(self) -> Member:
        """The node that leads; waits for one."""
        found: list[Member] = []

        def look() -> bool:
            found[:] = [member for member in self.members if member.serving and member.leads]
            return bool(found)

        wait_until(look, "a leader")
        return found[0]

    @property
    def serving(self) -> list[Member]:
        """The nodes that the load balancer sends requests to."""
        return [member for member in self.members if member.serving]

    def blocks(self) -> list[dict[str, Any]]:
        """The chain of the first node."""
        node = self.members[0].node
        return [
            node.ok(node.get(f"/rpc/block/{height}"))["block"] for height in range(self.tip(self.members[0])[0] + 1)
        ]

    def newest_told(self) -> dict[str, tuple[str, int]]:
        """Name and epoch of the newest event of each order, by reference."""
        newest: dict[str, Any] = {}
        for event in list(self.receiver.events):
            known = newest.setdefault(event["payment"]["reference"], event)
            if event["sequence"] > known["sequence"]:
                newest[event["payment"]["reference"]] = event
        return {reference: (event["event"], event["epoch"]) for reference, event in newest.items()}

    def mine(self) -> None:
        """Make a block that all nodes have."""
        self.leader.node.mine(1)
        wait_until(self.is_well, "nodes with the same tip, and a leader")

    def settle(self) -> dict[str, int]:
        """End the load, let every order be confirmed and told, and audit everything that was told so far."""
        self.shops.pause()
        wait_until(self.is_well, "nodes with the same tip, and a leader")
        while self.shops.unpaid():
            self.shops.hand_in_again(0)
            self.mine()
        for _ in range(REQUIRED):
            self.mine()
        orders = [each.order for each in self.shops.orders]
        missing: dict[str, tuple[str, int] | None] = {}

        def all_told() -> bool:
            told = self.newest_told()
            missing.clear()
            for order in orders:
                if told.get(order.reference, ("", 0))[0] != "payment.confirmed":
                    missing[order.reference] = told.get(order.reference)
            return not missing

        with suppress(AssertionError):
            wait_until(all_told, "the last event of every order")
        assert not missing, missing
        self.receiver.check()
        assert self.shops.faults == [], self.shops.faults
        figures = audit(orders, list(self.receiver.events), self.blocks())
        return {**figures, "reorganisations": self.shops.reorganisations}

    def stop(self) -> None:
        """Stop all nodes."""
        self.shops.end()
        for member in self.members:
            if hasattr(member, "node"):
                member.node.kill()


@define(eq=False)
class Sold:
    """An order, and its payment."""

    order: Order
    transfer: bytes
    txid: str
    at: float


class Shops:
    """Orders, payments, blocks and reorganisations, at any node that answers; goes on until it is paused."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.orders: list[Sold] = []
        self.faults: list[str] = []
        """Answers that no client should get."""
        self.waited: list[float] = []
        """How long each registration took, with all attempts, in seconds."""
        self.reorganisations = 0
        self.refused: Counter[str] = Counter()
        self._random = random.Random(15)
        self._busy, self._over = Event(), Event()
        self._idle = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Begin, or go on."""
        self._idle.clear()
        self._busy.set()

    def pause(self) -> None:
        """Return when nothing is under way."""
        self._busy.clear()
        assert self._idle.wait(DEADLINE), "the shops do not come to an end"

    def end(self) -> None:
        """End the thread."""
        self._over.set()
        self._busy.set()
        self._thread.join(DEADLINE)

    def _run(self) -> None:
        turn = 0
        while not self._over.is_set():
            if not self._busy.is_set():
                self._idle.set()
                self._busy.wait()
                continue
            turn += 1
            try:
                self.sell()
                if turn % 3 == 0:
                    self.mine()
                if turn % 20 == 0:
                    self.reorganise()
                if turn % 10 == 0:
                    self.hand_in_again(5)
            except Exception as error:
                self.faults.append(repr(error))
            time.sleep(PAUSE)

    # What customers and shops do

    def sell(self) -> None:
        """Register an order at one node and pay it at another."""
        reference = f"order-{len(self.orders)}"
        amount = 1_000_000 + len(self.orders)
        asked = {
            "recipient": SHOP,
            "amountBaseUnits": str(amount),
            "reference": reference,
            "confirmations": REQUIRED,
            "callbackUrl": f"https://localhost:{self.cluster.receiver.port}/paid",
        }
        began = time.monotonic()
        answer = self._insist("/rpc/commerce/webhooks", asked)
        self.waited.append(time.monotonic() - began)
        draft = Draft(
            recipient=SHOP,
            amount=amount,
            fee=DEVNET.minimum_fee,
            nonce=len(self.orders),
            timestamp=int(time.time() * 1000),
            reference=reference,
        )
        signed = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
        order = Order(answer["subscription"]["id"], reference, SHOP, amount, REQUIRED)
        sold = Sold(order, b'{"transaction":' + signed.wire + b"}", signed.txid.hex(), time.monotonic())
        self.orders.append(sold)
        # A node that refuses it lacks the one before, and gets both later.
        with suppress(Unanswered, IndexError):
            self._ask(self._random.choice(self.cluster.serving), "POST", "/rpc/broadcast", sold.transfer)

    def hand_in_again(self, seconds: float) -> None:
        """Hand in payments again that are older and not in a block, in order."""
        with suppress(Unanswered, IndexError):
            member = self._random.choice(self.cluster.serving)
            for sold in self.unpaid():
                if time.monotonic() - sold.at > seconds:
                    self._ask(member, "POST", "/rpc/broadcast", sold.transfer)

    def unpaid(self) -> list[Sold]:
        """The newest orders whose payment is in no block yet."""
        found = []
        for sold in reversed(self.orders):
            if self._is_in_block(sold.txid):
                break
            found.append(sold)
        return found[::-1]

    def waits_at(self, member: Member, sold: Sold) -> bool:
        """Whether a payment is in a node's mempool."""
        with suppress(Unanswered):
            return bool(self._ask(member, "GET", f"/rpc/transaction/{sold.txid}")[2].get("mempool"))
        return False

    def mine(self) -> bool:
        """Make a block at any node."""
        with suppress(Unanswered):
            self._operator("/operator/mine", {"blocks": 1})
            return True
        return False

    def reorganise(self) -> None:
        """Replace the newest blocks at any node."""
        depth = self._random.randint(1, 3)
        with suppress(Unanswered):
            self._operator("/operator/reorganise", {"depth": depth})
            self.reorganisations += 1

    def _is_in_block(self, txid: str) -> bool:
        for member in self.cluster.serving:
            with suppress(Unanswered):
                status, _, _ = self._ask(member, "GET", f"/rpc/transaction/{txid}")
                return status == 200
        return False

    def _insist(self, target: str, body: object) -> Any:
        """The answer of the first node that has one."""
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            with suppress(Unanswered, IndexError):
                status, _, answer = self._ask(self._random.choice(self.cluster.serving), "POST", target, body)
                assert status in (200, 201), answer
                return answer
            time.sleep(0.1)
        raise AssertionError(f"{target}: no answer of any node")

    def _ask(self, member: Member, method: str, target: str, body: object = None) -> tuple[int, Any, Any]:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", member.port, timeout=TIMEOUT)
        try:
            connection.request(method, target, data, {"Authorization": f"Bearer {TOKEN}"})
            response = connection.getresponse()
            read = response.read()
        except (OSError, HTTPException) as error:
            raise Unanswered from error
        finally:
            connection.close()
        if response.status == 503 and response.headers["Retry-After"]:
            raise Unanswered
        if response.status >= 500:
            self.faults.append(f"{member.name} answered {target} with {response.status}: {read.decode()}")
            raise Unanswered
        return response.status, response.headers, json.loads(read)

    def _operator(self, target: str, body: object) -> None:
        members = self.cluster.serving
        if not members:
            raise Unanswered
        node = self._random.choice(members).node
        try:
            answer = node.operator(target, body)
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            raise Unanswered from error
        if answer.status != 200:
            self.refused[f"{answer.status} {target} {answer.json}"] += 1
            raise Unanswered


def seconds_to_next_event(cluster: Cluster, moment: float, *, after: Callable[[float], bool] | None = None) -> float:
    """How long after a moment the first new event came that was not under way then."""
    later: list[float] = []

    def came() -> bool:
        later[:] = [each for each in cluster.receiver.came_after(moment) if after is None or after(each)]
        return bool(later)

    wait_until(came, "the next event")
    return later[0]
