"""The data directory of a devnet node with a merchant's year in it, and every question that one may ask about it."""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final
from urllib.parse import quote

import pytest
from attrs import field, frozen

from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.commerce.payment_request import refund_reference
from svcd.config.loader import load
from svcd.config.schema import Config
from svcd.node import snapshots
from tests.chains import COIN, address_of, key_of
from tests.faults.whole_node import WholeNode
from tests.web.wire import Response

BUILT_AT: Final = DEVNET.genesis_time // 1000 + 20_000
ASKED_AT: Final = BUILT_AT + 7_200
"""Late enough for the next attempt of each delivery that has failed."""
CUSTOMERS: Final = 60
BLOCKS: Final = 125
ORDERS: Final = 220
OPEN_PORT, CLOSED_PORT = 9_000, 9_001
"""Of a receiver that takes events, and of one that cannot be reached."""
TOKEN: Final = "t" * 32
CONFIRMATIONS: Final = 3
SNAPSHOT_BLOCKS: Final = 50
BANNED: Final = ("198.51.100.7", "198.51.100.8", "2001:db8:7::/64")
MAX_WAITING: Final = 12
"""Transfers of one sender in the mempool; a node takes a few more."""

_CONFIG: Final = """
network = "devnet"
dataDir = "{folder}"
[http]
listen = "tcp:8645:interface=127.0.0.1"
[participation]
alone = true
onDemand = true
[limits]
exempt = ["203.0.113.0/24"]
[commerce.webhooks]
enabled = true
manageToken = "{token}"
signingSecret = "{secret}"
allowHttpCallbacks = true
callbackNetworks = ["127.0.0.1/32"]
"""


def config_at(folder: Path) -> Config:
    """The configuration of a node on the data directory ``folder``; raises ConfigError."""
    file = folder.with_name(f"{folder.name}.toml")
    file.touch(mode=0o600)
    file.write_text(_CONFIG.format(folder=folder, token=TOKEN, secret="s" * 64), encoding="utf-8")
    return load(file)


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """Make the node's random numbers the same in every run, so that it makes the same blocks and ids.

    Snapshots are made of blocks that a short chain has, too.
    """
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshots, "SNAPSHOT_BLOCKS", SNAPSHOT_BLOCKS)
        patch.setattr(secrets, "token_bytes", random.randbytes)
        patch.setattr(secrets, "token_hex", lambda size: random.randbytes(size).hex())
        patch.setattr(secrets, "SystemRandom", lambda: random)
        yield


@frozen
class Order:
    """What a customer is asked to pay."""

    reference: str
    amount: int
    recipient: str

    @property
    def query(self) -> str:
        """The order in the query of a route."""
        return f"recipient={self.recipient}&amountBaseUnits={self.amount}&confirmations={CONFIRMATIONS}"


@frozen
class Question:
    """One request."""

    method: str
    target: str
    body: object = None
    operator: bool = False
    merchant: bool = False

    def answer(self, node: WholeNode) -> Response:
        """The node's answer."""
        headers = {"Authorization": f"Bearer {TOKEN}"} if self.merchant else {}
        return node.ask(self.method, self.target, self.body, operator=self.operator, **headers)

    def ask(self, node: WholeNode) -> bytes:
        """The status and the body of the node's answer."""
        answer = self.answer(node)
        return b"%d " % answer.status + answer.body

    def __str__(self) -> str:
        return f"{self.method} {self.target}"


