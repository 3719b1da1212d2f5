"""The page on which a browser checks the file of a payment proof (docs/pages.md "Payment proofs")."""

from typing import Final

from twisted.web.template import Tag

from svcd.pages.html import Content, facts, notice, tag
from svcd.pages.layout import CachedPage, Page
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.texts import message

_FACTS: Final = (
    (message("proof.network"), "network", ""),
    (message("proof.amount"), "amount", "amount"),
    (message("proof.recipient"), "recipient", "hash"),
    (message("proof.reference"), "reference", "hash"),
    (message("proof.sender"), "sender", "hash"),
    (message("proof.txid"), "txid", "hash"),
    (message("proof.block"), "block", "hash"),
    (message("proof.confirmations"), "confirmations", ""),
    (message("proof.tip"), "tip", "hash"),
    (message("proof.tip-time"), "tip-time", ""),
    (message("proof.work"), "work", ""),
)
"""What the page says of a proven payment: the caption, the name of the place that the script fills, its class."""


class ProofPage:
    """The page of payment proofs, which is the same for every client of one language."""

    def __init__(self, _sources: Sources) -> None:
        pass

    @page("/proof/", "A payment proof, checked by the browser", cost=1)
    def proof(self) -> CachedPage:
        """Answer GET /proof/."""
        return CachedPage(("proof",), _draw)


def _draw() -> Page:
    chosen = tag(
        "input", type="file", id="proof-file", accept=".json,application/json", disabled="disabled", autocomplete="off"
    )
    proven = facts(
        [(caption, tag("span", data_fill=name, **({"class_": kind} if kind else {}))) for caption, name, kind in _FACTS]
    )
    return Page(
        title=message("proof.title"),
        content=(
            tag("h1", message("proof.title")),
            tag("p", message("proof.lead"), class_="lead"),
            tag("p", message("proof.operator", command=tag("code", "svc verify --proof"))),
            tag("noscript", notice("warn", message("proof.no-script"))),
            tag(
                "div",
                tag("p", tag("label", message("proof.file"), " ", chosen)),
                _view("checking", tag("p", message("proof.checking"), " ", tag("progress"))),
                _view("refused", notice("bad", message("proof.refused"), " ", _reason())),
                _view("failed", notice("bad", message("proof.failed"), " ", _reason())),
                _view(
                    "proven",
                    notice("good", message("proof.proven")),
                    proven,
                    notice("warn", message("proof.not-shown")),
                ),
                id="proof",
                class_="stack",
            ),
        ),
        searchable=False,
        scripts=("proof.mjs",),
        worker=True,
    )


def _view(name: str, *content: Content) -> Tag:
    """What is shown in one state; the script chooses."""
    return tag("div", *content, data_view=name, hidden="hidden", role="status", class_="stack")


def _reason() -> Tag:
    # Which part of a proof is wrong is said in English.
    return tag("span", data_fill="reason", lang="en")
