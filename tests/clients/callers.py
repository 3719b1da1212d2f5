"""Every program of the project that asks a node, as the suite of the hostile node asks with it.

A caller that stands in ``CALLERS`` is a subject of every case with all of its calls.
"""

import asyncio
import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final

import svc_pay
import svc_pay.light
from attrs import evolve, frozen
from click.testing import CliRunner
from svc_pay import AsyncClient, AsyncOrders, Client, Key, Order, Orders, SignedTransfer, State, WatchEvent

from svcd.chain.params import DEVNET
from svcd.chain.units import format_amount
from svcd.cli.clock import SystemClock
from svcd.cli.connections import connect
from svcd.cli.http_client import TIMEOUT, NodeConnection, NodeEndpoint
from svcd.cli.main import svc, system_runtime
from svcd.keyfile import Pbkdf2, render, seal
from tests.clients.feed_model import MemoryOrders
from tests.process_level.running import DEADLINE

SOON: Final = 0.5
"""Seconds after which a call is given up that is to be late."""
JS: Final = Path(__file__).with_name("js")


@frozen
class Outcome:
    """How a call has ended."""

    kind: str
    """The name of the error's class; "answered" if there was none."""
    sentence: str = ""

    @property
    def late(self) -> bool:
        """Whether no answer came in time, or none that the caller tells from none."""
        return (
            self.kind == "NodeUnreachable"
            or self.sentence == "wallet-script.node-silent"
            or "did not answer within" in self.sentence
        )


@frozen
class Shop:
    """What the calls are about, on a devnet where it was paid."""

    order: Order
    token: str
    paid: str
    """The txid of its payment."""
    transfer: SignedTransfer
    """Another one, which no node has yet."""
    watch: str
    event: str
    callback: str
    seed: bytes
    """Of the account that has paid."""
    received: str
    """The txid of the transfer that gave it its coins."""

    def as_json(self, seconds: float) -> dict[str, Any]:
        """For callers in JavaScript, which give a call up after so many seconds."""
        order = self.order
        return {
            "order": {
                "reference": order.reference,
                "recipient": order.recipient,
                "amount": str(order.amount),
                "confirmations": order.confirmations,
            },
            "token": self.token,
            "paid": self.paid,
            "transfer": {"txid": self.transfer.txid, "transaction": self.transfer.transaction},
            "watch": self.watch,
            "event": self.event,
            "callback": self.callback,
            "seed": self.seed.hex(),
            "timeout": seconds,
        }


class FewQuestions(MemoryOrders):
    """A store of open orders in memory for the only event of a shop, which gives up soon if nothing is told."""

    def __init__(self, shop: Shop) -> None:
        super().__init__()
        self._shop = shop
        self._left = 5

    def events(self, limit: int) -> list[tuple[int, str]]:
        """Raise NothingTold if the feed was asked some times."""
        self._left -= 1
        if self._left == 0:
            raise NothingTold
        return super().events(limit)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise Invented or Lost if an answer that was refused has left an event, or a place without the payment."""
        try:
            yield
        except Exception as error:
            if self.bodies:
                raise Invented(self.bodies) from None
            if isinstance(error, NothingTold):
                raise
            place = None if self.stored is None else json.loads(self.stored)
            if place is not None and self._shop.paid not in self.rows[self._shop.order.reference].text:
                raise Lost(place) from None
            raise

    def check(self, event: WatchEvent) -> None:
        """Raise Invented unless this is the event of the shop."""
        payment = event.payment
        told = event.name, payment.reference, payment.txid, payment.amount
        if told != ("payment.confirmed", self._shop.order.reference, self._shop.paid, self._shop.order.amount):
            raise Invented(event)


class NothingTold(Exception):
    """The answers of the feed, which were taken, have no payment of the order."""


class Invented(Exception):
    """An event that no right answer leads to."""


class Lost(Exception):
    """A place in the feed behind a payment that is not stored."""


class Caller(ABC):
    """A program that asks the node at a URL."""

    refusals: frozenset[str] = frozenset({"InvalidAnswer", "InvalidProof", "NodeUnreachable"})
    """The kinds of outcomes that say that the answer was not taken; no other error is one."""

    @abstractmethod
    def ask(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Make these calls, all at once."""

    @property
    @abstractmethod
    def calls(self) -> tuple[str, ...]:
        """The names of all calls."""

    @abstractmethod
    def close(self) -> None:
        """End it."""


