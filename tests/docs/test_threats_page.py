"""docs/threats.md and tests/threats.md have the same attacks, and each has a defence and tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows_of(page: str) -> list[tuple[str, str]]:
    """The attacks of a page, each with what the second column says."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    return [(attack, says) for attack, says in rows if attack != "attack"]


DEFENCES = rows_of("docs/threats.md")
TESTS = rows_of("tests/threats.md")


def names_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_attack_has_a_defence_and_tests() -> None:
    attacks = [attack for attack, _ in DEFENCES]
    assert len(attacks) > 50
    assert len(set(attacks)) == len(attacks)
    assert attacks == [attack for attack, _ in TESTS]


@pytest.mark.parametrize(("attack", "tests"), TESTS, ids=lambda cell: cell[:60])
def test_the_tests_of_an_attack_exist(attack: str, tests: str) -> None:
    named = re.findall(r"`([^`]+)::(test_\w+)`", tests)
    assert re.sub(r"`[^`]+`|[, ]", "", tests) == ""
    assert named
    for file, test in named:
        assert test in names_in(ROOT / file), f"{attack}: {file}::{test}"
