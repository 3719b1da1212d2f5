"""The checkout, to which a shop sends its buyers: the order and the state of its payment (docs/pages.md "Checkout").

The node stores no orders: the page is computed from its URL, like verification. The HTML contains a view for each
state, all but one of them hidden, so that the script only has to switch between them.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from attrs import evolve, frozen
from twisted.web.template import Tag

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
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
from svcd.pages.expectation import idle_seconds, newest_at, seconds_per_block, usual_seconds
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
from svcd.pages.qr import MAX_CHARACTERS, qr_code, qr_text
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
    shop: str | None = None
    """The name of the shop in the settings of the node; None if they have none."""
    label: str | None = None
    return_url: ReturnUrl | None = None
    until: int | None = None
    """When it expires, in Unix milliseconds."""
    listed: bool = True
    """Whether this site shows the link as one of its shops."""


@frozen
class Timing:
    """What the page shows of the time at which it is drawn."""

    expired: bool
    """Whether the order is unpaid and has expired."""
    in_time: bool
    """Whether a payment came before the order expired."""
    block_seconds: int | None
    """See :func:`~svcd.pages.expectation.usual_seconds`."""
    idle_seconds: int | None
    """See :func:`~svcd.pages.expectation.idle_seconds`."""
    moving: bool
    """Whether blocks come, so that a time may be promised."""
    tip: ChainPoint
    """The newest block."""
    tip_time: int
    """Its time in Unix milliseconds."""


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
        sources, links = self._sources, self._sources.links()
        order = Order(terms, links.shop_names.get(terms.recipient), label, return_url, until)
        if not links.lists(terms.recipient, return_url.host if return_url else None):
            order = Order(terms, until=until, listed=False)
        observation = sources.payments.find(terms)
        unpaid = payment_state(terms, observation) is PaymentState.UNPAID
        received = self._balance_that_matters(terms) if unpaid else None
        tip = sources.chain_manager.tip
        timing = Timing(
            expired=unpaid and until is not None and sources.now >= until,
            in_time=self._came_in_time(order, observation),
            block_seconds=usual_seconds(sources),
            idle_seconds=idle_seconds(sources),
            moving=seconds_per_block(sources) is not None,
            tip=tip,
            tip_time=newest_at(sources),
        )

        def draw() -> Page:
            warned = () if received is None else _too_little(sources.params, terms, received)
            return _Checkout(order, observation, timing, sources.public_url).draw(warned)

        return CachedPage(("pay", order, observation, timing, received), draw)

    def _came_in_time(self, order: Order, observation: Observation) -> bool:
        """Whether the payment came before the order expired; of one in a block, the time of its arrival is unknown."""
        if order.until is None:
            return True
        if observation.location is not None:
            return observation.location.block_time < order.until
        entry = None if observation.pending is None else self._sources.mempool.get(observation.pending)
        return entry is not None and (entry.returned or entry.arrival < order.until)

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


@frozen
class _Checkout:
    """The page of an order."""

    order: Order
    observation: Observation
    timing: Timing
    public_url: str

    @property
    def state(self) -> PaymentState:
        """The state as pages tell it."""
        return told_state(self.order.terms, self.observation)

    @property
    def phase(self) -> str:
        """The phase, which selects the view: the state, or another one while unpaid.

        Only the script knows ``gone`` and ``unknown``.
        """
        if self.state is not PaymentState.UNPAID:
            return self.state.value
        if self.timing.expired:
            return "expired"
        arrived = [each.amount for each in self.observation.mismatches]
        if arrived and max(arrived) < self.order.terms.amount:
            return "short"
        return "mismatched" if arrived else self.state.value

    def draw(self, warned: Sequence[Tag]) -> Page:
        """The page; ``warned`` is shown while the order is unpaid."""
        order, confirmed = self.order, self.state is PaymentState.CONFIRMED
        left = tag("div", self._progress(warned), self._ways(folded=bool(warned)), class_="stack")
        right = tag("div", _facts(order, self.observation), *self._return(), class_="stack")
        data = self._script_data() | ({"data_unpayable": ""} if warned else {})
        columns = tag("div", left, right, class_="checkout", id="payment", **data)
        return Page(
            title=message("checkout.title", state=_HEADINGS[self.phase], amount=coins(order.terms.amount)),
            content=(*_unlisted(order), _head(order), columns),
            json=status_path(order.terms),
            searchable=False,
            refresh=SLOW_REFRESH_SECONDS if confirmed else REFRESH_SECONDS,
            styles=("checkout.css",),
            scripts=("copy.mjs", "checkout.mjs"),
        )

    def _script_data(self) -> dict[str, str]:
        """The data attributes that ``checkout.mjs`` reads."""
        order, timing = self.order, self.timing
        data = {
            "data_status": status_path(order.terms),
            "data_state": self.state.value,
            "data_required": str(order.terms.required),
        }
        if timing.block_seconds is not None:
            data["data_block_seconds"] = str(timing.block_seconds)
            data["data_tip"], data["data_tip_time"] = timing.tip.hash.hex(), str(timing.tip_time)
        if timing.idle_seconds is not None:
            data["data_idle_seconds"] = str(timing.idle_seconds)
        if order.until is not None:
            data["data_until"] = str(order.until)
            if self.state is not PaymentState.UNPAID and timing.in_time:
                data["data_in_time"] = ""
        return data

    def _progress(self, warned: Sequence[Tag]) -> Tag:
        """The state of the payment, and problems with it; ``warned`` is shown while it is unpaid."""
        order, observation, phase = self.order, self.observation, self.phase
        states = tag("div", _steps(), *self._views(warned), _transfer(observation), role="status", class_="stack")
        fallen = notice("warn", tag("strong", message("checkout.nothing-to-do")), " ", message("checkout.fallen"))
        unreachable = notice("warn", message("checkout.unreachable"))
        kept = message("checkout.kept", height=tag("span", data_fill="first"))
        trouble = tag("div", unreachable, data_trouble="", hidden="hidden", role="status")
        reloads = message("checkout.reloads", count=REFRESH_SECONDS)
        parts: list[Content] = [
            states,
            *_problems(order.terms, observation),
            *self._deadline(),
            tag("div", fallen, data_fallen="", role="status", **HIDDEN),
            tag(
                "div",
                notice("warn", message("checkout.outdated")),
                data_outdated="",
                role="status",
                **_unless(not observation.synced),
            ),
            tag("div", notice("warn", kept), data_kept="", role="status", **HIDDEN),
            trouble,
        ]
        if phase != PaymentState.CONFIRMED.value:
            parts.append(tag("noscript", tag("p", reloads, class_="soft small")))
        return tag("div", *parts, class_="card stack")

    def _views(self, warned: Sequence[Tag]) -> list[Tag]:
        """One for each phase."""
        terms, observation = self.order.terms, self.observation
        # More than required is not told: on a node that is not in sync, the payment is not confirmed all the same.
        depth, required = min(observation.confirmations, terms.required), str(terms.required)
        bar = tag(
            "progress", max=required, value=str(depth), data_fill="progress", aria_label=message("frame.confirmations")
        )
        count = tag("span", grouped(depth), data_fill="confirmations")
        of = message("checkout.of", done=count, count=terms.required)
        none = message("checkout.of", done=0, count=terms.required)
        unpaid = message("checkout.unpaid-text")
        return [
            self._view("unpaid", unpaid, *(warned or self._durations())),
            self._view("expired", *self._expired()),
            self._view("short", message("checkout.mismatched-text")),
            self._view("mismatched", message("checkout.mismatched-text")),
            self._view("gone", message("checkout.gone-text"), _wallet_that_paid(self.order)),
            self._view("unknown", message("checkout.unknown-text", height=tag("span", data_fill="first"))),
            self._view("pending", message("checkout.seen-text"), self._left(none)),
            self._view("confirming", message("checkout.confirming-text"), bar, self._left(of)),
            self._view("confirmed", message("checkout.paid-text", count=terms.required), *_finished(self.order)),
        ]

    def _view(self, when: str, sentence: Content, *more: Content) -> Tag:
        """A view that is visible while ``when`` is the phase."""
        mark = [_check_mark()] if when == PaymentState.CONFIRMED.value else []
        headed = tag("div", *mark, tag("h2", _HEADINGS[when]), tag("p", sentence, class_="soft"))
        return tag("div", headed, *more, class_="stack tight", data_when=when, **_unless(self.phase == when))

    def _durations(self) -> list[Tag]:
        """How long the payment takes once it is sent, while blocks come, and while none comes."""
        timing, count = self.timing, self.order.terms.required
        waits = message("checkout.takes-blocks", count=count)
        said = [tag("p", waits, class_="soft", data_waits="", **_unless(not timing.moving))]
        if timing.block_seconds is not None:
            takes = message("checkout.takes", time=about_time(count * timing.block_seconds), count=count)
            said.append(tag("p", takes, class_="soft", data_takes="", **_unless(timing.moving)))
        return said

    def _left(self, of: Message) -> Tag:
        """How long the payment still takes; ``of`` says how many confirmations it has."""
        seconds = self.timing.block_seconds
        if not self.observation.synced:
            remaining = message("script.time-unknown")
        elif seconds is None or not self.timing.moving:
            remaining = message("script.next-block")
        else:
            missing = self.order.terms.required - self.observation.confirmations
            remaining = time_left(missing * seconds)
        return tag("p", tag("span", remaining, data_fill="left"), " (", of, ")", class_="soft")

    def _expired(self) -> list[Content]:
        if self.order.until is None:
            return [""]
        time = tag("span", utc(self.order.until), data_fill="until")
        return [message("checkout.expired-text", time=time), *_back(self.order, "button primary wide")]

    def _deadline(self) -> list[Tag]:
        """When an unpaid order expires, and that the payment came too late; the script fills in the time left."""
        if self.order.until is None:
            return []
        time = tag("span", utc(self.order.until), data_fill="until")
        sentence = message("checkout.pay-before", time=time)
        remaining = tag("strong", data_fill="remaining")
        payable = _unless(self.phase in ("unpaid", "short", "mismatched"))
        late = notice("warn", tag("strong", message("checkout.late")), " ", message("checkout.late-text"))
        came_late = self.state is not PaymentState.UNPAID and not self.timing.in_time
        return [
            tag("p", sentence, " ", remaining, data_pay_before="", **payable),
            tag("div", late, data_late="", role="status", **_unless(came_late)),
        ]

    def _ways(self, *, folded: bool) -> Tag:
        """The ways to pay: the wallet of this site first, which works everywhere; folded also after a wrong amount."""
        order = self.order
        uri = format_uri(PaymentRequest(order.terms, order.label))
        wallet_words = message("checkout.opening-wallet")
        here = tag(
            "section",
            tag(
                "a",
                message("checkout.pay-here"),
                href=_wallet_path(order),
                class_="button primary wide",
                data_busy=wallet_words,
            ),
            tag("p", message("checkout.pay-here-text"), class_="soft small"),
            class_="stack tight",
        )
        app = message("checkout.open-app")
        copy = message("checkout.copy-link")
        web = tag("a", message("checkout.web-wallet"), href=f"web+{uri}", class_="alone", data_app="")
        own = tag(
            "section",
            tag("a", app, href=uri, class_="button wide", data_app="", data_busy=message("checkout.opening-app")),
            tag("div", notice("warn", message("checkout.no-app")), data_no_app="", role="status", **HIDDEN),
            tag("button", copy, type="button", class_="wide copy", hidden="hidden", data_copy=uri),
            tag("p", web, class_="small centre"),
            class_="stack or",
        )
        folded = folded or bool(self.observation.mismatches)
        return tag(
            "details",
            tag("summary", message("checkout.pay-all-the-same")),
            tag("div", here, own, self._codes(), class_="stack"),
            class_="card offer folded" if folded else "card offer",
            data_offer="",
            **_unless(self.state is PaymentState.UNPAID and not self.timing.expired),
            **({} if folded else {"open": "open"}),
        )

    def _codes(self) -> Tag:
        """The codes for another device: of the wallet page, where a camera can open it, and one tap away of the URI."""
        order = self.order
        page_link = _scanned_link(order, self.public_url)
        for_camera: list[Content] = []
        if page_link is not None:
            for_camera = [
                tag("p", message("checkout.scan"), class_="soft small"),
                tag("div", qr_code(page_link, message("checkout.qr-code")), class_="code"),
            ]
        for_app = qr_code(qr_text(PaymentRequest(order.terms, order.label)), message("checkout.qr-code-app"))
        scanned = tag("p", message("checkout.scan-app"), class_="soft small")
        return tag(
            "section",
            tag("h2", message("checkout.other-device")),
            *for_camera,
            tag(
                "details",
                tag("summary", message("checkout.code-for-app")),
                scanned,
                tag("div", for_app, class_="code"),
                data_code="app",
            ),
            class_="stack or",
        )

    def _return(self) -> list[Tag]:
        """The link back to the shop. There is no automatic redirect: anyone can write its URL into an order's link."""
        if self.order.return_url is None:
            return []
        parts = (*_back(self.order, "button wide"), tag("p", message("checkout.shop-learns"), class_="soft small"))
        shown = _unless(self.state is not PaymentState.CONFIRMED and not self.timing.expired)
        return [tag("div", *parts, class_="card stack tight no-print", data_return="", **shown)]


