"""docs/threats.md and tests/threats.md have the same attacks, and each has a defence and tests that exist.

The table of keys that strangers choose names its tests itself.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


KEYS = re.compile(r"^## Chosen keys\n(.*?)^## ", re.MULTILINE | re.DOTALL)


def rows_of(page: str) -> list[tuple[str, str]]:
    """The attacks of a page, each with what the second column says."""
    text = KEYS.sub("## ", (ROOT / page).read_text(encoding="utf-8"))
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE)
    return [(attack, says) for attack, says in rows if attack != "attack"]


def rows_of_keys() -> list[list[str]]:
    """The cells of each structure whose keys strangers choose."""
    [section] = KEYS.findall((ROOT / "docs" / "threats.md").read_text(encoding="utf-8"))
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


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


def test_every_structure_says_who_chooses_its_keys_what_they_cost_and_which_test_holds_it() -> None:
    rows = rows_of_keys()
    assert {len(row) for row in rows} == {4}
    structures = [structure for structure, *_ in rows]
    assert len(set(structures)) == len(structures) > 30
    rooms = re.findall(r"^\*\*([a-z0-9 ]+)\*\*", "\n".join(structures), re.MULTILINE)
    assert len(set(rooms)) == len(rooms)


@pytest.mark.parametrize("row", rows_of_keys(), ids=lambda row: row[0][:60])
def test_the_test_of_a_structure_exists(row: list[str]) -> None:
    if row[-1] == "–":
        return
    [(file, test)] = re.findall(r"^`([^`]+)::(test_\w+)`$", row[-1])
    path = ROOT / file if file.startswith("plugins/") else ROOT / "tests" / file
    assert test in names_in(path)
