"""The signed handshake: hellos, what makes one valid, and their exchange (docs/protocol.md 11)."""

import re
from enum import StrEnum
from functools import cached_property
from typing import Final, Literal, Protocol

from attrs import evolve, frozen
from twisted.logger import Logger

from svcd.chain.address import node_id
from svcd.chain.encoding import canonical, decimal_u53, exact_fields, hex_bytes, tagged_hash
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.signature import is_valid, public_key_of, sign
from svcd.chain.transition import ChainPoint
from svcd.net.endpoint import Endpoint
from svcd.net.targets import BadTarget
from svcd.node.ledger import Ledger
from svcd.node.recent import Recent
from svcd.node.status import PROTOCOL_VERSION, SOFTWARE_VERSION
from svcd.p2p.bans import Bans, address_in
from svcd.p2p.transport import CallFailed, Transport, Trouble
from svcd.ports import Clock, milliseconds

CLOCK_TOLERANCE_MS: Final = 60_000
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
    """A hello does not prove what it says; the text is fit to be shown to its sender."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(fault, detail)
        self.fault = fault
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


@frozen(kw_only=True)
class Hello:
    """What a node says of itself; only its key is proven, the rest is a claim."""

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
    """Where the node says it can be called, or "": as it spells that, for the signature covers the spelling."""
    signature: bytes = bytes(64)

    @cached_property
    def place(self) -> Endpoint | None:
        """Where the node says it can be called, whatever the spelling; None for nowhere."""
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
    """Our own key as a node, and where we can be called ("" for nowhere)."""

    seed: bytes
    endpoint: Endpoint | Literal[""]

    @cached_property
    def public(self) -> bytes:
        """The 32-byte public key."""
        return public_key_of(self.seed)

    @cached_property
    def node_id(self) -> str:
        """The id under which others know us."""
        return node_id(self.public)

    def hello(self, params: NetworkParams, tip: ChainPoint, now: int) -> Hello:
        """Our signed hello with ``tip`` at the Unix time ``now`` in milliseconds."""
        unsigned = self.unsigned(params, tip, now)
        return evolve(unsigned, signature=sign(self.seed, unsigned.signed_hash()))

    def unsigned(self, params: NetworkParams, tip: ChainPoint, now: int) -> Hello:
        """The same without a signature."""
        public = self.public
        return Hello(
            software_version=SOFTWARE_VERSION,
            protocol_version=PROTOCOL_VERSION,
            network_id=params.network_id,
            chain_id=params.chain_id,
            genesis_hash=params.genesis_hash,
            node_id=node_id(public),
            node_key=public,
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
            node_id=_text(fields, "nodeId", re.compile("svcnode_[0-9a-f]{32}"), "svcnode_ and 32 hex characters"),
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

    ``own`` is our node id, ``now`` the Unix time in milliseconds. Replays are for whoever remembers earlier hellos.
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
    """The newest timestamp that each node key has shown: an older or equal one is a replay."""

    def __init__(self, capacity: int = 4_096) -> None:
        # The clock tolerance bounds how long a forgotten hello could be replayed.
        self._newest: Recent[bytes, int] = Recent(capacity)

    def take(self, hello: Hello) -> None:
        """Remember the hello; raises HelloRefused(REPLAY) for one that is not newer than the last."""
        if hello.timestamp <= self._newest.get(hello.node_key, -1):
            raise HelloRefused(Fault.REPLAY, "a hello at least as new was seen from this key; send a fresh one")
        self._newest[hello.node_key] = hello.timestamp


_AT_ONCE: Final = 8


@frozen
class LocalNode:
    """What every part of this room needs to know of the node it belongs to."""

    params: NetworkParams
    ledger: Ledger
    key: NodeKey
    clock: Clock

    def now(self) -> float:
        """Unix seconds."""
        return self.clock.seconds()

    def hello(self) -> Hello:
        """A fresh signed hello."""
        return self.key.hello(self.params, self.ledger.tip, milliseconds(self.clock))


class HandshakeFailed(Exception):
    """Nobody at an endpoint whom we would talk to; the text is a sentence about it.

    ``is_ours``: we are there ourselves; ``is_lost``: no answer came in time; ``rest``: for so many seconds the node
    there wants to be left alone, 0.0 if that is not why; ``elsewhere`` is the endpoint that whoever answered names
    instead, or "".
    """

    def __init__(
        self, why: str, *, is_ours: bool = False, is_lost: bool = False, rest: float = 0.0, elsewhere: str = ""
    ) -> None:
        super().__init__(why)
        self.is_ours = is_ours
        self.is_lost = is_lost
        self.rest = rest
        self.elsewhere = elsewhere


@frozen
class HandshakeResult:
    """Who answered, and at which IP address; "" where that is not known."""

    hello: Hello
    address: str


class HelloClient(Protocol):
    """Sends hellos to other nodes."""

    @property
    def caller(self) -> Transport:
        """How the calls are made."""

    async def hello(self, endpoint: Endpoint, ours: Hello, *, call_back: bool = False) -> Hello:
        """The hello that the node at ``endpoint`` answers with; raises CallFailed.

        With ``call_back`` that node is asked to call this one.
        """


class Handshakes:
    """Those that are under way, at most eight, and the newest hello that each key has answered with."""

    log = Logger()

    def __init__(self, home: LocalNode, client: HelloClient, bans: Bans) -> None:
        self.endpoints: set[Endpoint] = set()
        """Where we are waiting for an answer."""
        self._home = home
        self._client = client
        self._bans = bans
        self._replies = LatestHellos()

    def __len__(self) -> int:
        return len(self.endpoints)

    def may_begin(self, endpoint: Endpoint) -> bool:
        """Whether an endpoint may be greeted now: it is not being greeted yet, and there is room."""
        return endpoint not in self.endpoints and len(self.endpoints) < _AT_ONCE

    async def exchange(self, endpoint: Endpoint, *, call_back: bool = False) -> HandshakeResult:
        """The hello of the node that listens at an endpoint, which ``call_back`` asks to call this node.

        Raises HandshakeFailed.
        """
        if self._bans.shut_out(endpoint, self._home.now()):
            raise HandshakeFailed("it is banned here")
        self.endpoints.add(endpoint)
        try:
            hello = await self._client.hello(endpoint, self._home.hello(), call_back=call_back)
            address = self._client.caller.address_of(endpoint) or address_in(endpoint)
            self._check(endpoint, hello, address)
        except HelloRefused as refused:
            if refused.fault is Fault.SELF:
                raise HandshakeFailed("it is this node itself", is_ours=True) from refused
            self.log.info("{endpoint} is no peer of ours: {why}", endpoint=endpoint, why=refused.detail)
            raise HandshakeFailed(f"its hello is refused: {refused.detail}") from refused
        except CallFailed as failed:
            self.log.debug("{endpoint} cannot be greeted: {why}", endpoint=endpoint, why=failed.detail)
            is_lost = failed.trouble is Trouble.TIMEOUT
            raise HandshakeFailed(failed.detail, is_lost=is_lost, rest=failed.rest) from failed
        finally:
            self.endpoints.discard(endpoint)
        return HandshakeResult(hello, address)

    def _check(self, endpoint: Endpoint, hello: Hello, address: str) -> None:
        home = self._home
        check_hello(hello, home.params, own=home.key.node_id, now=milliseconds(home.clock))
        if hello.place == endpoint:
            # Somebody who hands on the hello of another node must not make that node's own look old.
            self._replies.take(hello)
        # Only now is it known who is there, and where a name leads.
        if self._bans.forbids(hello.node_key, endpoint, address, home.now()):
            raise HandshakeFailed("the node that answers there, or its address, is banned here")
        if hello.place != endpoint:
            said = hello.endpoint or "nothing: it has no publicUrl"
            self.log.info("{endpoint} answers and names as its endpoint {said}", endpoint=endpoint, said=said)
            raise HandshakeFailed(f"it names as its endpoint {said}", elsewhere=hello.endpoint)
