"""docs/http.md quotes the refusals of transfers as the code writes them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## POST /rpc/broadcast\n")[1].split("\n## ")[0]
QUOTED = re.findall(r"^\| `([^`]+)` \|", SECTION, re.MULTILINE)
MODULES = ("chain/transaction.py", "chain/transition.py", "chain/units.py", "chain/errors.py", "node/mempool.py")


def texts(module: str) -> Iterator[str]:
    """The strings of a module, with a number in place of each value that is put into one."""
    for node in ast.walk(ast.parse((ROOT / "svcd" / module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(each.value) if isinstance(each, ast.Constant) else "0" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


TEXTS = [text for module in MODULES for text in texts(module)]


def is_said(sentence: str) -> bool:
    """Whether a string of the code has the words of ``sentence`` in their order, around numbers and ellipses."""
    words = [re.escape(part.strip()) for part in re.split(r"\d+|…", sentence) if part.strip()]
    return any(re.search(".*".join(words), text) for text in TEXTS)


def test_all_refusals_are_quoted() -> None:
    assert len(QUOTED) == 12


@pytest.mark.parametrize("sentence", QUOTED)
def test_a_refusal_is_quoted_as_the_code_writes_it(sentence: str) -> None:
    assert is_said(sentence)


@pytest.mark.parametrize("sentence", ["nonce 3 is used already; the next one is 5", "fee must be 10000 or more"])
def test_another_sentence_is_not(sentence: str) -> None:
    assert not is_said(sentence)
