r"""Text that a person wrote into a file, without what nobody sees in it; the node reads such files by the same rule.

A byte order mark at the beginning is accepted and is no part of the text (Unicode 23.8).
"""

import re
import unicodedata
from typing import Final

from svc_pay.errors import InvalidInput

BYTE_ORDER_MARK: Final = "\ufeff"
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Default_Ignorable_Code_Point outside of these categories, and the blank Braille pattern."""


def file_text(content: bytes) -> str:
    """The UTF-8 text of a file; raises InvalidInput."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidInput("a network file is UTF-8 text, and this is UTF-16")
    try:
        return content.decode().removeprefix(BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"a network file is UTF-8 text, and the byte at offset {error.start} is not") from None


def secret_in(text: str, what: str) -> str:
    """The secret in the text of a file, which is ``what`` in the InvalidInput for any other text."""
    line = text.removeprefix(BYTE_ORDER_MARK).rstrip("\r\n")
    for place, character in enumerate(line, 1):
        if character in "\r\n":
            raise InvalidInput(f"{what} must be one line")
        if character != " " and (unicodedata.category(character) in _UNSEEN or _IGNORABLE.match(character)):
            raise InvalidInput(
                f"{what} must not have U+{ord(character):04X} in column {place}; nobody sees it: remove it, or type "
                "the secret again"
            )
    secret = line.strip(" ")
    if not secret:
        raise InvalidInput(f"{what} is empty")
    return secret
