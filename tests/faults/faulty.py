"""`twistd` with a fault in it, on command: `python -m tests.faults.faulty [options of twistd]`.

While it runs it looks for the file that SVCFAULT names. Its words say what is to go wrong: ``kill writer`` ends the
threads of the pool of that name as nothing in the node could, ``raise module:Class.method MemoryError`` lets the next
call of a method raise. When that is prepared the file is removed.
"""

import ctypes
import functools
import importlib
import os
import re
import sys
import threading
import time
from builtins import __dict__ as builtins
from pathlib import Path
from typing import Any

from twisted.scripts.twistd import run


def kill(pool: str) -> None:
    """Raise SystemExit in every thread of a pool, wherever it is."""
    threads = [thread for thread in threading.enumerate() if re.fullmatch(rf"{pool}-\d+", thread.name)]
    if not threads:
        raise LookupError(f"no thread of the pool {pool}")
    for thread in threads:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


def fail_once(place: str, error: str) -> None:
    """Let the next call of a method raise."""
    module, _, name = place.partition(":")
    cls_name, method_name = name.split(".")
    cls = getattr(importlib.import_module(module), cls_name)
    method = getattr(cls, method_name)

    @functools.wraps(method)
    def failing(*args: Any, **kwargs: Any) -> Any:
        if getattr(cls, method_name) is failing:
            setattr(cls, method_name, method)
            raise builtins[error]
        return method(*args, **kwargs)

    setattr(cls, method_name, failing)


def obey(path: Path) -> None:
    """Wait for commands."""
    while True:
        time.sleep(0.02)
        try:
            what, *words = path.read_text().split()
        except (FileNotFoundError, ValueError):
            continue
        {"kill": kill, "raise": fail_once}[what](*words)
        path.unlink()


if __name__ == "__main__":
    threading.Thread(target=obey, args=(Path(os.environ["SVCFAULT"]),), daemon=True).start()
    sys.argv[0] = "twistd"
    run()
