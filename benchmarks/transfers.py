"""Transfers connected per second, against one thread that verifies as many signatures with PyNaCl."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.ground import Person, forge, lay, nobody
from benchmarks.local_node import feed, opened
from benchmarks.program import main, on_reactor
from svcd.chain.params import DEVNET
from svcd.chain.signature import is_valid
from svcd.chain.transaction import Transfer


@frozen
class Sizes:
    """How much is measured."""

    accounts: int
    rounds: int
    blocks: int
    """In each round."""
    transfers: int
    """In each block."""


FULL: Final = Sizes(accounts=100_000, rounds=5, blocks=5, transfers=2_000)
QUICK: Final = Sizes(accounts=2_000, rounds=2, blocks=2, transfers=200)


def payments(sizes: Sizes) -> list[list[Transfer]]:
    """The transfers of every block: no account stands in two of them, and every other one has a reference."""
    timestamp = DEVNET.genesis_time
    count = sizes.rounds * sizes.blocks * sizes.transfers
    made = [
        Person(number).pays(
            nobody(number),
            amount=5_000 + number,
            timestamp=timestamp,
            reference=f"order-{number}" if number % 2 else None,
        )
        for number in range(count)
    ]
    return [made[start : start + sizes.transfers] for start in range(0, count, sizes.transfers)]


def prepare(folder: Path, sizes: Sizes) -> tuple[Path, list[bytes], list[list[Transfer]]]:
    """A database with all the accounts, blocks to be connected to it, and the transfers in them."""
    bodies = payments(sizes)
    people = [transfer.sender for body in bodies for transfer in body]
    ground = folder / "ground.sqlite"
    lay(ground, [*people, *map(nobody, range(sizes.accounts - len(people)))])
    draft = folder / "draft.sqlite"
    shutil.copy(ground, draft)
    blocks = forge(draft, bodies)
    draft.unlink()
    return ground, blocks, bodies


def verifications_per_second(signatures: Sequence[tuple[bytes, bytes, bytes]]) -> float:
    """How many (public key, message, signature) one thread verifies in a second."""
    began = perf_counter()
    valid = [is_valid(*signature) for signature in signatures]
    seconds = perf_counter() - began
    if not all(valid):
        raise RuntimeError("a signature that was just made is not valid")
    return len(signatures) / seconds


def measure(folder: Path, quick: bool) -> list[Row]:
    """Transfers connected per second, against one thread that verifies as many signatures with PyNaCl."""
    sizes = QUICK if quick else FULL
    ground, blocks, bodies = prepare(folder, sizes)
    signatures = [[(t.sender_key, t.txid, t.signature) for t in body] for body in bodies]
    del bodies

    async def run(reactor: Any) -> Rounds:
        rounds = Rounds()
        async with opened(ground, reactor) as node_context:
            for start in range(0, len(blocks), sizes.blocks):
                part = slice(start, start + sizes.blocks)
                baseline = verifications_per_second([each for body in signatures[part] for each in body])
                began = perf_counter()
                await feed(node_context.chain_manager, [[block] for block in blocks[part]])
                rounds.add(sizes.blocks * sizes.transfers / (perf_counter() - began), baseline)
        return rounds

    rounds = on_reactor(run)
    return [
        rounds.row(
            f"transfers connected, {sizes.accounts:,} accounts",
            unit="/s",
            baseline_is="signatures/s, one thread",
            goal=Goal("ratio", ">=", 0.45),
        )
    ]


if __name__ == "__main__":
    main(measure)
