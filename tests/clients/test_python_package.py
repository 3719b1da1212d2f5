"""`pip install ./clients/python`, as README says, in a virtual environment of its own."""

import ast
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.test_packaging import run

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"
PROJECT = tomllib.loads((CLIENT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_what_is_imported_is_required() -> None:
    found = set()
    for path in (CLIENT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    required = {
        "nacl" if name == "PyNaCl" else name for name, _ in (each.split(">=") for each in PROJECT["dependencies"])
    }
    assert found - set(sys.stdlib_module_names) - {"svc_pay"} == required


def test_the_licence_is_that_of_svcd() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_the_changelog_names_the_version() -> None:
    assert PROJECT["version"] in (CLIENT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_it_is_installed_with_its_types(tmp_path: Path) -> None:
    # A copy is installed, for setuptools leaves its workings behind.
    shutil.copytree(CLIENT, tmp_path / "clients" / "python", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "./clients/python", cwd=tmp_path)
    program = "import svc_pay, pathlib; print(pathlib.Path(svc_pay.__file__).with_name('py.typed').is_file())"
    assert run(python, "-I", "-c", program, cwd=tmp_path) == "True\n"
