"""The memory of a node that has taken up a chain with 10^6 accounts."""

from pathlib import Path

from benchmarks.figures import Goal, Row
from benchmarks.prepared_chain import create_chain, unowned_key
from benchmarks.processes import DATABASE, node
from benchmarks.program import main


def measure(folder: Path, quick: bool) -> list[Row]:
    """The most that a node has had resident when it has taken up its accounts, against one that has none."""
    count = 10_000 if quick else 1_000_000
    none, all_ = (_peak_megabytes(folder / str(accounts), accounts) for accounts in (0, count))
    return [
        Row(
            name=f"memory with {count:,} accounts",
            figure=all_,
            unit="MB",
            baseline=none,
            baseline_is="MB, no accounts",
            ratio=all_ / none,
            goal=Goal("figure", "<=", 300),
        )
    ]


def _peak_megabytes(folder: Path, accounts: int) -> float:
    folder.mkdir()
    create_chain(folder / DATABASE, map(unowned_key, range(accounts)))
    with node(folder) as served:
        return served.peak_bytes() / 1e6


if __name__ == "__main__":
    main(measure)
