"""The auditor finds what he is there to find."""

from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import running
from tests.torture.audit import Discrepancy, audit


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with a reorganisation behind it."""
    folder = tmp_path_factory.mktemp("audited")
    blocks = ChainBuilder().chain(
        """
        genesis: b[1..4]
        b1: c[2..6]
        b1 pays 5000 from alice to dave for order-1
        b3 pays 5000 from alice to bob
        c3 pays 99999900000 from alice to erin for order-2
        c4 pays 1 from bob to bob
        """
    )
    with running(folder) as node:
        node.submit(*blocks.values())
        assert node.tip == blocks["c6"].header.hash
    return (folder / "chain.sqlite").read_bytes()


@pytest.fixture
def database(template: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "chain.sqlite"
    path.write_bytes(template)
    return path


def test_good_books(database: Path) -> None:
    books = audit(database, TEST_PARAMS.rules)
    assert books.height == 6
    assert (len(books.transactions), len(books.addresses), len(books.payments)) == (3, 5, 2)


@pytest.mark.parametrize(
    ("crime", "finding"),
    [
        ("UPDATE account_entry SET balance = balance + 1 WHERE key = (SELECT max(key) FROM account_entry)", "accounts"),
        ("UPDATE account_entry SET nonce = 9 WHERE nonce = 1", "accounts"),
        ("UPDATE account_entry SET held = NULL", "accounts"),
        ("DELETE FROM account_entry WHERE nonce = 0", "accounts"),
        ("UPDATE transfer_run SET last = last - 1 WHERE last = 3", "the index"),
        ("UPDATE transfer_entry SET place = place + 7", "the index"),
        ("UPDATE transfer_entry SET key = key + 1 WHERE place = (SELECT max(place) FROM transfer_entry)", "the index"),
        ("DELETE FROM history WHERE level = 2", "history"),
        ("UPDATE history SET node = zeroblob(80) WHERE height = 1", "history"),
        ("DELETE FROM undo WHERE block = (SELECT max(block) FROM undo)", "undo records"),
        ("UPDATE undo SET data = zeroblob(45) WHERE block = (SELECT max(block) FROM undo)", "undo records"),
        ("UPDATE block SET work = zeroblob(32)", "columns of block 1"),
        ("UPDATE block SET clock = 3 WHERE height = 2", "columns of block 2"),
        ("UPDATE block SET hash = zeroblob(32) WHERE height = 6", "columns of block 6"),
        ("DELETE FROM block_transaction WHERE instr(body, 'order-2')", "transaction count of block 3"),
        ("UPDATE block_transaction SET body = CAST(replace(body, '5000', '4999') AS BLOB)", "state root of block 1"),
        ("UPDATE block SET header = CAST(replace(header, 'c', 'd') AS BLOB) WHERE height = 4", "parent of block 4"),
        ("DELETE FROM canonical WHERE height = 3", "height: found 4"),
    ],
)
def test_cooked_books(database: Path, crime: str, finding: str) -> None:
    with closing(connect(database)) as db:
        db.execute(crime)
    with pytest.raises(Discrepancy, match=finding):
        audit(database, TEST_PARAMS.rules)
