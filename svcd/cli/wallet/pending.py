"""Transfers that this wallet has signed and that are not in a block yet.

They are stored beside the keyfile until a block includes them, so that a transfer that got no response is sent again
unchanged, and never signed anew. The file is the keyfile's name plus ``.outbox``, mode 0600: canonical JSON without
secrets.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from svcd.chain.address import encode_address
from svcd.chain.encoding import canonical, exact_fields, parse_json, parse_wire_object
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.cli.errors import CommandError, ErrorResponse
from svcd.cli.http_client import NodeClient
from svcd.cli.rendering import format_coins
from svcd.cli.secure_files import lock_file, read_bounded, replace_file
from svcd.cli.wallet.preflight import AccountView, SendRequest

FORMAT: Final = "svc-outbox-v1"
MAX_BYTES: Final = 1024 * 1024
_NOT_FOUND: Final = 404


@frozen
class PendingTransfer:
    """A signed transfer; ``acknowledged`` says whether a node has confirmed receiving it."""

    transfer: Transfer
    acknowledged: bool


@frozen
class PendingFile:
    """The pending transfers of one keyfile. Every method raises CommandError if the file cannot be read or written."""

    keyfile: Path
    params: NetworkParams

    @property
    def path(self) -> Path:
        """The file."""
        return self.keyfile.with_name(f"{self.keyfile.name}.outbox")

    def lock(self) -> AbstractContextManager[None]:
        """Exclude other processes that spend from the keyfile: two at once would sign two transfers with one nonce."""
        return lock_file(self.keyfile, f"another svc is paying from {self.keyfile}; wait for it to end, and repeat")

    def load(self) -> list[PendingTransfer]:
        """All transfers, oldest first."""
        if not self.path.exists():
            return []
        data = read_bounded(self.path, MAX_BYTES)
        try:
            return self._parse(data)
        except RuleViolation as violation:
            raise CommandError(
                f"{self.path} is damaged: {violation.detail}. It contains transfers that may not have arrived; check"
                " `svc wallet history`, and move the file away if nothing is missing there"
            ) from None

    def save(self, transfer: Transfer, *, acknowledged: bool) -> None:
        """Add or update a transfer, and sync the file to disk."""
        others = [pending for pending in self.load() if pending.transfer.txid != transfer.txid]
        self._write([*others, PendingTransfer(transfer, acknowledged)])

    def remove(self, txids: Collection[bytes]) -> None:
        """Remove transfers."""
        before = self.load()
        after = [pending for pending in before if pending.transfer.txid not in txids]
        if len(after) != len(before):
            self._write(after)

    def _parse(self, data: bytes) -> list[PendingTransfer]:
        fields = exact_fields(parse_json(data), frozenset(("format", "transfers")), "the outbox")
        items = fields["transfers"]
        if fields["format"] != FORMAT or not isinstance(items, list):
            raise CommandError(f"{self.path} is not an outbox of this svc: its format is not {FORMAT}; move it away")
        transfers = []
        for item in items:
            members = exact_fields(item, frozenset(("answered", "transaction")), "transfer")
            transfer = parse_transfer(members["transaction"], self.params)
            transfers.append(PendingTransfer(transfer, members["answered"] is True))
        return transfers

    def _write(self, transfers: list[PendingTransfer]) -> None:
        items = [
            {"answered": pending.acknowledged, "transaction": parse_wire_object(pending.transfer.wire)}
            for pending in transfers
        ]
        replace_file(self.path, canonical({"format": FORMAT, "transfers": items}) + b"\n")


@frozen
class Reconciliation:
    """The stored transfers of one account, compared with what the node knows."""

    pending: tuple[PendingTransfer, ...]
    """Transfers that a block may still include."""
    confirmed: dict[bytes, Transfer]
    """Transfers that were never acknowledged and are in a block, by txid."""

    @property
    def unacknowledged(self) -> list[Transfer]:
        """Pending transfers that no node is known to have."""
        return [pending.transfer for pending in self.pending if not pending.acknowledged]

    def acknowledged(self, nonce: int | None) -> Transfer | None:
        """The pending transfer with ``nonce`` that a node has, if any: the one stored last."""
        found = [each.transfer for each in self.pending if each.acknowledged and each.transfer.nonce == nonce]
        return found[-1] if found else None

    def find_attempt(self, request: SendRequest, params: NetworkParams) -> Transfer | None:
        """An earlier transfer for the same ``request`` that was never acknowledged, if any."""
        for transfer in (*self.confirmed.values(), *self.unacknowledged):
            if _matches(request, transfer, params):
                return transfer
        return None

    def check_nonce_is_free(self, request: SendRequest, params: NetworkParams) -> None:
        """Raise CommandError if an unacknowledged transfer would silently be replaced by one with the same nonce."""
        if request.nonce is not None:
            return
        for transfer in self.unacknowledged:
            recipient = encode_address(transfer.recipient, params.address_prefix)
            raise CommandError(
                f"no node acknowledged the earlier transfer of {format_coins(transfer.amount)} to {recipient}"
                f" ({transfer.txid.hex()}): repeat that command first to send it again; or replace it with this"
                f" transfer by --nonce {transfer.nonce}"
            )


async def reconcile(
    node: NodeClient, file: PendingFile, sender: bytes, view: AccountView, *, prune: bool = True
) -> Reconciliation:
    """Compare the stored transfers of ``sender`` with the node's view; raises CommandError.

    ``prune`` removes the transfers from ``file`` that are in a block or can no longer be.
    """
    pending: list[PendingTransfer] = []
    settled: list[bytes] = []
    confirmed: dict[bytes, Transfer] = {}
    for stored in file.load():
        transfer = stored.transfer
        if transfer.sender != sender or _can_be_included(transfer, view):
            pending.append(stored)
            continue
        settled.append(transfer.txid)
        if not stored.acknowledged and await _is_in_block(node, transfer):
            confirmed[transfer.txid] = transfer
    if prune:
        file.remove(settled)
    return Reconciliation(
        tuple(_as_seen(stored, view) for stored in pending if stored.transfer.sender == sender), confirmed
    )


def _as_seen(stored: PendingTransfer, view: AccountView) -> PendingTransfer:
    """Not acknowledged if the node no longer has the transfer: a power failure may have lost it."""
    return evolve(stored, acknowledged=stored.acknowledged and stored.transfer.nonce < view.pending_nonce)


def _can_be_included(transfer: Transfer, view: AccountView) -> bool:
    """Whether a block on the tip may include the transfer: its nonce is unused and it has not expired."""
    oldest = view.tip_time - 1000 * view.params.transaction_past_seconds
    return transfer.nonce >= view.nonce and transfer.timestamp >= oldest


async def _is_in_block(node: NodeClient, transfer: Transfer) -> bool:
    try:
        await node.get(f"/rpc/transaction/{transfer.txid.hex()}")
    except ErrorResponse as response:
        if response.status == _NOT_FOUND:
            return False
        raise
    return True


def _matches(request: SendRequest, transfer: Transfer, params: NetworkParams) -> bool:
    recipient = encode_address(transfer.recipient, params.address_prefix)
    return (
        (recipient, transfer.amount, transfer.reference) == (request.recipient, request.amount, request.reference)
        and request.fee in (None, transfer.fee)
        and request.nonce in (None, transfer.nonce)
    )
