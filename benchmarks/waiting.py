"""What transfers that wait cost a node: how much longer it takes to start, and the memory for each."""

import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import Signer, create_chain, unowned_key
from benchmarks.processes import DATABASE, node
from benchmarks.program import main
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer
from svcd.store.mempool_journal import FILE, MempoolJournal

_FULL: Final = (5, 10_000)
_QUICK: Final = (1, 2_000)
"""Rounds, and how many transfers wait, each of another sender."""
_LONGER: Final = 0.3
"""How many seconds longer a start may take for them."""


def measure(folder: Path, quick: bool) -> list[Row]:
    """How long a node takes from its start until it listens, and what it then has resident, against one with none."""
    rounds_wanted, count = _QUICK if quick else _FULL
    signers = [Signer(number) for number in range(count)]
    transfers = _payments(signers)
    with_, without = folder / "with", folder / "without"
    _prepare(with_, signers, transfers)
    _prepare(without, signers, [])
    starts, resident = Rounds(), Rounds()
    for _ in range(rounds_wanted):
        (seconds, memory), (seconds_without, memory_without) = _started(with_), _started(without)
        starts.add(seconds, seconds_without)
        resident.add((memory - memory_without) / count, median([len(transfer.wire) for transfer in transfers]))
    return [
        starts.row(
            f"start with {count:,} waiting transfers",
            unit="s",
            baseline_is="s, none wait",
            goal=Goal("figure", "<=", round(median(starts.baselines) + _LONGER, 2)),
        ),
        resident.row(
            f"memory for each of {count:,} waiting transfers",
            unit="bytes",
            baseline_is="bytes of JSON",
            goal=Goal("figure", "<=", 2_048),
        ),
    ]


def _payments(signers: Sequence[Signer]) -> list[Transfer]:
    """The first transfer of each, no two alike; every other one has a reference."""
    now = int(time.time() * 1000)
    return [
        signer.pays(
            unowned_key(signer.number),
            amount=1_000_000 + signer.number,
            timestamp=now + signer.number,
            reference=f"order-{signer.number}" if signer.number % 2 else None,
        )
        for signer in signers
    ]


def _prepare(folder: Path, signers: Sequence[Signer], transfers: Sequence[Transfer]) -> None:
    """A data directory in which everybody has a fortune and ``transfers`` wait."""
    folder.mkdir()
    create_chain(folder / DATABASE, [signer.key for signer in signers])
    journal = MempoolJournal(folder / FILE, DEVNET)
    journal.load()
    journal.write(enumerate(transfers, 1), [])
    journal.close()


def _started(folder: Path) -> tuple[float, int]:
    """Seconds until a node on ``folder`` listens, and the bytes that it has resident then."""
    began = time.perf_counter()
    with node(folder) as served:
        return time.perf_counter() - began, served.resident_bytes()


if __name__ == "__main__":
    main(measure)
