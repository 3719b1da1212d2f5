"""docs/threats.md names tests that exist, at least one for each attack."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
ROWS = [row.strip("| ").split(" | ") for row in PAGE.splitlines() if row.startswith("| ") and "`tests/" in row]


def names_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_there_are_attacks() -> None:
    assert len(ROWS) > 50
    assert len({attack for attack, *_ in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_attack_has_a_rule_and_tests_that_exist(row: list[str]) -> None:
    attack, stopped_by, tests = row
    assert attack
    assert stopped_by
    named = re.findall(r"`([^`]+)::(test_\w+)`", tests)
    assert re.sub(r"`[^`]+`|[, ]", "", tests) == ""
    assert named
    for file, test in named:
        assert test in names_in(ROOT / file), f"{file}::{test}"
