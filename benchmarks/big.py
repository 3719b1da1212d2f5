"""A chain with 10^6 accounts and 10^6 transfers against a small one: start, memory, bytes written, blocks, answers."""

import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from attrs import define, evolve, field, frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import Signer, draft_blocks, unowned_key
from benchmarks.processes import DATABASE, Served, bare, node
from benchmarks.program import MeasureAt, main, on_reactor
from benchmarks.verification import Load, body_of, check_found, lay_payments, paths
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer
from svcd.store.state_tree_file import StateTreeFile

_ASKED: Final = 20_000
"""Questions of each kind, in random order: far more than a node has answers in memory."""


@frozen
class Size:
    """What a chain has."""

    accounts: int
    transfers: int


@frozen
class Sizes:
    """How much is measured."""

    small: Size
    large: Size
    blocks: int
    """Full ones that are connected."""
    per_block: int
    """Transfers in each of them."""
    rounds: int
    seconds: int
    """Of each kind of question in each round."""

    @property
    def signers(self) -> int:
        """Accounts that send a transfer each."""
        return self.blocks * self.per_block


_FULL: Final = Sizes(Size(120_000, 10_000), Size(1_000_000, 1_000_000), blocks=60, per_block=2_000, rounds=3, seconds=3)
_QUICK: Final = Sizes(Size(2_000, 2_000), Size(20_000, 4_000), blocks=2, per_block=200, rounds=1, seconds=1)


@define
class Written:
    """Bytes that this process has given the system to write since it was made.

    ``write_bytes`` of the same file counts a whole folio of the page cache, however large, when one byte of it changes:
    up to fifty times what reaches the disk.
    """

    _before: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._before = self._total()

    def read(self) -> int:
        """So far; pages that SQLite changes are counted when it writes them, to its log and to the file."""
        return self._total() - self._before

    @staticmethod
    def _total() -> int:
        lines = Path("/proc/self/io").read_text("ascii").splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("wchar:")))


def _prepare(folder: Path, size: Size, sizes: Sizes) -> list[bytes]:
    """The chain of a size in a data directory, and full blocks for it between random accounts, each in one transfer."""
    folder.mkdir()
    others = size.accounts - sizes.signers
    keys = [*(Signer(number).key for number in range(sizes.signers)), *map(unowned_key, range(others))]
    lay_payments(folder / DATABASE, size.transfers, keys)
    recipients = Random(4).sample(range(others), sizes.signers) if others >= sizes.signers else range(sizes.signers)
    return draft_blocks(folder / DATABASE, _bodies(list(recipients), sizes.per_block))


def _bodies(recipients: list[int], per_block: int) -> Iterator[list[Transfer]]:
    timestamp = DEVNET.genesis_time
    for start in range(0, len(recipients), per_block):
        yield [
            Signer(number).pays(
                unowned_key(recipients[number]), amount=1_000_000, timestamp=timestamp, reference=f"new-order-{number}"
            )
            for number in range(start, start + per_block)
        ]


@frozen
class Connected:
    """What connecting the full blocks cost."""

    rates: Rounds = field(factory=Rounds)
    """Transfers a second, a round for each block."""
    megabytes: dict[Path, float] = field(factory=dict)
    """Written for each block, by the folder of the chain; with what closing the database writes to it."""


def _connect(blocks: dict[Path, list[bytes]], small: Path, large: Path, per_block: int) -> Connected:
    """Connect the blocks to both chains, in turn."""
    found = Connected(megabytes=dict.fromkeys((small, large), 0.0))
    order = (small, large)

    def add(folder: Path, written: Written) -> None:
        found.megabytes[folder] += written.read() / len(blocks[folder]) / 1e6

    async def take_up(folder: Path, node_context: Any, block: bytes) -> float:
        written, began = Written(), time.perf_counter()
        await feed(node_context.chain_manager, [[block]])
        seconds = time.perf_counter() - began
        add(folder, written)
        return per_block / seconds

    async def run(reactor: Any) -> None:
        contexts = {folder: opened(folder / DATABASE, reactor) for folder in order}
        nodes = {folder: await context.__aenter__() for folder, context in contexts.items()}
        for number in range(len(blocks[small])):
            rates = [await take_up(folder, nodes[folder], blocks[folder][number]) for folder in order]
            found.rates.add(rates[1], rates[0])
        for folder, context in contexts.items():
            written = Written()
            await context.__aexit__(None, None, None)
            add(folder, written)
            # The file of the state tree is written by a stop, not by each block.
            found.megabytes[folder] -= StateTreeFile(folder / DATABASE).path.stat().st_size / len(blocks[folder]) / 1e6

    on_reactor(run)
    return found


def _started(folder: Path) -> tuple[float, float]:
    """Seconds until a node on ``folder`` listens, and the most megabytes that it has had resident then."""
    began = time.perf_counter()
    with node(folder) as served:
        return time.perf_counter() - began, served.peak_bytes() / 1e6


def _questions(size: Size, sizes: Sizes) -> dict[str, list[str]]:
    """Paths by the kind of question; no answer is in a node's memory from the last time."""
    choice = Random(5)
    others = max(size.accounts - sizes.signers, 1)

    def balance() -> str:
        return f"/rpc/balance/{encode_address(unowned_key(choice.randrange(others)), DEVNET.address_prefix)}"

    def transaction() -> str:
        return f"/rpc/transaction/{body_of(choice.randrange(size.transfers))[0].hex()}"

    return {
        "balance": [balance() for _ in range(_ASKED)],
        "payment by a reference": list(paths(size.transfers)),
        "transaction": [transaction() for _ in range(_ASKED)],
    }


