"""The form of a transfer in the table of blocks: its canonical JSON without what is the same in all transfers.

A transfer of 500 bytes takes 225. The public key and the signature are at the end, as bytes instead of hexadecimal
digits. Before them are the other values as in the JSON, in its order, with quotation marks in between, which no value
has.
"""

from typing import Final, NamedTuple

from svcd.chain.address import key_hash_of
from svcd.chain.errors import Corrupt
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import TRANSFER, VERSION, txid_of_content, values_of

_BINARY: Final = 32 + 64
"""The bytes of public key and signature."""
_TEXTS: Final = 8
_AMOUNT_DIGITS: Final = 16
_BEGIN: Final = (
    b'{"fee":"%b","networkId":%b,"nonce":"%b","payload":{"amount":"%b"%b,"recipient":"%b"},'
    b'"senderAddress":"%b","senderPublicKey":"%b"'
)
_END: Final = b',"timestamp":"%%b","type":%d,"version":%d}' % (TRANSFER, VERSION)
_JSON: Final = _BEGIN + b',"signature":"%b"' + _END
_CONTENT: Final = _BEGIN + _END
"""The same without the signature."""
_REFERENCE: Final = b',"paymentReference":"%b"'
FEE: Final = "CAST(CAST(substr({body}, 1, 17) AS TEXT) AS INTEGER)"
"""The fee of a stored transfer in SQL: the number with which it begins."""


class StoredPayment(NamedTuple):
    """Of a stored transfer what it is found by, but for its id."""

    recipient: bytes
    """The 20-byte key hash."""
    sender: bytes
    """The same of the sender."""
    reference: str | None
    amount: int
    """Base units."""


def pack_transfer(wire: bytes) -> bytes:
    """What is stored of a valid transfer whose canonical JSON is ``wire``; raises Corrupt for any other text."""
    *texts, key, signature, timestamp = values_of(wire)
    return b'"'.join((*texts, timestamp)) + bytes.fromhex((key + signature).decode("ascii"))


def unpack_transfer(stored: bytes) -> bytes:
    """The canonical JSON of a stored transfer; raises Corrupt, but not for all damage."""
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = _texts_of(stored)
    key, signature = stored[-_BINARY:-64].hex().encode(), stored[-64:].hex().encode()
    named = _REFERENCE % reference if reference else b""
    return _JSON % (fee, network_id, nonce, amount, named, recipient, sender, key, signature, timestamp)


def _texts_of(stored: bytes) -> list[bytes]:
    """The texts of a stored transfer, in the order of its JSON."""
    texts = stored[:-_BINARY].split(b'"')
    if len(texts) != _TEXTS:
        raise Corrupt("a stored transfer is not whole")
    return texts


def payment_of(stored: bytes) -> StoredPayment:
    """What a stored transfer is found by; raises Corrupt."""
    _, _, _, amount, reference, recipient, sender, _ = _texts_of(stored)
    if not (reference.isascii() and amount.isdigit() and len(amount) <= _AMOUNT_DIGITS):
        raise Corrupt("a stored transfer has a reference or an amount that no transfer has")
    return StoredPayment(key_hash_of(recipient), key_hash_of(sender), reference.decode("ascii") or None, int(amount))


def txid_of_stored(stored: bytes, params: NetworkParams) -> bytes:
    """The transaction id of a stored transfer, without making its JSON first; raises Corrupt as the above."""
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = _texts_of(stored)
    key, named = stored[-_BINARY:-64].hex().encode(), _REFERENCE % reference if reference else b""
    return txid_of_content(
        _CONTENT % (fee, network_id, nonce, amount, named, recipient, sender, key, timestamp), params
    )
