"""The operator's routes, never on the public endpoint (docs/operations.md "Operator interface")."""

import re
from collections.abc import Callable
from typing import Any, Final, Protocol

from svcd.chain.units import parse_amount
from svcd.node.demand import MAX_BLOCKS, MAX_DEPTH, OnDemand
from svcd.node.status import Status
from svcd.rpc import schemas
from svcd.web.answers import Answer
from svcd.web.bearer import require_bearer
from svcd.web.errors import HttpError
from svcd.web.routing import Asked, Field, Guard, Route, Schema, object_schema, read_boolean, read_text

_SEED: Final = re.compile(r"[0-9a-f]{64}")
_HASHES: Final = object_schema({"hashes": {"type": "array", "items": schemas.HASH}})


class _Guarded(Protocol):
    token: str | None


def _check_token(room: _Guarded, request: Asked) -> None:
    if room.token is not None:
        require_bearer(request, room.token)


BEARER: Final = Guard(401, "The bearer token is missing or wrong.", _check_token, scheme="bearer")
"""Over TCP the operator shows a token; a Unix socket is guarded by its mode."""


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        raise ValueError(f"must be a whole number from {least} to {most}")

    return parse


def _seed(value: Any) -> bytes:
    if type(value) is str and _SEED.fullmatch(value):
        return bytes.fromhex(value)
    raise ValueError("must be the seed of a devnet key: 64 lower-case hex characters")


def _number(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


_BLOCKS: Final = Field("blocks", _whole(1, MAX_BLOCKS), _number(1, MAX_BLOCKS), "How many blocks to make.")
_PRODUCER: Final = Field(
    "producer", _seed, {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "The seed of the key to pay.", required=False
)
_DEPTH: Final = Field("depth", _whole(1, MAX_DEPTH), _number(1, MAX_DEPTH), "How many blocks to replace.")
_DROP: Final = Field(
    "dropTransactions",
    read_boolean,
    {"type": "boolean", "default": False},
    "Whether the transfers of the blocks that fall out are forgotten too.",
    required=False,
    default=False,
)
_RECIPIENT: Final = Field("recipient", read_text, schemas.ADDRESS, "The address that gets the coins.")
_AMOUNT: Final = Field("amount", parse_amount, {"type": "string"}, 'How many coins, such as "25" or "0.5".')


class OperatorRoutes:
    """How the node fares."""

    def __init__(self, status: Status, *, details: Callable[[], dict[str, object]], token: str | None) -> None:
        self.token = token
        self._status = status
        self._details = details

    @Route("GET", "/health", "Whether the process works", bucket="operator", answers={200: object_schema({})})
    def health(self) -> Answer:
        """Answer GET /health."""
        return {}

    @Route(
        "GET",
        "/ready",
        "Whether the node can be relied on",
        bucket="operator",
        guards=(BEARER,),
        answers={200: object_schema({"alarms": {"type": "array", "items": {"type": "string"}}})},
        errors={503: "The node is not ready; the sentence says why."},
    )
    def ready(self) -> Answer:
        """Answer GET /ready."""
        if reason := self._status.unready():
            raise HttpError(503, f"not ready: {reason}")
        return {"alarms": [alarm for alarm in self._status.alarms().values() if alarm]}

    @Route(
        "GET",
        "/operator/status",
        "How the node fares, in detail",
        bucket="operator",
        guards=(BEARER,),
        answers={200: {"type": "object", "properties": {"status": {"type": "object"}}, "required": ["status"]}},
    )
    def operator_status(self) -> Answer:
        """Answer GET /operator/status."""
        alarms = {kind: alarm for kind, alarm in self._status.alarms().items() if alarm}
        answers = {"behind": self._status.behind or None, "alarms": alarms}
        return {"status": {**self._status.node_status(), **answers, **self._details()}}


class DevnetRoutes:
    """Blocks, reorganisations and coins at the operator's word; on devnet only."""

    def __init__(self, demand: OnDemand, *, seed: bytes, token: str | None) -> None:
        self.token = token
        self._demand = demand
        self._producer = seed

    @Route(
        "POST",
        "/operator/mine",
        "Make blocks at once",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_BLOCKS, _PRODUCER),
        answers={200: _HASHES},
        seconds=600,
    )
    async def mine(self, blocks: int, producer: bytes | None) -> Answer:
        """Answer POST /operator/mine."""
        return _hashes(await self._demand.mine(blocks, producer or self._producer))

    @Route(
        "POST",
        "/operator/reorganise",
        "Replace the newest blocks by a longer branch of empty ones",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_DEPTH, _DROP),
        answers={200: _HASHES},
        seconds=600,
    )
    async def reorganise(self, depth: int, drop_transactions: bool) -> Answer:
        """Answer POST /operator/reorganise."""
        made = await self._demand.reorganise(depth, self._producer, drop_transactions=drop_transactions)
        return _hashes(made)

    @Route(
        "POST",
        "/operator/faucet",
        "Send coins from the public faucet",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_RECIPIENT, _AMOUNT),
        answers={200: object_schema({"txid": schemas.HASH})},
    )
    async def faucet(self, recipient: str, amount: int) -> Answer:
        """Answer POST /operator/faucet."""
        return {"txid": (await self._demand.faucet(recipient, amount)).hex()}


def _hashes(made: list[bytes]) -> Answer:
    return {"hashes": [block_hash.hex() for block_hash in made]}
