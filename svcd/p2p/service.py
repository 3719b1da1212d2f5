"""The network of peers put together, and its service, which keeps ``peers.json`` (docs/peers.md)."""

import json
import os
import re
from collections.abc import Callable, Sequence
from copy import copy
from hashlib import sha256
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from cattrs import Converter, transform_error
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger

from svcd.interfaces import Timer, Worker
from svcd.net.targets import Endpoint
from svcd.node.network_view import KNOWN_PEERS_CALLED, NO_PEER_LEFT, NO_PEER_MET, NetworkView
from svcd.node.snapshots import Snapshots
from svcd.node.transaction_pool import TransactionPool
from svcd.p2p.address_book import AddressBook, AddressEntry, group_of_endpoint, take_group
from svcd.p2p.announcements import Announcements
from svcd.p2p.bans import KINDS, Ban, Bans, PostBans
from svcd.p2p.chain_sync import ChainSync
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode
from svcd.p2p.peers import Peers, PeerSettings
from svcd.p2p.progress import SyncProgress
from svcd.p2p.relay import Relay
from svcd.p2p.routes import BlockRoutes, PeerRoutes, SnapshotRoutes
from svcd.p2p.snapshot_start import StartSettings

TICK_SECONDS: Final = 1.0
SAVE_SECONDS: Final = 60.0
SAVE_APART_SECONDS: Final = 5.0
"""Between two times that ``peers.json`` is written because of a new endpoint, however many are verified."""
ANCHORS: Final = 2
FORMAT: Final = 3
_LOG: Final = Logger()
_SECRET: Final = re.compile("[0-9a-f]{64}")


# peers.json


@frozen
class PeersFile:
    """The content of ``peers.json``, which is kept from one run to the next."""

    format: int
    secret: str
    """The key of the address book's buckets, 64 hex characters; another key would move every entry."""
    entries: list[AddressEntry]
    """Their times are Unix seconds."""
    anchors: list[Endpoint]
    """Two outbound peers of the last run, which are called first: a restart must not be a chance for an eclipse."""
    bans: list[Ban]
    """Their ends are seconds after the file was written."""

    def record(self) -> dict[str, object]:
        """The JSON object of the file."""
        value: dict[str, object] = _CONVERTER.unstructure(self)
        return value


