"""The checkout, to which a shop sends its buyers: the order and the state of its payment (docs/pages.md "Checkout").

The node stores no orders: the page is computed from its URL, like verification. The HTML contains a view for each
state, all but one of them hidden, so that the script only has to switch between them.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.params import NetworkParams
from svcd.chain.units import format_amount
from svcd.commerce.payment import Observation, PaymentState, payment_state, told_state
from svcd.commerce.payment_request import (
    PaymentRequest,
    PaymentTerms,
    format_uri,
    missing_for_account,
    parse_terms,
    resolve_amount,
    status_path,
)
from svcd.pages.html import (
    UNIT,
    Content,
    about_time,
    amount,
    coins,
    copy_button,
    copyable,
    digit_groups,
    facts,
    link,
    notice,
    tag,
    time_left,
    utc,
)
from svcd.pages.layout import CachedPage, Page
from svcd.pages.qr import qr_code, qr_text
from svcd.pages.routes import RETURN_URL, UNTIL, ReturnUrl, page
from svcd.pages.sources import Sources
from svcd.pages.texts import Message, grouped, message
from svcd.rpc import fields
from svcd.visible_text import visible

REFRESH_SECONDS: Final = 5
SLOW_REFRESH_SECONDS: Final = 60
"""For a paid order, which a reorganisation may take back."""
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
    listed: bool = True
    """Whether this site shows the link as one of its shops."""


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
        if not self._sources.links().lists(terms.recipient, return_url.host if return_url else None):
            order = Order(terms, until=until, listed=False)
        observation = self._sources.payments.find(terms)
        unpaid = payment_state(terms, observation) is PaymentState.UNPAID
        expired = unpaid and until is not None and self._sources.now >= until
        received = self._balance_that_matters(terms) if unpaid else None
        block_seconds = self._sources.params.slots_per_block * self._sources.params.slot_seconds

        def draw() -> Page:
            warned = () if received is None else _too_little(self._sources.params, terms, received)
            return _draw(order, observation, expired=expired, block_seconds=block_seconds, warned=warned)

        return CachedPage(("pay", order, observation, expired, received), draw)

    def _balance_that_matters(self, terms: PaymentTerms) -> int | None:
        """The recipient's balance in base units; None if the amount alone is enough for the account minimum."""
        if terms.amount >= self._sources.params.account_minimum:
            return None
        account = self._sources.reader.account(terms.key)
        return account.balance if account else 0


def _too_little(params: NetworkParams, terms: PaymentTerms, balance: int) -> Sequence[Tag]:
    """A notice if a recipient with ``balance`` in base units cannot be paid so little."""
    missing = missing_for_account(params, terms.amount, balance=balance)
    if not missing:
        return ()
    minimum, needed = coins(params.account_minimum), coins(terms.amount + missing)
    return (notice("warn", message("checkout.too-little", has=coins(balance), least=minimum, needed=needed)),)


def _draw(order: Order, observation: Observation, *, expired: bool, block_seconds: int, warned: Sequence[Tag]) -> Page:
    terms = order.terms
    state = told_state(terms, observation)
    phase = _phase(observation, state, expired=expired)
    ways = _wallet_links(order, observation, state, expired=expired)
    left = tag("div", _progress(order, observation, phase, block_seconds, warned), ways, class_="stack")
    right = tag("div", _order(order, observation), *_return(order, state), class_="stack")
    data = _script_data(order, state, block_seconds)
    columns = tag("div", left, right, class_="checkout", id="payment", **data)
    return Page(
        title=message("checkout.title", state=_HEADINGS[phase], amount=coins(terms.amount)),
        content=(*_unlisted(order), _head(terms, order.label), columns),
        json=status_path(terms),
        searchable=False,
        refresh=SLOW_REFRESH_SECONDS if state is PaymentState.CONFIRMED else REFRESH_SECONDS,
        scripts=("copy.mjs", "checkout.mjs"),
    )


def _script_data(order: Order, state: PaymentState, block_seconds: int) -> dict[str, str]:
    """The data attributes that ``checkout.mjs`` reads."""
    until = {} if order.until is None else {"data_until": str(order.until)}
    return {
        "data_status": status_path(order.terms),
        "data_state": state.value,
        "data_required": str(order.terms.required),
        "data_block_seconds": str(block_seconds),
        **until,
    }