@frozen
class MerchantData:
    """A stopped node's files, and the names of what is in them."""

    folder: Path
    orders: list[Order] = field(factory=list)
    txids: list[bytes] = field(factory=list)
    """Of every transfer that was broadcast."""
    watches: list[str] = field(factory=list)
    """Their ids."""
    side_blocks: list[str] = field(factory=list)
    """The hashes of blocks that a reorganisation has undone."""

    @classmethod
    def build(cls, folder: Path) -> "MerchantData":
        """Let a node make them; takes some seconds."""
        folder.mkdir(mode=0o700)
        data = cls(folder)
        with repeatable(1):
            _Builder(data).build()
        return data

    @property
    def addresses(self) -> list[str]:
        """Everybody who has, or had, coins, and one who has none."""
        return [*map(_address, [*_NAMES, "nobody"]), *dict.fromkeys(order.recipient for order in self.orders)]

    def questions(self) -> list[Question]:
        """Every question whose answer changes nothing."""
        rpc = [
            *("status", "consensus", "rules", "fees", "proof/chain", "commerce/info", "commerce/catalog"),
            *(f"block/{height}" for height in range(0, BLOCKS + 1, 6)),
            *(f"transaction/{txid.hex()}" for txid in self.txids[::2]),
            *(f"balance/{address}" for address in self.addresses),
            *(f"address/{address}/transactions?limit=40" for address in self.addresses[::2]),
            *(f"address/{address}/statement?limit=100" for address in self.addresses[::6]),
            *(f"mempool/{address}" for address in self.addresses[::6]),
            *(f"proof/account/{address}" for address in self.addresses[::5]),
            *(f"commerce/payment/{quote(order.reference)}?{order.query}" for order in self.orders),
            *(f"commerce/payment/{quote(order.reference)}/proof?{order.query}" for order in self.orders[::9]),
            *(
                f"commerce/payments?recipient={order.recipient}&reference={quote(order.reference)}"
                f"&amountBaseUnits={order.amount}"
                for order in self.orders[::9]
            ),
            *(f"commerce/payments?recipient={order.recipient}&limit=50" for order in self.orders[:3]),
            "commerce/confirmations?amount=50",
        ]
        blocks = [f"/p2p/blocks?from={height}&limit=16" for height in range(0, BLOCKS + 1, 16)]
        headers = [f"/p2p/headers?from={height}" for height in range(0, BLOCKS + 1, 64)]
        pages = [
            *("/", "/blocks", "/mempool", "/peers"),
            *(f"/block/{height}" for height in (1, BLOCKS - 4)),
            *(f"/block/{side}" for side in self.side_blocks),
            *(f"/tx/{txid.hex()}" for txid in self.txids[::97]),
            *(f"/address/{address}" for address in self.addresses[-3:-2]),
            *(f"/reference/{quote(order.reference)}" for order in self.orders[::80]),
            *(f"/pay/?reference={quote(order.reference)}&{order.query}" for order in self.orders[::80]),
        ]
        public = ["/p2p/status", "/p2p/peers", "/p2p/transactions", *blocks, *headers, *pages]
        hooks = ["?limit=50", *(f"?state={state}" for state in ("unpaid", "confirming", "confirmed", "expired"))]
        hooks += [f"?reference={quote(order.reference)}" for order in self.orders[:40:10]]
        return [
            *(Question("GET", path, operator=True) for path in ("/ready", "/operator/status", "/operator/peers")),
            *(Question("GET", f"/rpc/{path}") for path in rpc),
            *(Question("GET", path) for path in public),
            *(Question("GET", f"/rpc/commerce/webhooks{query}", merchant=True) for query in hooks),
            *(Question("GET", f"/rpc/commerce/webhooks/{watch}", merchant=True) for watch in self.watches),
        ]

    def later_questions(self) -> list[Question]:
        """What is asked again after each change of the chain."""
        paths = [
            "/rpc/status",
            f"/p2p/blocks?from={BLOCKS - 8}&limit=16",
            "/p2p/transactions",
            *(f"/rpc/balance/{address}" for address in self.addresses[::8]),
            *(f"/rpc/commerce/payment/{quote(each.reference)}?{each.query}" for each in self.orders[-24:]),
        ]
        return [
            Question("GET", "/ready", operator=True),
            *(Question("GET", path) for path in paths),
            *(Question("GET", f"/rpc/commerce/webhooks/{watch}", merchant=True) for watch in self.watches),
        ]

    def last_questions(self) -> list[Question]:
        """What is asked once the node has looked at its snapshots."""
        heights = SNAPSHOT_BLOCKS, 2 * SNAPSHOT_BLOCKS
        parts = [f"/p2p/snapshot/{height}{chunk}" for height in heights for chunk in ("", "/0")]
        return [Question("GET", path) for path in (*parts, "/p2p/status")]


_NAMES: Final = tuple(f"customer {number}" for number in range(CUSTOMERS))
SHOPS: Final = ("books", "music", "tea")


def _address(name: str) -> str:
    return address_of(name, DEVNET.address_prefix)


