"""The start page: the next block, the newest blocks, the blocks that lost, and charts (docs/pages.md)."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from attrs import frozen
from twisted.web.template import Tag

from svcd.bounded_dict import BoundedDict
from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount
from svcd.chain.work import block_work
from svcd.pages.charts import Series, bar_chart, line_chart, round_top, seconds_top, values_table
from svcd.pages.expectation import next_block_card
from svcd.pages.html import (
    bare_amount,
    coins,
    duration,
    pagination,
    scaled,
    section,
    stat,
    stats,
    tag,
    when,
)
from svcd.pages.layout import CachedPage, Page, placeholder
from svcd.pages.recent_blocks import BlockRow, NewestBlocks
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.tables import blocks_table, only_later, replaced_table
from svcd.pages.texts import Catalogue, Message, grouped, message

_CHARTS: Final = "charts"
_DRAWN: Final = 8
"""Drawn charts that are kept, one for each language."""
LISTED: Final = 12
"""Blocks in the table of the overview."""


class OverviewPage:
    """The start page."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._drawn: BoundedDict[tuple[bytes, int, str], bytes] = BoundedDict(_DRAWN)

    @page("/", "The newest blocks", cost=4)
    def overview(self) -> CachedPage:
        """Answer GET /."""
        sources = self._sources
        shown = (sources.chain_manager.tip.hash, sources.recent.revision, len(sources.mempool), sources.second)
        return CachedPage(("overview", *shown), self._draw)

    def _draw(self) -> Page:
        sources = self._sources
        newest = sources.recent.newest()
        tip = newest.tip
        news = tag("p", class_="news", role="status", data_height=str(tip.height), data_hash=tip.hash.hex())
        blocks = blocks_table(sources, newest.blocks[:LISTED], caption=message("explorer.newest-blocks"))
        return Page(
            title=message("frame.explorer"),
            content=(
                tag("h1", message("frame.explorer")),
                stats(*self._stats(newest)),
                next_block_card(sources),
                section(
                    message("explorer.newest-blocks"),
                    news,
                    tag("div", blocks, class_="card"),
                    *_older(newest),
                    *only_later(sources),
                ),
                *self._replaced(newest),
                placeholder(_CHARTS),
            ),
            here="/",
            json="/rpc/status",
            markup={_CHARTS: lambda catalogue: self._markup(newest, catalogue)},
            scripts=("explorer.mjs", "charts.mjs"),
            styles=("charts.css",),
        )

    def _stats(self, newest: NewestBlocks) -> list[Tag]:
        sources, tip = self._sources, newest.tip
        latest = newest.blocks[0]
        difficulty = scaled(block_work(latest.header.base_target)) if tip.height else "–"
        maximum = sources.params.supply_limit // BASE_UNITS_PER_COIN
        return [
            stat(
                message("explorer.height"),
                grouped(tip.height),
                when(latest.time, sources.now) if tip.height else message("explorer.genesis"),
            ),
            stat(
                message("explorer.stat-waiting"),
                grouped(len(sources.mempool)),
                tag("a", message("explorer.mempool-link"), href="/mempool", class_="alone"),
            ),
            stat(message("explorer.fee"), bare_amount(sources.fees.suggested()), message("explorer.suggested")),
            stat(message("explorer.difficulty"), difficulty, message("explorer.attempts")),
            stat(
                message("explorer.coins-issued"),
                grouped(tip.issued // BASE_UNITS_PER_COIN),
                message("explorer.of-most", most=maximum),
            ),
        ]

    def _replaced(self, newest: NewestBlocks) -> list[Tag]:
        if not newest.replaced:
            return []
        listed = replaced_table(self._sources, newest.replaced)
        lead = tag("p", message("explorer.replaced-text"), class_="soft")
        return [section(message("explorer.replaced-blocks"), lead, tag("div", listed, class_="card"))]

    def _markup(self, newest: NewestBlocks, catalogue: Catalogue) -> bytes:
        """The charts, drawn once for each change of what they show."""
        key = newest.tip.hash, self._sources.recent.revision, catalogue.language
        if key not in self._drawn:
            self._drawn[key] = _Charts(self._sources, newest, catalogue.text).draw()
        return self._drawn[key]


def _older(newest: NewestBlocks) -> list[Tag]:
    before = newest.tip.height - LISTED + 1
    if before < 1:
        return []
    return pagination(tag("a", message("explorer.older"), href=f"/blocks?before={before}", class_="button"))


@frozen
class _Charts:
    """The charts and their values in one language."""

    _sources: Sources
    _newest: NewestBlocks
    _say: Callable[[Message], str]

    def draw(self) -> bytes:
        """Their HTML."""
        blocks = [block for block in reversed(self._newest.blocks) if block.header.height]
        if len(blocks) < 2:
            return f'<p class="card empty">{escape(self._say(message("explorer.too-few-blocks")))}</p>'.encode()
        charts = [self._transfers(blocks), self._fees(blocks), self._intervals(blocks), self._difficulty(blocks)]
        heading = escape(self._say(message("explorer.last-blocks", count=len(blocks))))
        summary = escape(self._say(message("explorer.values")))
        values = f'<details class="card"><summary>{summary}</summary>{self._values(blocks)}</details>'
        drawn = f'<section><h2>{heading}</h2><div class="charts">{"".join(charts)}</div>{values}</section>'
        return drawn.encode("utf-8")

    def _transfers(self, blocks: Sequence[BlockRow]) -> str:
        counts = [block.header.transaction_count for block in blocks]
        top = round_top(max(counts))
        maximum = self._sources.params.max_block_transactions
        total = message("explorer.count-transfers", count=sum(counts))
        note = message("explorer.together-and-most", transfers=total, most=maximum)
        series = self._series(message("explorer.transfers-per-block"), blocks, counts, self._count, note)
        return bar_chart(series, top=top, axis=grouped)

    def _fees(self, blocks: Sequence[BlockRow]) -> str:
        fees = [self._paid(block) for block in blocks]
        known = [block for block in blocks if self._sources.recent.figures(block) is not None]
        together = message("explorer.together", amount=coins(sum(fees)))
        note = together if known == blocks else message("explorer.being-read")
        series = self._series(message("explorer.fees-per-block"), blocks, fees, self._coins, note)
        return bar_chart(series, top=round_top(max(fees)), axis=self._coins)

    def _intervals(self, blocks: Sequence[BlockRow]) -> str:
        params = self._sources.params
        due = params.slots_per_block * params.slot_seconds
        seconds = self._newest.intervals(params)
        mean = sum(seconds) // len(seconds)
        top = seconds_top(min(max(*seconds, 2 * due), max(4 * due, 2 * mean)))
        speed = message("explorer.average", mean=duration(mean), due=duration(due))
        series = self._series(message("explorer.time-between"), blocks[1:], seconds, duration, speed)
        return bar_chart(series, top=top, axis=duration, mark=due)

    def _values(self, blocks: Sequence[BlockRow]) -> str:
        seconds = dict(
            zip([block.hash for block in blocks[1:]], self._newest.intervals(self._sources.params), strict=True)
        )
        rows = [
            (
                grouped(block.header.height),
                grouped(block.header.transaction_count),
                format_amount(self._paid(block)),
                duration(seconds[block.hash]) if block.hash in seconds else "–",
                scaled(block_work(block.header.base_target)),
            )
            for block in reversed(blocks)
        ]
        headings = (
            message("explorer.block"),
            message("explorer.transfers"),
            message("explorer.fees-in"),
            message("explorer.time"),
            message("explorer.difficulty"),
        )
        caption = self._say(message("explorer.values-of-charts"))
        return values_table([self._say(heading) for heading in headings], rows, caption=caption)

    def _paid(self, block: BlockRow) -> int:
        """The fees in a block; 0 while they are being read."""
        figures = self._sources.recent.figures(block)
        return 0 if figures is None else sum(figures.fees)

    def _difficulty(self, blocks: Sequence[BlockRow]) -> str:
        work = [block_work(block.header.base_target) for block in blocks]
        low, high = min(work), max(work)
        steady = message("explorer.steady", difficulty=scaled(low))
        note = steady if low == high else message("explorer.from-to", low=scaled(low), high=scaled(high))
        return line_chart(self._series(message("explorer.difficulty"), blocks, work, scaled, note), axis=scaled)

    def _coins(self, units: int) -> str:
        return self._say(coins(units))

    def _count(self, count: int) -> str:
        return self._say(message("explorer.count-transfers", count=count))

    def _series(
        self,
        heading: Message,
        blocks: Sequence[BlockRow],
        values: Sequence[int],
        written: Callable[[int], str],
        note: Message,
    ) -> Series:
        names = [self._say(message("explorer.block-at", height=block.header.height)) for block in blocks]
        return Series(
            heading=self._say(heading),
            values=values,
            readings=[f"{name}: {written(value)}" for name, value in zip(names, values, strict=True)],
            note=self._say(note),
            first=names[0],
            last=names[-1],
        )
