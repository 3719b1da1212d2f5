"""The operator's routes, never on the public endpoint (docs/operator-api.md)."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from attrs import asdict, frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.signature import public_key_of
from svcd.chain_schemas import ADDRESS, COUNT, HASH, NODE_ID, TIME, WHOLE_NUMBER
from svcd.limits import Limit
from svcd.node.backups import Backups
from svcd.node.devnet import MAX_BLOCKS, MAX_DEPTH, Devnet
from svcd.node.miner import Miner
from svcd.node.node_context import NodeContext
from svcd.node.status import Status
from svcd.node.threads import PoolLoad
from svcd.p2p.administration import PeerAdministration
from svcd.rpc.fields import AMOUNT_TYPE
from svcd.store.database_copy import CopyError, NoRoom
from svcd.web.field_types import Bool, Custom, Hex, Int, Schema, Text, or_null
from svcd.web.request import IncomingRequest
from svcd.web.responses import HttpError, Renderable
from svcd.web.routes import Field, Guard, Route, named_object, object_schema, require_bearer

BACKUP_SECONDS: Final = 900.0
MAX_PATH: Final = 4_000
ON_DEMAND: Final = "[participation] onDemand is true, so blocks are made on request: ask for one at /operator/mine"
_DONE: Final = named_object("Done", {}, about="The request has been carried out.")


class _HasToken(Protocol):
    token: str | None


def _check_token(owner: _HasToken, request: IncomingRequest) -> None:
    if owner.token is not None:
        require_bearer(request, owner.token)


BEARER: Final = Guard(401, "The bearer token is missing or wrong.", _check_token, scheme="bearer")
"""Requires the operator's token over TCP; the file mode of the Unix socket is its access control."""


@frozen
class NodeDetails:
    """The state of the node's parts, for the operator.

    ``writer`` is the load of the thread that writes blocks; ``seed`` is the private key of the account that own blocks
    pay, and ``others_turn`` says why another producer must make the next block. ``peers``, ``webhooks`` and ``sweep``
    are None for a node without them.
    """

    node_context: NodeContext
    writer: PoolLoad
    seed: bytes
    participates: Callable[[], bool]
    peers: Callable[[], dict[str, object]] | None
    webhooks: Callable[[], dict[str, object]] | None
    others_turn: Callable[[], str] = lambda: ""
    sweep: Callable[[], dict[str, object]] | None = None
    search: Callable[[], dict[str, object] | None] = lambda: None
    """The search for the next block; None while there is none."""

    def record(self) -> dict[str, object]:
        """The current state as a JSON object."""
        node_context, mempool = self.node_context, self.node_context.transaction_pool.mempool
        address = encode_address(key_hash(public_key_of(self.seed)), node_context.chain_manager.params.address_prefix)
        return {
            "participation": {
                "enabled": self.participates(),
                "address": address,
                "othersTurn": self.others_turn() or None,
                "search": self.search(),
                "sweep": None if self.sweep is None else self.sweep(),
            },
            "mempool": {"transactions": len(mempool), "bytes": mempool.size},
            "verifierQueue": node_context.verifier.waiting,
            "writerQueue": self.writer.waiting,
            "webhooks": None if self.webhooks is None else self.webhooks(),
            "peers": None if self.peers is None else self.peers(),
        }


class ReadyRoute:
    """Readiness."""

    def __init__(self, status: Status, *, token: str | None = None, role: Callable[[], str] | None = None) -> None:
        """``role`` is given where nodes share the database of webhooks: what this one does of their work."""
        self.token = token
        self._status = status
        self._role = role

    @Route(
        "GET",
        "/ready",
        "Whether the node is ready",
        bucket="operator",
        guards=(BEARER,),
        answers={
            200: object_schema(
                {
                    "alarms": {"type": "array", "items": {"type": "string"}},
                    "alone": {
                        "type": "boolean",
                        "description": "Whether the node makes its own chain, and nothing compares it.",
                    },
                    "role": {"type": "string", "enum": ["leader", "standby"]},
                },
                optional=("role",),
            )
        },
        errors={503: "The node is not ready; the sentence says why."},
    )
    def ready(self) -> Renderable:
        """Answer GET /ready."""
        if reason := self._status.unready():
            raise HttpError(503, f"not ready: {reason}")
        alarms = [alarm for alarm in self._status.alarms().values() if alarm]
        role = {} if self._role is None else {"role": self._role()}
        return {"alarms": alarms, "alone": self._status.alone, **role}


