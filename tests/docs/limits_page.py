"""docs/limits.md, made of the limits of a node with the default configuration.

`make docs` writes the page again.
"""

from pathlib import Path
from typing import Final

from svcd.composition.services import limits_of
from svcd.config.loader import load
from svcd.limits import Limit

PAGE: Final = Path(__file__).parents[2] / "docs" / "limits.md"
_BEGINNING: Final = """\
# Limits

Every limit of a node, by the attack that it stops; [threats.md](threats.md) describes the attacks and names the tests.
A limit with a setting has its default here. `svc node limits` and `GET /operator/limits` show the limits of a running
node. `make docs` writes this page.

| attack | limit | value | setting |
|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    limits = sorted(limits_of(load()), key=lambda limit: (limit.stops, limit.name))
    firsts = {limit.stops: limit for limit in reversed(limits)}
    return _BEGINNING + "".join([_row(limit, first=limit is firsts[limit.stops]) for limit in limits])


def _row(limit: Limit, *, first: bool) -> str:
    cells = [limit.stops if first else "", limit.name, _value(limit), f"`{limit.setting}`" if limit.setting else ""]
    return f"| {' | '.join(cells)} |\n"


def _value(limit: Limit) -> str:
    for size, unit in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if limit.unit == "bytes" and limit.value % size == 0:
            return f"{limit.value / size:,g} {unit}"
    return f"{limit.value:,g} {limit.unit}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
