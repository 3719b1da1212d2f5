"""The prompts of all commands: passwords and confirmations."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from attrs import frozen

from svcd.cli.errors import CommandError
from svcd.cli.passwords import MIN_LENGTH, password_problem
from svcd.cli.remembered import Remembered
from svcd.cli.secure_files import read_secret_line

T = TypeVar("T")

PASSWORD_VARIABLE: Final = "SVC_WALLET_PASSWORD"  # noqa: S105

_EXPOSED: Final = (
    f"Warning: other programs of this user can read {PASSWORD_VARIABLE}, and programs that a shell starts inherit it;"
    " --password-file FILE is safer. This is said only once."
)


def confirm(question: str) -> bool:
    """Whether the user answers yes; an empty answer is no. Raises click.Abort."""
    return click.confirm(question, err=True)


def ask(question: str, default: str, parse: Callable[[str], T]) -> T:
    """What the user types, parsed, and asked again while ``parse`` raises ValueError. Raises click.Abort."""

    def parsed(typed: str) -> T:
        try:
            return parse(typed)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    answer: T = click.prompt(question, default=default, err=True, value_proc=parsed)
    return answer


@frozen
class PasswordSource:
    """Where the password of a keyfile comes from: --password-file, else the environment, else a prompt."""

    file: Path | None
    environ: Mapping[str, str]
    random: Callable[[int], bytes] | None = None
    """Returns that many secure random bytes, for the suggestion of a password at the terminal."""

    def existing(self) -> str:
        """The password of a keyfile; raises CommandError or click.Abort."""
        given = self._given()
        return _prompt_password("Password of the wallet") if given is None else given

    def new(self) -> str:
        """The password for a new keyfile, judged and then typed again; raises CommandError or click.Abort."""
        given = self._given()
        if given is not None:
            # A suggestion belongs on the terminal of the user, and not into the log of a program.
            return _judged(given, None)
        return _prompt_password(
            f"New password, at least {MIN_LENGTH} characters",
            confirmation_prompt="Repeat the password",
            value_proc=lambda typed: _judged(typed, self.random),
        )

    def _given(self) -> str | None:
        if self.file is not None:
            return read_secret_line(self.file, "the password")
        password = self.environ.get(PASSWORD_VARIABLE) or None
        if password is not None:
            self._warn_once()
        return password

    def _warn_once(self) -> None:
        warned = Remembered.of(self.environ, "warnings")
        if PASSWORD_VARIABLE not in warned:
            click.echo(_EXPOSED, err=True)
            warned.add(PASSWORD_VARIABLE)


def _prompt_password(question: str, **given: Any) -> str:
    """A password typed without echo; raises click.Abort."""
    password: str = click.prompt(question, hide_input=True, err=True, **given)
    return password


def _judged(password: str, random: Callable[[int], bytes] | None) -> str:
    """``password``, unless it is weak: that raises CommandError, with a suggestion if there is ``random``."""
    problem = password_problem(password, random)
    if problem is not None:
        raise CommandError(problem)
    return password
