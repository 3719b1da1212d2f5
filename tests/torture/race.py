"""Two branches that overtake each other again and again, and what a node must hold after every batch of them."""

from collections.abc import Iterator
from hashlib import sha256
from random import Random

from attrs import define, field, frozen

from svcd.chain.block import Block
from svcd.chain.transaction import Transfer
from tests.chains import ChainBuilder


@frozen
class Moment:
    """What a database holds."""

    blocks: frozenset[bytes]
    tip: bytes


@define
class Race:
    """The blocks, a batch at a time, and the moment before each batch and after the last."""

    batches: list[list[Block]] = field(factory=list)
    moments: list[Moment] = field(factory=list)

    def file(self) -> bytes:
        """The batches as `tests.torture.importer` reads them."""
        return b"".join(b" ".join(block.wire() for block in batch) + b"\n" for batch in self.batches)


def run_race(height: int, seed: int) -> Race:
    """A race up to ``height``: batches of one to eight blocks, and a change of the leader every few blocks."""
    random, chain, race = Random(seed), ChainBuilder(), Race()
    blocks = list(_overtaking(chain, random, height))
    work = {chain.params.genesis_hash: 0} | {block.header.hash: chain.point_after(block).work for block in blocks}
    race.moments.append(Moment(frozenset({chain.params.genesis_hash}), chain.params.genesis_hash))
    while blocks:
        size = random.randint(1, 8)
        batch, blocks = blocks[:size], blocks[size:]
        tip = race.moments[-1].tip
        for block in batch:
            tip = _better(tip, block.header.hash, work)
        race.batches.append(batch)
        race.moments.append(Moment(race.moments[-1].blocks | {block.header.hash for block in batch}, tip))
    return race


def _better(tip: bytes, rival: bytes, work: dict[bytes, int]) -> bytes:
    """Which of two blocks is the tip (docs/protocol.md 10)."""
    if work[tip] != work[rival]:
        return max(tip, rival, key=lambda block: work[block])
    pair = min(tip, rival) + max(tip, rival)
    return min(tip, rival, key=lambda block: sha256(b"svc/tie/v1\0" + pair + block).digest())


def _overtaking(chain: ChainBuilder, random: Random, height: int) -> Iterator[Block]:
    branches: dict[str, list[Block]] = {"a": [], "b": []}
    while min(map(len, branches.values())) < height:
        behind, ahead = sorted(branches, key=lambda name: len(branches[name]))
        branch = branches[behind]
        for _ in range(len(branches[ahead]) - len(branch) + random.randint(1, 4)):
            parent = branch[-1] if branch else None
            transfers = _payments(chain, parent, random)
            branch.append(chain.block(parent, producer=f"{behind}{random.randint(0, 3)}", transfers=transfers))
            yield branch[-1]


def _payments(chain: ChainBuilder, parent: Block | None, random: Random) -> list[Transfer]:
    """Up to three payments, some to people who have no account yet."""
    nonce = chain.account_after(parent, "alice").nonce
    return [
        chain.transfer(
            "alice",
            f"x{random.randint(0, 60)}",
            random.randint(1, 10**8),
            nonce=nonce + number,
            reference=random.choice([None, f"order-{random.randint(0, 9)}"]),
        )
        for number in range(random.randint(0, 3))
    ]
