"""The English word list of BIP-39, from the package `mnemonic`, and random words of it."""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Final

SHA256: Final = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
"""Of the published list, bip-0039/english.txt in the repository of the BIPs: another list derives other keys."""
_BITS: Final = 11
"""The list has 2,048 words."""


@cache
def bip39_words() -> tuple[str, ...]:
    """The 2,048 words in their order; raises ValueError if the installed list is not the published one."""
    return checked_words((resources.files("mnemonic") / "wordlist" / "english.txt").read_bytes())


def checked_words(data: bytes) -> tuple[str, ...]:
    """The words in the bytes of the list; raises ValueError if these are not the published ones."""
    if sha256(data).hexdigest() != SHA256:
        raise ValueError("the English word list of the package mnemonic is not that of BIP-39; reinstall it")
    return tuple(data.decode("ascii").split())


def random_words(count: int, random: Callable[[int], bytes]) -> list[str]:
    """So many words; ``random`` returns that many secure random bytes."""
    words = bip39_words()
    number = int.from_bytes(random(2 * count))
    return [words[number >> 16 * position & (1 << _BITS) - 1] for position in range(count)]
