"""One line of log for each event, for people (`text`) or for programs (`json`).

Data is in an event's fields, never in its format string. Data from the network cannot forge a line: unprintable
characters are escaped. In the text form a traceback follows its line, indented. At a terminal, events with a field
`progress`, from 0 to 1, are a bar below the other lines, with their field `_short` or the message.
"""

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Any, Final, cast

from attrs import define
from twisted.logger import (
    FilteringLogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
)
from twisted.python.logfile import LogFile
from twisted.python.reflect import qual, safe_str

from svcd.limits import limit

Observer = Callable[[LogEvent], None]

REPEATS_SECONDS: Final = 10.0
REPEATS: Final = limit(
    20,
    f"lines of one kind in {REPEATS_SECONDS:g} s",
    "lines",
    "Control characters, to forge log lines or control a terminal, or endless log lines, to fill the disk",
)
"""Up to REPEATS events of one kind are written in REPEATS_SECONDS; the others are counted."""

_FILE_BYTES: Final = 10_000_000
_OLD_FILES: Final = 9
"""A full log file is rotated, and this many old ones are kept."""
_ERASE_LINE: Final = "\r\x1b[K"
_BAR_COLUMNS: Final = 20
_MESSAGE_LENGTH, _FIELD_LENGTH, _TRACEBACK_LENGTH = 4_000, 1_000, 20_000
# Keys that Twisted's older logging interface adds to every event.
_LEGACY = {"debug", "failure", "format", "isError", "message", "printed", "system", "time", "why"}
_OURS = {"time", "level", "namespace", "message", "failure"}


class NodeLog:
    """The log of the node: an observer that writes lines, whose level can change and whose file can be rotated."""

    _log = Logger()

    def __init__(
        self,
        form: str,
        level: str,
        write: Callable[[str], object],
        file: LogFile | None = None,
        *,
        columns: Callable[[], int] | None = None,
    ) -> None:
        """Make the log.

        Args:
            form: "text" or "json".
            level: the least important level to write: "debug", "info", "warn", "error" or "critical".
            write: takes one finished line (with its traceback, in the text form) at a time, from any thread.
            file: where ``write`` writes; None for standard output.
            columns: returns the width of the terminal that shows the log, if one does.
        """
        self._file = file
        self._level = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
        line = {"text": text_line, "json": json_line}[form]
        self._lines = LineObserver(line, write) if columns is None else TerminalObserver(line, write, columns)
        # Any: mypy does not see that these classes provide the zope interfaces that the filter asks for.
        self.observer: Observer = FilteringLogObserver(cast(Any, self._lines), cast(Any, [self._level]))

    @classmethod
    def opened(cls, twistd: Mapping[str, Any], form: str, level: str) -> "NodeLog | None":
        """The log that twistd's own options name.

        Returns:
            None where twistd itself must open the log: for `--syslog` and `--logger`, and for standard output of a
            daemon, which closes it.
        """
        file, foreground = twistd.get("logfile"), twistd.get("nodaemon")
        if twistd.get("syslog") or twistd.get("logger") or (file == "-" and not foreground):
            return None
        if file == "-" or (foreground and not file):
            # Not sys.stdout: twistd replaces that by a file that logs everything printed.
            stream = sys.__stdout__
            if stream is None:
                return None
            columns = _columns if form == "text" and stream.isatty() else None
            return cls(form, level, _writer_to(stream), columns=columns)
        log: Any = LogFile.fromFullPath(  # type: ignore[no-untyped-call]
            file or "twistd.log", rotateLength=_FILE_BYTES, maxRotatedFiles=_OLD_FILES
        )
        return cls(form, level, log.write, log)

    def set_level(self, level: str) -> None:
        """Write the events of this level and of more important ones from now on."""
        self._level.setLogLevelForNamespace("", LogLevel.levelWithName(level))

    def rotate(self) -> None:
        """Begin a new file, on SIGUSR1; one that another program has moved away is opened again."""
        if self._file is None:
            self._log.info(
                "SIGUSR1: the node does not write the log to a file of its own, so there is nothing to rotate"
            )
            return
        with self._lines.lock:
            moved = not os.path.exists(self._file.path) or not os.path.getsize(self._file.path)
            (self._file.reopen if moved else self._file.rotate)()  # type: ignore[no-untyped-call]
        self._log.info("SIGUSR1: the log begins a new file")


def _columns() -> int:
    return get_terminal_size().columns


def _writer_to(stream: Any) -> Callable[[str], None]:
    stream.reconfigure(errors="backslashreplace")

    def write(line: str) -> None:
        stream.write(line)
        stream.flush()

    return write


class LineObserver:
    """Writes events as lines, at a limited rate for each kind of event."""

    def __init__(self, line: Callable[[LogEvent], str], write: Callable[[str], object]) -> None:
        self._line = line
        self._write = write
        self._repeats = RepeatFilter()
        # Reentrant: the garbage collector may report a lost failure while a line is being written.
        self.lock = threading.RLock()

    def __call__(self, event: LogEvent) -> None:
        """Write the event."""
        with self.lock:
            for admitted in self._repeats.admit(event):
                self._show(admitted)

    def _show(self, event: LogEvent) -> None:
        self._write(self._line(event) + "\n")


