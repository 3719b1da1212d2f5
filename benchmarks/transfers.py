"""Transfers connected per second, against one thread that verifies as many signatures with PyNaCl."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

from attrs import define, field, frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import Signer, create_chain, draft_blocks, unowned_key
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
        Signer(number).pays(
            unowned_key(number),
            amount=1_000_000 + number,
            timestamp=timestamp,
            reference=f"order-{number}" if number % 2 else None,
        )
        for number in range(count)
    ]
    return [made[start : start + sizes.transfers] for start in range(0, count, sizes.transfers)]


def prepare(folder: Path, sizes: Sizes) -> tuple[Path, list[bytes], list[list[Transfer]]]:
    """A database with all the accounts, blocks to be connected to it, and the transfers in them."""
    bodies = payments(sizes)
    signers = [transfer.sender for body in bodies for transfer in body]
    initial = folder / "initial.sqlite"
    create_chain(initial, [*signers, *map(unowned_key, range(sizes.accounts - len(signers)))])
    return initial, draft_blocks(initial, bodies), bodies


@define
class Stopwatch:
    """Seconds since it was made: on the clock, and of the processor in all threads of this process."""

    _began: float = field(factory=perf_counter)
    _spent: float = field(factory=process_time)

    def read(self) -> tuple[float, float]:
        """Both."""
        return perf_counter() - self._began, process_time() - self._spent


def verify(signatures: Sequence[tuple[bytes, bytes, bytes]]) -> tuple[float, float]:
    """How long one thread takes to verify each (public key, message, signature): see :class:`Stopwatch`."""
    stopwatch = Stopwatch()
    valid = [is_valid(*signature) for signature in signatures]
    if not all(valid):
        raise RuntimeError("a signature that was just made is not valid")
    return stopwatch.read()


def measure(folder: Path, quick: bool) -> list[Row]:
    """Transfers connected per second, against one thread that verifies as many signatures with PyNaCl."""
    sizes = QUICK if quick else FULL
    initial, blocks, bodies = prepare(folder, sizes)
    signatures = [[(t.sender_key, t.txid, t.signature) for t in body] for body in bodies]
    del bodies

    connected, processor = Rounds(), Rounds()

    async def run(reactor: Any) -> None:
        async with opened(initial, reactor) as node_context:
            for start in range(0, len(blocks), sizes.blocks):
                part = slice(start, start + sizes.blocks)
                count = sizes.blocks * sizes.transfers
                seconds, spent = verify([each for body in signatures[part] for each in body])
                stopwatch = Stopwatch()
                await feed(node_context.chain_manager, [[block] for block in blocks[part]])
                seconds_here, spent_here = stopwatch.read()
                connected.add(count / seconds_here, count / seconds)
                processor.add(spent_here / count * 1e6, spent / count * 1e6)

    on_reactor(run)
    name = f"transfers connected, {sizes.accounts:,} accounts"
    goal = Goal("ratio", ">=", 0.45)
    return [
        connected.row(name, unit="/s", baseline_is="signatures/s, one thread", goal=goal),
        processor.row(f"{name}, processor time", unit="µs", baseline_is="µs, one signature"),
    ]


if __name__ == "__main__":
    main(measure)