def _unlisted(order: Order) -> Sequence[Tag]:
    return () if order.listed else (tag("div", notice("bad", message("checkout.unlisted")), data_unlisted=""),)


def _head(terms: PaymentTerms, label: str | None) -> Tag:
    asked = format_amount(terms.amount)
    sized = "amount big long" if len(asked) > _LONG else "amount big"
    shown = amount(terms.amount, class_=sized)
    lines: list[Content] = [
        tag("p", message("checkout.receipt"), class_="print-only receipt lead"),
        tag(
            "div",
            tag("h1", tag("span", message("checkout.amount"), " ", class_="visually-hidden"), shown),
            copy_button(asked, message("checkout.the-amount")),
            class_="copied",
        ),
    ]
    if label is not None:
        lines.append(tag("p", visible(label), class_="lead label", dir="auto"))
    return tag("div", *lines, class_="stack tight")


def _progress(order: Order, observation: Observation, phase: str, block_seconds: int, warned: Sequence[Tag]) -> Tag:
    """The state of the payment, and problems with it; ``warned`` is shown while it is unpaid."""
    terms = order.terms
    depth, required = str(min(observation.confirmations, terms.required)), str(terms.required)
    bar = tag("progress", max=required, value=depth, data_fill="progress", aria_label=message("frame.confirmations"))
    missing = terms.required - observation.confirmations
    remaining = time_left(missing * block_seconds) if observation.synced else message("script.time-unknown")
    count = tag("span", grouped(observation.confirmations), data_fill="confirmations")
    of = message("checkout.of", done=count, count=terms.required)
    none = message("checkout.of", done=0, count=terms.required)
    takes = message("checkout.takes", time=about_time(terms.required * block_seconds), count=terms.required)
    views = [
        _view("unpaid", phase, message("checkout.unpaid-text"), tag("p", takes, class_="soft"), *warned),
        _view("expired", phase, message("checkout.expired-text")),
        _view("mismatched", phase, message("checkout.mismatched-text")),
        _view("gone", phase, message("checkout.gone-text"), _wallet_that_paid(order)),
        _view("unknown", phase, message("checkout.unknown-text", height=tag("span", data_fill="first"))),
        _view(
            "pending",
            phase,
            message("checkout.seen-text"),
            tag("p", tag("span", remaining, data_fill="left"), " (", none, ")", class_="soft"),
        ),
        _view(
            "confirming",
            phase,
            message("checkout.confirming-text"),
            bar,
            tag("p", tag("span", remaining, data_fill="left"), " (", of, ")", class_="soft"),
        ),
        _view("confirmed", phase, message("checkout.paid-text", count=terms.required), *_finished(order)),
    ]
    states = tag("div", _steps(), *views, _transfer(observation), role="status", class_="stack")
    fallen = notice("warn", tag("strong", message("checkout.nothing-to-do")), " ", message("checkout.fallen"))
    unreachable = notice("warn", message("checkout.unreachable"))
    kept = message("checkout.kept", height=tag("span", data_fill="first"))
    trouble = tag("div", unreachable, data_trouble="", hidden="hidden", role="status")
    without_scripts = tag("noscript", tag("p", message("checkout.reloads", count=REFRESH_SECONDS), class_="soft small"))
    hidden = {} if not observation.synced else HIDDEN
    parts: list[Content] = [
        states,
        *_problems(terms, observation),
        *_pay_before(order, phase),
        tag("div", fallen, data_fallen="", role="status", **HIDDEN),
        tag("div", notice("warn", message("checkout.outdated")), data_outdated="", role="status", **hidden),
        tag("div", notice("warn", kept), data_kept="", role="status", **HIDDEN),
        trouble,
    ]
    if phase != PaymentState.CONFIRMED.value:
        parts.append(without_scripts)
    return tag("div", *parts, class_="card stack")


_HEADINGS: Final[Mapping[str, Message]] = {
    "unpaid": message("checkout.unpaid"),
    "expired": message("checkout.expired"),
    "mismatched": message("checkout.mismatched"),
    "gone": message("checkout.gone"),
    "unknown": message("checkout.unknown"),
    "pending": message("checkout.seen"),
    "confirming": message("checkout.confirming"),
    "confirmed": message("checkout.paid"),
}
"""The headings of the views, which also begin the title of the page."""


