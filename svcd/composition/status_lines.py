"""The log lines at the start of a node, the heartbeats of its block production, and the status line of a terminal."""

from typing import Any, Final

from attrs import define, field
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svcd.composition.resources import NodeResources
from svcd.node.miner import Miner
from svcd.node.status import Status
from svcd.p2p.service import PeerNetwork
from svcd.process.logs import TerminalObserver
from svcd.process.timers import Periodic
from svcd.quantities import counted, duration

_OFTEN_MINUTES: Final = 10
"""How long there is a heartbeat every minute; later there is one in so many minutes."""
_STATUS_SECONDS: Final = 1.0


def has_heartbeat(minute: int) -> bool:
    """Whether a node says in this minute after its start how it searches for a block."""
    return minute > 0 and (minute <= _OFTEN_MINUTES or minute % _OFTEN_MINUTES == 0)


@define
class BlockProduction:
    """Who makes the next block, and what is waited for."""

    status: Status
    enabled: bool
    """Whether blocks are made on demand, where there is no miner."""
    miner: Miner | None
    """None where a devnet makes blocks on demand, and perhaps besides every so many seconds."""
    every: int = 0
    """The seconds between the blocks that are made without demand; 0 if none is."""

    def sentence(self) -> str:
        """About the next block."""
        miner, behind = self.miner, self.status.behind
        if miner is None and self.every:
            return f"a block is made every {self.every} s, and on demand, by svc node mine 1"
        if miner is None and self.enabled:
            return "the next block is made on demand, by svc node mine 1"
        if (miner is None or not miner.enabled) and self.status.alone:
            return "nobody makes blocks: the node is alone, and its participation is switched off"
        if miner is None or not miner.enabled:
            return "the next block comes from another node" + (f"; waits: {behind}" if behind else "")
        if why := self.status.why_no_block or miner.waits_for:
            return f"no block is made now: {why}"
        rate = miner.work_rate
        return "the next block is being prepared" if rate is None else f"searching block {rate.height}: {rate.words}"


class StartLines(Service):
    """Says where the node is and what it waits for, when all its ports are open."""

    log = Logger()

    def __init__(
        self, base: NodeResources, production: BlockProduction, network: PeerNetwork | None, *, url: str
    ) -> None:
        """``url`` is that of the node's page; "" if it listens on no port."""
        self._base, self._production, self._network, self._url = base, production, network, url

    def startService(self) -> None:
        """Write the lines."""
        super().startService()  # type: ignore[no-untyped-call]
        base, node = self._base, self._base.node_context
        params, tip = node.chain_manager.params, node.chain_manager.tip
        waiting = len(node.transaction_pool.mempool)
        self.log.info(
            "network {chainId}, genesis {genesis}", chainId=params.chain_id, genesis=params.genesis_hash.hex()
        )
        self.log.info("data in {folder}", folder=str(base.config.data_dir.absolute()))
        self.log.info(
            "chain: height {height}, tip {hash}, {_waiting} in the mempool",
            height=tip.height,
            hash=tip.hash.hex(),
            waiting=waiting,
            _waiting=counted(waiting, "transfer"),
        )
        if self._network is None:
            self.log.info("peers: none, because [p2p] enabled is false")
        else:
            peers = self._network.peers
            alone = "; the node needs none: [participation] alone is set" if peers.settings.alone else ""
            self.log.info("peers known: {known}{_alone}", known=len(peers.book), _alone=alone)
        self.log.info("{next}", next=self._production.sentence())
        if self._url:
            self.log.info("open {url} in a browser", url=self._url)
        if base.log is not None and base.greeting:
            base.log.print(f"{base.greeting}\n")


@define
class Heartbeat:
    """Says how fast the node searches for a block, as soon as that is known, and now and then."""

    base: NodeResources
    production: BlockProduction
    _began: float = field(init=False)
    _minute: int = field(default=0, init=False)
    _knows_rate: bool = field(default=False, init=False)

    log = Logger()

    @_began.default
    def _now(self) -> float:
        seconds: float = self.base.reactor.seconds()
        return seconds

    def beat(self) -> None:
        """Count the attempts, and write a line if one is due; to be called every SAMPLE_SECONDS."""
        miner = self.production.miner
        self.base.news.sum_up()
        if miner is None:
            return
        miner.count_attempts()
        minute, rate = int((self.base.reactor.seconds() - self._began) // 60), miner.work_rate
        knows_rate = rate is not None and rate.seconds_expected is not None
        due = (minute != self._minute and has_heartbeat(minute)) or (knows_rate and not self._knows_rate)
        if due and miner.enabled:
            record = {} if rate is None else rate.record()
            self.log.info("{next}", next=self.production.sentence(), _on_status_line=True, **record)
        self._minute, self._knows_rate = minute, self._knows_rate or knows_rate


class StatusLine(Periodic):
    """Keeps the status line of a terminal."""

    def __init__(
        self, terminal: TerminalObserver, clock: Any, production: BlockProduction, network: PeerNetwork | None
    ) -> None:
        super().__init__(clock, _STATUS_SECONDS, self._show, what="writing the status line", at_once=True)
        self._terminal, self._production, self._network = terminal, production, network

    def stopService(self) -> Deferred[LoopingCall] | None:
        """Remove the line."""
        ended = super().stopService()
        self._terminal.show_status("")
        return ended

    def _show(self) -> None:
        network = self._network
        state = None if network is None else network.sync.starting or network.progress.snapshot()
        if state is None:
            self._terminal.show_status(self._words())
        else:
            progress, words = state.bar
            self._terminal.show_status(words, progress)

    def _words(self) -> str:
        status, production = self._production.status, self._production
        miner = production.miner
        rate = None if miner is None else miner.work_rate
        parts = [status.summary()]
        if rate is not None and (seconds := rate.seconds_expected) is not None:
            parts += [f"{rate.attempts_per_second:,.1f} attempts/s", f"a block in {duration(seconds)} on average"]
        elif miner is None and production.every:
            parts.append(f"a block every {production.every} s")
        elif miner is None and production.enabled:
            parts.append("blocks on demand")
        parts.append(f"no new tip for {duration(status.history.still_seconds)}")
        return ", ".join(parts)
