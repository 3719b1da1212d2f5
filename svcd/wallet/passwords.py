"""Where the password of a keyfile comes from: a file, the environment, or the person at the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.wallet.disk import read_secret_line
from svcd.wallet.failed import Failed
from svcd.wallet.keyfile import password_problem
from svcd.wallet.terminal import ask_password

VARIABLE: Final = "SVC_WALLET_PASSWORD"


@frozen
class PasswordSource:
    """The file named on the command line, which goes first, and the environment."""

    file: Path | None
    environment: Mapping[str, str]

    def given(self) -> str | None:
        """The password from the file or the environment, or None; raises Failed."""
        if self.file is not None:
            return read_secret_line(self.file, "the password")
        return self.environment.get(VARIABLE) or None

    def existing(self) -> str:
        """The password of a keyfile; raises Failed or click.Abort."""
        given = self.given()
        return ask_password("Password of the wallet", twice=False) if given is None else given

    def new(self) -> str:
        """The password for a new keyfile, typed twice; raises Failed or click.Abort."""
        given = self.given()
        password = ask_password("New password, at least 10 characters", twice=True) if given is None else given
        problem = password_problem(password)
        if problem is not None:
            raise Failed(problem)
        return password