class OperatorRoutes(ReadyRoute):
    """Health, readiness and status."""

    def __init__(
        self,
        status: Status,
        *,
        details: Callable[[], dict[str, object]],
        token: str | None,
        role: Callable[[], str] | None = None,
    ) -> None:
        super().__init__(status, token=token, role=role)
        self._details = details

    @Route("GET", "/health", "Whether the process is alive", bucket="operator", answers={200: _DONE})
    def health(self) -> Renderable:
        """Answer GET /health."""
        return {}

    @Route(
        "GET",
        "/operator/status",
        "The node's status in detail",
        bucket="operator",
        guards=(BEARER,),
        answers={200: {"type": "object", "properties": {"status": {"type": "object"}}, "required": ["status"]}},
    )
    def operator_status(self) -> Renderable:
        """Answer GET /operator/status."""
        alarms = {kind: alarm for kind, alarm in self._status.alarms().items() if alarm}
        more = {"behind": self._status.behind or None, "alarms": alarms}
        return {"status": {**self._status.node_status(), **self._status.changes_hash(), **more, **self._details()}}


_STRING: Final[Schema] = {"type": "string"}
_LIMIT: Final = named_object(
    "Limit",
    {
        "name": _STRING,
        "value": {"type": "number", "minimum": 0},
        "unit": _STRING,
        "setting": or_null(_STRING),
        "stops": _STRING,
    },
)


def _limit_record(limit: Limit) -> dict[str, object]:
    return asdict(limit) | {"value": int(limit.value) if limit.value == int(limit.value) else limit.value}


class LimitsRoutes:
    """The table of limits."""

    def __init__(self, limits: Callable[[], Sequence[Limit]], *, token: str | None) -> None:
        self.token = token
        self._limits = limits

    @Route(
        "GET",
        "/operator/limits",
        "Every limit in force, with the attack that it stops",
        bucket="operator",
        guards=(BEARER,),
        answers={200: object_schema({"limits": {"type": "array", "items": _LIMIT}})},
    )
    def limits(self) -> Renderable:
        """Answer GET /operator/limits."""
        return {"limits": [_limit_record(limit) for limit in self._limits()]}


_CHANGED_MERCHANT: Final = named_object(
    "ChangedMerchant", {"name": _STRING, "settings": {"type": "array", "items": _STRING}}
)
_REMOVED_MERCHANT: Final = named_object(
    "RemovedMerchant",
    {"name": _STRING, "watches": COUNT, "undelivered": COUNT},
    about="A merchant that is no longer configured: its active watches, and those with undelivered events.",
)
_CERTIFICATE: Final = named_object(
    "RenewedCertificate", {"file": _STRING, "ends": TIME}, about="A certificate, and when it ends in Unix ms."
)


_TRUST_CLOCK: Final = Field(
    "trustClock",
    Bool(),
    "Whether the computer's clock, which was set, is right: it is trusted at once, even if the answer is 409.",
    default=False,
)


class _Reload(Protocol):
    def __call__(self, *, trust_clock: bool) -> Awaitable[Renderable]: ...


class ReloadRoutes:
    """Reloads the configuration; ``reload`` raises HttpError 409 and changes nothing where that is wrong."""

    def __init__(self, reload: _Reload, *, token: str | None) -> None:
        self.token = token
        self._reload = reload

    @Route(
        "POST",
        "/operator/reload",
        "Read the configuration and the certificates again, and apply what can change while the node runs",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_TRUST_CLOCK,),
        answers={
            200: object_schema(
                {
                    "added": {"type": "array", "items": _STRING},
                    "changed": {"type": "array", "items": _CHANGED_MERCHANT},
                    "removed": {"type": "array", "items": _REMOVED_MERCHANT},
                    "settings": {"type": "array", "items": _STRING},
                    "certificates": {"type": "array", "items": _CERTIFICATE},
                    "left": {"type": "array", "items": _STRING},
                }
            )
        },
        errors={409: "The configuration or a certificate cannot be used; at most the clock is trusted."},
    )
    async def reload(self, trust_clock: bool) -> Renderable:
        """Answer POST /operator/reload."""
        return await self._reload(trust_clock=trust_clock)


