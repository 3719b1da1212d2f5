"""Keeps the memory of a process with keys and passwords out of core dumps."""

import ctypes
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
"""linux/prctl.h"""


def forbid_core_dumps() -> None:
    """Let a crash of this process write no core dump, neither to a file nor to a program such as systemd-coredump.

    On Linux other programs of the user cannot attach a debugger to it either (prctl(2), PR_SET_DUMPABLE).
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # The kernel hands a core dump to a program whatever the limit is.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
