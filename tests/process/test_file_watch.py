"""A file that goes while it is in use stops the node, once."""

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.logger import LogEvent, formatEvent

from svcd.process.file_watch import FileWatch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "chain.sqlite"
    path.write_text("whole")
    return path


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("whole")
    other.replace(path)


@pytest.mark.parametrize("fault", [remove, replace])
def test_removed_or_replaced(
    path: Path, fault: Callable[[Path], None], expected_errors: Callable[..., list[LogEvent]]
) -> None:
    calls: list[str] = []
    watch = FileWatch([path], lambda: calls.append("stop"))
    watch.check()
    path.write_text("other content in the same file")
    watch.check()
    assert calls == []
    fault(path)
    watch.check()
    watch.check()
    assert calls == ["stop"]
    (event,) = expected_errors()
    assert formatEvent(event).startswith(f"{path} was removed or replaced while the node uses it. ")


def test_what_comes_later_is_watched_from_then_on(path: Path, expected_errors: Callable[..., list[LogEvent]]) -> None:
    calls: list[str] = []
    log = path.with_name("chain.sqlite-wal")
    watch = FileWatch([path, log], lambda: calls.append("stop"))
    watch.check()
    log.write_text("")
    watch.check()
    assert calls == []
    log.unlink()
    watch.check()
    assert calls == ["stop"]
    expected_errors()


def test_a_disk_that_does_not_answer_is_for_others_to_tell(path: Path) -> None:
    calls: list[str] = []
    folder = path.with_name("folder")
    folder.mkdir()
    below = folder / path.name
    path.rename(below)
    watch = FileWatch([below], lambda: calls.append("stop"))
    watch.check()
    folder.rename(folder.with_name("mounted elsewhere"))
    # The same answer, ENOTDIR, that is neither "it is there" nor "it is not".
    folder.write_text("")
    watch.check()
    assert calls == []