@frozen
class Answers:
    """Answers of the large chain's node, by the kind of question."""

    against_small: dict[str, Rounds]
    against_bare: dict[str, Rounds]
    processor: dict[str, Rounds]
    """µs for each answer, and for one of the bare route."""
    small_against_bare: dict[str, Rounds]
    resident: tuple[float, float]
    """Megabytes after all questions: large chain, small chain."""


def _ask(folder: Path, small: Path, large: Path, sizes: Sizes) -> Answers:
    asked = {small: _questions(sizes.small, sizes), large: _questions(sizes.large, sizes)}
    for at, questions in asked.items():
        for kind, lines in questions.items():
            (at / kind).write_text("".join(f"{line}\n" for line in lines), "ascii")
    kinds = list(asked[small])
    against_small, against_bare, processor, small_against_bare = ({kind: Rounds() for kind in kinds} for _ in range(4))

    def load(served: Served, at: Path, kind: str) -> Load:
        check_found(f"{served.url}{asked[at]['payment by a reference'][0]}")
        return Load.of(served, sizes.seconds, str(at / kind))

    with node(small) as few, node(large) as many, bare(folder) as compared:
        for _ in range(sizes.rounds):
            for kind in kinds:
                baseline = Load.of(compared, sizes.seconds)
                one, other = load(many, large, kind), load(few, small, kind)
                against_small[kind].add(one.answers_per_second, other.answers_per_second)
                against_bare[kind].add(one.answers_per_second, baseline.answers_per_second)
                small_against_bare[kind].add(other.answers_per_second, baseline.answers_per_second)
                processor[kind].add(one.microseconds, baseline.microseconds)
        resident = many.resident_bytes() / 1e6, few.resident_bytes() / 1e6
    return Answers(against_small, against_bare, processor, small_against_bare, resident)


def measure(folder: Path, quick: bool) -> list[Row]:
    """A chain with 10^6 accounts and 10^6 transfers, against one with 50,000 and 10,000."""
    return _measure(folder, _QUICK if quick else _FULL)


def _measure(folder: Path, sizes: Sizes) -> list[Row]:
    small, large = folder / "small", folder / "large"
    blocks = {small: _prepare(small, sizes.small, sizes), large: _prepare(large, sizes.large, sizes)}
    connected = _connect(blocks, small, large, sizes.per_block)
    blocks.clear()
    starts, peaks = Rounds(), Rounds()
    for _ in range(sizes.rounds):
        (seconds, peak), (seconds_small, peak_small) = _started(large), _started(small)
        starts.add(seconds, seconds_small)
        peaks.add(peak, peak_small)
    answers = _ask(folder, small, large, sizes)
    name = f"{sizes.large.accounts:,} accounts, {sizes.large.transfers:,} transfers"
    baseline = f"{sizes.small.accounts:,} and {sizes.small.transfers:,}"
    megabytes = Rounds([connected.megabytes[large]], [connected.megabytes[small]])
    resident = Rounds([answers.resident[0]], [answers.resident[1]])
    longer = 3 if sizes.large.accounts > _FULL.large.accounts else 1
    at_start = Goal("figure", "<=", round(median(starts.baselines) + longer, 2))
    return [
        starts.row(f"start, {name}", unit="s", baseline_is=f"s, {baseline}", goal=at_start),
        peaks.row("memory at the start", unit="MB", baseline_is=f"MB, {baseline}", goal=Goal("figure", "<=", 150)),
        resident.row(
            "memory after all questions", unit="MB", baseline_is=f"MB, {baseline}", goal=Goal("figure", "<=", 250)
        ),
        megabytes.row(
            f"written for a block of {sizes.per_block:,} transfers",
            unit="MB",
            baseline_is=f"MB, {baseline}",
            goal=Goal("figure", "<=", 6),
        ),
        connected.rates.row(
            "transfers connected", unit="/s", baseline_is=f"/s, {baseline}", goal=Goal("ratio", ">=", 0.5)
        ),
        *(
            row
            for kind in answers.against_small
            for row in (
                answers.against_small[kind].row(kind, unit="/s", baseline_is=f"/s, {baseline}"),
                answers.against_bare[kind].row(
                    kind, unit="/s", baseline_is="/s, bare Klein route", goal=Goal("ratio", ">=", 0.8)
                ),
                answers.small_against_bare[kind].row(
                    f"{kind}, {baseline}", unit="/s", baseline_is="/s, bare Klein route", goal=Goal("ratio", ">=", 1)
                ),
                answers.processor[kind].row(f"{kind}, processor time", unit="µs", baseline_is="µs, bare Klein route"),
            )
        ),
    ]


def measure_at(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """The same with so many accounts and so many transfers."""
    sizes = _QUICK if quick else _FULL
    return _measure(folder, evolve(sizes, large=Size(int(number), int(number))))


def measure_accounts(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """The same with so many accounts, and transfers as always."""
    sizes = _QUICK if quick else _FULL
    return _measure(folder, evolve(sizes, large=evolve(sizes.large, accounts=int(number))))


_INSTEAD: Final[dict[str, tuple[str, MeasureAt]]] = {
    "size": ("ACCOUNTS-AND-TRANSFERS", measure_at),
    "accounts": ("ACCOUNTS", measure_accounts),
}

if __name__ == "__main__":
    main(measure, _INSTEAD)
