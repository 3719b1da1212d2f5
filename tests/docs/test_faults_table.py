"""The table of faults in docs/operations.md names tests that exist, at least one for each fault."""

import re
from pathlib import Path

import pytest

from tests.docs.test_threats_page import ROOT, names_in

SECTION = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("\n## Faults\n")[2]
ROWS = [row.strip("| ").split(" | ") for row in SECTION.splitlines() if row.startswith("| ") and "`tests/" in row]


def test_there_are_faults() -> None:
    assert len(ROWS) > 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_fault_has_an_end_a_remedy_and_tests_that_exist(row: list[str]) -> None:
    fault, does, remedy, tests = row
    assert all((fault, does, remedy))
    named = re.findall(r"`([^`]+)::(test_\w+)`", tests)
    assert named
    for file, test in named:
        assert test in names_in(ROOT / file), f"{file}::{test}"


def test_every_test_of_a_fault_is_in_the_table() -> None:
    named = {test for row in ROWS for test in re.findall(r"::(test_\w+)`", row[-1])}
    for path in sorted(Path(ROOT / "tests" / "faults").glob("test_*.py")):
        assert {name for name in names_in(path) if name.startswith("test_")} <= named, path
