"""What became of the transfers that this wallet has signed before, by what the node sees now."""

from attrs import evolve, frozen

from svcd.chain.address import encode_address
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer
from svcd.wallet.client import Node
from svcd.wallet.failed import Failed, Refused
from svcd.wallet.outbox import Kept, Outbox
from svcd.wallet.sending import View, Wish
from svcd.wallet.show import coins

_NOT_FOUND = 404


@frozen
class Earlier:
    """The transfers that may still come into a block, and those without an answer that are in one."""

    waiting: tuple[Kept, ...]
    paid: dict[bytes, Transfer]
    """By txid: transfers that got no answer when they were sent, and that a block holds now."""

    @property
    def unanswered(self) -> list[Transfer]:
        """Those of which nobody can say whether a node has them."""
        return [kept.transfer for kept in self.waiting if not kept.answered]

    def attempt_at(self, wish: Wish, params: NetworkParams) -> Transfer | None:
        """The transfer that got no answer and is what ``wish`` asks for, if there is one."""
        for transfer in (*self.paid.values(), *self.unanswered):
            if _is_of(wish, transfer, params):
                return transfer
        return None

    def check_open(self, wish: Wish, params: NetworkParams) -> None:
        """Raise Failed if another transfer got no answer: the next one would quietly take its nonce."""
        if wish.nonce is not None:
            return
        for transfer in self.unanswered:
            recipient = encode_address(transfer.recipient, params.address_prefix)
            raise Failed(
                f"no node answered to the transfer of {coins(transfer.amount)} to {recipient} that was sent before"
                f" ({transfer.txid.hex()}): repeat that command first, and it is sent again; or let this transfer take"
                f" its place with --nonce {transfer.nonce}"
            )


async def settle(node: Node, outbox: Outbox, sender: bytes, view: View, *, forget: bool = True) -> Earlier:
    """What became of the transfers of ``sender``; ``forget`` takes what is decided out of ``outbox``. Raises Failed."""
    waiting: list[Kept] = []
    decided: list[bytes] = []
    paid: dict[bytes, Transfer] = {}
    for kept in outbox.load():
        transfer = kept.transfer
        if transfer.sender != sender or _may_come(transfer, view):
            waiting.append(kept)
            continue
        decided.append(transfer.txid)
        if not kept.answered and await _is_in_block(node, transfer):
            paid[transfer.txid] = transfer
    if forget:
        outbox.forget(decided)
    return Earlier(tuple(_as_seen(kept, view) for kept in waiting if kept.transfer.sender == sender), paid)


def _as_seen(kept: Kept, view: View) -> Kept:
    """Without the node's answer where it has not got the transfer any more: a power cut may cost it what it had."""
    return evolve(kept, answered=kept.answered and kept.transfer.nonce < view.pending_nonce)


def _may_come(transfer: Transfer, view: View) -> bool:
    """Whether a block on the tip can hold the transfer: its nonce is not used, and it is not too old for one."""
    oldest = view.tip_time - 1000 * view.params.transaction_past_seconds
    return transfer.nonce >= view.nonce and transfer.timestamp >= oldest


async def _is_in_block(node: Node, transfer: Transfer) -> bool:
    try:
        await node.get(f"/rpc/transaction/{transfer.txid.hex()}")
    except Refused as refused:
        if refused.status == _NOT_FOUND:
            return False
        raise
    return True


def _is_of(wish: Wish, transfer: Transfer, params: NetworkParams) -> bool:
    recipient = encode_address(transfer.recipient, params.address_prefix)
    return (
        (recipient, transfer.amount, transfer.reference) == (wish.recipient, wish.amount, wish.reference)
        and wish.fee in (None, transfer.fee)
        and wish.nonce in (None, transfer.nonce)
    )