def _python_calls(shop: Shop) -> Mapping[str, Callable[[Any], Any]]:
    """The calls of both clients in Python."""
    order, terms = shop.order, {"reference": shop.order.reference, "confirmations": shop.order.confirmations}
    key = Key(shop.seed)
    proven = {"verify_chain": [svc_pay.DEVNET], "proven_balance": [order.recipient], "proven_payment": [order]}
    return {
        "payment_request": lambda client: client.payment_request(order.recipient, order.amount, label="Tea", **terms),
        "payment": lambda client: client.payment(order),
        "wait_for": lambda client: client.wait_for(order, State.PENDING, timeout=SOON),
        "payments": lambda client: client.payments(
            order.recipient, reference=order.reference, amount=order.amount, since_height=1
        ),
        "proof": lambda client: client.proof(order),
        "block_hash": lambda client: client.block_hash(1),
        "register": lambda client: client.register(order, shop.callback),
        "watch": lambda client: client.watch(shop.watch),
        "watches": lambda client: client.watches(reference=order.reference),
        "redeliver": lambda client: client.redeliver(shop.watch, shop.event),
        "test_callback": lambda client: client.test_callback(shop.callback),
        "account": lambda client: client.account(order.recipient),
        "sign": lambda client: client.sign(key, svc_pay.DEVNET, recipient=order.recipient, amount=order.amount),
        "broadcast": lambda client: client.broadcast(shop.transfer),
        "orders": partial(_first_event, shop),
        **{name: partial(_proven, name, *about) for name, about in proven.items()},
        # Last: a watch that was cancelled delivers nothing again.
        "cancel": lambda client: client.cancel(shop.watch),
    }


def _proven(name: str, about: object, client: Client | AsyncClient) -> Any:
    return getattr(svc_pay.light, f"async_{name}" if isinstance(client, AsyncClient) else name)(client, about)


def _first_event(shop: Shop, client: Client | AsyncClient) -> Any:
    """Read the feed with a new store until it tells the event of the shop."""
    store = FewQuestions(shop)
    if isinstance(client, AsyncClient):
        return _first_event_async(shop, client, store)
    orders = Orders(client, shop.order.recipient, store)
    orders.add(shop.order)
    with store.checked():
        store.check(next(orders.changes()))
    return None


async def _first_event_async(shop: Shop, client: AsyncClient, store: FewQuestions) -> None:
    orders = AsyncOrders(client, shop.order.recipient, store)
    await orders.add(shop.order)
    with store.checked():
        store.check(await anext(orders.changes()))


def _ended(error: BaseException) -> Outcome:
    return Outcome(type(error).__name__, str(error))


class _PythonCaller(Caller):
    def __init__(self, url: str, shop: Shop, seconds: float) -> None:
        self._url = url
        self._given: dict[str, Any] = {"token": shop.token, "timeout": seconds, "retry_seconds": 1e9}
        self._calls = _python_calls(shop)

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(self._calls)


class SynchronousPython(_PythonCaller):
    """``svc_pay.Client``, one for all calls, in threads as a shop has them."""

    def __init__(self, url: str, shop: Shop, seconds: float) -> None:
        super().__init__(url, shop, seconds)
        self._client = Client(url, **self._given)
        self._threads = ThreadPoolExecutor(len(self._calls))

    def ask(self, names: Iterable[str]) -> dict[str, Outcome]:
        chosen = list(names)
        return dict(zip(chosen, self._threads.map(self._asked, chosen, timeout=DEADLINE), strict=True))

    def _asked(self, name: str) -> Outcome:
        try:
            self._calls[name](self._client)
            return Outcome("answered")
        except Exception as error:
            return _ended(error)

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        self._client.close()


class AsynchronousPython(_PythonCaller):
    """``svc_pay.AsyncClient``, one for all calls."""

    def __init__(self, url: str, shop: Shop, seconds: float) -> None:
        super().__init__(url, shop, seconds)
        self._client = AsyncClient(url, **self._given)
        self._runner = asyncio.Runner()

    def ask(self, names: Iterable[str]) -> dict[str, Outcome]:
        chosen = list(names)

        async def all_asked() -> list[Outcome]:
            return await asyncio.gather(*map(self._asked, chosen))

        return dict(zip(chosen, self._runner.run(all_asked()), strict=True))

    async def _asked(self, name: str) -> Outcome:
        try:
            async with asyncio.timeout(DEADLINE):
                await self._calls[name](self._client)
            return Outcome("answered")
        except Exception as error:
            return _ended(error)

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()


