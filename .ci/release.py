"""Builds a release of the commit that is checked out: `make release`.

dist/ then contains the wheel, the source distribution, `requirements.txt` with the versions and hashes of everything
that a node needs (`requirements-postgresql.txt` with the driver of PostgreSQL, too), `sbom.cdx.json` (CycloneDX),
`wallet-page.sha256` (what `svc wallet page-check` compares a served page with) and `SHA256SUMS`. What `make image` and
`make deb` have built of the same commit is added to it. The same commit gives the same bytes: every time is that of the
commit, every order is fixed, and the build tools are pinned in requirements.txt beside this program.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import debian_packages

ROOT = Path(__file__).parent.parent
REQUIREMENTS = (ROOT / "conf" / "requirements.txt", ROOT / "conf" / "requirements-postgresql.txt")
"""Without and with the driver of PostgreSQL."""


def run(*command: str | Path, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Standard output of a program that must succeed."""
    return subprocess.run(  # noqa: S603
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def with_times(archive: Path, epoch: int) -> None:
    """Write a .tar.gz anew with sorted members, without users, and with one time for all."""
    data = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    archive.write_bytes(gzip.compress(data.getvalue(), mtime=epoch))


def build(source: Path, dist: Path, epoch: int) -> Path:
    """Build the two distributions of a clean source tree; returns the wheel."""
    os.umask(0o022)
    epochal = {"SOURCE_DATE_EPOCH": str(epoch), "PYTHONHASHSEED": "0"}
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, source, environment=epochal)
    [sdist], [wheel] = dist.glob("*.tar.gz"), dist.glob("*.whl")
    with_times(sdist, epoch)
    return wheel


def package_component(package: Path) -> dict[str, Any]:
    """An image, or a package of Debian, in the list of components, which has the wheels of requirements.txt already."""
    component: dict[str, Any] = {
        "bom-ref": package.name,
        "type": "file",
        "name": package.name,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(package.read_bytes()).hexdigest()}],
    }
    contents = driver()
    if package.name.endswith(".oci.tar"):
        component["type"] = "container"
        contents = packages_of_debian() + contents
    component["components"] = [
        {"bom-ref": f"{package.name}/{name}", "type": "library", "name": name, "version": version, "purl": purl}
        for name, version, purl in contents
    ]
    return component


def packages_of_debian() -> list[tuple[str, str, str]]:
    """Name, version and URL of each package of Debian in an image."""
    debian = debian_packages.parse_pinned(debian_packages.PINNED.read_text(encoding="utf-8"))
    return [
        (name, version, f"pkg:deb/debian/{name}@{quote(version, safe='')}?distro={debian_packages.DEBIAN}")
        for name, version, _ in debian
    ]


def driver() -> list[tuple[str, str, str]]:
    """Name, version and URL of what the driver of PostgreSQL needs, which requirements.txt has not."""
    plain, whole = (re.findall(r"^(\S+)==(\S+)(.*)", file.read_text("utf-8"), re.MULTILINE) for file in REQUIREMENTS)
    added = [(name, version) for name, version, marker in whole if "win32" not in marker]
    present = {name for name, _, _ in plain}
    return [(name, version, f"pkg:pypi/{name}@{version}") for name, version in added if name not in present]


def describe(dist: Path, wheel: Path, folder: Path, added: list[Path]) -> None:
    """Install the release as an operator does, and list what that has brought, and the packages besides the wheel."""
    # Only the environment of `make release` has it.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    run(sys.executable, "-m", "venv", folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--require-hashes", "-r", "requirements.txt", cwd=dist)
    run(*pip, "uninstall", "--quiet", "--yes", "pip", "setuptools")
    hashes = run(folder / "bin" / "python", "-m", "svcd.pages.page_hashes", cwd=dist)
    (dist / "wallet-page.sha256").write_text(hashes, encoding="utf-8")
    text = run(
        Path(sys.executable).with_name("cyclonedx-py"),
        *("environment", "--output-reproducible", "--output-format", "JSON", "--spec-version", "1.6"),
        folder / "bin" / "python",
    )
    sbom = json.loads(text)
    # The wheel is the subject of the list; where it lay when it was installed is nobody's business.
    [svcd] = [component for component in sbom["components"] if component["name"] == "svcd"]
    sbom["components"].remove(svcd)
    svcd.pop("externalReferences", None)
    sbom["metadata"]["component"] = {
        **svcd,
        "type": "application",
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
    }
    sbom["components"] += [package_component(package) for package in added]
    text = json.dumps(sbom, indent=2, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"sbom.cdx.json is not as CycloneDX requires: {error}")
    (dist / "sbom.cdx.json").write_text(text, encoding="utf-8")


