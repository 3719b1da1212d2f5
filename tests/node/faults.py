"""Blocks with any number of faults at once, to see which one is found first."""

from collections.abc import Callable
from itertools import count
from typing import Any

from attrs import define, evolve, field

from svcd.chain.block import Block, Header, transactions_root
from svcd.chain.errors import Refusal, Wait
from svcd.chain.signature import sign
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainHead, consensus_root, point_after
from svcd.chain.work import effective_target, work_value
from tests.chains import TEST_PARAMS, Key, key_of
from tests.node.bench import LATE


@define
class Sketch:
    """A block that is not sealed yet."""

    parent: ChainHead
    header: Header
    transfers: list[Transfer]
    producer: Key
    worked: bool = True
    signed: bool = True
    wire: list[Callable[[bytes], bytes]] = field(factory=list)
    """What is done to the canonical JSON in the end."""

    def change(self, **fields: Any) -> None:
        self.header = evolve(self.header, **fields)

    def sealed(self) -> bytes:
        """The canonical JSON with work and signature, or without where a fault says so."""
        header = self.header
        target = effective_target(header.base_target, header.multiplier)
        nonces = (number.to_bytes(8, "big") for number in count())
        nonce = next(
            nonce
            for nonce in nonces
            if (work_value(header.core_hash, nonce, TEST_PARAMS.memory_kib) < target) is self.worked
        )
        header = header.sealed(work_nonce=nonce, signature=bytes(64))
        signature = sign(self.producer.seed, header.hash) if self.signed else bytes(64)
        data = Block(header.sealed(work_nonce=nonce, signature=signature), tuple(self.transfers)).wire()
        for change in self.wire:
            data = change(data)
        return data


def _oversize(sketch: Sketch) -> None:
    sketch.wire.append(lambda data: data + b" " * (TEST_PARAMS.max_block_bytes + 1 - len(data)))


def _not_json(sketch: Sketch) -> None:
    sketch.wire.append(lambda data: data[:-1])


def _cheap(sketch: Sketch) -> None:
    sketch.wire.append(lambda data: data.replace(b'"fee":"10000"', b'"fee":"9999"'))


def _unsigned(sketch: Sketch) -> None:
    sketch.signed = False


def _miscounted(sketch: Sketch) -> None:
    sketch.change(transaction_count=7)


def _uprooted(sketch: Sketch) -> None:
    sketch.change(transactions_root=bytes(32))


def _orphaned(sketch: Sketch) -> None:
    sketch.change(parent_hash=b"\1" * 32)


def _high(sketch: Sketch) -> None:
    sketch.change(height=sketch.header.height + 1)


def _stale(sketch: Sketch) -> None:
    sketch.change(slot=0)


def _easy(sketch: Sketch) -> None:
    sketch.change(base_target=sketch.header.base_target + 1)


def _boastful(sketch: Sketch) -> None:
    sketch.change(multiplier=9_999)


def _early(sketch: Sketch) -> None:
    sketch.change(slot=LATE + TEST_PARAMS.drift_slots + 1)
    point = point_after(TEST_PARAMS, sketch.parent.point, sketch.header)
    sketch.change(consensus_root=consensus_root(TEST_PARAMS, point, sketch.parent.history.root))


def _idle(sketch: Sketch) -> None:
    sketch.worked = False


def _forged(sketch: Sketch) -> None:
    for index, transfer in enumerate(sketch.transfers):
        forged = sign(key_of("forger").seed, transfer.txid)
        wire = transfer.wire.replace(transfer.signature.hex().encode(), forged.hex().encode())
        sketch.transfers[index] = evolve(transfer, signature=forged, wire=wire)
    sketch.change(transactions_root=transactions_root(tuple(sketch.transfers)))


def _unearned(sketch: Sketch) -> None:
    sketch.change(multiplier=11_000)


def _repeated(sketch: Sketch) -> None:
    sketch.transfers *= 2
    sketch.change(transactions_root=transactions_root(tuple(sketch.transfers)), transaction_count=len(sketch.transfers))


def _stateless(sketch: Sketch) -> None:
    sketch.change(state_root=bytes(32))


def _inconsistent(sketch: Sketch) -> None:
    sketch.change(consensus_root=bytes(32))


FAULTS: list[tuple[Refusal | Wait, Callable[[Sketch], None]]] = [
    (Refusal.SIZE, _oversize),
    (Refusal.ENCODING, _not_json),
    (Refusal.FEE, _cheap),
    (Refusal.BLOCK_SIGNATURE, _unsigned),
    (Refusal.TRANSACTION_COUNT, _miscounted),
    (Refusal.TRANSACTIONS_ROOT, _uprooted),
    (Wait.ORPHAN, _orphaned),
    (Refusal.HEIGHT, _high),
    (Refusal.SLOT, _stale),
    (Refusal.BASE_TARGET, _easy),
    (Refusal.MULTIPLIER, _boastful),
    (Refusal.CONSENSUS_ROOT, _inconsistent),
    (Refusal.WORK, _idle),
    (Refusal.TRANSACTION_SIGNATURE, _forged),
    (Wait.EARLY, _early),
    (Refusal.MULTIPLIER, _unearned),
    (Refusal.NONCE, _repeated),
    (Refusal.STATE_ROOT, _stateless),
]
"""What can be wrong with a block, in the order in which it is looked for (docs/protocol.md 10)."""

REMEMBERED = {
    Refusal.HEIGHT,
    Refusal.SLOT,
    Refusal.BASE_TARGET,
    Refusal.MULTIPLIER,
    Refusal.WORK,
    Refusal.TRANSACTION_SIGNATURE,
    Refusal.NONCE,
    Refusal.STATE_ROOT,
    Refusal.CONSENSUS_ROOT,
}
"""The faults that the block's hash commits to: nothing that has this hash can ever be valid."""


def faulty(parent: ChainHead, block: Block, producer: str, faults: list[Callable[[Sketch], None]]) -> bytes:
    """The canonical JSON of ``block`` on ``parent`` with all these faults."""
    sketch = Sketch(parent, block.header, list(block.transfers), key_of(producer))
    # What is looked for first is done last, so that it is there whatever the others have done to the same field.
    for fault in reversed(faults):
        fault(sketch)
    return sketch.sealed()
