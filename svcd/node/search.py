"""The search for participation work, in threads that give way to everything else on the machine."""

import os
import threading
from typing import Final

from attrs import define, field
from twisted.internet.defer import gatherResults

from svcd.chain.block import Header
from svcd.chain.work import effective_target, work_value
from svcd.node.threads import Worker

_NICE: Final = 19
_NONCES: Final = 2**64


@define(eq=False)
class Search:
    """One search, shared by the threads that take part; whoever finds or gives up ends it for all."""

    header: Header
    memory_kib: int
    start: int
    """Where to begin among the 2^64 work nonces; a random one, so that two blocks of the same core differ."""
    tried: int = 0
    _ended: threading.Event = field(factory=threading.Event)

    def end(self) -> None:
        """Make every thread return soon: within one attempt."""
        self._ended.set()

    @property
    def ended(self) -> bool:
        """Whether the search is over."""
        return self._ended.is_set()

    def run(self, first: int = 0, step: int = 1) -> bytes | None:
        """Try every ``step``-th nonce from ``start + first`` on; the eight bytes of one that will do, None if ended."""
        target = effective_target(self.header.base_target, self.header.multiplier)
        core_hash = self.header.core_hash
        nonce = self.start + first
        while not self._ended.is_set():
            work_nonce = (nonce % _NONCES).to_bytes(8, "big")
            self.tried += 1
            if work_value(core_hash, work_nonce, self.memory_kib) < target:
                self.end()
                return work_nonce
            nonce += step
        return None

    def run_nicely(self, first: int, step: int) -> bytes | None:
        """The same in a thread of the lowest priority, where the system has one priority for each thread."""
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        return self.run(first, step)

    async def on(self, worker: Worker, threads: int, *, nicely: bool = False) -> bytes | None:
        """What so many threads of ``worker`` find together; None if the search was ended."""
        run = self.run_nicely if nicely else self.run
        try:
            jobs = [worker.run(run, first, threads) for first in range(threads)]
            found = await gatherResults(jobs, consumeErrors=True)
        finally:
            # Where one thread failed the others must not go on with what nobody waits for.
            self.end()
        return next((nonce for nonce in found if nonce is not None), None)
