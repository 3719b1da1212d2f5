"""Starting and stopping to make blocks at the operator's word (docs/operations.md "Operator interface")."""

from collections.abc import Awaitable
from typing import Final, Protocol

from svcd.node.status import Status
from svcd.rpc.operator import BEARER
from svcd.web.answers import Answer
from svcd.web.errors import HttpError
from svcd.web.routing import Field, Route, object_schema, read_boolean

ON_DEMAND: Final = "this node makes blocks on demand ([participation] onDemand is true): ask for them at /operator/mine"


class Switch(Protocol):
    """Makes blocks, or not."""

    @property
    def enabled(self) -> bool:
        """Whether blocks are to be made."""

    def switch(self, enabled: bool) -> Awaitable[object]:
        """Begin or end; done when it is."""


_ENABLED: Final = Field("enabled", read_boolean, {"type": "boolean"}, "Whether to make blocks.")


class ParticipationRoutes:
    """The switch; None for a node that makes blocks on demand only."""

    def __init__(self, status: Status, switch: Switch | None, *, token: str | None) -> None:
        self.token = token
        self._status = status
        self._switch = switch

    @Route(
        "POST",
        "/operator/participation",
        "Start or stop making blocks, until the node is started anew",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_ENABLED,),
        answers={
            200: object_schema({"enabled": {"type": "boolean"}, "waitsFor": {"type": ["string", "null"]}}),
        },
        errors={400: "The field is wrong, or the node makes blocks on demand."},
    )
    async def participation(self, enabled: bool) -> Answer:
        """Answer POST /operator/participation."""
        if self._switch is None:
            raise HttpError(400, ON_DEMAND)
        await self._switch.switch(enabled)
        now = self._switch.enabled
        return {"enabled": now, "waitsFor": (self._status.behind or None) if now else None}
