"""The mark of an open database tells whether its log was taken away."""

from pathlib import Path

from svcd.store.unclean_shutdown import UncleanShutdownMarker


def test_a_log_that_is_missed(tmp_path: Path) -> None:
    mark = UncleanShutdownMarker(tmp_path / "chain.sqlite")
    mark.create()
    assert not mark.log_is_missing, "without a database there is nothing to miss"
    mark.database.touch()
    assert mark.log_is_missing
    mark.log.touch()
    assert not mark.log_is_missing
    mark.log.unlink()
    mark.remove()
    assert not mark.log_is_missing, "it was closed in order"
    mark.remove()
