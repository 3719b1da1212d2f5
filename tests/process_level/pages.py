"""Runs what documentation shows, and compares what comes back with what the page says comes back."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.process_level.running import DEADLINE, ENVIRONMENT

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FORMS = {
    "hash": "[0-9a-f]{64}",
    "signature": "[0-9a-f]{128}",
    "nonce": "[0-9a-f]{16}",
    "address": "svcd1q[02-9ac-hj-np-z]{38}",
    "node id": "svcnode_[0-9a-f]{32}",
    "watch id": "svcwh_[0-9a-f]{32}",
    "number": "[0-9]+",
}


@frozen
class Block:
    """A code block of a page."""

    language: str
    text: str


def blocks_of(page: str, *languages: str) -> list[Block]:
    """The code blocks in these languages of a page of the project, in order."""
    return blocks_in((ROOT / page).read_text(encoding="utf-8"), *languages)


def blocks_in(text: str, *languages: str) -> list[Block]:
    """The code blocks in these languages of a text, in order."""
    return [Block(*found) for found in _FENCED.findall(text) if found[0] in languages]


def section(page: str, heading: str) -> str:
    """The text of a page under a heading, up to the next one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.split(r"^##", text.split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def run(commands: str, folder: Path, **environment: str) -> str:
    """What a shell prints that is given these commands; none of them may fail or complain."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        capture_output=True,
        text=True,
        cwd=folder,
        env=ENVIRONMENT | environment,
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), (commands, done)
    return done.stdout


def form(value: str) -> str:
    """What kind of text this is; text of no kind stands for itself, but for the numbers in it."""
    kinds = [kind for kind, pattern in _FORMS.items() if re.fullmatch(pattern, value)]
    return kinds[0] if kinds else re.sub("[0-9]+", "0", value)


def agrees(shown: Any, got: Any) -> bool:
    """Whether an answer has the same members as a shown one, of the same types and kinds.

    `…` is the rest of hex; as the name of a member it stands for further members.
    """
    if isinstance(shown, dict) and isinstance(got, dict):
        named = {name: value for name, value in shown.items() if name != "…"}
        complete = shown.keys() == got.keys() if named == shown else named.keys() < got.keys()
        return complete and all(agrees(value, got[name]) for name, value in named.items())
    if isinstance(shown, list) and isinstance(got, list):
        return len(shown) == len(got) and all(map(agrees, shown, got))
    if isinstance(shown, str) and isinstance(got, str):
        if re.fullmatch("[0-9a-f]+…", shown):
            return re.fullmatch("[0-9a-f]{64}|[0-9a-f]{128}", got) is not None
        return form(shown) == form(got)
    return type(shown) is type(got) and shown == got


def check_json(shown: str, printed: str) -> None:
    """Fail unless printed JSON agrees with what a page shows: one text, or several after each other."""
    assert agrees(list(_texts(shown)), list(_texts(printed))), printed


def _texts(several: str) -> Iterator[Any]:
    decoder, rest = json.JSONDecoder(), several.strip()
    while rest:
        value, end = decoder.raw_decode(rest)
        yield value
        rest = rest[end:].lstrip()


def check_lines(shown: list[str], printed: list[str]) -> None:
    """Fail unless the printed lines are the shown ones, of which a first `…` is more that came before."""
    if shown[0] == "…":
        shown = shown[1:]
        printed = printed[-len(shown) :]
    assert printed == shown


def check_examples(page: str, folder: Path) -> list[str]:
    """Run the commands of a page in order, each with the answer below it as shown; return the commands."""
    examples = blocks_of(page, "sh", "json", "text")
    asked = [block.text for block in examples[::2]]
    assert asked
    assert all(block.language == "sh" for block in examples[::2])
    for commands, shown in zip(asked, examples[1::2], strict=True):
        printed = run(commands, folder)
        if shown.language == "json":
            check_json(shown.text, printed)
        else:
            assert printed == shown.text
    return asked


def check_head(shown: str, printed: str) -> None:
    """Fail unless the printed status line and headers are those that a page shows; dates are left out."""
    lines = printed.replace("\r", "").strip().splitlines()
    assert [line for line in lines if not line.startswith("Date: ")] == shown.splitlines()