def read_peers_file(path: Path) -> PeersFile | None:
    """Read ``path``; None if there is no file, or if it is damaged, which is logged."""
    try:
        return _read(_unchanged(path.read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
    except ExceptionGroup as errors:
        why = "; ".join(transform_error(errors))
    _LOG.warn("{path} cannot be read, so the node starts without known peers: {why}", path=str(path), why=why)
    return None


def with_checksum(text: str) -> str:
    """The content of the file for a JSON text: one line, and a checksum, for a changed digit could ban another node."""
    return f"{text}\nsha256:{sha256(text.encode('utf-8')).hexdigest()}\n"


def _unchanged(content: str) -> str:
    """The JSON text in the content of the file; raises ValueError if it does not have its checksum."""
    text = content.partition("\n")[0]
    if with_checksum(text) != content:
        raise ValueError("it is damaged, because its content does not have its checksum")
    return text


def _read(text: str) -> PeersFile:
    value = json.loads(text)
    if type(value) is not dict:
        raise ValueError("it must be a JSON object")
    notes = _CONVERTER.structure(value, PeersFile)
    if notes.format != FORMAT:
        raise ValueError(f"its format must be {FORMAT}, not {notes.format}")
    if not _SECRET.fullmatch(notes.secret):
        raise ValueError("its secret must be 64 lower-case hex characters")
    for ban in notes.bans:
        kind, _, text = ban.name.partition(":")
        if kind not in KINDS or (kind == "endpoint" and Endpoint(text) != text) or (ban.until is None and not ban.own):
            raise ValueError(f"{ban.name!r} must be the name of a ban, and only the operator's have no end")
    return notes


def _exactly(*kinds: type) -> Callable[[Any, object], Any]:
    """A hook that takes only values of these types; the converter's own hooks convert other values."""

    def take(value: Any, _: object) -> Any:
        if type(value) in kinds and (type(value) is not float or isfinite(value)):
            return value
        raise ValueError(f"{value!r:.50} must be of another type")

    return take


def _endpoint(value: Any, _: object) -> Endpoint:
    """A hook that takes an endpoint in its canonical form only, as it was written."""
    endpoint = Endpoint(_exactly(str)(value, str))
    if endpoint != value:
        raise ValueError(f"{value!r:.50} must be written as {endpoint}")
    return endpoint


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    for kind in (str, int, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook(Endpoint, _endpoint)
    return converter


_CONVERTER: Final = _converter()


def write_peers_file(path: Path, content: PeersFile) -> None:
    """Replace the file; after a crash it is the old or the new one. Raises OSError."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        # Unlike json.dump, which takes three times as long, json.dumps encodes in C.
        file.write(with_checksum(json.dumps(content.record())))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


# The network


class PeerNetwork:
    """The parts of p2p, connected with each other, with the chain and with the mempool."""

    def __init__(
        self,
        node: LocalNode,
        client: PeerClient,
        *,
        transaction_pool: TransactionPool,
        book: AddressBook,
        settings: PeerSettings,
        snapshots: Snapshots,
        forwards: Callable[[str, float], bool],
        start: StartSettings | None = None,
    ) -> None:
        """Create the parts.

        ``forwards`` says for an address and a Unix time whether an untrusted proxy forwards many clients from there.
        ``start`` says how a node without a chain begins; None for with all blocks.
        """
        bans = Bans()
        self.peers = Peers(node, client, transaction_pool=transaction_pool, book=book, bans=bans, settings=settings)
        self.progress = SyncProgress(node.clock)
        self.announcements = Announcements(self.peers)
        self.sync = ChainSync(self.peers, self.progress, is_coming=self.announcements.is_coming, start=start)
        self.relay = Relay(self.peers, transaction_pool)
        self.peers.on_status, self.peers.on_added = self.sync.check_claims, self.relay.peer_added
        for listener in (self.progress, self.relay, self.announcements):
            node.chain_manager.subscribe(listener)
        transaction_pool.subscribe(self.relay)
        self.routes: list[object] = [
            PeerRoutes(
                self.peers,
                transaction_pool=transaction_pool,
                announcements=self.announcements,
                snapshots=snapshots,
                post_bans=PostBans(bans, node.clock, forwards),
            ),
            BlockRoutes(node.chain_manager),
            SnapshotRoutes(snapshots),
        ]
        """The objects whose routes other nodes may call."""

    def network_view(self) -> NetworkView:
        """The present state, for the status; an unproven claim of more work has no effect on it."""
        peers, tip = self.peers, self.peers.node.chain_manager.tip
        claims = [peer.status.height if peer.status else 0 for peer in peers.all()]
        best, behind = max(self.sync.best_height(), min(max(claims, default=0), tip.height)), self.behind()
        return NetworkView(
            known_peers=len(claims),
            best_height=best,
            behind=behind,
            usual_height=self._usual_height(),
            unreachable=peers.unreachable(),
            producer_changes=peers.producer_changes(),
            alone=peers.settings.alone and not claims and not behind,
        )

    def _usual_height(self) -> int:
        """The greatest height that more than half of the outbound peers show; 0 if there is none.

        One that did not prove its last claim shows none. A peer alone shows one only by headers that prove more work
        than there is here, or whose producer the list here lacks.
        """
        work, outbound = self.peers.node.chain_manager.tip.work, self.peers.outbound()
        heights = [
            peer.status.height
            if peer.status
            and (peer.proven_work > work or peer.disputed or (len(outbound) > 1 and not peer.unproven_claims))
            else 0
            for peer in outbound
        ]
        return sorted(heights, reverse=True)[len(heights) // 2] if heights else 0

    def behind(self) -> str:
        """Why the node's tip may not be the network's; "" if there is no reason."""
        cut_off = not self.peers.has_any and not self.peers.settings.alone
        return self.why_no_block() or (NO_PEER_LEFT if cut_off else "")

    def why_no_block(self) -> str:
        """Why no block may be made on the tip; "" if there is no reason.

        A node that has lost its peers makes blocks, which reach them when they are back.
        """
        return self.peers.alarm or self._no_peer_met() or self.sync.behind()

    def _no_peer_met(self) -> str:
        """Why the node is behind because it has met no peer since its start; "" if it is not."""
        peers = self.peers
        if peers.ever_verified:
            return ""
        if not peers.settings.alone:
            return NO_PEER_MET
        return KNOWN_PEERS_CALLED if peers.node.now() < peers.waits_until else ""

    def record(self) -> dict[str, object]:
        """The JSON object of the operator's status."""
        peers, state, starting = self.peers, self.progress.snapshot(), self.sync.starting
        return {
            "verified": len(peers.all()),
            "outbound": len(peers.outbound()),
            "known": len(peers.book),
            "alarm": peers.alarm or None,
            "snapshotStart": None if starting is None else starting.record(),
            "catchingUp": None if state is None else state.record(),
        }

    def tick(self) -> None:
        """Do what is due by now; to be called every second."""
        self.peers.tick()
        self.sync.check_claims()
        self.relay.tick()
        self.relay.branch_push.tick()

    async def stop(self) -> None:
        """Call no node any more; done when no block of a peer's chain is being connected any more."""
        self.peers.stop()
        self.relay.stop()
        self.announcements.stop()
        await self.sync.stop()


# The service


class PeersService(Service):
    """Reads ``peers.json`` when it starts; writes it when it stops, and whenever :meth:`save` is called.

    That is every SAVE_SECONDS, when the operator bans or unbans, and at once when an endpoint has been verified: a node
    that is killed must know it again. The file is written once at a time, however many threads ``files`` has: the
    newest content must be the last. The owner also calls :meth:`PeerNetwork.tick`.
    """

    name = "peers"
    _log = Logger()

    def __init__(self, network: PeerNetwork, path: Path, seeds: Sequence[str], files: Worker) -> None:
        self._network = network
        self._path = path
        self._seeds = [Endpoint(seed) for seed in seeds]
        self._files = files
        self._write_lock = DeferredLock()
        self._anchors: list[Endpoint] = []
        self._loaded = False
        self._saving: Timer | None = None
        """The next time that the file is written because of a new endpoint."""
        self._saved_soon_at = -inf
        """When it was last written for that, in the clock's seconds."""

    def startService(self) -> None:
        """Load the address book and the bans, and note the seeds."""
        super().startService()  # type: ignore[no-untyped-call]
        peers = self._network.peers
        content = read_peers_file(self._path)
        if content is not None:
            peers.book.secret = bytes.fromhex(content.secret)
            for entry in content.entries:
                peers.book.restore(entry.moved(-peers.node.lead).by_now(peers.node.now()))
            peers.bans.restore(ban.moved(peers.node.now()) for ban in content.bans)
        self._anchors = content.anchors if content else []
        self._loaded = True
        peers.on_verified = self._save_soon
        peers.call_first(self._anchors, self._seeds)

    def stopService(self) -> Deferred[None]:
        """Stop the network and write the file."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        if self._saving is not None:
            self._saving.cancel()
        await self._network.stop()
        await self.save_or_log()
        for peer in self._network.peers.all():
            self._network.peers.drop(peer)

    def _save_soon(self) -> None:
        """Write the file now, or SAVE_APART_SECONDS after the last time."""
        if self._saving is None and self.running:
            clock = self._network.peers.node.clock
            wait = self._saved_soon_at + SAVE_APART_SECONDS - clock.seconds()
            self._saving = clock.callLater(max(wait, 0.0), self._save_now)

    def _save_now(self) -> None:
        self._saving = None
        self._saved_soon_at = self._network.peers.node.clock.seconds()
        Deferred.fromCoroutine(self.save_or_log()).addErrback(
            lambda failure: self._log.failure("saving the known peers failed", failure)
        )

    async def save_or_log(self) -> None:
        """Write the file; a failure is logged, for the next attempt is soon."""
        try:
            await self.save()
        except OSError as error:
            self._log.error(
                "{path} cannot be written: {why}. Until it can, a restart loses known peers and bans",
                path=str(self._path),
                why=error.strerror,
            )

    def _draw_anchors(self) -> list[Endpoint]:
        """Two outbound peers, drawn anew each time: peers that answer quickest, or longest, must not stay anchors.

        Earlier anchors are kept until there are new ones: they are needed after an outage.
        """
        peers, groups = self._network.peers, set[str]()
        outbound = [peer.endpoint for peer in peers.in_relay_order() if peer.outbound]
        anchors: list[Endpoint] = []
        for endpoint in dict.fromkeys([*outbound, *self._anchors]):
            entry = peers.book.get(endpoint)
            group = entry.best_group() if entry else group_of_endpoint(endpoint)
            if len(anchors) < ANCHORS and take_group(group, groups if peers.settings.diverse else None):
                anchors.append(endpoint)
        return anchors

    def save(self) -> Deferred[None]:
        """Write the present state; done when it is on disk. Fails with OSError."""
        if not self._loaded:
            # The file has not been read yet; the next attempt is soon.
            return succeed(None)
        peers = self._network.peers
        self._anchors = self._draw_anchors()
        content = PeersFile(
            format=FORMAT,
            secret=peers.book.secret.hex(),
            # Copies, because a thread reads them.
            entries=[copy(entry).moved(peers.node.lead) for entry in peers.book.entries()],
            anchors=self._anchors,
            bans=[ban.moved(-peers.node.now()) for ban in peers.bans.active(peers.node.now())],
        )
        return self._write_lock.run(self._files.run, write_peers_file, self._path, content)
