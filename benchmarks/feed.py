"""The feed of an address: polls without news against /rpc/status, and a long catch-up with what it costs others."""

import re
import time
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Final
from urllib.parse import urlencode
from urllib.request import urlopen

from attrs import define

from benchmarks.figures import Goal, Rounds, Row, latency
from benchmarks.paced import Paced
from benchmarks.prepared_chain import unowned_key
from benchmarks.processes import DATABASE, Served, node
from benchmarks.program import main
from benchmarks.verification import Load, end_merges, lay_payments
from svcd.chain.address import encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import DEVNET

_FULL: Final = (1_000_000, 7, 3)
_QUICK: Final = (4_000, 1, 1)
"""Payments to one address, rounds, seconds of each."""
_READERS: Final = 1_000
"""Other addresses, whose feeds are polled in turn."""
_PAGE: Final = 1_000
_PER_SECOND: Final = 200
_NEXT: Final = re.compile(rb'"next":"([^"]+)"')


def _path(number: int, **query: object) -> str:
    recipient = encode_address(unowned_key(number), DEVNET.address_prefix)
    return f"/rpc/commerce/feed/{recipient}?{urlencode(query)}"


@define(eq=False, slots=False)
class _CatchUp(Thread):
    """Reads the feed of the address from its beginning to the tip, page after page."""

    port: int
    entries: int = 0
    seconds: float = 0.0

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def run(self) -> None:
        """Read."""
        connection, began = HTTPConnection("127.0.0.1", self.port), time.perf_counter()
        after: dict[str, str] = {}
        while True:
            connection.request("GET", _path(0, limit=_PAGE, **after))
            body = connection.getresponse().read()
            found = body.count(b'{"type":"payment"')
            if not found:
                break
            self.entries += found
            after = {"after": _next(body)}
        self.seconds = time.perf_counter() - began


def _next(body: bytes) -> str:
    found = _NEXT.search(body)
    if found is None:
        raise RuntimeError(f"the node gives no feed: {body[:1000]!r}")
    return found[1].decode("ascii")


def _polls(served: Served, folder: Path, rounds_wanted: int, seconds: int) -> Row:
    """The processor time of a poll without news, of another address each time, against that of a status."""
    with urlopen(served.url + _path(1, sinceHeight=MAX_INTEGER)) as answer:  # noqa: S310 -- our own process
        after = _next(answer.read())
    feeds, status = folder / "feeds", folder / "status"
    feeds.write_text("".join(f"{_path(number, after=after)}\n" for number in range(1, _READERS + 1)), "ascii")
    status.write_text("/rpc/status\n", "ascii")
    rounds = Rounds()
    for _ in range(rounds_wanted):
        poll, baseline = (Load.of(served, seconds, str(paths)).microseconds for paths in (feeds, status))
        rounds.add(poll, baseline)
    goal = Goal("ratio", "<=", 1.3)
    return rounds.row("a feed without news, processor time", unit="µs", baseline_is="µs, /rpc/status", goal=goal)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Polls without news against /rpc/status, and a long catch-up with what it costs others."""
    payments, rounds_wanted, seconds = _QUICK if quick else _FULL
    lay_payments(folder / DATABASE, payments, merchants=1)
    end_merges(folder / DATABASE)
    with node(folder) as served:
        polls = _polls(served, folder, rounds_wanted, seconds)
        client, until = Paced(served.port, _PER_SECOND), time.monotonic() + seconds
        idle = client.ask_until(lambda _: time.monotonic() > until)
        reader = _CatchUp(served.port)
        reader.start()
        busy = client.ask_until(lambda _: not reader.is_alive())
        reader.join()
    if reader.entries != payments:
        raise RuntimeError(f"the feed has {reader.entries} of {payments} payments")
    name = f"catch-up of {payments:,} payments"
    return [
        polls,
        Row(
            name=f"{name}, beside {_PER_SECOND} others a second",
            figure=reader.entries / reader.seconds,
            unit="/s",
            goal=Goal("figure", ">=", 20_000),
        ),
        latency(
            f"/rpc/status, 99th percentile, {name}",
            busy,
            idle,
            baseline_is="nothing to read",
            goal=Goal("figure", "<=", 20),
        ),
    ]


if __name__ == "__main__":
    main(measure)
