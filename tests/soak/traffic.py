"""The traffic of a soak test, round by round: orders, payments, blocks, reorganisations, and who reads or hangs up."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

from attrs import define, frozen

from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from svcd.commerce.payment_request import parse_uri
from tests.chains import address_of, key_of
from tests.soak.nodes import ManagedNode, Shop, await_that

WALLETS = ("alice", "bob", "carol", "dora")
PAYMENTS = 4
"""Of each wallet, in a round."""
REQUIRED = 3
MINING = 8
SHOP = address_of("shop", "svcd")
SHORTEST_TTL = 60
LONG_TTL = 300
LEFT_ALONE = 7
"""One watch in so many ends by itself, the others are ended by their shop: a host may have 2000 at a time."""


@frozen(eq=False)
class Order:
    """A payment that a shop waits for, at the node that the shop asks."""

    node: ManagedNode
    watch: str
    request: dict[str, Any]

    @property
    def state(self) -> str:
        """What the node says of the payment."""
        return str(self.node.get(self.request["statusPath"])["payment"]["state"])

    def cancel(self) -> None:
        """End the watch."""
        self.node.ok(self.node.ask("POST", f"/rpc/commerce/webhooks/{self.watch}/cancel", {}))


@define
class Wallet:
    """Signs its payments in turn, and sends each until it is known."""

    name: str
    nonce: int = 0

    def pay(self, order: Order, at: ManagedNode) -> bytes:
        """Sign what an order's link asks for and send it to a node; gives what was sent."""
        terms = parse_uri(order.request["paymentUri"], DEVNET).terms
        draft = Draft(
            recipient=terms.recipient,
            amount=terms.amount,
            fee=DEVNET.minimum_fee,
            nonce=self.nonce,
            timestamp=int(time.time() * 1000),
            reference=terms.reference,
        )
        self.nonce += 1
        sent = b'{"transaction":' + sign_transfer(draft, seed=key_of(self.name).seed, params=DEVNET).wire + b"}"
        send(sent, at)
        return sent


def send(transfer: bytes, at: ManagedNode) -> None:
    """Hand a transfer to a node, which may have had it before, in a block even."""
    answer = at.ask("POST", "/rpc/broadcast", transfer)
    assert answer.status == 200 or "is already used" in answer.error, answer


