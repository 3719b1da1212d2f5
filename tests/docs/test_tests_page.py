"""tests/README.md names every directory of the tests, and no other."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_directory_is_named() -> None:
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^(?:\| )?`([a-z_0-9]+)` ", text, re.MULTILINE)
    present = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert sorted(named) == sorted(present)
