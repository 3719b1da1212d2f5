"""The index of transfers: where on the canonical chain each is that has some id, party, reference or payment.

A row is a key and a place. A key is the kind of a value in two bits, and 62 bits of a hash over the whole value: of an
address or a reference itself a stranger could choose many that begin alike. Other values may still have the same key by
chance, so the reader of a row looks into the transfer. The kind comes first, so that the rows of one kind are side by
side: the references, which merchants ask for, stay in memory, and the rest on disk.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from svcd.chain.transaction import Transfer
from svcd.store.sorted_runs import Tree

TRANSFERS: Final = Tree(name="transfer", key=("key", "place"), is_dated=True, fan_in=6, small=16_384, row_bytes=24)


_TXID, _ADDRESS, _REFERENCE, _PAYMENT = range(4)


def _key(kind: int, value: bytes) -> int:
    # A signed number of 64 bits.
    return ((kind - 2) << 62) | int.from_bytes(sha256(value).digest()[:8], "big") >> 2


def txid_key(txid: bytes) -> int:
    """The key of a transfer's id."""
    return _key(_TXID, txid)


def address_key(key_hash: bytes) -> int:
    """The key of a sender or recipient by the 20-byte key hash."""
    return _key(_ADDRESS, key_hash)


def reference_key(reference: str) -> int:
    """The key of a reference, whatever is paid to whom."""
    return _key(_REFERENCE, reference.encode())


def payment_key(reference: str, recipient: bytes, amount: int) -> int:
    """The key of a payment of exactly ``amount`` base units to the key hash ``recipient`` under ``reference``."""
    return _key(_PAYMENT, recipient + amount.to_bytes(8, "big") + reference.encode())


def place_of(height: int, position: int) -> int:
    """A place as one number: the position in a block has 16 bits."""
    return (height << 16) + position


def rows_of(transfers: Sequence[Transfer], height: int, first: int = 0) -> list[tuple[int, int]]:
    """The rows of transfers of the block at ``height``, sorted; the first of them is at position ``first``."""
    rows = set[tuple[int, int]]()
    for place, transfer in enumerate(transfers, place_of(height, first)):
        sender, recipient, reference = transfer.sender, transfer.recipient, transfer.reference
        keys = [txid_key(transfer.txid), address_key(sender), address_key(recipient)]
        if reference is not None:
            keys += [reference_key(reference), payment_key(reference, recipient, transfer.amount)]
        # Two of them may be the same: a sender that is the recipient, or by chance.
        rows.update([(key, place) for key in keys])
    return sorted(rows)
