"""The first page of the explorer: how the chain is doing (docs/pages.md "Explorer")."""

from typing import Final

from twisted.web.template import Tag

from svcd.chain.transition import ChainPoint
from svcd.chain.units import BASE_UNITS_PER_COIN
from svcd.chain.work import block_work
from svcd.pages.layout import KeptPage, Page
from svcd.pages.parts import Content, figure, figures, grouped, plural, section, tag, when
from svcd.pages.plots import bars, curve
from svcd.pages.reading import BlockLine, gaps, newest_blocks
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.tables import blocks_table

PLOTTED: Final = 100
LISTED: Final = 12
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


class OverviewPage:
    """What the newest blocks show."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/", "The newest blocks", cost=4)
    def overview(self) -> KeptPage:
        """Answer GET /."""
        sources = self._sources
        tip = sources.ledger.tip
        return KeptPage(("overview", tip.hash, len(sources.mempool), sources.second), self._draw)

    def _draw(self) -> Page:
        sources = self._sources
        with sources.reader.snapshot():
            tip = sources.tip()
            blocks = newest_blocks(sources, tip, limit=PLOTTED)
        news = tag("p", class_="news", role="status", data_height=str(tip.height))
        return Page(
            title="Explorer",
            content=(
                tag("h1", "Explorer"),
                figures(*self._figures(tip, blocks)),
                tag("div", *self._plots(blocks), class_="cards"),
                section(
                    "Newest blocks",
                    news,
                    tag("div", blocks_table(sources, blocks[:LISTED], caption="Newest blocks"), class_="card"),
                ),
            ),
            here="/",
            json="/rpc/status",
            scripts=("copy.mjs", "explorer.mjs"),
        )

    def _figures(self, tip: ChainPoint, blocks: list[BlockLine]) -> list[Tag]:
        sources = self._sources
        waiting = len(sources.mempool)
        difficulty = block_work(blocks[0].header.base_target) if tip.height else 0
        return [
            figure("Height", str(tip.height), when(blocks[0].time, sources.now) if tip.height else "The genesis"),
            figure("Difficulty", scaled(difficulty) if difficulty else "–", "Tries for a block, on average"),
            figure("Waiting", str(waiting), tag("a", "Transfers in the mempool", href="/mempool", class_="alone")),
            figure("Coins in existence", grouped(tip.issued // BASE_UNITS_PER_COIN), "Of " + self._most()),
        ]

    def _most(self) -> str:
        return grouped(self._sources.params.supply_limit // BASE_UNITS_PER_COIN)

    def _plots(self, blocks: list[BlockLine]) -> list[Content]:
        params = self._sources.params
        due = params.slots_per_block * params.slot_seconds
        seconds = gaps(self._sources, blocks)
        work = [block_work(block.header.base_target) for block in reversed(blocks) if block.header.height]
        if not seconds:
            return [tag("p", "There are too few blocks for a plot yet.", class_="card empty")]
        mean = sum(seconds) // len(seconds)
        top = min(max(*seconds, 2 * due), max(4 * due, 2 * mean))
        speed = f"{plural(len(seconds), 'block')}, {duration(mean)} apart on average; {duration(due)} is meant"
        span = f"{scaled(min(work))} to {scaled(max(work))}" if min(work) != max(work) else f"{scaled(work[0])}, steady"
        return [
            _plot("Time between blocks", bars(seconds, mark=due, top=top, says=speed), speed),
            _plot("Difficulty", curve(work, says=span), f"{span}, over {plural(len(work), 'block')}"),
        ]


def _plot(heading: str, drawing: Tag, note: str) -> Tag:
    caption = tag("figcaption", note, class_="soft small")
    return tag("figure", tag("h2", heading), drawing, caption, class_="card stack")


def duration(seconds: int) -> str:
    """A span of time in its largest fitting unit."""
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7_200 else f"{seconds // 3_600} h"


def scaled(number: int) -> str:
    """A large number to three or four digits: ``1.25 M``."""
    power = min((len(str(number)) - 1) // 3, len(_PREFIXES) - 1)
    if not power:
        return str(number)
    hundredths = number * 100 // 1000**power
    whole, rest = divmod(hundredths, 100)
    decimals = f".{rest:02d}" if whole < 100 else ""
    return f"{whole}{decimals} {_PREFIXES[power]}"
