"""What becomes of blocks that are handed in, and how the canonical chain changes: plain values."""

from collections.abc import Set
from enum import StrEnum
from hashlib import sha256
from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.accounts import Account
from svcd.chain.block import Block
from svcd.chain.commitment import Overlay
from svcd.chain.errors import NotYet, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint


class Standing(StrEnum):
    """What has become of a block that was handed in."""

    CONNECTED = "connected"
    SIDE = "side"
    KNOWN = "known"


@frozen
class Candidate:
    """A block that has passed every check but those of the state, and the chain variables after it."""

    block: Block
    point: ChainPoint


@frozen
class Applied:
    """A block that became canonical."""

    point: ChainPoint
    txids: tuple[bytes, ...]


@frozen
class Undone:
    """A block that ceased to be canonical."""

    point: ChainPoint
    transfers: tuple[Transfer, ...]


@frozen
class CommittedBlock:
    """The bytes of a block."""

    hash: bytes
    header: bytes
    """Its canonical JSON."""
    wire: bytes
    """That of the whole block."""
    digest: bytes
    """The SHA-256 of that."""

    @classmethod
    def of(cls, block: Block) -> "CommittedBlock":
        """Those of ``block``; of a full one it takes milliseconds."""
        wire = block.wire()
        return cls(block.header.hash, block.header.wire(), wire, sha256(wire).digest())


@frozen
class Change:
    """How the canonical chain changed in one commit; a block undone and applied again within it is not mentioned."""

    tip: ChainPoint
    undone: tuple[Undone, ...]
    """Newest first."""
    applied: tuple[Applied, ...]
    """Oldest first."""
    accounts: dict[bytes, Account]
    """Every account that these blocks touched, as it is now."""
    newest: CommittedBlock = field(kw_only=True, repr=False)
    """The block at the tip."""
    txids: Set[bytes] = field(init=False, eq=False, repr=False)
    """Of all transfers that became canonical: of hundreds of full blocks it is made in the writer's thread."""

    @txids.default
    def _of_all_blocks(self) -> Set[bytes]:
        # One by one, so that the reactor's thread has the interpreter in between.
        return {txid for block in self.applied for txid in block.txids}

    returned: int = field(default=0, kw_only=True)
    """Up to which row what the undone blocks held is kept on disk for the mempool (ChainWriter.keep_returned)."""


@frozen
class Connected:
    """The outcome of a batch."""

    outcomes: list["Outcome"]
    """One for each block handed in."""
    refused: dict[bytes, RuleViolation]
    """Hashes of blocks that turned out invalid: of the batch, or stored earlier."""
    change: Change | None


@frozen
class HeaderCheck:
    """How far a row of headers holds."""

    points: list[ChainPoint]
    """The chain variables after each header that holds, in order."""
    failure: RuleViolation | NotYet | None
    """Why the first header after these does not hold; None if all do."""


class Stage(StrEnum):
    """Where a batch of blocks is on its way into the chain."""

    PARSE = "parse"
    """It waits for those before it to be looked at, or is taken apart; signatures of producers are checked here."""
    VERIFY = "verify"
    """Participation work and the signatures of transfers."""
    CONNECT = "connect"
    """It waits for its parents and for the writer, or is being written."""


Outcome = Standing | RuleViolation | NotYet
"""What a block that was handed in came to."""

_MAX_RETURNED: Final = 50_000
"""Transfers of undone blocks that are kept for the mempool; in a deeper reorganisation the newest are let go."""


@define
class Progress:
    """Where the chain stands and what has happened since the transaction began."""

    tip: ChainPoint
    state: Overlay
    """The accounts, which are written when all is done."""
    undone: list[Undone] = field(factory=list)
    applied: list[Applied] = field(factory=list)
    kept: int = 0
    """Transfers in ``undone``."""
    let_go: int = 0
    """How many entries of ``undone`` have been emptied."""

    @property
    def moved(self) -> bool:
        """Whether anything has changed."""
        return bool(self.undone or self.applied)

    def copy(self) -> "Progress":
        """The same, to go back to."""
        return evolve(self, state=self.state.copy(), undone=list(self.undone), applied=list(self.applied))

    def change(self, newest: Block, *, returned: int) -> Change:
        """What has changed, with the block at the tip; see :class:`Change`."""
        accounts = {key: account or Account() for key, account in self.state.changed.items()}
        undone, applied, tip = tuple(self.undone), tuple(self.applied), CommittedBlock.of(newest)
        return Change(self.tip, undone, applied, accounts, newest=tip, returned=returned)

    def let_newest_go(self) -> None:
        """Keep no more undone transfers than the mempool could take."""
        while self.kept > _MAX_RETURNED:
            block = self.undone[self.let_go]
            self.undone[self.let_go] = Undone(block.point, ())
            self.kept -= len(block.transfers)
            self.let_go += 1
