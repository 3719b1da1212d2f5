"""Judges new passwords: how many bits an attacker needs who tries common ones first (docs/keyfile.md "Passwords").

The password is split into common passwords, sequences, repetitions, years and single characters, in the way that costs
an attacker least; the sum must reach :data:`ENOUGH`. `svcd/pages/static/passwords.mjs` computes the same numbers for
the browser wallet, and tests/vectors/passwords.json has examples.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from importlib import resources
from typing import Final

from attrs import frozen

from svcd.cli.word_list import random_words
from svcd.visible_text import BadText, check_line

MIN_LENGTH: Final = 10
"""Characters in a new password, at least."""
ENOUGH: Final = 40
"""Bits: with the costs of keyfiles, on average some years for a graphics card that tries several thousand a second."""
LIST: Final = "common-passwords.txt"
_WORDS_ADVISED: Final = 6
_JUDGED: Final = 64
"""Only so many characters are looked at: what has 64 can hardly be weak, and must not keep the program busy."""
_SEPARATORS: Final = " -_."
_SEQUENCES: Final = (
    "abcdefghijklmnopqrstuvwxyz 01234567890 !@#$%^&*()"
    " qwertyuiop qwertzuiop azertyuiop asdfghjkl qsdfghjklm zxcvbnm yxcvbnm wxcvbn"
)
_RUNS: Final = f"{_SEQUENCES} {_SEQUENCES[::-1]}"
_YEAR: Final = re.compile("(?:19|20)[0-9]{2}")
# Python's own lower-casing and JavaScript's differ outside of ASCII.
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_SUBSTITUTES: Final = (str.maketrans("@4310!$57", "aaeioisst"), str.maketrans("@4310!$57", "aaelolsst"))
"""Digits and signs in the place of letters; 1 and ! are i or l."""
_SHORTEST_SEQUENCE: Final = 3
_YEAR_LENGTH: Final = 4


class Weakness(Enum):
    """Why a password is refused."""

    INVISIBLE = "invisible"
    SHORT = "short"
    REPEATED = "repeated"
    SEQUENTIAL = "sequential"
    COMMON = "common"
    GUESSABLE = "guessable"


_REASONS: Final[Mapping[Weakness, str]] = {
    Weakness.REPEATED: "repeats the same characters",
    Weakness.SEQUENTIAL: "consists of neighbouring letters, digits or keys",
    Weakness.COMMON: "consists of common passwords, which are guessed first",
    Weakness.GUESSABLE: "is too easy to guess",
}


@frozen
class Part:
    """A piece of a password, and how an attacker would guess it; None is for a single character."""

    end: int
    bits: int
    weakness: Weakness | None = None


@frozen
class Judgement:
    """The bits of a password, and what is weak about it if they are too few."""

    bits: int
    weakness: Weakness | None


def password_problem(password: str, random: Callable[[int], bytes] | None = None) -> str | None:
    """Why a new password is not acceptable, in a sentence, or None.

    With ``random``, which returns that many secure random bytes, the sentence suggests a password.
    """
    judgement = judge(password, common_passwords())
    if judgement.weakness is None:
        return None
    if judgement.weakness is Weakness.INVISIBLE:
        return f"the password {_unseen(unicodedata.normalize('NFC', password))}"
    if judgement.weakness is Weakness.SHORT:
        length = len(unicodedata.normalize("NFC", password))
        reason = f"the password has {length} characters; choose one of at least {MIN_LENGTH}, for example"
    else:
        reason = f"the password {_REASONS[judgement.weakness]}; choose for example"
    return f"{reason} six random words" + ("" if random is None else f": {suggestion(random)}")


def suggestion(random: Callable[[int], bytes]) -> str:
    """Six random words, 66 bits in all."""
    return " ".join(random_words(_WORDS_ADVISED, random))


def judge(password: str, ranks: Mapping[str, int]) -> Judgement:
    """The judgement on a password; ``ranks`` has the common ones, from 1."""
    text = unicodedata.normalize("NFC", password)
    judged = text[:_JUDGED]
    bits, covered = _estimate(judged, ranks, {})
    if _unseen(text):
        return Judgement(bits, Weakness.INVISIBLE)
    if len(text) < MIN_LENGTH:
        return Judgement(bits, Weakness.SHORT)
    if bits >= ENOUGH:
        return Judgement(bits, None)
    # The kind of the largest part of the text, the first in the order of Weakness if two are equal.
    kinds = [kind for kind in Weakness if 2 * covered.get(kind, 0) >= len(judged)]
    return Judgement(bits, kinds[0] if kinds else Weakness.GUESSABLE)


def _unseen(text: str) -> str:
    """What is wrong with a password of which people do not see every character; "" if they do."""
    try:
        check_line(text)
    except BadText as problem:
        return str(problem)
    return ""


@cache
def common_passwords() -> Mapping[str, int]:
    """The rank of each common password, from 1; nodes serve the list to the browser wallet, too."""
    text = (resources.files("svcd.pages") / "static" / LIST).read_text("ascii")
    return {word: rank for rank, word in enumerate(listed(text), 1)}


def listed(text: str) -> list[str]:
    """The words of a list: its lines, except for comments."""
    return [line for line in text.splitlines() if not line.startswith("#")]


_Estimate = tuple[int, Mapping[Weakness, int]]


def _estimate(text: str, ranks: Mapping[str, int], known: dict[str, _Estimate]) -> _Estimate:
    """The least bits that ``text`` costs, and how many of its characters are in parts of each weakness."""
    if text in known:
        return known[text]
    # By the end of what is split: a part of one character ends at every place.
    best: dict[int, _Estimate] = {0: (0, {})}
    for start in range(len(text)):
        here = best[start]
        for part in _parts(text, start, ranks, known):
            so_far = best.get(part.end)
            bits = here[0] + part.bits
            if so_far is None or bits < so_far[0]:
                covered = dict(here[1])
                if part.weakness is not None:
                    covered[part.weakness] = covered.get(part.weakness, 0) + part.end - start
                best[part.end] = bits, covered
    known[text] = best[len(text)]
    return known[text]


def _parts(text: str, start: int, ranks: Mapping[str, int], known: dict[str, _Estimate]) -> Iterator[Part]:
    """The parts that begin at ``start``."""
    yield Part(start + 1, _bits_of_character(text[start]))
    lower = text.translate(_LOWER)
    for end in range(start + _SHORTEST_SEQUENCE, len(text) + 1):
        piece = lower[start:end]
        if piece in _RUNS and " " not in piece:
            yield Part(end, 5 + len(piece).bit_length(), Weakness.SEQUENTIAL)
        bits = _bits_of_word(text[start:end], piece, ranks)
        if bits is not None:
            yield Part(end, bits, Weakness.COMMON)
    if _YEAR.fullmatch(text[start : start + _YEAR_LENGTH]):
        yield Part(start + _YEAR_LENGTH, 7)
    yield from _repetitions(text, start, ranks, known)


def _repetitions(text: str, start: int, ranks: Mapping[str, int], known: dict[str, _Estimate]) -> Iterator[Part]:
    for size in range(1, (len(text) - start) // 2 + 1):
        unit = text[start : start + size]
        count = 1
        while text.startswith(unit, start + count * size):
            count += 1
            if count * size >= _SHORTEST_SEQUENCE:
                bits = _estimate(unit, ranks, known)[0] + count.bit_length()
                yield Part(start + count * size, bits, Weakness.REPEATED)


def _bits_of_word(piece: str, lower: str, ranks: Mapping[str, int]) -> int | None:
    """The bits of a common password in any case, and with digits in the place of letters; None for another text."""
    rank = ranks.get(lower)
    substituted = [ranks[word] for word in map(lower.translate, _SUBSTITUTES) if word in ranks]
    if rank is None and not substituted:
        return None
    costs = [other.bit_length() + 1 for other in substituted]
    if rank is not None:
        costs.append(rank.bit_length())
    return min(costs) + (lower != piece)


def _bits_of_character(character: str) -> int:
    if character in _SEPARATORS:
        return 2
    if "0" <= character <= "9":
        return 3
    if "a" <= character <= "z":
        return 5
    return 6
