"""README.md and docs/tutorial.md: their commands print what the pages show."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process_level.pages import ROOT, blocks_of
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode
from tests.programs import needs

PAGE = "README.md"
TUTORIAL = "docs/tutorial.md"
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
    """The words of each line; hashes, addresses, dates and times are replaced by the name of their kind."""
    return [[kind_of(word) for word in line.split()] for line in text.strip().splitlines()]


def kind_of(word: str) -> str:
    kinds = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, word) and word != OTHERS]
    return kinds[0] if kinds else word


def follow(commands: list[str], folder: Path, **environment: str) -> list[tuple[str, int]]:
    """The output of each entry, run in one shell, standard error included, and the exit status of its last command."""
    script = "".join(f'{text}printf "%s\\n" "{MARK} $?"\n' for text in commands)
    done = subprocess.run(
        ["bash", "-uc", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=ENVIRONMENT | environment,
        timeout=4 * DEADLINE,
        check=True,
    )
    parts = re.split(rf"^{MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    return [(printed, int(status)) for printed, status in zip(parts[:-1:2], parts[1::2], strict=True)]


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


@pytest.mark.socket
@pytest.mark.slow
@needs("bash")
def test_the_tutorial(make_devnet: Callable[[], RunningNode]) -> None:
    node = make_devnet()
    assert [block.language for block in blocks_of(TUTORIAL, "sh", "text")] == ["sh", "text"] * 5
    followed = follow(commands_of(TUTORIAL, node), prepared(node))
    for shown, (printed, status) in zip(blocks_of(TUTORIAL, "text"), followed, strict=True):
        assert words(printed) == words(shown.text)
        assert status == ("\nError: " in shown.text)


@pytest.mark.story
@pytest.mark.socket
@pytest.mark.slow
@needs("bash")
def test_the_first_screen(make_devnet: Callable[[], RunningNode]) -> None:
    """Each block shows the beginning of what its last command prints."""
    node = make_devnet()
    followed = follow(commands_of(PAGE, node), prepared(node))
    for shown, (printed, status) in zip(blocks_of(PAGE, "text"), followed, strict=True):
        *lines, rest = words(shown.text)
        last = words(printed[printed.rindex("state  ") :])
        assert (rest, last[: len(lines)], status) == (["…"], lines, 0)


def test_the_tutorial_covers_every_step() -> None:
    commands = "".join(block.text for block in blocks_of(TUTORIAL, "sh"))
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
    """What svcd is for, for whom, what sets it apart, and a verified payment come first, in a minute of reading."""
    first = TEXT.partition("\n## Run a node\n")[0]
    assert all(each in first for each in ("shops", "operators", "developers", "make devnet", "svc verify", "confirmed"))
    prose = re.sub(r"```.*?```|<picture>.*", "", first, flags=re.DOTALL)
    assert len(prose.split()) < 400
