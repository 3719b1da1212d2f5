"""docs/troubleshooting.md has every line of level warn and above that the code can log, and no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process_level.pages import ROOT

LEVELS = {
    "warn": "warn",
    "error": "error",
    "critical": "critical",
    "failure": "critical",
    "failuresHandled": "critical",
}
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
TABLE = re.findall(r"^\| (warn|error|critical) \| `([^`]+)` \| (.+) \|$", PAGE, re.MULTILINE)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Level and format of each call of a logger."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=[first, *_]) if method in LEVELS:
                if ast.unparse(owner).lower().endswith(("log", "news")):
                    assert isinstance(first, ast.Constant), f"{path}:{node.lineno}: the format must be a constant"
                    assert not [each for each in node.keywords if each.arg == "level"], f"{path}:{node.lineno}"
                    yield LEVELS[method], str(first.value)


SAID = sorted({line for path in (ROOT / "svcd").rglob("*.py") for line in lines_of(path)})


def test_there_are_lines() -> None:
    assert len(SAID) > 30
    assert ("warn", "our own block was refused: {why}") in SAID


@pytest.mark.parametrize("line", SAID, ids=lambda line: line[1])
def test_a_line_that_can_be_logged_is_explained(line: tuple[str, str]) -> None:
    assert line in [(level, text) for level, text, _ in TABLE], (
        "docs/troubleshooting.md, Logs: the table has no row for this line, or another level"
    )


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[1])
def test_a_line_that_is_explained_can_be_logged(row: tuple[str, str, str]) -> None:
    level, text, meaning = row
    assert (level, text) in SAID
    assert meaning


def test_no_line_is_explained_twice() -> None:
    assert len({text for _, text, _ in TABLE}) == len(TABLE)
