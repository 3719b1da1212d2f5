"""Transfers that this wallet has signed.

Each is stored beside the keyfile before it is sent, and kept whatever a node answers: the node may have relayed it. It
is dropped only when this computer's clock says that no block can include it any more, and then only from the oldest
``MAX_VOID`` on. The file is the keyfile's name plus ``.outbox``, mode 0600: canonical JSON without secrets. Other such
files in the same folder are read and never changed: the keyfile may have been renamed or copied.
svcd/cli/wallet/repeat.py uses it so that repeating a command does not pay twice.
"""

import os
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from enum import Enum
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from svcd.chain.address import encode_address
from svcd.chain.encoding import canonical, exact_fields, parse_json, parse_wire_object
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.chain.units import format_coins
from svcd.cli.chain_commands import transaction
from svcd.cli.errors import CommandError, ErrorResponse
from svcd.cli.http_client import NodeClient
from svcd.cli.secure_files import lock_file, read_bounded, replace_file
from svcd.cli.wallet.preflight import AccountView, SendRequest

FORMAT: Final = "svc-outbox-v1"
MAX_BYTES: Final = 16 * 1024 * 1024
"""About twenty thousand transfers."""
MAX_VOID: Final = 1000
"""So many transfers are kept that no block can include any more, the newest: a block may have included them before."""
MARGIN: Final = 60 * 60 * 1000
"""Milliseconds that a transfer is kept beyond its day: a reorganisation may go back so far, and clocks differ."""
_SUFFIX: Final = ".outbox"
_NOT_FOUND: Final = 404


class NodeAnswer(Enum):
    """What a node has answered to a transfer; the value is that of ``answered`` in the file."""

    NONE = False
    ACCEPTED = True
    REFUSED = "refused"


@frozen
class PendingTransfer:
    """A signed transfer and what a node has answered to it."""

    transfer: Transfer
    answer: NodeAnswer = NodeAnswer.NONE

    @property
    def acknowledged(self) -> bool:
        """Whether a node has confirmed receiving it."""
        return self.answer is NodeAnswer.ACCEPTED


def is_too_old(transfer: Transfer, params: NetworkParams, now: int) -> bool:
    """Whether a block of the time ``now``, in Unix milliseconds, cannot include the transfer (docs/protocol.md 4)."""
    return transfer.timestamp < now - 1000 * params.transaction_past_seconds


def is_void(transfer: Transfer, params: NetworkParams, now: int) -> bool:
    """Whether no block can include the transfer any more, at the time ``now`` of this computer in Unix milliseconds."""
    return is_too_old(transfer, params, now - MARGIN)


class _OtherFormat(Exception):
    """The file is JSON, and not an outbox of this version."""


