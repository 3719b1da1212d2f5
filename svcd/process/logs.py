"""One line of log for each event, for people (`text`) or for programs (`json`).

Data is in an event's fields, never in its format string. Data from the network cannot forge a line: unprintable
characters are escaped. In the text form a traceback follows its line, indented. A terminal has a status line below the
other lines, in the place of events with the field `_on_status_line`.

A pipe that its reader leaves full, or a disk that does not answer, holds up the thread that writes the log, and nothing
else: lines that do not fit into its queue are dropped and counted.
"""

import atexit
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from fcntl import F_GETFL, F_SETFL, fcntl
from functools import partial
from queue import SimpleQueue
from shutil import get_terminal_size
from typing import Any, Final, cast

from attrs import define, field
from twisted.application.service import Service
from twisted.logger import (
    FilteringLogObserver,
    LogEvent,
    Logger,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    formatEvent,
)
from twisted.python.logfile import LogFile
from twisted.python.reflect import qual, safe_str

from svcd.limits import ENDLESS_LOG, limit

Observer = Callable[[LogEvent], None]

REPEATS_SECONDS: Final = 10.0
REPEATS: Final = limit(20, f"lines of one kind in {REPEATS_SECONDS:g} s", "lines", ENDLESS_LOG)
"""Up to REPEATS events of one kind are written in REPEATS_SECONDS; the others are counted."""

MAX_QUEUED: Final = limit(1_024, "log lines that wait to be written", "lines", ENDLESS_LOG)
"""Lines that wait for the thread that writes the log; further ones are dropped and counted."""
FLUSH_SECONDS: Final = 2.0
"""How long the end of the process waits for the lines that were not written yet."""
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
        self._is_json = form == "json"
        self._level = LogLevelFilterPredicate(defaultLogLevel=LogLevel.levelWithName(level))
        self.thread = LogThread()
        self._is_told: Callable[[BaseException], bool] = lambda _error: False
        line, queue = {"text": text_line, "json": json_line}[form], partial(self.thread.write, write)
        self.terminal = None if columns is None else TerminalObserver(line, self.thread, write, columns)
        """Shows the log at a terminal; None elsewhere."""
        self._lines = self.terminal or LineObserver(line, queue)
        # Any: mypy does not see that these classes provide the zope interfaces that the filter asks for.
        filters = cast(Any, [self._level, self._leave_out_told])
        self.observer: Observer = FilteringLogObserver(cast(Any, self._lines), filters)

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
            return cls(form, level, partial(_write_all, stream.fileno()), columns=columns)
        log: Any = _AppendedLogFile.fromFullPath(  # type: ignore[no-untyped-call]
            file or "twistd.log", rotateLength=_FILE_BYTES, maxRotatedFiles=_OLD_FILES
        )
        return cls(form, level, log.write, log)

    def print(self, text: str) -> None:
        """Write a text as it is, after the lines before it; in the form "json" as one line, whatever ``level`` is."""
        if self._is_json:
            Logger(observer=cast(Any, self._lines)).info("{_text}", _text=text.strip())
        else:
            self._lines.print(text)

    def set_level(self, level: str) -> None:
        """Write the events of this level and of more important ones from now on."""
        self._level.setLogLevelForNamespace("", LogLevel.levelWithName(level))

    def leave_out(self, is_told: Callable[[BaseException], bool]) -> None:
        """Write no failure of which another line tells the operator, as ``is_told`` knows."""
        self._is_told = is_told

    def _leave_out_told(self, event: LogEvent) -> Any:
        failure = event.get("log_failure")
        told = failure is not None and self._is_told(failure.value)
        return PredicateResult.no if told else PredicateResult.maybe

    def rotate(self) -> None:
        """Begin a new file, on SIGUSR1; one that another program has moved away is opened again."""
        if self._file is None:
            self._log.info(
                "SIGUSR1: the node does not write the log to a file of its own, so there is nothing to rotate"
            )
            return
        self.thread.run(partial(_begin_new, self._file))
        self._log.info("SIGUSR1: the log begins a new file")


def _columns() -> int:
    return get_terminal_size().columns


def _write_all(descriptor: int, line: str) -> None:
    """Write to standard output.

    Not by its stream: while a full pipe holds up the thread that writes, the end of the process would wait for the
    stream's lock.
    """
    left = line.encode("utf-8", "backslashreplace")
    while left:
        left = left[os.write(descriptor, left) :]


def _begin_new(file: LogFile) -> None:
    moved = not os.path.exists(file.path) or not os.path.getsize(file.path)
    (file.reopen if moved else file.rotate)()  # type: ignore[no-untyped-call]


