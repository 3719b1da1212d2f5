"""How full the next block is, when a transfer gets into a block, and for what fee.

Estimated from the fees of the waiting transfers (svcd/node/fee_histogram.py); the suggested fee is that of GET
/rpc/fees.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.chain.params import NetworkParams
from svcd.node.fee_estimator import LARGEST_TRANSFER, mempool_floor, suggested_fee
from svcd.node.fee_histogram import RATE_SCALE, ExpectedBlock, block_room, fee_for_rate
from svcd.node.mempool import MempoolEntry
from svcd.pages.charts import Series, bar_chart, round_top
from svcd.pages.html import (
    Content,
    amount,
    badge,
    coins,
    duration,
    in_time,
    short_link,
    tag,
    when,
)
from svcd.pages.sources import Sources
from svcd.pages.tables import Column, fullness, table
from svcd.pages.texts import Message, grouped, message

BANDS: Final = 40
"""The most bars in the chart of fees."""
NEXT_BLOCKS: Final = 6
"""The next blocks that the page of the mempool lists."""
IDLE_BLOCKS: Final = 5
"""After a time in which usually so many blocks come, and none has come, no time is promised."""
_MAX_BLOCKS: Final = 100
_DIGITS: Final = 3


def expected_fullness(params: NetworkParams, block: ExpectedBlock) -> int:
    """How full a block to come is, in percent."""
    return fullness(params, count=block.count, size=block.size + params.max_block_bytes - block_room(params))


def meter(percent: int, label: Message) -> Tag:
    """A bar that is full by ``percent``."""
    return tag("progress", value=str(percent), max="100", aria_label=label)


def suggested(sources: Sources) -> int:
    """The fee in base units that GET /rpc/fees suggests."""
    return suggested_fee(sources.mempool, sources.params, sources.recent.fees())


def fee_within(sources: Sources, blocks: int) -> int:
    """A fee in base units that is enough to get into one of the next ``blocks``, for a transfer of any size."""
    params, mempool = sources.params, sources.mempool
    rate = mempool.fees.rate_within(blocks, params, size=LARGEST_TRANSFER)
    return max(
        _rounded_up(fee_for_rate(rate, LARGEST_TRANSFER)), mempool_floor(mempool, params) or 0, params.minimum_fee
    )


def blocks_until(sources: Sources, fee: int) -> int:
    """In how many blocks a transfer of any size gets in that pays ``fee`` base units and is sent now."""
    rate = fee * RATE_SCALE // LARGEST_TRANSFER
    return sources.mempool.fees.blocks_until(rate, sources.params, size=LARGEST_TRANSFER)


def usual_seconds(sources: Sources) -> int | None:
    """The seconds between two blocks on average; None where the operator makes all of them by hand."""
    if sources.every:
        return sources.every
    return None if sources.on_demand else sources.params.slots_per_block * sources.params.slot_seconds


def idle_seconds(sources: Sources) -> int | None:
    """The seconds without a block after which no time is promised; None where they do not matter."""
    usual = usual_seconds(sources)
    return None if usual is None or sources.every else IDLE_BLOCKS * usual


def newest_at(sources: Sources) -> int:
    """The time of the newest block, in Unix milliseconds; now where a devnet dates its blocks before the present."""
    return sources.now if sources.every else sources.params.slot_time(sources.chain_manager.tip.slot)


def seconds_per_block(sources: Sources) -> int | None:
    """The seconds until the next block on average; None where no time may be promised.

    That is where the operator makes all blocks by hand, where the node may lack the newest ones, and where none has
    come for long.
    """
    idle = idle_seconds(sources)
    is_idle = idle is not None and sources.now - newest_at(sources) > 1000 * idle
    return None if is_idle or sources.peers.behind() else usual_seconds(sources)


def script_timing(sources: Sources) -> Mapping[str, int | None]:
    """What ``expectation.mjs`` reads, so that it promises no time where :func:`seconds_per_block` is None."""
    return {"blockSeconds": usual_seconds(sources), "idleSeconds": idle_seconds(sources)}


def expected_time(sources: Sources, blocks: int) -> Message | None:
    """``in about a minute``; None where no time may be promised."""
    seconds = seconds_per_block(sources)
    return None if seconds is None else in_time(blocks * seconds)


def expected_in(sources: Sources, blocks: int) -> Message:
    """``in the next block, in about a minute``."""
    if blocks > _MAX_BLOCKS:
        return message("explorer.beyond", count=_MAX_BLOCKS)
    time = expected_time(sources, blocks)
    if time is None:
        return message("explorer.in-next-some-time") if blocks == 1 else message("explorer.within-blocks", count=blocks)
    return (
        message("explorer.in-next", time=time) if blocks == 1 else message("explorer.within", count=blocks, time=time)
    )


def expected_of(sources: Sources, entry: MempoolEntry) -> Message:
    """When a waiting transfer is expected in a block."""
    rate = sources.mempool.block_rate(entry)
    if rate is None:
        return message("explorer.after-missing")
    return expected_in(sources, sources.mempool.fees.blocks_until(rate, sources.params))


def next_blocks(sources: Sources) -> list[ExpectedBlock]:
    """The blocks that the waiting transfers fill, as many as are listed; one at least."""
    return sources.mempool.fees.expected_blocks(sources.params, limit=NEXT_BLOCKS)


def next_block_card(sources: Sources, blocks: Sequence[ExpectedBlock]) -> Tag:
    """A card that says how full the first of the :func:`next_blocks` is, and what fee gets in."""
    percent = expected_fullness(sources.params, blocks[0])
    label = message("explorer.next-block-full", percent=percent)
    return tag(
        "div",
        tag(
            "div",
            tag("h2", message("explorer.next-block")),
            tag("strong", message("explorer.percent-full", percent=percent)),
            class_="row apart",
        ),
        meter(percent, label),
        tag("p", *_advice(sources, crowded=len(blocks) > 1)),
        *_production(sources),
        class_="card stack",
    )


def _production(sources: Sources) -> list[Tag]:
    """How this node makes blocks, if it does."""
    rate = sources.work_rate()
    if sources.every:
        return [tag("p", message("explorer.every", count=sources.every), class_="soft")]
    if sources.on_demand:
        return [tag("p", message("explorer.on-demand"), class_="soft")]
    if rate is None:
        return []
    attempts = grouped(rate.attempts_expected)
    text = message("explorer.makes-blocks", attempts=attempts)
    if (seconds := rate.seconds_expected) is not None:
        speed = f"{rate.attempts_per_second:.1f}"
        text = message("explorer.makes-blocks-at", attempts=attempts, rate=speed, time=duration(round(seconds)))
    return [tag("p", text, class_="soft")]


def _advice(sources: Sources, *, crowded: bool) -> list[Content]:
    params, count = sources.params, len(sources.mempool)
    if crowded:
        later = expected_in(sources, blocks_until(sources, params.minimum_fee))
        waiting = message("explorer.crowded", count=count)
        enough = message("explorer.enough", fee=amount(fee_within(sources, 1)))
        return [
            waiting,
            " ",
            enough,
            " ",
            message("explorer.least-expected", fee=amount(params.minimum_fee), when=later),
        ]
    waiting = message("explorer.room", count=count) if count else message("explorer.nothing-waits")
    soon = message("explorer.fee-expected", fee=amount(suggested(sources)), when=expected_in(sources, 1))
    return [waiting, " ", soon]


def fees_chart(sources: Sources, block: ExpectedBlock, say: Callable[[Message], str]) -> bytes:
    """A chart of the waiting transfers by the fee of one of any size; nothing if all are about the same.

    Those that get into the next ``block`` stand out.
    """
    bands = sources.mempool.fees.bands(BANDS)
    if len(bands) < 2:
        return b""
    later = sum(band.rate < block.rate for band in bands)
    fees = [say(coins(_rounded_up(fee_for_rate(band.rate, LARGEST_TRANSFER)))) for band in bands]
    transfers = [say(message("explorer.count-transfers", count=band.count)) for band in bands]
    series = Series(
        heading=say(message("explorer.waiting-by-fee")),
        values=[band.count for band in bands],
        readings=[
            say(
                message("explorer.from-fee", fee=fee, transfers=count)
                if place < later
                else message("explorer.from-fee-next", fee=fee, transfers=count)
            )
            for place, (fee, count) in enumerate(zip(fees, transfers, strict=True))
        ],
        note=say(message("explorer.green-bars") if later else message("explorer.all-bars")),
        first=fees[0],
        last=fees[-1],
    )
    drawn = bar_chart(series, top=round_top(max(series.values)), axis=grouped, faint=later)
    return drawn.encode("utf-8")


def next_blocks_table(sources: Sources, blocks: Sequence[ExpectedBlock]) -> Tag:
    """A table of the :func:`next_blocks`."""
    params = sources.params
    numbered = list(enumerate(blocks, 1))
    columns: list[Column[tuple[int, ExpectedBlock]]] = [
        Column(
            message("explorer.block"),
            lambda row: message("explorer.next") if row[0] == 1 else message("explorer.number", place=row[0]),
            place="phone-title",
        ),
        Column(
            message("explorer.expected"),
            lambda row: expected_time(sources, row[0]) or message("explorer.some-time"),
            place="phone-note",
        ),
        Column(
            message("explorer.transfers"),
            lambda row: grouped(row[1].count),
            number=True,
            labelled=True,
            place="phone-extra",
        ),
        Column(
            message("explorer.full"),
            lambda row: message("explorer.percent", percent=expected_fullness(params, row[1])),
            number=True,
        ),
        Column(
            message("explorer.enough-fee"),
            lambda row: amount(fee_within(sources, row[0])),
            number=True,
            place="phone-value",
        ),
    ]
    return table(columns, numbered, caption=message("explorer.next-blocks-caption"))


def arrived(entry: MempoolEntry, now: int) -> Tag:
    """How long ago a transfer came into the mempool."""
    return when(min(entry.arrival, now), now)


def waiting_table(sources: Sources, entries: Sequence[MempoolEntry]) -> Tag:
    """A table of waiting transfers."""
    now = sources.now
    columns: list[Column[MempoolEntry]] = [
        Column(
            message("explorer.transfer"),
            lambda entry: short_link(entry.transfer.txid.hex(), "tx", entry.transfer.txid.hex()),
            place="phone-title",
        ),
        Column(message("explorer.arrived"), lambda entry: arrived(entry, now), place="phone-note"),
        Column(
            message("explorer.amount"), lambda entry: amount(entry.transfer.amount), number=True, place="phone-value"
        ),
        Column(message("explorer.fee"), lambda entry: amount(entry.transfer.fee), number=True),
        Column(message("explorer.expected"), lambda entry: _in_line(sources, entry), place="phone-extra"),
    ]
    return table(columns, entries, caption=message("explorer.waiting-transfers"))


def _in_line(sources: Sources, entry: MempoolEntry) -> Tag:
    """In which block a transfer is expected."""
    rate = sources.mempool.block_rate(entry)
    if rate is None:
        return badge(message("explorer.earlier-missing"), "warn")
    blocks = sources.mempool.fees.blocks_until(rate, sources.params)
    return (
        badge(message("explorer.badge-next"), "good")
        if blocks == 1
        else badge(message("explorer.badge-within", count=blocks))
    )


def _rounded_up(fee: int) -> int:
    """At least ``fee``, with few digits."""
    unit: int = 10 ** max(len(str(fee)) - _DIGITS, 0)
    return -(-fee // unit) * unit
