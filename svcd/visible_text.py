r"""Texts that people see whole: what is invisible in them, and how a file that a person wrote is read.

Editors and clipboards put characters into secrets, passwords and settings that nobody sees, and that a program would
take for a part of them. Every such file is read here, with the same answer: a byte order mark at its beginning is
accepted and is no part of the text (Unicode 23.8), lines may end in ``\r\n``, and a control character or another
invisible one is refused by its name and place. The clients have the same rule, and tests/vectors/secret_lines.json its
cases.
"""

import re
import unicodedata
from typing import Final

MOST_SHOWN: Final = 1_000
"""Characters of another party's text in a sentence, at most."""
_BYTE_ORDER_MARK: Final = "\ufeff"
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_UNUSUAL: Final = re.compile(r"[^\t\n -~]")
_UNUSUAL_IN_LINE: Final = re.compile("[^ -~]")
_EMOJI_CATEGORY: Final = "So"
_JOINER: Final = "\u200d"
_OF_SCRIPTS: Final = "\u200c\u200d\u200e\u200f\ufe0f"
"""Joiners and directions, as in Persian, Hebrew or Hindi, and what makes a keycap of a digit."""
_VARIATION_SELECTORS: Final = ("\ufe0e", "\ufe0f")
_SKIN_TONES: Final = re.compile("[\U0001f3fb-\U0001f3ff]")
_NAMES: Final = {"\t": "TAB", "\n": "LINE FEED", "\r": "CARRIAGE RETURN", "\0": "NULL"}
"""unicodedata has no names of control characters."""


class BadText(ValueError):
    """A text that a person wrote cannot be used; the words are the predicate of a sentence about it."""


def visible(text: str) -> str:
    r"""``text`` with every invisible character escaped: a zero-width space becomes ``\u{200b}``.

    Invisible are Unicode's general categories C (control, format, unassigned and so on), Zl and Zp, the characters with
    the property Default_Ignorable_Code_Point, and the blank Braille pattern. Characters that join others into one emoji
    stay as they are. ``pages/static/visible.mjs`` does the same in browsers.
    """
    # The fast path for most texts.
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(each):x}}}" if _is_invisible(each) and not _is_part_of_emoji(text, position) else each
        for position, each in enumerate(text)
    )


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """Another party's ``text`` for a sentence: :func:`visible`, and at most ``most`` characters long."""
    # What comes after them cannot be shown, and may be megabytes.
    escaped = visible(text[: most + 1])
    return escaped if len(escaped) <= most else f"{escaped[: most - 1]}…"


def decoded(content: bytes) -> str:
    r"""The UTF-8 text of a file, without a byte order mark, and with ``\n`` at the end of its lines; raises BadText."""
    if content.startswith(_UTF_16):
        raise BadText("must be UTF-8 text, and is UTF-16: save it as UTF-8")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadText(f"must be UTF-8 text; the byte at offset {error.start} is not") from None
    return text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n")


def text_of(content: bytes) -> str:
    """The text of a file with several lines, as :func:`decoded` has it; raises BadText if not all of it is visible.

    What some scripts need may be in it, since it has comments. A secret is checked by :func:`check_line`.
    """
    text = decoded(content)
    for found in _UNUSUAL.finditer(text):
        if found[0] not in _OF_SCRIPTS and _is_invisible(found[0]) and not _is_part_of_emoji(text, found.start()):
            raise _invisible(text, found.start())
    return text


def line_of(content: bytes, what: str) -> str:
    """The only line of a file, which is ``what``, such as "the password"; raises BadText.

    Empty lines may follow. A space other than U+0020 is refused, because nobody sees which one it is.
    """
    line = decoded(content).rstrip("\n")
    if not line or "\n" in line:
        raise BadText(f"must have one line and contain only {what}")
    check_line(line)
    return line


def check_line(line: str) -> None:
    """Raise BadText unless each character of ``line`` is visible, or the space U+0020."""
    for found in _UNUSUAL_IN_LINE.finditer(line):
        if _is_invisible(found[0]) or unicodedata.category(found[0]) == "Zs":
            raise _invisible(line, found.start())


def _invisible(text: str, place: int) -> BadText:
    character = text[place]
    name = unicodedata.name(character, _NAMES.get(character, "a control character"))
    before = text[:place].split("\n")
    at = f"line {len(before)}, column {len(before[-1]) + 1}"
    remedy = (
        "a byte order mark is accepted only at the beginning of a file"
        if character == _BYTE_ORDER_MARK
        else "nobody sees it: remove it, or type the text again"
    )
    return BadText(f"must not have U+{ord(character):04X} ({name}) in {at}; {remedy}")


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in _INVISIBLE or _IGNORABLE.match(character) is not None


def _is_part_of_emoji(text: str, position: int) -> bool:
    """Whether the character is a variation selector after an emoji, or joins two emoji."""
    before, after = text[max(position - 1, 0) : position], text[position + 1 : position + 2]
    if text[position] in _VARIATION_SELECTORS:
        return _is_emoji(before)
    joins = text[position] == _JOINER and _is_emoji(after)
    return joins and (_is_emoji(before) or before in _VARIATION_SELECTORS or _SKIN_TONES.match(before) is not None)


def _is_emoji(character: str) -> bool:
    return character != "" and unicodedata.category(character) == _EMOJI_CATEGORY and character != "\u2800"
