"""The lease on PostgreSQL: one node replaces it, and a leader of an earlier term commits nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from svcd.store.lease_store import LeaderLease, LeaseStore, NodeReport
from tests.postgresql import Server, opened

FIRST = LeaderLease(0, "", 0)


@pytest.fixture
def uri(postgresql_server: Server) -> str:
    return postgresql_server.new_schema()


@pytest.fixture
def one(uri: str) -> Iterator[LeaseStore]:
    with closing(opened(uri)) as connection:
        yield LeaseStore(connection)


@pytest.fixture
def other(uri: str, one: LeaseStore) -> Iterator[LeaseStore]:
    with closing(opened(uri)) as connection:
        yield LeaseStore(connection)


def test_of_two_nodes_one_takes_the_lease(one: LeaseStore, other: LeaseStore) -> None:
    assert one.lease() == other.lease() == FIRST
    mine = LeaderLease(1, "one", one.now() + 10_000)
    assert one.replace(FIRST, mine)
    assert not other.replace(FIRST, LeaderLease(1, "other", other.now() + 10_000))
    assert other.lease() == mine
    assert abs(one.now() - 1000 * time.time()) < 5_000


def test_reports_of_nodes(one: LeaseStore, other: LeaseStore) -> None:
    day = 86_400_000
    one.report(NodeReport("one", 1, True, 7, b"settings"))
    one.report(NodeReport("one", 2, False, 2**200, b"settings"))
    other.report(NodeReport("other", day + 2, True, 8, b"settings"))
    assert one.reports() == [
        NodeReport("one", 2, False, 2**200, b"settings"),
        NodeReport("other", day + 2, True, 8, b"settings"),
    ]
    other.report(NodeReport("other", day + 3, True, 8, b"settings"))
    assert one.reports() == [NodeReport("other", day + 3, True, 8, b"settings")]


def test_a_transaction_of_an_earlier_term_sees_that_it_is_over(one: LeaseStore, other: LeaseStore) -> None:
    one.replace(FIRST, LeaderLease(1, "one", 10))
    with one.connection.transaction():
        assert one.check(1)
    with one.connection.transaction():
        # The snapshot of an earlier statement must not hide what has happened since.
        assert one.lease().term == 1
        assert other.replace(LeaderLease(1, "one", 10), LeaderLease(2, "other", 20))
        assert not one.check(1)


def test_nobody_takes_over_between_the_check_and_the_commit(one: LeaseStore, other: LeaseStore) -> None:
    one.replace(FIRST, LeaderLease(1, "one", 10))
    taken: list[bool] = []
    takes = threading.Thread(
        target=lambda: taken.append(other.replace(LeaderLease(1, "one", 10), LeaderLease(2, "other", 20))), daemon=True
    )
    with one.connection.transaction():
        assert one.check(1)
        takes.start()
        takes.join(0.2)
        assert taken == []
        assert one.lease().term == 1
    takes.join()
    assert taken == [True]
    with one.connection.transaction():
        assert not one.check(1)