def _unless(shown: bool) -> Mapping[str, str]:
    """The attribute of an element that is hidden unless it is to be ``shown``."""
    return {} if shown else HIDDEN


def _unlisted(order: Order) -> Sequence[Tag]:
    return () if order.listed else (tag("div", notice("bad", message("checkout.unlisted")), data_unlisted=""),)


def _head(order: Order) -> Tag:
    """Whose order it is, and the amount."""
    asked = format_amount(order.terms.amount)
    sized = "amount big long" if len(asked) > _LONG else "amount big"
    lines: list[Content] = [tag("p", message("checkout.receipt"), class_="print-only receipt lead")]
    if order.shop is not None:
        lines.append(tag("p", visible(order.shop), class_="shop", dir="auto"))
    if order.label is not None:
        unsigned = tag("span", message("checkout.not-signed"), class_="small")
        lines.append(tag("p", tag("bdi", visible(order.label), class_="label"), " ", unsigned, class_="lead"))
    shown = amount(order.terms.amount, class_=sized)
    heading = tag("h1", tag("span", message("checkout.amount"), " ", class_="visually-hidden"), shown)
    lines.append(tag("div", heading, copy_button(asked, message("checkout.the-amount")), class_="copied"))
    return tag("div", *lines, class_="stack tight")


