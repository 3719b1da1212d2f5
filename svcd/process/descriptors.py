"""How many files and sockets the process may have open."""

import resource
from typing import Final

WANTED: Final = 16_384
"""As systemd/svcd.service grants: far more than the connections of clients, those to peers and the databases."""


def open_many() -> int:
    """Let the process open WANTED files, or as many as the hard limit allows, and return how many it may open.

    A shell often grants 1,024 at first. A soft limit that is higher stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY:
        return WANTED
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(soft, most)
