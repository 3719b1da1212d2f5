"""Waiting transfers that we asked a peer for, because nobody can call us."""

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_transfer
from svcd.node.transfers import Transfers
from svcd.p2p.peer import Peer


class PolledTransfers:
    """Hands them in at the same door as all others."""

    log = Logger()

    def __init__(self, params: NetworkParams, transfers: Transfers) -> None:
        self._params = params
        self._transfers = transfers

    def take(self, peer: Peer, value: object) -> None:
        """Hand in one; what is refused is no fault of the peer's that a price would mend: pools differ."""
        try:
            transfer = parse_transfer(value, self._params)
        except RuleViolation as violation:
            self.log.debug("{endpoint} showed a bad transfer: {why}", endpoint=peer.endpoint, why=violation.detail)
            return
        peer.note(transfer.txid)
        submitted: Deferred[object] = self._transfers.submit(transfer)  # type: ignore[assignment]
        submitted.addErrback(self._refused, peer)

    def _refused(self, failure: Failure, peer: Peer) -> None:
        failure.trap(RuleViolation)  # type: ignore[no-untyped-call]
        self.log.debug("a transfer of {endpoint} is not taken: {why}", endpoint=peer.endpoint, why=str(failure.value))
