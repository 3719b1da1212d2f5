"""The page on which a browser checks the file of a payment proof (docs/pages.md "Payment proofs")."""

import json
from collections.abc import Iterator
from typing import Final

from twisted.web.template import Tag

from svcd.chain.params import NETWORKS, NetworkParams
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

    def __init__(self, sources: Sources) -> None:
        self._params = sources.params

    @page("/proof/", "A payment proof, checked by the browser", cost=1)
    def proof(self) -> CachedPage:
        """Answer GET /proof/."""
        return CachedPage(("proof",), self._draw)

    def _draw(self) -> Page:
        return _drawn(None if self._params in NETWORKS.values() else self._params)


def _drawn(own: NetworkParams | None) -> Page:
    """The page of a node on a built-in network, or on ``own``, which the script knows from the page alone."""
    told = {} if own is None else {"data_network": json.dumps({"rules": own.rules, "changes": own.listed_changes})}
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
                    *([] if own is None else [_to_compare(own)]),
                    proven,
                    *_not_shown(own),
                ),
                id="proof",
                class_="stack",
                **told,
            ),
        ),
        searchable=False,
        scripts=("proof.mjs",),
        worker=True,
    )


def _not_shown(own: NetworkParams | None) -> Iterator[Tag]:
    """Who can make another chain: the script chooses, for the proof says which network it is of, and its tip when."""
    yield tag("div", notice("warn", message("proof.not-shown")), id="proof-by-work")
    if own is not None and own.producers:
        together, listed = tag("span", data_fill="together"), tag("span", data_fill="listed")
        by_producers = message("proof.not-shown-producers", together=together, listed=listed)
        yield tag("div", notice("warn", by_producers), id="proof-by-producers", hidden="hidden")


def _to_compare(own: NetworkParams) -> Tag:
    """The genesis hash that the rules of the node give; the script shows it with a payment on that network."""
    genesis_hash = tag("span", data_fill="genesis-hash", class_="hash")
    sentence = message("proof.compare-genesis", hash=genesis_hash, network=own.chain_id)
    return tag("div", notice("warn", sentence), id="proof-genesis", hidden="hidden")


def _view(name: str, *content: Content) -> Tag:
    """What is shown in one state; the script chooses."""
    return tag("div", *content, data_view=name, hidden="hidden", role="status", class_="stack")


def _reason() -> Tag:
    # Which part of a proof is wrong is said in English.
    return tag("span", data_fill="reason", lang="en")
