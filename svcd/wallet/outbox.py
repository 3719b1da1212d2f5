"""Signed transfers beside the keyfile until a block holds them: what got no answer is sent again, never signed anew.

The file is the keyfile's name with ``.outbox`` behind it, mode 0600: canonical JSON, no secret in it.
"""

from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.chain.encoding import canonical, exact_fields, parse_json, parse_wire_object
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import Transfer, parse_transfer
from svcd.wallet.disk import held, read_bounded, replace
from svcd.wallet.failed import Failed

FORMAT: Final = "svc-outbox-v1"
MAX_BYTES: Final = 1024 * 1024


@frozen
class Kept:
    """A signed transfer; ``answered`` says whether a node has said that it has it."""

    transfer: Transfer
    answered: bool


@frozen
class Outbox:
    """The transfers of one keyfile. Every method raises Failed when the file cannot be read or written."""

    keyfile: Path
    params: NetworkParams

    @property
    def path(self) -> Path:
        """Where they are."""
        return self.keyfile.with_name(f"{self.keyfile.name}.outbox")

    def alone(self) -> AbstractContextManager[None]:
        """Let nobody else pay from the keyfile meanwhile: two at once would sign two transfers with one nonce."""
        return held(self.keyfile, f"another svc is paying from {self.keyfile}; wait until it has ended, and repeat")

    def load(self) -> list[Kept]:
        """All of them, oldest first."""
        if not self.path.exists():
            return []
        data = read_bounded(self.path, MAX_BYTES)
        try:
            return self._parse(data)
        except RuleViolation as violation:
            raise Failed(
                f"{self.path} is damaged: {violation.detail}. It holds transfers that may not have arrived; look at"
                " `svc wallet history`, and move the file away when nothing is missing there"
            ) from None

    def keep(self, transfer: Transfer, *, answered: bool) -> None:
        """Put a transfer in, or note that it was answered; it is on the disk before this returns."""
        others = [kept for kept in self.load() if kept.transfer.txid != transfer.txid]
        self._write([*others, Kept(transfer, answered)])

    def forget(self, txids: Collection[bytes]) -> None:
        """Take transfers out."""
        kept = self.load()
        left = [each for each in kept if each.transfer.txid not in txids]
        if len(left) != len(kept):
            self._write(left)

    def _parse(self, data: bytes) -> list[Kept]:
        fields = exact_fields(parse_json(data), frozenset(("format", "transfers")), "the outbox")
        items = fields["transfers"]
        if fields["format"] != FORMAT or not isinstance(items, list):
            raise Failed(f"{self.path} is no outbox of this svc: its format is not {FORMAT}; move it away")
        kept = []
        for item in items:
            members = exact_fields(item, frozenset(("answered", "transaction")), "transfer")
            kept.append(Kept(parse_transfer(members["transaction"], self.params), members["answered"] is True))
        return kept

    def _write(self, kept: list[Kept]) -> None:
        transfers = [{"answered": each.answered, "transaction": parse_wire_object(each.transfer.wire)} for each in kept]
        replace(self.path, canonical({"format": FORMAT, "transfers": transfers}) + b"\n")
