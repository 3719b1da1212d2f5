"""Fuzz the parsers of untrusted input with atheris, each for FUZZ_SECONDS (60 by default); `make fuzz` does that.

What is found lies in build/fuzz/TARGET/; put it into tests/fuzz/found/TARGET/, where tests/fuzz/test_parsers.py tries
it ever after. The exit status is 1 if a parser broke its law.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzz.parsers import TARGETS

FOLDER = Path("build/fuzz")
FOUND = Path(__file__).parent / "found"
LONGEST = 4096
"""Bytes of an input."""


def fuzz(name: str, seconds: int) -> bool:
    """Whether the laws of a target held for so long."""
    corpus, broken = FOLDER / name / "corpus", FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    earlier = FOUND / name
    corpora = [corpus, *([earlier] if earlier.is_dir() else [])]
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-artifact_prefix={broken}/", "-timeout=10"]
    command = [sys.executable, "-m", "tests.fuzz.one", name, *map(str, corpora), *options]
    with (FOLDER / name / "log").open("wb") as log:
        done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False)
    last = (FOLDER / name / "log").read_text("utf-8", errors="replace").strip().splitlines()[-1:]
    print(f"{name}: {'held' if done.returncode == 0 else 'BROKEN, see ' + str(broken)} ({' '.join(last)})", flush=True)
    return done.returncode == 0


def main() -> int:
    """The exit status: 1 if a law was broken."""
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    names = parser.parse_args().targets or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        parser.error(f"there is no target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    held = [fuzz(name, seconds) for name in names]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
