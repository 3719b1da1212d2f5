"""The search for participation work (docs/protocol.md 6)."""

import os
import threading
from typing import Final

from attrs import define, field
from twisted.internet.defer import gatherResults

from svcd.chain.block import Header
from svcd.chain.work import effective_target, work_value
from svcd.interfaces import Worker

_NICE: Final = 19
_NONCES: Final = 2**64


@define(eq=False)
class WorkSearch:
    """One search for participation work, shared by several threads; the first to find a nonce ends it for all."""

    header: Header
    memory_kib: int
    start: int
    """The first of the 2^64 work nonces; a random one, so that two blocks with the same core differ."""
    ended: threading.Event = field(factory=threading.Event)
    """Set to end the search; each thread returns after the hash it is computing."""
    tried: dict[int, int] = field(factory=dict)
    """How many nonces each thread has tried; each writes its own entry only."""

    @property
    def attempts(self) -> int:
        """How many nonces have been tried so far; for any thread."""
        return sum(self.tried.values())

    def run(self, first: int = 0, step: int = 1, *, at_low_priority: bool = False) -> bytes | None:
        """Try every ``step``-th nonce from ``start + first`` on; the eight bytes of a good one, or None if ended.

        A thread at low priority stays there, on systems where threads have priorities of their own.
        """
        if at_low_priority and hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        target = effective_target(self.header.base_target, self.header.multiplier)
        core_hash = self.header.core_hash
        nonce = self.start + first
        while not self.ended.is_set():
            work_nonce = (nonce % _NONCES).to_bytes(8, "big")
            self.tried[first] = self.tried.get(first, 0) + 1
            if work_value(core_hash, work_nonce, self.memory_kib) < target:
                self.ended.set()
                return work_nonce
            nonce += step
        return None

    async def on(self, worker: Worker, threads: int, *, at_low_priority: bool = False) -> bytes | None:
        """Search on ``threads`` threads of ``worker``; the nonce, or None if the search was ended."""
        # No entry is added while the entries are summed up.
        self.tried = dict.fromkeys(range(threads), 0)
        try:
            jobs = [worker.run(self.run, n, threads, at_low_priority=at_low_priority) for n in range(threads)]
            found = await gatherResults(jobs, consumeErrors=True)
        finally:
            # If one thread failed, the others must stop too.
            self.ended.set()
        return next((nonce for nonce in found if nonce is not None), None)
