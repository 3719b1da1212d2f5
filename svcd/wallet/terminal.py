"""What is asked of the person at the terminal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

import click

_Action = Callable[[int, FrameType | None], Any] | int | None
_DEFAULTS: Final[dict[signal.Signals, _Action]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end a prompt at once.

    While the reactor runs they only ask it to stop, which it cannot do before the prompt is answered.
    """
    before = [(number, signal.getsignal(number)) for number in _DEFAULTS]
    for number, default in _DEFAULTS.items():
        signal.signal(number, default)
    try:
        yield
    finally:
        for number, earlier in before:
            signal.signal(number, earlier)


def ask_password(question: str, *, twice: bool) -> str:
    """The password that the person types, unseen; ``twice`` asks for it again. Raises click.Abort."""
    with interruptible():
        return click.prompt(
            question, hide_input=True, confirmation_prompt="The same password again" if twice else False, err=True
        )


def ask_hidden(question: str) -> str:
    """The line that the person types, unseen. Raises click.Abort."""
    with interruptible():
        return str(click.prompt(question, hide_input=True, err=True))


def ask_until(question: str, right: str, again: str) -> None:
    """Ask until the person types what is ``right``; ``again`` is said of anything else. Raises click.Abort."""

    def judge(text: str) -> str:
        if text.strip().lower() != right:
            raise click.UsageError(again)
        return text

    with interruptible():
        click.prompt(question, value_proc=judge, err=True)


def confirm(question: str) -> bool:
    """Whether the person says yes; no answer is no. Raises click.Abort."""
    with interruptible():
        return click.confirm(question, err=True)
