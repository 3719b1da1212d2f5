"""What `pip install .` puts on a machine, tried in a virtual environment of its own."""

import ast
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from runpy import run_path

import pytest
from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins

ROOT = Path(__file__).parent.parent
SOURCES = ("setup.py", "pyproject.toml", "README.md", "svcd", "twisted")

lowest: Callable[[str], list[str]] = run_path(str(ROOT / ".ci" / "lowest.py"))["lowest"]


def run(*command: object, cwd: Path) -> str:
    """Standard output of a program that must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel. A copy is built, for setuptools leaves its workings behind and would pack old ones again."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "dropin.cache*"))
        else:
            shutil.copy(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=copy)
    [wheel] = (copy / "dist").iterdir()
    return wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a virtual environment that has the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=folder)
    return programs


@pytest.mark.slow
def test_the_wheel_has_every_source_file_and_nothing_of_twisted_but_the_plugin(wheel: Path) -> None:
    ours = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "svcd").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == ours | {"twisted/plugins/svcd_plugin.py"}
    assert "svcd/py.typed" in packed
    assert any(name.endswith(".sql") for name in packed)


@pytest.mark.slow
def test_an_installed_twistd_lists_svcd_and_knows_its_options(installed: Path) -> None:
    listed = run(installed / "twistd", "--help", cwd=installed)
    assert any(line.split()[:1] == ["svcd"] for line in listed.splitlines())
    assert "--data-dir" in run(installed / "twistd", "svcd", "--help", cwd=installed)


@pytest.mark.slow
def test_an_installed_svc_tells_its_commands(installed: Path) -> None:
    assert "wallet" in run(installed / "svc", "--help", cwd=installed)


@pytest.mark.slow
def test_an_installed_node_finds_its_schema(installed: Path) -> None:
    program = "from svcd.store.database import migrations; print(len(migrations()))"
    assert int(run(installed / "python", "-c", program, cwd=installed)) == len(
        list(ROOT.glob("svcd/store/schema/*.sql"))
    )


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
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"svcd"}


def test_what_is_imported_is_required() -> None:
    """A library that merely comes along with another one may be gone with that one's next release."""
    distributions = {"OpenSSL": "pyopenssl", "argon2": "argon2-cffi", "nacl": "pynacl", "zope": "zope.interface"}
    needed = {distributions.get(name, name).lower().replace("_", "-") for name in imported_from_outside()}
    required = {line.partition("==")[0].lower() for line in lowest((ROOT / "setup.py").read_text())}
    assert needed <= required
