"""The mempool: what waits and for how long, and which fee gets into which block (docs/pages.md "The next block")."""

from collections.abc import Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.node.fee_estimator import mempool_floor
from svcd.node.fee_histogram import ExpectedBlock
from svcd.pages.expectation import (
    blocks_until,
    expected_in,
    fees_chart,
    next_block_card,
    next_blocks,
    next_blocks_table,
    suggested,
    waiting_table,
)
from svcd.pages.html import (
    Content,
    amount,
    bare_amount,
    byte_size,
    empty_list,
    notice,
    pagination,
    section,
    stat,
    stats,
    tag,
)
from svcd.pages.layout import Page, placeholder
from svcd.pages.routes import BEFORE_ARRIVAL, FEE, page, parse_typed_amount
from svcd.pages.sources import Sources
from svcd.pages.tables import PAGE_SIZE
from svcd.pages.texts import grouped, message

_FEES: Final = "fees"


class MempoolPage:
    """The transfers in the mempool."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/mempool", "The transfers in the mempool", query_fields=(BEFORE_ARRIVAL, FEE), cost=4)
    def mempool(self, before: int | None, fee: str) -> Page:
        """Answer GET /mempool."""
        sources, pool = self._sources, self._sources.mempool
        found = pool.newest(PAGE_SIZE + 1, before=MAX_INTEGER if before is None else before)
        shown = found[:PAGE_SIZE]
        if shown:
            listed: Content = tag("div", waiting_table(sources, shown), class_="card")
        else:
            listed = empty_list(
                message("explorer.mempool-empty") if before is None else message("explorer.no-more-transfers")
            )
        pages: list[Content] = []
        if before is not None:
            pages.append(tag("a", message("explorer.newest"), href="/mempool", class_="button"))
        if len(found) > PAGE_SIZE:
            older = f"/mempool?before={shown[-1].sequence}"
            pages.append(tag("a", message("explorer.older"), href=older, class_="button"))
        blocks = next_blocks(sources)
        now = [
            next_block_card(sources, blocks),
            placeholder(_FEES),
            *([self._next_blocks(blocks)] if len(blocks) > 1 else []),
            self._form(fee),
        ]
        return Page(
            title=message("frame.mempool"),
            content=(
                tag("h1", message("frame.mempool")),
                self._stats(),
                *(now if before is None else []),
                section(message("explorer.waiting-transfers"), listed, *pagination(*pages)),
            ),
            here="/mempool",
            json="/p2p/transactions?after=0" if sources.serves_peers else "",
            markup={_FEES: lambda catalogue: fees_chart(sources, blocks[0], catalogue.text)},
            scripts=("charts.mjs",),
            styles=("charts.css",),
        )

    def _stats(self) -> Tag:
        sources, pool = self._sources, self._sources.mempool
        floor = mempool_floor(pool, sources.params)
        return stats(
            stat(message("explorer.stat-waiting"), grouped(len(pool))),
            stat(message("explorer.size"), byte_size(pool.size)),
            stat(message("explorer.fee"), bare_amount(suggested(sources)), message("explorer.suggested")),
            stat(
                message("explorer.least-fee"),
                "–" if floor is None else bare_amount(floor),
                message("explorer.taken-now"),
            ),
        )

    def _next_blocks(self, blocks: Sequence[ExpectedBlock]) -> Tag:
        listed = next_blocks_table(self._sources, blocks)
        return section(message("explorer.next-blocks"), tag("div", listed, class_="card"))

    def _form(self, fee: str) -> Tag:
        """Asks for a fee, and says when it gets in."""
        answer: list[Content] = []
        if fee:
            answer = [self._answer(fee)]
        field = tag("input", id="fee", name="fee", value=fee, inputmode="decimal", maxlength="32", autocomplete="off")
        return tag(
            "section",
            tag("h2", message("explorer.when-in")),
            tag(
                "form",
                tag("div", tag("label", message("explorer.fee-in-svc"), for_="fee"), class_="field"),
                tag("div", field, tag("button", message("explorer.look"), type="submit"), class_="search"),
                action="/mempool",
                method="get",
                class_="stack",
            ),
            *answer,
            class_="card stack",
        )

    def _answer(self, text: str) -> Tag:
        sources = self._sources
        try:
            fee = parse_typed_amount(text, sources.params.unit)
        except RuleViolation:
            return notice("bad", message("explorer.fee-wrong"))
        minimum = max(mempool_floor(sources.mempool, sources.params) or 0, sources.params.minimum_fee)
        if fee < minimum:
            return notice("warn", message("explorer.fee-too-low", least=amount(minimum)))
        when = expected_in(sources, blocks_until(sources, fee))
        return notice("good", message("explorer.fee-expected", fee=amount(fee), when=when))
