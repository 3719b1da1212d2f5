"""Values: the outcome of a submitted block, and a change of the canonical chain."""

from collections.abc import Collection, Sequence, Set
from enum import StrEnum
from hashlib import sha256
from typing import Final

from attrs import evolve, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.errors import NotYet, RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainHead, ChainPoint
from svcd.store.chain_store import ChainReader

MAX_LISTED: Final = 400_000
"""Transfers whose ids a change lists, 50 MB of them; only a reorganisation of hundreds of full blocks has more."""


THIS_NODE: Final = "this node"
"""The source of the blocks that this node makes."""


class BlockStatus(StrEnum):
    """The status of a submitted block that broke no rule."""

    CONNECTED = "connected"
    SIDE = "side"
    KNOWN = "known"


BlockOutcome = BlockStatus | RuleViolation | NotYet
"""The result of a block's submission."""


class BlockStage(StrEnum):
    """A stage in the processing of a batch of blocks."""

    PARSE = "parse"
    """The batch waits for earlier ones to be parsed, or is parsed; the producers' signatures are checked."""
    VERIFY = "verify"
    """Participation work and the signatures of transfers are checked."""
    CONNECT = "connect"
    """The batch waits for its parents or for a commit before it, or is written."""


@frozen
class CheckedBlock:
    """A block that has passed all checks but those that need the state."""

    block: Block
    head: ChainHead
    """The block as the one to build on."""
    proven_work: int = 0
    """The cumulative work of the best chain that verified headers have shown the block to belong to, if any have."""

    @property
    def point(self) -> ChainPoint:
        """The chain variables after it."""
        return self.head.point


@frozen
class AppliedBlock:
    """A block that became canonical."""

    point: ChainPoint
    transfer_count: int
    txids: tuple[bytes, ...] | None
    """The ids of its transfers; None once the transaction has applied more than MAX_LISTED, later undone ones included.

    Then they are None for all blocks of the change.
    """


@frozen
class UndoneBlock:
    """A block that ceased to be canonical."""

    point: ChainPoint
    disconnected: tuple[Transfer, ...]
    """Its transfers that no new block includes; none if a deep reorganisation does not return them to the mempool."""


def listed_txids(blocks: Sequence[AppliedBlock]) -> Set[bytes] | None:
    """The ids of the transfers in ``blocks``, or None if those of a block are not listed."""
    if any(block.txids is None for block in blocks):
        return None
    # A comprehension, not one call of set.union: the reactor's thread gets the interpreter in between.
    return {txid for block in blocks for txid in block.txids or ()}


@frozen
class CommittedBlock:
    """The bytes of a block."""

    hash: bytes
    header: bytes
    """The canonical JSON of the header."""
    wire: bytes
    """The canonical JSON of the block."""
    digest: bytes
    """The SHA-256 of ``wire``."""

    @classmethod
    def of(cls, block: Block) -> "CommittedBlock":
        """The bytes of ``block``; takes milliseconds for a full one."""
        wire = block.wire()
        return cls(block.header.hash, block.header.wire(), wire, sha256(wire).digest())


@frozen
class ChainChange:
    """A change of the canonical chain in one commit; a block undone and applied again within it is not listed."""

    tip: ChainPoint
    undone: tuple[UndoneBlock, ...]
    """Newest first."""
    applied: tuple[AppliedBlock, ...]
    """Oldest first."""
    accounts: dict[bytes, Account] | None
    """Every account that these blocks touched, as it is after the change; None if there are too many to list.

    So it is if the state of a snapshot has become that of the tip, and in the longest reorganisations. Listeners then
    get the accounts of the senders in the mempool.
    """
    newest: CommittedBlock | None = field(kw_only=True, repr=False)
    """The block at the tip; None if a snapshot has become the chain here."""
    txids: Set[bytes] | None = field(kw_only=True, eq=False, repr=False)
    """The ids of all transfers in ``applied``, or None if they are not listed (AppliedBlock.txids).

    Built in the writer's thread, for there may be 400,000. Listeners get those that are in the mempool, if not all.
    """

    @txids.default
    def _of_all_blocks(self) -> Set[bytes] | None:
        return listed_txids(self.applied)

    last_disconnected: int = field(default=0, kw_only=True)
    """The last row of the undone transfers saved for the mempool (ChainWriter.save_disconnected); 0 for none."""
    source: str = field(default="", kw_only=True)
    """Who brought the newest block: THIS_NODE, a peer's endpoint, or a client's address; "" if that is not known."""
    prune_height: int = field(default=0, kw_only=True)
    """See :meth:`svcd.store.chain_store.ChainReader.prune_height`."""
    names_all: bool = field(default=True, kw_only=True)
    """Whether ``accounts`` and ``txids`` are complete, and not only what concerns the mempool."""

    @property
    def returned(self) -> int:
        """How many transfers of undone blocks wait for a block again."""
        return sum(len(block.disconnected) for block in self.undone)

    @property
    def is_listed(self) -> bool:
        """Whether it has all that it changed."""
        return self.accounts is not None and self.txids is not None

    def listed_for(self, transfers: Collection[Transfer], params: NetworkParams, reader: ChainReader) -> "ChainChange":
        """The change with what it did not list, as far as it concerns ``transfers``, read after its commit."""
        accounts, txids = self.accounts, self.txids
        if accounts is None:
            senders = {transfer.sender for transfer in transfers}
            accounts = {**dict.fromkeys(senders, Account()), **reader.accounts(senders)}
        if txids is None:
            # A transfer is in a block only if its nonce is used; another transfer may have used it.
            spent = [each for each in transfers if each.nonce < accounts.get(each.sender, Account()).nonce]
            txids = {each.txid for each in spent if reader.has_transaction(each.txid, params)}
        return evolve(self, accounts=accounts, txids=txids, names_all=False)


@frozen
class ConnectResult:
    """The result of connecting a batch."""

    outcomes: list[BlockOutcome]
    """One for each block of the batch."""
    invalid: dict[bytes, RuleViolation]
    """By hash the blocks that turned out to be invalid, of the batch or stored before."""
    change: ChainChange | None


@frozen
class HeaderCheck:
    """How many of a sequence of headers are valid."""

    heads: list[ChainHead]
    """Each valid header as the block to build on, in order."""
    failure: RuleViolation | NotYet | None
    """Why the first header after these is not valid; None if all are."""
