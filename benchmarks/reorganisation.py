"""The memory of a reorganisation of 250 full blocks: as many are undone as are connected.

Each transfer that is connected pays a new account, so that no two blocks change the same accounts.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from shutil import copy
from typing import Final

from attrs import frozen

from benchmarks.figures import Goal, Row
from benchmarks.prepared_chain import Signer, build_blocks, create_chain, draft_blocks, unowned_key
from benchmarks.processes import DATABASE
from benchmarks.program import main
from svcd.chain.address import encode_address
from svcd.chain.block import parse_block
from svcd.chain.params import DEVNET
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Transfer, parse_canonical_transfer
from svcd.chain.transition import ChainHead, head_after
from svcd.node.chainstate import Chainstate
from svcd.node.changes import BlockStatus, CheckedBlock
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer

_PER_BLOCK: Final = 2_000
_FULL: Final = (50, 250)
_QUICK: Final = (2, 3)
"""Blocks on either side, of the short and of the long reorganisation."""
_PROVEN: Final = 2**200
"""Work, so that the branch is kept until it wins."""


@frozen
class _Reorganisation:
    """What one reorganisation needed."""

    megabytes: float
    """More resident memory at its peak than before it."""
    seconds: float


def measure(folder: Path, quick: bool) -> list[Row]:
    """The memory of a reorganisation of 250 full blocks, against one of 50."""
    short, long = _QUICK if quick else _FULL
    return _rows(folder, short, long)


def measure_blocks(folder: Path, quick: bool, *, number: float) -> list[Row]:
    """The memory of a reorganisation of ``number`` full blocks, against one of 50."""
    return _rows(folder, (_QUICK if quick else _FULL)[0], int(number))


def _rows(folder: Path, short: int, long: int) -> list[Row]:
    few, many = (_reorganised(folder / str(blocks), blocks) for blocks in (short, long))
    return [
        Row(
            name=f"memory for a reorganisation of {long:,} full blocks",
            figure=many.megabytes,
            unit="MB",
            baseline=few.megabytes,
            baseline_is=f"MB, {short:,} blocks",
            ratio=many.megabytes / few.megabytes,
            goal=Goal("figure", "<=", 300),
        ),
        Row(
            name="the same, blocks undone and connected",
            figure=2 * long / many.seconds,
            unit="/s",
            baseline=2 * short / few.seconds,
            baseline_is=f"/s, {short:,} blocks",
            ratio=long / many.seconds / (short / few.seconds),
        ),
    ]


def _reorganised(folder: Path, blocks: int) -> _Reorganisation:
    """Make a chain and the last two blocks of a branch that wins, and reorganise in a process of its own."""
    folder.mkdir()
    path, other = folder / DATABASE, folder / "other.sqlite"
    signers = [Signer(number) for number in range(_PER_BLOCK)]
    create_chain(path, [signer.key for signer in signers])
    copy(path, other)
    body_of = _bodies(signers)
    old = [signer.key for signer in (*signers[1:], signers[0])]
    new = map(unowned_key, count())
    build_blocks(path, (body_of(nonce, old) for nonce in range(blocks)))
    branch = draft_blocks(other, (body_of(nonce, new) for nonce in range(blocks + 1)))
    connection = open_writer(path)
    chainstate = Chainstate(DEVNET, ChainWriter(connection))
    chainstate.load()
    _connect(chainstate, branch[:-2], BlockStatus.SIDE)
    connection.close()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_reorganise, path, branch[-2:]).result()


def _bodies(signers: list[Signer]) -> Callable[[int, Iterable[bytes]], Iterator[Transfer]]:
    """``body_of(nonce, recipients)``: a transfer from each signer to the next of ``recipients``, key hashes.

    Nobody has signed them.
    """
    addresses = [encode_address(signer.key, DEVNET.address_prefix) for signer in signers]
    keys = [public_key_of(signer.seed).hex() for signer in signers]

    def body_of(nonce: int, recipients: Iterable[bytes]) -> Iterator[Transfer]:
        for address, key, paid in zip(addresses, keys, recipients, strict=False):
            recipient = encode_address(paid, DEVNET.address_prefix)
            text = (
                f'{{"fee":"{DEVNET.minimum_fee}","networkId":{DEVNET.network_id},"nonce":"{nonce}","payload":{{'
                f'"amount":"{DEVNET.account_minimum}","recipient":"{recipient}"}},"senderAddress":"{address}","senderPublicKey":"{key}",'
                f'"signature":"{"0" * 128}","timestamp":"{DEVNET.genesis_time}","type":1,"version":2}}'
            )
            yield parse_canonical_transfer(text.encode("ascii"), DEVNET)

    return body_of


def _connect(chainstate: Chainstate, wires: list[bytes], outcome: BlockStatus, *, at_once: int = 1) -> None:
    """Connect blocks, some at once; raises RuntimeError if the last of them has another outcome."""
    for start in range(0, len(wires), at_once):
        batch: list[CheckedBlock] = []
        for wire in wires[start : start + at_once]:
            block = parse_block(wire, DEVNET)
            head = batch[-1].head if batch else _head(chainstate.store, block.header.parent_hash)
            batch.append(CheckedBlock(block, head_after(DEVNET, head, block.header), _PROVEN))
        found = chainstate.connect(batch).outcomes
        if found[-1] is not outcome:
            raise RuntimeError(f"a block became {found[-1]} and not {outcome}")


def _head(store: ChainWriter, block_hash: bytes) -> ChainHead:
    stored = store.stored(block_hash)
    if stored is None:
        raise RuntimeError("the parent of the branch is not stored")
    return store.head(stored, DEVNET)


def _reorganise(path: Path, last: list[bytes]) -> _Reorganisation:
    connection = open_writer(path)
    chainstate = Chainstate(DEVNET, ChainWriter(connection))
    chainstate.load()
    before, began = _peak_megabytes(), time.perf_counter()
    # The first may win already: it has as much work as the tip.
    _connect(chainstate, last, BlockStatus.CONNECTED, at_once=len(last))
    result = _Reorganisation(_peak_megabytes() - before, time.perf_counter() - began)
    connection.close()
    return result


def _peak_megabytes() -> float:
    status = Path("/proc/self/status").read_text("ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    main(measure, {"blocks": ("N", measure_blocks)})
