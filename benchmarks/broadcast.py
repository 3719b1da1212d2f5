"""Transfers accepted per second by /rpc/broadcast, against a bare Klein route that gets the same bodies."""

import time
from pathlib import Path
from typing import Final

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.ground import Person, lay, nobody
from benchmarks.processes import DATABASE, bare, node
from benchmarks.program import main
from benchmarks.wrk import hammer

_FULL: Final = (6, 2, 12_000)
_QUICK: Final = (1, 1, 6_000)
"""Rounds, seconds of each, and how many transfers are ready for each: more than can be taken in."""


def measure(folder: Path, quick: bool) -> list[Row]:
    """Transfers accepted per second by /rpc/broadcast, against a bare Klein route that gets the same bodies."""
    rounds_wanted, seconds, ready = _QUICK if quick else _FULL
    people = [Person(number) for number in range(rounds_wanted * ready)]
    lay(folder / DATABASE, [person.key for person in people])
    found = Rounds()
    with node(folder) as served, bare(folder) as compared:
        for number in range(rounds_wanted):
            bodies = folder / f"bodies-{number}"
            _write(bodies, people[number * ready : (number + 1) * ready])
            baseline = _accepted(compared.url, seconds, str(bodies), "again")
            found.add(_accepted(f"{served.url}/rpc/broadcast", seconds, str(bodies)), baseline)
    return [
        found.row(
            "/rpc/broadcast, accepted transfers",
            unit="/s",
            baseline_is="/s, bare Klein route",
            goal=Goal("ratio", ">=", 0.25),
        )
    ]


def _write(file: Path, senders: list[Person]) -> None:
    """One request body a line; the first transfer of each of ``senders``, signed now."""
    now = int(time.time() * 1000)
    with file.open("wb") as lines:
        for person in senders:
            reference = f"order-{person.number}" if person.number % 2 else None
            transfer = person.pays(nobody(person.number), amount=5_000, timestamp=now, reference=reference)
            lines.write(b'{"transaction":' + transfer.wire + b"}\n")


def _accepted(url: str, seconds: int, *arguments: str) -> float:
    """Answers per second that say "accepted"; raises RuntimeError for any other, and where the bodies run out."""
    report = hammer(url, seconds=seconds, script="bodies.lua", arguments=arguments)
    if report.lines.get("Refusal") or report.lines["Exhausted"] != "0":
        raise RuntimeError(f"{url}: a transfer was refused, or too few are ready: {report.lines}")
    return int(report.lines["Accepted"]) / seconds


if __name__ == "__main__":
    main(measure)
