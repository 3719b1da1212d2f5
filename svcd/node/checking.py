"""A chain at rest reckoned again from its genesis, and compared with everything that is stored of it.

Every header is hashed again and must follow from the one before; every block is executed again on accounts in memory;
accounts, undo records and indexes must then be what the disk has. Participation work and the signatures of transfers
were checked when the blocks came, and the hashes vouch for them since.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from attrs import define, field

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.commitment import Commitment
from svcd.chain.errors import Corrupt, RuleViolation
from svcd.chain.params import NETWORKS, NetworkParams
from svcd.chain.transition import (
    ChainPoint,
    apply_block,
    check_place,
    consensus_root,
    extend,
    genesis_accounts,
    genesis_point,
)
from svcd.store.chain_store import StoredBlock
from svcd.store.inspection import INDEXES, Inspector, unreadable_is_corrupt

BAD_BLOCK: Final = (Corrupt, RuleViolation, ValueError)
"""What reading and executing a stored block raises if it is not what it was."""


def network_of(reader: Inspector) -> NetworkParams:
    """The network whose chain is stored; raises Corrupt if it is none that is known."""
    genesis = reader.canonical(0)
    for params in NETWORKS.values():
        if genesis is not None and genesis.point.hash == params.genesis_hash:
            return params
    raise Corrupt("the database does not begin with the genesis of a network that is known")


@define
class Replay:
    """The state after the blocks that have been executed so far."""

    params: NetworkParams
    reader: Inspector
    at: ChainPoint = field(init=False)
    state: dict[bytes, Account] = field(init=False)
    expected: dict[str, int] = field(init=False)
    """How many rows each index must have."""

    def __attrs_post_init__(self) -> None:
        self.at = genesis_point(self.params)
        self.state = genesis_accounts(self.params)
        self.expected = dict.fromkeys(INDEXES, 0)

    def accounts(self, keys: Collection[bytes]) -> Mapping[bytes, Account]:
        """See :class:`svcd.chain.transition.StateView`."""
        return {key: self.state[key] for key in keys if key in self.state}

    def stored(self, height: int) -> StoredBlock:
        """The canonical block at ``height``; raises Corrupt."""
        stored = self.reader.canonical(height)
        if stored is None:
            raise Corrupt("it is missing")
        return stored

    def turn(self, stored: StoredBlock) -> None:
        """Execute the next canonical block and compare what is stored of it; raises one of BAD_BLOCK."""
        if not stored.point.height:
            if stored.point != self.at:
                raise Corrupt("it is not the genesis")
            return
        block = self.read(stored)
        effect = apply_block(self.params, block, self)
        if self.reader.undo(stored) != effect.before:
            raise Corrupt("its undo record is missing or wrong")
        self._check_indexes(block)
        self.state.update(effect.after)
        self.at = stored.point

    def read(self, stored: StoredBlock) -> Block:
        """The block, which is what it was and fits behind the one before; raises one of BAD_BLOCK."""
        block = self.reader.block(stored, self.params)
        header = block.header
        if header.wire() != stored.header or [t.wire for t in block.transfers] != self.reader.bodies(stored):
            raise Corrupt("it is not stored in its canonical form")
        if header.parent_hash != self.at.hash or stored.parent != self.at.hash:
            raise Corrupt("it does not build on the block before it")
        header.check_signature()
        block.check_body()
        check_place(self.params, self.at, header)
        point = extend(self.params, self.at, header)
        if stored.point != point:
            raise Corrupt("its chain variables are not those that follow from the headers")
        if header.consensus_root != consensus_root(self.params, point):
            raise Corrupt("its consensus root is not that of the chain after it")
        return block

    def _check_indexes(self, block: Block) -> None:
        height, reader = block.header.height, self.reader
        for position, transfer in enumerate(block.transfers):
            if reader.transaction_place(transfer.txid) != (height, position):
                raise Corrupt(f"the index of transfers does not have {transfer.txid.hex()} where it is")
            keys = {transfer.sender, transfer.recipient}
            if not all(reader.has_address_place(key, height, position) for key in keys):
                raise Corrupt(f"the index of addresses lacks {transfer.txid.hex()}")
            if transfer.reference is not None and not reader.has_payment_place(transfer, height, position):
                raise Corrupt(f"the index of payments lacks {transfer.txid.hex()}")
            self.expected["transaction_place"] += 1
            self.expected["address_place"] += len(keys)
            self.expected["payment_place"] += transfer.reference is not None


def check_chain(reader: Inspector, params: NetworkParams, step: Callable[[int], object]) -> list[str]:
    """What is wrong with the chain, a sentence each; ``step`` is called with the number of blocks done since."""
    tip = reader.tip()
    if tip is None:
        return ["it holds no block"]
    replay = Replay(params, reader)
    for height in range(tip.height + 1):
        try:
            with unreadable_is_corrupt():
                replay.turn(replay.stored(height))
        except BAD_BLOCK as error:
            # Whatever comes after it rests on it.
            return [f"block {height}: {error}"]
        step(1)
    return [*_state_problems(replay), *_count_problems(replay)]


def _state_problems(replay: Replay) -> list[str]:
    problems = []
    stored = {key: Account(balance, nonce, held) for key, balance, nonce, held in replay.reader.every_account()}
    if stored != replay.state:
        wrong = sum(stored.get(key) != replay.state.get(key) for key in stored.keys() | replay.state.keys())
        problems.append(f"{wrong} of the accounts: not what the blocks make of them")
    tip = replay.reader.canonical(replay.at.height)
    commitment = Commitment(replay.reader.account_rows)
    commitment.load(replay.reader.every_account(), len(stored))
    if tip is not None and replay.reader.block_header(tip, replay.params).state_root != commitment.root:
        problems.append(f"the accounts do not give the state root of block {replay.at.height}")
    return problems


def _count_problems(replay: Replay) -> list[str]:
    blocks = replay.at.height + 1
    wanted = {**replay.expected, "canonical": blocks, "undo": blocks}
    found = {table: replay.reader.rows_of(table) for table in wanted}
    return [
        f"{table} has {found[table]} rows and not {wanted[table]}" for table in wanted if found[table] != wanted[table]
    ]
