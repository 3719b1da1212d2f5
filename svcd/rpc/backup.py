"""The operator's route to a copy of the databases (docs/operations.md "Backup")."""

from pathlib import Path
from typing import Any, Final, Protocol

from svcd.node.backups import Backup
from svcd.rpc import schemas
from svcd.rpc.operator import BEARER
from svcd.store.copying import CopyError, NoRoom
from svcd.web.answers import Answer
from svcd.web.errors import HttpError
from svcd.web.routing import Field, Route, object_schema

SECONDS: Final = 900.0
MAX_PATH: Final = 4_000


class Copier(Protocol):
    """Makes backups."""

    async def make(self, folder: Path) -> Backup:
        """Copy everything into a new ``folder``; raises CopyError or NotYet."""


def _folder(value: Any) -> Path:
    if type(value) is not str or not value.startswith("/") or "\0" in value or len(value) > MAX_PATH:
        raise ValueError(
            "must be the whole path of a new folder, from / on: the node does not know in which folder you are"
        )
    return Path(value)


_PATH: Final = Field(
    "path", _folder, {"type": "string", "pattern": "^/"}, "The whole path of a folder that is not there yet."
)


class BackupRoutes:
    """Copies of the databases at the operator's word."""

    def __init__(self, copier: Copier, *, token: str | None) -> None:
        self.token = token
        self._copier = copier

    @Route(
        "POST",
        "/operator/backup",
        "Copy the databases into a new folder while the node goes on",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_PATH,),
        answers={
            200: object_schema(
                {
                    "path": {"type": "string"},
                    "height": schemas.DECIMAL,
                    "hash": schemas.HASH,
                    "files": {"type": "object", "additionalProperties": schemas.DECIMAL},
                }
            )
        },
        errors={503: "Another backup is being made, the disk does not take it, or the node stops."},
        seconds=SECONDS,
    )
    async def backup(self, path: Path) -> Answer:
        """Answer POST /operator/backup."""
        try:
            made = await self._copier.make(path)
        except NoRoom as error:
            raise HttpError(503, str(error)) from None
        except CopyError as error:
            raise HttpError(400, str(error)) from None
        sizes = {name: str(size) for name, size in made.sizes.items()}
        return {"path": str(path), "height": str(made.tip.height), "hash": made.tip.hash.hex(), "files": sizes}
