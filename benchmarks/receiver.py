"""A merchant's receiver on 127.0.0.1: ``python -m benchmarks.receiver PORT [silent]``.

It answers every event with 200 at once; the silent one takes what it is sent and never answers.
"""

import asyncio
import sys
from typing import Final

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read one event and answer."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(length))
        writer.write(_ANSWER)
    except asyncio.IncompleteReadError:
        # Somebody only wanted to know whether there is a receiver.
        pass
    finally:
        writer.close()


async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take everything and say nothing until the other side gives up."""
    while await reader.read(65_536):
        pass
    writer.close()


async def serve(port: int, *, silent: bool) -> None:
    """Serve until the process is told to stop."""
    server = await asyncio.start_server(ignore if silent else answer, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), silent="silent" in sys.argv[2:]))
