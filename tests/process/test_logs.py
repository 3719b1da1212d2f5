"""One line of log for each event."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies
from twisted.logger import LogEvent, Logger, LogLevel, globalLogPublisher
from twisted.python import log as legacy
from twisted.python.failure import Failure

from svcd.process.hangup import rotate_on_signal
from svcd.process.logs import (
    MAX_QUEUED,
    REPEATS,
    REPEATS_SECONDS,
    LineObserver,
    LogThread,
    NodeLog,
    RepeatFilter,
    TerminalObserver,
    json_line,
    text_line,
)

TIME = 1793491200.25  # 2026-11-01T00:00:00.250Z


def event(form: str = "connected block {height}", **fields: Any) -> LogEvent:
    return {
        "log_time": TIME,
        "log_level": LogLevel.info,
        "log_namespace": "svcd.node.chain_manager",
        "log_format": form,
        "log_logger": object(),
        "height": 7,
        **fields,
    }


def failure() -> Failure:
    try:
        raise ValueError("no {braces}\nplease")
    except ValueError:
        return Failure()


def logger(level: str = "info", form: str = "text") -> tuple[Logger, list[str]]:
    lines: list[str] = []
    return Logger("svcd.test", observer=NodeLog(form, level, lines.append).observer), lines


def test_a_text_that_is_printed_is_an_object_where_every_line_is_one() -> None:
    for form in ("text", "json"):
        lines: list[str] = []
        NodeLog(form, "warn", lines.append).print("Welcome\n  in {two} lines\n")
        if form == "text":
            assert lines == ["Welcome\n  in {two} lines\n"]
        else:
            [line] = lines
            assert line.count("\n") == 1
            told = json.loads(line)
            assert (told["level"], told["message"]) == ("info", "Welcome\n  in {two} lines")


# At a terminal


def terminal_of(columns: int = 80) -> tuple[TerminalObserver, list[str]]:
    written: list[str] = []
    return TerminalObserver(text_line, LogThread(), written.append, lambda: columns), written


def test_lines_are_above_the_status_line_which_is_rewritten() -> None:
    terminal, written = terminal_of()
    line = event()
    terminal(line)
    terminal.show_status("height 7")
    terminal.show_status("height 7")
    terminal(line)
    terminal.show_status("height 8")
    terminal.show_status("")
    terminal(line)
    assert written == [
        f"{text_line(line)}\n",
        "height 7",
        f"\r\x1b[K{text_line(line)}\nheight 7",
        "\r\x1b[Kheight 8",
        "\r\x1b[K",
        f"{text_line(line)}\n",
    ]


def test_progress_is_a_bar() -> None:
    terminal, written = terminal_of()
    terminal.show_status("7 of 8 blocks", 0.875)
    assert written == ["[##################--]  88% 7 of 8 blocks"]


def test_a_status_line_is_shorter_than_a_line_of_the_terminal() -> None:
    terminal, written = terminal_of(40)
    terminal.show_status("x" * 200, 1.0)
    assert written == ["[####################] 100% xxxxxxxxxxxx"[:39]]


def test_data_in_a_status_line_cannot_move_the_cursor() -> None:
    terminal, written = terminal_of()
    terminal.show_status("\r\x1b[2J")
    assert written[0].isprintable()


@pytest.mark.parametrize("terminal", [True, False])
def test_only_a_terminal_has_a_status_line_in_the_place_of_its_events(terminal: bool) -> None:
    script = (
        "from twisted.logger import Logger\n"
        "from svcd.process.logs import NodeLog\n"
        "log = NodeLog.opened({'nodaemon': True}, 'text', 'info')\n"
        "if log.terminal: log.terminal.show_status('half', 0.5)\n"
        "ours = Logger('n', observer=log.observer)\n"
        "ours.info('half', _on_status_line=True)\n"
        "ours.info('over')\n"
    )
    ours, theirs = pty.openpty() if terminal else os.pipe()
    with os.fdopen(ours, "rb") as read:
        subprocess.run([sys.executable, "-c", script], stdout=theirs, check=True, timeout=60)
        shown = os.read(read.fileno(), 10_000).decode("ascii")
        os.close(theirs)
    assert ("[##########----------]  50% half" in shown) is terminal
    assert ("[n] half" in shown) is not terminal
    assert "[n] over" in shown


# Text


def test_text() -> None:
    assert text_line(event()) == "2026-11-01T00:00:00.250Z info     [svcd.node.chain_manager] connected block 7"


def test_text_of_a_failure_goes_on_in_indented_lines() -> None:
    head, *rest = text_line(event(log_failure=failure())).split("\n")
    assert head.endswith("connected block 7")
    assert any("ValueError: no {braces}" in line for line in rest)
    assert all(line.startswith("    ") for line in rest)


@given(strategies.text())
def test_input_from_strangers_stays_on_one_log_line(text: str) -> None:
    line = text_line(event("peer says {text}", text=text))
    assert line.isprintable()


def test_control_characters_are_escaped_and_others_are_not() -> None:
    assert text_line(event("{text}", text="Zürich\n\x1b[31m\u202e\ud800")).endswith(
        "] Zürich\\n\\x1b[31m\\u202e\\ud800"
    )


# JSON


def test_json() -> None:
    assert json.loads(json_line(event(peer="a", ratio=0.5, flag=True, nothing=None, hash=b"\x00\xff", _private=1))) == {
        "time": "2026-11-01T00:00:00.250Z",
        "level": "info",
        "namespace": "svcd.node.chain_manager",
        "message": "connected block 7",
        "height": 7,
        "peer": "a",
        "ratio": 0.5,
        "flag": True,
        "nothing": None,
        "hash": "00ff",
    }


def test_json_of_a_failure() -> None:
    told = json.loads(json_line(event(log_failure=failure())))["failure"]
    assert told["type"] == "builtins.ValueError"
    assert told["message"] == "no {braces}\nplease"
    assert "in failure" in told["traceback"]


def test_a_field_cannot_pose_as_the_level() -> None:
    told = json.loads(json_line(event(level="critical", time="never", namespace="x")))
    assert (told["level"], told["namespace"]) == ("info", "svcd.node.chain_manager")
    assert told["time"].startswith("2026")


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), Unspeakable(), {1: 2}, "\ud800", "x" * 10**6, b"x" * 10**6, 10**400, 10**5000],
    ids=["nan", "inf", "no str", "dict", "surrogate", "long text", "long bytes", "big", "too big to print"],
)
def test_any_field_fits_into_one_line_of_json(value: object) -> None:
    line = json_line(event("{value!r}", value=value))
    assert json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert "\n" not in line
    assert len(line) < 10_000


def test_events_of_the_older_interface() -> None:
    lines: list[str] = []
    publisher = legacy.LogPublisher(publishPublisher=None)
    publisher.addObserver(lambda old: lines.append(json_line({"log_time": TIME, "log_namespace": "x", **old})))
    publisher.msg("old {style}", size=3)
    told = json.loads(lines[0])
    assert told["size"] == 3
    assert not {"isError", "system", "printed"} & set(told)


# The observer


def test_only_what_is_important_enough_is_written() -> None:
    log, lines = logger("warn")
    log.info("little")
    log.warn("much")
    log.critical("most")
    assert [line.split("] ")[1] for line in lines] == ["much\n", "most\n"]


def test_the_form_is_as_configured() -> None:
    log, lines = logger(form="json")
    log.info("hello {name}", name="world")
    assert json.loads(lines[0])["message"] == "hello world"


def test_a_bad_format_is_written_too() -> None:
    log, lines = logger()
    log.info("{nothing} {", other=1)
    assert len(lines) == 1


def test_threads_do_not_mix_their_lines() -> None:
    pieces: list[str] = []

    def write(line: str) -> None:
        pieces.append(line[:9])
        pieces.append(line[9:])

    observer = LineObserver(lambda event: "x" * 9 + str(event["height"]), write)
    threads = [
        threading.Thread(target=lambda n=n: [observer(event(f"{n}", height=n)) for _ in range(REPEATS)])
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(pieces[::2]) == {"x" * 9}
    assert len(pieces) == 2 * 8 * REPEATS


def test_an_error_that_is_logged_while_a_line_is_written_does_not_hang() -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 1:
            observer(event("while writing"))

    observer = LineObserver(text_line, write)
    observer(event())
    assert len(lines) == 2


# What repeats


def admitted(repeats: RepeatFilter, *events: LogEvent) -> list[LogEvent]:
    return [passed for each in events for passed in repeats.admit(each)]


def test_repeated_lines_are_left_out_and_counted() -> None:
    repeats = RepeatFilter()
    passed = admitted(repeats, *(event(height=height) for height in range(REPEATS + 5)))
    assert [each["height"] for each in passed] == list(range(REPEATS))
    later = event("another kind", log_time=TIME + REPEATS_SECONDS)
    told, other = admitted(repeats, later)
    assert other is later
    assert text_line(told) == (
        "2026-11-01T00:00:10.250Z info     [svcd.node.chain_manager] left out 5 more like: connected block 0"
    )


def test_after_a_while_the_same_is_written_again() -> None:
    repeats = RepeatFilter()
    admitted(repeats, *(event() for _ in range(REPEATS)))
    again = event(log_time=TIME + REPEATS_SECONDS)
    assert admitted(repeats, again) == [again]


def test_other_kinds_are_not_held_up() -> None:
    repeats = RepeatFilter()
    admitted(repeats, *(event() for _ in range(REPEATS + 1)))
    others = [event("else"), event(log_namespace="svcd.rpc"), event(log_level=LogLevel.warn)]
    assert admitted(repeats, *others) == others


def test_critical_events_always_pass() -> None:
    repeats = RepeatFilter()
    events = [event(log_level=LogLevel.critical) for _ in range(3 * REPEATS)]
    assert admitted(repeats, *events) == events
    later = event(log_time=TIME + REPEATS_SECONDS)
    assert admitted(repeats, later) == [later]


def test_a_clock_set_back_holds_nothing_up() -> None:
    repeats = RepeatFilter()
    admitted(repeats, *(event() for _ in range(REPEATS + 1)))
    earlier = event(log_time=TIME - 3600)
    assert admitted(repeats, earlier)[-1] is earlier


def test_nothing_is_remembered_for_longer_than_needed() -> None:
    repeats = RepeatFilter()
    for number in range(100):
        admitted(repeats, event(f"kind {number}", log_time=TIME + number * REPEATS_SECONDS))
    assert len(repeats._windows) == 1


def test_a_failure_is_written() -> None:
    log, lines = logger()
    log.failure("dividing", failure())
    assert "dividing" in lines[0]


# Where the log goes


def test_a_failure_of_which_another_line_tells_is_left_out() -> None:
    lines: list[str] = []
    log = NodeLog("text", "info", lines.append)
    log.leave_out(lambda error: isinstance(error, ValueError))
    ours = Logger("svcd.test", observer=log.observer)
    ours.failure("checking the alarms failed", failure())
    ours.failure("saving failed", Failure(OSError("no")))
    ours.info("height 7")
    assert [line.partition("] ")[2].partition("\n")[0] for line in lines] == ["saving failed", "height 7"]


def test_a_log_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    """It is ten files of ten megabytes at most, whoever makes the node write how much."""
    log = tmp_path / "node.log"
    opened: Any = NodeLog.opened({"logfile": str(log)}, "text", "info")
    lines = 130
    for number in range(lines):
        opened.thread.write(opened._file.write, f"{number} {'x' * 999_990}\n")
    opened._file.close()
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["node.log", *(f"node.log.{number}" for number in range(1, 10))]
    assert all(path.stat().st_size <= 11_000_000 for path in kept)
    assert log.read_text().split("\n")[-2].startswith(f"{lines - 1} "), "the newest lines are those that stay"


def test_a_rotation_begins_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    opened: Any = NodeLog.opened({"logfile": str(path)}, "text", "info")
    log = Logger("svcd.test", observer=opened.observer)
    log.info("one")
    opened.rotate()
    log.info("two")
    old = path.with_name("node.log.1")
    assert ("one" in old.read_text(), "one" in path.read_text(), "two" in path.read_text()) == (True, False, True)

    # As logrotate does, with `create` and without.
    for name, create in (("moved", True), ("away", False)):
        moved = path.rename(tmp_path / name)
        if create:
            path.touch()
        opened.rotate()
        log.info("in a new file after {name}", name=name)
        assert "in a new file" not in moved.read_text().splitlines()[-1] or name == "away"
        assert f"in a new file after {name}" in path.read_text()
    opened._file.close()


def test_a_file_that_another_program_truncates_has_no_hole(tmp_path: Path) -> None:
    """As logrotate does with `copytruncate`."""
    path = tmp_path / "node.log"
    opened: Any = NodeLog.opened({"logfile": str(path)}, "text", "info")
    log = Logger("svcd.test", observer=opened.observer)
    log.info("one")
    os.truncate(path, 0)
    log.info("two")
    assert path.read_text().endswith("two\n")
    assert "\0" not in path.read_text()
    opened._file.close()


def test_a_file_that_cannot_be_opened_again_is_tried_with_the_next_line(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "node.log"
    path.parent.mkdir()
    opened: Any = NodeLog.opened({"logfile": str(path)}, "text", "info")
    path.parent.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError):
        opened.rotate()
    path.parent.mkdir()
    Logger("svcd.test", observer=opened.observer).info("again")
    assert "again" in path.read_text()
    opened._file.close()


# In a thread of its own


class Reader:
    """Takes lines when it is let to, as the reader of a pipe."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self.waits = threading.Event()
        self.taken = threading.Semaphore(0)
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        """Wait until the line is read."""
        self.waits.set()
        assert self.reads.wait(60)
        self.lines.append(line)
        self.taken.release()


