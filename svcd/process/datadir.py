"""The data directory: made on first start, private, and used by one node at a time."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from twisted.application.service import Service

from svcd.process.sequential import CannotStart


class DataDirectory(Service):
    """Holds the data directory while it runs; the first service to start and the last to stop.

    The lock is the system's own and ends with the process, however that ends; its file stays where it is.
    """

    def __init__(self, path: Path, *, leftovers: Sequence[str] = ()) -> None:
        """Make the service.

        Args:
            path: where the directory is.
            leftovers: names of sockets that a killed node leaves there; nobody can listen on one until it is gone.
        """
        self._path = path
        self._leftovers = leftovers
        self._lock: int | None = None

    def startService(self) -> None:
        """Make the directory, open to its owner only, lock it and clear it of leftovers.

        Raises:
            CannotStart: the directory cannot be made or written to, or another node uses it.
        """
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStart(f"cannot use the data directory {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise CannotStart(
                f"another node uses the data directory {self._path}; stop it or choose another"
            ) from error
        self._lock = lock
        for name in self._leftovers:
            (self._path / name).unlink(missing_ok=True)

    def stopService(self) -> None:
        """Let go of the directory."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
