"""CONTRIBUTING.md and SECURITY.md: what they name exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_test_to_run_exists_and_covers_the_message() -> None:
    (message,) = re.findall(r'^    grep -rn "(.+)" svcd tests docs clients plugins examples$', TEXT, re.MULTILINE)
    ((path, name),) = re.findall(r"^    \.venv/bin/pytest (\S+)::(\S+)$", TEXT, re.MULTILINE)
    tests = (ROOT / path).read_text(encoding="utf-8")
    assert message in tests.split(f"\ndef {name}(")[1].split("\ndef ")[0]
    assert any(message in module.read_text(encoding="utf-8") for module in (ROOT / "svcd").rglob("*.py"))


def test_the_targets_are_those_of_make() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    described = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", TEXT.replace("\n", " ")))
    assert named - {"group-p2p"} <= described
    assert {"check", "test", "test-all", "docs", "lowest", "newest", "release"} <= named


def test_the_placeholder_of_an_address_stands_once_and_is_named_as_such() -> None:
    places = [page for page in ROOT.glob("*.md") if "@svcd.example" in page.read_text(encoding="utf-8")]
    assert places == [ROOT / "SECURITY.md"]
    security = places[0].read_text(encoding="utf-8")
    assert security.count("@svcd.example") == 1
    assert "**This address is a placeholder" in security
