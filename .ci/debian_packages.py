"""The packages of Debian in the image: pinned by `make image-packages`, and fetched for `make image`.

image/packages.in names what is wanted, image/packages.txt what that needs, each with version and SHA-256.
"""

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "image"
WANTED: Final = FOLDER / "packages.in"
PINNED: Final = FOLDER / "packages.txt"
WORK: Final = FOLDER.parent.parent / "build" / "image"

DEBIAN: Final = "trixie"
ARCHITECTURE: Final = "amd64"


def parse_wanted(content: str) -> tuple[set[str], set[str]]:
    """The names in packages.in: those to install, and those to leave out."""
    lines = [line for line in content.splitlines() if line and not line.startswith("#")]
    without = {line[2:] for line in lines if line.startswith("- ")}
    return {line for line in lines if not line.startswith("- ")}, without


def parse_pinned(content: str) -> list[tuple[str, str, str]]:
    """Name, version and SHA-256 of each package in packages.txt."""
    lines = [line.split() for line in content.splitlines() if line and not line.startswith("#")]
    if bad := [line for line in lines if len(line) != 3 or not re.fullmatch("[0-9a-f]{64}", line[2])]:
        sys.exit(f"{PINNED.name}: {' '.join(bad[0])!r} must be a name, a version and a SHA-256")
    return [(name, version, digest) for name, version, digest in lines]


def closure(wanted: set[str], without: set[str], records: dict[str, dict[str, str]]) -> list[str]:
    """The packages that ``wanted`` needs, in order of their names, without those that are to be left out.

    Ends the program if a package is left out that nothing needs: then the list is out of date.
    """
    found: set[str] = set()
    missed: set[str] = set()
    queue = sorted(wanted)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        if name not in records:
            sys.exit(f"Debian {DEBIAN} has no package {name}")
        found.add(name)
        record = records[name]
        needs = ", ".join(filter(None, (record.get("Pre-Depends"), record.get("Depends"))))
        for group in filter(None, needs.split(", ")):
            choices = [re.split(r"[ (:]", choice.strip())[0] for choice in group.split("|")]
            if left_out := without.intersection(choices):
                missed |= left_out
            elif not found.union(queue).intersection(choices):
                queue.append(choices[0])
    if unneeded := without - missed:
        sys.exit(f"{WANTED.name} leaves out what no package needs: {', '.join(sorted(unneeded))}")
    return sorted(found)


class Apt:
    """apt-get and apt-cache with a state and sources of their own; they check the signatures of Debian."""

    def __init__(self, state: Path, snapshot: str | None) -> None:
        for program in ("apt-get", "apt-cache"):
            if shutil.which(program) is None:
                sys.exit(f"{program} is not installed; the image is built on Debian or Ubuntu, from packages of Debian")
        keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
        if not keyring.exists():
            sys.exit(f"{keyring} is missing, which has the keys of Debian: apt install debian-archive-keyring")
        mirror = "http://deb.debian.org/{}"
        if snapshot:
            mirror = f"http://snapshot.debian.org/archive/{{}}/{snapshot}"
        state.mkdir(parents=True, exist_ok=True)
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True, exist_ok=True)
        (state / "status").write_text("")
        (state / "sources.list").write_text(
            f"deb [signed-by={keyring}] {mirror.format('debian')} {DEBIAN} main\n"
            f"deb [signed-by={keyring}] {mirror.format('debian-security')} {DEBIAN}-security main\n"
        )
        settings = {
            "APT::Architecture": ARCHITECTURE,
            "APT::Architectures": ARCHITECTURE,
            "APT::Sandbox::User": "",
            "Acquire::Check-Valid-Until": "no" if snapshot else "yes",
            "Acquire::Languages": "none",
            "Dir::Cache": str(state),
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Etc::sourcelist": str(state / "sources.list"),
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": str(state),
            "Dir::State::status": str(state / "status"),
        }
        self._options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]

    def update(self) -> None:
        self._run("apt-get", "update", "-qq", "-o", "APT::Update::Error-Mode=any")

    def records(self) -> dict[str, dict[str, str]]:
        """The newest version of each package, as Debian's list has it."""
        found = [control(paragraph) for paragraph in self._run("apt-cache", "dumpavail").strip().split("\n\n")]
        return {record["Package"]: record for record in found}

    def download(self, names: Iterable[str], into: Path) -> None:
        into.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "download", "-qq", *names, cwd=into)

    def _run(self, program: str, *words: str, cwd: Path | None = None) -> str:
        command = [program, *self._options, *words]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            sys.exit(f"{program} {words[0]} failed:\n{done.stderr}")
        return done.stdout


def control(paragraph: str) -> dict[str, str]:
    """The fields of a paragraph of Debian's control files; of those with several lines the first."""
    pairs = [line.split(":", 1) for line in paragraph.splitlines() if line[:1].strip()]
    return {name: value.strip() for name, value in pairs}


def pin() -> None:
    """Write packages.txt: the newest version of each package."""
    now = datetime.now(UTC)
    apt = Apt(WORK / "apt", None)
    apt.update()
    records = apt.records()
    names = closure(*parse_wanted(WANTED.read_text("utf-8")), records)
    lines = [f"{name} {records[name]['Version']} {records[name]['SHA256']}\n" for name in names]
    header = (
        f"# The packages of Debian 13 in the image, pinned by `make image-packages` at {now:%Y%m%dT%H%M%SZ}.\n"
        "# When Debian's mirrors have newer ones only: make image SNAPSHOT=that time\n"
    )
    PINNED.write_text(header + "".join(lines), encoding="utf-8")


def fetch(snapshot: str | None) -> Iterator[tuple[str, bytes]]:
    """Name and content of each pinned package; those that build/ has already are not fetched again."""
    cache = WORK / "debs"
    pinned = parse_pinned(PINNED.read_text("utf-8"))
    here = {hashlib.sha256(path.read_bytes()).hexdigest() for path in cache.glob("*.deb")}
    if missing := [f"{name}={version}" for name, version, digest in pinned if digest not in here]:
        apt = Apt(WORK / f"apt-{snapshot or 'mirror'}", snapshot)
        apt.update()
        apt.download(missing, cache)
    found = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in sorted(cache.glob("*.deb"))}
    for name, version, digest in pinned:
        if digest not in found:
            sys.exit(f"the package {name} {version} is not the one that {PINNED.name} pins: its SHA-256 is another")
        yield name, found[digest].read_bytes()


if __name__ == "__main__":
    pin()
