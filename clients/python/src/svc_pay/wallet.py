"""Keys from 24 words or a seed, and signed transfers (docs/wallets.md).

A shop's server needs none of this: it receives payments with an address alone.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from hashlib import pbkdf2_hmac
from hmac import digest as hmac_digest
from time import time

from mnemonic import Mnemonic

from svc_pay._svcd.chain.address import encode_address, key_hash
from svc_pay._svcd.chain.encoding import canonical, parse_json
from svc_pay._svcd.chain.errors import RuleViolation
from svc_pay._svcd.chain.signature import public_key_of, sign
from svc_pay._svcd.chain.transaction import Draft, Transfer, parse_transfer
from svc_pay._svcd.chain.transaction import sign_transfer as signed_transfer
from svc_pay.chain import Network, check_address, check_amount, check_number, check_reference
from svc_pay.errors import ImpossibleAmount, InvalidInput

_WORDS = 24


@cache
def _bip39() -> Mnemonic:
    return Mnemonic("english")


@dataclass(frozen=True, slots=True)
class Key:
    """An Ed25519 key that signs transfers."""

    seed: bytes = field(repr=False)
    """32 secret bytes."""

    def __post_init__(self) -> None:
        if type(self.seed) is not bytes or len(self.seed) != 32:
            raise InvalidInput("a seed is 32 bytes")

    @classmethod
    def from_words(cls, words: str) -> "Key":
        """The key of 24 words: BIP-39 without a passphrase, then SLIP-0010 at m/0'; raises InvalidInput."""
        typed = words.replace(",", " ").lower().split()
        if len(typed) != _WORDS:
            raise InvalidInput(f"a wallet has {_WORDS} words, not {len(typed)}")
        if not _bip39().check(" ".join(typed)):
            raise InvalidInput("these words do not fit together: one is wrong, or two have changed places")
        seed = pbkdf2_hmac("sha512", " ".join(typed).encode(), b"mnemonic", 2048)
        master = hmac_digest(b"ed25519 seed", seed, "sha512")
        return cls(hmac_digest(master[32:], b"\0" + master[:32] + b"\x80\0\0\0", "sha512")[:32])

    @property
    def public_key(self) -> bytes:
        """32 bytes."""
        return public_key_of(self.seed)

    def address(self, network: Network) -> str:
        """The address on a network."""
        return encode_address(key_hash(self.public_key), network.prefix)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of a message."""
        return sign(self.seed, message)


@dataclass(frozen=True, slots=True)
class SignedTransfer:
    """A transfer that is ready to be broadcast. Store it before that: the same text can be broadcast again safely."""

    txid: str
    """64 hex characters."""
    transaction: dict[str, object]

    @property
    def text(self) -> str:
        """The canonical JSON, to be stored."""
        return canonical(self.transaction).decode()

    @classmethod
    def from_text(cls, text: str, network: Network) -> "SignedTransfer":
        """A transfer that was stored as :attr:`text`; raises InvalidInput."""
        try:
            value = parse_json(text.encode("utf-8", "surrogatepass"))
            return cls._of(parse_transfer(value, network.rules))
        except RuleViolation as violation:
            raise InvalidInput(f"this is not the text of a signed transfer: {violation.detail}") from None

    @classmethod
    def _of(cls, transfer: Transfer) -> "SignedTransfer":
        return cls(transfer.txid.hex(), json.loads(transfer.wire))


def check_minimum(amount: int, *, minimum: int, fee: int, available: int, received: int) -> None:
    """Raise ImpossibleAmount unless both accounts have at least ``minimum`` base units after a transfer.

    ``available`` is the sender's balance without what its waiting transfers spend, ``received`` the recipient's
    (docs/protocol.md 4 and 12).
    """
    least, most = max(minimum - received, 1), available - fee - minimum
    if least <= amount <= most:
        return
    possible = None
    if most < 1:
        sentence = (
            f"the account can send nothing now: it has {available} base units, needs {fee} for the fee, "
            f"and must keep {minimum}"
        )
    elif least > most:
        sentence = (
            f"the account can send at most {most} base units now, and the recipient needs at least {least}: "
            f"each must have {minimum} after the transfer"
        )
    elif amount > most:
        sentence, possible = f"the account must keep {minimum} base units: it can send at most {most} now", most
    else:
        sentence = f"the recipient must have {minimum} base units after the transfer: send at least {least}"
        possible = least
    raise ImpossibleAmount(sentence, possible)


def sign_transfer(
    key: Key,
    network: Network,
    *,
    recipient: str,
    amount: int,
    nonce: int,
    fee: int | None = None,
    reference: str | None = None,
    timestamp: int | None = None,
) -> SignedTransfer:
    """A signed transfer; amount and fee in base units, ``timestamp`` in Unix milliseconds, by default now.

    The fee is by default the least one of the network.
    Raises InvalidInput for every value that can be checked without a node.
    """
    now = int(time() * 1000) if timestamp is None else timestamp
    least = network.rules.minimum_fee
    draft = Draft(
        recipient=check_address(recipient, network),
        amount=check_amount(amount),
        fee=check_number(least if fee is None else fee, "fee", least=least),
        nonce=check_number(nonce, "nonce"),
        timestamp=check_number(now, "timestamp"),
        reference=None if reference is None else check_reference(reference),
    )
    return SignedTransfer._of(signed_transfer(draft, seed=key.seed, params=network.rules))
