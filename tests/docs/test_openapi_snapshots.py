"""docs/openapi.json and docs/operator-openapi.json are what nodes say of themselves: a diff shows every change."""

from pathlib import Path

import pytest

from tests.schema.documents import snapshots


@pytest.mark.parametrize("path", list(snapshots()), ids=lambda path: path.name)
def test_snapshot_is_what_nodes_say(path: Path) -> None:
    renew = "python -m tests.schema.documents writes it again"
    assert path.read_text(encoding="utf-8") == snapshots()[path], f"the interface differs from {path.name}: {renew}"
