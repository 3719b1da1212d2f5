"""How many files and sockets the process may have open."""

import resource
from typing import Final

WANTED: Final = 16_384
"""As systemd/svcd.service grants: far more than the connections of clients, those to peers and the databases."""


def open_many() -> None:
    """Let as many files be open as are WANTED, or as the hard limit allows; a shell often grants 1,024 at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