@frozen
class PendingFile:
    """The signed transfers of one keyfile. Every method raises CommandError if the file cannot be read or written."""

    keyfile: Path
    params: NetworkParams

    @property
    def path(self) -> Path:
        """The file, beside the keyfile itself: every symbolic link to the keyfile has the same one."""
        keyfile = self.keyfile.resolve() if self.keyfile.is_symlink() else self.keyfile
        return keyfile.with_name(f"{keyfile.name}{_SUFFIX}")

    def lock(self) -> AbstractContextManager[None]:
        """Exclude other processes that spend from the keyfile: two at once would sign two transfers with one nonce."""
        return lock_file(self.keyfile, f"another svc is paying from {self.keyfile}; wait for it to end, and repeat")

    def load(self) -> list[PendingTransfer]:
        """All transfers, oldest first, and before them those that the files of :meth:`_others` have besides."""
        own = self._load_own()
        known = {each.transfer.txid for each in own}
        found: dict[bytes, PendingTransfer] = {}
        for path in self._others():
            found.update({each.transfer.txid: each for each in self._parse_other(path)})
        others = [each for txid, each in found.items() if txid not in known]
        return sorted(others, key=lambda each: each.transfer.timestamp) + own

    def _load_own(self) -> list[PendingTransfer]:
        if not os.path.lexists(self.path):
            return []
        data = read_bounded(self.path, MAX_BYTES)
        try:
            return self._parse(data)
        except RuleViolation as violation:
            raise CommandError(
                f"{self.path} is damaged: {violation.detail}. It contains transfers that may not have arrived; check"
                " `svc wallet history`, and move the file away if nothing is missing there"
            ) from None

    def save(self, transfer: Transfer, answer: NodeAnswer, *, now: int) -> None:
        """Add or update a transfer, and sync the file to disk; ``now`` is this computer's time in Unix milliseconds."""
        # In its place: the order is that of the signatures.
        stored = {pending.transfer.txid: pending for pending in self._load_own()}
        stored[transfer.txid] = PendingTransfer(transfer, answer)
        void = [txid for txid, pending in stored.items() if is_void(pending.transfer, self.params, now)]
        for txid in void[: max(len(void) - MAX_VOID, 0)]:
            del stored[txid]
        self._write(list(stored.values()))

    def _others(self) -> list[Path]:
        """The files of the same owner in the same folder: a copy of the keyfile or its former name has one."""
        try:
            owner = self.keyfile.stat().st_uid
            paths = sorted(self.path.parent.glob(f"*{_SUFFIX}"))
            return [each for each in paths if each != self.path and each.is_file() and each.stat().st_uid == owner]
        except OSError as error:
            raise CommandError(f"{self.path.parent} cannot be searched for signed transfers: {error}") from None

    def _parse_other(self, path: Path) -> list[PendingTransfer]:
        """The transfers in the file at ``path`` that are of this network; none if it is of another program."""
        transfers = []
        try:
            items = [] if path.stat().st_size > MAX_BYTES else self._items(read_bounded(path, MAX_BYTES))
        except (RuleViolation, _OtherFormat):
            return []
        for item in items:
            with suppress(RuleViolation):
                transfers.append(self._parse_item(item))
        return transfers

    def _parse(self, data: bytes) -> list[PendingTransfer]:
        try:
            return [self._parse_item(item) for item in self._items(data)]
        except _OtherFormat:
            raise CommandError(
                f"{self.path} was not written by this version of svc: its format is not {FORMAT}; move it away"
            ) from None

    def _items(self, data: bytes) -> list[object]:
        fields = exact_fields(parse_json(data), frozenset(("format", "transfers")), "the outbox")
        items = fields["transfers"]
        if fields["format"] != FORMAT or not isinstance(items, list):
            raise _OtherFormat
        return items

    def _parse_item(self, item: object) -> PendingTransfer:
        members = exact_fields(item, frozenset(("answered", "transaction")), "transfer")
        answered = members["answered"]
        known = answered is True or answered == NodeAnswer.REFUSED.value
        answer = NodeAnswer(answered) if known else NodeAnswer.NONE
        transfer = parse_transfer(members["transaction"], self.params)
        # A changed digit would be another nonce or time, by which the wallet decides whether it may pay again.
        transfer.check_signature()
        return PendingTransfer(transfer, answer)

    def _write(self, transfers: list[PendingTransfer]) -> None:
        items = [
            {"answered": pending.answer.value, "transaction": parse_wire_object(pending.transfer.wire)}
            for pending in transfers
        ]
        data = canonical({"format": FORMAT, "transfers": items}) + b"\n"
        if len(data) > MAX_BYTES:
            raise CommandError(
                f"{self.path} is full: it has {len(transfers)} transfers of the last day; pay from another wallet, or"
                " wait until tomorrow"
            )
        # A symbolic link stays one: its target is what other names of the keyfile may share.
        replace_file(self.path.resolve(), data)