_HEADINGS: Final[Mapping[str, Message]] = {
    "unpaid": message("checkout.unpaid"),
    "expired": message("checkout.expired"),
    "short": message("checkout.short"),
    "mismatched": message("checkout.mismatched"),
    "gone": message("checkout.gone"),
    "unknown": message("checkout.unknown"),
    "pending": message("checkout.seen"),
    "confirming": message("checkout.confirming"),
    "confirmed": message("checkout.paid"),
}
"""The headings of the views, which also begin the title of the page."""


def _check_mark() -> Tag:
    path = tag("path", d="M5 12.5l4.5 4.5L19 7.5")
    return tag("svg", path, viewBox="0 0 24 24", class_="paid-mark", aria_hidden="true")


def _wallet_that_paid(order: Order) -> Tag:
    opened = tag("a", message("checkout.open-this-wallet"), href=_wallet_path(order), class_="button wide")
    told = tag("p", message("checkout.open-this-wallet-text"), class_="soft small")
    return tag("div", opened, told, class_="stack tight")


def _back(order: Order, class_: str) -> list[Tag]:
    if order.return_url is None:
        return []
    words = tag("span", message("checkout.back", host=tag("bdi", order.return_url.host)))
    return [tag("a", words, href=order.return_url.url, class_=class_, rel="noreferrer")]


