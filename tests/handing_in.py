"""Transfers that are handed in outside of HTTP."""

from twisted.internet.task import Clock

from svcd.chain.transaction import Transfer
from svcd.node.transfers import Reception, Transfers
from tests.support import result_of


def handed_in(transfers: Transfers, transfer: Transfer, clock: Clock) -> Reception:
    """What has become of a transfer at the end of the turn; raises RuleViolation."""
    reception = transfers.submit(transfer)
    clock.advance(0)
    return result_of(reception)
