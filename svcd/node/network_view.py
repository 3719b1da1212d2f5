"""What the node knows of the other nodes, for its status and its readiness."""

from typing import Final, Protocol

from attrs import frozen

NO_PEER_MET: Final = "no verified peer has answered, and [participation] alone is not set"
NO_PEER_LEFT: Final = "no peer answers any more, and [participation] alone is not set"
ALONE: Final = "alone: makes its own chain; nothing compares it"
"""What a node says in place of being in sync, where its operator lets it be alone and it has no peer."""
KNOWN_PEERS_CALLED: Final = "the nodes that were known at the start are being called, and none has answered yet"


@frozen
class NetworkView:
    """What the node knows of the other nodes."""

    known_peers: int
    best_height: int
    """The greatest height that a verified peer has shown; 0 for none."""
    behind: str
    """Why the tip may not be the network's: a verified peer has shown more work, or a peer is needed and there is none;
    "" if there is no reason."""
    usual_height: int = 0
    """The greatest height that more than half of the outbound peers have; 0 if there is none."""
    unreachable: str = ""
    """Why other nodes seem unable to connect to this one; "" for no reason."""
    producer_changes: str = ""
    """Which peers have other changes of producers than this node, and what to do; "" if none says so."""
    alone: bool = False
    """Whether the node makes its own chain, because it has no peer and needs none ([participation] alone)."""


class NetworkObserver(Protocol):
    """The source of what is known of the other nodes."""

    def network_view(self) -> NetworkView:
        """The view at present."""

    def behind(self) -> str:
        """``behind`` of the view alone, which is asked for with every payment."""

    def why_no_block(self) -> str:
        """Why no block may be made on the tip; "" if there is no reason."""


@frozen
class NoPeers:
    """A node without peers."""

    accepted: bool
    """Whether the operator allows that ([participation] alone); otherwise the node counts as behind."""

    def network_view(self) -> NetworkView:
        """See :class:`NetworkObserver`."""
        return NetworkView(0, 0, self.behind(), alone=self.accepted)

    def behind(self) -> str:
        """See :class:`NetworkObserver`."""
        return "" if self.accepted else NO_PEER_MET

    def why_no_block(self) -> str:
        """See :class:`NetworkObserver`."""
        return self.behind()
