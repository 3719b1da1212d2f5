"""docs/architecture.md names rooms, files, classes and methods that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
FILES = sorted(set(re.findall(r"`([a-z0-9_]+/[a-z0-9_]+\.py)`", PAGE)))
METHODS = sorted(set(re.findall(r"`([A-Z]\w+)\.(\w+)`", PAGE)))


def methods() -> set[tuple[str, str]]:
    """Every method of every class of the program."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "svcd").rglob("*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {(each.name, member.name) for each in classes for member in each.body if isinstance(member, functions)}


def test_every_room_is_in_the_table() -> None:
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    named = {room for row in rows for room in re.findall(r"\w+", row)}
    assert named - {"tap"} == {path.parent.name for path in (ROOT / "svcd").glob("*/__init__.py")}


@pytest.mark.parametrize("name", FILES)
def test_a_file_exists(name: str) -> None:
    assert (ROOT / "svcd" / name).is_file()


def test_methods_exist() -> None:
    assert METHODS
    assert set(METHODS) <= methods()