@frozen
class Reconciliation:
    """The stored transfers of one account, oldest first, compared with what the node knows."""

    stored: tuple[PendingTransfer, ...]
    """All of them."""
    pending: tuple[PendingTransfer, ...]
    """Those that a block may still include, if the node's view of the account is right."""
    unsettled: tuple[Transfer, ...]
    """Those that a block may still include whatever the node says: not accepted, nor another one with their nonce."""
    refused_txids: frozenset[bytes]
    """The txids of those that a node has refused."""

    def acknowledged(self, nonce: int | None) -> Transfer | None:
        """The pending transfer with ``nonce`` that a node has, if any: the one stored last."""
        found = [each.transfer for each in self.pending if each.acknowledged and each.transfer.nonce == nonce]
        return found[-1] if found else None

    def refused(self, nonce: int) -> Transfer | None:
        """The unsettled transfer with ``nonce`` that a node has refused, if any: the one stored last."""
        found = [each for each in self.unsettled if each.txid in self.refused_txids and each.nonce == nonce]
        return found[-1] if found else None

    def next_nonce(self, view: AccountView) -> int:
        """The nonce of a new payment: that of a refused transfer while it is free, else the next one of the node.

        A node that has sent the transfer on, or says so, could otherwise have both paid.
        """
        return min(
            (each.nonce for each in self.unsettled if view.nonce <= each.nonce < view.pending_nonce),
            default=view.pending_nonce,
        )

    def check_nonce_is_free(self, request: SendRequest, params: NetworkParams) -> None:
        """Raise CommandError if an unacknowledged transfer would silently be replaced by one with the same nonce."""
        if request.nonce is not None:
            return
        for each in self.pending:
            if each.answer is not NodeAnswer.NONE:
                continue
            transfer = each.transfer
            recipient = encode_address(transfer.recipient, params.address_prefix)
            raise CommandError(
                f"no node acknowledged the earlier transfer of {format_coins(transfer.amount, params.unit)} to"
                f" {recipient} ({transfer.txid.hex()}): repeat that command first to send it again; or replace it with"
                f" this transfer by --nonce {transfer.nonce}"
            )


def reconcile(file: PendingFile, sender: bytes, view: AccountView, now: int) -> Reconciliation:
    """Compare the stored transfers of ``sender`` with the node's view, at this computer's time; raises CommandError."""
    stored = tuple(_as_seen(each, view) for each in file.load() if each.transfer.sender == sender)
    pending = tuple(each for each in stored if _may_be_included(each.transfer, view, now))
    accepted = {each.transfer.nonce for each in stored if each.acknowledged}
    unsettled = tuple(
        each.transfer
        for each in stored
        if each.transfer.nonce not in accepted and not is_void(each.transfer, view.params, now)
    )
    refused = frozenset(each.transfer.txid for each in stored if each.answer is NodeAnswer.REFUSED)
    return Reconciliation(stored, pending, unsettled, refused)


def _as_seen(stored: PendingTransfer, view: AccountView) -> PendingTransfer:
    """Not acknowledged if the node no longer has the transfer: a power failure may have lost it."""
    lost = stored.acknowledged and stored.transfer.nonce >= view.pending_nonce
    return evolve(stored, answer=NodeAnswer.NONE) if lost else stored


def _may_be_included(transfer: Transfer, view: AccountView, now: int) -> bool:
    """Whether a block may still include the transfer: its nonce is unused, and its day is not over by both clocks."""
    return transfer.nonce >= view.nonce and not is_void(transfer, view.params, min(now, view.tip_time + MARGIN))


def depths(node: NodeClient, transfers: Iterable[Transfer]) -> dict[bytes, int]:
    """The confirmations of the transfers that the node has in a block, by txid; raises CommandError."""
    found = {}
    for transfer in transfers:
        try:
            record = transaction(node, transfer.txid.hex())
        except ErrorResponse as response:
            if response.status == _NOT_FOUND:
                continue
            raise
        found[transfer.txid] = record.count("confirmations")
    return found
