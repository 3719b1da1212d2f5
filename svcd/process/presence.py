"""Files that must stay where they are while the process has them open (docs/operations.md "Faults")."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from attrs import define, field
from twisted.logger import Logger

LOOK_SECONDS: Final = 1.0
"""How often it is seen whether they are there."""


@define
class FilesWatch:
    """Sees that a file was removed or replaced by another one, says so once, and calls ``stop``.

    What is written to a file without a name is lost with the process. While the process lives it can still bring a
    write-ahead log that was removed into the database beside it: by stopping.
    """

    paths: Iterable[Path]
    stop: Callable[[], object]
    _found: dict[Path, tuple[int, int]] = field(factory=dict, init=False)
    _told: bool = field(default=False, init=False)

    _log = Logger()

    def look(self) -> None:
        """Look at them; to be called now and then."""
        gone = [path for path in self.paths if self._is_another(path)]
        if gone and not self._told:
            self._told = True
            self._log.critical(
                "{path} was removed or replaced while the node uses it. The node stops, and brings what it can into "
                "the database that it has open; see to the disk, then start it again",
                path=str(gone[0]),
            )
            self.stop()

    def _is_another(self, path: Path) -> bool:
        try:
            seen = path.stat()
        except FileNotFoundError:
            return path in self._found
        except OSError:
            # A disk that does not answer is for those to tell who read and write.
            return False
        identity = (seen.st_dev, seen.st_ino)
        return self._found.setdefault(path, identity) != identity
