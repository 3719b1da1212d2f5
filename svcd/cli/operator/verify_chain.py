"""Verifies the chain of a stopped node: `svc db check` and `svc db verify` (docs/troubleshooting.md "Repairing").

:func:`verify_chain` hashes every header and executes every block again, from the genesis on accounts in memory, and
compares accounts, undo records and indexes with what is stored. Where old blocks were deleted, it begins at the prune
height, with the accounts that the undo records lead back to. It leaves out participation work and the signatures of
transfers: they were checked when the blocks came, and the hashes cover them. :func:`verify_headers` checks the
participation work, on every core.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from attrs import define, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.block import Block, Header
from svcd.chain.errors import Corrupt, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.state_root import state_root
from svcd.chain.state_tree import StateTree
from svcd.chain.transition import (
    ChainHead,
    ChainPoint,
    apply_block,
    check_header,
    genesis_accounts,
    genesis_head,
    history_leaf,
)
from svcd.chain.work import check_work, work_value
from svcd.store.account_runs import ACCOUNTS
from svcd.store.chain_store import ChainReader, StoredBlock
from svcd.store.offline_database import Inspector, errors_as_corrupt
from svcd.store.transfer_index import TRANSFERS, rows_of

BAD_BLOCK: Final = (Corrupt, RuleViolation, ValueError)
"""The exceptions that reading or executing a damaged block raises."""


def network_of(reader: Inspector, networks: Iterable[NetworkParams]) -> NetworkParams:
    """The one of ``networks`` whose chain is stored; raises Corrupt if there is none."""
    genesis = reader.canonical(0)
    for params in networks:
        if genesis is not None and genesis.point.hash == params.genesis_hash:
            return params
    raise Corrupt("the database does not begin with the genesis of a known network (svc --network FILE)")


@define
class Replay:
    """The state after the blocks that have been executed so far."""

    params: NetworkParams
    reader: Inspector
    at: ChainHead = field(init=False)
    """The last of them."""
    state: dict[bytes, Account] = field(init=False)
    history_rows: int = field(init=False, default=0)
    """How many history nodes there must be."""
    indexed: int = field(init=False, default=0)
    """How many rows the index must have."""

    def __attrs_post_init__(self) -> None:
        self.at = genesis_head(self.params)
        self.state = genesis_accounts(self.params)

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """See :class:`svcd.chain.transition.StateView`."""
        return {key: self.state[key] for key in keys if key in self.state}

    def execute(self, stored: StoredBlock) -> None:
        """Execute the next canonical block and compare its undo record and indexes; raises one of BAD_BLOCK."""
        if not stored.point.height:
            if stored.point != self.at.point:
                raise Corrupt("it is not the genesis")
            return
        block, head = self.read(stored)
        effect = apply_block(self.params, block, self)
        if self.reader.undo(stored) != effect.before:
            raise Corrupt("its undo record is missing or wrong")
        self._check_history(head.point)
        self._check_indexes(block)
        self.state.update(effect.after)
        self.at = head

    def begin_at(self, first: int) -> None:
        """Check the headers below height ``first``, and take the accounts before it; raises one of BAD_BLOCK.

        The accounts at the tip and the undo records lead back to them, and they must give the state root.
        """
        for height in range(1, first):
            stored = self.reader.existing(height)
            header = self.reader.block_header(stored, self.params)
            header.check_signature()
            self._go_on(stored, check_header(self.params, self.at, header))
        self.state = {key: Account(balance, nonce, held) for key, balance, nonce, held in self.reader.every_account()}
        for height in range(self.reader.existing_tip().height, first - 1, -1):
            before = self.reader.undo(self.reader.existing(height))
            if before is None:
                raise Corrupt(f"the undo record of block {height} is missing")
            self.state.update({key: account for key, account in before.items() if account is not None})
            for key in [key for key, account in before.items() if account is None]:
                self.state.pop(key, None)
        parent = self.reader.block_header(self.reader.existing(first - 1), self.params)
        if state_root(self.state.items()) != parent.state_root:
            raise Corrupt("the accounts and undo records do not lead back to its state root")

    def _go_on(self, stored: StoredBlock, head: ChainHead) -> None:
        """Go on to the next block, of which only the header is here."""
        if stored.parent != self.at.point.hash or stored.point != head.point:
            raise Corrupt("it does not follow from the block before it")
        self._check_history(head.point)
        self.at = head

    def read(self, stored: StoredBlock) -> tuple[Block, ChainHead]:
        """Parse the next canonical block and make the checks that need no state; raises one of BAD_BLOCK."""
        block = self.reader.block(stored, self.params)
        header = block.header
        if header.wire() != stored.header or [t.wire for t in block.transfers] != self.reader.bodies(stored):
            raise Corrupt("it is not stored in its canonical form")
        if stored.parent != self.at.point.hash:
            raise Corrupt("it does not build on the block before it")
        header.check_signature()
        block.check_body()
        head = check_header(self.params, self.at, header)
        if stored.point != head.point:
            raise Corrupt("its chain variables are not those that follow from the headers")
        return block, head

    def _check_history(self, point: ChainPoint) -> None:
        """Compare the nodes of the history tree that the next block completes."""
        leaf = history_leaf(point, work=point.work - self.at.point.work)
        nodes = list(enumerate(self.at.history.completed_by(leaf)))[1:]
        if self.reader.history_nodes(point.height) != nodes:
            raise Corrupt("its nodes of the history tree are missing or wrong")
        self.history_rows += len(nodes)

    def _check_indexes(self, block: Block) -> None:
        height = block.header.height
        for position, transfer in enumerate(block.transfers):
            if not self.reader.is_indexed(transfer, height, position):
                raise Corrupt(f"the index does not have {transfer.txid.hex()} where it is")
        self.indexed += len(rows_of(block.transfers, height))


def verify_chain(reader: Inspector, params: NetworkParams, step: Callable[[int], object]) -> list[str]:
    """The problems of the chain, a sentence each; ``step`` is called with the number of further blocks done."""
    replay, first = Replay(params, reader), reader.prune_height()
    if first:
        try:
            with errors_as_corrupt():
                replay.begin_at(first)
        except BAD_BLOCK as error:
            return [f"block {min(replay.at.point.height + 1, first - 1)}: {error}"]
        step(first)
    for height in range(first, reader.existing_tip().height + 1):
        try:
            with errors_as_corrupt():
                replay.execute(reader.existing(height))
        except BAD_BLOCK as error:
            # Everything after it depends on it.
            return [f"block {height}: {error}"]
        step(1)
    return [*_state_problems(replay), *_count_problems(replay)]


def _state_problems(replay: Replay) -> list[str]:
    problems = []
    stored = {key: Account(balance, nonce, held) for key, balance, nonce, held in replay.reader.every_account()}
    if stored != replay.state:
        wrong = sum(stored.get(key) != replay.state.get(key) for key in stored.keys() | replay.state.keys())
        problems.append(f"{wrong} of the accounts: the blocks lead to other values")
    for tree in (ACCOUNTS, TRANSFERS):
        if strays := replay.reader.count_strays(tree):
            problems.append(f"{strays} rows of {tree.table} belong to no run")
    tip = replay.reader.existing(replay.at.point.height)
    commitment = StateTree(replay.reader.account_rows)
    commitment.load(replay.reader.every_account(), len(stored))
    if replay.reader.block_header(tip, replay.params).state_root != commitment.root:
        problems.append(f"the accounts do not give the state root of block {replay.at.point.height}")
    return problems


def _count_problems(replay: Replay) -> list[str]:
    blocks = replay.at.point.height + 1
    wanted = {"history": replay.history_rows, "canonical": blocks, "undo": blocks - replay.reader.prune_height()}
    found = {table: replay.reader.rows_of(table) for table in wanted}
    wanted[TRANSFERS.table], found[TRANSFERS.table] = replay.indexed, replay.reader.count_indexed()
    return [
        f"{table} has {found[table]} rows instead of {wanted[table]}"
        for table in wanted
        if found[table] != wanted[table]
    ]


# Participation work

BATCH: Final = 2_000
"""Headers read at a time, while the threads work on the batch before; a peer's answer has as many."""
_CHUNK: Final = 8
"""Headers in one job of a thread."""
_RAW_HASHES: Final = 64
"""Argon2 hashes on each core in each of the two measurements of the machine."""


