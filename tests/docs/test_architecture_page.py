"""docs/architecture.md names packages, files, classes and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import MAY_IMPORT

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
REFERENCES = sorted(set(re.findall(r"\b((?:[a-z0-9_]+/)?[a-z0-9_]+\.py)(?::([\w.]+\w))?", PAGE)))
"""Every `file` and `file:function` of the page."""


def definitions(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """The classes, functions and methods in ``body`` by their dotted names."""
    found = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(prefix + node.name)
        if isinstance(node, ast.ClassDef):
            found |= definitions(node.body, f"{prefix}{node.name}.")
    return found


def test_every_package_is_in_the_table() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    named = {package for row in rows for package in re.findall(r"\w+", row)}
    assert named - {"tap"} == {path.parent.name for path in (ROOT / "svcd").glob("*/__init__.py")}


SHARED = {"chain_schemas", "endpoint_description", "keyfile_errors", "seed_file"}
"""Modules that the text below the table describes."""


def imports_of(cell: str) -> set[str]:
    """What a cell of the table allows: "`chain`, of `net` only `addresses` and `targets`" is chain and two modules."""
    parts = re.findall(r"of `([\w.]+)` only (`\w+`(?:(?:, | and )`\w+`)*)", cell)
    whole = re.sub(r"of `[\w.]+` only `\w+`(?:(?:, | and )`\w+`)*", "", cell)
    modules = {f"{package}.{module}" for package, names in parts for module in re.findall(r"`(\w+)`", names)}
    return modules | set(re.findall(r"`([\w.]+)`", whole))


def test_the_table_says_what_a_package_may_import() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]+ \| ([^|]+) \|$", PAGE.split("## The way of a request")[0], re.MULTILINE)
    described = {package: imports_of(cell) for package, cell in rows}
    assert described == {package: MAY_IMPORT[package] - SHARED for package in described}
    assert set(MAY_IMPORT) - set(described) == {
        *("composition", "tap", "keyfile", "limits", "deferreds", "interfaces", "ip_addresses"),
        *("bounded_dict", "quantities", "visible_text"),
        *SHARED,
    }


@pytest.mark.parametrize(("file", "name"), REFERENCES)
def test_a_reference_leads_somewhere(file: str, name: str) -> None:
    path = ROOT / "svcd" / file
    assert path.is_file()
    assert not name or name in definitions(ast.parse(path.read_text(encoding="utf-8")).body)


def test_code_and_pages_refer_to_modules_that_exist() -> None:
    code, pages = [*(ROOT / "svcd").rglob("*.py")], [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    assert [stale for path in code for stale in stale_modules(path)] == []
    assert [stale for path in code + pages for stale in stale_files(path)] == []


def stale_files(path: Path) -> list[str]:
    """Mentions such as svcd/node/miner.py of files that do not exist."""
    files = re.findall(r"\bsvcd/[a-z0-9_/]+\.py\b", path.read_text(encoding="utf-8"))
    return [f"{path.name}: {file}" for file in files if not (ROOT / file).is_file()]


def stale_modules(path: Path) -> list[str]:
    """Mentions such as svcd.node.miner of modules that do not exist; svcd.toml and the like are files of a node."""
    names = re.findall(r"\bsvcd\.([a-z0-9_]+)(?:\.([a-z0-9_]+))?", path.read_text(encoding="utf-8"))
    modules = [(package, module) for package, module in names if package not in {"toml", "sock", "socket", "service"}]
    return [f"{path.name}: svcd.{package}.{module}" for package, module in modules if not is_module(package, module)]


def is_module(package: str, module: str) -> bool:
    """Whether there is svcd/package/module.py, or at least svcd/package if ``module`` is empty, or svcd/package.py."""
    folder = ROOT / "svcd" / package
    found = (folder / module).with_suffix(".py").is_file() or (folder / module).is_dir() if module else folder.is_dir()
    return found or folder.with_suffix(".py").is_file()
