"""A database that is damaged under a running node: it ends with one clear sentence and exit status 1."""

from contextlib import closing
from pathlib import Path

import pytest

from svcd.store.database import connect
from tests.process_level.conftest import Nodes
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]

DAMAGED = "the database is damaged: "
ADVICE = (
    ". The node stops; try `svc db rebuild`, restore it from a backup, or move it away and the "
    "node fetches the chain again"
)


def damage_told(node: RunningNode) -> str:
    """What the node says as its last word about its database, without the advice; it must end by itself."""
    assert node.wait_ended() == 1, node.output
    (told,) = [event["message"] for event in node.events if event["level"] == "critical"]
    assert told.startswith(DAMAGED)
    assert told.endswith(ADVICE)
    return str(told).removeprefix(DAMAGED).removesuffix(ADVICE)


def spoil(database: Path, table: str) -> None:
    """Overwrite every page of a table, in the file itself and behind SQLite's back."""
    with closing(connect(database)) as connection:
        # Another's commit makes the node forget the pages that it has in memory.
        connection.execute("CREATE TABLE other (number INTEGER)")
        connection.execute("DROP TABLE other")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = [page for (page,) in connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (table,))]
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with database.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * size)
            file.write(b"\xff" * size)


def test_an_undo_record_that_is_gone(nodes: Nodes) -> None:
    node = nodes.start()
    node.mine(3)
    with closing(connect(node.data_dir / "chain.sqlite")) as connection:
        connection.execute("DELETE FROM undo")
    assert node.operator("/operator/reorganise", {"depth": 1}).status == 503
    assert damage_told(node) == "the undo record of the canonical block at height 3 is missing"
