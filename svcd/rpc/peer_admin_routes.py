"""The operator's routes about other nodes (docs/operations.md "Operator interface")."""

from typing import Final

from svcd.p2p.administration import PeerAdministration
from svcd.rpc import schemas
from svcd.rpc.operator_routes import BEARER
from svcd.web.field_types import Int, Schema, Text
from svcd.web.responses import HttpError, Renderable
from svcd.web.routes import Field, Guard, IncomingRequest, Route, object_schema

MAX_SECONDS: Final = 10 * 365 * 24 * 3_600
_ALONE: Final = "this node talks to no others: [p2p] enabled is false"


def _check_peers(owner: "PeerAdminRoutes", _request: IncomingRequest) -> None:
    if owner.administration is None:
        raise HttpError(503, _ALONE)


_WITH_PEERS: Final = Guard(503, "The node talks to no others.", _check_peers)


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STRING: Final[Schema] = {"type": "string"}
_WORK: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}
_PEER: Final = object_schema(
    {
        "nodeId": schemas.NODE_ID,
        "endpoint": _STRING,
        "address": _or_null(_STRING),
        "direction": {"enum": ["outbound", "inbound"]},
        "height": _or_null(schemas.DECIMAL),
        "work": _or_null(_WORK),
        "lastSeen": schemas.DECIMAL,
        "failures": schemas.COUNT,
    }
)
_BAN: Final = object_schema(
    {
        "kind": {"enum": ["node", "endpoint", "address", "posts"]},
        "name": _STRING,
        "until": _or_null(schemas.DECIMAL),
        "reason": _or_null(_STRING),
        "own": {"type": "boolean"},
    }
)
_PLACE: Final = Field("endpoint", Text(), "The base address of a node, such as http://192.0.2.1:8645.")
_ONE_OF: Final = (
    Field("endpoint", Text(), "A place that is not to be called.", default=None),
    Field("nodeId", Text(), "A node, wherever it is.", default=None),
    Field("address", Text(), "An IP address, or a /64 of IPv6, with everybody there.", default=None),
)
_UNNOTED: Final = "The node talks to no others, or it has done this and cannot note it on the disk."
_SECONDS: Final = Field(
    "seconds",
    Int(1, MAX_SECONDS),
    "For how long; for good if absent.",
    default=None,
)


class PeerAdminRoutes:
    """Connected, added and banned peers; ``administration`` is None for a node without peers."""

    def __init__(self, administration: PeerAdministration | None, *, token: str | None) -> None:
        self.administration = administration
        self.token = token

    @property
    def _administration(self) -> PeerAdministration:
        if self.administration is None:
            raise HttpError(503, _ALONE)
        return self.administration

    @Route(
        "GET",
        "/operator/peers",
        "Every peer that is talked to, and the bans",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        answers={
            200: object_schema({"peers": {"type": "array", "items": _PEER}, "bans": {"type": "array", "items": _BAN}})
        },
    )
    def peers(self) -> Renderable:
        """Answer GET /operator/peers."""
        return {"peers": self._administration.peers(), "bans": self._administration.bans()}

    @Route(
        "POST",
        "/operator/peers/add",
        "Note an endpoint on the operator's word, and greet it at once",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=(_PLACE,),
        answers={200: object_schema({"peer": _or_null(_PEER), "why": _or_null(_STRING)})},
    )
    async def add(self, endpoint: str) -> Renderable:
        """Answer POST /operator/peers/add."""
        return await self._administration.add(endpoint)

    @Route(
        "POST",
        "/operator/peers/ban",
        "Ban an endpoint, a node or an address, and talk no more to whoever that is",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=(*_ONE_OF, _SECONDS),
        answers={200: object_schema({"ban": _BAN, "dropped": {"type": "array", "items": _STRING}})},
        errors={503: _UNNOTED},
    )
    async def ban(
        self, endpoint: str | None, node_id: str | None, address: str | None, seconds: int | None
    ) -> Renderable:
        """Answer POST /operator/peers/ban."""
        return await self._administration.ban(endpoint=endpoint, node_id=node_id, address=address, seconds=seconds)

    @Route(
        "POST",
        "/operator/peers/unban",
        "Lift the bans of an endpoint, a node or an address, whoever made them",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=_ONE_OF,
        answers={200: object_schema({})},
        errors={404: "It is not banned.", 503: _UNNOTED},
    )
    async def unban(self, endpoint: str | None, node_id: str | None, address: str | None) -> Renderable:
        """Answer POST /operator/peers/unban."""
        return await self._administration.unban(endpoint=endpoint, node_id=node_id, address=address)
