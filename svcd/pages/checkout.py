"""The checkout, to which a shop sends its buyers: the order and the state of its payment (docs/pages.md "Checkout").

The node stores no orders: the page, like verification, is computed from its address. The HTML contains the views of
all states, all but one of them hidden, so that the script only has to switch between them.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.units import format_amount
from svcd.commerce.payment import DESCRIPTION, Observation, PaymentState, payment_state
from svcd.commerce.payment_request import (
    PaymentRequest,
    PaymentTerms,
    format_uri,
    parse_terms,
    resolve_amount,
    status_path,
)
from svcd.pages.html import (
    Content,
    amount,
    copy_button,
    copyable,
    digit_groups,
    facts,
    grouped,
    link,
    notice,
    plural,
    tag,
    utc,
    visible,
)
from svcd.pages.layout import CachedPage, Page
from svcd.pages.qr import qr_code, qr_text
from svcd.pages.routes import RETURN_URL, UNTIL, ReturnUrl, page
from svcd.pages.sources import Sources
from svcd.rpc import fields

REFRESH_SECONDS: Final = 5
HIDDEN: Final[Mapping[str, str]] = {"hidden": "hidden"}
_LONG: Final = 14
"""Characters above which an amount is shown in smaller type."""


@frozen
class Order:
    """The order in the link: its terms, and the texts for people."""

    terms: PaymentTerms
    label: str | None = None
    return_url: ReturnUrl | None = None
    until: int | None = None
    """When it expires, in Unix milliseconds."""


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
            RETURN_URL,
            UNTIL,
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
        return_url: ReturnUrl | None,
        until: int | None,
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
        order = Order(terms, label, return_url, until)
        observation = self._sources.payments.find(terms)
        unpaid = payment_state(terms, observation) is PaymentState.UNPAID
        expired = unpaid and until is not None and self._sources.now >= until
        return CachedPage(("pay", order, observation, expired), lambda: _draw(order, observation, expired=expired))


def _draw(order: Order, observation: Observation, *, expired: bool) -> Page:
    terms = order.terms
    state = _shown_state(terms, observation)
    ways = _payment_methods(PaymentRequest(terms, order.label), state, expired=expired)
    left = tag("div", _progress(order, observation, state), _expired(expired=expired), ways, class_="stack")
    right = tag("div", _order(order), *_return(order), class_="stack")
    columns = tag("div", left, right, class_="checkout", id="payment", **_script_data(order, state))
    return Page(
        title=f"Pay {format_amount(terms.amount)} SVC",
        content=(_head(terms, order.label), columns),
        json=status_path(terms),
        searchable=False,
        refresh=0 if state is PaymentState.CONFIRMED else REFRESH_SECONDS,
        scripts=("copy.mjs", "checkout.mjs"),
    )


def _shown_state(terms: PaymentTerms, observation: Observation) -> PaymentState:
    """The state, but a payment is shown as paid only while the node knows the newest blocks."""
    state = payment_state(terms, observation)
    return PaymentState.CONFIRMING if state is PaymentState.CONFIRMED and not observation.synced else state


def _script_data(order: Order, state: PaymentState) -> dict[str, str]:
    """The data attributes that ``checkout.mjs`` reads."""
    until = {} if order.until is None else {"data_until": str(order.until)}
    return {"data_status": status_path(order.terms), "data_state": state.value, **until}


def _head(terms: PaymentTerms, label: str | None) -> Tag:
    text = format_amount(terms.amount)
    sized = "amount big long" if len(text) > _LONG else "amount big"
    lines: list[Content] = [
        tag(
            "div",
            tag("h1", tag("span", "Pay ", class_="visually-hidden"), amount(terms.amount, class_=sized)),
            copy_button(text, "the amount to pay"),
            class_="copied",
        )
    ]
    if label is not None:
        lines.append(tag("p", visible(label), class_="lead label", dir="auto"))
    return tag("div", *lines, class_="stack tight")


def _progress(order: Order, observation: Observation, state: PaymentState) -> Tag:
    """The state of the payment, one of four, and problems with it."""
    terms = order.terms
    depth, required = str(min(observation.confirmations, terms.required)), str(terms.required)
    count = tag("span", grouped(observation.confirmations), data_fill="confirmations")
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
    behind = "This node is catching up with the network or has stalled, so this page may be out of date."
    later = " It shows a payment as paid only once the node is up to date again."
    hidden = HIDDEN if observation.synced else {}
    outdated = tag("div", notice("warn", behind, later), data_outdated="", role="status", **hidden)
    parts: list[Content] = [states, outdated, *_problems(terms, observation), trouble]
    if state is not PaymentState.CONFIRMED:
        parts.append(without_scripts)
    return tag("div", *parts, class_="card stack standing")


def _view(when: str, state: PaymentState, *content: Content) -> Tag:
    """A view that is visible while the state is ``when``."""
    hidden = {} if state.value == when else HIDDEN
    return tag("div", *content, class_="stack tight", data_when=when, **hidden)


def _heading_and_text(heading: str, sentence: str) -> Tag:
    return tag("div", tag("h2", heading), tag("p", sentence, class_="soft"))


def _expired(*, expired: bool) -> Tag:
    """The view in place of the ways to pay once an unpaid order has expired."""
    words = tag("p", tag("strong", "Do not pay any more. "), "This order has expired. Ask the shop for a new link.")
    return tag("div", notice("warn", words), data_expired="", role="status", **({} if expired else HIDDEN))


def _steps() -> Tag:
    names = ("Seen", "In a block", "Settled")
    return tag("ol", *[tag("li", name) for name in names], class_="steps", aria_hidden="true")


def _transfer(observation: Observation) -> Tag:
    txid = observation.txid.hex() if observation.txid else ""
    hidden = {} if txid else HIDDEN
    return tag(
        "p", link("See the transfer", "tx", txid, class_="alone", data_fill="transfer"), class_="small", **hidden
    )


def _problems(terms: PaymentTerms, observation: Observation) -> list[Content]:
    """Warnings: payments of another amount, and more than one payment."""
    mismatches = [_mismatch(format_amount(each.amount), each.txid.hex()) for each in observation.mismatches]
    asked = f"The order asks for exactly {format_amount(terms.amount)} SVC, so "
    explanation = ("A payment of another amount arrived under this reference. ", asked)
    listed = tag("ul", *mismatches, class_="plain", data_fill="mismatches")
    hidden = {} if mismatches else HIDDEN
    advice = "it does not pay the order. Ask the shop what to do."
    misses = tag("div", notice("warn", tag("p", *explanation, advice), listed), role="status", data_misses="", **hidden)
    sample = tag("template", _mismatch("0", ""), id="mismatch")
    double = "More than one transfer pays this order. Ask the shop to refund the others."
    hidden = {} if observation.match_count > 1 else HIDDEN
    return [misses, sample, tag("div", notice("warn", double), role="status", data_twice="", **hidden)]


def _mismatch(coins: str, txid: str) -> Tag:
    shown = tag("span", tag("span", *digit_groups(coins), data_fill="coins"), " SVC", class_="amount")
    return tag("li", shown, " · ", link("the transfer", "tx", txid))


def _payment_methods(request: PaymentRequest, state: PaymentState, *, expired: bool) -> Tag:
    """The wallet that the buyer has, in three ways, and then the one of this node."""
    uri = format_uri(request)
    code = tag("div", qr_code(qr_text(request), "QR code of the payment"), class_="code")
    copy = tag("button", "Copy the payment link", type="button", class_="wide copy", hidden="hidden", data_copy=uri)
    web = tag("a", "Open in a web wallet that you have registered", href=f"web+{uri}", class_="alone")
    own = tag(
        "section",
        tag("h2", "Pay with your wallet"),
        tag("a", "Open in your wallet", href=uri, class_="button primary wide"),
        tag("p", "Or scan the code with it, or copy the link into it:", class_="soft small centre"),
        code,
        copy,
        tag("p", web, class_="small centre"),
        class_="stack",
    )
    whose = "It runs in this browser. Whoever serves this page controls it, so use it only on a node that you trust."
    node_wallet = tag(
        "a", "Use the wallet of this node", href=f"/wallet/?pay={quote(uri, safe='')}", class_="button wide"
    )
    other = tag(
        "section",
        tag("h2", "No wallet?"),
        tag("p", "This node has a wallet page. ", whose, class_="soft small"),
        node_wallet,
        class_="stack or",
    )
    hidden = {} if state is PaymentState.UNPAID and not expired else HIDDEN
    return tag("div", tag("div", own, other, class_="card stack"), data_offer="", **hidden)


def _return(order: Order) -> list[Tag]:
    """The way back to the shop, which only the buyer takes: the address is the link's, whoever wrote that."""
    if order.return_url is None:
        return []
    words = tag("span", "Back to ", tag("bdi", order.return_url.host))
    back = tag("a", words, href=order.return_url.url, class_="button wide", rel="noreferrer")
    told = "The shop learns of the payment from its own node, also if you do not go back."
    return [tag("div", back, tag("p", told, class_="soft small"), class_="card stack tight")]


def _order(order: Order) -> Tag:
    terms, label = order.terms, order.label
    pairs: list[tuple[str, Content]] = [
        ("Amount", amount(terms.amount)),
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
        pairs.append(("Counted from", tag("span", "block ", grouped(terms.since_height))))
    if order.until is not None:
        pairs.append(("Pay before", tag("span", utc(order.until), data_fill="until")))
    check = "A transfer pays this order only with exactly this amount, reference and recipient."
    return tag(
        "section",
        tag("h2", "The order"),
        facts(pairs),
        tag("p", check, class_="soft small"),
        tag("p", DESCRIPTION, class_="soft small"),
        class_="card stack",
    )