def _phase(observation: Observation, state: PaymentState, *, expired: bool) -> str:
    """The phase, which selects the view: the state, or another one while unpaid.

    Only the script knows ``gone`` and ``unknown``.
    """
    if state is not PaymentState.UNPAID:
        return state.value
    if expired:
        return "expired"
    return "mismatched" if observation.mismatches else state.value


def _pay_before(order: Order, phase: str) -> list[Tag]:
    """When an unpaid order expires; the script fills in the time left."""
    if order.until is None:
        return []
    time = tag("span", utc(order.until), data_fill="until")
    hidden = {} if phase in ("unpaid", "expired", "mismatched") else HIDDEN
    sentence = message("checkout.pay-before", time=time)
    return [tag("p", sentence, " ", tag("strong", data_fill="remaining"), data_pay_before="", **hidden)]


def _wallet_that_paid(order: Order) -> Tag:
    opened = tag("a", message("checkout.open-this-wallet"), href=_wallet_path(order), class_="button wide")
    told = tag("p", message("checkout.open-this-wallet-text"), class_="soft small")
    return tag("div", opened, told, class_="stack tight")


def _finished(order: Order) -> list[Tag]:
    """The way on after the payment: back to the shop, and a receipt."""
    receipt = message("checkout.print")
    printed = tag("button", receipt, type="button", class_="wide", hidden="hidden", data_print="")
    if order.return_url is None:
        return [printed]
    words = tag("span", message("checkout.back", host=tag("bdi", order.return_url.host)))
    back = tag("a", words, href=order.return_url.url, class_="button primary wide", rel="noreferrer")
    return [back, printed]


def _view(when: str, phase: str, sentence: Message, *more: Content) -> Tag:
    """A view that is visible while ``phase`` is ``when``."""
    hidden = {} if phase == when else HIDDEN
    headed = tag("div", tag("h2", _HEADINGS[when]), tag("p", sentence, class_="soft"))
    return tag("div", headed, *more, class_="stack tight", data_when=when, **hidden)


def _steps() -> Tag:
    names = (message("checkout.seen"), message("checkout.confirming"), message("checkout.done"))
    return tag("ol", *[tag("li", name) for name in names], class_="steps", aria_hidden="true")


def _transfer(observation: Observation) -> Tag:
    txid = observation.txid.hex() if observation.txid else ""
    hidden = {} if txid else HIDDEN
    seen = link(message("checkout.see-transfer"), "tx", txid, class_="alone", data_fill="transfer")
    return tag("p", seen, class_="small no-print", **hidden)


def _problems(terms: PaymentTerms, observation: Observation) -> list[Content]:
    """Warnings: payments of another amount, and more than one payment."""
    mismatches = [_mismatch(terms, format_amount(each.amount), each.txid.hex()) for each in observation.mismatches]
    listed = tag("ul", *mismatches, class_="plain", data_fill="mismatches")
    hidden = {} if mismatches else HIDDEN
    todo = tag("strong", message("checkout.ask-for-refund"))
    explained = tag("p", message("checkout.pays-nothing"), " ", todo)
    misses = tag("div", notice("warn", listed, explained), role="status", data_misses="", **hidden)
    sample = tag("template", _mismatch(terms, "0", ""), id="mismatch")
    hidden = {} if observation.match_count > 1 else HIDDEN
    double = notice("warn", message("checkout.twice"))
    return [misses, sample, tag("div", double, role="status", data_twice="", **hidden)]


def _mismatch(terms: PaymentTerms, number: str, txid: str) -> Tag:
    shown = tag("span", tag("span", *digit_groups(number), data_fill="coins"), " ", UNIT, class_="amount")
    arrived = message("checkout.arrived", arrived=shown, amount=amount(terms.amount))
    return tag("li", tag("strong", arrived), " · ", link(message("checkout.the-transfer"), "tx", txid))


