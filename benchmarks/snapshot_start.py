"""A new node beside 20,000 blocks with 10^6 transfers to as many accounts: by a snapshot, against all blocks.

    python -m benchmarks.snapshot_start --per-block 2000

puts as many transfers into the first 500 blocks, so that the blocks after the snapshot are empty: what is left then is
what a start from a snapshot costs on a chain of any length. Otherwise each block has 50, and the 2,720 blocks after the
snapshot, which every new node executes, are a seventh of the chain.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import Any, Final
from urllib.request import urlopen
from zlib import crc32

from attrs import evolve, frozen

from benchmarks.figures import Goal, Row
from benchmarks.local_node import feed, opened
from benchmarks.prepared_chain import build_blocks, draft_blocks, unowned_key
from benchmarks.processes import DATABASE, Served, node
from benchmarks.program import main, on_reactor
from benchmarks.pruning import Size, prune
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.snapshot import RECORD_BYTES, SNAPSHOT_BLOCKS
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.node.snapshots import DEPTH
from svcd.store.snapshot_file import SnapshotFile

_SVC: Final = str(Path(sys.executable).parent / "svc")
_CONFIRMATIONS: Final = 100
"""Of the payment that is verified."""
_AMOUNT: Final = DEVNET.account_minimum
_TRUSTLESS_MEGABYTES: Final = Goal("figure", "<=", 0.6)
_BATCH: Final = 50
_POLL_SECONDS: Final = 0.05
_SUM: Final = Struct(">I")


@frozen
class Sizes:
    """How much is measured."""

    blocks: int
    transfers: int
    per_block: int
    """Transfers in each block until all are made."""
    kept: int
    """Blocks that the pruned node keeps."""
    further: int
    """Blocks that it connects then."""

    def count(self, height: int) -> int:
        """Transfers in the block at ``height``; at least one in the block of the payment that is verified."""
        left = self.transfers - (height - 1) * self.per_block
        return max(min(left, self.per_block), int(height == self.paid_at))

    @property
    def paid_at(self) -> int:
        """The height of the block with the payment that is verified."""
        return self.blocks - _CONFIRMATIONS + 1

    @property
    def paid(self) -> int:
        """The number of that payment."""
        return min((self.paid_at - 1) * self.per_block, self.transfers)

    @property
    def started_from(self) -> int:
        """The block of the snapshot from which a new node starts."""
        return (self.blocks - SNAPSHOT_BLOCKS) // SNAPSHOT_BLOCKS * SNAPSHOT_BLOCKS

    @property
    def newest_snapshot(self) -> int:
        """The block of the newest snapshot that a node makes."""
        return (self.blocks - DEPTH) // SNAPSHOT_BLOCKS * SNAPSHOT_BLOCKS


_FULL: Final = Sizes(blocks=20_000, transfers=1_000_000, per_block=50, kept=10_080, further=2_000)
_QUICK: Final = Sizes(blocks=3_000, transfers=36_000, per_block=25, kept=1_500, further=40)
"""With four chunks of the snapshot, so that each of three peers is asked for one."""


def _payment(number: int, to: int | None = None) -> Transfer:
    """The faucet's transfer of this number, to an account of its own or to that of the transfer ``to``."""
    draft = Draft(
        recipient=encode_address(unowned_key(number if to is None else to), DEVNET.address_prefix),
        amount=_AMOUNT,
        fee=DEVNET.minimum_fee,
        nonce=number,
        timestamp=DEVNET.genesis_time,
        reference=f"order-{number}",
    )
    return sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)


def make_chain(folder: Path, sizes: Sizes) -> None:
    """Make the data directory of a node that has the chain, and the two newest snapshots of it."""
    folder.mkdir()
    bodies = _bodies(sizes)
    # A node makes a snapshot when its block is new: later, the undo records of all blocks since do not fit into memory.
    first = sizes.started_from + DEPTH
    build_blocks(folder / DATABASE, (next(bodies) for _ in range(first)))
    _make_snapshot(folder, sizes.started_from)
    build_blocks(folder / DATABASE, bodies)
    _make_snapshot(folder, sizes.newest_snapshot)


def _bodies(sizes: Sizes) -> Iterator[list[Transfer]]:
    number = 0
    for height in range(1, sizes.blocks + 1):
        count = sizes.count(height)
        yield list(map(_payment, range(number, number + count)))
        number += count


