"""By which changes of the producers the canonical chain has been checked, so that a start need not read all headers."""

from svcd.store import database
from svcd.store.database import DatabaseConnection


class CheckedProducers:
    """The hash of these changes, which stays right as long as every further block is checked by them."""

    def __init__(self, connection: DatabaseConnection) -> None:
        self._db = connection

    def has(self, changes: bytes) -> bool:
        """Whether it is the hash ``changes``."""
        return self._db.execute("SELECT 1 FROM checked_producers WHERE changes = ?", (changes,)).fetchone() is not None

    def set(self, changes: bytes) -> None:
        """Note that all canonical blocks have been checked by the changes with the hash ``changes``, in a commit."""
        with database.transaction(self._db):
            self._db.execute("REPLACE INTO checked_producers VALUES (1, ?)", (changes,))
