"""A client that asks at a steady rate, whatever the answers take, and times them from when each question was due."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from attrs import define, field

CONNECTIONS: Final = 16
_QUESTION: Final = b"GET /rpc/status HTTP/1.1\r\nHost: localhost\r\n\r\n"


@define(eq=False)
class Paced:
    """Asks for the node's status ``per_second`` times a second on 16 connections that are kept open.

    A question that waits because the answer before it is late counts its waiting too: leaving that out would hide
    every pause of the node but its first question.
    """

    port: int
    per_second: int
    _latencies: list[float] = field(factory=list)

    def ask_until(self, enough: Callable[[dict[str, Any]], bool]) -> list[float]:
        """Seconds from due to answered, of all questions until the first ``status`` for which ``enough`` is true."""
        self._latencies = []
        asyncio.run(self._ask_until(enough))
        return self._latencies

    async def _ask_until(self, enough: Callable[[dict[str, Any]], bool]) -> None:
        streams = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(CONNECTIONS)]
        began = asyncio.get_running_loop().time() + 0.1
        tasks = [
            asyncio.create_task(self._ask_in_turn(*stream, began + number / self.per_second, enough))
            for number, stream in enumerate(streams)
        ]
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        if others:  # all may have ended in one turn of the loop
            await asyncio.wait(others)
        for _, writer in streams:
            writer.close()
        for task in done:
            task.result()

    async def _ask_in_turn(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        due: float,
        enough: Callable[[dict[str, Any]], bool],
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(due - clock())
            writer.write(_QUESTION)
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(length))
            self._latencies.append(clock() - due)
            if enough(json.loads(body)["status"]):
                return
            due += CONNECTIONS / self.per_second
