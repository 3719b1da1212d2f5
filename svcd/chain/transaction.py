"""Transfer v2: the value, the id that its sender signs, and the checks that need no state (docs/protocol.md 4).

A wallet signs the 32 bytes of the transaction id (txid), a tagged hash of the genesis hash and the canonical JSON
without the signature: :func:`txid_of` computes it, :func:`sign_transfer` signs it. The node checks the signature in
svcd/node/verifier.py by :meth:`Transfer.check_signature`. The browser wallet does the same as this module in
svcd/pages/static/transaction.mjs.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from attrs import field, frozen

from .address import decode_address, encode_address, key_hash
from .encoding import canonical, decimal_u53, exact_fields, hex_bytes, integer, tagged_hash
from .errors import Corrupt, Refusal, RuleViolation
from .params import NetworkParams
from .signature import is_valid, public_key_of, sign

VERSION: Final = 2
TRANSFER: Final = 1
_FIELDS: Final = frozenset(
    "version networkId type senderPublicKey senderAddress nonce fee timestamp payload signature".split()
)
_PLAIN_PAYLOAD: Final = frozenset(("recipient", "amount"))
_REFERENCED_PAYLOAD: Final = _PLAIN_PAYLOAD | {"paymentReference"}
_REFERENCE: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_BASE32: Final = "abcdefghijklmnopqrstuvwxyz234567"
_SIGNATURE_DIGITS: Final = 128
_SIGNED: Final = b',"signature":"'
_END: Final = b',"type":%d,"version":%d}' % (TRANSFER, VERSION)
_LAYOUT: Final = (
    r'{"fee":"(?P<fee>@)","networkId":(?P<networkId>%d),"nonce":"(?P<nonce>@)","payload":{"amount":"(?P<amount>@)"'
    r'(?:,"paymentReference":"(?P<paymentReference>@)")?,"recipient":"(?P<recipient>@)"},"senderAddress":'
    r'"(?P<senderAddress>@)","senderPublicKey":"(?P<senderPublicKey>@)","signature":"(?P<signature>@)"'
    r',"timestamp":"(?P<timestamp>@)"'.replace("@", r'[^"]*')
    + re.escape(_END.decode())
)


_OF_ANY_NETWORK: Final = re.compile(_LAYOUT.replace("%d", "[0-9]+").encode())
"""No string of a transfer has quotation marks, so each is found in its place only."""


@cache
def _layout(network_id: int) -> re.Pattern[str]:
    """Matches the canonical JSON of a transfer of this network, whatever its strings are."""
    return re.compile(_LAYOUT % network_id)


@frozen(eq=False)
class Transfer:
    """A transfer whose fields have been checked; its signature has not (see :meth:`check_signature`)."""

    txid: bytes
    """32 bytes; it does not cover the signature, so another signature of the same content is the same transfer."""
    sender_key: bytes
    """The sender's 32-byte public key."""
    sender: bytes
    """The sender's 20-byte key hash."""
    recipient: bytes
    """The recipient's 20-byte key hash."""
    amount: int
    fee: int
    nonce: int
    timestamp: int
    """Unix milliseconds."""
    reference: str | None
    signature: bytes
    wire: bytes = field(repr=False)
    """The canonical JSON with the signature, as in blocks and between peers."""

    def check_signature(self) -> None:
        """Raise RuleViolation(TRANSACTION_SIGNATURE) unless the sender's key signed the txid."""
        if not is_valid(self.sender_key, self.txid, self.signature):
            raise RuleViolation(
                Refusal.TRANSACTION_SIGNATURE, f"the signature of transaction {self.txid.hex()} is not its sender's"
            )


def check_reference(value: object) -> str:
    """A payment reference: 1 to 64 letters, digits, dots, underscores, colons and hyphens; raises RuleViolation."""
    if type(value) is str and _REFERENCE.fullmatch(value):
        return value
    raise RuleViolation(
        Refusal.REFERENCE,
        "paymentReference must be 1 to 64 of the characters A-Z a-z 0-9 . _ : - (or be absent)",
    )


