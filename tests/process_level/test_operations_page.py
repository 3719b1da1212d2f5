"""docs/operations.md and the pages beside it: their tables against the program."""

import re
from pathlib import Path

import pytest

from svcd.commerce.events import EventType
from svcd.store.state_tree_file import StateTreeFile
from svcd.tap import Options
from tests.process_level.pages import ROOT, section

PAGE = "docs/operations.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def rows(text: str) -> dict[str, str]:
    """First cell to second cell, of table rows whose first cell is in backticks."""
    return dict(re.findall(r"^\| `([^`]+)` \| (?:`([^`]+)`)?", text, re.MULTILINE))


def test_every_option_is_named() -> None:
    table = section("docs/settings.md", "## Options of `twistd svcd`")
    shown = {option.split()[0].removeprefix("--") for option in rows(table)}
    assert shown == {option[0] for option in Options.optParameters} | {"set"}


def test_every_file_of_the_data_directory_is_named() -> None:
    named = set(rows(section("docs/storage.md", "## Data directory")))
    source = "".join(path.read_text() for path in (ROOT / "svcd").rglob("*.py"))
    written = set(re.findall(r'"((?:node|operator)\.\w+|chain\.sqlite|mempool\.journal|peers\.json|lock)"', source))
    written |= {StateTreeFile(Path("chain.sqlite")).path.name}
    written -= set(EventType)
    assert named == written


@pytest.mark.parametrize("line", list(rows(section("docs/troubleshooting.md", "## When it does not start"))))
def test_every_line_of_trouble_is_one_that_the_program_says(line: str) -> None:
    # A sentence in the source is an f-string in two pieces now and then: the quotes between them are left out.
    source = "".join(path.read_text() for path in (ROOT / "svcd").rglob("*.py"))
    said = re.sub(r'"\s+f?"', "", source)
    fixed = [part.strip() for part in re.split(r"…\S*|tcp:\S*|4711\)|SVC-MAINNET", line)]
    assert any(len(part) > 12 for part in fixed)
    assert all(part in said for part in fixed), line


def test_the_units_are_where_the_page_says() -> None:
    unit = (ROOT / "systemd" / "svcd.service").read_text()
    for path in ("/opt/svcd", "/etc/svcd/svcd.toml"):
        assert path in section(PAGE, "## systemd")
        assert path in unit
    assert "StateDirectory=svcd\n" in unit
    (watchdog,) = re.findall(r"^WatchdogSec=(\d+)$", unit, re.MULTILINE)
    assert watchdog == "60"


def test_the_commands_to_install_the_units_are_those_of_the_unit() -> None:
    unit = (ROOT / "systemd" / "svcd.service").read_text()
    commands = re.findall(r"^#   (.*)$", unit.partition("[Unit]")[0], re.MULTILINE)
    assert len(commands) == 8
    for command in commands:
        assert f"       {command}\n" in section(PAGE, "## A public node, step by step")
