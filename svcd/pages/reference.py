"""The payments under a reference, waiting ones too, and what is wrong with each for an order (docs/pages.md)."""

from typing import Final
from urllib.parse import quote, urlencode

from attrs import frozen
from twisted.web.template import Tag

from svcd.chain.address import decode_address
from svcd.chain.errors import RuleViolation
from svcd.chain.units import parse_amount
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS
from svcd.pages.html import (
    UNIT,
    Content,
    address_link,
    amount,
    badge,
    coins,
    empty_list,
    grouped,
    notice,
    plural,
    short_link,
    tag,
)
from svcd.pages.layout import Page
from svcd.pages.routes import EXPECTED_AMOUNT, EXPECTED_RECIPIENT, page
from svcd.pages.sources import Sources, TransferRow, transfer_row
from svcd.pages.tables import Column, table
from svcd.rpc.fields import REFERENCE

PAYMENTS: Final = 20


@frozen
class ExpectedPayment:
    """What an order asks for, as far as the reader has typed it."""

    recipient: bytes | None = None
    amount: int | None = None


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
        on_chain = sorted((transfer_row(sources, place) for place in places), key=_position)
        # A transfer may be in both: the mempool hears of a block only after its commit.
        included = {row.transfer.txid for row in on_chain}
        pending = [TransferRow(each.transfer) for each in reversed(waiting) if each.transfer.txid not in included]
        rows = [*on_chain[:PAYMENTS], *pending[:PAYMENTS]]
        expected, problem = self._expected(recipient, amount)
        lead = "Anybody can pay anybody under this reference: an order is a reference of one recipient."
        return Page(
            title="Payments under a reference",
            content=(
                tag("h1", "Payments under ", tag("bdi", reference, class_="hash")),
                tag("p", lead, class_="lead"),
                self._payments(reference, rows, expected, height),
                *([_more()] if max(len(on_chain), len(pending)) > PAYMENTS else []),
                _form(reference, recipient, amount, problem),
            ),
            search_text=reference,
        )

    def _expected(self, recipient: str, amount: str) -> tuple[ExpectedPayment, str]:
        """What was typed into the form, and what is wrong with that."""
        try:
            key = decode_address(recipient.lower(), self._sources.params.address_prefix) if recipient else None
            return ExpectedPayment(key, parse_amount(amount) if amount else None), ""
        except RuleViolation as error:
            return ExpectedPayment(), error.detail

    def _payments(self, reference: str, rows: list[TransferRow], expected: ExpectedPayment, height: int) -> Tag:
        if not rows:
            return empty_list("Nobody has paid under this reference.")
        sources = self._sources
        verdicts = dict(zip([row.transfer.txid for row in rows], verdicts_on(rows, expected), strict=True))
        columns: list[Column[TransferRow]] = [
            Column(
                "Transfer",
                lambda row: short_link(row.transfer.txid.hex(), "tx", row.transfer.txid.hex()),
                place="phone-title",
            ),
            Column("State", lambda row: _state(row, height), place="phone-note"),
            Column("From", lambda row: address_link(sources.address(row.transfer.sender)), place="roomy"),
            Column("To", lambda row: address_link(sources.address(row.transfer.recipient))),
            Column("Amount", lambda row: amount(row.transfer.amount), number=True, place="phone-value"),
            Column("For the order", lambda row: verdicts[row.transfer.txid], place="phone-extra"),
            Column(
                "Verification", lambda row: tag("a", "JSON", href=self._verification(reference, row)), place="roomy"
            ),
        ]
        if expected == ExpectedPayment():
            del columns[-2]
        return tag("div", table(columns, rows, caption="Payments"), class_="card")

    def _verification(self, reference: str, row: TransferRow) -> str:
        recipient = self._sources.address(row.transfer.recipient)
        query = urlencode({"recipient": recipient, "amountBaseUnits": row.transfer.amount})
        return f"/rpc/commerce/payment/{quote(reference, safe='')}?{query}"


def verdicts_on(rows: list[TransferRow], expected: ExpectedPayment) -> list[Tag]:
    """For each transfer, oldest first, whether it pays the order or what is wrong with it."""
    paid, verdicts = False, []
    for row in rows:
        transfer = row.transfer
        more = 0 if expected.amount is None else transfer.amount - expected.amount
        if expected.recipient not in (None, transfer.recipient):
            verdicts.append(badge("another recipient", "bad"))
        elif more:
            much = "too much" if more > 0 else "too little"
            verdicts.append(badge(f"{coins(abs(more))} {much}", "bad"))
        elif paid:
            verdicts.append(badge("paid once more", "warn"))
        else:
            verdicts.append(badge("pays the order", "good"))
            paid = True
    return verdicts


def _position(row: TransferRow) -> tuple[int, int]:
    return row.height or 0, row.position


def _state(row: TransferRow, height: int) -> Tag:
    if row.height is None:
        return badge("waiting", "warn")
    confirmations = height - row.height + 1
    return badge(plural(confirmations, "confirmation"), "good" if confirmations >= DEFAULT_CONFIRMATIONS else "accent")


def _form(reference: str, recipient: str, amount: str, problem: str) -> Tag:
    """Asks for the recipient and the amount of the order."""
    fields = [
        _field("recipient", "Recipient of the order", recipient, "90"),
        _field("amount", f"Amount of the order in {UNIT}", amount, "32"),
    ]
    wrong: list[Content] = [notice("bad", f"{problem[:1].upper()}{problem[1:]}.")] if problem else []
    return tag(
        "section",
        tag("h2", "Is it the payment of an order?"),
        tag("p", "Type what the order asks for, and the list says what is wrong with each payment.", class_="soft"),
        *wrong,
        tag(
            "form",
            *fields,
            tag("div", tag("button", "Compare", type="submit", class_="primary"), class_="row"),
            action=f"/reference/{quote(reference, safe='')}",
            method="get",
            class_="stack",
        ),
        class_="card stack",
    )


def _field(name: str, label: str, value: str, most: str) -> Tag:
    field = tag(
        "input",
        id=f"order-{name}",
        name=name,
        value=value,
        maxlength=most,
        autocomplete="off",
        autocapitalize="off",
        spellcheck="false",
    )
    return tag("div", tag("label", label, for_=f"order-{name}"), field, class_="field")


def _more() -> Tag:
    shown = grouped(PAYMENTS)
    return tag("p", f"There are more than {shown} payments. To find one, verify it by recipient and amount.")