def test_lines_that_nobody_reads_hold_up_nothing_and_are_counted() -> None:
    reader, lines = Reader(), MAX_QUEUED + 5
    node_log = NodeLog("text", "info", reader.write)
    node_log.thread.begin()
    for number in range(lines):
        node_log.observer(event(f"{number}", log_level=LogLevel.critical))
    # One is being written, and it may not have been taken from the queue before others were refused.
    dropped = node_log.thread.dropped
    assert dropped in (4, 5)
    reader.reads.set()
    for _ in range(lines - dropped):
        assert reader.taken.acquire(timeout=60)
    node_log.thread.flush()
    assert [line.split()[-1] for line in reader.lines] == [str(number) for number in range(lines - dropped)]


def test_the_status_line_of_a_stopped_terminal_takes_no_room_from_lines() -> None:
    reader = Reader()
    node_log = NodeLog("text", "info", reader.write, columns=lambda: 80)
    assert node_log.terminal is not None
    node_log.thread.begin()
    node_log.terminal.show_status("begins")
    assert reader.waits.wait(60)
    for number in range(2 * MAX_QUEUED):
        node_log.terminal.show_status(f"second {number}")
    node_log.print("a line\n")
    for number in range(2 * MAX_QUEUED):
        node_log.terminal.show_status(f"minute {number}")
    assert node_log.thread.dropped == 0
    node_log.terminal.show_status("")
    reader.reads.set()
    node_log.thread.flush()
    assert "".join(reader.lines) == "begins\r\x1b[Ka line\n", "the status line is removed"


