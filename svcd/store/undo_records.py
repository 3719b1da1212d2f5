"""Undo records: the accounts as they were before a block, packed (docs/storage.md)."""

from collections.abc import Mapping
from struct import Struct
from typing import Final

from svcd.chain.accounts import Account, pack_held_since, unpack_held_since
from svcd.chain.errors import Corrupt

_RECORD: Final = Struct(">20s?QQQ")
RECORD_BYTES: Final = _RECORD.size
"""Bytes for each account."""


def pack(before: Mapping[bytes, Account | None]) -> bytes:
    """45 bytes an account: key hash, whether it existed, balance, nonce, held since."""
    return b"".join(
        [
            _RECORD.pack(key, False, 0, 0, 0)
            if account is None
            else _RECORD.pack(key, True, account.balance, account.nonce, pack_held_since(account.held_since))
            for key, account in before.items()
        ]
    )


def unpack(data: bytes) -> dict[bytes, Account | None]:
    """The accounts that :func:`pack` was given; raises Corrupt if the length cannot be right."""
    if len(data) % _RECORD.size:
        raise Corrupt("an undo record has a wrong length")
    return {
        key: Account(balance, nonce, unpack_held_since(held)) if existed else None
        for key, existed, balance, nonce, held in _RECORD.iter_unpack(data)
    }
