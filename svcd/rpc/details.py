"""What the operator is told beyond the public status."""

from collections.abc import Callable

from attrs import frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.signature import public_key_of
from svcd.node.living import LivingChain
from svcd.node.threads import Load


@frozen
class Details:
    """The state of the node's rooms.

    ``writer`` is the load of the thread that writes; ``seed`` is that of the key that its blocks pay, ``participates``
    tells whether it makes any; ``peers`` tells of the other nodes and ``webhooks`` of merchants' callbacks, None for a
    node without them.
    """

    living: LivingChain
    writer: Load
    seed: bytes
    participates: Callable[[], bool]
    peers: Callable[[], dict[str, object]] | None
    webhooks: Callable[[], dict[str, object]] | None

    def record(self) -> dict[str, object]:
        """The JSON object, made anew for every question."""
        living, mempool = self.living, self.living.transfers.mempool
        address = encode_address(key_hash(public_key_of(self.seed)), living.ledger.params.address_prefix)
        return {
            "participation": {"enabled": self.participates(), "address": address},
            "mempool": {"transactions": len(mempool), "bytes": mempool.size},
            "verifierQueue": living.verifier.waiting,
            "writerQueue": self.writer.waiting,
            "webhooks": None if self.webhooks is None else self.webhooks(),
            "peers": None if self.peers is None else self.peers(),
        }
