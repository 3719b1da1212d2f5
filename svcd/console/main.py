"""The command ``svc``, whole: what asks a node over HTTP, and what works on the data of one that is stopped."""

from svcd.console.db_commands import db
from svcd.wallet.cli import svc

__all__ = ["main", "svc"]

svc.add_command(db)


def main() -> None:
    """Run ``svc`` and end the process with its exit status."""
    svc(prog_name="svc")
