"""Empty blocks connected per second on devnet, against raw Argon2 on two threads."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import build_blocks, create_chain
from benchmarks.program import main, on_reactor
from svcd.chain.params import DEVNET
from svcd.chain.work import work_value

_BATCH: Final = 64
_THREADS: Final = 2
_GAP: Final = 2 * DEVNET.slots_per_block
"""Blocks that come slower than they should ease the target, so that they are found soon; checking costs the same."""


def hashes_per_second(count: int) -> float:
    """How many work values of devnet's memory cost two threads compute in a second."""

    def compute(thread: int) -> None:
        for number in range(count // _THREADS):
            work_value(bytes(32), (number * _THREADS + thread).to_bytes(8, "big"), DEVNET.memory_kib)

    with ThreadPoolExecutor(_THREADS) as pool:
        began = perf_counter()
        for _ in pool.map(compute, range(_THREADS)):
            pass
        return count / (perf_counter() - began)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Empty blocks connected per second on devnet, against raw Argon2 on two threads."""
    rounds_wanted, count = (2, 192) if quick else (5, 2_048)
    initial, draft = folder / "initial.sqlite", folder / "draft.sqlite"
    create_chain(initial, [])
    shutil.copy(initial, draft)
    blocks = build_blocks(draft, ([] for _ in range(count)), gap=_GAP)
    batches = [blocks[start : start + _BATCH] for start in range(0, count, _BATCH)]

    async def run(reactor: Any) -> Rounds:
        rounds = Rounds()
        for number in range(rounds_wanted):
            fresh = folder / f"round-{number}.sqlite"
            shutil.copy(initial, fresh)
            async with opened(fresh, reactor) as node_context:
                baseline = hashes_per_second(count)
                began = perf_counter()
                await feed(node_context.chain_manager, batches)
                rounds.add(count / (perf_counter() - began), baseline)
        return rounds

    return [
        on_reactor(run).row(
            "empty blocks connected",
            unit="/s",
            baseline_is="Argon2/s, two threads",
            goal=Goal("ratio", ">=", 0.35),
        )
    ]


if __name__ == "__main__":
    main(measure)
