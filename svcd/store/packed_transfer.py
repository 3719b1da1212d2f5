"""The form of a transfer in the table of blocks: its canonical JSON without what is the same in all transfers.

A transfer of 500 bytes takes 225. The public key and the signature are at the end, as bytes instead of hexadecimal
digits. Before them are the other values as in the JSON, in its order, with quotation marks in between, which no value
has. A transfer that an older program has stored is there as JSON.
"""

from typing import Final

from svcd.chain.address import key_hash_of
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import TRANSFER, VERSION, parties_of, payee_of, txid_of, txid_of_content, values_of

_BINARY: Final = 32 + 64
"""The bytes of public key and signature."""
_TEXTS: Final = 8
_REFERENCE_AT: Final = 4
_RECIPIENT_AT: Final = 5
_SENDER_AT: Final = 6
_BEGIN: Final = (
    b'{"fee":"%b","networkId":%b,"nonce":"%b","payload":{"amount":"%b"%b,"recipient":"%b"},'
    b'"senderAddress":"%b","senderPublicKey":"%b"'
)
_END: Final = b',"timestamp":"%%b","type":%d,"version":%d}' % (TRANSFER, VERSION)
_JSON: Final = _BEGIN + b',"signature":"%b"' + _END
_CONTENT: Final = _BEGIN + _END
"""The same without the signature."""
_REFERENCE: Final = b',"paymentReference":"%b"'
FEE: Final = "CAST(CAST(substr({body}, iif(substr({body}, 1, 1) = x'7b', 9, 1), 17) AS TEXT) AS INTEGER)"
"""The fee of a stored transfer in SQL: the number with which it begins, or which follows ``{"fee":"``."""


def pack_transfer(wire: bytes) -> bytes:
    """What is stored of a valid transfer whose canonical JSON is ``wire``; raises Corrupt for any other text."""
    *texts, key, signature, timestamp = values_of(wire)
    return b'"'.join((*texts, timestamp)) + bytes.fromhex((key + signature).decode("ascii"))


def unpack_transfer(stored: bytes) -> bytes:
    """The canonical JSON of a stored transfer; damage is given as it is, for the reader to find."""
    texts = _texts_of(stored)
    if texts is None:
        return stored
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = texts
    key, signature = stored[-_BINARY:-64].hex().encode(), stored[-64:].hex().encode()
    named = _REFERENCE % reference if reference else b""
    return _JSON % (fee, network_id, nonce, amount, named, recipient, sender, key, signature, timestamp)


def _texts_of(stored: bytes) -> list[bytes] | None:
    """The texts of a stored transfer, in the order of its JSON; None if it is stored as JSON."""
    texts = stored[:-_BINARY].split(b'"')
    return texts if len(texts) == _TEXTS else None


def payees_of_stored(stored: bytes) -> tuple[tuple[str, bytes], ...]:
    """Reference and recipient's key hash of a stored transfer; none without a reference. Raises Corrupt."""
    texts = _texts_of(stored)
    if texts is None:
        payee = payee_of(stored)
        return () if payee is None else (payee,)
    reference = texts[_REFERENCE_AT]
    return ((reference.decode("ascii", "replace"), key_hash_of(texts[_RECIPIENT_AT])),) if reference else ()


def parties_of_stored(stored: bytes) -> tuple[bytes, bytes]:
    """The key hashes of recipient and sender of a stored transfer. Raises Corrupt."""
    texts = _texts_of(stored)
    if texts is None:
        return parties_of(stored)
    return key_hash_of(texts[_RECIPIENT_AT]), key_hash_of(texts[_SENDER_AT])


def txid_of_stored(stored: bytes, params: NetworkParams) -> bytes:
    """The transaction id of a stored transfer, without making its JSON first; of damage the result says nothing."""
    texts = _texts_of(stored)
    if texts is None:
        return txid_of(stored, params)
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = texts
    key, named = stored[-_BINARY:-64].hex().encode(), _REFERENCE % reference if reference else b""
    return txid_of_content(
        _CONTENT % (fee, network_id, nonce, amount, named, recipient, sender, key, timestamp), params
    )