def _finished(order: Order) -> list[Tag]:
    """The way on after the payment: back to the shop, and a receipt."""
    receipt = message("checkout.print")
    printed = tag("button", receipt, type="button", class_="wide", hidden="hidden", data_print="")
    return [*_back(order, "button primary wide"), printed]


def _steps() -> Tag:
    names = (message("checkout.seen"), message("checkout.confirming"), message("checkout.done"))
    return tag("ol", *[tag("li", name) for name in names], class_="steps", aria_hidden="true")


def _transfer(observation: Observation) -> Tag:
    txid = observation.txid.hex() if observation.txid else ""
    seen = link(message("checkout.see-transfer"), "tx", txid, class_="alone", data_fill="transfer")
    return tag("p", seen, class_="small no-print", **_unless(bool(txid)))


def _problems(terms: PaymentTerms, observation: Observation) -> list[Content]:
    """Warnings: payments of another amount, and more than one payment."""
    mismatches = [_mismatch(terms, each.amount, each.txid.hex()) for each in observation.mismatches]
    listed = tag("ul", *mismatches, class_="plain", data_fill="mismatches")
    todo = tag("strong", message("checkout.ask-for-refund"))
    explained = tag("p", message("checkout.pays-nothing", amount=amount(terms.amount)), " ", todo)
    misses = tag("div", notice("warn", listed, explained), role="status", data_misses="", **_unless(bool(mismatches)))
    samples = [
        tag("template", _mismatch(terms, terms.amount - 1, ""), id="mismatch-less"),
        tag("template", _mismatch(terms, terms.amount + 1, ""), id="mismatch-more"),
    ]
    double = notice("warn", tag("strong", message("checkout.twice")), " ", message("checkout.twice-text"))
    return [misses, *samples, tag("div", double, role="status", data_twice="", **_unless(observation.match_count > 1))]