_ENABLED: Final = Field("enabled", Bool(), "Whether to make blocks.")


class ParticipationRoutes:
    """Starts and stops making blocks; ``producer`` is None where blocks are made on demand and not searched for."""

    def __init__(self, status: Status, producer: Miner | None, *, token: str | None) -> None:
        self.token = token
        self._status = status
        self._producer = producer

    @Route(
        "POST",
        "/operator/participation",
        "Start or stop making blocks, until the node restarts",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_ENABLED,),
        answers={
            200: object_schema({"enabled": {"type": "boolean"}, "waitsFor": or_null(_STRING)}),
        },
        errors={400: "The field is wrong, or [participation] onDemand is true."},
    )
    async def participation(self, enabled: bool) -> Renderable:
        """Answer POST /operator/participation."""
        if self._producer is None:
            raise HttpError(400, ON_DEMAND)
        await self._producer.switch(enabled)
        now = self._producer.enabled
        waits = self._status.why_no_block or self._producer.waits_for
        return {"enabled": now, "waitsFor": (waits or None) if now else None}


PATH: Final = Field(
    "path",
    Text(
        f"/[^\0]{{0,{MAX_PATH - 1}}}",
        "must be the absolute path of a new folder: the node does not know your working directory",
        Path,
        {"examples": ["/var/backups/svcd/2026-11-22"]},
    ),
    "The absolute path of a folder that does not exist yet.",
)


class BackupRoutes:
    """Backups of the databases."""

    def __init__(self, backups: Backups, *, token: str | None) -> None:
        self.token = token
        self._backups = backups

    @Route(
        "POST",
        "/operator/backup",
        "Copy the databases into a new folder while the node runs",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(PATH,),
        answers={
            200: object_schema(
                {
                    "path": {"type": "string"},
                    "height": WHOLE_NUMBER,
                    "hash": HASH,
                    "files": {"type": "object", "additionalProperties": WHOLE_NUMBER},
                }
            )
        },
        errors={503: "Another backup is being made, the disk cannot be written, or the node is stopping."},
        seconds=BACKUP_SECONDS,
    )
    async def backup(self, path: Path) -> Renderable:
        """Answer POST /operator/backup."""
        try:
            made = await self._backups.make(path)
        except NoRoom as error:
            raise HttpError(503, str(error)) from None
        except CopyError as error:
            raise HttpError(400, str(error)) from None
        sizes = {name: str(size) for name, size in made.sizes.items()}
        return {"path": str(path), "height": str(made.tip.height), "hash": made.tip.hash.hex(), "files": sizes}


_HASHES: Final = named_object("MadeBlocks", {"hashes": {"type": "array", "items": HASH}})
BLOCKS: Final = Field("blocks", Int(1, MAX_BLOCKS), "How many blocks to make.")
FOLLOWING: Final = Field(
    "following", Int(0, MAX_INTEGER), "How many blocks later requests ask for, which need slots too.", default=0
)
PRODUCER: Final = Field("producer", Hex(32), "The seed of the key to pay.", default=None)
DEPTH: Final = Field("depth", Int(1, MAX_DEPTH), "How many blocks to replace.")
DROP: Final = Field(
    "dropTransactions", Bool(), "Whether to drop the transfers of the replaced blocks too.", default=False
)
_RECIPIENT: Final = Field("recipient", Custom(ADDRESS, Text().parse), "The address that gets the coins.")
_AMOUNT: Final = Field("amount", AMOUNT_TYPE, 'How many coins, such as "25" or "0.5".')


class DevnetRoutes:
    """Mining, reorganisations and the faucet."""

    def __init__(self, devnet: Devnet, *, seed: bytes, token: str | None) -> None:
        self.token = token
        self._devnet = devnet
        self._producer = seed

    @Route(
        "POST",
        "/operator/mine",
        "Make blocks at once",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(BLOCKS, FOLLOWING, PRODUCER),
        answers={200: _HASHES},
        seconds=600,
    )
    async def mine(self, blocks: int, following: int, producer: bytes | None) -> Renderable:
        """Answer POST /operator/mine."""
        return _hashes(await self._devnet.mine(blocks, producer or self._producer, following))

    @Route(
        "POST",
        "/operator/reorganise",
        "Replace the newest blocks with a longer branch of empty ones",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(DEPTH, DROP),
        answers={200: _HASHES},
        seconds=600,
    )
    async def reorganise(self, depth: int, drop_transactions: bool) -> Renderable:
        """Answer POST /operator/reorganise."""
        made = await self._devnet.reorganise(depth, self._producer, drop_transactions=drop_transactions)
        return _hashes(made)

    @Route(
        "POST",
        "/operator/faucet",
        "Send coins from the public faucet",
        bucket="operator",
        guards=(BEARER,),
        body_fields=(_RECIPIENT, _AMOUNT),
        answers={200: object_schema({"txid": HASH})},
    )
    async def faucet(self, recipient: str, amount: int) -> Renderable:
        """Answer POST /operator/faucet."""
        return {"txid": (await self._devnet.faucet(recipient, amount)).hex()}


