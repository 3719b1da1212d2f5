"""docs/payments.md tells a shop what to do on each event."""

import re
from pathlib import Path

from svcd.commerce.events import EventType

TEXT = (Path(__file__).parents[2] / "docs" / "payments.md").read_text(encoding="utf-8")


def test_the_table_has_every_event() -> None:
    table = TEXT.split("\n### What an event means to a shop\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z.]+)` \|", table, re.MULTILINE) == [event.value for event in EventType]
