"""The node's status and readiness (the schema STATUS of svcd/rpc/schemas.py has its members)."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.interfaces import milliseconds
from svcd.node.chain_alarms import DEEP, ChainAlarm, ChainAlarms
from svcd.node.chain_manager import ChainManager
from svcd.node.clock_guard import ClockGuard
from svcd.node.network_view import ALONE, NetworkObserver, NetworkView
from svcd.quantities import counted

SOFTWARE_VERSION: Final = "0.0.1"
PROTOCOL_VERSION: Final = "1.0"


OUTAGE_INTERVALS: Final = 20
"""A gap between blocks of so many times the usual one is an outage: it does not happen by chance."""
STILL_SECONDS: Final = 600.0
"""How long the tip may stay the same while other nodes have later blocks."""


def _nothing() -> str:
    return ""


class Status:
    """The node's status, computed for each query."""

    def __init__(
        self,
        chain_manager: ChainManager,
        *,
        node_id: str,
        endpoint: str,
        peers: NetworkObserver,
        guard: ClockGuard,
        trouble: Callable[[], str],
        proxy: Callable[[], str] = _nothing,
        database: Callable[[], str] = _nothing,
        certificate: Callable[[], str] = _nothing,
        webhooks: str = "",
    ) -> None:
        """``endpoint`` is the public URL, "" for none.

        ``trouble`` gives the reason why the node cannot write to its disk, ``database`` that why PostgreSQL does not
        answer, ``proxy`` a sentence about proxies behind which all clients count as one, and
        ``certificate`` one about a certificate of TLS that ends soon; "" for none.
        ``webhooks`` is the reason why webhooks are enabled and cannot work, "" if they can or are not enabled.
        """
        self._chain_manager = chain_manager
        self.node_id = node_id
        """The node's name in the network."""
        self._endpoint = endpoint
        self._peers = peers
        self.guard = guard
        self._clock = guard.clock
        self._trouble = trouble
        self._proxy = proxy
        self._database = database
        self._certificate = certificate
        self._webhooks = webhooks
        self._header_of = lru_cache(1)(self._read_header)
        self._outage_before = lru_cache(1)(self._find_outage)
        self.history = ChainAlarms(chain_manager, guard.clock)

    @property
    def synced(self) -> bool:
        """Whether the tip may be taken for the network's."""
        return not self.behind

    @property
    def why_no_block(self) -> str:
        """Why no block may be made on the tip now; "" if there is no reason."""
        return self._peers.why_no_block() or self.guard.why_no_block()

    @property
    def alone(self) -> bool:
        """Whether the node makes its own chain, which nothing compares with another one."""
        return self._peers.network_view().alone

    @property
    def behind(self) -> str:
        """Why the tip may not be the network's; "" if there is no reason."""
        return self._peers.behind()

    @property
    def current(self) -> bool:
        """Whether the chain is current enough to judge a payment: the node lacks no blocks, and new ones come."""
        return not self._uncertain()

    def _uncertain(self) -> str:
        return self.behind or self.standstill() or self.future()

    def future(self) -> str:
        """Why the tip may not be the network's although no block is missing: its slot lies in the future; "" if not.

        A block may be ``driftSlots`` early. Other nodes take no such chain before its time, and replace it by then.
        """
        params, tip = self._chain_manager.params, self._chain_manager.tip
        ahead = params.slot_time(tip.slot) - milliseconds(self._clock)
        if ahead <= 1000 * params.slot_seconds * params.drift_slots:
            return ""
        return (
            f"the newest block, at height {tip.height}, is {ahead // 1000} s ahead of this computer's clock: the clock "
            "is wrong, or was when the block was made"
        )

    def standstill(self) -> str:
        """Why the node is behind although it has no block to fetch; "" if it is not.

        That is two blocks behind most peers: the latest one may be on its way.
        """
        tip, seconds = self._chain_manager.tip, self.history.still_seconds
        if seconds < STILL_SECONDS or (usual := self._peers.network_view().usual_height) < tip.height + 2:
            return ""
        return (
            f"the chain of this node has been at height {tip.height} for {seconds // 60:.0f} minutes "
            f"while most peers show height {usual} or more"
        )

    def unready(self) -> str:
        """Why the node is not ready; "" if it is."""
        return self._uncertain() or self._trouble() or self._database() or self._webhooks

    def chain_alarms(self) -> list[ChainAlarm]:
        """The alarms that concern merchants, without deep reorganisations, of which the webhooks know by themselves."""
        outage, still = self._outage_before(self._chain_manager.tip), self.standstill()
        alarms = [ChainAlarm("standstill", self._chain_manager.tip.hash.hex(), still)] if still else []
        return alarms if outage is None else [outage, *alarms]

    def alarms(self) -> dict[str, str]:
        """A sentence for each kind of alarm (docs/monitoring.md "Alarms"); "" for no alarm."""
        return {
            DEEP: self.history.deep_reorganisation(),
            "outage": self.outage(),
            "standstill": self.standstill(),
            "clock": self.future() or self.guard.doubt(),
            "disk": self._trouble(),
            "database": self._database(),
            "webhooks": self._webhooks,
            "unreachable": self._peers.network_view().unreachable,
            "producer-changes": self._peers.network_view().producer_changes,
            "proxy": self._proxy(),
            "certificate": self._certificate(),
        }

    def line(self) -> str:
        """The status in one line, for the service manager (docs/monitoring.md)."""
        around, reason = self._peers.network_view(), self.unready()
        # Otherwise the alarms would repeat the reason.
        alarms = [] if reason else [alarm for alarm in self.alarms().values() if alarm]
        ready = ALONE if around.alone else "ready"
        readiness = f"not ready: {reason}" if reason else "; alarm: ".join([ready, *alarms])
        return f"{self._height(around)}, {counted(around.known_peers, 'peer')}, {readiness}"

    def summary(self) -> str:
        """The same in a few words, for a terminal."""
        around, reason = self._peers.network_view(), self.unready()
        peers = "alone" if around.alone else counted(around.known_peers, "peer")
        return f"{self._height(around)}, {peers}" + (f", not ready: {reason}" if reason else "")

    def _height(self, around: NetworkView) -> str:
        height = self._chain_manager.tip.height
        target = f" of {around.best_height}" if around.behind and around.best_height > height else ""
        return f"height {height}{target}"

    def outage(self) -> str:
        """A sentence for merchants about a recent outage of the chain, or "" (docs/protocol.md 7).

        After a gap in the chain the difficulty is too low for a while, and blocks have less work than usual.
        """
        outage = self._outage_before(self._chain_manager.tip)
        return "" if outage is None else outage.sentence

    def _find_outage(self, tip: ChainPoint) -> ChainAlarm | None:
        params, reader = self._chain_manager.params, self._chain_manager.reader
        gap = max(params.gap_cap_slots, OUTAGE_INTERVALS * params.slots_per_block)
        span = params.gap_cap_slots // params.slots_per_block * 6 // 5
        slot = tip.slot
        for height in range(tip.height - 1, max(tip.height - span, 1) - 1, -1):
            stored = reader.canonical(height)
            if stored is None:
                break
            if slot - stored.point.slot >= gap:
                sentence = (
                    f"the chain stood still for {slot - stored.point.slot} slots before block {height + 1}: "
                    f"ask for more confirmations than usual until block {height + span}"
                )
                return ChainAlarm("outage", str(height + 1), sentence)
            slot = stored.point.slot
        return None

    def revision(self) -> tuple[bytes, int, NetworkView]:
        """A key that changes whenever :meth:`node_status` does, apart from its time."""
        manager = self._chain_manager
        return manager.tip.hash, manager.prune_height, self._peers.network_view()

    def changes_hash(self) -> dict[str, object]:
        """The hash of the changes of producers, under its name; nothing if everybody may make blocks."""
        params = self._chain_manager.params
        return {"changesHash": params.changes_hash.hex()} if params.producers else {}

    def node_status(self) -> dict[str, object]:
        """The ``status`` of GET /rpc/status.

        The response is cached by :meth:`revision`: a field that changes without the tip or the network view must be
        part of that key, or the cached response is stale; only ``time`` is exempt.
        """
        tip, params = self._chain_manager.tip, self._chain_manager.params
        around = self._peers.network_view()
        header = self._header_of(tip)
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
            "pruneHeight": str(self._chain_manager.prune_height),
            "nodeId": self.node_id,
            "knownPeerCount": around.known_peers,
            "bestKnownPeerHeight": str(around.best_height),
            "syncLagBlocks": str(max(around.best_height - tip.height, 0)),
            "syncState": "catching-up" if around.behind else "synced",
            "alone": around.alone,
            "time": str(milliseconds(self._clock)),
        }
        if self._endpoint:
            status["endpoint"] = self._endpoint
        return status

    def _read_header(self, tip: ChainPoint) -> Header:
        stored = self._chain_manager.reader.stored(tip.hash)
        if stored is None:
            raise LookupError(f"the tip {tip.hash.hex()} is not on disk")
        return self._chain_manager.reader.block_header(stored, self._chain_manager.params)
