"""A line that can be cut: a TCP proxy on loopback in front of a Unix socket."""

import selectors
import socket
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Self

_PIECE = 65_536


class Line:
    """Carries connections at ``port`` to the socket ``target``.

    After :meth:`cut` nothing passes and nobody is told, as behind a firewall that drops.
    """

    def __init__(self, port: int, target: str) -> None:
        self.port = port
        self._target = target
        self._open = Event()
        self._open.set()
        self._over = False
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self._thread = Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over = True
        self._open.set()
        # Wakes the thread that accepts.
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._thread.join()
        self._listener.close()
        self._end_all()

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._open.clear()

    def mend(self) -> None:
        """Let everything pass again."""
        self._open.set()

    def _end_all(self) -> None:
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if self._over:
                client.close()
                return
            Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self._open.wait()
        server = socket.socket(socket.AF_UNIX)
        self._sockets |= {client, server}
        with selectors.DefaultSelector() as selector, client, server, suppress(OSError):
            server.connect(self._target)
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    self._open.wait()
                    piece = key.fileobj.recv(_PIECE)  # type: ignore[union-attr]
                    if not piece:
                        return
                    key.data.sendall(piece)
