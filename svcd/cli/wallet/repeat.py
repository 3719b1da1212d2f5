"""One payment, one transfer: what a repeated command does (docs/wallets.md "Paying once").

Whether transfers exclude each other does not depend on what a node says: of two transfers of an account with one nonce,
a chain includes one. So the terms of a stored transfer are signed again only under its own nonce, unless the user asks
for a second payment. What a node says of nonces and blocks decides only between answers that are all safe.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.cli.errors import CommandError
from svcd.cli.rendering import format_time
from svcd.cli.wallet.pending import NodeAnswer, PendingTransfer, is_too_old, is_void
from svcd.cli.wallet.preflight import AccountView, SendRequest


@frozen
class InBlock:
    """The payment is made: nothing is signed or sent."""

    transfer: Transfer
    confirmations: int


@frozen
class Resend:
    """The same bytes are sent again."""

    stored: PendingTransfer


@frozen
class SignAgain:
    """Another transfer of the same payment is signed, under the nonce of the one that it replaces."""

    replaced: Transfer


@frozen
class SignNew:
    """A payment that this wallet has not signed yet, or a second one that the user asks for."""


Step = InBlock | Resend | SignAgain | SignNew


def same_terms(request: SendRequest, stored: Sequence[PendingTransfer], params: NetworkParams) -> list[PendingTransfer]:
    """The transfers that pay what ``request`` asks for, of those with the nonce that was signed last, oldest first.

    With a nonce in the request they are those with that nonce, if there are any.
    """
    terms = request.recipient, request.amount, request.reference
    same = [each for each in stored if _terms_of(each.transfer, params) == terms]
    wanted = [each for each in same if each.transfer.nonce == request.nonce]
    return wanted or [each for each in same if each.transfer.nonce == same[-1].transfer.nonce]


@frozen(kw_only=True)
class Repetition:
    """A request, the stored transfers of the account, and what the node says of them."""

    request: SendRequest
    stored: Sequence[PendingTransfer]
    """All transfers of the account, oldest first."""
    view: AccountView
    depths: Mapping[bytes, int]
    """The confirmations, as the node says, of the transfers with the same terms, by txid."""
    now: int
    """This computer's time in Unix milliseconds."""

    @property
    def same(self) -> list[PendingTransfer]:
        """The earlier transfers of the payment, all with one nonce."""
        return same_terms(self.request, self.stored, self.view.params)

    def step(self, *, judged: bool = False) -> Step:
        """What to do; raises CommandError if the user must decide.

        ``judged`` is true if the caller judges itself whether a second payment is wanted, once the first is settled.
        """
        same = self.same
        if not same:
            return SignNew()
        if self.request.again:
            self._check_second(same)
            return SignNew()
        settled = [each.transfer for each in same if each.transfer.txid in self.depths]
        if judged and (settled or all(each.acknowledged and not self._is_void(each.transfer) for each in same)):
            return SignNew()
        if settled:
            return self._settled(same, settled[0])
        return self._unsettled(same)

    def _check_second(self, same: list[PendingTransfer]) -> None:
        """Raise CommandError unless the first payment is settled as far as it can be before a second one is signed."""
        transfer = same[-1].transfer
        waits = any(self._is_open(each) for each in same)
        if waits and transfer.nonce >= self.view.nonce and self._rival(same) is None:
            raise CommandError(
                f"no node has accepted the earlier transfer with these terms, {transfer.txid.hex()}: repeat the command"
                " without --again first, which sends that one again"
            )
        nonce = self.view.pending_nonce if self.request.nonce is None else self.request.nonce
        if nonce == transfer.nonce and not self._is_void(transfer):
            raise CommandError(
                f"a second payment needs a nonce of its own, and {nonce} is that of the first one,"
                f" {transfer.txid.hex()}: repeat the command without --again to send that one again"
            )

    def _settled(self, same: list[PendingTransfer], transfer: Transfer) -> Step:
        """The step if the node has a transfer of the payment in a block."""
        told = any(each.acknowledged for each in same)
        if transfer.reference is None and told and self._is_void(transfer):
            # The first payment was reported to the user long ago, and an address may be paid the same every week.
            return SignNew()
        return InBlock(transfer, self.depths[transfer.txid])

    def _unsettled(self, same: list[PendingTransfer]) -> Step:
        """The step if the node has no transfer of the payment in a block."""
        request, nonce = self.request, same[-1].transfer.nonce
        if request.nonce not in (None, nonce):
            raise CommandError(
                f"the same terms were signed with the nonce {nonce} already ({same[-1].transfer.txid.hex()}): omit"
                " --nonce to send that transfer again, or add --again to pay a second time"
            )
        fitting = [each for each in same if request.fee in (None, each.transfer.fee)]
        fitting.sort(key=lambda each: each.acknowledged)
        if fitting and not self._is_too_old(fitting[-1].transfer):
            return Resend(fitting[-1])
        newest = same[-1].transfer
        signed = f"the transfer {newest.txid.hex()} of {format_time(newest.timestamp)} with the same terms"
        if self.view.nonce > nonce:
            raise CommandError(
                f"the node says that another transfer has used nonce {nonce} of {signed}, and no block has that one. If"
                " it is right, nothing is paid yet: check `svc wallet history`, with another node too, and add --again"
                " to sign another transfer"
            )
        rival = self._rival(same)
        if rival is not None:
            raise CommandError(
                f"nonce {nonce} of {signed} was given to the transfer {rival.txid.hex()} since, which this one would"
                " replace: add --again to sign this one with a nonce of its own"
            )
        return SignAgain(newest)

    def _rival(self, same: list[PendingTransfer]) -> Transfer | None:
        """A transfer with other terms that was signed later with the nonce of ``same``, and accepted, if any."""
        places = {each.transfer.txid: place for place, each in enumerate(self.stored)}
        last = same[-1].transfer
        for each in self.stored[places[last.txid] :]:
            if each.transfer.nonce == last.nonce and each not in same and each.acknowledged:
                return None if self._is_void(each.transfer) else each.transfer
        return None

    def _is_too_old(self, transfer: Transfer) -> bool:
        """By both clocks: the blocks of a devnet may be weeks behind, and would include it."""
        return is_too_old(transfer, self.view.params, min(self.now, self.view.tip_time))

    def _is_open(self, each: PendingTransfer) -> bool:
        """Whether a node must still accept the transfer before another one may be signed."""
        unsettled = each.answer is not NodeAnswer.ACCEPTED and each.transfer.txid not in self.depths
        return unsettled and not self._is_void(each.transfer)

    def _is_void(self, transfer: Transfer) -> bool:
        return is_void(transfer, self.view.params, self.now)


def _terms_of(transfer: Transfer, params: NetworkParams) -> tuple[str, int, str | None]:
    return encode_address(transfer.recipient, params.address_prefix), transfer.amount, transfer.reference
