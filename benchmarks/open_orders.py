"""A block that pays 2,000 of a shop's 100,000 open orders: until the shop has the payments, and until all events."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import copy
from typing import Final

import httpx
from svc_pay import DEVNET as NETWORK
from svc_pay import Client, Order, Orders, SqliteOrders, State
from svc_pay.order_book import new_order
from svc_pay.order_store import Update

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import Signer, build_blocks, create_chain, unowned_key
from benchmarks.processes import DATABASE, Served, fed_node
from benchmarks.program import main
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET

_FULL: Final = (100_000, 2_000, 5)
_QUICK: Final = (2_000, 100, 1)
"""Open orders, how many of them the block pays, rounds."""
_AMOUNT: Final = 1_000_000
_SHOP: Final = unowned_key(0)
_ADDRESS: Final = encode_address(_SHOP, DEVNET.address_prefix)
_POLL_SECONDS: Final = 0.002
_DEADLINE: Final = 120


def _reference(number: int) -> str:
    return f"order-{number}"


def _store(path: Path, count: int) -> None:
    """Write open orders, one confirmation each, as `Orders.add` would one by one."""
    orders = (Order(_reference(number), _ADDRESS, _AMOUNT, 1, 0, NETWORK) for number in range(count))
    store = SqliteOrders(path)
    store.write(Update(added=[new_order(order, None, 0).stored for order in orders]))
    store.close()


Reader = Callable[[str, Path, int], None]
"""Reads at a URL, with a store of open orders, until it has so many payments."""


def _read_feed(url: str, _store: Path, wanted: int) -> None:
    """Read the feed as text, as a shop does that applies it to a database of its own."""
    found, query = 0, {"limit": "1000", "wait": "30"}
    with httpx.Client(base_url=url, timeout=60) as node:
        while found < wanted:
            feed = node.get(f"/rpc/commerce/feed/{_ADDRESS}", params=query).json()["feed"]
            found += len(feed["entries"])
            query["after"] = feed["next"]


def _follow_orders(url: str, store: Path, wanted: int) -> None:
    """Take the events of `Orders`, each of which the store forgets when it was taken."""
    confirmed = set[str]()
    with Client(url, network=NETWORK) as node:
        for event in Orders(node, _ADDRESS, SqliteOrders(store)).changes():
            if event.payment.state is State.CONFIRMED:
                confirmed.add(event.payment.reference)
            if len(confirmed) == wanted:
                break


@contextmanager
def _node(folder: Path, blocks: Path) -> Iterator[Served]:
    """A node on a fresh chain in ``folder``, which takes the block in at a sign."""
    place = folder / "round"
    place.mkdir(exist_ok=True)
    copy(folder / "initial.sqlite", place / DATABASE)
    with fed_node(place, blocks) as served:
        yield served
        served.begin()
    (place / DATABASE).unlink()


def _connect(folder: Path, blocks: Path) -> tuple[float, int]:
    """Seconds until the block is the tip of a node that nobody reads from, and the peak of its memory in bytes."""
    with _node(folder, blocks) as served, httpx.Client(base_url=served.url) as client:
        client.get("/rpc/status")
        served.begin()
        began = time.perf_counter()
        while client.get("/rpc/status").json()["status"]["height"] != "1":
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - began, served.peak_bytes()


def _tell(folder: Path, blocks: Path, wanted: int, read: Reader) -> tuple[float, int]:
    """Seconds until the reader has the payments of the block, and the peak of the node's memory."""
    store = folder / "round.orders"
    copy(folder / "orders", store)
    with _node(folder, blocks) as served, ThreadPoolExecutor(1) as threads:
        reading = threads.submit(read, served.url, store, wanted)
        # The reader waits at the tip when nothing is left to be read.
        time.sleep(1)
        served.begin()
        began = time.perf_counter()
        reading.result(_DEADLINE)
        seconds, peak = time.perf_counter() - began, served.peak_bytes()
    for file in folder.glob("round.orders*"):
        file.unlink()
    return seconds, peak


def measure(folder: Path, quick: bool) -> list[Row]:
    """Until the payments of a block have reached a shop with many open orders, against connecting the block alone."""
    count, paid, rounds_wanted = _QUICK if quick else _FULL
    initial, draft, blocks = folder / "initial.sqlite", folder / "draft.sqlite", folder / "blocks"
    signers = [Signer(number) for number in range(paid)]
    create_chain(initial, [signer.key for signer in signers])
    copy(initial, draft)
    terms = {"amount": _AMOUNT, "timestamp": DEVNET.genesis_time}
    body = [
        signer.pays(_SHOP, **terms, reference=_reference(number * (count // paid)))
        for number, signer in enumerate(signers)
    ]
    blocks.write_bytes(b"\n".join(build_blocks(draft, [body])))
    _store(folder / "orders", count)
    reads, events, peaks = Rounds(), Rounds(), Rounds()
    for _ in range(rounds_wanted):
        connected, alone = _connect(folder, blocks)
        read, _ = _tell(folder, blocks, paid, _read_feed)
        told, peak = _tell(folder, blocks, paid, _follow_orders)
        reads.add(read * 1000, connected * 1000)
        events.add(told * 1000, connected * 1000)
        peaks.add(peak / 1e6, alone / 1e6)
    name = f"{paid:,} payments of a block"
    return [
        reads.row(
            f"{name} read from the feed", unit="ms", baseline_is="ms, to connect it", goal=Goal("ratio", "<=", 1.5)
        ),
        events.row(f"{name} as events of `Orders`, {count:,} open", unit="ms", baseline_is="ms, to connect it"),
        peaks.row(f"memory of the node, {name} and {count:,} open orders", unit="MB", baseline_is="MB, without a shop"),
    ]


if __name__ == "__main__":
    main(measure)
