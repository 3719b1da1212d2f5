"""Runs the benchmarks one after the other, each in a process of its own, and shows one table of them all.

The exit status is 1 if one of them could not run, never because a figure is short of what is wanted.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Row, load, save, table

BENCHMARKS: Final = {
    "transfers": "benchmarks.transfers",
    "empty-blocks": "benchmarks.empty_blocks",
    "headers": "benchmarks.headers",
    "reads": "benchmarks.reads",
    "broadcast": "benchmarks.broadcast",
    "state-root": "benchmarks.state_root",
    "memory": "benchmarks.memory",
    "waiting": "benchmarks.waiting",
    "latency": "benchmarks.latency",
    "sync": "benchmarks.sync",
    "watches": "benchmarks.watches",
    "many-watches": "benchmarks.many_watches",
    "callbacks": "benchmarks.callbacks",
    "two-merchants": "benchmarks.two_merchants",
    "postgresql": "benchmarks.postgresql",
    "verification": "benchmarks.verification",
    "feed": "benchmarks.feed",
    "open-orders": "benchmarks.open_orders",
    "trustless": "benchmarks.trustless",
    "pruning": "benchmarks.pruning",
    "reorganisation": "benchmarks.reorganisation",
    "big": "benchmarks.big",
    "wallet-page": "benchmarks.wallet_page",
}
"""The module of each; those that hammer the node over HTTP need wrk, and the last one needs Chromium."""


def run(name: str, folder: Path, *, quick: bool) -> list[Row] | None:
    """The rows of one benchmark, or None if it failed: what went wrong is on standard error."""
    file = folder / f"{name}.json"
    command = [sys.executable, "-m", BENCHMARKS[name], "--json", str(file), *(["--quick"] if quick else [])]
    print(f"{name} …", file=sys.stderr, flush=True)
    if subprocess.run(command, cwd=Path(__file__).parent.parent).returncode:
        print(f"{name} failed", file=sys.stderr)
        return None
    return load(file)


def main() -> int:
    """Run what the command line names; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="run this one (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that they run, not to measure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="svcd-benchmarks-") as folder:
        found = [run(name, Path(folder), quick=arguments.quick) for name in arguments.only or BENCHMARKS]
    rows = [row for part in found if part is not None for row in part]
    print(table(rows))
    if arguments.json is not None:
        save(rows, arguments.json)
    return 1 if None in found else 0


if __name__ == "__main__":
    sys.exit(main())
