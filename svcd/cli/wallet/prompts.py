"""The prompts for the 24 words of a wallet."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from svcd.cli.errors import CommandError
from svcd.cli.secure_files import read_secret_text
from svcd.cli.wallet.mnemonic import WORDS, parse_mnemonic

_WORDS_PER_LINE: Final = 4
_CONFIRMED_WORDS: Final = 2
"""How many of the words the user types to confirm that they are written down."""

_CLEAR: Final = "\x1b[H\x1b[2J"
_SHOW_ALTERNATE: Final = f"\x1b[?1049h{_CLEAR}"
"""xterm's control sequences. A terminal that ignores the first one has only its own screen cleared."""
_HIDE_ALTERNATE: Final = f"{_CLEAR}\x1b[?1049l"


def prompt_words() -> list[str]:
    """The 24 words, typed without echo. Raises CommandError or click.Abort."""
    return parse_mnemonic(click.prompt("The 24 words, separated by spaces", hide_input=True, err=True))


def read_words(path: Path) -> list[str]:
    """The 24 words in a file that only its owner may read. Raises CommandError."""
    text = read_secret_text(path)
    if not text.isascii():
        raise CommandError(f"{path} must be ASCII text and contain only the {WORDS} words")
    return parse_mnemonic(text)


def show_words_once(words: list[str], random: Callable[[int], bytes]) -> None:
    """Show the words, and return once the user has typed some of them from the written copy. Raises click.Abort.

    They are on the alternate screen of the terminal, which is cleared before the first question and has no scrollback.
    ``random`` returns that many secure random bytes.
    """
    with _alternate_screen():
        click.echo(f"{_WARNING}\n\n{format_words(words)}\n", err=True)
        click.prompt("Press Enter once they are on paper", default="", show_default=False, err=True)
    remaining = list(range(1, WORDS + 1))
    positions = sorted(remaining.pop(byte % len(remaining)) for byte in random(_CONFIRMED_WORDS))
    for position in positions:
        _prompt_until(
            f"Type word {position} from your copy",
            words[position - 1],
            f"That is not word {position}; check your copy",
        )


@contextmanager
def _alternate_screen() -> Iterator[None]:
    """Show what follows on a screen of its own, and leave nothing of it. Ctrl-C, Ctrl-\\, SIGTERM: click.Abort."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGQUIT)}
    for number in previous:
        signal.signal(number, signal.default_int_handler)
    click.echo(_SHOW_ALTERNATE, nl=False, err=True)
    try:
        yield
    finally:
        click.echo(_HIDE_ALTERNATE, nl=False, err=True)
        for number, handler in previous.items():
            signal.signal(number, handler)


def format_words(words: list[str]) -> str:
    """The numbered words, to be read from left to right."""
    width = max(map(len, words))
    cells = [f"{position:>2} {word:<{width}}" for position, word in enumerate(words, 1)]
    lines = [cells[start : start + _WORDS_PER_LINE] for start in range(0, len(cells), _WORDS_PER_LINE)]
    return "\n".join("   ".join(line).rstrip() for line in lines)


def _prompt_until(question: str, expected: str, if_wrong: str) -> None:
    def check(text: str) -> str:
        if text.strip().lower() != expected:
            raise click.UsageError(if_wrong)
        return text

    click.prompt(question, value_proc=check, err=True)


_WARNING: Final = (
    "These 24 words are the wallet. Anyone who reads them can spend its coins, and you can restore the wallet from\n"
    "them on any computer. They are shown only once. Write them on paper, in this order, where nobody is watching;\n"
    "do not photograph, store or send them."
)
