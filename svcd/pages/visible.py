"""Text of others as people are shown it: what nobody would see is written out (docs/pages.md "Text of others").

What counts as unseen: Unicode's general categories C (control, format, unassigned and the like) and separators of lines
and paragraphs, what the property Default_Ignorable_Code_Point names beside them, and the blank Braille pattern.
``static/visible.mjs`` says the same for scripts.
"""

import re
import unicodedata
from typing import Final

_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_PICTURE: Final = "So"
_JOINER: Final = "\u200d"
_STYLES: Final = ("\ufe0e", "\ufe0f")
_SKINS: Final = re.compile("[\U0001f3fb-\U0001f3ff]")


def visible(text: str) -> str:
    r"""``text`` with everything in it to be seen: a zero-width space is written ``\u{200b}``.

    What makes one picture of several characters, as most emoji are, stays.
    """
    # Most texts are of ASCII, and most of the others of letters.
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(each):x}}}" if _is_unseen(each) and not _is_of_picture(text, place) else each
        for place, each in enumerate(text)
    )


def _is_unseen(character: str) -> bool:
    return unicodedata.category(character) in _UNSEEN or _IGNORABLE.match(character) is not None


def _is_of_picture(text: str, place: int) -> bool:
    """Whether the character chooses the style of the picture before it, or joins that to the one behind it."""
    before, after = text[:place][-1:], text[place + 1 : place + 2]
    if text[place] in _STYLES:
        return _is_picture(before)
    joins = text[place] == _JOINER and _is_picture(after)
    return joins and (_is_picture(before) or before in _STYLES or _SKINS.match(before) is not None)


def _is_picture(character: str) -> bool:
    return character != "" and unicodedata.category(character) == _PICTURE and character != "\u2800"
