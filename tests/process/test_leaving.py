"""Ending the process at once, with the status that was asked for."""

import subprocess
import sys

import pytest

DEADLINE = 120.0


def ended(program: str) -> tuple[int, str, str]:
    """Exit status and what a program has written."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("missing", ["", "sys.__stdout__ = None", "sys.__stdout__ = sys.__stderr__ = None"])
def test_what_was_written_is_there_and_nothing_else_is_done(missing: str) -> None:
    program = f"""
import atexit, sys
from svcd.process.leaving import end_at_once
atexit.register(print, "put to rest")
sys.stderr.write("last words")
sys.stderr.flush()
{missing}
end_at_once(7)
"""
    assert ended(program) == (7, "", "last words")


def test_the_status_counts_although_the_reactor_stops_already() -> None:
    program = """
from twisted.internet import reactor
from svcd.process.leaving import leaving_with
leave = leaving_with(reactor)
def both():
    reactor.stop()
    leave(3)
reactor.callWhenRunning(both)
reactor.run()
print("stopped")
"""
    assert ended(program) == (3, "stopped\n", "")


def test_any_thread_may_have_the_process_end_and_the_reactor_is_stopped_in_its_own() -> None:
    """A reactor that another thread stops sleeps on until something else wakes it."""
    program = """
import threading, time
from twisted.internet import reactor
from svcd.process.leaving import leaving_with
leave, stop = leaving_with(reactor), reactor.stop
def stop_in() -> None:
    print(threading.current_thread() is threading.main_thread())
    stop()
reactor.stop = stop_in
def leave_asleep() -> None:
    time.sleep(0.2)
    leave(3)
reactor.callWhenRunning(threading.Thread(target=leave_asleep).start)
reactor.callLater(10, print, "woken by something else")
reactor.run()
"""
    assert ended(program) == (3, "True\n", "")


def test_what_ends_the_process_before_the_reactor_runs_ends_it_once_it_does() -> None:
    program = """
from twisted.internet import reactor
from svcd.process.leaving import leaving_with
leaving_with(reactor)(3)
reactor.run()
print("stopped")
"""
    assert ended(program) == (3, "stopped\n", "")
