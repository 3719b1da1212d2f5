"""The signed handshake: hellos, what makes one valid, and their exchange (docs/protocol.md 11)."""

import re
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal, Protocol

from attrs import evolve, frozen
from twisted.logger import Logger

from svcd.chain.address import NODE_ID_PATTERN, node_id
from svcd.chain.encoding import canonical, decimal_u53, exact_fields, hex_bytes, tagged_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.signature import is_valid, public_key_of, sign
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock, milliseconds
from svcd.limits import Limit
from svcd.net.targets import BadTarget, Endpoint
from svcd.node.chain_manager import ChainManager
from svcd.node.status import PROTOCOL_VERSION, SOFTWARE_VERSION
from svcd.p2p.bans import Bans, address_in
from svcd.p2p.transport import FailureKind, PeerCallFailed, Transport
from svcd.recent import Recent

CLOCK_TOLERANCE_MS: Final = 60_000

LIMITS: Final = (
    Limit("age of a hello", CLOCK_TOLERANCE_MS / 1000, "seconds", "A hello from the future, to be used when it suits"),
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
    """Where the node says it can be called, or "". Its spelling is kept, for the signature covers it."""
    signature: bytes = bytes(64)

    @cached_property
    def place(self) -> Endpoint | None:
        """The endpoint in its canonical spelling; None if it names none."""
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
    """The text, as it is: any spelling of an endpoint, or ""."""
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
        raise HelloRefused(Fault.NETWORK, f"this node is of {params.chain_id} with genesis {params.genesis_hash.hex()}")
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
        self._newest: Recent[bytes, int] = Recent(capacity)

    def take(self, hello: Hello) -> None:
        """Remember a hello; raises HelloRefused(REPLAY) if it is not newer than the last one of its key."""
        if hello.timestamp <= self._newest.get(hello.node_key, -1):
            raise HelloRefused(Fault.REPLAY, "a hello at least as new was seen from this key; send a fresh one")
        self._newest[hello.node_key] = hello.timestamp


_AT_ONCE: Final = 8


@frozen
class LocalNode:
    """What every module of p2p needs of this node."""

    params: NetworkParams
    chain_manager: ChainManager
    key: NodeKey
    clock: Clock

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.seconds()

    def hello(self) -> Hello:
        """A fresh signed hello."""
        return self.key.hello(self.params, self.chain_manager.tip, milliseconds(self.clock))


class HandshakeFailed(Exception):
    """There is no acceptable peer at an endpoint; the text says why.

    ``is_own``: the endpoint leads to this node itself; ``timed_out``: no reply came in time; ``retry_after``: the
    seconds for which an overloaded node wants no further call, or 0.0; ``elsewhere``: the endpoint that the hello names
    instead, or "".
    """

    def __init__(
        self, why: str, *, is_own: bool = False, timed_out: bool = False, retry_after: float = 0.0, elsewhere: str = ""
    ) -> None:
        super().__init__(why)
        self.is_own = is_own
        self.timed_out = timed_out
        self.retry_after = retry_after
        self.elsewhere = elsewhere


@frozen
class HandshakeResult:
    """The hello of the node that answered, and its IP address, "" if unknown."""

    hello: Hello
    address: str


class HelloClient(Protocol):
    """Sends hellos to other nodes."""

    @property
    def caller(self) -> Transport:
        """The transport of its calls."""

    async def hello(self, endpoint: Endpoint, ours: Hello, *, call_back: bool = False) -> Hello:
        """The hello with which the node at ``endpoint`` answers ours; raises PeerCallFailed.

        With ``call_back`` that node is asked to call this one.
        """


class Handshakes:
    """The handshakes under way, at most eight, and the newest hello with which each key has answered."""

    log = Logger()

    def __init__(self, node: LocalNode, client: HelloClient, bans: Bans) -> None:
        self.endpoints: set[Endpoint] = set()
        """The endpoints that have not answered yet."""
        self._node = node
        self._client = client
        self._bans = bans
        self._replies = LatestHellos()

    def __len__(self) -> int:
        return len(self.endpoints)

    def may_begin(self, endpoint: Endpoint) -> bool:
        """Whether a handshake with an endpoint may begin: none is under way there, and fewer than eight in all."""
        return endpoint not in self.endpoints and len(self.endpoints) < _AT_ONCE

    async def exchange(self, endpoint: Endpoint, *, call_back: bool = False) -> HandshakeResult:
        """Exchange hellos with the node at an endpoint; ``call_back`` asks it to call this node.

        Raises HandshakeFailed.
        """
        if self._bans.is_endpoint_banned(endpoint, self._node.now()):
            raise HandshakeFailed("it is banned here")
        self.endpoints.add(endpoint)
        try:
            hello = await self._client.hello(endpoint, self._node.hello(), call_back=call_back)
            address = self._client.caller.address_of(endpoint) or address_in(endpoint)
            self._check(endpoint, hello, address)
        except HelloRefused as refused:
            if refused.fault is Fault.SELF:
                raise HandshakeFailed("it is this node itself", is_own=True) from refused
            self.log.info("the hello of {endpoint} is refused: {why}", endpoint=endpoint, why=refused.detail)
            raise HandshakeFailed(f"its hello is refused: {refused.detail}") from refused
        except PeerCallFailed as failed:
            self.log.debug("the handshake with {endpoint} failed: {why}", endpoint=endpoint, why=failed.detail)
            timed_out = failed.kind is FailureKind.TIMEOUT
            raise HandshakeFailed(failed.detail, timed_out=timed_out, retry_after=failed.retry_after) from failed
        finally:
            self.endpoints.discard(endpoint)
        return HandshakeResult(hello, address)

    def _check(self, endpoint: Endpoint, hello: Hello, address: str) -> None:
        node = self._node
        check_hello(hello, node.params, own=node.key.node_id, now=milliseconds(node.clock))
        if hello.place == endpoint:
            # A node that replays the hello of another node must not make that node's own hello look old.
            self._replies.take(hello)
        # The key, and the address behind a name, are known only now.
        if self._bans.forbids(hello.node_id, endpoint, node.now(), address=address):
            raise HandshakeFailed("the node that answers there, or its address, is banned here")
        if hello.place != endpoint:
            said = hello.endpoint or "nothing: it has no publicUrl"
            self.log.info("{endpoint} answers and names as its endpoint {said}", endpoint=endpoint, said=said)
            raise HandshakeFailed(f"it names as its endpoint {said}", elsewhere=hello.endpoint)
