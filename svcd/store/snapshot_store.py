"""Reads the accounts as they were after an earlier block, for snapshots of the state (docs/peers.md "Snapshots")."""

from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Final

from svcd.chain.accounts import KEY_BITS, Account
from svcd.chain.errors import Corrupt
from svcd.chain.snapshot import pack_account
from svcd.store.chain_store import ChainReader
from svcd.store.database import DatabaseConnection
from svcd.store.external_sort import ExternalSort, sorting
from svcd.store.undo_records import RECORD_BYTES, unpack

_ROWS: Final = 256
"""Accounts that are read between two pauses, in a millisecond."""
_KEY_BYTES: Final = KEY_BITS // 8
_DATED: Final = Struct(">20sI?24s")
"""Key hash, when the account was as follows, whether it existed, and the rest of its record.

Sorted as bytes, the earliest values of an account come first.
"""
_EXISTED: Final = _KEY_BYTES + 4
_NOW: Final = 2**32 - 1
"""When an account is as its table says: after all undo records."""


class TooFarBack(Exception):
    """The state after a block cannot be had from the tip's by the undo records; the text says why."""


class StateReader:
    """Reads the state after a canonical block, which need not be the tip; within one commit."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self.chain = ChainReader(connection)

    def records(self, height: int, folder: Path, pause: Callable[[], object]) -> Generator[bytes]:
        """The records of all accounts after the canonical block at ``height``, in pieces, of which some are empty.

        Takes as much room on the disk of ``folder`` as what later blocks have changed, and little memory. ``pause`` is
        called between pieces of other work. Raises TooFarBack, Corrupt, and OSError if the disk refuses.
        """
        if self.chain.prune_height() > height + 1:
            raise TooFarBack(f"the undo records of blocks from {height + 1} on are not here")
        with sorting(folder, pause, record_bytes=_DATED.size, key_bytes=_KEY_BYTES) as undone:
            self._add_undone(height, undone, pause)
            now = (
                _DATED.pack(row[0], _NOW, True, pack_account(*row)[_KEY_BYTES:]) for row in self.chain.every_account()
            )
            dated = undone.merged(now)
            while piece := list(islice(dated, _ROWS)):
                yield b"".join([_record(each) for each in piece])

    def _add_undone(self, height: int, undone: ExternalSort, pause: Callable[[], object]) -> None:
        """Add the accounts that blocks above ``height`` have changed, as they were before each."""
        missing = self.chain.existing_tip().height - height
        with self.chain.later_undo(height) as later:
            for age, (data,) in enumerate(later):
                missing -= 1
                for at in range(0, len(data), _ROWS * RECORD_BYTES):
                    before = unpack(data[at : at + _ROWS * RECORD_BYTES])
                    undone.add([_dated(key, age, account) for key, account in before.items()])
                    pause()
        if missing:
            raise Corrupt(f"the undo records of {missing} canonical blocks above height {height} are missing")


def _dated(key: bytes, age: int, account: Account | None) -> bytes:
    if account is None:
        return _DATED.pack(key, age, False, b"")
    record = pack_account(key, account.balance, account.nonce, account.held_since)
    return _DATED.pack(key, age, True, record[_KEY_BYTES:])


def _record(dated: bytes) -> bytes:
    """The account's record in a snapshot; b"" if it did not exist, or nothing is given."""
    existed = dated[_EXISTED : _EXISTED + 1] == b"\1"
    return dated[:_KEY_BYTES] + dated[_EXISTED + 1 :] if existed else b""
