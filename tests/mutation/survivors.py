"""Reads survivors.md: which mutants nothing can kill, and why."""

import re
from pathlib import Path

from attrs import frozen

PAGE = Path(__file__).with_name("survivors.md")
_HEADING = re.compile(r"## `([a-z_.]+)`")
_ITEM = re.compile(r"- `` (.+) ``")
_NAME = re.compile(r"([a-z_.]+)\.x.+__mutmut_\d+")


@frozen(order=True)
class Mutant:
    """One changed place of a module; ``line`` is what stands there now, in one line without the indentation."""

    module: str
    line: str

    @classmethod
    def read(cls, name: str, difference: str) -> "Mutant":
        """The mutant in what `mutmut show` prints of it."""
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no name of a mutant")
        added = [line[1:].strip() for line in difference.splitlines() if re.match(r"\+(?!\+\+ )", line)]
        return cls(match[1], " ".join(added))


def explained(text: str | None = None) -> set[Mutant]:
    """The mutants that the page explains."""
    module = ""
    found: set[Mutant] = set()
    for line in (PAGE.read_text(encoding="utf-8") if text is None else text).splitlines():
        if heading := _HEADING.fullmatch(line):
            module = heading[1]
        elif item := _ITEM.match(line):
            found.add(Mutant(module, item[1]))
    return found
