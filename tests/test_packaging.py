"""What `make release` builds, and what its installation puts on a machine."""

import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any
from urllib.request import urlopen

import pytest
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins

from svcd.pages.page_hashes import page_hashes
from tests.process_level.running import DEADLINE, free_port, wait_until

ROOT = Path(__file__).parent.parent

lowest: Callable[[str], list[str]] = run_path(str(ROOT / ".ci" / "lowest.py"))["lowest"]
release: dict[str, Any] = run_path(str(ROOT / ".ci" / "release.py"))
verdict: Callable[[list[dict[str, object]]], str] = release["verdict"]
package_component: Callable[[Path], dict[str, Any]] = release["package_component"]


def run(*command: object, cwd: Path) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_the_tree(folder: Path) -> Path:
    """A repository whose one commit holds the files of this clone as they are now."""
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    run("git", "init", "--quiet", cwd=folder)
    run("git", "add", "--all", "--force", cwd=folder)
    who = ("-c", "user.name=release", "-c", "user.email=release@localhost")
    run("git", *who, "commit", "--quiet", "--message=release", "--date=2026-11-22T12:00:00Z", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make release` builds; the folder of the repository is beside it."""
    source = copy_of_the_tree(tmp_path_factory.mktemp("source"))
    run("make", f"PYTHON={sys.executable}", "release", cwd=source)
    return source / "dist"


@pytest.fixture(scope="module")
def installed(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a virtual environment in which an operator has installed the release."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--require-hashes", "-r", "requirements.txt", cwd=released)
    return folder / "bin"


@pytest.mark.slow
def test_a_second_build_of_the_commit_elsewhere_has_the_same_bytes(released: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "with a space"
    run("git", "clone", "--quiet", released.parent, elsewhere, cwd=tmp_path)
    epoch = run("git", "log", "-1", "--format=%ct", cwd=elsewhere).strip()
    program = (
        "import sys; sys.path.insert(0, '.ci'); import release; "
        f"release.build(release.ROOT, release.Path('dist').absolute(), {epoch})"
    )
    with_another_mask = 'umask 077; export TZ=Asia/Kathmandu LC_ALL=C; exec "$@"'
    run("sh", "-c", with_another_mask, "sh", released.parent / "build/release/bin/python", "-c", program, cwd=elsewhere)
    built = {file.name: file.read_bytes() for file in (elsewhere / "dist").iterdir()}
    assert sorted(built) == ["svcd-0.0.1-py3-none-any.whl", "svcd-0.0.1.tar.gz"]
    assert built == {name: (released / name).read_bytes() for name in built}


@pytest.mark.slow
def test_the_source_distribution_has_every_file_of_the_repository(released: Path) -> None:
    [sdist] = released.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    files = set(run("git", "ls-files", cwd=released.parent).splitlines())
    # In a source distribution the link to the documentation is a folder.
    assert files - packed == {".gitignore"}
    assert "svcd/cli/docs/payments.md" in packed


@pytest.mark.slow
def test_a_release_lists_the_hashes_of_the_page_of_the_wallet(released: Path) -> None:
    listed = (released / "wallet-page.sha256").read_text("utf-8").splitlines()
    assert listed == [f"{digest}  {name}" for digest, name in page_hashes()]


@pytest.mark.slow
def test_the_checksums_cover_the_whole_release(released: Path) -> None:
    checked = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=released)
    assert {line.split(":")[0] for line in checked.splitlines()} == {
        file.name for file in released.iterdir() if file.name != "SHA256SUMS"
    }


@pytest.mark.slow
def test_the_list_of_components_is_what_is_installed(released: Path, installed: Path) -> None:
    sbom = json.loads((released / "sbom.cdx.json").read_text())
    assert (sbom["bomFormat"], sbom["metadata"]["component"]["name"]) == ("CycloneDX", "svcd")
    listed = {(each["name"].lower(), each["version"]) for each in sbom["components"]}
    program = "import importlib.metadata as m; print([(d.name.lower(), d.version) for d in m.distributions()])"
    present = set(ast.literal_eval(run(installed / "python", "-c", program, cwd=installed)))
    assert listed == {(name, version) for name, version in present if name not in ("pip", "setuptools", "svcd")}


def test_an_image_and_a_package_are_listed_with_what_they_have_besides_the_wheel(tmp_path: Path) -> None:
    for name in ("svcd.oci.tar", "svcd.deb"):
        (tmp_path / name).write_bytes(b"content")
    listed = package_component(tmp_path / "svcd.oci.tar")
    digest = hashlib.sha256(b"content").hexdigest()
    assert (listed["type"], listed["hashes"]) == ("container", [{"alg": "SHA-256", "content": digest}])
    contents = {each["name"]: each["purl"] for each in listed["components"]}
    assert contents["libc6"].startswith("pkg:deb/debian/libc6@2.")
    assert contents["psycopg"].startswith("pkg:pypi/psycopg@3.")
    assert not {"twisted", "tzdata"} & set(contents)
    package = package_component(tmp_path / "svcd.deb")
    assert package["type"] == "file"
    assert {"psycopg", "psycopg-binary"} <= {each["name"] for each in package["components"]}
    assert not {"libc6", "twisted"} & {each["name"] for each in package["components"]}


def test_an_advisory_ends_a_release_and_missing_data_is_told() -> None:
    good = {"name": "klein", "version": "24.8.0", "vulns": []}
    skipped = {"name": "six", "skip_reason": "Dependency not found on PyPI and could not be audited: six (1.17.0)"}
    bad = {"name": "treq", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2", "3"]}]}
    assert verdict([good]) == "pip-audit looked up 1 of 1 packages and found no advisory"
    assert verdict([good, skipped]) == (
        "pip-audit looked up 1 of 2 packages and found no advisory; the package index knows nothing of six"
    )
    assert verdict([skipped]) == "pip-audit looked up nothing, because the package index has no data of advisories"
    with pytest.raises(SystemExit, match=r"treq 1: PYSEC-1, fixed in 2, 3$"):
        verdict([good, bad, skipped])


@pytest.mark.slow
def test_a_changed_tree_is_not_released(tmp_path: Path) -> None:
    folder = copy_of_the_tree(tmp_path)
    (folder / "README.md").write_text("changed")
    done = subprocess.run([sys.executable, ".ci/release.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "a release is built from a commit; commit or remove these first:\n M README.md\n\n"


@pytest.mark.slow
def test_the_wheel_has_every_source_file_and_nothing_of_twisted_but_the_plugin(released: Path) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "svcd").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    pages = {f"svcd/cli/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    [wheel] = released.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == ours | pages | {"twisted/plugins/svcd_plugin.py"}
    assert "svcd/py.typed" in packed
    assert any(name.endswith(".sql") for name in packed)


@pytest.mark.slow
def test_an_installed_twistd_lists_svcd_and_knows_its_options(installed: Path) -> None:
    listed = run(installed / "twistd", "--help", cwd=installed)
    assert any(line.split()[:1] == ["svcd"] for line in listed.splitlines())
    assert "--data-dir" in run(installed / "twistd", "svcd", "--help", cwd=installed)


@pytest.mark.slow
def test_an_installed_svc_tells_its_commands_and_carries_the_documentation(installed: Path) -> None:
    assert "wallet" in run(installed / "svc", "--help", cwd=installed)
    assert run(installed / "svc", "help", "payments", cwd=installed) == (ROOT / "docs/payments.md").read_text()


@pytest.mark.slow
def test_an_installed_svc_starts_a_devnet_and_opens_nothing_else(installed: Path, tmp_path: Path) -> None:
    port = free_port()
    with subprocess.Popen([installed / "svc", "devnet", "--port", str(port)], cwd=tmp_path) as devnet:
        try:
            url = f"http://127.0.0.1:{port}/rpc/status"
            wait_until(lambda: status_of(url) is not None, "the status of the devnet")
            assert status_of(url) == {"chainId": "SVC-DEVNET", "height": "0"}
            assert internet_sockets(devnet.pid) == {f"0100007F:{port:04X} 00000000:0000"}
            secret = tmp_path / "devnet" / "manage-token"
            assert (secret.stat().st_mode & 0o777, len(secret.read_text())) == (0o600, 44)
        finally:
            devnet.send_signal(signal.SIGINT)
            assert devnet.wait(DEADLINE) == 0


def status_of(url: str) -> dict[str, str] | None:
    """Network and height in the answer of a node; None if it does not answer yet."""
    try:
        with urlopen(url, timeout=DEADLINE) as answer:  # noqa: S310
            status = json.load(answer)["status"]
    except OSError:
        return None
    return {name: status[name] for name in ("chainId", "height")}


def internet_sockets(pid: int) -> set[str]:
    """Both ends of each TCP and UDP socket of a process, as Linux writes them, without accepted connections."""
    links = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    lines = [
        line.split()
        for name in ("tcp", "tcp6", "udp", "udp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    own = [(line[1], line[2], line[3] == "0A") for line in lines if line[9] in inodes]
    listening = {local for local, _, listens in own if listens}
    # The request for the status may still be closing.
    return {f"{local} {remote}" for local, remote, listens in own if listens or local not in listening}


@pytest.mark.slow
def test_an_installed_node_finds_its_schema(installed: Path) -> None:
    program = "from svcd.store.database import migrations; print(len(migrations()))"
    assert int(run(installed / "python", "-c", program, cwd=installed)) == len(
        list(ROOT.glob("svcd/store/schema/*.sql"))
    )


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-postgresql.txt"])
def test_the_pinned_requirements_satisfy_setup_py(file: str) -> None:
    lines = (ROOT / "conf" / file).read_text().splitlines()
    pinned = dict(re.findall(r"^([a-z0-9.-]+)==([0-9.]+)", "\n".join(lines), re.MULTILINE))
    with_driver = [each for each in lowest((ROOT / "setup.py").read_text()) if each.startswith("psycopg")][:1]
    for requirement in required_to_run() + (with_driver if "postgresql" in file else []):
        name, _, oldest = requirement.partition("==")
        version = pinned[name.lower().replace(".", "-").replace("_", "-")]
        assert parts(version) >= parts(oldest), f"make requirements: {name} {version} is older than {oldest}"
    assert all(line.startswith(("#", "    --hash=sha256:")) or "==" in line for line in lines)


def required_to_run() -> list[str]:
    """`name==lowest version` of what a node runs."""
    source = (ROOT / "setup.py").read_text()
    return lowest(source)[: source[: source.index("extras_require")].count(">=") - source.count("python_requires")]


def parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_twisted_finds_the_plugin_in_this_checkout() -> None:
    assert "svcd" in [maker.tapname for maker in getPlugins(IServiceMaker)]


def test_the_lowest_versions_are_those_of_setup_py() -> None:
    source = 'setup(install_requires=["Twisted[tls]>=26.10", "attrs>=25.1"], extras_require={"test": ["pytest>=9.0"]})'
    assert lowest(source) == ["Twisted==26.10", "attrs==25.1", "pytest==9.0"]


def test_a_requirement_without_a_lowest_version_is_refused() -> None:
    with pytest.raises(SystemExit, match="must be written name>=version"):
        lowest('setup(install_requires=["attrs"], extras_require={})')


def imported_from_outside() -> set[str]:
    found = set()
    for path in (ROOT / "svcd").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"svcd"}


def test_imported_packages_are_required() -> None:
    """A library that merely comes along with another one may be gone with that one's next release."""
    distributions = {"OpenSSL": "pyopenssl", "argon2": "argon2-cffi", "nacl": "pynacl", "zope": "zope.interface"}
    needed = {distributions.get(name, name).lower().replace("_", "-") for name in imported_from_outside()}
    required = {line.partition("==")[0].lower() for line in lowest((ROOT / "setup.py").read_text())}
    assert needed <= required