def new_reference(random: Callable[[int], bytes]) -> str:
    """A fresh payment reference, ``pay_`` and 130 random bits in base32; ``random`` returns so many random bytes."""
    return "pay_" + "".join(_BASE32[byte & 31] for byte in random(26))


def _check_constants(fields: dict[str, object], params: NetworkParams) -> None:
    if integer(fields["version"], "version") != VERSION:
        raise RuleViolation(Refusal.CONSTANTS, f"version must be {VERSION}")
    if integer(fields["networkId"], "networkId") != params.network_id:
        raise RuleViolation(Refusal.CONSTANTS, f"networkId must be {params.network_id}, the id of {params.chain_id}")
    if integer(fields["type"], "type") != TRANSFER:
        raise RuleViolation(Refusal.CONSTANTS, f"type must be {TRANSFER}, a transfer")


def _payload_of(fields: dict[str, object]) -> dict[str, object]:
    payload = fields["payload"]
    referenced = type(payload) is dict and "paymentReference" in payload
    return exact_fields(payload, _REFERENCED_PAYLOAD if referenced else _PLAIN_PAYLOAD, "payload")


def _check_sender(address: object, sender: bytes, params: NetworkParams) -> None:
    # Decoding takes half of the time of encoding.
    try:
        right = decode_address(address, params.address_prefix) == sender
    except RuleViolation:
        right = False
    if not right:
        raise RuleViolation(Refusal.SENDER, "senderAddress must be the address of senderPublicKey on this network")


def parse_transfer(value: object, params: NetworkParams) -> Transfer:
    """The transfer in a JSON object, with every check that needs neither state nor the signature.

    Raises RuleViolation: FIELDS, FORMAT, CONSTANTS, SENDER, ADDRESS, AMOUNT, FEE or REFERENCE.
    """
    fields = exact_fields(value, _FIELDS, "transaction")
    payload = _payload_of(fields)
    _check_constants(fields, params)
    values = _checked({**fields, **payload}, params)
    wire = canonical(fields)
    return Transfer(txid_of(wire, params), *values, wire)


_Values = tuple[bytes, bytes, bytes, int, int, int, int, str | None, bytes]
"""What a Transfer has between txid and wire, in the order of its fields."""


def _checked(fields: Mapping[str, object], params: NetworkParams) -> _Values:
    """The values of ``fields``, to which those of the payload belong; raises what :func:`parse_transfer` raises.

    Each value has one accepted form, so that the canonical JSON is the only one that has these fields.
    """
    sender_key = hex_bytes(fields["senderPublicKey"], 32, "senderPublicKey")
    signature = hex_bytes(fields["signature"], 64, "signature")
    sender = key_hash(sender_key)
    _check_sender(fields["senderAddress"], sender, params)
    nonce = decimal_u53(fields["nonce"], "nonce")
    fee = decimal_u53(fields["fee"], "fee")
    timestamp = decimal_u53(fields["timestamp"], "timestamp")
    recipient = decode_address(fields["recipient"], params.address_prefix, "recipient")
    amount = decimal_u53(fields["amount"], "amount")
    reference = check_reference(fields["paymentReference"]) if "paymentReference" in fields else None
    if amount < 1:
        raise RuleViolation(Refusal.AMOUNT, "amount must be at least 1 base unit")
    if fee < params.minimum_fee:
        raise RuleViolation(Refusal.FEE, f"fee must be at least {params.minimum_fee} base units, not {fee}")
    return sender_key, sender, recipient, amount, fee, nonce, timestamp, reference, signature


Known = Callable[[bytes], Transfer | None]
"""Finds a transfer of this network that was parsed before, by its txid."""


