"""The search for participation work (docs/protocol.md 6)."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from svcd.chain.block import Header
from svcd.chain.work import check_work, work_value
from svcd.node import work_search
from svcd.node.work_search import WorkSearch
from tests.chains import TEST_PARAMS, ChainBuilder

KIB = TEST_PARAMS.memory_kib


@pytest.fixture
def header(chain: ChainBuilder) -> Header:
    return chain.block().header


def first_after(header: Header, start: int) -> int:
    """The first nonce from ``start`` on that will do."""
    target = header.base_target * header.multiplier // 10_000
    return next(
        nonce
        for nonce in range(start, start + 1000)
        if work_value(header.core_hash, (nonce % 2**64).to_bytes(8, "big"), KIB) < target
    )


@pytest.mark.parametrize("start", [0, 5, 2**64 - 1])
def test_it_finds_the_first_nonce_that_will_do(header: Header, start: int) -> None:
    search = WorkSearch(header, KIB, start)
    found = search.run()
    expected = first_after(header, start)
    assert found == (expected % 2**64).to_bytes(8, "big")
    assert search.ended.is_set()
    check_work(evolve(header, work_nonce=found), TEST_PARAMS)


def test_another_start_finds_another_nonce(header: Header) -> None:
    """So that two blocks with the same content have different ids."""
    assert len({WorkSearch(header, KIB, 1000 * number).run() for number in range(5)}) == 5


def test_every_thread_tries_nonces_of_its_own(header: Header) -> None:
    found = {first: WorkSearch(header, KIB, 0).run(first, 3) for first in range(3)}
    for first, nonce in found.items():
        assert nonce is not None
        assert int.from_bytes(nonce, "big") % 3 == first


def test_one_find_ends_the_search_of_all_workers(header: Header) -> None:
    search = WorkSearch(header, KIB, 0)
    assert search.run(0, 2) is not None
    assert search.run(1, 2) is None


def test_an_ended_search_finds_nothing(header: Header) -> None:
    search = WorkSearch(header, KIB, 0)
    assert not search.ended.is_set()
    search.ended.set()
    assert search.run() is None


def test_the_multiplier_makes_it_easier(header: Header) -> None:
    generous = evolve(header, multiplier=40_000)
    assert WorkSearch(generous, KIB, 0).run() == bytes(8), "the target is above every value"


def in_a_thread(function: Callable[[], object]) -> list[object]:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join(60)
    return results


@pytest.mark.socket
def test_it_ends_within_one_attempt_from_another_thread(header: Header, monkeypatch: pytest.MonkeyPatch) -> None:
    search, tried = WorkSearch(evolve(header, base_target=1), KIB, 0), []

    def value(*args: Any) -> int:
        tried.append(args)
        return work_value(*args)

    monkeypatch.setattr(work_search, "work_value", value)

    def end_it_while_it_runs() -> None:
        while len(tried) < 3:
            time.sleep(0.001)
        search.ended.set()

    ending = threading.Thread(target=end_it_while_it_runs)
    ending.start()
    assert in_a_thread(search.run) == [None]
    ending.join()


@pytest.mark.socket
@pytest.mark.skipif(not hasattr(os, "setpriority"), reason="the system has no priorities for threads")
def test_a_nice_search_has_the_lowest_priority_and_nobody_else(header: Header) -> None:
    def niceness() -> tuple[bytes | None, int]:
        found = WorkSearch(header, KIB, 0).run(at_low_priority=True)
        return found, os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert in_a_thread(niceness) == [(WorkSearch(header, KIB, 0).run(), 19)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before
