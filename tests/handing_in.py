"""Transfers that are handed in outside of HTTP."""

from twisted.internet.task import Clock

from svcd.chain.transaction import Transfer
from svcd.node.transaction_pool import SubmitResult, TransactionPool
from tests.support import result_of


def handed_in(transaction_pool: TransactionPool, transfer: Transfer, clock: Clock) -> SubmitResult:
    """What has become of a transfer at the end of the turn; raises RuleViolation."""
    reception = transaction_pool.submit(transfer)
    clock.advance(0)
    return result_of(reception)
