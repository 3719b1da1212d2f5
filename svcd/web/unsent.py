"""The part of a connection's answers that its transport has not been given yet."""

from collections import deque
from mmap import MAP_PRIVATE, mmap
from typing import Final

from svcd.limits import UNREAD_ANSWERS, limit

PIECE_BYTES: Final = limit(
    128 * 1024, "bytes of an answer that are passed to a connection at a time", "bytes", UNREAD_ANSWERS
)
"""How many bytes of an answer the transport is given at a time.

As many as Twisted passes to the system at a time, and more than the buffer above which it pauses its producer: so each
piece is followed by the next as soon as the system has taken it.
"""


class UnsentQueue:
    """Bytes that wait to be passed to a transport, in order.

    Each piece has a memory mapping of its own. The system gets its memory back as soon as the piece is taken or
    dropped, while the C library would keep most of what answers have taken for later.
    """

    def __init__(self) -> None:
        self._pieces: deque[mmap] = deque()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, data: bytes) -> None:
        """Add a copy of ``data`` at the end; takes half a millisecond for each MiB."""
        with memoryview(data) as view:
            for start in range(0, len(data), PIECE_BYTES):
                part = view[start : start + PIECE_BYTES]
                piece = mmap(-1, len(part), flags=MAP_PRIVATE)
                piece[:] = part
                self._pieces.append(piece)
                self._size += len(part)

    def take(self) -> bytes:
        """Remove the next piece, of PIECE_BYTES at most, and return it; empty if nothing waits."""
        if not self._pieces:
            return b""
        with self._pieces.popleft() as piece:
            data = piece[:]
        self._size -= len(data)
        return data

    def clear(self) -> None:
        """Drop all of it."""
        for piece in self._pieces:
            piece.close()
        self._pieces.clear()
        self._size = 0