def _mismatch(terms: PaymentTerms, units: int, txid: str) -> Tag:
    """One transfer of ``units`` base units, and how far these are from the amount of the order."""
    shown, difference = _filled(units, "coins"), _filled(abs(units - terms.amount), "difference")
    arrived = (
        message("checkout.too-little-arrived", arrived=shown, difference=difference)
        if units < terms.amount
        else message("checkout.too-much-arrived", arrived=shown, difference=difference)
    )
    return tag("li", tag("strong", arrived), " · ", link(message("checkout.the-transfer"), "tx", txid))


def _filled(units: int, name: str) -> Tag:
    """An amount whose digits the script replaces."""
    return tag("span", tag("span", *digit_groups(format_amount(units)), data_fill=name), " ", UNIT, class_="amount")


def _wallet_path(order: Order) -> str:
    """The path of this node's wallet page; order, way back and end of the order are in the fragment, for it alone."""
    uri = format_uri(PaymentRequest(order.terms, order.label))
    back = "" if order.return_url is None else f"&returnUrl={_in_fragment(order.return_url.url)}"
    end = "" if order.until is None else f"&until={order.until}"
    return f"/wallet/#pay={_in_fragment(uri)}{back}{end}"


def _in_fragment(text: str) -> str:
    """``text`` as a value in a fragment, with as few escaped characters as possible: a code of it is less dense."""
    return quote(text, safe="!$'()*,/:;=?@")


def _scanned_link(order: Order, public_url: str) -> str | None:
    """The address of the wallet page for a camera; None where none can open it, or it would be too dense.

    Of a long one the label is left out, then the way back: they are on this page, too.
    """
    if not public_url.startswith("https://"):
        return None
    shorter = evolve(order, label=None)
    links = [public_url + _wallet_path(each) for each in (order, shorter, evolve(shorter, return_url=None))]
    return next((each for each in links if len(each) <= MAX_CHARACTERS), None)


def _facts(order: Order, observation: Observation) -> Tag:
    terms = order.terms
    recipient = copyable(terms.recipient, message("checkout.the-address"), "address", terms.recipient)
    pairs: list[tuple[Message, Content]] = [
        (message("checkout.amount"), amount(terms.amount)),
        (message("checkout.reference"), copyable(terms.reference, message("checkout.the-reference"), class_="mono")),
        (message("checkout.recipient"), recipient),
    ]
    if terms.since_height:
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
