"""What svc remembers for a user from one command to the next, in files of mode 0600 without secrets."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.cli.errors import CommandError
from svcd.cli.secure_files import read_secret, replace_file

_MAX_ENTRIES: Final = 60
"""Lines that a file keeps, the newest: with 64 digits each, they fit into the size that is read."""


@frozen
class Remembered:
    """A list of short lines in ``$XDG_STATE_HOME/svc``, by default ``~/.local/state/svc``.

    Where the folder cannot be read or written, nothing is remembered, and no error is raised.
    """

    path: Path | None

    @classmethod
    def of(cls, environ: Mapping[str, str], name: str) -> "Remembered":
        """The list ``name`` of the user with this environment."""
        state, home = environ.get("XDG_STATE_HOME"), environ.get("HOME")
        folder = Path(state) if state else Path(home, ".local", "state") if home else None
        # Relative ones are invalid (XDG Base Directory Specification), and would depend on the working directory.
        return cls(folder / "svc" / name if folder is not None and folder.is_absolute() else None)

    def __contains__(self, line: str) -> bool:
        return line in self._lines()

    def add(self, line: str) -> None:
        """Remember ``line`` as the newest, unless it is there."""
        lines = self._lines()
        if self.path is None or line in lines:
            return
        lines = [*lines, line][-_MAX_ENTRIES:]
        with suppress(CommandError, OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, "".join(f"{each}\n" for each in lines).encode("utf-8"))

    def _lines(self) -> list[str]:
        if self.path is None:
            return []
        try:
            return read_secret(self.path).decode("utf-8").splitlines()
        except (CommandError, UnicodeDecodeError):
            return []
