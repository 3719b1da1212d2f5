"""The data that pages read: the chain, the mempool and the peers, each read bounded (docs/pages.md "Every page").

The functions that read the chain expect the caller to hold an open snapshot of ``Sources.reader``.
"""

from collections.abc import Callable, Sequence

from attrs import field, frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.chain.transition import ChainPoint
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.interfaces import Clock, milliseconds
from svcd.node.chain_manager import ChainManager
from svcd.node.fees import Fees
from svcd.node.mempool import Mempool, MempoolEntry
from svcd.node.network_view import NetworkObserver
from svcd.node.recipient_index import RecipientIndex, ReferenceIndex
from svcd.node.work_rate import WorkRate
from svcd.pages.link_policy import LinkPolicySource
from svcd.pages.recent_blocks import RecentBlocks
from svcd.store.chain_store import ChainReader, PlacedTransfer


@frozen
class PeerRow:
    """The public facts about one verified node."""

    node_id: str
    endpoint: str
    height: int
    last_seen: int
    """Unix milliseconds."""
    other_changes: bool | None = None
    """Whether it has other changes of producers than this node; None if it tells none, or is no peer at present."""


@frozen(kw_only=True)
class Sources:
    """The parts of the node that pages read; for the reactor's thread only."""

    chain_manager: ChainManager
    mempool: Mempool
    fees: Fees
    """Those that ``mempool`` asks for."""
    incoming: RecipientIndex
    referenced: ReferenceIndex
    """These two follow ``mempool``."""
    payments: PaymentLookup
    peers: NetworkObserver
    sample: Callable[[], Sequence[PeerRow]]
    """Returns a sample of at most 100 verified nodes."""
    clock: Clock
    serves_peers: bool
    """Whether the ``/p2p`` routes are on the same site as the pages."""
    links: LinkPolicySource
    public_url: str
    """The URL at which others reach this node; "" for none."""
    work_rate: Callable[[], WorkRate | None]
    """Returns how fast this node searches for the next block; None while it does not."""
    on_demand: bool
    """Whether this node makes blocks on demand, and by itself only if ``every`` says so."""
    every: int
    """The seconds between the blocks that it makes besides; 0 if it makes none."""
    recent: RecentBlocks = field(init=False)

    @recent.default
    def _recent_blocks(self) -> RecentBlocks:
        return RecentBlocks(self.chain_manager)

    @property
    def params(self) -> NetworkParams:
        """The parameters of the network."""
        return self.chain_manager.params

    @property
    def reader(self) -> ChainReader:
        """The committed chain."""
        return self.chain_manager.reader

    @property
    def now(self) -> int:
        """The server's time in Unix milliseconds."""
        return milliseconds(self.clock)

    @property
    def second(self) -> int:
        """The server's time in Unix seconds, the finest resolution that a page shows."""
        return self.now // 1000

    def tip(self) -> ChainPoint:
        """The tip of the commit that the reader sees, which may be newer than the chain manager's."""
        return self.reader.existing_tip()

    def address(self, key: bytes) -> str:
        """The address of a 20-byte key hash."""
        return encode_address(key, self.params.address_prefix)

    def address_of_key(self, public_key: bytes) -> str:
        """The address of a 32-byte public key."""
        return self.address(key_hash(public_key))


@frozen
class TransferRow:
    """A transfer in a table; ``height`` and ``time`` are None while it is in the mempool."""

    transfer: Transfer
    height: int | None = None
    position: int = 0
    time: int | None = None
    """Start of the slot of its block, in Unix milliseconds."""
    entry: MempoolEntry | None = None
    """The waiting transfer."""


def transfer_row(sources: Sources, stored: PlacedTransfer) -> TransferRow:
    """The row of the canonical transfer at ``stored``."""
    transfer = parse_body(sources, stored.body)
    return TransferRow(transfer, stored.height, stored.position, sources.params.slot_time(stored.slot))


def parse_body(sources: Sources, body: bytes) -> Transfer:
    """The transfer whose canonical JSON the store holds as ``body``."""
    return parse_canonical_transfer(body, sources.params)
