"""A terminal into which somebody pastes the commands of a page."""

import os
import pty
import re
import select
import subprocess
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.process_level.running import DEADLINE, ENVIRONMENT

_MARK: Final = "--- exit status"
_NOTICE: Final = re.compile(r"\[\d+\][+-]?  ?.*\n")
"""What the shell says of a job in the background."""


class Terminal:
    """An interactive bash on a pseudo-terminal of 120 columns, in a folder.

    It knows no bracketed paste: a program that reads from the terminal gets the lines that were pasted after its own,
    which are then not run. Nothing is echoed, and the shell has no prompt, so that only what commands print is seen.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self._ours, self._theirs = pty.openpty()
        modes = termios.tcgetattr(self._theirs)
        modes[1] &= ~termios.OPOST
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(self._theirs, termios.TCSANOW, modes)
        termios.tcsetwinsize(self._theirs, (40, 120))
        # The first terminal that the leader of a session opens becomes the one that it controls.
        controlling = 'exec bash --noprofile --norc --noediting -i <"$0" >"$0" 2>&1'
        self._shell = subprocess.Popen(
            ["bash", "-c", controlling, os.ttyname(self._theirs)],
            cwd=folder,
            env=ENVIRONMENT | {"PS1": "", "PS2": "", "TERM": "xterm"} | environment,
            start_new_session=True,
        )
        self.paste("PS1= PS2= HISTFILE=\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._theirs)
        os.close(self._ours)

    def paste(self, commands: str) -> tuple[str, int]:
        """What whole lines of commands print, notices of jobs left out, and the exit status of the last one."""
        waiting = f'{commands}printf "%s\\n" "{_MARK} $?"\n'.encode()
        seen, give_up_at = b"", time.monotonic() + DEADLINE
        while not (done := re.search(rf"{_MARK} (\d+)\n".encode(), seen)):
            assert time.monotonic() < give_up_at, (commands, seen)
            readable, writable, _ = select.select([self._ours], [self._ours] if waiting else [], [], 1)
            if writable:
                waiting = waiting[os.write(self._ours, waiting[:1024]) :]
            if readable:
                seen += os.read(self._ours, 65536)
        return _NOTICE.sub("", seen[: done.start()].decode()), int(done[1])
