"""Each fault in docs/troubleshooting.md has a remedy, and in tests/faults.md tests that exist."""

import re
from pathlib import Path

import pytest

from tests.docs.test_threats_page import ROOT, names_in
from tests.process_level.pages import section


def rows(text: str) -> list[list[str]]:
    """The cells of each row of a table below its head, without links."""
    found = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row) for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    return [row.strip("| ").split(" | ") for row in found[2:]]


FAULTS = rows(section("docs/troubleshooting.md", "## Faults"))
TESTS = dict(rows((ROOT / "tests" / "faults.md").read_text(encoding="utf-8")))
NAMED = {fault: re.findall(r"`([^`]+)::(test_\w+)`", tests) for fault, tests in TESTS.items()}


def test_the_tables_have_the_same_faults() -> None:
    assert len(FAULTS) > 10
    assert [fault for fault, *_ in FAULTS] == list(TESTS)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row[0])
def test_every_fault_has_an_end_a_remedy_and_tests_that_exist(row: list[str]) -> None:
    fault, does, remedy = row
    assert all((fault, does, remedy))
    assert NAMED[fault]
    for file, test in NAMED[fault]:
        assert test in names_in(ROOT / file), f"{file}::{test}"


def test_every_test_of_a_fault_is_in_the_table() -> None:
    named = {test for tests in NAMED.values() for _, test in tests}
    for path in sorted(Path(ROOT / "tests" / "faults").glob("test_*.py")):
        assert {name for name in names_in(path) if name.startswith("test_")} <= named, path