def test_a_status_line_that_cannot_be_written_is_no_dropped_line() -> None:
    def write(text: str) -> None:
        raise OSError(5, "Input/output error")

    node_log = NodeLog("text", "info", write, columns=lambda: 80)
    assert node_log.terminal is not None
    node_log.thread.begin()
    node_log.terminal.show_status("height 7")
    node_log.thread.flush()
    assert node_log.thread.dropped == 0


def test_what_was_dropped_is_told_once_lines_are_written_again() -> None:
    thread, told = LogThread(dropped=3), list[LogEvent]()
    thread.begin()
    globalLogPublisher.addObserver(told.append)
    try:
        thread.run(lambda: None)
        thread.run(lambda: None)
        thread.flush()
    finally:
        globalLogPublisher.removeObserver(told.append)
    assert [each["lines"] for each in told if each["log_namespace"] == LogThread._log.namespace] == [3]


def test_a_line_that_the_system_refuses_ends_nothing() -> None:
    lines: list[str] = []

    def write(line: str) -> None:
        if not lines and "one" in line:
            raise OSError(28, "No space left on device")
        lines.append(line)

    node_log = NodeLog("text", "info", write)
    node_log.thread.begin()
    log = Logger("svcd.test", observer=node_log.observer)
    log.info("one")
    log.info("two")
    node_log.thread.flush()
    assert node_log.thread.dropped == 1
    assert [line.split()[-1] for line in lines] == ["two"]


