"""README.md: its commands print what it shows, also when they are pasted a second time."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import BIN, RunningNode
from tests.process_level.terminal import Terminal
from tests.programs import needs

PAGE = "README.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
KINDS = {
    "hash": "[0-9a-f]{64};?",
    "address": "svcd1q[02-9ac-hj-np-z]{38}",
    "date": r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "time": "[0-9]{2}:[0-9]{2}:[0-9]{2}",
    "order": "readme-[0-9]{10}",
}
OTHERS = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"


def words(text: str) -> list[list[str]]:
    """The words of each line; hashes, addresses, dates and times are replaced by the name of their kind."""
    return [[kind_of(word) for word in line.split()] for line in text.strip().splitlines()]


def kind_of(word: str) -> str:
    kinds = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, word) and word != OTHERS]
    return kinds[0] if kinds else word


def prepared(node: RunningNode) -> Path:
    """The folder in which a page's commands run: the devnet is in it, and the programs are in `.venv/bin`."""
    folder = node.data_dir.parent
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(BIN)
    return folder


def commands_of(page: str, node: RunningNode) -> list[str]:
    """The commands of a page with the port of ``node``, since 18645 may be in use on this machine."""
    commands = [block.text.replace("http://127.0.0.1:18645", node.url) for block in blocks_of(page, "sh")]
    assert node.url in commands[0]
    return commands


@pytest.mark.story
@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "date")
def test_the_first_screen_pasted_twice(make_devnet: Callable[[], RunningNode]) -> None:
    """Each block shows the beginning of what its last command prints, and each time another order is paid."""
    node = make_devnet()
    with Terminal(prepared(node)) as terminal:
        pasted = [terminal.paste(text) for _ in range(2) for text in commands_of(PAGE, node)]
    for shown, (printed, status) in zip(2 * blocks_of(PAGE, "text"), pasted, strict=True):
        *lines, rest = words(shown.text)
        assert "state  " in printed, printed
        last = words(printed[printed.rindex("state  ") :])
        assert (rest, last[: len(lines)], status) == (["…"], lines, 0)


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^    make (\w+)|`make ([\w-]+)`", TEXT, re.MULTILINE)
    assert len(targets) >= 5
    for target in map("".join, targets):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", [PAGE, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)", text):
        assert target == "" or (folder / target).exists(), target


def test_it_fits_the_first_screen() -> None:
    """What svcd is for, for whom, what sets it apart, and a verified payment come first, in a minute of reading."""
    first, _, _ = TEXT.partition("\n## Next steps\n")
    assert all(each in first for each in ("shops", "operators", "developers", "make devnet", "svc verify", "confirmed"))
    prose = re.sub(r"```.*?```|<picture>.*", "", first, flags=re.DOTALL)
    assert len(prose.split()) < 400
    assert len(TEXT.splitlines()) <= 100
