"""System programs that tests run, and Debian's packages of them; a test whose program is missing is skipped.

`python -m tests.programs REPORT…` reads JUnit reports of pytest, and prints one line that names the missing programs.
"""

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest

PACKAGES: Final = {
    **dict.fromkeys(
        ("base64", "cat", "chmod", "cut", "date", "head", "install", "mkdir", "sha256sum", "sleep", "tail", "tr"),
        "coreutils",
    ),
    "bash": "bash",
    "chromium": "chromium libatomic1 fonts-dejavu-core",
    "curl": "curl",
    "dpkg": "dpkg",
    "faketime": "faketime",
    "firefox-esr": "firefox-esr",
    "fish": "fish",
    "grep": "grep",
    "haproxy": "haproxy",
    "initdb": "postgresql",
    "ip": "iproute2",
    "make": "make",
    "mkfs.ext4": "e2fsprogs",
    "nginx": "nginx-light",
    "node": "nodejs",
    "npm": "npm",
    "openssl": "openssl",
    "pg_basebackup": "postgresql",
    "pgbouncer": "pgbouncer",
    "postgres": "postgresql",
    "promtool": "prometheus",
    "setsid": "util-linux",
    "sh": "dash",
    "systemd-analyze": "systemd",
    "tar": "tar",
    "unshare": "util-linux",
    "WebKitWebDriver": "webkit2gtk-driver",
    "Xvfb": "xvfb",
    "zsh": "zsh",
}
"""What ``apt install`` is given to get each program."""
NODE_OPTIONS: Final = "--experimental-global-webcrypto --no-warnings"
"""Node 18, which Debian 12 has, hides WebCrypto behind an option that later versions accept too."""
_MISSING: Final = re.compile(r"not installed: ([^()]+) \(apt install [^()]+\)")


def find(name: str) -> str | None:
    """The path of a program, be it in a folder that only root's PATH names; None if it is not installed."""
    assert name in PACKAGES, f"{name} needs a line in PACKAGES"
    folders = ["/usr/sbin", "/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
    return shutil.which(name) or shutil.which(name, path=":".join(folders))


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark for tests that run these programs: without one of them they are skipped."""
    missing = [name for name in names if find(name) is None]
    return pytest.mark.skipif(bool(missing), reason=_reason(missing))


def program(name: str) -> str:
    """The path of a program; without it the test is skipped."""
    found = find(name)
    if found is None:
        pytest.skip(_reason([name]))
    return found


def _reason(missing: Iterable[str]) -> str:
    names = list(missing)
    return f"not installed: {', '.join(names)} (apt install {_packages(names)})"


def _packages(names: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(PACKAGES[name] for name in names))


def closing_line(reasons: Iterable[str]) -> str | None:
    """How many tests were skipped for want of a program, which programs are missing, and what installs them."""
    found = [match[1].split(", ") for reason in reasons if (match := _MISSING.fullmatch(reason))]
    if not found:
        return None
    # The program that most of them need comes first.
    names = [name for name, _ in Counter(name for names in found for name in names).most_common()]
    tests = f"{len(found)} test{'s' * (len(found) > 1)}"
    missing = f"programs that are not installed: {', '.join(names)}"
    return f"Skipped {tests} for {missing}. On Debian: apt install {_packages(names)}"


def skips(report: Path) -> Iterator[str]:
    """The reason of each skip in a JUnit report; none if the run ended without one."""
    if report.exists():
        for skip in ElementTree.parse(report).iter("skipped"):  # noqa: S314
            yield skip.get("message", "")


if __name__ == "__main__":
    line = closing_line(reason for report in sys.argv[1:] for reason in skips(Path(report)))
    if line is not None:
        print(line)
