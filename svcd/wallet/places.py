"""Where a node is asked: its public interface by URL, the operator's by a Unix socket."""

import os
import re
from typing import Final

from attrs import frozen

from svcd.wallet.failed import Failed

MAX_SOCKET_PATH: Final = 107
"""What the kernel takes as the path of a Unix socket, in bytes (unix(7))."""
SECONDS: Final = 30.0
OPERATOR_SECONDS: Final = 120.0
"""A hundred blocks on demand take a few seconds on a small machine, and there are smaller ones."""
_URL: Final = re.compile(r"(https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?)/?")


@frozen
class Place:
    """One HTTP interface of one node."""

    base: str
    """What stands before the path in its URLs: scheme, host and port."""
    name: str
    """What the user knows it by."""
    advice: str
    """What to do if nothing answers there."""
    seconds: float = SECONDS
    """The deadline of each request."""


def public_place(url: str) -> Place:
    """The public interface at ``url``; raises ValueError."""
    match = _URL.fullmatch(url)
    if match is None or int(match[2] or 1) not in range(1, 65536):
        raise ValueError(
            "a node's URL is http:// or https://, a host and perhaps a port, such as http://127.0.0.1:8645"
        )
    return Place(match[1], match[1], "is the node running? Say with --url or SVCD_URL where it is")


def operator_place(socket: str) -> Place:
    """The operator's interface at the Unix socket ``socket``; raises Failed."""
    if len(os.fsencode(socket)) > MAX_SOCKET_PATH:
        raise Failed(f"the path {socket} is too long for a Unix socket; give --data-dir relative to where you are")
    advice = "is the node running? Say with --data-dir or SVCD_DATA_DIR where its data directory is"
    return Place("http://localhost", socket, advice, OPERATOR_SECONDS)
