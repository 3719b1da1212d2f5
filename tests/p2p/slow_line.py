"""A slow line between real processes: a TCP proxy whose connections share one rate, as those of a household do."""

import socket
import time
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

_PIECE = 4_096


class SlowLine:
    """Carries connections to several servers, all downloads together at ``bits_per_second``; uploads are not slowed."""

    def __init__(self, bits_per_second: float) -> None:
        self._seconds_per_byte = 8 / bits_per_second
        self._lock = Lock()
        self._free_at = time.monotonic()
        self._over = Event()
        self._sockets: list[socket.socket] = []
        self.downloaded = 0
        """Bytes that came down the line."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        for each in self._sockets:
            each.close()

    def open(self, port: int, server_port: int) -> None:
        """Accept connections at ``port``, and carry each to ``server_port``; both on loopback."""
        listener = socket.create_server(("127.0.0.1", port))
        self._sockets.append(listener)
        self._begin(self._accept, listener, server_port)

    def _begin(self, work: object, *args: object) -> None:
        Thread(target=work, args=args, daemon=True).start()  # type: ignore[arg-type]

    def _accept(self, listener: socket.socket, server_port: int) -> None:
        while not self._over.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", server_port))
            except OSError:
                # The node behind the line is not there; whoever calls it tries again.
                client.close()
                continue
            # What waits in a buffer has been sent already by the sender's reckoning: keep that small.
            for end in (client, server):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _PIECE)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _PIECE)
            self._sockets += [client, server]
            self._begin(self._carry, client, server, False)
            self._begin(self._carry, server, client, True)

    def _carry(self, source: socket.socket, target: socket.socket, slowed: bool) -> None:
        try:
            while piece := source.recv(_PIECE):
                if slowed:
                    self._wait_for_turn(len(piece))
                target.sendall(piece)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def _wait_for_turn(self, size: int) -> None:
        with self._lock:
            self.downloaded += size
            self._free_at = max(self._free_at, time.monotonic()) + size * self._seconds_per_byte
            turn = self._free_at
        self._over.wait(max(turn - time.monotonic(), 0))
