"""Where twistd's options say that the log goes."""

import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.application.service import Application, IServiceCollection
from twisted.logger import ILogObserver

from svcd.process.root import Root, log_writer


def test_a_log_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    """It is ten files of ten megabytes at most, whoever makes the node write how much."""
    log = tmp_path / "node.log"
    write: Any = log_writer({"logfile": str(log)})
    lines = 130
    for number in range(lines):
        write(f"{number} {'x' * 999_990}\n")
    write.__self__.close()
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["node.log", *(f"node.log.{number}" for number in range(1, 10))]
    assert all(path.stat().st_size <= 11_000_000 for path in kept)
    assert log.read_text().split("\n")[-2].startswith(f"{lines - 1} "), "the newest lines are those that stay"


def test_what_is_twistd_s_to_decide_is_left_to_it() -> None:
    for options in ({"syslog": True}, {"logger": "a.module"}, {"logfile": "-", "nodaemon": False}):
        assert log_writer(options) is None


def test_nothing_is_written_where_there_is_no_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    assert log_writer({"nodaemon": True}) is None


def test_a_group_without_an_observer_leaves_the_log_to_twistd() -> None:
    application: Any = Application("a node")
    observer: Any = object()
    with_none, with_one = Root(lambda _: None, observer=None), Root(lambda _: None, observer=observer)
    with_none.setServiceParent(application)
    assert application.getComponent(ILogObserver, None) is None
    with_one.setServiceParent(application)
    assert application.getComponent(ILogObserver) is observer
    assert list(IServiceCollection(application)) == [with_none, with_one]
