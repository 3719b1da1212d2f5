"""Refuses to build a package without the rules: they are links to files of svcd, which a copy of this folder lacks."""

from pathlib import Path

from setuptools import setup

SOURCES = Path(__file__).parent / "src"
lost = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if not path.exists())
if lost:
    raise SystemExit(
        f"svc-pay is built in a clone of the whole repository: {lost[0]} is a link to a file that is not there"
    )
setup()