class JavaScript(Caller):
    """A program of `js/` that makes the calls of which it reads the names."""

    def __init__(self, url: str, shop: Shop, seconds: float, *, program: str) -> None:
        given = json.dumps({"url": url, **shop.as_json(seconds)})
        self._process = subprocess.Popen(
            ["node", JS / program, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._calls: tuple[str, ...] = tuple(self._line())

    @property
    def calls(self) -> tuple[str, ...]:
        return self._calls

    def ask(self, names: Iterable[str]) -> dict[str, Outcome]:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(list(names)) + "\n")
        return {name: Outcome(**told) for name, told in self._line().items()}

    def _line(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(DEADLINE)
        assert self._process.stdout
        self._process.stdout.close()


@frozen
class _FastClock:
    """The clock of this computer, in which the seconds of `svc` pass so many times as fast."""

    faster: float

    def milliseconds(self) -> int:
        """Unix milliseconds, as they are."""
        return SystemClock().milliseconds()

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return monotonic() * self.faster

    def sleep(self, seconds: float, /) -> None:
        """Wait."""
        sleep(seconds / self.faster)


@frozen
class _FastConnection:
    """A connection to a node, of which each wait ends sooner."""

    inner: NodeConnection
    faster: float

    def send(self, data: bytes, seconds: float, /) -> None:
        """Send all of ``data``."""
        self.inner.send(data, seconds / self.faster)

    def receive(self, size: int, seconds: float, /) -> bytes:
        """At most ``size`` bytes, none at the end."""
        return self.inner.receive(size, seconds / self.faster)

    def close(self) -> None:
        """End it."""
        self.inner.close()


class Svc(Caller):
    """The commands of `svc` that ask the public interface of a node, one after the other."""

    refusals = frozenset({"refused"})

    def __init__(self, url: str, shop: Shop, seconds: float) -> None:
        self._folder = TemporaryDirectory()
        folder = Path(self._folder.name)
        kdf = Pbkdf2(iterations=600_000)
        keyfile = render(seal(shop.seed, "password", params=DEVNET, random=os.urandom, kdf=kdf))
        self._files = {folder / "home" / "wallet.json": keyfile, folder / "home" / "password": b"password\n"}
        wallet, password = self._files
        unlocked = ("--yes", f"--password-file={password}")
        self._environment = {
            "SVCD_URL": url,
            "SVC_NETWORK": "devnet",
            "SVC_MANAGE_TOKEN": shop.token,
            "SVC_WALLET": str(wallet),
            "XDG_STATE_HOME": str(wallet.parent),
        }
        faster = TIMEOUT / seconds

        def connect_fast(endpoint: NodeEndpoint, seconds: float) -> NodeConnection:
            return _FastConnection(connect(endpoint, seconds / faster), faster)

        self._runtime = evolve(
            system_runtime(),
            connect=connect_fast,
            clock=_FastClock(faster),
            environ={**os.environ, **self._environment},
        )
        order = shop.order
        terms = (order.reference, order.recipient, format_amount(order.amount))
        asked = f"--confirmations={order.confirmations}"
        self._commands: dict[str, tuple[str, ...]] = {
            "status": ("status",),
            "balance": ("balance", order.recipient),
            "trustless balance": ("balance", order.recipient, "--trustless"),
            "block": ("block", "1"),
            "tx": ("tx", shop.paid),
            "confirmations": ("confirmations", "5"),
            "export": ("export", order.recipient),
            "pay-request": ("pay-request", *terms[1:], f"--reference={order.reference}", "--label=Tea", asked),
            "verify": ("verify", *terms, asked),
            "trustless verify": ("verify", *terms, asked, "--trustless"),
            "webhook register": ("webhook", "register", *terms, f"--callback={shop.callback}", asked),
            "webhook show": ("webhook", "show", order.reference),
            "webhook show id": ("webhook", "show", shop.watch),
            "webhook events": ("webhook", "events", order.reference),
            "webhook list": ("webhook", "list"),
            "webhook redeliver": ("webhook", "redeliver", shop.watch, shop.event),
            "webhook test": ("webhook", "trigger", "webhook.test", "--callback", shop.callback),
            "wallet history": ("wallet", "history"),
            "wallet send": ("wallet", "send", order.recipient, "5", "--again", *unlocked),
            "wallet refund": ("wallet", "refund", shop.received, *unlocked),
            "webhook cancel": ("webhook", "cancel", shop.watch),
        }

    @property
    def calls(self) -> tuple[str, ...]:
        return tuple(self._commands)

    def ask(self, names: Iterable[str]) -> dict[str, Outcome]:
        return {name: self._run(*self._commands[name]) for name in names}

    def _run(self, *words: str) -> Outcome:
        # A wallet that remembers what it has sent before would rather repeat that.
        home = Path(self._environment["XDG_STATE_HOME"])
        rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        for path, data in self._files.items():
            path.touch(mode=0o600)
            path.write_bytes(data)
        done = CliRunner(env=self._environment).invoke(svc, words, obj=self._runtime, prog_name="svc")
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            return _ended(done.exception)
        return Outcome({0: "answered", 1: "refused"}[done.exit_code], done.stderr)

    def close(self) -> None:
        """Remove its files."""
        self._folder.cleanup()


def _pages(url: str, shop: Shop, seconds: float) -> Caller:
    caller = JavaScript(url, shop, seconds, program="pages-caller.mjs")
    caller.refusals = frozenset({"node-unreachable", "wrong-network"})
    return caller


CALLERS: Final[Mapping[str, Callable[[str, Shop, float], Caller]]] = {
    "the synchronous client in Python": SynchronousPython,
    "the asynchronous client in Python": AsynchronousPython,
    "the client in JavaScript": partial(JavaScript, program="client-caller.mjs"),
    "the pages": _pages,
    "svc": Svc,
}
"""By name, what makes a caller of the node at a URL, which gives a call up after so many seconds."""
