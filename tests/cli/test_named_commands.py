"""Every call of svc in a message, a help text or a page is one that svc takes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from svcd.cli.lazy_commands import LazyCommand
from svcd.cli.main import svc

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (
    "*.md",
    "docs/*.md",
    "conf/*",
    "systemd/*",
    "examples/*/README.md",
    "clients/*/README.md",
    "plugins/*/README.md",
    "svcd/pages/texts/*.json",
)
_QUOTED: Final = re.compile(r"`(svc [^`]+)`")
_LINE: Final = re.compile(r"^(?: {4,}|\s*[$#] )(?:[$#] )?(svc .*)$", re.MULTILINE)
_IN_PROSE: Final = re.compile(r"(?<![\w./~`-])svc ([a-z][a-z-]*) ([a-z][a-z-]*)")
_SUBSTITUTED: Final = re.compile(r"\$\([^)]*\)")
_END: Final = re.compile(r"[|;&<>#]|\d?>")
"""A word at which the call ends, and the shell goes on."""


def sentences(tree: ast.AST) -> Iterator[str]:
    """The strings of a module; in place of what a format string fills in there is an ellipsis."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def texts() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "svcd").rglob("*.py")):
        for sentence in sentences(ast.parse(path.read_text("utf-8"))):
            yield str(path.relative_to(ROOT)), sentence
    for pattern in PAGES:
        paths = [path for path in sorted(ROOT.glob(pattern)) if path.is_file()]
        assert paths, pattern
        for path in paths:
            yield str(path.relative_to(ROOT)), path.read_text("utf-8")


def calls(text: str) -> Iterator[str]:
    """The calls of svc in a text: in backticks, as a line of their own, and in a sentence."""
    yield from (" ".join(found.split()) for found in _QUOTED.findall(text))
    yield from _LINE.findall(text)
    # In a sentence "svc" is also a subject, so the first word decides, and only of a group is the second one checked.
    for first, second in _IN_PROSE.findall(text):
        if isinstance(svc.commands.get(first), click.Group):
            yield f"svc {first} {second}"


def fault(call: str) -> str:
    """What svc does not know of a call; "" for one that it takes, or the beginning of one."""
    path: list[click.Command] = [svc]
    words = iter(_SUBSTITUTED.sub("…", call).split()[1:])
    for word in words:
        if _END.match(word):
            return ""
        known = {name: option for each in path for option in each.params for name in option.opts}
        if word.startswith("-"):
            name = word.partition("=")[0].rstrip(".,;:)")
            option = {**known, "--help": None, "-h": None, "--version": None}.get(name, "unknown")
            if option == "unknown":
                return f"no option {name}"
            if isinstance(option, click.Option) and not option.is_flag and not option.count and "=" not in word:
                next(words, None)
            continue
        group = path[-1]
        if not isinstance(group, click.Group):
            continue
        alternatives = [each for each in word.rstrip(".,;:)").split("|") if re.fullmatch("[a-z][a-z-]*", each)]
        if not alternatives:
            return ""
        for each in alternatives:
            if each not in group.commands:
                return f"no command {each}"
        inner = group.commands[alternatives[0]]
        path.append(inner.load() if isinstance(inner, LazyCommand) else inner)
    return ""


def test_every_call_that_is_named_is_one_that_svc_takes() -> None:
    found = [(origin, call) for origin, text in texts() for call in calls(text)]
    assert len(found) > 500
    assert [f"{origin}: {call}: {reason}" for origin, call in found if (reason := fault(call))] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("run `svc db verfy` on the node", "no command verfy"),
        ("run svc node keys first", "no command keys"),
        ("run `svc frobnicate`", "no command frobnicate"),
        ("\n    svc db check data --headers\n", "no option --headers"),
        ("`svc wallet new|make`", "no command make"),
        ("`svc --network festival.toml wallet\nopen`", "no command open"),
    ],
)
def test_a_call_that_svc_refuses_is_found(text: str, reason: str) -> None:
    assert reason in [fault(call) for call in calls(text)]
