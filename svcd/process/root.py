"""The service that twistd runs."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.logger import ILogObserver
from twisted.python.components import Componentized
from twisted.python.logfile import LogFile

from svcd.process.logs import Observer
from svcd.process.sequential import Sequential

_FILE_BYTES: Final = 10_000_000
_OLD_FILES: Final = 9
"""So many files of that size are kept beside the one that is written: a node is left alone for years."""


class Root(Sequential):
    """A group of services that brings its own log observer.

    twistd asks its application for an observer before it writes the first line and replays to it what was logged until
    then, so the configured form holds from the first line to the last.
    """

    def __init__(
        self,
        leave: Callable[[int], object],
        *,
        observer: Observer | None,
        sentences: tuple[type[Exception], ...] = (),
    ) -> None:
        """Make an empty group; see `Sequential`. Without an observer the log is twistd's own."""
        super().__init__(leave, sentences=sentences)
        self._observer = observer

    def setServiceParent(self, parent: Any) -> None:  # noqa: N802
        """Join the application and give it the observer."""
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)  # type: ignore[no-untyped-call]
        super().setServiceParent(parent)  # type: ignore[no-untyped-call]


def log_writer(twistd: Mapping[str, Any]) -> Callable[[str], None] | None:
    """Where twistd's own options say that the log goes: a function that writes a line there.

    Returns:
        None where twistd must decide for itself: for `--syslog` and `--logger`, and where standard output is asked for
        and will be closed.
    """
    file, foreground = twistd.get("logfile"), twistd.get("nodaemon")
    if twistd.get("syslog") or twistd.get("logger") or (file == "-" and not foreground):
        return None
    if file == "-" or (foreground and not file):
        return _to_standard_output()
    path = file or "twistd.log"
    log = LogFile.fromFullPath(path, rotateLength=_FILE_BYTES, maxRotatedFiles=_OLD_FILES)  # type: ignore[no-untyped-call]
    return log.write  # type: ignore[no-any-return]


def _to_standard_output() -> Callable[[str], None] | None:
    # twistd replaces sys.stdout by a file that logs what is printed.
    stream: Any = sys.__stdout__
    if stream is None:
        return None
    stream.reconfigure(errors="backslashreplace")

    def write(line: str) -> None:
        stream.write(line)
        stream.flush()

    return write
