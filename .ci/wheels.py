"""The wheels of everything that a node needs, for a Python and a platform that need not be those of this computer.

`make image` and `make deb` install from them: pip chooses and downloads what conf/requirements.txt pins, and refuses a
file with another hash. Neither runs a program of a wheel, so both write the environment in /opt/svcd themselves.
"""

import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1))
"""The platforms whose wheels run on Debian 12 and newer: those built for its glibc or an older one."""


def pinned_wheels(requirements: Path, folder: Path, *, python: str) -> list[Path]:
    """Download the wheel of each pinned package for a CPython such as "3.13" on x86-64 into ``folder``.

    Ends the program with pip's message if one is missing or has another hash.
    """
    folder.mkdir(parents=True, exist_ok=True)
    abi = "cp" + python.replace(".", "")
    options = ["--python-version", python, "--implementation", "cp"]
    options += [word for each in (abi, "abi3", "none") for word in ("--abi", each)]
    options += [word for each in PLATFORMS for word in ("--platform", each)]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--require-hashes"]
    command += ["--no-deps", "--only-binary=:all:", *options, "--dest", str(folder), "-r", str(requirements)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        sys.exit(f"the wheels that {requirements} pins cannot be fetched:\n{done.stdout}{done.stderr}")
    return sorted(folder.glob("*.whl"))


def modules_of(wheel: Path) -> Iterator[tuple[str, bytes, bool]]:
    """The files that a wheel has for a folder of packages, without its programs and other data.

    Gives the path in the folder, the content, and whether the file is executable.
    """
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", entry.filename)
            if not entry.is_dir() and not re.match(r"[^/]+\.data/", path):
                yield path, archive.read(entry), bool(entry.external_attr >> 16 & 0o100)


def commands_of(entry_points: str) -> Iterator[tuple[str, str]]:
    """Name and program of the commands that an operator uses, from the file entry_points.txt of a wheel."""
    parser = ConfigParser(delimiters="=", interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(entry_points)
    for name, target in parser["console_scripts"].items() if parser.has_section("console_scripts") else ():
        if name in ("svc", "twistd"):
            module, _, function = target.partition(":")
            start = f"from {module} import {function}\nsys.exit({function}())\n"
            yield name, f"#!/opt/svcd/bin/python3\nimport sys\n{start}"


def environment_settings(python: str) -> str:
    """The file pyvenv.cfg of an environment for Debian's ``python``, such as "3.13"."""
    return f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n"
