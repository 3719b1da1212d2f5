"""The page that a shop sends its buyers to: what is to be paid, and how far it has come (docs/pages.md "Checkout").

It is made from its address alone, as verification is: the node keeps no order. All states stand in the page, and all
but one are hidden, so that the script only has to show another one.
"""

from typing import Final
from urllib.parse import quote

from twisted.web.template import Tag

from svcd.chain.units import format_amount
from svcd.commerce.payment import Sighting, State, Terms, state_of
from svcd.commerce.terms import one_amount, status_path, terms_of
from svcd.commerce.uri import PaymentRequest, print_uri
from svcd.pages.layout import KeptPage, Page
from svcd.pages.parts import Content, amount, copy_button, facts, link, notice, plural, tag, whole
from svcd.pages.qr import code_of, qr_code
from svcd.pages.routes import page
from svcd.pages.sources import Sources
from svcd.pages.visible import visible
from svcd.rpc import payment_fields as fields

REFRESH_SECONDS: Final = 5
_LONG: Final = 14
_ARRIVED: Final = f"{State.PENDING} {State.CONFIRMING} {State.CONFIRMED}"


class CheckoutPage:
    """One order, for whoever pays it."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page(
        "/pay/",
        "What is to be paid for an order, and whether it has been",
        query_fields=(
            fields.REFERENCE,
            fields.RECIPIENT,
            fields.AMOUNT,
            fields.AMOUNT_BASE_UNITS,
            fields.CONFIRMATIONS_TEXT,
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
    ) -> KeptPage:
        """Answer GET /pay/."""
        terms = terms_of(
            self._sources.params,
            reference=reference,
            recipient=recipient,
            amount=one_amount(amount, amount_base_units),
            required=confirmations,
            since_height=since_height,
        )
        sighting = self._sources.payments.look(terms)
        return KeptPage(("pay", terms, label, sighting), lambda: _drawn(terms, label, sighting))


def _drawn(terms: Terms, label: str | None, sighting: Sighting) -> Page:
    state = state_of(terms, sighting)
    ways = _ways_to_pay(PaymentRequest(terms, label), state)
    columns = tag("div", tag("div", _standing(terms, sighting, state), ways, class_="stack"), _order(terms, label))
    return Page(
        title=f"Pay {format_amount(terms.amount)} SVC",
        content=(_head(terms, label), columns(class_="checkout", id="payment", **_live(terms, state))),
        json=status_path(terms),
        searchable=False,
        refresh=0 if state is State.CONFIRMED else REFRESH_SECONDS,
        scripts=("copy.mjs", "checkout.mjs"),
    )


def _live(terms: Terms, state: State) -> dict[str, str]:
    """What the script goes by."""
    return {"data-status": status_path(terms), "data-state": state.value}


def _head(terms: Terms, label: str | None) -> Tag:
    text = format_amount(terms.amount)
    sized = "amount big long" if len(text) > _LONG else "amount big"
    lines: list[Content] = [
        tag("h1", tag("span", "Pay ", class_="visually-hidden"), amount(terms.amount, class_=sized))
    ]
    if label is not None:
        lines.append(tag("p", visible(label), class_="lead label", dir="auto"))
    return tag("div", *lines, class_="stack tight")


def _standing(terms: Terms, sighting: Sighting, state: State) -> Tag:
    """How far the payment has come; one of four, and near misses."""
    depth, required = str(min(sighting.confirmations, terms.required)), str(terms.required)
    count = tag("span", str(sighting.confirmations), data_fill="confirmations")
    bar = tag("progress", max=required, value=depth, data_fill="progress", aria_label="Confirmations")
    waits = "The transfer has reached this node and waits for a block. Do not pay again."
    deep = "It is in a block. Each further block makes it safer. Do not pay again."
    asked = plural(terms.required, "confirmation")
    views = [
        _view("unpaid", state, _words("Waiting for the payment", "This page notices it by itself.")),
        _view("pending", state, _words("Seen", waits)),
        _view("confirming", state, _words("Confirming", deep), bar, tag("p", count, f" of {asked}", class_="soft")),
        _view(
            "confirmed",
            state,
            _words("Paid", "The payment is settled to the depth that was asked for."),
            tag("p", f"{asked} or more", class_="soft"),
        ),
    ]
    live = tag("div", _steps(), *views, _transfer(sighting), role="status", class_="stack")
    silent = notice("warn", "The node does not answer. This page goes on asking.")
    trouble = tag("div", silent, data_trouble="", hidden="hidden", role="status")
    again = tag("noscript", tag("p", f"This page asks again every {REFRESH_SECONDS} seconds.", class_="soft small"))
    parts: list[Content] = [live, *_amiss(terms, sighting), trouble]
    if state is not State.CONFIRMED:
        parts.append(again)
    return tag("div", *parts, class_="card stack standing")


def _view(when: str, state: State, *content: Content) -> Tag:
    """What is seen while the state is one of ``when``."""
    hidden = {} if state.value in when.split() else {"hidden": "hidden"}
    return tag("div", *content, class_="stack tight", data_when=when, **hidden)


def _words(heading: str, sentence: str) -> Tag:
    return tag("div", tag("h2", heading), tag("p", sentence, class_="soft"))


def _steps() -> Tag:
    names = ("Seen", "In a block", "Settled")
    return tag("ol", *[tag("li", name) for name in names], class_="steps", aria_hidden="true")


def _transfer(sighting: Sighting) -> Tag:
    txid = sighting.txid.hex() if sighting.txid else ""
    hidden = {} if txid else {"hidden": "hidden"}
    return tag(
        "p", link("See the transfer", "tx", txid, class_="alone", data_fill="transfer"), class_="small", **hidden
    )


def _amiss(terms: Terms, sighting: Sighting) -> list[Content]:
    """What somebody has to put right: other amounts, and paying twice."""
    wrong = [_wrong(format_amount(each.amount), each.txid.hex()) for each in sighting.mismatches]
    says = (
        f"Another amount came under this reference. The order asks for exactly {format_amount(terms.amount)} SVC, so "
    )
    listed = tag("ul", *wrong, class_="plain", data_fill="mismatches")
    hidden = {} if wrong else {"hidden": "hidden"}
    sorry = "this does not pay it. Ask the shop what to do."
    misses = tag("div", notice("warn", tag("p", says, sorry), listed), role="status", data_misses="", **hidden)
    sample = tag("template", _wrong("", ""), id="mismatch")
    twice = "More than one transfer pays this order. Ask the shop to give the others back."
    hidden = {} if sighting.match_count > 1 else {"hidden": "hidden"}
    return [misses, sample, tag("div", notice("warn", twice), role="status", data_twice="", **hidden)]


def _wrong(coins: str, txid: str) -> Tag:
    shown = tag("span", tag("span", coins, data_fill="coins"), " SVC", class_="amount")
    return tag("li", shown, " · ", link("the transfer", "tx", txid))


def _ways_to_pay(request: PaymentRequest, state: State) -> Tag:
    uri = print_uri(request)
    code = tag("div", qr_code(code_of(request), "QR code of the payment"), class_="code")
    wallet = tag(
        "a", "Pay with the browser wallet", href=f"/wallet/?pay={quote(uri, safe='')}", class_="button primary wide"
    )
    copy = tag("button", "Copy the payment link", type="button", class_="wide copy", hidden="hidden", data_copy=uri)
    scan = tag("p", "Scan it with a wallet, or go on here:", class_="soft small centre")
    card = tag("div", code, scan, wallet, copy, class_="card stack")
    hidden = {} if state is State.UNPAID else {"hidden": "hidden"}
    return tag("div", card, data_when=State.UNPAID.value, **hidden)


def _order(terms: Terms, label: str | None) -> Tag:
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
        ("Reference", whole(terms.reference, "the reference")),
        ("Recipient", whole(terms.recipient, "the recipient’s address", "address", terms.recipient)),
        ("Settled after", plural(terms.required, "confirmation")),
    ]
    if label is not None:
        pairs.append(
            (
                "Label",
                tag(
                    "span",
                    tag("bdi", visible(label), class_="label"),
                    tag("span", " (from the link, signed by nobody)", class_="soft"),
                ),
            )
        )
    if terms.since_height is not None:
        pairs.append(("Counts from", tag("span", "block ", str(terms.since_height))))
    check = "A transfer pays this order only with exactly this amount, reference and recipient."
    return tag(
        "section", tag("h2", "The order"), facts(pairs), tag("p", check, class_="soft small"), class_="card stack"
    )
