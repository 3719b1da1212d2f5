"""Mutate the rules and run their own fast tests on each mutant; `make mutate` does that.

It works on a copy in build/mutation, because mutmut writes beside what it mutates. It takes about an hour. The exit
status is 1 if fewer than 95 % are killed, or if one survives that tests/mutation/survivors.md does not explain.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.mutation.survivors import Mutant, explained

ROOT = Path(__file__).parents[2]
COPY = ROOT / "build" / "mutation"
COPIED = ("svcd", "tests", "twisted", "pyproject.toml")
LEAST_KILLED = 0.95
DEAD = ("killed", "timeout")
ENVIRONMENT = os.environ | {"HYPOTHESIS_PROFILE": "few", "SVCD_VECTORS": "none"}


def mutmut(*arguments: str) -> str:
    """What mutmut prints; it ends the program where it fails."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(command, cwd=COPY, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"mutmut {arguments[0]} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def copy() -> None:
    """A fresh copy of what is mutated and of what tries it."""
    shutil.rmtree(COPY, ignore_errors=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, COPY / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, COPY / name)


def outcomes() -> dict[str, str]:
    """How each mutant ended, by mutmut's name for it."""
    lines = [line.strip().rpartition(": ") for line in mutmut("results", "--all", "true").splitlines() if line.strip()]
    return {name: outcome for name, _, outcome in lines}


def main() -> int:
    """The exit status."""
    argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__).parse_args()
    copy()
    mutmut("run", f"--max-children={os.cpu_count() or 1}")
    found = outcomes()
    counts = Counter(found.values())
    dead = sum(counts[outcome] for outcome in DEAD)
    survivors = {Mutant.read(name, mutmut("show", name)) for name, outcome in found.items() if outcome not in DEAD}
    told = explained()
    print(f"{dead} of {len(found)} mutants killed, {dead / len(found):.1%} ({dict(counts)})")
    for mutant in sorted(survivors - told):
        print(f"survives, and nobody says why: {mutant.module}: {mutant.line}")
    for mutant in sorted(told - survivors):
        print(f"is explained, and does not survive: {mutant.module}: {mutant.line}")
    # On a busy machine one that is explained may run out of time: that fails nothing.
    return 0 if dead >= LEAST_KILLED * len(found) and survivors <= told else 1


if __name__ == "__main__":
    sys.exit(main())