def _make_snapshot(folder: Path, height: int) -> None:
    with node(folder) as served:
        _wait_for_snapshot(served, height)


def _wait_for_snapshot(served: Served, height: int) -> None:
    """Return once a node serves the snapshot of the block at ``height``."""
    while not any(int(each["height"]) == height for each in _status(served, "p2p")["snapshots"]):
        time.sleep(_POLL_SECONDS)


def _copy(source: Path, target: Path) -> Path:
    """Another node with the same chain and snapshots."""
    target.mkdir()
    for path in (*source.glob(f"{DATABASE}*"), *source.glob("snapshot-*")):
        shutil.copy(path, target)
    return target


def _falsify(path: Path) -> None:
    """Change one byte in each chunk, and the checksums (:mod:`svcd.store.snapshot_file`): only its root shows it."""
    file, content = SnapshotFile.open(path), bytearray(path.read_bytes())
    manifest = file.manifest
    footer = manifest.accounts * RECORD_BYTES
    sums = footer + len(file.wire)
    end = sums + len(manifest.chunks) * _SUM.size
    for index, (first, last) in enumerate(pairwise(manifest.starts)):
        if first < last:
            content[last * RECORD_BYTES - 1] ^= 1
        chunk = content[first * RECORD_BYTES : last * RECORD_BYTES]
        _SUM.pack_into(content, sums + index * _SUM.size, crc32(chunk))
    _SUM.pack_into(content, len(content) - _SUM.size, crc32(content[footer:end]))
    path.write_bytes(content)


@frozen
class Cost:
    """What it took a new node to be in step, from the start of its process."""

    seconds: float
    processor_seconds: float

    def rows(self, name: str, all_blocks: "Cost", goal: Goal) -> list[Row]:
        """Both against those of a node that has executed all blocks."""
        found = (
            ("", self.seconds, all_blocks.seconds),
            (", processor time", self.processor_seconds, all_blocks.processor_seconds),
        )
        return [
            Row(
                name=f"{name}{what}",
                figure=figure,
                unit="s",
                baseline=baseline,
                baseline_is="s, all blocks from one peer",
                ratio=figure / baseline,
                goal=goal,
            )
            for what, figure, baseline in found
        ]


@contextmanager
def _new_node(folder: Path, peers: Sequence[Served], height: int, *, start: str) -> Iterator[tuple[Served, Cost]]:
    """A node without a chain once it is in step with ``peers``, and what that took."""
    folder.mkdir()
    urls = json.dumps([peer.url for peer in peers])
    began = time.perf_counter()
    with node(folder, f"p2p.seeds={urls}", f"chain.start={start}") as served:
        while not _is_in_step(served, height):
            time.sleep(_POLL_SECONDS)
        yield served, Cost(time.perf_counter() - began, served.processor_seconds())


def _status(served: Served, interface: str = "rpc") -> dict[str, Any]:
    with urlopen(f"{served.url}/{interface}/status") as answer:  # noqa: S310 -- it is a process that we have started
        status: dict[str, Any] = json.load(answer)["status"]
    return status


def _is_in_step(served: Served, height: int) -> bool:
    status = _status(served)
    return int(status["height"]) >= height and status["syncState"] == "synced"


def _check_banned(folder: Path, liar: Served) -> None:
    """Raise RuntimeError unless the log of the node in ``folder`` says that ``liar`` was banned for a chunk."""
    log = (folder / "node.log").read_text("utf-8")
    if not any(f"banned {liar.url} " in line and "false chunk" in line for line in log.splitlines()):
        raise RuntimeError(f"the peer that sent false chunks was not banned:\n{log[-2000:]}")


def _check_snapshot(served: Served, sizes: Sizes) -> None:
    """Raise RuntimeError unless a node has started from the snapshot."""
    found = int(_status(served)["pruneHeight"])
    if found != sizes.started_from + 1:
        raise RuntimeError(f"the node has blocks from {found} on, not from {sizes.started_from + 1}")


def _fetched(url: str, *command: str) -> float:
    """Megabytes that ``svc COMMAND --trustless`` fetches from the node at ``url``."""
    done = subprocess.run((_SVC, *command, "--trustless", "--json", "--url", url), check=True, capture_output=True)
    return int(json.loads(done.stdout)["fetchedBytes"]) / 1e6