def _hashes(made: list[bytes]) -> Renderable:
    return {"hashes": [block_hash.hex() for block_hash in made]}


MAX_SECONDS: Final = 10 * 365 * 24 * 3_600
_ALONE: Final = "this node has no peers: [p2p] enabled is false"


def _check_peers(owner: "PeerAdminRoutes", _request: IncomingRequest) -> None:
    if owner.administration is None:
        raise HttpError(503, _ALONE)


_WITH_PEERS: Final = Guard(503, "The node has no peers: [p2p] enabled is false.", _check_peers)
_WORK: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$", "examples": ["48"]}
_PEER: Final = named_object(
    "Peer",
    {
        "nodeId": NODE_ID.schema,
        "endpoint": _STRING,
        "address": or_null(_STRING),
        "direction": {"type": "string", "enum": ["outbound", "inbound"]},
        "height": or_null(WHOLE_NUMBER),
        "work": or_null(_WORK),
        "lastSeen": WHOLE_NUMBER,
        "otherChanges": or_null({"type": "boolean"}),
        "failures": COUNT,
    },
)
_BAN: Final = named_object(
    "Ban",
    {
        "kind": {"type": "string", "enum": ["node", "endpoint", "address", "posts"]},
        "name": _STRING,
        "until": or_null(WHOLE_NUMBER),
        "reason": or_null(_STRING),
        "own": {"type": "boolean"},
    },
)
_ENDPOINT: Final = Text(more={"examples": ["http://192.0.2.1:8645"]})
_PLACE: Final = Field("endpoint", _ENDPOINT, "The base address of a node, such as http://192.0.2.1:8645.")
_BANNED: Final = (
    Field("endpoint", _ENDPOINT, "The endpoint to ban.", default=None),
    Field(
        "nodeId",
        Text(more={"examples": NODE_ID.more["examples"]}),
        "The id of the node to ban, at any endpoint.",
        default=None,
    ),
    Field(
        "address",
        Text(more={"examples": ["192.0.2.1"]}),
        "The IP address, or the /64 of IPv6, to ban with all nodes there.",
        default=None,
    ),
)
_ONE_OF: Final = tuple(each.name for each in _BANNED)
_UNNOTED: Final = "The node has no peers ([p2p] enabled is false), or the change was made and cannot be saved to disk."
_SECONDS: Final = Field(
    "seconds",
    Int(1, MAX_SECONDS),
    "The duration in seconds; permanent if absent.",
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
        "All peers, and the bans",
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
        "Add an endpoint to the address book, and connect to it at once",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=(_PLACE,),
        answers={200: object_schema({"peer": or_null(_PEER), "why": or_null(_STRING)})},
    )
    async def add(self, endpoint: str) -> Renderable:
        """Answer POST /operator/peers/add."""
        return await self._administration.add(endpoint)

    @Route(
        "POST",
        "/operator/peers/ban",
        "Ban an endpoint, a node or an address, and drop its peers",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=(*_BANNED, _SECONDS),
        one_of=_ONE_OF,
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
        "Lift all bans of an endpoint, a node or an address",
        bucket="operator",
        guards=(BEARER, _WITH_PEERS),
        body_fields=_BANNED,
        one_of=_ONE_OF,
        answers={200: _DONE},
        errors={404: "It is not banned.", 503: _UNNOTED},
    )
    async def unban(self, endpoint: str | None, node_id: str | None, address: str | None) -> Renderable:
        """Answer POST /operator/peers/unban."""
        return await self._administration.unban(endpoint=endpoint, node_id=node_id, address=address)
