"""Queries that are too long for the reactor's thread."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from twisted.internet.defer import CancelledError

from svcd.chain.errors import Corrupt
from svcd.node.open_chain import LongReads
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_reader, open_writer
from tests.node.bench import Stepped
from tests.support import has_result, result_of


@pytest.fixture
def worker() -> Stepped:
    return Stepped()


@pytest.fixture
def reported() -> list[Exception]:
    return []


@pytest.fixture
def long_reads(worker: Stepped, tmp_path: Path, reported: list[Exception]) -> Iterator[LongReads]:
    open_writer(tmp_path / "chain.sqlite").close()
    with closing(open_reader(tmp_path / "chain.sqlite")) as connection:
        yield LongReads(worker, connection, reported.append)


def test_the_worker_answers(long_reads: LongReads, worker: Stepped) -> None:
    asked = long_reads.ask(lambda reader: reader.tip())
    assert not has_result(asked)
    worker.step()
    assert result_of(asked) is None


def test_an_error_goes_to_whoever_asked_and_the_next_question_is_answered(
    long_reads: LongReads, worker: Stepped, reported: list[Exception]
) -> None:
    def wrong(_: ChainReader) -> None:
        raise ValueError("no such thing")

    failed, asked = long_reads.ask(wrong), long_reads.ask(lambda reader: reader.tip())
    worker.step()
    worker.step()
    with pytest.raises(ValueError, match="no such thing"):
        result_of(failed)
    assert result_of(asked) is None
    assert reported == []


@pytest.mark.parametrize("error", [Corrupt("a block is missing"), apsw.CorruptError("malformed")])
def test_an_error_of_the_database_is_reported_even_if_nobody_waits_any_more(
    long_reads: LongReads, worker: Stepped, reported: list[Exception], error: Exception
) -> None:
    def wrong(_: ChainReader) -> None:
        raise error

    asked = long_reads.ask(wrong)
    asked.addErrback(lambda failure: failure.trap(CancelledError))
    asked.cancel()
    worker.step()
    assert reported == [error]


def test_it_is_closed_after_what_was_asked_before(long_reads: LongReads, worker: Stepped) -> None:
    asked, closed = long_reads.ask(lambda reader: reader.tip()), long_reads.close()
    assert not has_result(closed)
    worker.finish()
    assert (result_of(asked), result_of(closed)) == (None, None)
