"""What becomes of blocks that are handed in, and how the canonical chain changes: plain values."""

from enum import StrEnum

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.block import Block
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
class Change:
    """How the canonical chain changed in one commit; a block undone and applied again within it is not mentioned."""

    tip: ChainPoint
    undone: tuple[Undone, ...]
    """Newest first."""
    applied: tuple[Applied, ...]
    """Oldest first."""
    accounts: dict[bytes, Account]
    """Every account that these blocks touched, as it is now."""


@frozen
class Connected:
    """The outcome of a batch."""

    outcomes: list["Outcome"]
    """One for each block handed in."""
    refused: dict[bytes, RuleViolation]
    """Hashes of blocks that turned out invalid: of the batch, or stored earlier."""
    change: Change | None


Outcome = Standing | RuleViolation | NotYet
"""What a block that was handed in came to."""
