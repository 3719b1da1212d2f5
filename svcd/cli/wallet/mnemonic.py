"""From 24 words to the seed of a key: BIP-39 with the English word list, then SLIP-0010 for Ed25519 at m/0'.

The browser wallet derives the same key, so the words of either wallet restore the other (docs/keyfile.md "The words").
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import cache
from typing import Final

from attrs import field, frozen
from mnemonic import Mnemonic

from svcd.cli.errors import CommandError
from svcd.cli.word_list import bip39_words

WORDS: Final = 24
ENTROPY_SIZE: Final = 32
"""Bytes of entropy in 24 words, in addition to the checksum of eight bits."""
ROUNDS: Final = 2_048
"""Iterations of PBKDF2 in BIP-39."""
_HARDENED: Final = 1 << 31
_MASTER: Final = b"ed25519 seed"


@frozen
class ExtendedKey:
    """A key and its chain code (SLIP-0010)."""

    key: bytes = field(repr=False)
    """The 32-byte seed of an Ed25519 key."""
    chain_code: bytes = field(repr=False)


def generate_mnemonic(random: Callable[[int], bytes]) -> list[str]:
    """24 new words; ``random`` returns that many secure random bytes."""
    return str(_word_list().to_mnemonic(random(ENTROPY_SIZE))).split()


def parse_mnemonic(text: str) -> list[str]:
    """The 24 words in ``text``, in lower case; raises CommandError, which shows the position of a bad word only."""
    words = text.lower().split()
    if len(words) != WORDS:
        raise CommandError(f"a wallet has {WORDS} words, not {len(words)}; separate them with spaces")
    known = set(_word_list().wordlist)
    unknown = [str(position) for position, word in enumerate(words, 1) if word not in known]
    if unknown:
        raise CommandError(f"not in the English list of BIP-39: word {', '.join(unknown)}; compare with your copy")
    if not _word_list().check(" ".join(words)):
        raise CommandError("the checksum of the words is wrong: a word is wrong, or two are swapped")
    return words


def seed_from_mnemonic(words: list[str]) -> bytes:
    """The 32-byte seed of the key of 24 valid words: BIP-39 without a passphrase, then the child m/0'."""
    stretched = hashlib.pbkdf2_hmac("sha512", " ".join(words).encode("ascii"), b"mnemonic", ROUNDS)
    return derive_child(master_key(stretched), 0).key


def master_key(seed: bytes) -> ExtendedKey:
    """The root key m (SLIP-0010 "Master key generation")."""
    return _split(hmac.digest(_MASTER, seed, "sha512"))


def derive_child(parent: ExtendedKey, index: int) -> ExtendedKey:
    """The hardened child ``index``' (SLIP-0010 "Private parent key → private child key"); Ed25519 has no others."""
    data = b"\0" + parent.key + (index + _HARDENED).to_bytes(4, "big")
    return _split(hmac.digest(parent.chain_code, data, "sha512"))


def _split(digest: bytes) -> ExtendedKey:
    return ExtendedKey(key=digest[:32], chain_code=digest[32:])


@cache
def _word_list() -> Mnemonic:
    """The library with its list; raises ValueError if that is not the published one."""
    library = Mnemonic("english")
    if tuple(library.wordlist) != bip39_words():
        raise ValueError("the word list in use is not that of BIP-39")
    return library
