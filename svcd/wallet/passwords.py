"""Where the password of a keyfile comes from: a file, the environment, or the person at the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.wallet.disk import read_secret
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
            return _from_file(self.file)
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


def _from_file(path: Path) -> str:
    try:
        text = read_secret(path).decode("utf-8")
    except UnicodeDecodeError:
        raise Failed(f"{path} must hold UTF-8 text, the password alone") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        raise Failed(f"{path} must hold one line, the password alone")
    return password
