"""The payments under a reference, waiting ones too, and what is wrong with each for an order (docs/pages.md)."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS
from svcd.pages.html import (
    Content,
    address_link,
    amount,
    badge,
    coins,
    empty_list,
    short_link,
    tag,
)
from svcd.pages.layout import Page
from svcd.pages.routes import EXPECTED_AMOUNT, EXPECTED_RECIPIENT, page, parse_typed_amount
from svcd.pages.sources import Sources, TransferRow, transfer_row
from svcd.pages.tables import Column, only_later, table
from svcd.pages.texts import Message, message
from svcd.rpc.fields import REFERENCE

PAYMENTS: Final = 20


@frozen
class ExpectedPayment:
    """What an order asks for."""

    recipient: bytes
    amount: int
    """In base units."""


class ReferencePage:
    """The payments under a reference."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page(
        "/reference/{reference}",
        "Payments under a reference",
        path_fields=(REFERENCE,),
        query_fields=(EXPECTED_RECIPIENT, EXPECTED_AMOUNT),
        cost=4,
    )
    def reference(self, reference: str, *, recipient: str, amount: str) -> Page:
        """Answer GET /reference/{reference}."""
        sources = self._sources
        waiting = sources.referenced.newest(reference, limit=PAYMENTS + 1)
        with sources.reader.snapshot():
            height = sources.tip().height
            places = sources.reader.under_reference(reference, limit=PAYMENTS + 1)
        on_chain = [transfer_row(sources, place) for place in places]
        # A transfer may be in both: the mempool hears of a block only after its commit.
        included = {row.transfer.txid for row in on_chain}
        pending = [TransferRow(each.transfer) for each in reversed(waiting) if each.transfer.txid not in included]
        rows = [*on_chain[:PAYMENTS], *pending[:PAYMENTS]]
        expected, problems = self._expected(recipient, amount)
        heading = message("reference.heading", reference=tag("bdi", reference, class_="hash"))
        return Page(
            title=message("reference.title"),
            content=(
                tag("h1", heading),
                tag("p", message("reference.lead"), class_="lead"),
                self._payments(reference, rows, expected, height),
                *only_later(sources),
                *([_more()] if max(len(on_chain), len(pending)) > PAYMENTS else []),
                *([_form(reference, recipient, amount, problems)] if rows else []),
            ),
            search_text=reference,
        )

    def _expected(self, recipient: str, amount: str) -> tuple[ExpectedPayment | None, Mapping[str, Message]]:
        """What was typed into the form, None unless both fields are right; and what is wrong with each field."""
        if not recipient and not amount:
            return None, {}
        needed = message("reference.needed")
        problems: dict[str, Message] = {}
        key, units = b"", 0
        try:
            key = decode_address(recipient.lower(), self._sources.params.address_prefix)
        except RuleViolation:
            problems["recipient"] = message("reference.wrong-recipient") if recipient else needed
        try:
            units = parse_typed_amount(amount, self._sources.params.unit)
        except RuleViolation:
            problems["amount"] = message("reference.wrong-amount") if amount else needed
        return None if problems else ExpectedPayment(key, units), problems

    def _payments(self, reference: str, rows: list[TransferRow], expected: ExpectedPayment | None, height: int) -> Tag:
        if not rows:
            return empty_list(message("reference.nobody"))
        sources = self._sources
        columns: list[Column[TransferRow]] = [
            Column(
                message("reference.transfer"),
                lambda row: short_link(row.transfer.txid.hex(), "tx", row.transfer.txid.hex()),
                place="phone-title",
            ),
            Column(message("reference.state"), lambda row: _state(row, height), place="phone-note"),
            Column(
                message("reference.from"), lambda row: address_link(sources.address(row.transfer.sender)), place="roomy"
            ),
            Column(message("reference.to"), lambda row: address_link(sources.address(row.transfer.recipient))),
            Column(
                message("reference.amount"), lambda row: amount(row.transfer.amount), number=True, place="phone-value"
            ),
            Column(
                message("reference.verification"),
                lambda row: tag("a", "JSON", href=self._verification(reference, row)),
                place="roomy",
            ),
        ]
        if expected is not None:
            verdicts = dict(zip([row.transfer.txid for row in rows], verdicts_on(rows, expected), strict=True))
            shown = Column[TransferRow](
                message("reference.for-the-order"), lambda row: verdicts[row.transfer.txid], place="phone-extra"
            )
            columns.insert(-1, shown)
        return tag("div", table(columns, rows, caption=message("reference.payments")), class_="card")

    def _verification(self, reference: str, row: TransferRow) -> str:
        recipient = self._sources.address(row.transfer.recipient)
        query = urlencode({"recipient": recipient, "amountBaseUnits": row.transfer.amount})
        return f"/rpc/commerce/payment/{quote(reference, safe='')}?{query}"


def verdicts_on(rows: list[TransferRow], expected: ExpectedPayment) -> list[Tag]:
    """For each transfer, oldest first, whether it pays the order or what is wrong with it."""
    paid, verdicts = False, []
    for row in rows:
        transfer = row.transfer
        more = transfer.amount - expected.amount
        if transfer.recipient != expected.recipient:
            verdicts.append(badge(message("reference.another-recipient"), "bad"))
        elif more:
            shown = coins(abs(more))
            too_much = message("reference.too-much", amount=shown)
            verdicts.append(badge(too_much if more > 0 else message("reference.too-little", amount=shown), "bad"))
        elif paid:
            verdicts.append(badge(message("reference.paid-again"), "warn"))
        else:
            verdicts.append(badge(message("reference.pays"), "good"))
            paid = True
    return verdicts


def _state(row: TransferRow, height: int) -> Tag:
    if row.height is None:
        return badge(message("reference.waiting"), "warn")
    confirmations = height - row.height + 1
    kind = "good" if confirmations >= DEFAULT_CONFIRMATIONS else "accent"
    return badge(message("script.confirmations", count=confirmations), kind)


def _form(reference: str, recipient: str, amount: str, problems: Mapping[str, Message]) -> Tag:
    """Asks for the recipient and the amount of the order."""
    fields = [
        _field("recipient", message("reference.order-recipient"), recipient, problems, maxlength="90"),
        _field("amount", message("reference.order-amount"), amount, problems, maxlength="40", inputmode="decimal"),
    ]
    return tag(
        "section",
        tag("h2", message("reference.question")),
        tag("p", message("reference.question-text"), class_="soft"),
        tag(
            "form",
            *fields,
            tag("div", tag("button", message("reference.compare"), type="submit", class_="primary"), class_="row"),
            action=f"/reference/{quote(reference, safe='')}",
            method="get",
            class_="stack",
        ),
        class_="card stack",
    )


def _field(name: str, label: Message, value: str, problems: Mapping[str, Message], **attributes: str) -> Tag:
    place, problem = f"order-{name}", problems.get(name)
    wrong: list[Content] = []
    if problem is not None:
        wrong = [tag("p", problem, class_="error", id=f"{place}-error", role="alert")]
        attributes |= {"aria_invalid": "true", "aria_describedby": f"{place}-error"}
    field = tag(
        "input",
        id=place,
        name=name,
        value=value,
        autocomplete="off",
        autocapitalize="off",
        spellcheck="false",
        **attributes,
    )
    return tag("div", tag("label", label, for_=place), field, *wrong, class_="field")


def _more() -> Tag:
    return tag("p", message("reference.more", count=PAYMENTS))
