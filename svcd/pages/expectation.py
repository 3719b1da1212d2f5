"""What people ask: is the next block full, when does a transfer get in, and for what fee?

By the fees that wait here (svcd/node/fee_histogram.py); the suggested fee is that of GET /rpc/fees.
"""

from collections.abc import Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.chain.params import NetworkParams
from svcd.node.fee_estimator import LARGEST_TRANSFER, mempool_floor, suggested_fee
from svcd.node.fee_histogram import RATE_SCALE, ExpectedBlock, block_room, least_fee
from svcd.node.mempool import MempoolEntry
from svcd.pages.html import (
    Content,
    address_link,
    amount,
    badge,
    coins,
    grouped,
    plural,
    short_link,
    tag,
    when,
)
from svcd.pages.sources import Sources
from svcd.pages.tables import Column, fullness, table

NEXT_BLOCKS: Final = 6
"""The next blocks that the page of the mempool lists."""
_MOST_BLOCKS: Final = 100
_DIGITS: Final = 3


def expected_fullness(params: NetworkParams, block: ExpectedBlock) -> int:
    """The same for a block to come."""
    return fullness(params, count=block.count, size=block.size + params.max_block_bytes - block_room(params))


def meter(percent: int, label: str) -> Tag:
    """A bar that is full by ``percent``."""
    return tag("progress", value=str(percent), max="100", aria_label=label)


def suggested(sources: Sources) -> int:
    """The fee in base units that GET /rpc/fees suggests."""
    return suggested_fee(sources.mempool, sources.params, sources.recent.fees())


def fee_within(sources: Sources, blocks: int) -> int:
    """A fee in base units that is enough to get into one of the next ``blocks``, for a transfer of any size."""
    params, mempool = sources.params, sources.mempool
    rate = mempool.fees.rate_within(blocks, params, size=LARGEST_TRANSFER)
    return max(_rounded_up(least_fee(rate, LARGEST_TRANSFER)), mempool_floor(mempool, params) or 0, params.minimum_fee)


def blocks_until(sources: Sources, fee: int) -> int:
    """In how many blocks a transfer of any size gets in that pays ``fee`` base units and is sent now."""
    rate = fee * RATE_SCALE // LARGEST_TRANSFER
    return sources.mempool.fees.blocks_until(rate, sources.params, size=LARGEST_TRANSFER)


def expected_in(sources: Sources, blocks: int) -> str:
    """``in the next block, in about a minute``."""
    params = sources.params
    time = _about(min(blocks, _MOST_BLOCKS) * params.slots_per_block * params.slot_seconds)
    if blocks > _MOST_BLOCKS:
        return f"in more than {grouped(_MOST_BLOCKS)} blocks, in more than {time.removeprefix('about ')}"
    return f"in the next block, in {time}" if blocks == 1 else f"within {grouped(blocks)} blocks, in {time}"


def expected_of(sources: Sources, entry: MempoolEntry) -> str:
    """When a waiting transfer is expected in a block."""
    rate = sources.mempool.block_rate(entry)
    if rate is None:
        return "after an earlier transfer of the sender, which is missing here"
    return expected_in(sources, sources.mempool.fees.blocks_until(rate, sources.params))


def next_block(sources: Sources) -> Tag:
    """A card that says how full the next block is, and what fee gets in."""
    params, mempool = sources.params, sources.mempool
    block, *more = mempool.fees.expected_blocks(params, most=2)
    percent = expected_fullness(params, block)
    label = f"The next block is {percent} % full"
    return tag(
        "div",
        tag("div", tag("h2", "Next block"), tag("strong", f"{percent} % full"), class_="row apart"),
        meter(percent, label),
        tag("p", *_advice(sources, bool(more))),
        class_="card stack",
    )


def _advice(sources: Sources, crowded: bool) -> list[Content]:
    count = len(sources.mempool)
    if crowded:
        fee = suggested(sources)
        later = expected_in(sources, blocks_until(sources, fee))
        waiting = f"{plural(count, 'transfer waits', 'transfers wait')}, more than the next block holds. "
        enough = f"A fee of {coins(fee_within(sources, 1))} is expected to be enough for it. "
        return [f"{waiting}{enough}A transfer with the suggested fee of {coins(fee)} is expected {later}."]
    enough = f"A transfer with the fee of {coins(suggested(sources))} is expected {expected_in(sources, 1)}."
    if not count:
        return [f"No transfer waits. {enough}"]
    return [f"{plural(count, 'transfer waits', 'transfers wait')}, and the next block has room for more. {enough}"]


def next_blocks_table(sources: Sources, blocks: list[ExpectedBlock]) -> Tag:
    """The blocks that the waiting transfers fill, if there are several."""
    params = sources.params
    numbered = list(enumerate(blocks, 1))
    columns: list[Column[tuple[int, ExpectedBlock]]] = [
        Column("Block", lambda row: "Next" if row[0] == 1 else f"Number {row[0]}", place="phone-title"),
        Column("Expected", lambda row: expected_in(sources, row[0]).rpartition(", ")[2], place="phone-note"),
        Column("Transfers", lambda row: grouped(row[1].count), number=True, labelled=True, place="phone-extra"),
        Column("Full", lambda row: f"{expected_fullness(params, row[1])} %", number=True),
        Column("Enough fee", lambda row: amount(fee_within(sources, row[0])), number=True, place="phone-value"),
    ]
    return table(columns, numbered, caption="The next blocks")


def arrived(entry: MempoolEntry, now: int) -> Tag:
    """How long ago a transfer came into the mempool."""
    return when(min(entry.arrival, now), now)


def waiting_table(sources: Sources, entries: Sequence[MempoolEntry]) -> Tag:
    """A table of waiting transfers."""
    now = sources.now
    columns: list[Column[MempoolEntry]] = [
        Column(
            "Transfer",
            lambda entry: short_link(entry.transfer.txid.hex(), "tx", entry.transfer.txid.hex()),
            place="phone-title",
        ),
        Column("Arrived", lambda entry: arrived(entry, now), place="phone-note"),
        Column("To", lambda entry: address_link(sources.address(entry.transfer.recipient)), place="roomy"),
        Column("Amount", lambda entry: amount(entry.transfer.amount), number=True, place="phone-value"),
        Column("Fee", lambda entry: amount(entry.transfer.fee), number=True),
        Column("Expected", lambda entry: _place(sources, entry), place="phone-extra"),
    ]
    return table(columns, entries, caption="Waiting transfers")


def _place(sources: Sources, entry: MempoolEntry) -> Tag:
    """In which block a transfer is expected."""
    rate = sources.mempool.block_rate(entry)
    if rate is None:
        return badge("earlier one missing", "warn")
    blocks = sources.mempool.fees.blocks_until(rate, sources.params)
    return badge("next block", "good") if blocks == 1 else badge(f"within {plural(blocks, 'block')}")


def _about(seconds: int) -> str:
    """A duration as people say it, rounded up."""
    minutes = -(-seconds // 60)
    if minutes > 120:
        return f"about {plural(-(-minutes // 60), 'hour')}"
    return "less than a minute" if seconds < 60 else f"about {plural(minutes, 'minute')}"


def _rounded_up(fee: int) -> int:
    """At least ``fee``, with few digits."""
    unit: int = 10 ** max(len(str(fee)) - _DIGITS, 0)
    return -(-fee // unit) * unit
