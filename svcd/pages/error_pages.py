"""The page for an error: what it means to a reader of the page, and the node's own sentence below that."""

import re
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from svcd.pages.html import Content, coins, tag, visible
from svcd.pages.layout import Page
from svcd.web.responses import HttpError, reason_phrase

CHECKOUT: Final = "/pay/"
_BASE_UNITS: Final = re.compile(r"\b([0-9]{1,17}) base units?\b")


@frozen
class Explanation:
    """What an error means to a reader of the page."""

    title: str
    advice: str


_LINK: Final = Explanation(
    "This payment link does not work",
    "Part of it is missing or wrong. Nothing was paid. Go back to the shop and ask for a new link.",
)
_ON_ROUTES: Final[Mapping[tuple[str, int], Explanation]] = {
    (CHECKOUT, 400): _LINK,
    ("/block/{block}", 400): Explanation(
        "This is not a block", "A block has a number, such as 1234, and a hash of 64 characters from 0-9 and a-f."
    ),
    ("/tx/{txid}", 400): Explanation(
        "This is not a transfer", "The id of a transfer has 64 characters from 0-9 and a-f. The link may be cut off."
    ),
    ("/address/{address}", 400): Explanation(
        "This is not an address of this network", "It may be mistyped or cut off. Copy it again from its source."
    ),
    ("/reference/{reference}", 400): Explanation(
        "This is not a reference",
        "A reference has 1 to 64 characters: letters, digits and . _ : - are possible. The link may be cut off.",
    ),
    ("/search", 400): Explanation("This is too long to search for", "Paste only the number, id, address or reference."),
}
"""By the path of the route and the status."""
_ANYWHERE: Final[Mapping[int, Explanation]] = {
    400: Explanation("This link does not work", "Part of it is missing or wrong. It may be cut off."),
    404: Explanation("Page not found", "There is no page at this address. It may be mistyped or cut off."),
    429: Explanation("Too many requests", "Wait a few seconds and reload the page."),
    503: Explanation("Not ready", "The node is busy or starting. Wait a moment and reload the page."),
}


class NotFound(HttpError):
    """404 for what a page was asked to show, with a title and a sentence for the reader of the page."""

    def __init__(self, title: str, sentence: str) -> None:
        super().__init__(404, sentence)
        self.explanation = Explanation(title, sentence[:1].upper() + sentence[1:] + ".")


def error_page(error: HttpError, route: str) -> Page:
    """The page for ``error`` on ``route``, the path of a route with its placeholders or empty."""
    explanation, details = _explain(error, route)
    content: list[Content] = [tag("h1", explanation.title), tag("p", explanation.advice, class_="lead", dir="auto")]
    if details:
        summary = "Details for the shop" if route == CHECKOUT else "Details"
        content.append(tag("details", tag("summary", summary), tag("p", details, dir="auto")))
    if route != CHECKOUT:
        content.append(tag("p", tag("a", "To the explorer", href="/", class_="alone")))
    return Page(
        title=explanation.title,
        content=tuple(content),
        status=error.status,
        searchable=route != CHECKOUT,
        scripts=(),
    )


def _explain(error: HttpError, route: str) -> tuple[Explanation, str]:
    """The explanation, and the node's own sentence if it says more."""
    if isinstance(error, NotFound):
        return error.explanation, ""
    sentence = visible(error.sentence[:1].upper() + error.sentence[1:].removesuffix(".") + ".")
    sentence = _BASE_UNITS.sub(lambda match: coins(int(match[1])), sentence)
    explanation = _ON_ROUTES.get((route, error.status)) or _ANYWHERE.get(error.status)
    if explanation is None:
        return Explanation(reason_phrase(error.status).decode("ascii"), sentence), ""
    return explanation, sentence
