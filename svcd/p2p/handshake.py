"""The hellos of a handshake: what is in one, its signature, and what makes it valid (docs/protocol.md 11)."""

import re
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal

from attrs import Factory, evolve, field, frozen

from svcd.bounded_dict import BoundedDict
from svcd.chain.address import NODE_ID_PATTERN, node_id
from svcd.chain.encoding import canonical, decimal_u53, exact_fields, hex_bytes, tagged_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.signature import is_valid, public_key_of, sign
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock, milliseconds, unix_seconds
from svcd.limits import limit
from svcd.net.targets import BadTarget, Endpoint
from svcd.node.chain_manager import ChainManager
from svcd.node.news import News
from svcd.node.status import PROTOCOL_VERSION, SOFTWARE_VERSION

CLOCK_TOLERANCE_MS: Final = 1_000 * limit(
    60,
    "age of a hello",
    "seconds",
    "Naming another node's endpoint as one's own, replaying its hello, or keeping one from the future",
)

_FIELDS: Final = frozenset(
    "softwareVersion protocolVersion networkId chainId genesisHash nodeId nodePublicKey height hash timestamp "
    "endpoint signature".split()
)
_VERSION: Final = re.compile(r"[ -~]{0,32}")


class Fault(StrEnum):
    """Why a hello is refused."""

    FORMAT = "format"
    NETWORK = "network"
    VERSION = "version"
    NODE_ID = "node-id"
    SELF = "self"
    CLOCK = "clock"
    REPLAY = "replay"
    SIGNATURE = "signature"


class HelloRefused(Exception):
    """A hello is refused; the text is for its sender."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


@frozen(kw_only=True)
class Hello:
    """A node's description of itself; only its key is proven, the rest are claims."""

    software_version: str
    protocol_version: str
    network_id: int
    chain_id: str
    genesis_hash: bytes
    node_id: str
    node_key: bytes
    """The node's 32-byte public key."""
    height: int
    hash: bytes
    timestamp: int
    """Unix milliseconds."""
    endpoint: str
    """Where the node says it can be called, or "". Its form is kept, for the signature covers it."""
    signature: bytes = bytes(64)

    @cached_property
    def canonical_endpoint(self) -> Endpoint | None:
        """The endpoint in its canonical form; None if it names none."""
        return Endpoint(self.endpoint) if self.endpoint else None

    def fields(self) -> dict[str, object]:
        """The JSON object without its signature."""
        return {
            "softwareVersion": self.software_version,
            "protocolVersion": self.protocol_version,
            "networkId": self.network_id,
            "chainId": self.chain_id,
            "genesisHash": self.genesis_hash.hex(),
            "nodeId": self.node_id,
            "nodePublicKey": self.node_key.hex(),
            "height": str(self.height),
            "hash": self.hash.hex(),
            "timestamp": str(self.timestamp),
            "endpoint": self.endpoint,
        }

    def message(self) -> dict[str, object]:
        """The JSON object with its signature."""
        return {**self.fields(), "signature": self.signature.hex()}

    def signed_hash(self) -> bytes:
        """The 32 bytes that the node's key signs."""
        return tagged_hash("svc/hello/v1", self.genesis_hash + canonical(self.fields()))


@frozen
class NodeKey:
    """The key of this node, and the endpoint where it can be called, "" for none."""

    seed: bytes
    endpoint: Endpoint | Literal[""]

    @cached_property
    def public(self) -> bytes:
        """The 32-byte public key."""
        return public_key_of(self.seed)

    @cached_property
    def node_id(self) -> str:
        """The node id of the key."""
        return node_id(self.public)

    def is_at(self, host: str) -> bool:
        """Whether a request with this ``Host`` came by the endpoint, as seen by its sender (RFC 9110 section 7.2).

        Without a port the host alone is compared: a proxy may leave the port out, as nginx does with ``$host``.
        """
        try:
            called = Endpoint(f"http://{host}")
        except BadTarget:
            return False
        own = Endpoint(self.endpoint) if self.endpoint else None
        names_port = host.endswith(f":{called.port}")
        return own is not None and called.host == own.host and (called.port == own.port or not names_port)

    def hello(self, params: NetworkParams, tip: ChainPoint, now: int) -> Hello:
        """Our signed hello with ``tip`` at the Unix time ``now`` in milliseconds."""
        unsigned = self.unsigned(params, tip, now)
        return evolve(unsigned, signature=sign(self.seed, unsigned.signed_hash()))

    def unsigned(self, params: NetworkParams, tip: ChainPoint, now: int) -> Hello:
        """The same without a signature."""
        return Hello(
            software_version=SOFTWARE_VERSION,
            protocol_version=PROTOCOL_VERSION,
            network_id=params.network_id,
            chain_id=params.chain_id,
            genesis_hash=params.genesis_hash,
            node_id=self.node_id,
            node_key=self.public,
            height=tip.height,
            hash=tip.hash,
            timestamp=now,
            endpoint=self.endpoint,
        )


