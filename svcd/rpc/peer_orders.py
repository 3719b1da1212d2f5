"""The operator's routes about other nodes (docs/operations.md "Operator interface")."""

from typing import Any, Final, Protocol

from svcd.rpc import schemas
from svcd.rpc.operator import BEARER
from svcd.web.answers import Answer
from svcd.web.errors import HttpError
from svcd.web.routing import Asked, Field, Guard, Route, Schema, object_schema, read_text

MAX_SECONDS: Final = 10 * 365 * 24 * 3_600
_ALONE: Final = "this node talks to no others: [p2p] enabled is false"


class Orders(Protocol):
    """The node's peers and bans; what cannot be carried out is an HttpError."""

    def peers(self) -> list[dict[str, object]]:
        """Every peer that is talked to."""

    def bans(self) -> list[dict[str, object]]:
        """The bans that have not ended."""

    async def add(self, endpoint: str) -> dict[str, object]:
        """Note an endpoint and greet it."""

    async def ban(
        self, *, endpoint: str | None, node_id: str | None, address: str | None, seconds: int | None
    ) -> dict[str, object]:
        """Ban one of the three."""

    async def unban(self, *, endpoint: str | None, node_id: str | None, address: str | None) -> dict[str, object]:
        """Lift the bans of one of the three."""


def _check_peers(room: "PeerOrders", _request: Asked) -> None:
    if room.orders is None:
        raise HttpError(503, _ALONE)


_WITH_PEERS: Final = Guard(503, "The node talks to no others.", _check_peers)


def _seconds(value: Any) -> int:
    if type(value) is int and 1 <= value <= MAX_SECONDS:
        return value
    raise ValueError(f"must be a whole number from 1 to {MAX_SECONDS}; leave it out to ban for good")


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_STRING: Final[Schema] = {"type": "string"}
_WORK: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$"}
_NODE_ID: Final[Schema] = {"type": "string", "pattern": "^svcnode_[0-9a-f]{32}$"}
_PEER: Final = object_schema(
    {
        "nodeId": _NODE_ID,
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
_PLACE: Final = Field("endpoint", read_text, _STRING, "The base address of a node, such as http://192.0.2.1:8645.")
_ONE_OF: Final = (
    Field("endpoint", read_text, _STRING, "A place that is not to be called.", required=False),
    Field("nodeId", read_text, _STRING, "A node, wherever it is.", required=False),
    Field("address", read_text, _STRING, "An IP address, or a /64 of IPv6, with everybody there.", required=False),
)
_UNNOTED: Final = "The node talks to no others, or it has done this and cannot note it on the disk."
_SECONDS: Final = Field(
    "seconds",
    _seconds,
    {"type": "integer", "minimum": 1, "maximum": MAX_SECONDS},
    "For how long; for good if absent.",
    required=False,
)


class PeerOrders:
    """Who is talked to, and who must not be; ``orders`` is None for a node without peers."""

    def __init__(self, orders: Orders | None, *, token: str | None) -> None:
        self.orders = orders
        self.token = token

    @property
    def _orders(self) -> Orders:
        if self.orders is None:
            raise HttpError(503, _ALONE)
        return self.orders

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
    def peers(self) -> Answer:
        """Answer GET /operator/peers."""
        return {"peers": self._orders.peers(), "bans": self._orders.bans()}

    @Route(
        "POST",
        "/operator/peers/add",
        "Note an endpoint on the operator's word, and greet it at once",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=(_PLACE,),
        answers={200: object_schema({"peer": _or_null(_PEER), "why": _or_null(_STRING)})},
    )
    async def add(self, endpoint: str) -> Answer:
        """Answer POST /operator/peers/add."""
        return await self._orders.add(endpoint)

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
    async def ban(self, endpoint: str | None, node_id: str | None, address: str | None, seconds: int | None) -> Answer:
        """Answer POST /operator/peers/ban."""
        return await self._orders.ban(endpoint=endpoint, node_id=node_id, address=address, seconds=seconds)

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
    async def unban(self, endpoint: str | None, node_id: str | None, address: str | None) -> Answer:
        """Answer POST /operator/peers/unban."""
        return await self._orders.unban(endpoint=endpoint, node_id=node_id, address=address)