def audit(dist: Path) -> None:
    """Look for published advisories about the pinned versions; say so where there is no data about them."""
    command = (Path(sys.executable).with_name("pip-audit"), "--require-hashes", "--disable-pip", "--format=json")
    done = subprocess.run([*command, "-r", REQUIREMENTS[-1]], cwd=dist, capture_output=True, text=True, check=False)  # noqa: S603
    if done.stdout:
        print(verdict(json.loads(done.stdout)["dependencies"]))
    elif any(error in done.stderr for error in ("ConnectionError", "Max retries exceeded", "timed out")):
        print("pip-audit could not reach the database of advisories; nothing was looked up")
    else:
        sys.exit(f"pip-audit: {done.stderr}")


def verdict(dependencies: list[dict[str, Any]]) -> str:
    """What the report of pip-audit says, in a sentence; an advisory ends the release."""
    advisories = [
        f"{each['name']} {each['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'no version'}"
        for each in dependencies
        for found in each.get("vulns", [])
    ]
    if advisories:
        sys.exit("pip-audit found advisories:\n" + "\n".join(advisories))
    # The release goes on where the package index has no such data, as an internal mirror.
    unknown = [each["name"] for each in dependencies if "skip_reason" in each]
    if len(unknown) == len(dependencies):
        return "pip-audit looked up nothing, because the package index has no data of advisories"
    known = (
        f"pip-audit looked up {len(dependencies) - len(unknown)} of {len(dependencies)} packages and found no advisory"
    )
    return f"{known}; the package index knows nothing of {', '.join(unknown)}" if unknown else known


def time_of_commit() -> int:
    """The time of the commit that is checked out, which all files of a release have.

    Ends the program if files are changed.
    """
    if changed := run("git", "status", "--porcelain"):
        sys.exit(f"a release is built from a commit; commit or remove these first:\n{changed}")
    return int(run("git", "log", "-1", "--format=%ct"))


def build_commit(dist: Path, epoch: int) -> Path:
    """Build the two distributions of the commit that is checked out; returns the wheel."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "svcd")
        source.mkdir()
        # By default git lets the group write, which Python 3.11.2 would carry into the wheel.
        command = ["git", "-c", "tar.umask=0022", "archive", "HEAD"]
        archive = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout  # noqa: S603
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            # The argument for it is missing in Python 3.11.2, which Debian 12 has.
            tar.extraction_filter = lambda member, _: member
            tar.extractall(source)  # noqa: S202
        return build(source, dist, epoch)


def commit() -> str:
    """The hash of the commit that is checked out."""
    return run("git", "rev-parse", "HEAD").strip()


def packages() -> Path:
    """The folder of what `make image` and `make deb` have built of the commit that is checked out."""
    return ROOT / "build" / "packages" / commit()


def release(dist: Path) -> None:
    """Build everything into ``dist``, which is emptied first, and add the packages of the commit."""
    epoch = time_of_commit()
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    wheel = build_commit(dist, epoch)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for pinned in REQUIREMENTS:
        lines = f"{pinned.read_text(encoding='utf-8')}./{wheel.name} --hash=sha256:{digest}\n"
        (dist / pinned.name).write_text(lines, encoding="utf-8")
    added = sorted(packages().glob("*")) if packages().is_dir() else []
    for package in added:
        shutil.copyfile(package, dist / package.name)
    with tempfile.TemporaryDirectory() as temporary:
        describe(dist, wheel, Path(temporary, "installed"), added)
    audit(dist)
    files = sorted(dist.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    print(sums, end="")


if __name__ == "__main__":
    release(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else ROOT / "dist")