def parse_hello(value: object) -> Hello:
    """The hello in a JSON object, its fields well formed; raises HelloRefused(FORMAT)."""
    try:
        fields = exact_fields(value, _FIELDS, "hello")
        return Hello(
            software_version=_text(fields, "softwareVersion", _VERSION, "at most 32 printable ASCII characters"),
            protocol_version=_text(fields, "protocolVersion", _VERSION, "at most 32 printable ASCII characters"),
            network_id=_integer(fields["networkId"]),
            chain_id=_text(fields, "chainId", _VERSION, "at most 32 printable ASCII characters"),
            genesis_hash=hex_bytes(fields["genesisHash"], 32, "genesisHash"),
            node_id=_text(fields, "nodeId", re.compile(NODE_ID_PATTERN), "svcnode_ and 32 hex characters"),
            node_key=hex_bytes(fields["nodePublicKey"], 32, "nodePublicKey"),
            height=decimal_u53(fields["height"], "height"),
            hash=hex_bytes(fields["hash"], 32, "hash"),
            timestamp=decimal_u53(fields["timestamp"], "timestamp"),
            endpoint=_endpoint(fields["endpoint"]),
            signature=hex_bytes(fields["signature"], 64, "signature"),
        )
    except RuleViolation as violation:
        raise HelloRefused(Fault.FORMAT, violation.detail) from violation


def _text(fields: dict[str, object], name: str, pattern: re.Pattern[str], form: str) -> str:
    value = fields[name]
    if type(value) is str and pattern.fullmatch(value):
        return value
    raise HelloRefused(Fault.FORMAT, f"{name} must be {form}")


def _integer(value: object) -> int:
    if type(value) is int:
        return value
    raise HelloRefused(Fault.FORMAT, "networkId must be a whole number")


def _endpoint(value: object) -> str:
    """The text, as it is: any form of an endpoint, or ""."""
    if type(value) is not str:
        raise HelloRefused(Fault.FORMAT, "endpoint must be a string")
    try:
        if value:
            Endpoint(value)
    except BadTarget as error:
        raise HelloRefused(Fault.FORMAT, f'{error}, or be ""') from error
    return value


def check_hello(hello: Hello, params: NetworkParams, *, own: str, now: int) -> None:
    """Raise HelloRefused unless the hello is of our network, fresh, signed by its key, and not our own.

    ``own`` is our node id, ``now`` the Unix time in milliseconds. LatestHellos finds replays.
    """
    ours = (params.network_id, params.chain_id, params.genesis_hash)
    if (hello.network_id, hello.chain_id, hello.genesis_hash) != ours:
        raise HelloRefused(
            Fault.NETWORK,
            f"this node is on {params.chain_id} with genesis {params.genesis_hash.hex()}, and the hello is from "
            f"{hello.chain_id} with genesis {hello.genesis_hash.hex()}",
        )
    if hello.protocol_version.split(".")[0] != PROTOCOL_VERSION.split(".")[0]:
        raise HelloRefused(Fault.VERSION, f"this node speaks protocol {PROTOCOL_VERSION}")
    if hello.node_id != node_id(hello.node_key):
        raise HelloRefused(Fault.NODE_ID, "nodeId is not that of nodePublicKey")
    if hello.node_id == own:
        raise HelloRefused(Fault.SELF, "this is our own hello")
    if abs(hello.timestamp - now) > CLOCK_TOLERANCE_MS:
        raise HelloRefused(
            Fault.CLOCK, f"timestamp is {hello.timestamp - now} ms off this node's clock; set the clocks"
        )
    if not is_valid(hello.node_key, hello.signed_hash(), hello.signature):
        raise HelloRefused(Fault.SIGNATURE, "the hello is not signed by nodePublicKey")


class LatestHellos:
    """The newest timestamp of each node key's hellos: one that is not newer is a replay."""

    def __init__(self, capacity: int = 4_096) -> None:
        # The clock tolerance bounds how long a forgotten hello could be replayed.
        self._newest: BoundedDict[bytes, int] = BoundedDict(capacity)

    def take(self, hello: Hello, now: int) -> None:
        """Remember a hello, checked at the Unix time ``now`` in milliseconds.

        Raises HelloRefused(REPLAY) if it is not newer than the last one of its key.
        """
        newest = self._newest.get(hello.node_key, -1)
        # One from the future was taken while this computer's clock was wrong. It must not shut its sender out until
        # then, and is too new to be replayed now.
        if hello.timestamp <= newest <= now + CLOCK_TOLERANCE_MS:
            raise HelloRefused(Fault.REPLAY, "a hello at least as new was seen from this key; send a fresh one")
        self._newest[hello.node_key] = hello.timestamp


@frozen
class LocalNode:
    """What every module of p2p needs of this node."""

    params: NetworkParams
    chain_manager: ChainManager
    key: NodeKey
    clock: Clock
    news: News = field(default=Factory(lambda self: News(self.clock), takes_self=True))

    def now(self) -> float:
        """The node's seconds: the Unix time at the start of the process, and monotonic from then on."""
        return self.clock.seconds()

    @property
    def lead(self) -> float:
        """By how many seconds the computer's clock is ahead of :meth:`now`: it may be set while the node runs."""
        return unix_seconds(self.clock) - self.clock.seconds()

    def unix_milliseconds(self, moment: float) -> int:
        """The Unix time at a moment in the node's seconds; 0 for 0.0, which stands for never."""
        return int((moment + self.lead) * 1000) if moment else 0

    def hello(self) -> Hello:
        """A fresh signed hello."""
        return self.key.hello(self.params, self.chain_manager.tip, milliseconds(self.clock))