def parse_canonical_transfer(wire: bytes, params: NetworkParams, known: Known | None = None) -> Transfer:
    """The transfer whose canonical JSON is ``wire``; one that is ``known`` is not parsed again.

    Raises RuleViolation: ENCODING for any other text, or what :func:`parse_transfer` raises.
    """
    txid = txid_of(wire, params)
    same = known(txid) if known else None
    # All of the text is compared: the txid does not cover the signature.
    if same is not None and same.wire == wire:
        return same
    # Latin-1 decodes any byte; the fields of a transfer are ASCII.
    match = _layout(params.network_id).fullmatch(wire.decode("latin-1"))
    if match is None:
        raise RuleViolation(Refusal.ENCODING, "the transaction is not the canonical JSON of one of this network")
    fields = match.groupdict()
    if fields["paymentReference"] is None:
        del fields["paymentReference"]
    return Transfer(txid, *_checked(fields, params), wire)


def parse_canonical_transfers(text: bytes, params: NetworkParams, known: Known | None = None) -> tuple[Transfer, ...]:
    """The transfers in ``text``, canonical JSON with commas in between; raises like parse_canonical_transfer."""
    *most, last = text.split(_END + b",")
    return tuple([parse_canonical_transfer(wire, params, known) for wire in (*[piece + _END for piece in most], last)])


def block_entry(transfer: Transfer) -> bytes:
    """The entry of ``transfer`` in the root of a block's transactions: ``txid ‖ signature``, 96 bytes."""
    return transfer.txid + transfer.signature


def block_entry_of(wire: bytes, params: NetworkParams) -> bytes:
    """The same from the canonical JSON of a valid transfer, in a tenth of the time of parsing."""
    signature = wire.partition(_SIGNED)[2][:_SIGNATURE_DIGITS]
    return txid_of(wire, params) + bytes.fromhex(signature.decode("ascii"))


def txid_of(wire: bytes, params: NetworkParams) -> bytes:
    """The transaction id from the canonical JSON of a transfer; of any other text the result says nothing."""
    before, _, rest = wire.partition(_SIGNED)
    return txid_of_content(before + rest[_SIGNATURE_DIGITS + 1 :], params)


def txid_of_content(content: bytes, params: NetworkParams) -> bytes:
    """The transaction id from the canonical JSON of a transfer without its signature."""
    return tagged_hash("svc/tx/v2", params.genesis_hash + content)


def values_of(wire: bytes) -> tuple[bytes, ...]:
    """All values from the canonical JSON of a valid transfer of any network but type and version, in its order.

    Without a reference that is empty. Raises Corrupt.
    """
    found = _OF_ANY_NETWORK.fullmatch(wire)
    if found is None:
        raise _not_a_transfer()
    return found.groups(b"")


def _not_a_transfer() -> Corrupt:
    return Corrupt("a stored transfer is not the canonical JSON of one")


def fold_case(value: object) -> object:
    """``value`` with ``senderPublicKey`` and ``signature`` in lower case: wallets may send them in upper case."""
    if type(value) is not dict:
        return value
    folded = dict(value)
    for name in ("senderPublicKey", "signature"):
        text = folded.get(name)
        if type(text) is str and text.isascii():
            folded[name] = text.lower()
    return folded


@frozen(kw_only=True)
class Draft:
    """The fields of a transfer that a wallet chooses before it signs; base units and Unix milliseconds."""

    recipient: str
    amount: int
    fee: int
    nonce: int
    timestamp: int
    reference: str | None = None


def sign_transfer(draft: Draft, *, seed: bytes, params: NetworkParams) -> Transfer:
    """The transfer of ``draft`` signed by the key of a 32-byte ``seed``; raises what parse_transfer raises."""
    public_key = public_key_of(seed)
    payload: dict[str, object] = {"recipient": draft.recipient, "amount": str(draft.amount)}
    if draft.reference is not None:
        payload["paymentReference"] = draft.reference
    fields: dict[str, object] = {
        "version": VERSION,
        "networkId": params.network_id,
        "type": TRANSFER,
        "senderPublicKey": public_key.hex(),
        "senderAddress": encode_address(key_hash(public_key), params.address_prefix),
        "nonce": str(draft.nonce),
        "fee": str(draft.fee),
        "timestamp": str(draft.timestamp),
        "payload": payload,
        "signature": bytes(64).hex(),
    }
    txid = parse_transfer(fields, params).txid
    return parse_transfer({**fields, "signature": sign(seed, txid).hex()}, params)
