"""Peers as a service: begins with the anchors and the seeds, keeps its notes, and stops without losing any."""

from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger

from svcd.net.endpoint import Endpoint
from svcd.node.mempool import Entry
from svcd.node.threads import Worker
from svcd.node.transfers import Transfers
from svcd.p2p import block_server, resource
from svcd.p2p.address_book import AddressBook
from svcd.p2p.announcements import Announcements
from svcd.p2p.bans import Bans, PostBans
from svcd.p2p.block_server import BlockServer
from svcd.p2p.client import PeerClient
from svcd.p2p.handshake import LocalNode
from svcd.p2p.headers import Synchroniser
from svcd.p2p.peer_store import FORMAT, Notes, load, save
from svcd.p2p.peers import Peers, PeerSettings, PolledTransfers
from svcd.p2p.progress import Progress
from svcd.p2p.relay import Relay
from svcd.p2p.resource import PeerRoutes

BEAT_SECONDS: Final = 1.0
BODY_CAPS: Final = resource.BODY_CAPS | block_server.BODY_CAPS
"""Bytes that the bodies of routes may have that need more than others."""
SAVE_SECONDS: Final = 60.0
ANCHORS: Final = 2
_OPERATOR: Final = "operator"


@frozen
class Network:
    """Everything of this room, joined together."""

    peers: Peers
    relay: Relay
    announcements: Announcements
    synchroniser: Synchroniser
    progress: Progress

    def rooms(self, transfers: Transfers) -> list[object]:
        """The objects whose routes other nodes may call."""
        return [
            PeerRoutes(
                self.peers,
                transfers=transfers,
                on_orphan=self.peers.ask_all,
                on_sent=self.announcements.promises.sent,
                post_bans=self.announcements.post_bans,
            ),
            self.announcements,
            BlockServer(self.peers.home.ledger),
        ]

    def record(self) -> dict[str, object]:
        """What the operator is told."""
        peers, state = self.peers, self.progress.snapshot()
        return {
            "verified": len(peers.all()),
            "outbound": len(peers.outbound()),
            "known": len(peers.book),
            "alarm": peers.alarm or None,
            "catchingUp": None if state is None else state.record(),
        }

    def beat(self) -> None:
        """What is due by now; to be called every second."""
        self.peers.beat()
        self.synchroniser.consider()
        self.relay.branch_push.consider()

    async def stop(self) -> None:
        """Stop fetching and pushing blocks; done when no block of a peer's chain is being connected any more."""
        self.relay.stop()
        self.announcements.stop()
        await self.synchroniser.stop()


def join(
    home: LocalNode,
    client: PeerClient,
    *,
    transfers: Transfers,
    book: AddressBook,
    settings: PeerSettings,
    forwards: Callable[[str, float], bool],
) -> Network:
    """Join the parts, so that what one finds out the others hear of.

    ``forwards`` tells of an address and a Unix time whether a proxy asks from there for many clients.
    """
    peers = Peers(home, client, book=book, bans=Bans(), settings=settings)
    progress = Progress(home.clock)
    synchroniser = Synchroniser(peers, progress)

    def recent(count: int) -> list[Entry]:
        return transfers.mempool.since(max(transfers.sequence - count, 0), count)

    relay = Relay(peers, recent)
    polled = PolledTransfers(home.params, transfers)
    peers.on_status = synchroniser.consider
    peers.behind, peers.best_height = synchroniser.behind, synchroniser.best_height
    peers.on_transaction = polled.take
    peers.on_met = relay.met
    home.ledger.subscribe(progress)
    home.ledger.subscribe(relay)
    transfers.subscribe(relay)
    post_bans = PostBans(peers.bans, home.clock, forwards)
    announcements = Announcements(peers, on_orphan=peers.ask_all, post_bans=post_bans)
    peers.is_coming = announcements.is_coming
    home.ledger.subscribe(announcements)
    return Network(peers, relay, announcements, synchroniser, progress)


class PeersService(Service):
    """Takes up the notes of the last run when it starts, and writes them when it stops; the beat is its owner's.

    One writing follows the other, whatever threads ``files`` has: the later notes must be what is on disk in the end.
    """

    name = "peers"
    _log = Logger()

    def __init__(self, network: Network, path: Path, seeds: Sequence[str], files: Worker) -> None:
        self._network = network
        self._path = path
        self._seeds = [Endpoint(seed) for seed in seeds]
        self._files = files
        self._turn = DeferredLock()
        self._anchors: list[Endpoint] = []
        self._taken_up = False

    def startService(self) -> None:
        """Take up the book and the bans, and note the seeds."""
        super().startService()  # type: ignore[no-untyped-call]
        peers = self._network.peers
        notes = load(self._path)
        if notes is not None:
            peers.book.secret = bytes.fromhex(notes.secret)
            for entry in notes.entries:
                peers.book.restore(entry)
            peers.bans.restore(notes.bans)
        self._anchors = notes.anchors if notes else []
        self._taken_up = True
        peers.first = [*self._anchors, *self._seeds]
        for seed in self._seeds:
            peers.hint(seed, source=_OPERATOR, trusted=True)
        for endpoint in peers.first:
            # Whoever restarts the node wants them tried now, however often they failed before.
            peers.book.try_again(endpoint)

    def stopService(self) -> Deferred[None]:
        """Stop catching up and write the notes."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._network.stop()
        await self.keep()
        for peer in self._network.peers.all():
            self._network.peers.drop(peer)

    async def keep(self) -> None:
        """Write the notes, and say so where the disk does not take them; the next time is soon."""
        try:
            await self.save()
        except OSError as error:
            self._log.error(
                "{path} cannot be written: {why}. Until it can, a restart forgets whom the node has met and banned",
                path=str(self._path),
                why=error.strerror,
            )

    def save(self) -> Deferred[None]:
        """Write the notes as they are now; done when they are on disk. Fails with OSError."""
        if not self._taken_up:
            # What is on disk has not been read yet; the next time is soon.
            return succeed(None)
        peers = self._network.peers
        # Those of before are kept until there are new ones: an outage is when they are needed.
        self._anchors = list(dict.fromkeys([*(peer.endpoint for peer in peers.outbound()), *self._anchors]))[:ANCHORS]
        notes = Notes(
            format=FORMAT,
            secret=peers.book.secret.hex(),
            entries=[copy(entry) for entry in peers.book.entries()],
            anchors=self._anchors,
            bans=peers.bans.standing(peers.home.now()),
        )
        return self._turn.run(self._files.run, save, self._path, notes)
