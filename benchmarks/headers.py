"""Headers of mainnet whose participation work is verified per second, against raw Argon2 on every core."""

import os
from contextlib import closing
from pathlib import Path
from typing import Final

from attrs import evolve

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import build_blocks, create_chain
from benchmarks.program import main
from svcd.chain.params import MAINNET
from svcd.cli.operator.verify_chain import verify_headers
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_reader

_EASY: Final = evolve(MAINNET, initial_target=2**256 - 1, max_target=2**256 - 1)
"""Mainnet, but that the first hash is work enough: making the headers would take days, checking them costs the same."""

_GAP: Final = 2 * MAINNET.slots_per_block
"""Blocks that came faster than they should would make the target harder."""


def measure(folder: Path, quick: bool) -> list[Row]:
    """Headers of mainnet whose participation work is verified per second, against raw Argon2 on every core."""
    return _measure(folder, rounds_wanted=1 if quick else 3, count=40 if quick else 2_000)


def measure_so_many(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """The same of as many headers as said, once; they take longer to make than to verify."""
    return _measure(folder, rounds_wanted=1, count=40 if quick else int(number))


def _measure(folder: Path, *, rounds_wanted: int, count: int) -> list[Row]:
    path, rounds, threads = folder / "chain.sqlite", Rounds(), os.cpu_count() or 1
    create_chain(path, [], params=_EASY)
    build_blocks(path, ([] for _ in range(count)), gap=_GAP, params=_EASY)
    with closing(open_reader(path)) as connection:
        for _ in range(rounds_wanted):
            done = verify_headers(
                ChainReader(connection), _EASY, newest=None, threads=threads, step=lambda _headers: None
            )
            if done.wrong or done.count != count:
                raise RuntimeError(f"{done.count} of {count} headers hold: {done.wrong}")
            rounds.add(done.headers_per_second, done.raw_per_second)
    return [
        rounds.row(
            f"{count:,} headers of mainnet verified",
            unit="/s",
            baseline_is=f"Argon2/s, {threads} threads",
            goal=Goal("ratio", ">=", 0.9),
        )
    ]


if __name__ == "__main__":
    main(measure, {"headers": ("COUNT", measure_so_many)})