def test_the_end_of_the_process_writes_what_is_left(tmp_path: Path) -> None:
    script = (
        "from twisted.logger import Logger\n"
        "from svcd.process.logs import NodeLog\n"
        "node_log = NodeLog.opened({'nodaemon': True}, 'text', 'info')\n"
        "node_log.thread.begin()\n"
        "log = Logger('n', observer=node_log.observer)\n"
        "for number in range(20): log.info('line {number}', number=number)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert [line.rpartition("line ")[2] for line in done.stdout.splitlines()] == [str(number) for number in range(20)]


def test_the_level_can_change() -> None:
    lines: list[str] = []
    node_log = NodeLog("text", "info", lines.append)
    log = Logger("svcd.test", observer=node_log.observer)
    log.debug("one")
    node_log.set_level("debug")
    log.debug("two")
    node_log.set_level("error")
    log.warn("three")
    assert [line.split()[-1] for line in lines] == ["two"]
    node_log.rotate()


def test_sigusr1_rotates_and_never_ends_the_process(tmp_path: Path) -> None:
    class Immediate:
        def callFromThread(self, call: Callable[[], object], /) -> object:  # noqa: N802
            return call()

        def stop(self) -> None:
            """Not called."""

    path = tmp_path / "node.log"
    opened: Any = NodeLog.opened({"logfile": str(path)}, "text", "info")
    Logger("svcd.test", observer=opened.observer).info("one")
    before = signal.getsignal(signal.SIGUSR1)
    try:
        rotate_on_signal(Immediate(), opened.rotate)
        signal.raise_signal(signal.SIGUSR1)
        assert path.with_name("node.log.1").exists()
        rotate_on_signal(Immediate(), None)
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
        opened._file.close()


def test_log_options_of_twistd_are_left_to_it() -> None:
    for options in ({"syslog": True}, {"logger": "a.module"}, {"logfile": "-", "nodaemon": False}):
        assert NodeLog.opened(options, "text", "info") is None


def test_nothing_is_written_where_there_is_no_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    assert NodeLog.opened({"nodaemon": True}, "text", "info") is None