@frozen
class HeaderVerification:
    """The result of verifying headers; rates are those of all cores together."""

    first: int
    """The height of the first header that was verified."""
    count: int
    """How many headers are valid."""
    wrong: str
    """The first invalid header, and why; "" if all are valid."""
    headers_per_second: float
    raw_per_second: float
    """Argon2 hashes with the network's memory."""

    @property
    def ratio(self) -> float:
        """The part of the machine's Argon2 rate that is used."""
        return self.headers_per_second / self.raw_per_second


def verify_headers(
    reader: ChainReader,
    params: NetworkParams,
    *,
    newest: int | None,
    threads: int,
    step: Callable[[int], object],
) -> HeaderVerification:
    """Verify place, producer's signature and participation work of the ``newest`` canonical headers, or of all.

    ``step`` is called with the number of further valid headers. Raises Corrupt if the database has no chain.
    """
    height = reader.existing_tip().height
    first = max(1, height + 1 - (height if newest is None else newest))
    pool = ThreadPoolExecutor(threads)
    try:
        raw = _seconds_of_hashes(pool, params, threads)
        began = time.perf_counter()
        count, wrong = _verify(reader, pool, params, first, step)
        seconds = time.perf_counter() - began
        raw += _seconds_of_hashes(pool, params, threads)
    finally:
        pool.shutdown(cancel_futures=True)
    hashes = 2 * threads * _RAW_HASHES
    return HeaderVerification(first, count, wrong, count / seconds if count else 0.0, hashes / raw)


