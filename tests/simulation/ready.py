"""Chains that are made once and given to simulated nodes as files: full blocks of the greatest size, and empty ones."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from attrs import evolve, field, frozen

from benchmarks.prepared_chain import build_blocks
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from tests.chains import Key, address_of, key_of
from tests.simulation.world import PARAMS

REFERENCE = "r" * 64
"""As long as a reference may be."""
GAP = 2 * PARAMS.slots_per_block
"""Slots from one block to the next: fewer would make the work harder with every block."""
FIRST_PAYER = 500
"""Those before are left to :meth:`World.payment`."""


@frozen
class ReadyChain:
    """The database of a node with a chain, and its blocks in canonical JSON."""

    database: Path
    blocks: tuple[bytes, ...] = field(repr=False)

    @property
    def bytes(self) -> int:
        """The size of all blocks."""
        return sum(map(len, self.blocks))

    @property
    def seconds(self) -> float:
        """When its last block was made, after the genesis."""
        return float(len(self.blocks) * GAP * PARAMS.slot_seconds)

    def give(self, folder: Path, numbers: Iterable[int]) -> None:
        """Let the nodes with ``numbers`` of a world in ``folder``, which has not begun, have it."""
        for number in numbers:
            (folder / f"{number}").mkdir()
            shutil.copy(self.database, folder / f"{number}" / "chain.sqlite")


def full_chains(folder: Path, heights: Iterable[int]) -> dict[int, ReadyChain]:
    """Chains of full blocks, by their heights, which ascend; each begins with the one before."""
    chains: dict[int, ReadyChain] = {}
    path, blocks = folder / "growing.sqlite", list[bytes]()
    for height in heights:
        blocks += build_blocks(path, map(full_body, range(len(blocks), height)), gap=GAP, params=PARAMS)
        chains[height] = ReadyChain(folder / f"full-{height}.sqlite", tuple(blocks))
        shutil.copy(path, chains[height].database)
    return chains


def empty_chain(folder: Path, height: int) -> ReadyChain:
    """A chain of blocks without transfers."""
    path = folder / f"empty-{height}.sqlite"
    return ReadyChain(path, tuple(build_blocks(path, ([] for _ in range(height)), gap=GAP, params=PARAMS)))


def full_body(number: int, params: NetworkParams = PARAMS) -> list[Transfer]:
    """As many transfers of the greatest size as fit into a block, all of one sender; no two blocks have the same."""
    sender = payer(number)
    draft = Draft(
        recipient=address_of("merchant", params.address_prefix),
        amount=params.account_minimum,
        fee=params.minimum_fee,
        nonce=0,
        timestamp=params.genesis_time,
        reference=REFERENCE,
    )
    room = (params.max_block_bytes - 2_048) // (len(sign_transfer(draft, seed=sender.seed, params=params).wire) + 4)
    drafts = (evolve(draft, nonce=nonce) for nonce in range(min(room, params.max_block_transactions)))
    return [sign_transfer(draft, seed=sender.seed, params=params) for draft in drafts]


def payer(number: int) -> Key:
    """The sender of all transfers in the full block of a number."""
    return key_of(f"person {FIRST_PAYER + number}")
