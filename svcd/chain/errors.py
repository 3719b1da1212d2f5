"""Three kinds of failure: of the sender, of the moment, of this node (docs/protocol.md 10)."""

from enum import StrEnum
from typing import Final

DAMAGE_ADVICE: Final = (
    "try `svc db rebuild`, restore the database from a backup, or move it away and the node fetches the chain again"
)
"""What to do about damage of the accounts on disk."""


class Refusal(StrEnum):
    """The rule that a value from outside breaks: one code for each rule of the protocol."""

    ENCODING = "encoding"
    SIZE = "size"
    FIELDS = "fields"
    FORMAT = "format"
    CONSTANTS = "constants"
    ADDRESS = "address"
    SENDER = "sender"
    REFERENCE = "reference"
    AMOUNT = "amount"
    FEE = "fee"
    TRANSACTION_SIGNATURE = "transaction-signature"
    TIMESTAMP = "timestamp"
    NONCE = "nonce"
    BALANCE = "balance"
    SENDER_MINIMUM = "sender-minimum"
    RECIPIENT_MINIMUM = "recipient-minimum"
    BLOCK_SIGNATURE = "block-signature"
    TRANSACTION_COUNT = "transaction-count"
    TRANSACTIONS_ROOT = "transactions-root"
    HEIGHT = "height"
    SLOT = "slot"
    BASE_TARGET = "base-target"
    PRODUCER = "producer"
    MULTIPLIER = "multiplier"
    WORK = "work"
    STATE_ROOT = "state-root"
    CONSENSUS_ROOT = "consensus-root"
    ANCESTOR = "ancestor"
    KNOWN_INVALID = "known-invalid"
    POOL = "pool"


class RuleViolation(Exception):
    """A value from outside breaks a rule: the fault of its sender.

    ``code`` names the rule; ``detail`` is one sentence with the numbers in it, fit to be shown to the sender.
    """

    def __init__(self, code: Refusal, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class StateViolation(RuleViolation):
    """A block breaks a rule that only its execution reveals: the fault of its producer, and not of every sender.

    The same holds for a block that builds on such a block.
    """


class ProducerViolation(RuleViolation):
    """A block is of a producer that the list in force here does not let make it, or builds on such a block.

    Its sender may be honest: one of the two nodes lacks a change of the list (docs/protocol.md 8a).
    """


class Wait(StrEnum):
    """Why a value cannot be judged at present."""

    EARLY = "early"
    ORPHAN = "orphan"
    DEEP = "deep"
    BUSY = "busy"


class NotYet(Exception):
    """No fault: the value may be valid later, so it must not be remembered as invalid."""

    def __init__(self, code: Wait, detail: str) -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        return self.detail


class Corrupt(Exception):
    """The node's own data is inconsistent; the node must stop rather than answer wrongly."""
