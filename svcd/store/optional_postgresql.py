"""Opens PostgreSQL where psycopg, an extra of the package, is installed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from svcd.store.database import DatabaseError

if TYPE_CHECKING:
    from svcd.store.postgresql import PostgresqlConnection


def postgresql_at(
    uri: str,
    prepare: "Callable[[PostgresqlConnection], None]",
    *,
    resume: "Callable[[PostgresqlConnection], None] | None" = None,
    credentials_in: Path | None = None,
) -> "PostgresqlConnection":
    """A connection to the database that a URI names, not opened yet; see svcd.store.postgresql.

    The URI in the file ``credentials_in`` gives user and password of later connections. Raises DatabaseError if psycopg
    is missing or the URI is not one.
    """
    try:
        from svcd.store.postgresql import PostgresqlConnection, parse_address, read_address
    except ImportError as error:
        raise DatabaseError(
            f"for PostgreSQL, psycopg must be installed: pip install 'svcd[postgresql]' ({error})"
        ) from error
    return PostgresqlConnection(
        parse_address(uri), prepare, resume=resume, credentials=lambda: read_address(credentials_in)
    )