class _Builder:
    """Lets a node live through the merchant's year."""

    def __init__(self, data: MerchantData) -> None:
        self.data = data
        self.node = WholeNode(config_at(data.folder), BUILT_AT)
        self.nonces: dict[bytes, int] = {}

    def build(self) -> None:
        """Coins for everybody, orders with watches, payments of several kinds, two reorganisations, and a stop."""
        self.node.start()
        addresses = list(map(_address, _NAMES))
        for first in range(0, CUSTOMERS, MAX_WAITING):
            self.send(FAUCET_SEED, *((each, 500 * COIN, None) for each in addresses[first : first + MAX_WAITING]))
            self.mine(1)
        self.data.orders.extend(
            Order(f"order-{number}", COIN // 4 + 1_000 * number, _address(SHOPS[number % 3]))
            for number in range(ORDERS)
        )
        for number, order in enumerate(self.data.orders):
            if number % 6 == 0:
                self.watch(order, number)
            if number % 2 == 1:
                self.mine(1)
            self.pay(number, order)
            if number in (ORDERS // 2, ORDERS - 20):
                self.reorganise()
        missing = BLOCKS - self.height
        assert missing > 0, "there are more blocks than expected"
        self.mine(missing)
        for number, order in list(enumerate(self.data.orders))[-3:]:
            self.pay(number + 1, order)
        for identifier in self.data.watches[3::11]:
            self.asked(Question("POST", f"/rpc/commerce/webhooks/{identifier}/cancel", merchant=True))
        for address in BANNED:
            self.asked(Question("POST", "/operator/peers/ban", {"address": address, "seconds": 100_000}, operator=True))
        self.node.reactor.advance(snapshots.CHECK_SECONDS)
        self.node.stop()

    def watch(self, order: Order, number: int) -> None:
        """Register a watch for an order; one in five has a receiver that cannot be reached."""
        port = CLOSED_PORT if number % 5 == 0 else OPEN_PORT
        terms = {
            "reference": order.reference,
            "recipient": order.recipient,
            "amountBaseUnits": str(order.amount),
            "confirmations": CONFIRMATIONS,
            "callbackUrl": f"http://127.0.0.1:{port}/paid?for={quote(order.reference)}",
            "ttlSeconds": 3_600 if number % 4 == 0 else 86_400,
        }
        answer = self.asked(Question("POST", "/rpc/commerce/webhooks", terms, merchant=True))
        self.data.watches.append(answer["subscription"]["id"])

    def pay(self, number: int, order: Order) -> None:
        """Most orders are paid as asked; some too little, twice, not at all, or paid back."""
        seed = key_of(_NAMES[number % CUSTOMERS]).seed
        match number % 12:
            case 0:
                self.send(seed, (order.recipient, order.amount - 7, order.reference))
            case 1:
                self.send(seed, *[(order.recipient, order.amount, order.reference)] * 2)
            case 2:
                pass
            case 3:
                self.send(seed, (order.recipient, order.amount, order.reference))
                back = refund_reference(order.reference, self.data.txids[-1])
                self.send(key_of(_NAMES[0]).seed, (_address(_NAMES[number % CUSTOMERS]), order.amount, back))
            case 4:
                self.send(seed, (order.recipient, order.amount, order.reference), (order.recipient, COIN, None))
            case _:
                self.send(seed, (order.recipient, order.amount, order.reference))

    def send(self, seed: bytes, *payments: tuple[str, int, str | None]) -> None:
        """Broadcast transfers."""
        for recipient, amount, reference in payments:
            nonce = self.nonces.get(seed, 0)
            self.nonces[seed] = nonce + 1
            draft = Draft(
                recipient=recipient,
                amount=amount,
                fee=DEVNET.minimum_fee,
                nonce=nonce,
                timestamp=BUILT_AT * 1000,
                reference=reference,
            )
            transfer = sign_transfer(draft, seed=seed, params=DEVNET)
            self.asked(Question("POST", "/rpc/broadcast", _body(transfer)))
            self.data.txids.append(transfer.txid)

    def mine(self, blocks: int) -> None:
        """Make blocks, one by one, and let the events about them be delivered."""
        for _ in range(blocks):
            self.asked(Question("POST", "/operator/mine", {"blocks": 1}, operator=True))
            self.node.receive(refusing={CLOSED_PORT})

    def reorganise(self) -> None:
        """Undo the newest two blocks; their transfers return to the mempool."""
        height = self.height
        for undone in (height, height - 1):
            block = self.asked(Question("GET", f"/rpc/block/{undone}"))["block"]
            self.data.side_blocks.append(block["hash"])
        self.asked(Question("POST", "/operator/reorganise", {"depth": 2}, operator=True))
        self.node.receive(refusing={CLOSED_PORT})

    @property
    def height(self) -> int:
        """The height of the tip."""
        return int(self.asked(Question("GET", "/rpc/status"))["status"]["height"])

    def asked(self, question: Question) -> Any:
        """The answer to a question, which succeeds."""
        answer = question.answer(self.node)
        assert answer.status in (200, 201), (question, answer)
        return answer.json


def _body(transfer: Transfer) -> Any:
    return {"transaction": json.loads(transfer.wire)}
