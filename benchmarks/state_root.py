"""The state root after a change, processor time per changed account: 10^4 to 10^6 accounts, and chosen keys."""

import gc
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from time import thread_time

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import create_chain, unowned_key
from benchmarks.program import main
from svcd.chain.accounts import Account
from svcd.chain.state_tree import Overlay, StateTree
from svcd.store.chain_store import ChainWriter
from svcd.store.database import DatabaseConnection, open_writer


@frozen
class State:
    """Accounts on disk with the tree over them."""

    keys: list[bytes]
    connection: DatabaseConnection
    store: ChainWriter
    state_tree: StateTree

    def microseconds(self, changes: Iterable[Sequence[bytes]]) -> float:
        """What the root costs per changed account, each of ``changes`` being the accounts of one block."""
        seconds, count = 0.0, 0
        for keys in changes:
            accounts = {key: Account(count + index) for index, key in enumerate(keys)}
            with self.store.commit():
                began = thread_time()
                overlay = Overlay(self.state_tree, len(self.keys))
                overlay.change(accounts, len(self.keys))
                self.state_tree.take(overlay)
                seconds += thread_time() - began
                self.store.write_accounts(accounts)
            count += len(keys)
        return seconds / count * 1e6


def look_alike(number: int, place: int, bits: int) -> bytes:
    """A key hash that somebody chose: those of a place share all but their last ``bits`` bits."""
    return (int.from_bytes(unowned_key(-1 - place), "big") >> bits << bits | number).to_bytes(20, "big")


def state_of(path: Path, keys: Sequence[bytes]) -> State:
    """A state of accounts with these keys in a database at ``path``."""
    create_chain(path, keys)
    connection = open_writer(path)
    store = ChainWriter(connection)
    state_tree = StateTree(store.account_rows)
    state_tree.load(store.every_account(), len(keys))
    return State(list(keys), connection, store, state_tree)


def measure(folder: Path, quick: bool) -> list[Row]:
    """The state root after a change, per changed account: 10^4 to 10^6 accounts, and keys that somebody chose."""
    small, middle, large = (1_000, 10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    many, few, rounds_wanted, repeats = (500, 2, 2, 1) if quick else (2_000, 2, 15, 2)
    crowd, crowds = (2_000, 20_000) if quick else (20_000, 200_000)
    ordinary = [unowned_key(number) for number in range(large)]
    alike = [look_alike(number * 7_919 % (1 << 18), 0, 18) for number in range(crowds)]
    pairs = [look_alike(number, place, 10) for place in range(1, many + 1) for number in (0, 1)]
    states = {count: state_of(folder / f"{count}.sqlite", ordinary[:count]) for count in (small, middle, large)}
    chosen = {
        name: state_of(folder / f"{name}.sqlite", ordinary[:middle] + keys)
        for name, keys in (("crowd", alike[:crowd]), ("crowds", alike), ("pairs", pairs))
    }
    choice = Random(2)
    gc.collect()
    gc.freeze()
    found = {(changed, count): Rounds() for changed in (many, few) for count in (small, large)}
    crowded = {(changed, name): Rounds() for changed in (many, few) for name in chosen}
    touched = {"crowd": alike[:crowd], "crowds": alike, "pairs": pairs[::2]}
    for _ in range(rounds_wanted):
        for changed, blocks in ((many, repeats), (few, 100 * repeats)):
            figures = {
                count: state.microseconds([choice.sample(state.keys, changed) for _ in range(blocks)])
                for count, state in states.items()
            }
            for count in (small, large):
                found[changed, count].add(figures[count], figures[middle])
            costs = {
                name: state.microseconds([choice.sample(touched[name], changed) for _ in range(blocks)])
                for name, state in chosen.items()
            }
            for name, cost in costs.items():
                crowded[changed, name].add(cost, costs["crowd"] if name == "crowds" else figures[middle])
    for state in (*states.values(), *chosen.values()):
        state.connection.close()
    names = {"crowd": f"{crowd:,} look-alikes", "crowds": f"{crowds:,} look-alikes", "pairs": f"{many:,} pairs of them"}
    return [
        *[
            rounds.row(
                f"state root per account, {changed:,} of {count:,} changed",
                unit="µs",
                baseline_is=f"µs, {changed:,} of {middle:,}",
                goal=Goal("ratio", "<=", 2) if (changed, count) == (many, large) else None,
            )
            for (changed, count), rounds in found.items()
        ],
        *[
            rounds.row(
                f"state root per account, {changed:,} of {names[name]} changed",
                unit="µs",
                baseline_is=f"µs, {changed:,} of {names['crowd'] if name == 'crowds' else f'{middle:,}'}",
                goal=Goal("ratio", "<=", 3 if name == "crowds" else 5),
            )
            for (changed, name), rounds in crowded.items()
        ],
    ]


if __name__ == "__main__":
    main(measure)
