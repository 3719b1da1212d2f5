"""The prompts of the wallet: passwords, the 24 words and confirmations."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import click
from attrs import frozen

from svcd.cli.errors import CommandError
from svcd.cli.secure_files import read_secret, read_secret_line
from svcd.cli.wallet.keyfile import password_problem
from svcd.cli.wallet.mnemonic import WORDS, parse_mnemonic

PASSWORD_VARIABLE: Final = "SVC_WALLET_PASSWORD"  # noqa: S105
_WORDS_PER_LINE: Final = 4
_CONFIRMED_WORDS: Final = 2
"""How many of the words the user types to confirm that they are written down."""

_Action = Callable[[int, FrameType | None], Any] | int | None
_DEFAULT_HANDLERS: Final[dict[signal.Signals, _Action]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a prompt at once.

    With the reactor's handlers they would only ask it to stop, which it cannot do before the prompt returns.
    """
    previous = [(number, signal.getsignal(number)) for number in _DEFAULT_HANDLERS]
    for number, default in _DEFAULT_HANDLERS.items():
        signal.signal(number, default)
    try:
        yield
    finally:
        for number, handler in previous:
            signal.signal(number, handler)


def confirm(question: str) -> bool:
    """Whether the user answers yes; an empty answer is no. Raises click.Abort."""
    with interruptible():
        return click.confirm(question, err=True)


def prompt_password(question: str, *, twice: bool) -> str:
    """A password typed without echo; ``twice`` asks for it again. Raises click.Abort."""
    with interruptible():
        return click.prompt(
            question, hide_input=True, confirmation_prompt="Repeat the password" if twice else False, err=True
        )


@frozen
class PasswordSource:
    """Where the password of a keyfile comes from: --password-file, else the environment, else a prompt."""

    file: Path | None
    environ: Mapping[str, str]

    def existing(self) -> str:
        """The password of a keyfile; raises CommandError or click.Abort."""
        given = self._given()
        return prompt_password("Password of the wallet", twice=False) if given is None else given

    def new(self) -> str:
        """The password for a new keyfile, typed twice; raises CommandError or click.Abort."""
        given = self._given()
        password = prompt_password("New password, at least 10 characters", twice=True) if given is None else given
        problem = password_problem(password)
        if problem is not None:
            raise CommandError(problem)
        return password

    def _given(self) -> str | None:
        if self.file is not None:
            return read_secret_line(self.file, "the password")
        return self.environ.get(PASSWORD_VARIABLE) or None


def prompt_words() -> list[str]:
    """The 24 words, typed without echo. Raises CommandError or click.Abort."""
    with interruptible():
        return parse_mnemonic(click.prompt("The 24 words, separated by spaces", hide_input=True, err=True))


def read_words(path: Path) -> list[str]:
    """The 24 words in a file that only its owner may read. Raises CommandError."""
    try:
        return parse_mnemonic(read_secret(path).decode("ascii"))
    except UnicodeDecodeError:
        raise CommandError(f"{path} must be ASCII text and contain only the {WORDS} words") from None


def show_words_once(words: list[str], random: Callable[[int], bytes]) -> None:
    """Show the words, and return once the user has typed some of them from the written copy. Raises click.Abort.

    ``random`` returns that many secure random bytes.
    """
    click.echo(f"{_WARNING}\n\n{format_words(words)}\n", err=True)
    remaining = list(range(1, WORDS + 1))
    positions = sorted(remaining.pop(byte % len(remaining)) for byte in random(_CONFIRMED_WORDS))
    for position in positions:
        _prompt_until(
            f"Type word {position} from your copy",
            words[position - 1],
            f"That is not word {position}; check your copy",
        )


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

    with interruptible():
        click.prompt(question, value_proc=check, err=True)


_WARNING: Final = (
    "These 24 words are the wallet. Anyone who reads them can spend its coins, and you can restore the wallet from\n"
    "them on any computer. They are shown only once. Write them on paper, in this order, where nobody is watching;\n"
    "do not photograph, store or send them."
)
