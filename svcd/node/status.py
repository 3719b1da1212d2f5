"""The node's status, readiness and alarms (the schema STATUS of svcd/rpc/schemas.py has its members)."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from attrs import define, field, frozen
from twisted.logger import Logger

from svcd.chain.block import Header
from svcd.chain.transition import ChainPoint
from svcd.interfaces import Clock, milliseconds
from svcd.node.chain_manager import ChainManager
from svcd.node.changes import ChainChange

DEEP: Final = "deep-reorganisation"
"""The kind of that alarm."""
DEEP_BLOCKS: Final = 12
"""The least number of undone blocks of a deep reorganisation, which may undo payments with the usual confirmations."""
DEEP_SECONDS: Final = 86_400.0
"""How long the alarm lasts."""
OUTAGE_INTERVALS: Final = 20
"""A gap between blocks of so many times the usual one is an outage: it does not happen by chance."""
STILL_SECONDS: Final = 600.0
"""How long the tip may stay the same while other nodes have later blocks."""
ALARM_CHECK_SECONDS: Final = 10.0
"""How often the alarms are checked."""


@frozen
class ChainAlarm:
    """A condition of the chain or the node, for events to merchants."""

    kind: str
    """Such as ``outage``."""
    about: str
    """What the alarm is about, such as a height: two alarms of one kind differ in it."""
    sentence: str
    """For people."""


def what_was_undone(first: int, last: int) -> str:
    """A sentence about a deep reorganisation that undid the blocks from height ``first`` to ``last``."""
    return (
        f"a reorganisation undid {last - first + 1} blocks, from height {first} to {last}: "
        "look at payments that were settled in them"
    )


class ChainAlarms:
    """Watches the changes of the chain; what it remembers ends with the process."""

    log = Logger()

    def __init__(self, chain_manager: ChainManager, clock: Clock) -> None:
        self._clock = clock
        self._moved = clock.seconds()
        self._deep: tuple[float, str] | None = None
        self.deep_reorganisations = 0
        """How many there have been since the start."""
        chain_manager.subscribe(self)

    def chain_changed(self, change: ChainChange) -> None:
        """Note the time, and the depth of a reorganisation."""
        self._moved = self._clock.seconds()
        depth = len(change.undone)
        if depth < DEEP_BLOCKS:
            return
        self.deep_reorganisations += 1
        old_tip, first = change.undone[0].point, change.undone[-1].point
        what = what_was_undone(first.height, old_tip.height)
        self._deep = (self._moved, what)
        # With both tips, which are recorded nowhere else.
        self.log.warn(
            "{alarm}; the tip was {old_tip} and is {tip} at height {height}",
            alarm=what,
            old_tip=old_tip.hash.hex(),
            tip=change.tip.hash.hex(),
            height=change.tip.height,
        )

    def deep_reorganisation(self) -> str:
        """A sentence about the last deep reorganisation, for a day; "" if there was none."""
        if self._deep is None or not 0 <= self._clock.seconds() - self._deep[0] < DEEP_SECONDS:
            return ""
        return self._deep[1]

    @property
    def still_seconds(self) -> float:
        """How long the tip has been the same while this process ran."""
        return self._clock.seconds() - self._moved


@define
class AlarmLog:
    """Logs the begin and end of each alarm, and whether the node is in sync with the network.

    ``behind`` gives the reason why the tip may not be the network's, ``alarms`` a sentence for each kind; "" for none.
    """

    behind: Callable[[], str]
    alarms: Callable[[], Mapping[str, str]]
    _in_step: bool | None = field(default=None, init=False)
    _was_behind: bool = field(default=False, init=False)
    _raised: set[str] = field(factory=set, init=False)

    log = Logger()

    def check(self) -> None:
        """Log what has changed; called now and then."""
        self._log_in_step(self.behind())
        for kind, alarm in self.alarms().items():
            if alarm and kind not in self._raised:
                self._raised.add(kind)
                if kind != DEEP:  # That was logged when it happened.
                    self.log.warn("alarm {kind}: {alarm}", kind=kind, alarm=alarm)
            elif not alarm and kind in self._raised:
                self._raised.remove(kind)
                self.log.info("the alarm {kind} is over", kind=kind)

    def _log_in_step(self, why: str) -> None:
        # A new block puts every node behind for a moment, which is not logged.
        lasts = bool(why) and (self._was_behind or self._in_step is None)
        self._was_behind = bool(why)
        if lasts and self._in_step is not False:
            self._in_step = False
            self.log.info("not in sync with the network: {why}", why=why)
        elif not why and not self._in_step:
            self._in_step = True
            self.log.info("in sync with the network")


SOFTWARE_VERSION: Final = "0.0.1"
PROTOCOL_VERSION: Final = "1.0"


NO_PEER_MET: Final = "no verified peer has answered, and [participation] alone is not set"
KNOWN_PEERS_CALLED: Final = "the nodes that were known at the start are being called, and none has answered yet"


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
    producer_changes: str = ""
    """Which peers have other changes of producers than this node, and what to do; "" if none says so."""


class NetworkObserver(Protocol):
    """The source of what is known of the other nodes."""

    def network_view(self) -> NetworkView:
        """The view at present."""

    def behind(self) -> str:
        """``behind`` of the view alone, which is asked for with every payment."""


@frozen
class NoPeers:
    """A node without peers."""

    accepted: bool
    """Whether the operator allows that ([participation] alone); otherwise the node counts as behind."""

    def network_view(self) -> NetworkView:
        """See :class:`NetworkObserver`."""
        return NetworkView(0, 0, self.behind())

    def behind(self) -> str:
        """See :class:`NetworkObserver`."""
        return "" if self.accepted else NO_PEER_MET


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
        clock: Clock,
        trouble: Callable[[], str],
        untrusted_proxy: Callable[[], str] = _nothing,
        database: Callable[[], str] = _nothing,
        certificate: Callable[[], str] = _nothing,
        webhooks: str = "",
    ) -> None:
        """``endpoint`` is the public URL, "" for none.

        ``trouble`` gives the reason why the node cannot write to its disk, ``database`` that why PostgreSQL does not
        answer, ``untrusted_proxy`` a sentence about proxies that forward requests and are not trusted, and
        ``certificate`` one about a certificate of TLS that ends soon; "" for none.
        ``webhooks`` is the reason why webhooks are enabled and cannot work, "" if they can or are not enabled.
        """
        self._chain_manager = chain_manager
        self.node_id = node_id
        """The node's name in the network."""
        self._endpoint = endpoint
        self._peers = peers
        self._clock = clock
        self._trouble = trouble
        self._untrusted_proxy = untrusted_proxy
        self._database = database
        self._certificate = certificate
        self._webhooks = webhooks
        self._header_of = lru_cache(1)(self._read_header)
        self._outage_before = lru_cache(1)(self._find_outage)
        self.history = ChainAlarms(chain_manager, clock)

    @property
    def synced(self) -> bool:
        """Whether the tip may be taken for the network's, and blocks be made on it."""
        return not self.behind

    @property
    def behind(self) -> str:
        """Why the tip may not be the network's; "" if there is no reason."""
        return self._peers.behind()

    @property
    def current(self) -> bool:
        """Whether the chain is current enough to judge a payment: the node lacks no blocks, and new ones come."""
        return not (self.behind or self.standstill())

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
        return self.behind or self.standstill() or self._trouble() or self._database() or self._webhooks

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
            "disk": self._trouble(),
            "database": self._database(),
            "webhooks": self._webhooks,
            "unreachable": self._peers.network_view().unreachable,
            "producer-changes": self._peers.network_view().producer_changes,
            "untrusted-proxy": self._untrusted_proxy(),
            "certificate": self._certificate(),
        }

    def line(self) -> str:
        """The status in one line, for the service manager (docs/monitoring.md)."""
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
