"""The names of headers that Twisted keeps."""

from itertools import chain
from typing import Final

from twisted.web.http_headers import Headers

_ROOM: Final = 10_000
"""How many names Twisted 26.10.0 keeps, of any length, in the form in which each came and in its own."""
_OWN: Final = (
    "accept accept-encoding accept-language access-control-request-headers access-control-request-method authorization "
    "cache-control connection content-encoding content-length content-type date expect host if-none-match location "
    "origin referer retry-after server svc-tip transfer-encoding upgrade user-agent vary x-forwarded-for "
    "x-forwarded-proto"
).split()


def keep_no_other_header_names() -> None:
    """Have Twisted keep the names of headers that a node reads and sends, and none that strangers choose.

    Twisted keeps the first names that it reads for ever, to write them alike: names of 16 KiB, the longest that it
    takes, would fill 300 MiB. So short names take their places; a name that is not kept is written anew each time,
    which takes a microsecond.
    """
    headers = Headers()
    for name in chain(_OWN, map(str.title, _OWN), map(str, range(_ROOM))):
        headers.hasHeader(name.encode("ascii"))
