"""Where twistd's options say that the log goes."""

from pathlib import Path
from typing import Any

from svcd.process.root import log_writer


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
