"""The mark of an open database tells whether its log was taken away."""

from pathlib import Path

from svcd.store.mark import OpenMark


def test_a_log_that_is_missed(tmp_path: Path) -> None:
    mark = OpenMark(tmp_path / "chain.sqlite")
    mark.put()
    assert not mark.misses_log, "without a database there is nothing to miss"
    mark.database.touch()
    assert mark.misses_log
    mark.log.touch()
    assert not mark.misses_log
    mark.log.unlink()
    mark.take_away()
    assert not mark.misses_log, "it was closed in order"
    mark.take_away()
