"""Submitting transfers to a transaction pool without HTTP."""

from twisted.internet.task import Clock

from svcd.chain.transaction import Transfer
from svcd.node.transaction_pool import SubmitResult, TransactionPool
from tests.support import result_of


def submitted(transaction_pool: TransactionPool, transfer: Transfer, clock: Clock) -> SubmitResult:
    """The result of submitting a transfer, at the end of the turn; raises RuleViolation."""
    reception = transaction_pool.submit(transfer)
    clock.advance(0)
    return result_of(reception)
