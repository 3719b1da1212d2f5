"""Transfers accepted per second by /rpc/broadcast, against a bare Klein route that gets the same bodies.

And how long an answer to GET /rpc/status takes beside that.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.figures import Goal, Rounds, Row, latency
from benchmarks.paced import Paced
from benchmarks.prepared_chain import Signer, create_chain, unowned_key
from benchmarks.processes import DATABASE, Served, bare, node
from benchmarks.program import main
from benchmarks.wrk import hammer

_FULL: Final = (6, 2, 12_000)
_QUICK: Final = (1, 1, 6_000)
"""Rounds, seconds of each, and how many transfers are ready for each: more than can be taken in."""
_CONNECTIONS: Final = 64
_PER_SECOND: Final = 50
"""Questions for the status meanwhile: too few to count as load."""
_IDLE_SECONDS: Final = 2.0


def measure(folder: Path, quick: bool) -> list[Row]:
    """Transfers accepted per second by /rpc/broadcast, against a bare Klein route that gets the same bodies."""
    rounds_wanted, seconds, ready = _QUICK if quick else _FULL
    signers = [Signer(number) for number in range(rounds_wanted * ready)]
    create_chain(folder / DATABASE, [signer.key for signer in signers])
    found = Rounds()
    beside: list[float] = []
    with node(folder) as served, bare(folder) as compared:
        until = time.monotonic() + _IDLE_SECONDS
        idle = Paced(served.port, _PER_SECOND).ask_until(lambda _: time.monotonic() > until)
        for number in range(rounds_wanted):
            bodies = folder / f"bodies-{number}"
            write_bodies(bodies, signers[number * ready : (number + 1) * ready])
            baseline = _accepted(compared.url, seconds, str(bodies), "again")
            accepted, latencies = _with_status(served, seconds, str(bodies))
            found.add(accepted, baseline)
            beside += latencies
    return [
        found.row(
            f"/rpc/broadcast, accepted transfers, {_CONNECTIONS} connections",
            unit="/s",
            baseline_is="/s, bare Klein route",
            goal=Goal("ratio", ">=", 0.45),
        ),
        latency(
            "/rpc/status, 99th percentile, beside broadcasts",
            beside,
            idle,
            baseline_is="nothing to do",
            goal=Goal("figure", "<=", 20),
        ),
    ]


def _with_status(served: Served, seconds: int, bodies: str) -> tuple[float, list[float]]:
    """Transfers accepted per second, and the seconds that answers to GET /rpc/status took meanwhile."""
    with ThreadPoolExecutor(1) as thread:
        accepted = thread.submit(_accepted, f"{served.url}/rpc/broadcast", seconds, bodies)
        latencies = Paced(served.port, _PER_SECOND).ask_until(lambda _: accepted.done())
        return accepted.result(), latencies


def write_bodies(file: Path, senders: list[Signer]) -> None:
    """One request body a line; the first transfer of each of ``senders``, signed now."""
    now = int(time.time() * 1000)
    with file.open("wb") as lines:
        for signer in senders:
            reference = f"order-{signer.number}" if signer.number % 2 else None
            transfer = signer.pays(unowned_key(signer.number), amount=1_000_000, timestamp=now, reference=reference)
            lines.write(b'{"transaction":' + transfer.wire + b"}\n")


def _accepted(url: str, seconds: int, *arguments: str) -> float:
    """Answers per second that say "accepted"; raises RuntimeError for any other, and where the bodies run out."""
    report = hammer(url, seconds=seconds, connections=_CONNECTIONS, script="bodies.lua", arguments=arguments)
    if report.lines.get("Refusal") or report.lines["Exhausted"] != "0":
        raise RuntimeError(f"{url}: a transfer was refused, or too few are ready: {report.lines}")
    return int(report.lines["Accepted"]) / seconds


if __name__ == "__main__":
    main(measure)
