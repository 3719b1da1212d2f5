"""What docs/operations.md, and a section of another page, tells operators to type, and to set in the configuration."""

import re
import textwrap
import tomllib
from pathlib import Path
from typing import Final

from tests.process_level.pages import section

PAGE: Final = "docs/operations.md"
STEPS: Final = "## A public node, step by step"
_INDENTED: Final = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)


def blocks(heading: str, page: str = PAGE) -> list[str]:
    """The indented blocks of a section of a page, in order."""
    return [textwrap.dedent(block) for block in _INDENTED.findall(section(page, heading))]


def commands(heading: str, page: str = PAGE) -> list[str]:
    """Those that are for a shell."""
    return [block for block in blocks(heading, page) if not _is_configuration(block)]


def settings(heading: str, page: str = PAGE) -> dict[tuple[str, str], object]:
    """What the others set: values by section and key."""
    found = {}
    for block in filter(_is_configuration, blocks(heading, page)):
        head, _, keys = block.partition("\n")
        found |= {(head.strip("[]"), key): value for key, value in tomllib.loads(keys).items()}
    return found


def _is_configuration(block: str) -> bool:
    return block.startswith("[")


def edit(file: Path, section_name: str, key: str, value: str) -> None:
    """Set a key of the configuration as a person does: in the line where it stands with a ``#`` before it."""
    lines, inside = file.read_text(encoding="utf-8").splitlines(), False
    for number, line in enumerate(lines):
        if line.startswith("["):
            inside = line == f"[{section_name}]"
        if inside and re.match(rf"#?{key} = ", line):
            lines[number] = f"{key} = {value}"
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return
    raise ValueError(f"{file} has no line for {key} in [{section_name}]")
