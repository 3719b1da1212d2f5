"""How long an answer takes while full blocks are being connected: the 99th percentile of GET /rpc/status."""

import time
from pathlib import Path
from typing import Any, Final

from benchmarks.figures import Goal, Row, latency
from benchmarks.paced import Paced
from benchmarks.processes import DATABASE, fed_node
from benchmarks.program import main
from benchmarks.transfers import QUICK, Sizes, prepare

_FULL: Final = Sizes(accounts=100_000, rounds=1, blocks=25, transfers=2_000)
_PER_SECOND: Final = 200


def measure(folder: Path, quick: bool) -> list[Row]:
    """How long an answer takes while full blocks are being connected: the 99th percentile of GET /rpc/status."""
    sizes, idle_seconds = (QUICK, 0.5) if quick else (_FULL, 5)
    database, blocks, _ = prepare(folder, sizes)
    database.rename(folder / DATABASE)
    file = folder / "blocks"
    file.write_bytes(b"\n".join(blocks))
    with fed_node(folder, file) as served:
        client = Paced(served.port, _PER_SECOND)
        idle_until = time.monotonic() + idle_seconds
        idle = client.ask_until(lambda status: time.monotonic() > idle_until)
        served.begin()
        busy = client.ask_until(lambda status: _height(status) == len(blocks))
    return [
        latency(
            f"/rpc/status, 99th percentile, {sizes.transfers:,}-transfer blocks",
            busy,
            idle,
            baseline_is="nothing to connect",
            goal=Goal("figure", "<=", 50),
        )
    ]


def _height(status: dict[str, Any]) -> int:
    return int(status["height"])


if __name__ == "__main__":
    main(measure)
