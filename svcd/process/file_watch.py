"""Stopping the node when an open database file is removed or replaced (docs/operations.md "Faults")."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from attrs import define, field
from twisted.logger import Logger

CHECK_SECONDS: Final = 1.0
"""From one check of the files to the next."""


@define
class FileWatch:
    """Notices that a file was removed or replaced by another one, logs it once, and calls ``stop``.

    Data that is written to an unlinked file is lost with the process. A stop in time still checkpoints a removed
    write-ahead log into the database that the process has open.
    """

    paths: Iterable[Path]
    stop: Callable[[], object]
    _identities: dict[Path, tuple[int, int]] = field(factory=dict, init=False)
    """Device and inode of each file that was seen."""
    _stopped: bool = field(default=False, init=False)

    _log = Logger()

    def check(self) -> None:
        """Check that each file is still the one that was first seen; to be called periodically."""
        gone = [path for path in self.paths if self._is_gone(path)]
        if gone and not self._stopped:
            self._stopped = True
            self._log.critical(
                "{path} was removed or replaced while the node uses it. The node stops, and brings what it can into "
                "the database that it has open; see to the disk, then start it again",
                path=str(gone[0]),
            )
            self.stop()

    def _is_gone(self, path: Path) -> bool:
        try:
            found = path.stat()
        except FileNotFoundError:
            return path in self._identities
        except OSError:
            # The next read or write reports a disk that does not answer.
            return False
        identity = (found.st_dev, found.st_ino)
        return self._identities.setdefault(path, identity) != identity
