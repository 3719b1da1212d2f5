"""`svc webhook trigger`: an event made on a devnet as buyers and reorganisations make it (docs/webhooks.md)."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.encoding import parse_wire_object
from svcd.chain.params import DEVNET, FAUCET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.units import BASE_UNITS_PER_COIN
from svcd.cli.answers import ResponseObject
from svcd.cli.errors import CommandError, ErrorResponse
from svcd.cli.http_client import NodeClient, ask_devnet
from svcd.cli.merchant.following import PATH, watch_id, watch_with
from svcd.cli.merchant.story import is_waiting

_AMOUNT: Final = BASE_UNITS_PER_COIN
_TTL_SECONDS: Final = 60
"""The shortest life of a watch: after so many seconds an unpaid order expires."""
_PATIENCE_SECONDS: Final = 30.0
"""For what a node does by itself, such as to deliver an event."""
_PAUSE_SECONDS: Final = 0.25
_HIGHER_FEE: Final = 2
"""By how many times the fee of a transfer that replaces another one is higher."""


@frozen
class Trigger:
    """Makes events of new orders, which nobody else pays, by the faucet and the operator of a devnet node."""

    node: NodeClient
    operator: NodeClient
    random: Callable[[int], bytes]
    callback: str

    def event(self, name: str) -> ResponseObject:
        """An event of the kind ``name`` once the node has delivered it, or has tried to; raises CommandError."""
        make = self._makers()[name]
        # Also says at once whether the node is one of a devnet.
        self._ask_devnet("/operator/mine", {"blocks": 1})
        reference, recipient = f"trigger-{self.random(4).hex()}", encode_address(self.random(20), DEVNET.address_prefix)
        expires = {"ttlSeconds": _TTL_SECONDS} if name == "payment.expired" else {}
        body = {
            "reference": reference,
            "recipient": recipient,
            "amountBaseUnits": str(_AMOUNT),
            "confirmations": 2 if name == "payment.confirming" else 1,
            "callbackUrl": self.callback,
            "events": [name],
            **expires,
        }
        watch = self.node.post(PATH, body).object("subscription")
        watch.check(reference=reference, recipient=recipient, amount=str(_AMOUNT))
        order = _Order(watch_id(watch), reference, recipient)
        try:
            make(order)
            event = self._delivered(order, name)
        except CommandError:
            with suppress(CommandError):
                self._cancel(order)
            raise
        if name != "payment.expired":
            self._cancel(order)
        return event

    def _cancel(self, order: "_Order") -> None:
        self.node.post(f"{PATH}/{order.watch}/cancel", {})

    def _makers(self) -> Mapping[str, Callable[["_Order"], None]]:
        return {
            "payment.pending": self._pay,
            "payment.confirming": self._pay_in_a_block,
            "payment.confirmed": self._pay_in_a_block,
            "payment.reorged": self._pay_and_undo,
            "payment.expired": self._wait,
            "payment.dropped": self._pay_and_replace,
            "payment.mismatched": self._pay_too_little,
        }

    def _pay(self, order: "_Order") -> None:
        self._transfer(order, _AMOUNT)

    def _pay_in_a_block(self, order: "_Order") -> None:
        self._pay(order)
        self._ask_devnet("/operator/mine", {"blocks": 1})

    def _pay_and_undo(self, order: "_Order") -> None:
        self._pay_in_a_block(order)
        watch = self._until(order, lambda watch: watch.text("lastState") == "confirmed")
        # A devnet may make blocks by itself: one more is undone for the next of these.
        self._ask_devnet("/operator/reorganise", {"depth": watch.object("payment").count("confirmations") + 1})

    def _pay_and_replace(self, order: "_Order") -> None:
        nonce = self._transfer(order, _AMOUNT)
        self._until(order, lambda watch: watch.text("lastState") == "pending")
        try:
            self._transfer(order, _AMOUNT + 1, fee=_HIGHER_FEE * DEVNET.minimum_fee, nonce=nonce)
        except ErrorResponse:
            raise CommandError("a block has come before the payment could be replaced: try again") from None

    def _pay_too_little(self, order: "_Order") -> None:
        self._transfer(order, _AMOUNT - 1)
        self._ask_devnet("/operator/mine", {"blocks": 1})

    def _wait(self, order: "_Order") -> None:
        self._until(order, lambda watch: not watch.flag("active"), _TTL_SECONDS + _PATIENCE_SECONDS)

    def _transfer(
        self, order: "_Order", amount: int, *, fee: int = DEVNET.minimum_fee, nonce: int | None = None
    ) -> int:
        """Send base units from the faucet under the reference of the order; gives the nonce."""
        if nonce is None:
            nonce = self.node.get(f"/rpc/balance/{FAUCET}").object("account").number("pendingNonce")
        draft = Draft(
            recipient=order.recipient,
            amount=amount,
            fee=fee,
            nonce=nonce,
            timestamp=self.node.clock.milliseconds(),
            reference=order.reference,
        )
        transfer = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
        self.node.post("/rpc/broadcast", {"transaction": parse_wire_object(transfer.wire)}).check(
            txid=transfer.txid.hex()
        )
        return nonce

    def _delivered(self, order: "_Order", name: str) -> ResponseObject:
        def tried(watch: ResponseObject) -> bool:
            return any(each.count("attempts") or not is_waiting(each) for each in _named(watch, name))

        return _named(self._until(order, tried), name)[0]

    def _until(
        self, order: "_Order", right: Callable[[ResponseObject], bool], seconds: float = _PATIENCE_SECONDS
    ) -> ResponseObject:
        """The watch once it is ``right``; raises CommandError after some time."""
        end = self.node.clock.monotonic() + seconds
        while not right(watch := watch_with(self.node, order.watch)):
            if self.node.clock.monotonic() > end:
                raise CommandError(
                    f"the node has not made the event within {seconds:g} s: see `svc webhook show {order.watch}`"
                )
            self.node.clock.sleep(_PAUSE_SECONDS)
        return watch

    def _ask_devnet(self, path: str, body: Mapping[str, object]) -> None:
        ask_devnet(
            self.operator,
            path,
            body,
            on_others="only a devnet node makes events on demand; on others send webhook.test",
        )


@frozen
class _Order:
    watch: str
    reference: str
    recipient: str


def _named(watch: ResponseObject, name: str) -> list[ResponseObject]:
    return [event for event in watch.objects("events") if event.text("event") == name]