def new_nodes(folder: Path, honest: Path, sizes: Sizes) -> list[Row]:
    """The rows of new nodes that synchronise from copies of ``honest``."""
    other, lying = _copy(honest, folder / "other"), _copy(honest, folder / "lying")
    for path in lying.glob("snapshot-*"):
        _falsify(path)
    address = encode_address(unowned_key(sizes.paid), DEVNET.address_prefix)
    reference, amount = f"order-{sizes.paid}", f"{_AMOUNT / 10**8:f}"
    with ExitStack() as stack:
        first = stack.enter_context(node(honest))
        _wait_for_snapshot(first, sizes.started_from)
        with _new_node(folder / "blocks", [first], sizes.blocks, start="blocks") as (_, by_blocks):
            pass
        with _new_node(folder / "snapshot", [first], sizes.blocks, start="snapshot") as (served, by_snapshot):
            _check_snapshot(served, sizes)
            verified = _fetched(served.url, "verify", reference, address, amount)
            balance = _fetched(served.url, "balance", address)
        sources = [first, *(stack.enter_context(node(each)) for each in (other, lying))]
        for source in sources:
            _wait_for_snapshot(source, sizes.started_from)
        with _new_node(folder / "beside", sources, sizes.blocks, start="snapshot") as (served, beside_liar):
            _check_snapshot(served, sizes)
            _check_banned(folder / "beside", sources[-1])
    name = f"{sizes.blocks:,} blocks, {sizes.transfers:,} transfers, {sizes.per_block:,} in a block"
    goal = Goal("ratio", "<=", 0.1)
    beside = "the same from three peers, of which one sends false chunks and is banned"
    return [
        *by_snapshot.rows(f"a new node from a snapshot, {name}", by_blocks, goal),
        *beside_liar.rows(beside, by_blocks, goal),
        Row(name="svc verify --trustless at the new node", figure=verified, unit="MB", goal=_TRUSTLESS_MEGABYTES),
        Row(name="svc balance --trustless at the new node", figure=balance, unit="MB", goal=_TRUSTLESS_MEGABYTES),
    ]


def pruned(path: Path, sizes: Sizes) -> list[Row]:
    """The rows of a node that keeps ``sizes.kept`` blocks, and then connects further ones."""
    first = sum(map(sizes.count, range(1, sizes.blocks + 1)))
    # To accounts that exist, or the accounts alone would make the file larger.
    bodies = (
        [_payment(number, to=number % sizes.transfers) for number in range(start, start + sizes.per_block)]
        for start in range(first, first + sizes.further * sizes.per_block, sizes.per_block)
    )
    blocks = draft_blocks(path, bodies)

    async def run(reactor: Any) -> None:
        async with opened(path, reactor, keep_blocks=sizes.kept) as node_context:
            node_context.start_pruning()
            await feed(
                node_context.chain_manager,
                (blocks[start : start + _BATCH] for start in range(0, sizes.further, _BATCH)),
            )

    prune(path, sizes.kept)
    before = Size.of(path)
    on_reactor(run)
    after = Size.of(path)
    name = f"with the newest {sizes.kept:,} blocks whole, after {sizes.further:,} further ones"
    goal = Goal("ratio", "<=", 1.02)
    return [
        Row(
            name=f"{what} {name}",
            figure=then,
            unit="MB",
            baseline=earlier,
            baseline_is="MB before them",
            ratio=then / earlier,
            goal=goal,
        )
        for what, then, earlier in (("file", after.file, before.file), ("in use", after.used, before.used))
    ]


def measure(folder: Path, quick: bool) -> list[Row]:
    """A new node beside 20,000 blocks with 10^6 transfers to as many accounts: by a snapshot, against all blocks."""
    sizes, honest = _QUICK if quick else _FULL, folder / "honest"
    make_chain(honest, sizes)
    return [*new_nodes(folder, honest, sizes), *pruned(honest / DATABASE, sizes)]


def measure_at(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """New nodes, where so many transfers are in each block, from the first one on, until all are made."""
    sizes, honest = evolve(_QUICK if quick else _FULL, per_block=int(number)), folder / "honest"
    make_chain(honest, sizes)
    return new_nodes(folder, honest, sizes)


if __name__ == "__main__":
    main(measure, {"per-block": ("TRANSFERS", measure_at)})
