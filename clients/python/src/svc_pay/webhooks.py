"""Verifies callbacks (docs/webhook-reference.md, https://www.standardwebhooks.com) and reads their events."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hmac import compare_digest
from hmac import digest as hmac_digest
from time import time
from typing import Final, Literal, get_args

from svc_pay._svcd.visible_text import BadText, check_line
from svc_pay.chain import MAINNET, Network, format_coins
from svc_pay.errors import InvalidAnswer, InvalidInput, InvalidSignature
from svc_pay.members import Members
from svc_pay.model import Alarm, Drop, Mismatch, Order, Payment, State, Tip

TOLERANCE_SECONDS: Final = 300

EventName = Literal[
    "payment.pending",
    "payment.confirming",
    "payment.confirmed",
    "payment.reorged",
    "payment.expired",
    "payment.dropped",
    "payment.mismatched",
    "node.alarm",
]
EVENT_NAMES: Final[tuple[EventName, ...]] = get_args(EventName)


@dataclass(frozen=True, slots=True)
class Event:
    """A verified event that belongs to no watch: `webhook.test`, or one that this version does not know."""

    id: str
    """The same for every repetition of the event."""
    name: str
    created_at: int
    network_id: int
    chain_id: str
    genesis_hash: str


@dataclass(frozen=True, slots=True)
class WatchEvent(Event):
    """A verified event of a watch; its name is one of :data:`EVENT_NAMES`."""

    subscription_id: str
    """The watch; the reference of the order in an event of :class:`svc_pay.Orders`."""
    epoch: int
    sequence: int
    initial: bool
    previous_state: str
    payment: Payment
    tip: Tip
    node: Tip
    synced: bool
    """False while the node's chain may not be the network's: verify the payment before delivering."""
    mismatch: Mismatch | None
    """Only in `payment.mismatched`."""
    alarm: Alarm | None
    """Only in `node.alarm`."""
    dropped: Drop | None
    """Only in `payment.dropped`."""

    @property
    def place(self) -> tuple[int, int]:
        """Later events of a watch have greater places."""
        return self.epoch, self.sequence

    def notice(self, network: Network | None = None) -> str | None:
        """What a person should look at: of an alarm its sentence, of a mismatch how to refund it; else None.

        ``network`` says what its coins are called; mainnet and devnet need not be given.
        """
        if self.alarm is not None:
            return self.alarm.sentence
        wrong = self.mismatch
        if wrong is None:
            return None
        coins = format_coins(wrong.amount, (network or MAINNET).unit)
        more = "; list the payments, for further ones are not reported"
        # A late payment is the right one, and the shop may have accepted it.
        refund = f"{'unless you accept it, ' if wrong.kind == 'late' else ''}svc wallet refund {wrong.txid}"
        return f"{wrong.kind}: {coins} from {wrong.sender}; {refund}{more if wrong.more else ''}"

    def concerns(self, order: Order) -> bool:
        """Whether its payment is that of exactly this order, on the network of the recipient."""
        payment = self.payment
        told = (payment.reference, payment.recipient, payment.amount, self.genesis_hash)
        return told == (order.reference, order.recipient, order.amount, order.network.genesis_hash)

    def settles(self, order: Order) -> bool:
        """Whether the shop may deliver the order now: the payment is confirmed, as deep as the order requires.

        Only the newest event of a watch counts: see :attr:`place`.
        """
        payment = self.payment
        deep = payment.canonical and payment.confirmations >= order.confirmations
        return self.concerns(order) and payment.state is State.CONFIRMED and deep


def parse_event(body: bytes) -> Event | WatchEvent:
    """The event in a body whose signature is known to be good; raises InvalidAnswer."""
    members = Members.of(body, "the event")
    name = members.text("event")
    chain = (
        members.text("id"),
        name,
        members.number("createdAt"),
        members.count("networkId"),
        members.text("chainId"),
        members.text("genesisHash"),
    )
    if name not in EVENT_NAMES:
        return Event(*chain)
    payment = Payment.parse(members.object("payment"), earlier=name in ("payment.mismatched", "node.alarm"))
    left = members.object("dropped") if "dropped" in members else None
    return WatchEvent(
        *chain,
        subscription_id=members.text("subscriptionId"),
        epoch=members.count("epoch"),
        sequence=members.count("sequence"),
        initial=members.flag("initial"),
        previous_state=members.text("previousState"),
        payment=payment,
        tip=Tip.parse(members.object("tip")),
        node=Tip.parse(members.object("node")),
        synced=members.object("node").flag("synced"),
        mismatch=Mismatch.parse(members.object("mismatch"), payment.recipient) if "mismatch" in members else None,
        alarm=Alarm.parse(members.object("alarm")) if "alarm" in members else None,
        dropped=None if left is None else Drop.parse(left),
    )


class Webhook:
    """Verifies the callbacks of a node.

    ``secrets`` is the signing secret as the node's file has it, or as ``whsec_…``; while it is being rotated, both.
    Spaces around a secret, the newline of the file and a byte order mark at its beginning do not count; another
    character that nobody sees is refused.
    """

    def __init__(self, secrets: str | Iterable[str], *, tolerance: int = TOLERANCE_SECONDS) -> None:
        given = [secrets] if isinstance(secrets, str) or not isinstance(secrets, Iterable) else secrets
        self._keys = [_key(secret) for secret in given]
        if not self._keys:
            raise InvalidInput("give at least one signing secret")
        self._tolerance = tolerance

    def verify(self, body: bytes, headers: Mapping[str, str], *, now: float | None = None) -> Event | WatchEvent:
        """The event in a callback.

        ``body`` is the bytes as received, before anything parses them; ``now`` is the Unix time in seconds.

        Raises:
            InvalidSignature: the callback is not from the node, or too old; answer it with 401.
            InvalidAnswer: the body is signed, but not an event that this version can read.
        """
        if not isinstance(body, bytes):
            raise InvalidInput("give the raw body as bytes: text that was parsed or decoded cannot be verified")
        fields = {name.lower(): value for name, value in headers.items()}
        identity, timestamp, given = (fields.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15):
            raise InvalidSignature("webhook-timestamp must be a Unix time in seconds")
        if abs((time() if now is None else now) - int(timestamp)) > self._tolerance:
            raise InvalidSignature(f"webhook-timestamp must be within {self._tolerance} s of this computer's clock")
        signed = f"{identity}.{timestamp}.".encode("utf-8", "surrogateescape") + body
        right = [b"v1," + b64encode(hmac_digest(key, signed, "sha256")) for key in self._keys]
        # Every pair is compared, so that the time does not tell which one failed.
        equal = [compare_digest(one.encode("utf-8", "replace"), two) for one in given.split(" ") for two in right]
        if not any(equal):
            raise InvalidSignature("webhook-signature is not of this body under the signing secret")
        event = parse_event(body)
        if event.id != identity:
            raise InvalidAnswer("webhook-id is not the id of the event")
        return event


def _key(given: object) -> bytes:
    if not isinstance(given, str):
        raise InvalidInput("a signing secret is a text, as the node's file has it")
    secret = given.removeprefix("\ufeff").rstrip("\r\n").strip(" ")
    try:
        check_line(secret)
    except BadText as error:
        raise InvalidInput(f"the signing secret {error}") from None
    if not secret:
        raise InvalidInput("the signing secret is empty")
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        key = b64decode(secret.removeprefix("whsec_"), validate=True)
    except ValueError:  # also binascii.Error
        key = b""
    if not key:
        raise InvalidInput("a secret that begins with whsec_ continues in base64")
    return key
