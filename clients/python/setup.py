"""Refuses to build a package without the rules: they are links to files of svcd, which a copy of this folder lacks."""

from pathlib import Path

from setuptools import setup

SOURCES = Path(__file__).parent / "src"
lost = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py") if not path.exists())
if lost:
    raise SystemExit(
        f"svc-pay is built in a clone of the whole repository: {lost[0]} is a link to a file that is not there"
    )
# Without symbolic links git and some archivers write where a link leads as the text of a file.
texts = sorted(path for path in (SOURCES / "svc_pay" / "_svcd").rglob("*.py") if path.read_bytes().startswith(b"../"))
if texts:
    raise SystemExit(
        f"{texts[0].relative_to(SOURCES)} must be a link to a file of svcd, and is a text with the path of that file:"
        " clone with symbolic links (git config core.symlinks true, and check out again)"
    )
setup()
