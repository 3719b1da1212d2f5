"""The table of constants in docs/peers.md, made of the constants of the code.

`python -m tests.docs.peers_page` writes it again.
"""

from pathlib import Path
from typing import Final

from svcd.chain.snapshot import SNAPSHOT_BLOCKS
from svcd.node import snapshots
from svcd.p2p import (
    address_book,
    block_download,
    chain_sync,
    headers,
    own_errors,
    peers,
    schedule,
    service,
    snapshot_start,
)

PAGE: Final = Path(__file__).parents[2] / "docs" / "peers.md"
_HEADING: Final = "| what | constant |\n|---|---|\n"
_ROWS: Final = (
    (
        "buckets of hints, of verified endpoints, and endpoints in each",
        (address_book.NEW_BUCKETS, address_book.TRIED_BUCKETS, address_book.BUCKET_SIZE),
        "",
    ),
    (
        "pause before an endpoint that failed is called again: first, at most, and where it answered within a day",
        (address_book.FIRST_BACK_OFF, address_book.MAX_BACK_OFF, address_book.FAMILIAR_BACK_OFF),
        "s",
    ),
    ("between two writes of `peers.json`", service.SAVE_SECONDS, "s"),
    (
        "between two feelers, handshakes with a peer, requests for endpoints",
        (peers.FEELER_SECONDS, peers.RENEW_SECONDS, peers.GOSSIP_SECONDS),
        "s",
    ),
    ("between the beginnings of two checks of claims", chain_sync.CLAIM_APART_SECONDS, "s"),
    (
        "headers in the first response, in further ones about a claim, and hashes in the second locator",
        (headers.FIRST_HEADERS, headers.PROOF_HEADERS, headers.CLOSER_HASHES),
        "",
    ),
    ("time that a response with headers should take, at most", headers.REPLY_SECONDS, "s"),
    (
        "requested from a peer at first, and later",
        (schedule.FIRST_BYTES, schedule.AIM_SECONDS),
        "bytes, s at its rate",
    ),
    ("blocks in a commit", (block_download.BATCH_BLOCKS, block_download.BATCH_BYTES), "blocks, bytes"),
    (
        "a first missing block, or a chunk, is requested elsewhere if it would come so much later, and its peer rests",
        (schedule.SLOW_SECONDS, schedule.SLOW_BACKOFF),
        "s",
    ),
    (
        "rest of a peer that has nothing of what was requested, or does not answer",
        schedule.ABSENT_BACKOFF,
        "s",
    ),
    ("pause after an error of the node itself, first and at most", (own_errors.FIRST_PAUSE, own_errors.MAX_PAUSE), "s"),
    ("blocks between two snapshots, snapshots kept", (SNAPSHOT_BLOCKS, snapshots.KEPT), ""),
    ("a node starts from a snapshot if headers show more blocks than", snapshot_start.MIN_BLOCKS, ""),
)
"""Constants that stop an attack are in docs/limits.md, and not here."""


def table() -> str:
    """The table of the page."""
    return _HEADING + "".join(f"| {what} | {_cell(values, unit)} |\n" for what, values, unit in _ROWS)


def _cell(values: float | tuple[float, ...], units: str) -> str:
    numbers = values if isinstance(values, tuple) else (values,)
    named = units.split(", ") * (1 if ", " in units else len(numbers))
    return ", ".join(_shown(number, unit) for number, unit in zip(numbers, named, strict=True))


def _shown(value: float, unit: str) -> str:
    for size, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if unit.startswith("bytes") and value % size == 0:
            return f"{value / size:,g} {name}{unit.removeprefix('bytes')}"
    for size, name in ((3_600, "h"), (60, "min")):
        if unit == "s" and value % size == 0:
            return f"{value / size:,g} {name}"
    return f"{value:,g} {unit}".strip()


def page(text: str) -> str:
    """The page with the table of now."""
    before, _, after = text.partition(_HEADING)
    return before + table() + after[after.index("\n\n") + 1 :]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