def _wallet_path(order: Order) -> str:
    """The path of this node's wallet page; order, way back and end of the order are in the fragment, for it alone."""
    uri = format_uri(PaymentRequest(order.terms, order.label))
    back = "" if order.return_url is None else f"&returnUrl={quote(order.return_url.url, safe='')}"
    end = "" if order.until is None else f"&until={order.until}"
    return f"/wallet/#pay={quote(uri, safe='')}{back}{end}"


def _wallet_links(order: Order, observation: Observation, state: PaymentState, *, expired: bool) -> Tag:
    """The wallet that the buyer has, in several ways, and the one of this node; folded after a wrong amount."""
    request = PaymentRequest(order.terms, order.label)
    uri = format_uri(request)
    code = tag("div", qr_code(qr_text(request), message("checkout.qr-code")), class_="code")
    copied = message("checkout.copy-link")
    copy = tag("button", copied, type="button", class_="wide copy", hidden="hidden", data_copy=uri)
    web = tag("a", message("checkout.web-wallet"), href=f"web+{uri}", class_="alone")
    own = tag(
        "section",
        tag("h2", message("checkout.your-wallet")),
        tag("a", message("checkout.open-your-wallet"), href=uri, class_="button primary wide"),
        copy,
        tag("p", web, class_="small centre"),
        class_="stack",
    )
    node_wallet = tag("a", message("checkout.use-this-wallet"), href=_wallet_path(order), class_="button wide")
    other = tag(
        "section",
        tag("h2", message("checkout.no-wallet")),
        node_wallet,
        tag("p", message("checkout.no-wallet-text"), class_="soft small"),
        class_="stack or",
    )
    camera = tag(
        "section",
        tag("h2", message("checkout.other-device")),
        tag("p", message("checkout.scan"), class_="soft small"),
        code,
        class_="stack or",
    )
    hidden = {} if state is PaymentState.UNPAID and not expired else HIDDEN
    folded = bool(observation.mismatches)
    summary = tag("summary", message("checkout.pay-all-the-same"))
    ways = tag("div", own, camera, other, class_="stack")
    opened = {} if folded else {"open": "open"}
    return tag(
        "details",
        summary,
        ways,
        class_="card offer folded" if folded else "card offer",
        data_offer="",
        **hidden,
        **opened,
    )


def _return(order: Order, state: PaymentState) -> list[Tag]:
    """The link back to the shop. There is no automatic redirect: anyone can write its URL into the link of an order."""
    if order.return_url is None:
        return []
    words = tag("span", message("checkout.back", host=tag("bdi", order.return_url.host)))
    back = tag("a", words, href=order.return_url.url, class_="button wide", rel="noreferrer")
    hidden = HIDDEN if state is PaymentState.CONFIRMED else {}
    parts = (back, tag("p", message("checkout.shop-learns"), class_="soft small"))
    return [tag("div", *parts, class_="card stack tight no-print", data_return="", **hidden)]


def _order(order: Order, observation: Observation) -> Tag:
    terms, label = order.terms, order.label
    recipient = copyable(terms.recipient, message("checkout.the-address"), "address", terms.recipient)
    pairs: list[tuple[Message, Content]] = [
        (message("checkout.amount"), amount(terms.amount)),
        (message("checkout.reference"), copyable(terms.reference, message("checkout.the-reference"))),
        (message("checkout.recipient"), recipient),
    ]
    if label is not None:
        unsigned = tag("span", " ", message("checkout.not-signed"), class_="soft")
        shown = tag("span", tag("bdi", visible(label), class_="label"), unsigned)
        pairs.append((message("checkout.label"), shown))
    if terms.since_height is not None:
        pairs.append((message("checkout.since"), message("checkout.since-block", height=terms.since_height)))
    txid = observation.txid.hex() if observation.txid else ""
    time = "" if observation.location is None else utc(observation.location.block_time)
    receipt = facts(
        [
            (message("checkout.transfer"), tag("span", txid, data_fill="txid", class_="hash")),
            (message("checkout.time"), tag("span", time, data_fill="time")),
        ]
    )
    return tag(
        "section",
        tag("h2", message("checkout.order")),
        facts(pairs),
        tag("div", receipt, class_="print-only"),
        tag("p", message("checkout.exactly"), class_="soft small"),
        tag("p", message("checkout.not-final"), class_="soft small"),
        class_="card stack",
    )
