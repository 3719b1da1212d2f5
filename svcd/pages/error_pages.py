"""The page for an error: what it means to a reader of the page, and the node's own sentence below that."""

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from svcd.pages.html import Content, in_coins, tag
from svcd.pages.layout import Page
from svcd.pages.texts import Message, message
from svcd.visible_text import visible
from svcd.web.responses import HttpError, reason_phrase

CHECKOUT: Final = "/pay/"


@frozen
class Explanation:
    """What an error means to a reader of the page."""

    title: Content
    advice: Content


_ON_ROUTES: Final[Mapping[tuple[str, int], Explanation]] = {
    (CHECKOUT, 400): Explanation(message("error.payment-link"), message("error.payment-link-text")),
    (CHECKOUT, 403): Explanation(message("error.unlisted-link"), message("error.unlisted-link-text")),
    ("/block/{block}", 400): Explanation(message("error.block"), message("error.block-text")),
    ("/tx/{txid}", 400): Explanation(message("error.transfer"), message("error.transfer-text")),
    ("/address/{address}", 400): Explanation(message("error.address"), message("error.address-text")),
    ("/reference/{reference}", 400): Explanation(message("error.reference"), message("error.reference-text")),
    ("/search", 400): Explanation(message("error.search"), message("error.search-text")),
}
"""By the path of the route and the status."""
_ANYWHERE: Final[Mapping[int, Explanation]] = {
    400: Explanation(message("error.link"), message("error.link-text")),
    404: Explanation(message("error.page"), message("error.page-text")),
    429: Explanation(message("error.busy"), message("error.busy-text")),
    503: Explanation(message("error.not-ready"), message("error.not-ready-text")),
}


class NotFound(HttpError):
    """404 for what a page was asked to show: ``sentence`` for programs, title and advice for the reader of the page."""

    def __init__(self, sentence: str, title: Message, advice: Message) -> None:
        super().__init__(404, sentence)
        self.explanation = Explanation(title, advice)


def error_page(error: HttpError, route: str) -> Page:
    """The page for ``error`` on ``route``, the path of a route with its placeholders or empty."""
    explanation, details = _explain(error, route)
    content: list[Content] = [tag("h1", explanation.title), tag("p", explanation.advice, class_="lead", dir="auto")]
    if details:
        summary = message("error.details-for-the-shop") if route == CHECKOUT else message("error.details")
        content.append(tag("details", tag("summary", summary), tag("p", details, dir="auto")))
    if route != CHECKOUT:
        content.append(tag("p", tag("a", message("error.to-the-explorer"), href="/", class_="alone")))
    return Page(
        title=explanation.title,
        content=tuple(content),
        status=error.status,
        searchable=route != CHECKOUT,
    )


def _explain(error: HttpError, route: str) -> tuple[Explanation, Content]:
    """The explanation, and the node's own sentence if it says more."""
    if isinstance(error, NotFound):
        return error.explanation, ""
    sentence = in_coins(visible(error.sentence[:1].upper() + error.sentence[1:].removesuffix(".") + "."))
    height = error.members.get("pruneHeight")
    if height is not None:
        return _not_here(int(str(height)), route), sentence
    explanation = _ON_ROUTES.get((route, error.status)) or _ANYWHERE.get(error.status)
    if explanation is None:
        return Explanation(reason_phrase(error.status).decode("ascii"), sentence), ""
    return explanation, sentence


def _not_here(first: int, route: str) -> Explanation:
    """The explanation where blocks below height ``first`` would be needed, of which this node has only headers."""
    if route == CHECKOUT:
        return Explanation(message("checkout.unknown"), message("checkout.unknown-text", height=first))
    return Explanation(message("error.pruned"), message("error.pruned-text", height=first))
