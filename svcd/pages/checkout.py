"""The checkout, to which a shop sends its buyers: the order and the state of its payment (docs/pages.md "Checkout").

The node stores no orders: the page, like verification, is computed from its address. The HTML contains the views of
all states, all but one of them hidden, so that the script only has to switch between them.
"""

from typing import Final
from urllib.parse import quote

from twisted.web.template import Tag

from svcd.chain.units import format_amount
from svcd.commerce.payment import Observation, PaymentState, payment_state
from svcd.commerce.payment_request import (
    PaymentRequest,
    PaymentTerms,
    format_uri,
    parse_terms,
    resolve_amount,
    status_path,
)
from svcd.pages.html import Content, amount, copy_button, copyable, facts, link, notice, plural, tag, visible
from svcd.pages.layout import CachedPage, Page
from svcd.pages.qr import qr_code, qr_text
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.rpc import fields

REFRESH_SECONDS: Final = 5
_LONG: Final = 14
"""Characters above which an amount is shown in smaller type."""


class CheckoutPage:
    """The checkout of one order."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page(
        "/pay/",
        "An order and the state of its payment",
        query_fields=(
            fields.REFERENCE,
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.CONFIRMATIONS,
            fields.LABEL,
            fields.SINCE_HEIGHT,
        ),
        cost=4,
    )
    def pay(
        self,
        reference: str,
        *,
        recipient: object,
        amount: int | None,
        amount_base_units: int | None,
        confirmations: int,
        label: str | None,
        since_height: int | None,
    ) -> CachedPage:
        """Answer GET /pay/."""
        terms = parse_terms(
            self._sources.params,
            reference=reference,
            recipient=recipient,
            amount=resolve_amount(amount, amount_base_units),
            required=confirmations,
            since_height=since_height,
        )
        observation = self._sources.payments.find(terms)
        return CachedPage(("pay", terms, label, observation), lambda: _draw(terms, label, observation))


def _draw(terms: PaymentTerms, label: str | None, observation: Observation) -> Page:
    state = payment_state(terms, observation)
    ways = _payment_methods(PaymentRequest(terms, label), state)
    columns = tag("div", tag("div", _progress(terms, observation, state), ways, class_="stack"), _order(terms, label))
    return Page(
        title=f"Pay {format_amount(terms.amount)} SVC",
        content=(_head(terms, label), columns(class_="checkout", id="payment", **_script_data(terms, state))),
        json=status_path(terms),
        searchable=False,
        refresh=0 if state is PaymentState.CONFIRMED else REFRESH_SECONDS,
        scripts=("copy.mjs", "checkout.mjs"),
    )


def _script_data(terms: PaymentTerms, state: PaymentState) -> dict[str, str]:
    """The data attributes that ``checkout.mjs`` reads."""
    return {"data-status": status_path(terms), "data-state": state.value}


def _head(terms: PaymentTerms, label: str | None) -> Tag:
    text = format_amount(terms.amount)
    sized = "amount big long" if len(text) > _LONG else "amount big"
    lines: list[Content] = [
        tag("h1", tag("span", "Pay ", class_="visually-hidden"), amount(terms.amount, class_=sized))
    ]
    if label is not None:
        lines.append(tag("p", visible(label), class_="lead label", dir="auto"))
    return tag("div", *lines, class_="stack tight")


def _progress(terms: PaymentTerms, observation: Observation, state: PaymentState) -> Tag:
    """The state of the payment, one of four, and problems with it."""
    depth, required = str(min(observation.confirmations, terms.required)), str(terms.required)
    count = tag("span", str(observation.confirmations), data_fill="confirmations")
    bar = tag("progress", max=required, value=depth, data_fill="progress", aria_label="Confirmations")
    pending = "The transfer has reached this node and is waiting for a block. Do not pay again."
    confirming = "The transfer is in a block. Each further block makes it safer. Do not pay again."
    asked = plural(terms.required, "confirmation")
    views = [
        _view("unpaid", state, _heading_and_text("Waiting for the payment", "This page updates automatically.")),
        _view("pending", state, _heading_and_text("Seen", pending)),
        _view(
            "confirming",
            state,
            _heading_and_text("Confirming", confirming),
            bar,
            tag("p", count, f" of {asked}", class_="soft"),
        ),
        _view(
            "confirmed",
            state,
            _heading_and_text("Paid", "The payment has as many confirmations as the shop asked for."),
            tag("p", f"{asked} or more", class_="soft"),
        ),
    ]
    states = tag("div", _steps(), *views, _transfer(observation), role="status", class_="stack")
    unreachable = notice("warn", "The node does not answer. This page keeps trying.")
    trouble = tag("div", unreachable, data_trouble="", hidden="hidden", role="status")
    without_scripts = tag(
        "noscript", tag("p", f"This page reloads every {REFRESH_SECONDS} seconds.", class_="soft small")
    )
    parts: list[Content] = [states, *_problems(terms, observation), trouble]
    if state is not PaymentState.CONFIRMED:
        parts.append(without_scripts)
    return tag("div", *parts, class_="card stack standing")


def _view(when: str, state: PaymentState, *content: Content) -> Tag:
    """A view that is visible while the state is ``when``."""
    hidden = {} if state.value == when else {"hidden": "hidden"}
    return tag("div", *content, class_="stack tight", data_when=when, **hidden)


def _heading_and_text(heading: str, sentence: str) -> Tag:
    return tag("div", tag("h2", heading), tag("p", sentence, class_="soft"))


def _steps() -> Tag:
    names = ("Seen", "In a block", "Settled")
    return tag("ol", *[tag("li", name) for name in names], class_="steps", aria_hidden="true")


def _transfer(observation: Observation) -> Tag:
    txid = observation.txid.hex() if observation.txid else ""
    hidden = {} if txid else {"hidden": "hidden"}
    return tag(
        "p", link("See the transfer", "tx", txid, class_="alone", data_fill="transfer"), class_="small", **hidden
    )


def _problems(terms: PaymentTerms, observation: Observation) -> list[Content]:
    """Warnings: payments of another amount, and more than one payment."""
    mismatches = [_mismatch(format_amount(each.amount), each.txid.hex()) for each in observation.mismatches]
    asked = f"The order asks for exactly {format_amount(terms.amount)} SVC, so "
    explanation = ("A payment of another amount arrived under this reference. ", asked)
    listed = tag("ul", *mismatches, class_="plain", data_fill="mismatches")
    hidden = {} if mismatches else {"hidden": "hidden"}
    advice = "it does not pay the order. Ask the shop what to do."
    misses = tag("div", notice("warn", tag("p", *explanation, advice), listed), role="status", data_misses="", **hidden)
    sample = tag("template", _mismatch("", ""), id="mismatch")
    double = "More than one transfer pays this order. Ask the shop to refund the others."
    hidden = {} if observation.match_count > 1 else {"hidden": "hidden"}
    return [misses, sample, tag("div", notice("warn", double), role="status", data_twice="", **hidden)]


def _mismatch(coins: str, txid: str) -> Tag:
    shown = tag("span", tag("span", coins, data_fill="coins"), " SVC", class_="amount")
    return tag("li", shown, " · ", link("the transfer", "tx", txid))


def _payment_methods(request: PaymentRequest, state: PaymentState) -> Tag:
    uri = format_uri(request)
    code = tag("div", qr_code(qr_text(request), "QR code of the payment"), class_="code")
    wallet = tag(
        "a", "Pay with the browser wallet", href=f"/wallet/?pay={quote(uri, safe='')}", class_="button primary wide"
    )
    copy = tag("button", "Copy the payment link", type="button", class_="wide copy", hidden="hidden", data_copy=uri)
    scan = tag("p", "Scan the code with a wallet, or continue here:", class_="soft small centre")
    card = tag("div", code, scan, wallet, copy, class_="card stack")
    hidden = {} if state is PaymentState.UNPAID else {"hidden": "hidden"}
    return tag("div", card, data_when=PaymentState.UNPAID.value, **hidden)


def _order(terms: PaymentTerms, label: str | None) -> Tag:
    pairs: list[tuple[str, Content]] = [
        (
            "Amount",
            tag(
                "span",
                amount(terms.amount),
                " ",
                copy_button(format_amount(terms.amount), "the amount"),
                class_="copied",
            ),
        ),
        ("Reference", copyable(terms.reference, "the reference")),
        ("Recipient", copyable(terms.recipient, "the recipient’s address", "address", terms.recipient)),
        ("Settled after", plural(terms.required, "confirmation")),
    ]
    if label is not None:
        pairs.append(
            (
                "Label",
                tag(
                    "span",
                    tag("bdi", visible(label), class_="label"),
                    tag("span", " (from the link, not signed)", class_="soft"),
                ),
            )
        )
    if terms.since_height is not None:
        pairs.append(("Counted from", tag("span", "block ", str(terms.since_height))))
    check = "A transfer pays this order only with exactly this amount, reference and recipient."
    return tag(
        "section", tag("h2", "The order"), facts(pairs), tag("p", check, class_="soft small"), class_="card stack"
    )
