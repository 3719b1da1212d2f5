"""What pages are made from: the same rooms that the JSON routes read."""

from collections.abc import Callable, Sequence

from attrs import frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.commerce.looking import Payments
from svcd.node.ledger import Ledger
from svcd.node.mempool import Mempool
from svcd.node.status import Peers
from svcd.ports import Clock, milliseconds
from svcd.store.chain_store import ChainReader


@frozen
class PeerLine:
    """A verified node, as far as everybody may know it."""

    node_id: str
    endpoint: str
    height: int
    last_seen: int
    """Unix milliseconds."""


@frozen(kw_only=True)
class Sources:
    """Everything that pages show; for the reactor's thread."""

    ledger: Ledger
    mempool: Mempool
    payments: Payments
    peers: Peers
    sample: Callable[[], Sequence[PeerLine]]
    """Some of the verified nodes; at most 100."""
    clock: Clock
    serves_peers: bool
    """Whether the routes between nodes are on the same site as the pages."""

    @property
    def params(self) -> NetworkParams:
        """The rules of the network."""
        return self.ledger.params

    @property
    def reader(self) -> ChainReader:
        """The committed chain."""
        return self.ledger.reader

    @property
    def now(self) -> int:
        """The server's time in Unix milliseconds."""
        return milliseconds(self.clock)

    @property
    def second(self) -> int:
        """The same in whole seconds: no page tells it more exactly."""
        return self.now // 1000

    def tip(self) -> ChainPoint:
        """The tip of the commit that the reader sees; the ledger hears of a commit a moment later."""
        return self.reader.tip() or self.ledger.tip

    def address(self, key: bytes) -> str:
        """The address of a 20-byte key hash."""
        return encode_address(key, self.params.address_prefix)

    def address_of_key(self, public_key: bytes) -> str:
        """The address that belongs to a public key."""
        return self.address(key_hash(public_key))
