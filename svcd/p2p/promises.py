"""Announced pushes of new blocks, and which peers did not carry them out (docs/peers.md "Relay")."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from attrs import define

from svcd.node.recent import Recent
from svcd.p2p.peers import Peer, Peers
from svcd.ports import Timer

PUSH_SECONDS: Final = 60.0
"""How long a peer that announced a block and sends it has for that."""
BROKEN_SECONDS: Final = 3_600.0
"""How long no block is waited for from a peer that did not send or deliver one, and its part of the network."""
MAX_EXCUSES: Final = 3
"""How often in a row a peer may have a reason not to send what it said, until that counts as a broken word."""
_REMEMBERED: Final = 1_024
_PROMISES: Final = 64


class Records:
    """Which peers did not do what they said, for an hour.

    A peer of our choice answers for itself: others in its part of the network must not be able to spoil its record.
    """

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._until: Recent[str, float] = Recent(_REMEMBERED)
        """Unix seconds by part of the network, and by endpoint."""
        self._excuses: Recent[str, int] = Recent(_REMEMBERED)
        """How many in a row, by the same names."""

    def add(self, peer: Peer) -> None:
        """Record that the peer did not send or deliver a block as announced."""
        for name in self._names(peer):
            self._until[name] = self._peers.home.now() + BROKEN_SECONDS
            self._excuses.pop(name, None)

    def excuse(self, peer: Peer) -> None:
        """Count a push that the peer had a good reason not to carry out."""
        for name in self._names(peer):
            self._excuses[name] = self._excuses.get(name, 0) + 1
        if self._excuses[self._name(peer)] > MAX_EXCUSES:
            self.add(peer)

    def clear(self, peer: Peer) -> None:
        """Record that the peer sent a block as announced."""
        for name in self._names(peer):
            self._until.pop(name, None)
            self._excuses.pop(name, None)

    def has(self, peer: Peer) -> bool:
        """Whether it has broken its word lately, or another for which it answers."""
        return self._until.get(self._name(peer), 0.0) > self._peers.home.now()

    def are_one(self, peer: Peer, other: Peer) -> bool:
        """Whether ``peer`` answers for what ``other`` does."""
        return self._name(peer) in self._names(other)

    def _name(self, peer: Peer) -> str:
        return peer.endpoint if peer.outbound else self._peers.part_of(peer)

    def _names(self, peer: Peer) -> set[str]:
        return {self._peers.part_of(peer), peer.endpoint}


@define(eq=False)
class _Promise:
    """A block that a peer has said it sends."""

    peer: Peer
    work: int
    """That of the chain up to this block."""
    timer: Timer | None = None
    """Until it is judged; None afterwards."""

    def cancel(self) -> None:
        """It need not be judged."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Promises:
    """Blocks that peers have said they send: they have a minute, whether or not the block comes from others before.

    An honest peer sends it late over a slow line, and not at all where it has a better block by the time it could, or
    asks again and hears that the block is here. So only silence is a broken word, and it is forgiven once the block
    does come.
    """

    def __init__(self, peers: Peers, is_open: Callable[[bytes], bool]) -> None:
        """Make it; ``is_open`` tells whether a block, by its hash, is still waited for."""
        self._peers = peers
        self._is_open = is_open
        self._promises: OrderedDict[bytes, _Promise] = OrderedDict()
        """By the hash of the block: those of the last minute, and of later ones those that were broken."""
        self._records = Records(peers)

    def stop(self) -> None:
        """Cancel all pending pushes without judging their peers."""
        for promise in self._promises.values():
            promise.cancel()
        self._promises.clear()

    def may_make(self, peer: Peer) -> bool:
        """Whether to wait for a block that ``peer`` says it sends.

        Not while another is due from it that has come from elsewhere: else it could delay every block a little.
        """
        overtaken = (
            self._records.are_one(peer, promise.peer)
            for block_hash, promise in self._promises.items()
            if promise.timer is not None and not self._is_open(block_hash)
        )
        return not self._records.has(peer) and not any(overtaken)

    def make(self, peer: Peer, block_hash: bytes, work: int) -> None:
        """Note that ``peer`` has said it sends a block up to which the chain has so much ``work``."""
        self._forget(block_hash)
        timer = self._peers.home.clock.callLater(PUSH_SECONDS, self._judge, block_hash)
        self._promises[block_hash] = _Promise(peer, work, timer)
        if len(self._promises) > _PROMISES:
            self._forget(next(iter(self._promises)))

    def made_by(self, peer: Peer, block_hash: bytes) -> bool:
        """Whether ``peer`` has lately said that it sends the block."""
        promise = self._promises.get(block_hash)
        return promise is not None and promise.peer is peer

    def asked_again(self, peer: Peer, block_hash: bytes) -> None:
        """The block is here, and ``peer`` has been told so before it sent it."""
        promise = self._promises.get(block_hash)
        if promise is not None and promise.peer is peer and promise.timer is not None:
            self._forget(block_hash)
            self._records.excuse(peer)

    def sent(self, block_hash: bytes, client: str | None) -> None:
        """The block has been sent from the address of ``client``, in time or not."""
        promise = self._promises.get(block_hash)
        if promise is not None and (client is None or not promise.peer.address or promise.peer.is_at(client)):
            self._forget(block_hash)
            self._records.clear(promise.peer)

    def _judge(self, block_hash: bytes) -> None:
        promise = self._promises[block_hash]
        promise.timer = None
        if self._peers.home.ledger.tip.work > promise.work:
            # It had a better block to send by then, or has heard of one.
            del self._promises[block_hash]
            self._records.excuse(promise.peer)
        else:
            self._records.add(promise.peer)

    def _forget(self, block_hash: bytes) -> None:
        promise = self._promises.pop(block_hash, None)
        if promise is not None:
            promise.cancel()
