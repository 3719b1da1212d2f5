"""The form of a transfer in the table of blocks: its canonical JSON without what is the same in all transfers.

A transfer of 500 bytes takes 225. The public key and the signature are at the end, as bytes instead of hexadecimal
digits. Before them are the other values as in the JSON, in its order, with quotation marks in between, which no value
has. A transfer that an older program has stored is there as JSON.
"""

from typing import Final

from svcd.chain.transaction import TRANSFER, VERSION, values_of

_BINARY: Final = 32 + 64
"""The bytes of public key and signature."""
_TEXTS: Final = 8
_JSON: Final = (
    b'{"fee":"%%b","networkId":%%b,"nonce":"%%b","payload":{"amount":"%%b"%%b,"recipient":"%%b"},'
    b'"senderAddress":"%%b","senderPublicKey":"%%b","signature":"%%b","timestamp":"%%b","type":%d,"version":%d}'
) % (TRANSFER, VERSION)
_REFERENCE: Final = b',"paymentReference":"%b"'
FEE: Final = "CAST(CAST(substr({body}, iif(substr({body}, 1, 1) = x'7b', 9, 1), 17) AS TEXT) AS INTEGER)"
"""The fee of a stored transfer in SQL: the number with which it begins, or which follows ``{"fee":"``."""


def pack_transfer(wire: bytes) -> bytes:
    """What is stored of a valid transfer whose canonical JSON is ``wire``; raises Corrupt for any other text."""
    *texts, key, signature, timestamp = values_of(wire)
    return b'"'.join((*texts, timestamp)) + bytes.fromhex((key + signature).decode("ascii"))


def unpack_transfer(stored: bytes) -> bytes:
    """The canonical JSON of a stored transfer; damage is given as it is, for the reader to find."""
    texts = stored[:-_BINARY].split(b'"')
    if len(texts) != _TEXTS:
        return stored
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = texts
    key, signature = stored[-_BINARY:-64].hex().encode(), stored[-64:].hex().encode()
    named = _REFERENCE % reference if reference else b""
    return _JSON % (fee, network_id, nonce, amount, named, recipient, sender, key, signature, timestamp)