class Traffic:
    """Drives both nodes, and counts what it has done."""

    def __init__(self, maker: ManagedNode, follower: ManagedNode, shop: Shop) -> None:
        self.maker = maker
        self.follower = follower
        self.shop = shop
        self.payments = 0
        self.reorganisations = 0
        self.expired = 0
        self._wallets = [Wallet(name) for name in WALLETS]
        self._numbers: Iterator[int] = count(1)
        self._unpaid: list[tuple[float, Order]] = []
        for wallet in self._wallets:
            recipient = address_of(wallet.name, "svcd")
            self.maker.order("/operator/faucet", {"recipient": recipient, "amount": "10000"})
        self.maker.mine(1)
        self._meet()

    def round(self, *, quiet: bool) -> None:
        """From orders to their confirmation; ``quiet`` if no node is ended meanwhile, so that each step is told."""
        number = next(self._numbers)
        self._watch_in_vain(number)
        with ThreadPoolExecutor(len(self._wallets)) as threads:
            done = list(threads.map(lambda each: self._order_and_pay(number, *each), enumerate(self._wallets)))
        paid = dict(each for orders in done for each in orders)
        self._reach_mempool(paid)
        self.maker.mine(1)
        reorganises = number % 2 == 0
        if reorganises:
            self._reorganise(list(paid), depth=1 + number % 3, quiet=quiet)
        self.maker.mine(MINING)
        self._confirm(paid)
        self._check_stories(list(paid), reorged=reorganises and quiet)
        self._meet()
        self._expire()
        self.payments += len(paid)
        self.reorganisations += reorganises

    def _order_and_pay(self, number: int, place: int, wallet: Wallet) -> list[tuple[Order, bytes]]:
        nodes = (self.maker, self.follower)
        orders = [
            self._order(nodes[each % 2], f"{number}-{wallet.name}-{each}", ttlSeconds=LONG_TTL)
            for each in range(PAYMENTS)
        ]
        sent = [wallet.pay(order, nodes[place % 2]) for order in orders]
        node = nodes[(place + number) % 2]
        address = address_of(wallet.name, "svcd")
        for target in (f"/rpc/balance/{address}", f"/rpc/address/{address}/transactions", "/", "/rpc/openapi.json"):
            node.ask("GET", target)
        _hang_up(node)
        return list(zip(orders, sent, strict=True))

    def _order(self, node: ManagedNode, reference: str, **terms: object) -> Order:
        asked = {"recipient": SHOP, "amount": "0.01", "reference": reference, "confirmations": REQUIRED}
        request = node.ok(node.ask("POST", "/rpc/commerce/payment-request", asked))["payment"]
        callback = {"callbackUrl": f"https://localhost:{self.shop.port}/paid"}
        watch = node.ok(node.ask("POST", "/rpc/commerce/webhooks", {**asked, **callback, **terms}))
        return Order(node, watch["subscription"]["id"], request)

    def _watch_in_vain(self, number: int) -> None:
        for node in (self.maker, self.follower):
            self._order(node, f"{number}-cancelled").cancel()
            unpaid = self._order(node, f"{number}-unpaid", ttlSeconds=SHORTEST_TTL)
            self._unpaid.append((time.monotonic() + SHORTEST_TTL, unpaid))

    def _reach_mempool(self, paid: dict[Order, bytes]) -> None:
        """A transfer whose node was killed before it told others is sent once more, as wallets do."""
        for order, sent in paid.items():
            send(sent, self.maker)
            assert order.node is not self.maker or order.state != "unpaid"

    def _reorganise(self, orders: list[Order], *, depth: int, quiet: bool) -> None:
        if quiet:
            self._hear(orders, "confirming")
        self.maker.order("/operator/reorganise", {"depth": depth})
        if quiet:
            self._hear(orders, "reorged")

    def _confirm(self, paid: dict[Order, bytes]) -> None:
        for order, sent in paid.items():
            # What waited in a node that was killed may have been forgotten with it.
            if not self._is_confirming(order):
                send(sent, self.maker)
                self.maker.mine(REQUIRED)
        self._hear(list(paid), "confirmed")

    def _is_confirming(self, order: Order) -> bool:
        state = self.maker.get(order.request["statusPath"])["payment"]["state"]
        return state in ("confirming", "confirmed")

    def _hear(self, orders: list[Order], name: str) -> None:
        """Wait until this was told of each."""
        for order in orders:
            await_that(partial(self._was_told, order, name), partial(self._told, order, name))

    def _was_told(self, order: Order, name: str) -> bool:
        return name in self.shop.told(order.watch)

    def _told(self, order: Order, missing: str) -> str:
        return f"{order.watch} at the {order.node.name} told {self.shop.told(order.watch)}; missing: {missing}"

    def _check_stories(self, orders: list[Order], *, reorged: bool) -> None:
        """What came is what the nodes have written down that they would tell, and ends as the payment did."""
        for order in orders:
            await_that(partial(self._agrees, order), partial(self._told, order, "what the node has written down"))
            told = self.shop.told(order.watch)
            assert told[-1] == "confirmed", told
            assert "reorged" in told or not reorged, told
        self.shop.forget({order.watch for order in orders})
        for place, order in enumerate(orders):
            if place % LEFT_ALONE:
                order.cancel()

    def _agrees(self, order: Order) -> bool:
        events = order.node.get(f"/rpc/commerce/webhooks/{order.watch}")["subscription"]["events"]
        due = {event["id"] for event in events if not event.get("superseded")}
        come = set(self.shop.stories[order.watch])
        assert come <= {event["id"] for event in events}, (events, come)
        return due <= come and all(event["deliveredAt"] or event.get("superseded") for event in events)

    def _meet(self) -> None:
        """Both nodes come to have the same chain, and the same state after it."""
        await_that(lambda: self.maker.tip() == self.follower.tip(), lambda: f"{self.maker.tip()} {self.follower.tip()}")

    def _expire(self) -> None:
        """Whatever should have expired for some seconds is told to have."""
        over = [order for at, order in self._unpaid if time.monotonic() > at + 5]
        self._hear(over, "expired")
        self.expired += len(over)
        watches = {order.watch for order in over}
        assert all(self.shop.told(watch) == ["expired"] for watch in watches)
        self._unpaid = [(at, order) for at, order in self._unpaid if order.watch not in watches]
        self.shop.forget(watches)


def _hang_up(node: ManagedNode) -> None:
    """A client that goes away in the middle of its request."""
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=60) as client:
            client.sendall(b"POST /rpc/broadcast HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n{")
    except OSError:
        return
