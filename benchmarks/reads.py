"""Answers per second of the routes that read, against a bare Klein route, by wrk with 16 connections."""

from pathlib import Path
from typing import Final

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.ground import forge, lay, nobody
from benchmarks.processes import DATABASE, bare, node
from benchmarks.program import main
from benchmarks.wrk import hammer
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET


@frozen
class Read:
    """One question: its paths, in turn, and the ratio that is wanted."""

    name: str
    paths: tuple[str, ...]
    wanted: float


def _reads(accounts: int) -> list[Read]:
    addresses = [encode_address(nobody(number), DEVNET.address_prefix) for number in range(accounts)]
    return [
        Read("/rpc/status", ("/rpc/status",), 0.6),
        Read(f"/rpc/balance, {accounts:,} accounts", tuple([f"/rpc/balance/{text}" for text in addresses]), 0.5),
        Read("/rpc/block, an empty block", ("/rpc/block/1",), 0.4),
    ]


_FULL: Final = (100_000, 7, 3)
_QUICK: Final = (1_000, 1, 1)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Answers per second of the routes that read, against a bare Klein route, by wrk with 16 connections."""
    accounts, rounds_wanted, seconds = _QUICK if quick else _FULL
    reads = _reads(accounts)
    lay(folder / DATABASE, map(nobody, range(accounts)))
    forge(folder / DATABASE, [()])
    found = {read: Rounds() for read in reads}
    with node(folder) as served, bare(folder) as compared:
        for _ in range(rounds_wanted):
            for number, read in enumerate(reads):
                paths = folder / f"paths-{number}"
                paths.write_text("".join(f"{path}\n" for path in read.paths), "ascii")
                baseline = hammer(compared.url, seconds=seconds).answers_per_second
                report = hammer(served.url, seconds=seconds, script="paths.lua", arguments=(str(paths),))
                found[read].add(report.answers_per_second, baseline)
    return [
        rounds.row(read.name, unit="/s", baseline_is="/s, bare Klein route", goal=Goal("ratio", ">=", read.wanted))
        for read, rounds in found.items()
    ]


if __name__ == "__main__":
    main(measure)
