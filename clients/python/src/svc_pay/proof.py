"""The transfer of a payment proof: what it pays, its signature, and its path into its block (docs/payment-proof.md)."""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from svc_pay.chain import Network, address_of, txid_of
from svc_pay.errors import InvalidProof
from svc_pay.members import Members
from svc_pay.model import Order

_MAX_PATH: Final = 64
_HEX: Final = re.compile("(?:[0-9a-f]{2})*")


def check_terms(transaction: Members, height: int, confirmations: int, order: Order) -> None:
    """Raise InvalidProof unless a transfer pays ``order``, in a block that counts and deep enough."""
    payload = transaction.object("payload")
    asked = (order.reference, order.recipient, order.amount)
    paid = (payload.text_or_none("paymentReference"), payload.text("recipient"), payload.number("amount"))
    if paid != asked:
        raise InvalidProof(f"the transfer has reference, recipient and amount {paid}, the order {asked}")
    if order.since_height is not None and height < order.since_height:
        raise InvalidProof(f"the payment is in a block below {order.since_height}, where payments do not count")
    if confirmations < order.confirmations:
        raise InvalidProof(f"the proof shows {confirmations} confirmations, and the order requires more")


def check_transfer(proof: Members, transaction: Members, block: Members, network: Network) -> bytes:
    """The txid of the transfer, which its sender has signed and its block holds; raises InvalidProof.

    ``proof`` has index and path, and ``block`` transactionCount and transactionsRoot.
    """
    key, signature = _bytes(transaction, "senderPublicKey", 32), _bytes(transaction, "signature", 64)
    txid = txid_of(dict(transaction.raw), network)
    if transaction.text("senderAddress") != address_of(key, network):
        raise InvalidProof("senderAddress is not the address of senderPublicKey")
    try:
        VerifyKey(key).verify(txid, signature)
    except BadSignatureError:
        raise InvalidProof("the signature of the transfer is not its sender's") from None
    root = _root(txid + signature, proof.count("index"), block.count("transactionCount"), _path(proof))
    if root is None or root.hex() != block.text("transactionsRoot"):
        raise InvalidProof("the path does not lead from the transfer to the transactionsRoot of its block")
    return txid


def _path(proof: Members) -> list[bytes]:
    steps = proof.texts("path")
    if len(steps) > _MAX_PATH or any(len(step) != 64 for step in steps):
        raise InvalidProof(f"path must be an array of at most {_MAX_PATH} hashes")
    return [_hex(step, "path") for step in steps]


def _root(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root to which an audit path leads (RFC 6962 section 2.1.1); None if its length is wrong."""
    if index >= size:
        return None
    node, last, steps = sha256(b"\0" + leaf).digest(), size - 1, iter(path)
    while last:
        if index % 2 or index < last:
            sibling = next(steps, None)
            if sibling is None:
                return None
            node = sha256(b"\1" + (sibling + node if index % 2 else node + sibling)).digest()
        index, last = index // 2, last // 2
    return node if next(steps, None) is None else None


def _bytes(members: Members, name: str, size: int) -> bytes:
    value = _hex(members.text(name), name)
    if len(value) != size:
        raise InvalidProof(f"{name} must be {size} bytes in hex")
    return value


def _hex(text: str, name: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise InvalidProof(f"{name} must be lower-case hex")
    return bytes.fromhex(text)