class _AppendedLogFile(LogFile):
    """A log file that another program may truncate, as logrotate's `copytruncate` does: writing goes on at its end."""

    def _openFile(self) -> None:  # noqa: N802
        try:
            super()._openFile()  # type: ignore[no-untyped-call]
        except OSError:
            self.closed = True
            raise
        descriptor = self._file.fileno()
        fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | os.O_APPEND)

    def shouldRotate(self) -> bool:  # noqa: N802
        return os.fstat(self._file.fileno()).st_size >= _FILE_BYTES

    def write(self, data: str) -> None:
        if self.closed:
            # The file could not be opened again, for instance because the disk was full.
            self._openFile()
        super().write(data)  # type: ignore[no-untyped-call]


@define(eq=False)
class LogThread:
    """Does what the log needs of the disk, or of the reader of a pipe, in a thread: in order, and for any thread."""

    dropped: int = 0
    """Lines since the start that were not written: the queue was full, or the system refused them."""
    _jobs: "SimpleQueue[Callable[[], object]]" = field(factory=SimpleQueue)
    _thread: threading.Thread | None = None
    _reported: int = 0
    _newest_waits: bool = False

    _log = Logger()

    def begin(self) -> None:
        """Start the thread, in the process that stays: twistd forks to become a daemon. Until then nothing waits."""
        # A daemon thread, for which the end of the process waits no longer than flush() does.
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)
        self._thread.start()
        atexit.register(self.flush)

    def write(self, write: Callable[[str], object], line: str) -> None:
        """Let ``write`` have a line, unless too many wait."""
        if self._thread is not None and self._jobs.qsize() >= MAX_QUEUED:
            self.dropped += 1
        else:
            self.run(partial(write, line))

    def write_newest(self, write: Callable[[], object]) -> None:
        """Call ``write`` after the lines before it; one that waits already writes what is newest then.

        A failure is not counted: it loses no line.
        """
        if not self._newest_waits:
            self._newest_waits = True
            self.run(partial(self._write_newest, write))

    def _write_newest(self, write: Callable[[], object]) -> None:
        self._newest_waits = False
        with suppress(OSError):
            write()

    def run(self, job: Callable[[], object]) -> None:
        """Do something after the lines before it."""
        if self._thread is None:
            job()
        else:
            # It may be called while it runs, by the garbage collector, which reports a lost failure.
            self._jobs.put(job)

    def flush(self) -> None:
        """Wait until all lines so far are written, for FLUSH_SECONDS at most."""
        written = threading.Event()
        self.run(written.set)
        written.wait(FLUSH_SECONDS)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except OSError:
                # A full disk, or a pipe whose reader has ended; where could that be told?
                self.dropped += 1
            else:
                self._report()

    def _report(self) -> None:
        lost, self._reported = self.dropped - self._reported, self.dropped
        if lost:
            self._log.warn(
                "{lines} lines of the log were dropped, because they could not be written in time", lines=lost
            )


class LogService(Service):
    """Writes the log in a thread from the start on; the first service to start."""

    name = "log"

    def __init__(self, thread: LogThread) -> None:
        self._thread = thread

    def startService(self) -> None:
        """Start the thread; it ends with the process, which logs until then."""
        super().startService()  # type: ignore[no-untyped-call]
        self._thread.begin()


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

    def print(self, text: str) -> None:
        """Write lines that are no event, as they are."""
        with self.lock:
            self._write(text)


class TerminalObserver(LineObserver):
    """Writes events as lines, above a status line."""

    def __init__(
        self,
        line: Callable[[LogEvent], str],
        thread: LogThread,
        write: Callable[[str], object],
        columns: Callable[[], int],
    ) -> None:
        super().__init__(line, partial(thread.write, self._write_line))
        self._thread, self._to_terminal, self._columns = thread, write, columns
        self._status = ""
        # What the terminal shows, for the thread that writes: while it waits for the terminal, the status goes on.
        self._shown = ""

    def show_status(self, text: str, progress: float | None = None) -> None:
        """Replace the status line; ``progress``, from 0 to 1, is a bar before the text, and "" alone is no line."""
        status = _printable(text)
        if progress is not None:
            done = round(progress * _BAR_COLUMNS)
            status = f"[{'#' * done}{'-' * (_BAR_COLUMNS - done)}] {progress:4.0%} {status}"
        with self.lock:
            # A status of more than one line could not be erased.
            self._status = status[: self._columns() - 1]
            self._thread.write_newest(self._write_status)

    def _show(self, event: LogEvent) -> None:
        if not event.get("_on_status_line"):
            super()._show(event)

    def _write_status(self) -> None:
        if self._status != self._shown:
            self._write_line("")

    def _write_line(self, text: str) -> None:
        status = self._status
        self._to_terminal(f"{_ERASE_LINE if self._shown else ''}{text}{status}")
        self._shown = status


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
