"""The node's status, readiness and alarms (NodeStatus of docs/http.md)."""

from collections.abc import Callable
from typing import Final, Protocol

from attrs import frozen

from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock, milliseconds
from svcd.node.alarms import STILL_SECONDS, ChainAlarms
from svcd.node.chain_manager import ChainManager

SOFTWARE_VERSION: Final = "0.0.1"
PROTOCOL_VERSION: Final = "1.0"


NO_PEER_MET: Final = "no verified peer has been met, and [participation] alone is not set"


@frozen
class NetworkView:
    """What the node knows of the other nodes."""

    known_peers: int
    best_height: int
    """The greatest height that a verified peer has shown; 0 for none."""
    behind: str
    """Why the tip may not be the network's: a verified peer has shown more work, or a peer is needed and none has been
    met; "" if there is no reason."""
    usual_height: int = 0
    """The greatest height that more than half of the outbound peers have; 0 if there is none."""
    unreachable: str = ""
    """Why other nodes seem unable to connect to this one; "" for no reason."""


class NetworkObserver(Protocol):
    """The source of what is known of the other nodes."""

    def network_view(self) -> NetworkView:
        """The view at present."""


@frozen
class NoPeers:
    """A node without peers."""

    accepted: bool
    """Whether the operator allows that ([participation] alone); otherwise the node counts as behind."""

    def network_view(self) -> NetworkView:
        """See :class:`NetworkObserver`."""
        return NetworkView(0, 0, "" if self.accepted else NO_PEER_MET)


@frozen
class NodeIdentity:
    """The node's identity in the network."""

    node_id: str
    endpoint: str
    """The public URL; "" for none."""


def _nothing() -> str:
    return ""


class Status:
    """The node's status, computed for each query."""

    def __init__(
        self,
        chain_manager: ChainManager,
        *,
        identity: NodeIdentity,
        peers: NetworkObserver,
        clock: Clock,
        trouble: Callable[[], str],
        untrusted_proxy: Callable[[], str] = _nothing,
    ) -> None:
        """``trouble`` gives the reason why the node cannot write to its disk, "" if it can.

        ``untrusted_proxy`` gives a sentence about proxies that forward requests and are not trusted, "" for none.
        """
        self._chain_manager = chain_manager
        self._identity = identity
        self._peers = peers
        self._clock = clock
        self._trouble = trouble
        self._untrusted_proxy = untrusted_proxy
        self._header: tuple[bytes, Header] | None = None
        self._outage: tuple[bytes, str] | None = None
        self.history = ChainAlarms(chain_manager, clock)

    @property
    def synced(self) -> bool:
        """Whether the tip may be taken for the network's, and blocks be made on it."""
        return not self.behind

    @property
    def behind(self) -> str:
        """Why the tip may not be the network's; "" if there is no reason."""
        return self._peers.network_view().behind

    @property
    def current(self) -> bool:
        """Whether what the chain says of a payment may be relied on: the node neither catches up nor stands still."""
        return not (self.behind or self.standstill())

    def standstill(self) -> str:
        """Why the node is behind although it has no block to fetch; "" if it is not.

        That is two blocks behind most peers: the latest one may be on its way.
        """
        tip, seconds = self._chain_manager.tip, self.history.still_seconds
        if seconds < STILL_SECONDS or (usual := self._peers.network_view().usual_height) < tip.height + 2:
            return ""
        return (
            f"the chain here has stood still at height {tip.height} for {seconds // 60:.0f} minutes "
            f"while most peers show height {usual} or more"
        )

    def unready(self) -> str:
        """Why the node is not ready; "" if it is."""
        return self.behind or self.standstill() or self._trouble()

    def alarms(self) -> dict[str, str]:
        """A sentence for each kind of alarm (docs/operations.md "Alarms"); "" for no alarm."""
        return {
            "deep-reorganisation": self.history.deep_reorganisation(),
            "outage": self.outage(),
            "standstill": self.standstill(),
            "disk": self._trouble(),
            "unreachable": self._peers.network_view().unreachable,
            "untrusted-proxy": self._untrusted_proxy(),
        }

    def line(self) -> str:
        """The status in one line, for the service manager (docs/operations.md "systemd")."""
        around, height = self._peers.network_view(), self._chain_manager.tip.height
        target = f" of {around.best_height}" if around.behind and around.best_height > height else ""
        peers = "1 peer" if around.known_peers == 1 else f"{around.known_peers} peers"
        reason = self.unready()
        # Otherwise the alarms would repeat the reason.
        alarms = [] if reason else [alarm for alarm in self.alarms().values() if alarm]
        readiness = f"not ready: {reason}" if reason else "; alarm: ".join(["ready", *alarms])
        return f"height {height}{target}, {peers}, {readiness}"

    def outage(self) -> str:
        """A sentence for merchants about a recent outage of the chain, or "" (docs/protocol.md 7).

        After a gap in the chain the difficulty is too low for a while, and blocks have less work than usual.
        """
        tip = self._chain_manager.tip
        if self._outage is None or self._outage[0] != tip.hash:
            self._outage = (tip.hash, self._find_outage(tip))
        return self._outage[1]

    def _find_outage(self, tip: ChainPoint) -> str:
        params, reader = self._chain_manager.params, self._chain_manager.reader
        span = params.gap_cap_slots // params.slots_per_block * 6 // 5
        slot = tip.slot
        for height in range(tip.height - 1, max(tip.height - span, 1) - 1, -1):
            stored = reader.canonical(height)
            if stored is None:
                break
            if slot - stored.point.slot >= params.gap_cap_slots:
                return (
                    f"the chain stood still for {slot - stored.point.slot} slots before block {height + 1}: "
                    f"ask for more confirmations than usual until block {height + span}"
                )
            slot = stored.point.slot
        return ""

    def revision(self) -> tuple[bytes, NetworkView]:
        """A key that changes whenever :meth:`node_status` does, apart from its time."""
        return self._chain_manager.tip.hash, self._peers.network_view()

    def node_status(self) -> dict[str, object]:
        """The ``status`` of GET /rpc/status.

        The response is cached by :meth:`revision`: a field that changes without the tip or the network view must be
        part of that key, or the cached response is stale; only ``time`` is exempt.
        """
        tip, params = self._chain_manager.tip, self._chain_manager.params
        around = self._peers.network_view()
        header = self._tip_header()
        status: dict[str, object] = {
            "softwareVersion": SOFTWARE_VERSION,
            "protocolVersion": PROTOCOL_VERSION,
            "networkId": params.network_id,
            "chainId": params.chain_id,
            "genesisHash": params.genesis_hash.hex(),
            "height": str(tip.height),
            "slot": str(tip.slot),
            "hash": tip.hash.hex(),
            "stateRoot": header.state_root.hex(),
            "consensusRoot": header.consensus_root.hex(),
            "nodeId": self._identity.node_id,
            "knownPeerCount": around.known_peers,
            "bestKnownPeerHeight": str(around.best_height),
            "syncLagBlocks": str(max(around.best_height - tip.height, 0)),
            "syncState": "catching-up" if around.behind else "synced",
            "time": str(milliseconds(self._clock)),
        }
        if self._identity.endpoint:
            status["endpoint"] = self._identity.endpoint
        return status

    def _tip_header(self) -> Header:
        tip = self._chain_manager.tip
        if self._header is None or self._header[0] != tip.hash:
            stored = self._chain_manager.reader.stored(tip.hash)
            if stored is None:
                raise LookupError(f"the tip {tip.hash.hex()} is not on disk")
            self._header = (tip.hash, self._chain_manager.reader.block_header(stored, self._chain_manager.params))
        return self._header[1]
