"""The mempool: what waits and for how long, and which fee gets into which block (docs/pages.md "Mempool")."""

from twisted.web.template import Tag

from svcd.chain.errors import RuleViolation
from svcd.chain.units import format_amount, parse_amount
from svcd.node.fee_estimator import mempool_floor
from svcd.pages.expectation import (
    NEXT_BLOCKS,
    blocks_until,
    expected_in,
    next_block,
    next_blocks_table,
    suggested,
    waiting_table,
)
from svcd.pages.html import (
    UNIT,
    Content,
    byte_size,
    coins,
    empty_list,
    grouped,
    in_coins,
    notice,
    pagination,
    section,
    stat,
    stats,
    tag,
)
from svcd.pages.layout import Page
from svcd.pages.routes import AFTER, FEE, page
from svcd.pages.sources import Sources
from svcd.pages.tables import PAGE_SIZE


class MempoolPage:
    """The transfers in the mempool."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/mempool", "The transfers in the mempool", query_fields=(AFTER, FEE), cost=4)
    def mempool(self, after: int, fee: str) -> Page:
        """Answer GET /mempool."""
        sources, pool = self._sources, self._sources.mempool
        found = pool.since(after, PAGE_SIZE + 1)
        shown = found[:PAGE_SIZE]
        if shown:
            listed: Content = tag("div", waiting_table(sources, shown), class_="card")
        else:
            listed = empty_list("The mempool is empty." if not after else "There are no more transfers.")
        pages: list[Content] = []
        if after:
            pages.append(tag("a", "← From the beginning", href="/mempool", class_="button"))
        if len(found) > PAGE_SIZE:
            pages.append(tag("a", "More →", href=f"/mempool?after={shown[-1].sequence}", class_="button"))
        return Page(
            title="Mempool",
            content=(
                tag("h1", "Mempool"),
                self._stats(),
                *([] if after else [next_block(sources), *self._next_blocks(), self._form(fee)]),
                section("Waiting transfers", listed, *([pagination(*pages)] if pages else [])),
            ),
            here="/mempool",
            json=f"/p2p/transactions?after={after}" if sources.serves_peers else "",
        )

    def _stats(self) -> Tag:
        sources, pool = self._sources, self._sources.mempool
        floor = mempool_floor(pool, sources.params)
        return stats(
            stat("Waiting", grouped(len(pool)), "In order of arrival"),
            stat("Size", byte_size(pool.size)),
            stat("Fee", format_amount(suggested(sources)), f"{UNIT}, suggested now"),
            stat("Least fee", "–" if floor is None else format_amount(floor), f"{UNIT}, for a place here"),
        )

    def _next_blocks(self) -> list[Tag]:
        sources = self._sources
        blocks = sources.mempool.fees.expected_blocks(sources.params, most=NEXT_BLOCKS)
        if len(blocks) == 1:
            return []
        return [section("Next blocks", tag("div", next_blocks_table(sources, blocks), class_="card"))]

    def _form(self, fee: str) -> Tag:
        """Asks for a fee, and says when it gets in."""
        answer: list[Content] = []
        if fee:
            answer = [self._answer(fee)]
        field = tag("input", id="fee", name="fee", value=fee, inputmode="decimal", maxlength="32", autocomplete="off")
        return tag(
            "section",
            tag("h2", "When does a transfer get in?"),
            tag(
                "form",
                tag("div", tag("label", f"Fee in {UNIT}", for_="fee"), class_="field"),
                tag("div", field, tag("button", "Look", type="submit"), class_="search"),
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
            fee = parse_amount(text)
        except RuleViolation as error:
            sentence = in_coins(error.detail)
            return notice("bad", f"{sentence[:1].upper()}{sentence[1:]}.")
        least = max(mempool_floor(sources.mempool, sources.params) or 0, sources.params.minimum_fee)
        if fee < least:
            return notice("warn", f"The fee must be at least {coins(least)} now.")
        when = expected_in(sources, blocks_until(sources, fee))
        return notice("good", f"A transfer that is sent now with the fee of {coins(fee)} is expected {when}.")
