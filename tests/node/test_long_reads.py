"""Answers that take long: given by a thread, on a connection that serves one thread at a time."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from svcd.node.long_reads import LongReads
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_reader, open_writer
from tests.node.bench import Stepped
from tests.support import has_result, result_of


@pytest.fixture
def worker() -> Stepped:
    return Stepped()


@pytest.fixture
def long_reads(worker: Stepped, tmp_path: Path) -> LongReads:
    open_writer(tmp_path / "chain.sqlite").close()
    return LongReads(worker, open_reader(tmp_path / "chain.sqlite"))


def test_the_worker_answers(long_reads: LongReads, worker: Stepped) -> None:
    asked = long_reads.ask(lambda reader: reader.tip())
    assert not has_result(asked)
    worker.step()
    assert result_of(asked) is None
    long_reads.close()


def test_an_error_goes_to_whoever_asked_and_the_next_question_is_answered(
    long_reads: LongReads, worker: Stepped
) -> None:
    def wrong(_: ChainReader) -> None:
        raise ValueError("no such thing")

    failed, asked = long_reads.ask(wrong), long_reads.ask(lambda reader: reader.tip())
    worker.step()
    worker.step()
    with pytest.raises(ValueError, match="no such thing"):
        result_of(failed)
    assert result_of(asked) is None
    long_reads.close()


@pytest.mark.parametrize("other", ["question", "close"])
def test_two_threads_wait_for_each_other(long_reads: LongReads, worker: Stepped, other: str) -> None:
    seen: list[str] = []
    run: Callable[[], None] = worker.step if other == "question" else long_reads.close
    second = Thread(target=lambda: (run(), seen.append("second")))

    def first(reader: ChainReader) -> None:
        second.start()
        second.join(0.2)
        assert reader.tip() is None
        seen.append("first")

    asked = long_reads.ask(first)
    if other == "question":
        long_reads.ask(lambda reader: reader.tip())
    worker.step()
    second.join(10)
    assert seen == ["first", "second"]
    assert result_of(asked) is None
    if other == "question":
        long_reads.close()
