"""Says how much of each package the tests try, from coverage's JSON report, and whether that is enough.

A statement and a way that a branch may go count alike. The exit status is 1 if anything of `chain` is not tried, less
than 95 % of all else, or less than 90 % of a file.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ELSEWHERE, OF_A_FILE = 95, 90
WORST = 5


class Share(NamedTuple):
    """How many statements and ways of branches are tried, and how many there are."""

    tried: int
    all: int

    @property
    def percent(self) -> float:
        """What is tried of a hundred; nothing is tried wholly."""
        return 100 * self.tried / self.all if self.all else 100.0


def together(shares: Iterable[Share]) -> Share:
    """All of them as one."""
    tried = size = 0
    for share in shares:
        tried, size = tried + share.tried, size + share.all
    return Share(tried, size)


def files_of(report: str) -> dict[str, Share]:
    """Each file of a report that has something to try."""
    shares = {}
    for path, found in json.loads(report)["files"].items():
        count = found["summary"]
        size = count["num_statements"] + count["num_branches"]
        shares[path] = Share(count["covered_lines"] + count["covered_branches"], size)
    return {path: share for path, share in shares.items() if share.all}


def package_of(path: str) -> str:
    """`svcd/chain/block.py` stands in `chain`, and `svcd/tap.py` in `tap`."""
    return Path(path).with_suffix("").parts[1]


def problems(files: dict[str, Share]) -> list[str]:
    """What is less than it must be; a sentence each."""
    chain = {path: share for path, share in files.items() if package_of(path) == "chain"}
    found = [f"{path}: {share.all - share.tried} not tried, and all of chain must be" for path, share in chain.items()]
    found = [sentence for sentence, share in zip(found, chain.values(), strict=True) if share.tried < share.all]
    others = {path: share for path, share in files.items() if path not in chain}
    if (rest := together(others.values())).percent < ELSEWHERE:
        found.append(f"{rest.percent:.2f} % of all but chain is tried, and {ELSEWHERE} % must be")
    low = {path: share for path, share in others.items() if share.percent < OF_A_FILE}
    return found + [f"{path}: {share.percent:.1f} % is tried, and {OF_A_FILE} % must be" for path, share in low.items()]


def shown(files: dict[str, Share]) -> list[str]:
    """The lines of the table: each package, all of it, and the files that are tried least."""
    packages: dict[str, list[Share]] = {}
    for path, share in files.items():
        packages.setdefault(package_of(path), []).append(share)
    rows = [(package, together(shares)) for package, shares in sorted(packages.items())]
    outside = together(share for path, share in files.items() if package_of(path) != "chain")
    rows += [("all but chain", outside), ("everything", together(files.values()))]
    worst = sorted(files.items(), key=lambda entry: entry[1].percent)[:WORST]
    return [
        f"{'package':<32}{'to try':>8}{'tried':>8}",
        *(f"{name:<32}{share.all:>8,}{share.percent:>7.2f}%" for name, share in rows),
        "",
        "tried least:",
        *(f"{path:<32}{share.all:>8,}{share.percent:>7.2f}%" for path, share in worst),
    ]


def main(report: str, say: Callable[[str], object]) -> int:
    """Show the table and what is wrong; gives the exit status."""
    files = files_of(report)
    for line in shown(files):
        say(line)
    wrong = problems(files)
    for sentence in wrong:
        say(f"too little: {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).read_text(), print))
