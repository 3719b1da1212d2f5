"""The state root after a change, processor time per changed account, with 10^4, 10^5 and 10^6 accounts."""

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from sqlite3 import Connection
from time import thread_time

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import create_chain, unowned_key
from benchmarks.program import main
from svcd.chain.accounts import Account
from svcd.chain.commitment import Commitment, Overlay
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer


@frozen
class State:
    """Accounts on disk with the tree over them."""

    keys: list[bytes]
    connection: Connection
    store: ChainWriter
    commitment: Commitment

    def microseconds(self, changes: Iterable[Sequence[bytes]]) -> float:
        """What the root costs per changed account, each of ``changes`` being the accounts of one block."""
        seconds, count = 0.0, 0
        for keys in changes:
            accounts = {key: Account(count + index) for index, key in enumerate(keys)}
            with self.store.commit():
                began = thread_time()
                overlay = Overlay(self.commitment, len(self.keys))
                overlay.change(accounts, len(self.keys))
                self.commitment.take(overlay)
                seconds += thread_time() - began
                self.store.write_accounts(accounts, count=len(self.keys))
            count += len(keys)
        return seconds / count * 1e6


def state_of(path: Path, count: int) -> State:
    """A state of ``count`` accounts in a database at ``path``."""
    keys = [unowned_key(number) for number in range(count)]
    create_chain(path, keys)
    connection = open_writer(path)
    store = ChainWriter(connection)
    commitment = Commitment(store.account_rows)
    commitment.load(store.every_account(), count)
    return State(keys, connection, store, commitment)


def measure(folder: Path, quick: bool) -> list[Row]:
    """The state root after a change, per changed account, with 10^4, 10^5 and 10^6 accounts."""
    small, middle, large = (1_000, 10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    many, few, rounds_wanted, repeats = (500, 2, 2, 1) if quick else (2_000, 2, 15, 2)
    states = {count: state_of(folder / f"{count}.sqlite", count) for count in (small, middle, large)}
    choice = Random(2)
    gc.collect()
    gc.freeze()
    found = {(changed, count): Rounds() for changed in (many, few) for count in (small, large)}
    for _ in range(rounds_wanted):
        for changed, blocks in ((many, repeats), (few, 100 * repeats)):
            figures = {
                count: state.microseconds([choice.sample(state.keys, changed) for _ in range(blocks)])
                for count, state in states.items()
            }
            for count in (small, large):
                found[changed, count].add(figures[count], figures[middle])
    for state in states.values():
        state.connection.close()
    return [
        rounds.row(
            f"state root per account, {changed:,} of {count:,} changed",
            unit="µs",
            baseline_is=f"µs, {changed:,} of {middle:,}",
            goal=Goal("ratio", "<=", 2) if (changed, count) == (many, large) else None,
        )
        for (changed, count), rounds in found.items()
    ]


if __name__ == "__main__":
    main(measure)
