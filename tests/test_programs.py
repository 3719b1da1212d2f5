"""Tests that need a program which is missing are skipped, and named in one line."""

import subprocess
import sys
from pathlib import Path

from tests import programs
from tests.process_level.pages import ROOT

SUITE = """
import pytest
from tests.programs import needs, program

@needs("node")
@pytest.mark.parametrize("number", [1, 2])
def test_by_mark(number):
    raise AssertionError("it runs")

@needs("promtool", "node")
def test_by_both():
    raise AssertionError("it runs")

@pytest.fixture
def chromium():
    return program("chromium")

def test_by_fixture(chromium):
    raise AssertionError("it runs")

@pytest.mark.skip(reason="for another reason")
def test_otherwise():
    raise AssertionError("it runs")

def test_without_programs():
    pass
"""
BARE = """
import shutil, sys, pytest
shutil.which = lambda name, path=None: None
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_one_line_names_all_that_is_missing(tmp_path: Path) -> None:
    suite, report = tmp_path / "test_suite.py", tmp_path / "report.xml"
    suite.write_text(SUITE)
    # On a machine that has none of them.
    command = [sys.executable, "-c", BARE, "-p", "no:cacheprovider", f"--rootdir={tmp_path}", f"--junitxml={report}"]
    done = subprocess.run([*command, suite], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    command = [sys.executable, "-m", "tests.programs", report, tmp_path / "of a run that was cut off.xml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == (
        "Skipped 4 tests for programs that are not installed: node, promtool, chromium. "
        "On Debian: apt install nodejs prometheus chromium libatomic1 fonts-dejavu-core\n"
    )


def test_without_missing_programs_there_is_no_closing_line(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text('<testsuites><testcase><skipped message="for another reason"/></testcase></testsuites>')
    assert list(programs.skips(report)) == ["for another reason"]
    assert programs.closing_line(programs.skips(report)) is None
