"""Shows untrusted text with its invisible characters escaped (docs/pages.md "Untrusted text").

Invisible are Unicode's general categories C (control, format, unassigned and so on), Zl and Zp, the characters with the
property Default_Ignorable_Code_Point, and the blank Braille pattern. ``static/visible.mjs`` does the same in browsers.
"""

import re
import unicodedata
from typing import Final

_INVISIBLE: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_EMOJI_CATEGORY: Final = "So"
_JOINER: Final = "\u200d"
_VARIATION_SELECTORS: Final = ("\ufe0e", "\ufe0f")
_SKIN_TONES: Final = re.compile("[\U0001f3fb-\U0001f3ff]")


def visible(text: str) -> str:
    r"""``text`` with every invisible character escaped: a zero-width space becomes ``\u{200b}``.

    Characters that join others into one emoji stay as they are.
    """
    # The fast path for most texts.
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(each):x}}}" if _is_invisible(each) and not _is_part_of_emoji(text, place) else each
        for place, each in enumerate(text)
    )


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in _INVISIBLE or _IGNORABLE.match(character) is not None


def _is_part_of_emoji(text: str, place: int) -> bool:
    """Whether the character is a variation selector after an emoji, or joins two emoji."""
    before, after = text[:place][-1:], text[place + 1 : place + 2]
    if text[place] in _VARIATION_SELECTORS:
        return _is_emoji(before)
    joins = text[place] == _JOINER and _is_emoji(after)
    return joins and (_is_emoji(before) or before in _VARIATION_SELECTORS or _SKIN_TONES.match(before) is not None)


def _is_emoji(character: str) -> bool:
    return character != "" and unicodedata.category(character) == _EMOJI_CATEGORY and character != "\u2800"
