"""Standard output that says when it cannot be written, so that no command seems to have printed what nobody got."""

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_CLOSED_PIPE_STATUS: Final = 128 + 13
"""The exit status that a shell shows for a program that SIGPIPE has ended (signal 13)."""
_DESCRIPTOR: Final = 1


class OutputFailed(OSError):
    """Standard output cannot be written. It has no errno: click would take EPIPE for the end of a pager."""


class _CheckedOutput(io.FileIO):
    """Standard output without buffer. After the first failure it takes everything, so that the process can end."""

    failure: OSError | None = None

    def write(self, data: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        """Write ``data``; raises OutputFailed once."""
        if self.failure is not None:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise OutputFailed(str(error)) from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Replace ``sys.stdout``; at the end raise SystemExit if it could not be written, even if somebody ignored that.

    The status is 1 after a sentence on standard error, or for a reader that has gone (``svc … | head -1``) that of
    SIGPIPE without one.
    """
    output = _open()
    try:
        with suppress(OutputFailed):
            yield
    finally:
        if output.failure is not None:
            sys.exit(_status(output.failure))


def _open() -> _CheckedOutput:
    before = sys.stdout
    if before is None:
        # The next file that is opened would get the number, and what is printed.
        os.dup2(os.open(os.devnull, os.O_RDONLY), _DESCRIPTOR)
    output = _CheckedOutput(_DESCRIPTOR, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=before.encoding if before is not None else "utf-8",
        # What a node or a file says may have characters that the encoding of this terminal has not.
        errors="backslashreplace",
        line_buffering=output.isatty(),
    )
    return output


def _status(failure: OSError) -> int:
    if failure.errno == errno.EPIPE:
        return _CLOSED_PIPE_STATUS
    reason = os.strerror(failure.errno or errno.EIO).lower()
    # Standard error may be on the same full disk.
    with suppress(OSError):
        print(
            f"Error: standard output cannot be written: {reason}; what the command has done is not undone",
            file=sys.stderr,
            flush=True,
        )
    return 1
