"""What coverage has to be told of the tests (pyproject.toml): of processes that a signal ends, and of greenlets.

It is a plugin of coverage, which loads it in every process that is measured.
"""

import os

from coverage import Coverage
from greenlet import getcurrent


def coverage_init(_registry: object, _options: object) -> None:
    """Have what a process did written down before it ends itself by a signal, as twistd does when asked to stop.

    Coverage calls this when it starts, and writes when Python ends: it would know nothing of nodes that were stopped.
    """
    kill = os.kill

    def writing_first(process: int, number: int, /) -> None:
        measuring = Coverage.current()
        if process == os.getpid() and measuring is not None:
            measuring.save()
        kill(process, number)

    os.kill = writing_first


def tell_greenlets_apart() -> None:
    """Let coverage, where it measures this thread, follow the greenlets of pytest-twisted; to be called before them.

    With `concurrency = greenlet` it would ask every thread for its greenlet, and so make one for each. What is left of
    it when its thread has ended is taken apart in the main thread; if another thread ends meanwhile, CPython 3.11 runs
    in a circle and the process never ends, but only under a tracer.
    """
    measuring = Coverage.current()
    # It has no public name; a tracer that needs no stack of its own has no such attribute.
    tracers = [] if measuring is None else measuring._collector.tracers[:1]
    for tracer in tracers:
        if hasattr(tracer, "concur_id_func"):
            tracer.concur_id_func = getcurrent
