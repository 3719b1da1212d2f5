"""README.md, followed by the letter."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode
from tests.programs import needs

PAGE = "README.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
MARK = "--- exit status"
KINDS = {
    "hash": "[0-9a-f]{64};?",
    "address": "svcd1q[02-9ac-hj-np-z]{38}",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "time": "[0-9]{2}:[0-9]{2}:[0-9]{2}",
}
OTHERS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


def words(text: str) -> list[list[str]]:
    """The words of each line; what differs from run to run is replaced by what kind of word it is."""
    return [[kind_of(word) for word in line.split()] for line in text.strip().splitlines()]


def kind_of(word: str) -> str:
    kinds = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, word) and word != OTHERS]
    return kinds[0] if kinds else word


def follow(commands: list[str], folder: Path, **environment: str) -> list[tuple[str, int]]:
    """What one shell prints for each of these, errors included, and the exit status of the last command in each."""
    script = "".join(f'{text}printf "%s\\n" "{MARK} $?"\n' for text in commands)
    done = subprocess.run(
        ["bash", "-uc", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=ENVIRONMENT | environment,
        timeout=2 * DEADLINE,
        check=True,
    )
    parts = re.split(rf"^{MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    return [(printed, int(status)) for printed, status in zip(parts[:-1:2], parts[1::2], strict=True)]


@pytest.mark.socket
@pytest.mark.slow
@needs("bash")
def test_the_story_of_the_devnet(make_devnet: Callable[[], RunningNode]) -> None:
    node = make_devnet()
    folder = node.data_dir.parent
    # The commands stay as they are; only the port is another one, since 18645 may be in use on this machine.
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    blocks = blocks_of(PAGE, "sh", "text")
    assert [block.language for block in blocks] == ["sh", "text"] * 5
    commands = [block.text.replace("http://127.0.0.1:18645", node.url) for block in blocks[::2]]
    assert node.url in commands[0]
    for shown, (printed, status) in zip(blocks[1::2], follow(commands, folder), strict=True):
        assert words(printed) == words(shown.text)
        assert status == ("\nError: " in shown.text)


def test_the_story_is_the_whole_story() -> None:
    commands = "".join(block.text for block in blocks_of(PAGE, "sh"))
    steps = ["faucet", "mine 100", "wallet send", "mine 1\n", "tx $txid", "reorganise 3", "tx $txid", "mine 1\n", "tx "]
    at = 0
    for step in steps:
        at = commands.index(step, at) + len(step)


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^    make (\w+)", TEXT, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", [PAGE, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", text):
        assert target == "" or (folder / target).exists(), target


def test_it_fits_the_first_screen() -> None:
    """What it is, the two commands and what one sees, before anything else."""
    first = "\n".join(TEXT.splitlines()[:30])
    assert all(each in first for each in ("make run", "make test", "/rpc/status", "SVC-MAINNET"))
