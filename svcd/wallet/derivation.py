"""From 24 words to the seed of a key: BIP-39 with the English list, then SLIP-0010 for Ed25519 at m/0'.

The browser wallet does the same, so that the words of one open the wallet in the other (docs/command-line.md "The
words").
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import cache
from typing import Final

from attrs import field, frozen
from mnemonic import Mnemonic

from svcd.wallet.failed import Failed

WORDS: Final = 24
ENTROPY_SIZE: Final = 32
"""Bytes that 24 words hold, beside the eight bits of their checksum."""
ROUNDS: Final = 2_048
_HARDENED: Final = 1 << 31
_MASTER: Final = b"ed25519 seed"


@frozen
class Branch:
    """One node of the tree of SLIP-0010."""

    key: bytes = field(repr=False)
    """32 bytes: the seed of an Ed25519 key."""
    chain_code: bytes = field(repr=False)


def new_words(random: Callable[[int], bytes]) -> list[str]:
    """24 new words; ``random`` gives that many bytes which nobody can guess."""
    return str(_english().to_mnemonic(random(ENTROPY_SIZE))).split()


def check_words(text: str) -> list[str]:
    """The 24 words in ``text``, in lower case; raises Failed, which names a wrong one by its place and not its text."""
    words = text.lower().split()
    if len(words) != WORDS:
        raise Failed(f"a wallet has {WORDS} words, and here are {len(words)}; write them with blanks between them")
    known = set(_english().wordlist)
    wrong = [str(place) for place, word in enumerate(words, 1) if word not in known]
    if wrong:
        raise Failed(f"not in the English list of BIP-39: word {', '.join(wrong)}; compare with what you wrote down")
    if not _english().check(" ".join(words)):
        raise Failed("the checksum of the words is wrong: one of them is another, or two have changed places")
    return words


def seed_of_words(words: list[str]) -> bytes:
    """The 32-byte seed of the key that 24 valid words stand for; BIP-39 without a passphrase, then m/0'."""
    stretched = hashlib.pbkdf2_hmac("sha512", " ".join(words).encode("ascii"), b"mnemonic", ROUNDS)
    return child(master(stretched), 0).key


def master(seed: bytes) -> Branch:
    """The root m of the tree (SLIP-0010 "Master key generation")."""
    return _split(hmac.digest(_MASTER, seed, "sha512"))


def child(parent: Branch, index: int) -> Branch:
    """The hardened child ``index``' (SLIP-0010 "Child key derivation"); Ed25519 has no others."""
    data = b"\0" + parent.key + (index + _HARDENED).to_bytes(4, "big")
    return _split(hmac.digest(parent.chain_code, data, "sha512"))


def _split(digest: bytes) -> Branch:
    return Branch(key=digest[:32], chain_code=digest[32:])


@cache
def _english() -> Mnemonic:
    return Mnemonic("english")
