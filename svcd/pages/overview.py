"""The start page: the next block, the newest blocks, the blocks that lost, and charts (docs/pages.md)."""

from collections.abc import Callable, Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.chain.units import BASE_UNITS_PER_COIN, format_amount
from svcd.chain.work import block_work
from svcd.pages.charts import Series, bar_chart, line_chart, round_top, seconds_top, values_table
from svcd.pages.expectation import next_block, suggested
from svcd.pages.html import (
    UNIT,
    coins,
    duration,
    grouped,
    plural,
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
from svcd.pages.tables import blocks_table, replaced_table
from svcd.pages.texts import Catalogue
from svcd.recent import Recent

_CHARTS: Final = "charts"
_DRAWN: Final = 8
"""Drawn charts that are kept, one for each language."""
LISTED: Final = 12
"""Blocks in the table of the overview."""


class OverviewPage:
    """The start page."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._drawn: Recent[tuple[bytes, int, str], bytes] = Recent(_DRAWN)

    @page("/", "The newest blocks", cost=4)
    def overview(self) -> CachedPage:
        """Answer GET /."""
        sources = self._sources
        shown = (sources.chain_manager.tip.hash, sources.recent.revision, len(sources.mempool), sources.second)
        return CachedPage(("overview", *shown), self._draw)

    def _draw(self) -> Page:
        sources = self._sources
        newest = sources.recent.newest()
        news = tag("p", class_="news", role="status", data_height=str(newest.tip.height))
        blocks = blocks_table(sources, newest.blocks[:LISTED], caption="Newest blocks")
        return Page(
            title="Explorer",
            content=(
                tag("h1", "Explorer"),
                stats(*self._stats(newest)),
                next_block(sources),
                section("Newest blocks", news, tag("div", blocks, class_="card")),
                *self._replaced(newest),
                placeholder(_CHARTS),
            ),
            here="/",
            json="/rpc/status",
            markup={_CHARTS: lambda catalogue: self._markup(newest, catalogue)},
            scripts=("copy.mjs", "explorer.mjs", "charts.mjs"),
        )

    def _stats(self, newest: NewestBlocks) -> list[Tag]:
        sources, tip = self._sources, newest.tip
        latest = newest.blocks[0]
        difficulty = scaled(block_work(latest.header.base_target)) if tip.height else "–"
        most = grouped(sources.params.supply_limit // BASE_UNITS_PER_COIN)
        return [
            stat("Height", grouped(tip.height), when(latest.time, sources.now) if tip.height else "The genesis"),
            stat(
                "Waiting",
                grouped(len(sources.mempool)),
                tag("a", "Transfers in the mempool", href="/mempool", class_="alone"),
            ),
            stat("Fee", format_amount(suggested(sources)), f"{UNIT}, suggested now"),
            stat("Difficulty", difficulty, "Average attempts per block"),
            stat("Coins issued", grouped(tip.issued // BASE_UNITS_PER_COIN), f"Of {most}"),
        ]

    def _replaced(self, newest: NewestBlocks) -> list[Tag]:
        if not newest.replaced:
            return []
        lead = "Other blocks have won over these. Their transfers are in other blocks or wait again, if they still can."
        listed = replaced_table(self._sources, newest.replaced)
        return [section("Replaced blocks", tag("p", lead, class_="soft"), tag("div", listed, class_="card"))]

    def _markup(self, newest: NewestBlocks, catalogue: Catalogue) -> bytes:
        """The charts, drawn once for each change of what they show."""
        key = newest.tip.hash, self._sources.recent.revision, catalogue.language
        if key not in self._drawn:
            self._drawn[key] = self._charts(newest)
        return self._drawn[key]

    def _charts(self, newest: NewestBlocks) -> bytes:
        blocks = [block for block in reversed(newest.blocks) if block.header.height]
        if len(blocks) < 2:
            return b'<p class="card empty">There are not enough blocks for a chart yet.</p>'
        charts = [self._transfers(blocks), self._fees(blocks), self._intervals(newest, blocks), _difficulty(blocks)]
        heading = f"The last {plural(len(blocks), 'block')}"
        values = (
            f'<details class="card"><summary>The values as a table</summary>{self._values(newest, blocks)}</details>'
        )
        drawn = f'<section><h2>{heading}</h2><div class="charts">{"".join(charts)}</div>{values}</section>'
        return drawn.encode("utf-8")

    def _transfers(self, blocks: Sequence[BlockRow]) -> str:
        counts = [block.header.transaction_count for block in blocks]
        top = round_top(max(counts))
        total = sum(counts)
        full = f"a block holds {grouped(self._sources.params.max_block_transactions)} at most"
        series = _series("Transfers per block", blocks, counts, _transfers, f"{_transfers(total)}; {full}")
        return bar_chart(series, top=top, axis=grouped)

    def _fees(self, blocks: Sequence[BlockRow]) -> str:
        fees = [self._paid(block) for block in blocks]
        known = [block for block in blocks if self._sources.recent.figures(block) is not None]
        note = f"{coins(sum(fees))} together" if known == blocks else "Some blocks are being read: reload the page"
        series = _series("Fees per block", blocks, fees, coins, note)
        return bar_chart(series, top=round_top(max(fees)), axis=coins)

    def _intervals(self, newest: NewestBlocks, blocks: Sequence[BlockRow]) -> str:
        params = self._sources.params
        due = params.slots_per_block * params.slot_seconds
        seconds = newest.intervals(params)
        mean = sum(seconds) // len(seconds)
        top = seconds_top(min(max(*seconds, 2 * due), max(4 * due, 2 * mean)))
        speed = f"{duration(mean)} on average; the target is {duration(due)}"
        series = _series("Time between blocks", blocks[1:], seconds, duration, speed)
        return bar_chart(series, top=top, axis=duration, mark=due)

    def _values(self, newest: NewestBlocks, blocks: Sequence[BlockRow]) -> str:
        seconds = dict(zip([block.hash for block in blocks[1:]], newest.intervals(self._sources.params), strict=True))
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
        headings = ("Block", "Transfers", f"Fees in {UNIT}", "Time", "Difficulty")
        return values_table(headings, rows, caption="The values of the charts")

    def _paid(self, block: BlockRow) -> int:
        """The fees in a block; 0 while they are being read."""
        figures = self._sources.recent.figures(block)
        return 0 if figures is None else sum(figures.fees)


def _difficulty(blocks: Sequence[BlockRow]) -> str:
    work = [block_work(block.header.base_target) for block in blocks]
    low, high = min(work), max(work)
    note = f"{scaled(low)}, steady" if low == high else f"{scaled(low)} to {scaled(high)}"
    return line_chart(_series("Difficulty", blocks, work, scaled, note), axis=scaled)


def _transfers(count: int) -> str:
    return plural(count, "transfer")


def _series(
    heading: str, blocks: Sequence[BlockRow], values: Sequence[int], text: Callable[[int], str], note: str
) -> Series:
    heights = [grouped(block.header.height) for block in blocks]
    return Series(
        heading=heading,
        values=values,
        readings=[f"Block {height}: {text(value)}" for height, value in zip(heights, values, strict=True)],
        note=note,
        first=f"Block {heights[0]}",
        last=f"Block {heights[-1]}",
    )
