"""Builds a package for each release of Debian from the commit that is checked out: `make deb`.

A package has an environment of its own in /opt/svcd, since Debian's Twisted is too old, with the wheels that
conf/requirements-postgresql.txt pins. It is put together on any machine that has dpkg-deb, without root and without
the Python of that release: no wheel is compiled and no program of the package is run. The same commit gives the same
bytes with the same dpkg.
"""

import csv
import gzip
import hashlib
import io
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import HeaderParser
from email.utils import format_datetime
from pathlib import Path

from release import REQUIREMENTS, ROOT, build_commit, packages, run, time_of_commit
from wheels import commands_of, environment_settings, modules_of, pinned_wheels

DEBIAN = Path(__file__).with_name("debian")
"""The scripts that dpkg runs, and the other files that are only in packages."""
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
USER = "svcd"
ARCHITECTURE = "amd64"
REVISION = "1"
LIBRARIES = {"libgcc-s1": "3.0", "zlib1g": "1:1.2"}
"""What the compiled wheels load besides the C library."""
EXAMPLES = (
    "conf/nginx.conf",
    "conf/nginx-cluster.conf",
    "conf/haproxy-cluster.cfg",
    "conf/prometheus.yml",
    "conf/prometheus-rules.yml",
    "conf/grafana-dashboard.json",
    "systemd/https",
)
COMPLETIONS = {
    "bash": "usr/share/bash-completion/completions/svc",
    "zsh": "usr/share/zsh/vendor-completions/_svc",
    "fish": "usr/share/fish/vendor_completions.d/svc.fish",
}
DESCRIPTION = """node of a blockchain with a payment system for shops
 svcd keeps the chain in SQLite, exchanges blocks and transfers with other
 nodes, makes blocks if it is told to, and notifies shops of payments by signed
 webhooks. It serves a checkout, an explorer and a browser wallet itself.
 .
 The command svc reads the chain from a node, keeps a wallet, watches for
 payments, and operates a node.
 .
 svcd is experimental, and a reorganisation can undo any payment."""


@dataclass(frozen=True)
class Release:
    """What differs between releases of Debian."""

    number: int
    python: str
    glibc: str
    units: str
    """Where a package has its units of systemd."""


RELEASES: Mapping[str, Release] = {
    "bookworm": Release(12, "3.11", "2.36", "lib/systemd/system"),
    "trixie": Release(13, "3.13", "2.41", "usr/lib/systemd/system"),
}


def debian_version(version: str, release: Release) -> str:
    """The version of a package, in Debian's order where Python's has a name for what is before or after a release.

    A package of Debian's own would replace that of `make deb`, and that for a newer Debian replaces that for an older.
    """
    found = re.fullmatch(r"([0-9.]+?)(?:(a|b|rc)([0-9]+))?(?:\.post([0-9]+))?(?:\.dev([0-9]+))?", version)
    if found is None:
        sys.exit(f"version {version}: must be such as 1.2, 1.2a1, 1.2b1, 1.2rc1, 1.2.post1 or 1.2.dev1")
    number, stage, stage_number, post, dev = found.groups()
    stages = f"~{stage}{stage_number}" if stage else ""
    later = f"+post{post}" if post else ""
    # Two of them, because 1.2.dev1 is before 1.2a1.
    earlier = f"~~dev{dev}" if dev else ""
    return f"{number}{stages}{later}{earlier}-{REVISION}~deb{release.number}"


def next_python(python: str) -> str:
    """The minor version after ``python``, for which compiled wheels are others."""
    major, _, minor = python.partition(".")
    return f"{major}.{int(minor) + 1}"