def _verify(
    reader: ChainReader, pool: ThreadPoolExecutor, params: NetworkParams, first: int, step: Callable[[int], object]
) -> tuple[int, str]:
    """How many headers from height ``first`` on are valid, and what is wrong with the next one, or ""."""
    count = 0
    headers, parent, wrong = _read_batch(reader, params, first, reader.head(reader.existing(first - 1), params))
    while headers or wrong:
        chunks = [headers[start : start + _CHUNK] for start in range(0, len(headers), _CHUNK)]
        results = pool.map(partial(_check_headers, params), chunks)
        # Read while the threads work.
        after = first + count + len(headers)
        following = ([], parent, "") if wrong else _read_batch(reader, params, after, parent)
        for valid, violation in results:
            count += valid
            if violation:
                return count, f"block {first + count}: {violation}"
        step(len(headers))
        if wrong:
            return count, wrong
        headers, parent, wrong = following
    return count, ""


def _check_headers(params: NetworkParams, headers: Sequence[Header]) -> tuple[int, str]:
    """How many of ``headers`` have a good signature and good work, and what is wrong with the next one, or ""."""
    for index, header in enumerate(headers):
        try:
            header.check_signature()
            check_work(header, params)
        except RuleViolation as violation:
            return index, violation.detail
    return len(headers), ""


def _read_batch(
    reader: ChainReader, params: NetworkParams, first: int, parent: ChainHead
) -> tuple[list[Header], ChainHead, str]:
    """Headers from height ``first`` on, the last one as the block to build on, what is wrong with the next one, or "".

    At most BATCH, each of which follows from the one before.
    """
    headers: list[Header] = []
    last = min(first + BATCH - 1, reader.existing_tip().height)
    for height in range(first, last + 1):
        try:
            header = reader.block_header(reader.existing(height), params)
            parent = check_header(params, parent, header)
        except BAD_BLOCK as error:
            return headers, parent, f"block {height}: {error}"
        headers.append(header)
    return headers, parent, ""


def _seconds_of_hashes(pool: ThreadPoolExecutor, params: NetworkParams, threads: int) -> float:
    """How long all threads take for their Argon2 hashes."""

    def share(number: int) -> None:
        for index in range(_RAW_HASHES):
            work_value(b"raw".ljust(28, b".") + number.to_bytes(4, "big"), index.to_bytes(8, "big"), params.memory_kib)

    began = time.perf_counter()
    list(pool.map(share, range(threads)))
    return time.perf_counter() - began
