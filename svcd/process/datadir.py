"""The data directory as one process's own: a second node on the same chain would undo what the first one writes."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from stat import S_ISSOCK

from twisted.application.service import Service

from svcd.process.sequential import CannotStart


class DataDirectory(Service):
    """Makes the directory, and holds a lock on it from the beginning of its start to the end of its stop.

    The system lets go of the lock when the process ends, however it ends. Whoever has it knows that a socket found in
    the directory belongs to nobody any more, and removes it.
    """

    name = "data directory"

    def __init__(self, path: Path, *, sockets: tuple[str, ...] = ()) -> None:
        """Make the service; ``sockets`` are the names of Unix sockets that the node makes in there."""
        self._path = path
        self._sockets = sockets
        self._lock: int | None = None

    def startService(self) -> None:
        """Take the directory.

        Raises:
            CannotStart: it cannot be made or written to, or another process has it.
        """
        super().startService()  # type: ignore[no-untyped-call]
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStart(f"the data directory {self._path} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise CannotStart(
                f"the data directory {self._path} is in use by another node (process {holder}): "
                "stop that one, or choose another directory with --data-dir"
            ) from error
        self._lock = descriptor
        self._sign(descriptor)
        self._remove_dead_sockets()

    def stopService(self) -> None:
        """Let go of the directory."""
        super().stopService()  # type: ignore[no-untyped-call]
        descriptor, self._lock = self._lock, None
        if descriptor is not None:
            os.close(descriptor)

    def _sign(self, descriptor: int) -> None:
        """Say who has it; on a full disk nobody can, and the lock holds all the same."""
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        owner = self._path.stat()
        if os.geteuid() == 0 and os.fstat(descriptor).st_uid != owner.st_uid:
            # Root looks into the directory of a node that another user runs, who must be able to open it again.
            os.fchown(descriptor, owner.st_uid, owner.st_gid)

    def _remove_dead_sockets(self) -> None:
        for name in self._sockets:
            with suppress(FileNotFoundError):
                if S_ISSOCK((self._path / name).lstat().st_mode):
                    (self._path / name).unlink()
