"""The SQL statements of snapshots of the state (docs/peers.md "Snapshots")."""

import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Final

from svcd.chain.accounts import Account
from svcd.chain.snapshot import pack_account
from svcd.store.chain_store import ChainReader
from svcd.store.undo_records import unpack

MAX_UNDO_BYTES: Final = 4 * 1024 * 1024
"""Bytes of undo records that are applied in memory: 23 full blocks, or many small ones."""
_ROWS: Final = 256
"""Accounts that are read between two pauses, in a millisecond."""


class TooFarBack(Exception):
    """The state after a block cannot be had from the tip's by the undo records; the text says why."""


class StateReader:
    """Reads the state after a canonical block, which need not be the tip; within one commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.chain = ChainReader(connection)

    def records(self, height: int) -> Iterator[bytes]:
        """The records of all accounts after the canonical block at ``height``, in pieces; raises TooFarBack."""
        earlier = self._undone(height)
        rows = self.chain.every_account()
        while piece := list(islice(rows, _ROWS)):
            yield b"".join([_record(row, earlier) for row in piece])

    def _undone(self, height: int) -> dict[bytes, Account | None]:
        """The accounts that later blocks have touched, as they were after the block at ``height``."""
        missing, size = self.chain.existing_tip().height - height, 0
        earlier: dict[bytes, Account | None] = {}
        with self.chain.later_undo(height) as later:
            for (data,) in later:
                missing -= 1
                size += len(data)
                if size > MAX_UNDO_BYTES:
                    raise TooFarBack(f"later blocks have changed more than {MAX_UNDO_BYTES} bytes of accounts")
                # The first block that touched an account has it as it was at ``height``.
                for key, account in unpack(data).items():
                    earlier.setdefault(key, account)
        if missing:
            raise TooFarBack(f"the undo records of {missing} later blocks are not here")
        return earlier


def _record(row: tuple[bytes, int, int, int | None], earlier: dict[bytes, Account | None]) -> bytes:
    if row[0] not in earlier:
        return pack_account(*row)
    account = earlier[row[0]]
    return b"" if account is None else pack_account(row[0], account.balance, account.nonce, account.held_since)
