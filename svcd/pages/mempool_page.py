"""The mempool: what waits and for how long, and which fee is enough (docs/pages.md "The next block")."""

from twisted.web.template import Tag

from svcd.chain.encoding import MAX_INTEGER
from svcd.pages.expectation import next_block_card, waiting_table
from svcd.pages.html import (
    Content,
    bare_amount,
    byte_size,
    empty_list,
    pagination,
    section,
    stat,
    stats,
    tag,
)
from svcd.pages.layout import Page
from svcd.pages.routes import BEFORE_ARRIVAL, page
from svcd.pages.sources import Sources
from svcd.pages.tables import PAGE_SIZE
from svcd.pages.texts import grouped, message


class MempoolPage:
    """The transfers in the mempool."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/mempool", "The transfers in the mempool", query_fields=(BEFORE_ARRIVAL,), cost=4)
    def mempool(self, before: int | None) -> Page:
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
        return Page(
            title=message("frame.mempool"),
            content=(
                tag("h1", message("frame.mempool")),
                self._stats(),
                *([next_block_card(sources)] if before is None else []),
                section(message("explorer.waiting-transfers"), listed, *pagination(*pages)),
            ),
            here="/mempool",
            json="/p2p/transactions?after=0" if sources.serves_peers else "",
        )

    def _stats(self) -> Tag:
        sources, pool = self._sources, self._sources.mempool
        floor = sources.fees.floor()
        return stats(
            stat(message("explorer.stat-waiting"), grouped(len(pool))),
            stat(message("explorer.size"), byte_size(pool.size)),
            stat(message("explorer.fee"), bare_amount(sources.fees.suggested()), message("explorer.suggested")),
            stat(
                message("explorer.least-fee"),
                "–" if floor is None else bare_amount(floor),
                message("explorer.taken-now"),
            ),
        )