def control(version: str, release: Release, *, maintainer: str, kibibytes: int) -> str:
    """The file of that name: what the package is and needs."""
    python = f"python3 (>= {release.python}~), python3 (<< {next_python(release.python)}~)"
    libraries = [f"{name} (>= {oldest})" for name, oldest in {"libc6": release.glibc, **LIBRARIES}.items()]
    sysusers = "systemd | systemd-standalone-sysusers | systemd-sysusers"
    fields = {
        "Package": "svcd",
        "Version": debian_version(version, release),
        "Architecture": ARCHITECTURE,
        "Maintainer": maintainer,
        "Installed-Size": str(kibibytes),
        "Depends": ", ".join(["ca-certificates", *libraries, python, sysusers]),
        "Suggests": "certbot, nginx, postgresql",
        # It has a /usr/bin/svc of its own.
        "Conflicts": "daemontools",
        "Section": "net",
        "Priority": "optional",
        "Description": DESCRIPTION,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def changelog(version: str, release: Release, name: str, *, maintainer: str, epoch: int) -> str:
    """Debian's form of a changelog, which leads to that of svcd."""
    time = format_datetime(datetime.fromtimestamp(epoch, UTC))
    entry = "  * The changes are in changelog.gz beside this file."
    return f"svcd ({debian_version(version, release)}) {name}; urgency=medium\n\n{entry}\n\n -- {maintainer}  {time}\n"


def licences(site: Path, installed: Path, text: str) -> str:
    """The file copyright: the licence of svcd, and where those of the libraries are when ``site`` is ``installed``."""
    lines = ["svcd is free software under this licence:", "", text.strip(), ""]
    lines += [f"{installed} contains these libraries, unchanged, with their own licences:", ""]
    for folder in sorted(site.glob("*.dist-info"), key=lambda path: path.name.lower()):
        if folder.name.startswith("svcd-"):
            continue
        fields = HeaderParser().parsestr((folder / "METADATA").read_text(encoding="utf-8"))
        classified = [each for each in fields.get_all("Classifier", []) if each.startswith("License :: ")]
        named = fields["License-Expression"] or ", ".join(each.rpartition(" :: ")[2] for each in classified)
        lines.append(f"{fields['Name']} {fields['Version']}: {named or fields['License']}")
        files = [path for path in folder.rglob("*") if re.match("(licen[cs]e|copying)", path.name, re.IGNORECASE)]
        lines += [f"    {path.relative_to(site)}" for path in sorted(files) if path.is_file()]
    lines += ["", "Compiled modules contain further libraries, such as OpenSSL, libpq and libsodium, under theirs."]
    lines += ["Debian has the text of the LGPL, the licence of psycopg, in /usr/share/common-licenses/LGPL-3."]
    return "\n".join(lines) + "\n"


def unit(text: str) -> str:
    """A unit of systemd without its first comment, which says how to install it by hand."""
    return text[text.index("[Unit]") :] if text.startswith("# svcd as a systemd service") else text


def unpack(wheels: Iterable[Path], site: Path) -> None:
    """Put the modules of wheels into a folder of packages, without their programs and their own data."""
    for wheel in wheels:
        for path, data, _ in modules_of(wheel):
            put(site / path, data)
    for record in site.glob("*.dist-info/RECORD"):
        record.write_text(existing(record.read_text(encoding="utf-8"), site), encoding="utf-8")


def existing(record: str, site: Path) -> str:
    """The lines of a list of installed files, sorted, without the files that are not there."""
    rows = [row for row in csv.reader(io.StringIO(record)) if (site / row[0]).exists()]
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(sorted(rows))
    return lines.getvalue()


def environment(root: Path, wheels: Iterable[Path], release: Release) -> Path:
    """Put an environment for the Python of a release into ``root``; returns its folder of packages."""
    prefix = root / "opt" / "svcd"
    site = prefix / "lib" / f"python{release.python}" / "site-packages"
    unpack(wheels, site)
    put(prefix / "pyvenv.cfg", environment_settings(release.python))
    programs = prefix / "bin"
    for entry_points in site.glob("*.dist-info/entry_points.txt"):
        for name, program in commands_of(entry_points.read_text(encoding="utf-8")):
            put(programs / name, program)
    (programs / f"python{release.python}").symlink_to(f"/usr/bin/python{release.python}")
    for name in ("python", "python3"):
        (programs / name).symlink_to(f"python{release.python}")
    return site


def put(file: Path, content: str | bytes) -> None:
    """Write a file and the folders above it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)


def compressed(text: str) -> bytes:
    """As Debian's policy has changelogs and manual pages: as small as gzip makes them, without a time."""
    return gzip.compress(text.encode(), 9, mtime=0)


def documents(root: Path, made: Path, log: str, copyright_text: str) -> None:
    """Put manual pages, completions, documentation and examples into ``root``."""
    for page in made.glob("*.[158]"):
        text = page.read_text(encoding="utf-8")
        put(root / f"usr/share/man/man{page.suffix[1:]}" / f"{page.name}.gz", compressed(text))
    for shell, name in COMPLETIONS.items():
        put(root / name, (made / shell).read_bytes())
    doc = root / "usr/share/doc/svcd"
    put(doc / "copyright", copyright_text)
    put(doc / "changelog.Debian.gz", compressed(log))
    put(doc / "changelog.gz", compressed((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    for example in EXAMPLES:
        source, target = ROOT / example, doc / "examples" / example
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)


def settle(root: Path, epoch: int) -> None:
    """Give everything in the package one time, and the modes that depend on nothing but its place."""
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            runs = path.parent.name == "bin" or (path.parent.name == "DEBIAN" and path.name in SCRIPTS)
            path.chmod(0o755 if runs or path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    root.chmod(0o755)
    os.utime(root, (epoch, epoch))


def sums(root: Path) -> str:
    """The file md5sums, by which dpkg verifies what is installed."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    digests = ((hashlib.md5(path.read_bytes(), usedforsecurity=False), path.relative_to(root)) for path in files)
    return "".join(f"{digest.hexdigest()}  {path}\n" for digest, path in digests if path.parts[0] != "DEBIAN")


def package(wheel: Path, wheels: Iterable[Path], made: Path, name: str, *, maintainer: str, epoch: int) -> Path:
    """Build the package for the release of Debian of that name; returns it."""
    release, version = RELEASES[name], wheel.name.split("-")[1]
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        site = environment(root, [*wheels, wheel], release)
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/svc").symlink_to("/opt/svcd/bin/svc")
        put(root / "etc/svcd/svcd.toml", (ROOT / "conf/svcd.toml").read_bytes())
        for file in ("svcd.service", "svcd.socket"):
            put(root / release.units / file, unit((ROOT / "systemd" / file).read_text(encoding="utf-8")))
        put(root / "usr/lib/sysusers.d/svcd.conf", (ROOT / "systemd/sysusers.conf").read_bytes())
        put(root / "usr/share/lintian/overrides/svcd", (DEBIAN / "lintian-overrides").read_bytes())
        log = changelog(version, release, name, maintainer=maintainer, epoch=epoch)
        text = (ROOT / "LICENSE").read_text(encoding="utf-8")
        documents(root, made, log, licences(site, Path("/") / site.relative_to(root), text))
        kibibytes = sum(-(-path.lstat().st_size // 1024) for path in root.rglob("*"))
        for script in SCRIPTS:
            put(root / "DEBIAN" / script, (DEBIAN / script).read_bytes())
        put(root / "DEBIAN/conffiles", "/etc/svcd/svcd.toml\n")
        put(root / "DEBIAN/md5sums", sums(root))
        put(root / "DEBIAN/control", control(version, release, maintainer=maintainer, kibibytes=kibibytes))
        settle(root, epoch)
        file = packages() / f"svcd_{debian_version(version, release)}_{ARCHITECTURE}.deb"
        # One thread, because xz with more makes other bytes.
        command = ("dpkg-deb", "--root-owner-group", "--threads-max=1", "-Zxz", "--build", root, file)
        run(*command, environment={"SOURCE_DATE_EPOCH": str(epoch)})
    return file


def make_documents(folder: Path, python: Path, epoch: int) -> None:
    """Let an installed svcd write its manual pages and its completions into ``folder``."""
    folder.mkdir()
    run(python, Path(__file__).with_name("manual.py"), folder, ROOT / "conf/svcd.toml", str(epoch))
    for shell in COMPLETIONS:
        script = run(python.with_name("svc"), environment={"_SVC_COMPLETE": f"{shell}_source"})
        put(folder / shell, script.strip() + "\n")


def main(names: list[str]) -> None:
    """Build the packages for these releases of Debian, or for all."""
    if unknown := set(names) - set(RELEASES):
        sys.exit(f"{', '.join(sorted(unknown))}: must be {' or '.join(RELEASES)}")
    if shutil.which("dpkg-deb") is None:
        sys.exit("dpkg-deb is not installed; on Debian and Ubuntu it is in the package dpkg")
    epoch = time_of_commit()
    maintainer = run("git", "log", "-1", "--format=%an <%ae>").strip()
    packages().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "dist").mkdir()
        wheel = build_commit(folder / "dist", epoch)
        # The pages come from the pinned versions too, since their text depends on that of click.
        python = folder / "documents" / "bin" / "python"
        run(sys.executable, "-m", "venv", folder / "documents")
        pip = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*pip, "--require-hashes", "-r", REQUIREMENTS[0])
        run(*pip, "--no-deps", wheel)
        make_documents(folder / "made", python, epoch)
        for name in names or RELEASES:
            wheels = pinned_wheels(REQUIREMENTS[-1], folder / name, python=RELEASES[name].python)
            built = package(wheel, wheels, folder / "made", name, maintainer=maintainer, epoch=epoch)
            print(f"{built.relative_to(ROOT)}  {built.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