class TerminalObserver(LineObserver):
    """Writes events as lines, and those with a field `progress` as a bar that the next event takes the place of."""

    def __init__(
        self, line: Callable[[LogEvent], str], write: Callable[[str], object], columns: Callable[[], int]
    ) -> None:
        super().__init__(line, write)
        self._columns = columns
        self._has_bar = False

    def _show(self, event: LogEvent) -> None:
        progress = event.get("progress")
        if progress is None:
            shown = f"{self._line(event)}\n"
        else:
            shown = self._bar(progress, _printable(str(event.get("_short") or _message(event))))
        self._write(_ERASE_LINE + shown if self._has_bar else shown)
        self._has_bar = progress is not None

    def _bar(self, progress: float, text: str) -> str:
        done = round(progress * _BAR_COLUMNS)
        bar = f"[{'#' * done}{'-' * (_BAR_COLUMNS - done)}] {progress:4.0%} {text}"
        # A bar of more than one line could not be erased.
        return bar[: self._columns() - 1]


def text_line(event: LogEvent) -> str:
    """`2026-11-20T09:27:21.123Z info     [svcd.node.chain_manager] connected block 7`."""
    head = f"{_time(event)} {_level(event):<8} [{_namespace(event)}] {_printable(_message(event))}"
    failure = event.get("log_failure")
    if failure is None:
        return head
    trace = failure.getTraceback()[-_TRACEBACK_LENGTH:].strip().split("\n")
    return "\n    ".join([head, *(_printable(part) for part in trace)])


def json_line(event: LogEvent) -> str:
    """One JSON object: time, level, namespace, message, the event's own fields, and a failure if there is one."""
    fields: dict[str, Any] = {
        "time": _time(event),
        "level": _level(event),
        "namespace": _namespace(event),
        "message": _message(event),
    }
    for name, value in event.items():
        if not name.startswith(("log_", "_")) and name not in _LEGACY | _OURS:
            fields[name] = _plain(value)
    failure = event.get("log_failure")
    if failure is not None:
        fields["failure"] = {
            "type": qual(failure.type),
            "message": safe_str(failure.value)[:_MESSAGE_LENGTH],
            "traceback": failure.getTraceback()[-_TRACEBACK_LENGTH:],
        }
    return json.dumps(fields)


@define
class _Window:
    first: LogEvent
    seen: int = 0


class RepeatFilter:
    """Passes REPEATS events of a kind (namespace, level, format) in REPEATS_SECONDS, and counts the others.

    The count is logged with the first event of any kind after that time. Critical events always pass.
    """

    def __init__(self) -> None:
        self._windows: dict[tuple[str, str, str], _Window] = {}

    def admit(self, event: LogEvent) -> Iterator[LogEvent]:
        """Yield the events to write: counts that are due, and this event unless it exceeds the limit of its kind."""
        yield from self._due(event["log_time"])
        kind = (_namespace(event), _level(event), str(event.get("log_format")))
        window = self._windows.setdefault(kind, _Window(event))
        window.seen += 1
        if window.seen <= REPEATS or event.get("log_level") is LogLevel.critical:
            yield event

    def _due(self, now: float) -> Iterator[LogEvent]:
        # A dict keeps the order of insertion: the oldest windows come first. A clock set back closes them all.
        expired = []
        for kind, window in self._windows.items():
            if 0 <= now - window.first["log_time"] < REPEATS_SECONDS:
                break
            expired.append(kind)
        for kind in expired:
            window = self._windows.pop(kind)
            if window.seen > REPEATS and window.first.get("log_level") is not LogLevel.critical:
                yield _left_out(window, now)


def _left_out(window: _Window, now: float) -> LogEvent:
    return {
        "log_time": now,
        "log_level": window.first.get("log_level"),
        "log_namespace": _namespace(window.first),
        "log_format": "left out {left_out} more like: {like}",
        "left_out": window.seen - REPEATS,
        "like": formatEvent(window.first),
    }


def _time(event: LogEvent) -> str:
    return datetime.fromtimestamp(event["log_time"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(event: LogEvent) -> str:
    level = event.get("log_level")
    return "info" if level is None else str(level.name)


def _namespace(event: LogEvent) -> str:
    return str(event.get("log_namespace"))


def _message(event: LogEvent) -> str:
    return formatEvent(event)[:_MESSAGE_LENGTH]


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _plain(value: object) -> object:
    """A value as JSON represents it; bytes become hex, and other types without a JSON form become text."""
    if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, int) and value.bit_length() <= 64:
        return value
    if isinstance(value, bytes):
        return value[:_FIELD_LENGTH].hex()
    return safe_str(value)[:_FIELD_LENGTH]
