"""How full the next block is, how long blocks take, and what waits for one."""

from collections.abc import Mapping, Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.node.fee_rates import block_room
from svcd.node.mempool import MempoolEntry
from svcd.pages.html import (
    Content,
    amount,
    duration,
    short_link,
    tag,
    when,
)
from svcd.pages.sources import Sources
from svcd.pages.tables import Column, fullness, table
from svcd.pages.texts import Message, grouped, message

IDLE_BLOCKS: Final = 5
"""After a time in which usually so many blocks come, and none has come, no time is promised."""


def meter(percent: int, label: Message) -> Tag:
    """A bar that is full by ``percent``."""
    return tag("progress", value=str(percent), max="100", aria_label=label)


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


def next_block_card(sources: Sources) -> Tag:
    """A card that says how full the next block is and, where it has no room left, what fee gets in."""
    params, count = sources.params, len(sources.mempool)
    size = sources.mempool.size + count
    percent = fullness(params, count=count, size=size + params.max_block_bytes - block_room(params))
    if sources.fees.has_room():
        advice: list[Content] = [message("explorer.room", count=count) if count else message("explorer.nothing-waits")]
    else:
        enough = message("explorer.enough", fee=amount(sources.fees.suggested()))
        advice = [message("explorer.crowded", count=count), " ", enough]
    return tag(
        "div",
        tag(
            "div",
            tag("h2", message("explorer.next-block")),
            tag("strong", message("explorer.percent-full", percent=percent)),
            class_="row apart",
        ),
        meter(percent, message("explorer.next-block-full", percent=percent)),
        tag("p", *advice),
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
    ]
    return table(columns, entries, caption=message("explorer.waiting-transfers"))
