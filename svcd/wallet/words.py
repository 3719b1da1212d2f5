"""The words of a wallet at the terminal: shown once, asked for, or kept in files of the owner's alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from svcd.wallet.derivation import WORDS, check_words
from svcd.wallet.disk import read_secret
from svcd.wallet.failed import Failed
from svcd.wallet.terminal import ask_hidden, ask_until

_COLUMNS: Final = 4
_ASKED: Final = 2
"""How many of the words the person types to show that they are written down."""


def words_table(words: list[str]) -> str:
    """The words with their numbers, to be read from left to right."""
    width = max(map(len, words))
    cells = [f"{place:>2} {word:<{width}}" for place, word in enumerate(words, 1)]
    lines = [cells[start : start + _COLUMNS] for start in range(0, len(cells), _COLUMNS)]
    return "\n".join("   ".join(line).rstrip() for line in lines)


def show_once(words: list[str], random: Callable[[int], bytes]) -> None:
    """Show the words, and return once some of them have been typed from what was written down. Raises click.Abort."""
    click.echo(f"{_WARNING}\n\n{words_table(words)}\n", err=True)
    for place in _places(random):
        again = f"That is not word {place}; look at what you wrote down"
        ask_until(f"Type word {place} from your paper", words[place - 1], again)


def ask_words() -> list[str]:
    """The 24 words that the person types, unseen. Raises Failed or click.Abort."""
    return check_words(ask_hidden("The 24 words, with blanks between them"))


def read_words(path: Path) -> list[str]:
    """The 24 words in a file that nobody but its owner may read. Raises Failed."""
    try:
        return check_words(read_secret(path, "the words").decode("ascii"))
    except UnicodeDecodeError:
        raise Failed(f"{path} must hold the {WORDS} words, in ASCII, alone") from None


def _places(random: Callable[[int], bytes]) -> list[int]:
    """Which words to ask for, ascending; ``random`` gives bytes that nobody can guess."""
    left = list(range(1, WORDS + 1))
    return sorted(left.pop(byte % len(left)) for byte in random(_ASKED))


_WARNING: Final = (
    "These 24 words are the wallet. Whoever reads them can spend its coins, and with them you can make the wallet\n"
    "again on any computer. They are shown this once. Write them on paper, in this order, where nobody watches; no\n"
    "photograph, no file, no mail."
)
