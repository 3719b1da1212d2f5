"""What the node says about itself and its chain (the NodeStatus of docs/http.md)."""

from collections.abc import Callable
from typing import Final, Protocol

from attrs import frozen

from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.node.alarms import STILL_SECONDS, ChainAlarms
from svcd.node.ledger import Ledger
from svcd.ports import Clock, milliseconds

SOFTWARE_VERSION: Final = "0.0.1"
PROTOCOL_VERSION: Final = "1.0"


LONELY: Final = "no verified peer has been met, and [participation] alone is not set"


@frozen
class Neighbourhood:
    """What is known of the other nodes at one moment."""

    known_peers: int
    best_height: int
    """The greatest height that a verified peer has shown; 0 if none has."""
    behind: str
    """Why the tip may not be the network's: a verified peer has shown more work than ours, or none has been met where
    one is needed; "" if nothing speaks against it."""
    usual_height: int = 0
    """The height that more than half of the peers of our choice show, or more; 0 if there is none."""
    unreachable: str = ""
    """Why other nodes seem unable to call this one; "" if nothing is wrong."""


class Peers(Protocol):
    """Whoever knows the other nodes."""

    def neighbourhood(self) -> Neighbourhood:
        """The present state."""


@frozen
class Alone:
    """No peers: a chain founded or tried out by one node, or one that waits for its first peer."""

    accepted: bool
    """Whether the operator has said that being alone is fine; else the node counts as behind."""

    def neighbourhood(self) -> Neighbourhood:
        """See :class:`Peers`."""
        return Neighbourhood(0, 0, "" if self.accepted else LONELY)


@frozen
class Identity:
    """How the node is known to others."""

    node_id: str
    endpoint: str
    """The public URL, or "" for none."""


def _nothing() -> str:
    return ""


class Status:
    """The node's status, made anew for every question."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        identity: Identity,
        peers: Peers,
        clock: Clock,
        trouble: Callable[[], str],
        untrusted_proxy: Callable[[], str] = _nothing,
    ) -> None:
        """Make it; ``trouble`` tells why the node cannot write, "" if it can.

        ``untrusted_proxy`` tells which proxies ask for others without being trusted to, "" if none does.
        """
        self._ledger = ledger
        self._identity = identity
        self._peers = peers
        self._clock = clock
        self._trouble = trouble
        self._untrusted_proxy = untrusted_proxy
        self._header: tuple[bytes, Header] | None = None
        self._outage: tuple[bytes, str] | None = None
        self.history = ChainAlarms(ledger, clock)

    @property
    def synced(self) -> bool:
        """Whether the node may trust its tip to be the network's, and make blocks on it."""
        return not self.behind

    @property
    def behind(self) -> str:
        """Why the tip may not be the network's; "" if nothing speaks against it."""
        return self._peers.neighbourhood().behind

    def standstill(self) -> str:
        """Why the node is left behind although it sees nothing that it could fetch; "" if it is not.

        Two blocks: one may be on its way.
        """
        usual, tip, seconds = self._peers.neighbourhood().usual_height, self._ledger.tip, self.history.still_seconds
        if seconds < STILL_SECONDS or usual < tip.height + 2:
            return ""
        return (
            f"the chain here has stood still at height {tip.height} for {seconds // 60:.0f} minutes "
            f"while most peers show height {usual} or more"
        )

    def unready(self) -> str:
        """Why the node cannot be relied on at present; "" if it can."""
        return self.behind or self.standstill() or self._trouble()

    def alarms(self) -> dict[str, str]:
        """What an operator must look at, by kind (docs/operations.md "Alarms"); an empty sentence is no alarm."""
        return {
            "deep-reorganisation": self.history.deep_reorganisation(),
            "outage": self.outage(),
            "standstill": self.standstill(),
            "disk": self._trouble(),
            "unreachable": self._peers.neighbourhood().unreachable,
            "untrusted-proxy": self._untrusted_proxy(),
        }

    def line(self) -> str:
        """How the node fares in one line, for the service manager (docs/operations.md "systemd")."""
        around, height = self._peers.neighbourhood(), self._ledger.tip.height
        target = f" of {around.best_height}" if around.behind and around.best_height > height else ""
        peers = "1 peer" if around.known_peers == 1 else f"{around.known_peers} peers"
        reason = self.unready()
        # What keeps the node from being ready is said already.
        alarms = [] if reason else [alarm for alarm in self.alarms().values() if alarm]
        fares = f"not ready: {reason}" if reason else "; alarm: ".join(["ready", *alarms])
        return f"height {height}{target}, {peers}, {fares}"

    def outage(self) -> str:
        """What a merchant must know of a recent standstill of the chain, or "" (docs/protocol.md 7).

        While the difficulty pays back a gap that it counts only up to its cap, blocks come with less work each.
        """
        tip = self._ledger.tip
        if self._outage is None or self._outage[0] != tip.hash:
            self._outage = (tip.hash, self._find_outage(tip))
        return self._outage[1]

    def _find_outage(self, tip: ChainPoint) -> str:
        params, reader = self._ledger.params, self._ledger.reader
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

    def revision(self) -> tuple[bytes, Neighbourhood]:
        """What :meth:`node_status` is made of beside the time: while this is the same, so is that."""
        return self._ledger.tip.hash, self._peers.neighbourhood()

    def node_status(self) -> dict[str, object]:
        """The object that GET /rpc/status returns as ``status``."""
        tip, params = self._ledger.tip, self._ledger.params
        around = self._peers.neighbourhood()
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
        tip = self._ledger.tip
        if self._header is None or self._header[0] != tip.hash:
            stored = self._ledger.reader.stored(tip.hash)
            if stored is None:
                raise LookupError(f"the tip {tip.hash.hex()} is not on disk")
            self._header = (tip.hash, self._ledger.reader.block_header(stored, self._ledger.params))
        return self._header[1]
