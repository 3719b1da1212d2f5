"""How far a backup is, seen from beside the node that makes it: its files grow next to those that are copied."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
from attrs import define, frozen

_LABEL: Final = "Copying"
# The node copies them in this order, and one that it does not use not at all (docs/operations.md "Backup").
# The wallet may not import the rooms that name them and the folder: tests/wallet/test_growth.py holds them together.
_FIRST: Final = ("webhooks.sqlite", "mempool.sqlite")
_LAST: Final = "chain.sqlite"


@frozen
class Growth:
    """Bytes that are in the copy, and those of the databases."""

    copied: int
    whole: int


def growth_of(data_dir: Path, folder: Path) -> Growth | None:
    """How far the copy of the databases in ``data_dir`` to ``folder`` is, or None where that cannot be seen.

    It cannot where this process must not look, and under systemd with a private ``/tmp`` it is not there to be seen.
    """
    partial = Path(f"{folder}.partial")
    try:
        present = [name for name in (*_FIRST, _LAST) if (partial / name).exists()]
        copied = sum((partial / name).stat().st_size for name in present)
        whole = sum((data_dir / name).stat().st_size for name in {*present, _LAST})
    except OSError:
        return None
    return Growth(copied, whole) if present and whole else None


@contextmanager
def watched_copy(data_dir: Path, folder: Path) -> Iterator[Callable[[float], None]]:
    """What shows on standard error how far the copy is, when it is called with the seconds since it was asked for.

    A bar follows the files; the time stands there alone while they cannot be seen.
    """
    with ExitStack() as stack:
        line = _Line(data_dir, folder, stack)
        try:
            yield line.look
            line.fill()
        finally:
            line.leave()


@define
class _Line:
    data_dir: Path
    folder: Path
    stack: ExitStack
    move: Callable[[int], object] | None = None
    """Moves the bar so many bytes further, once there is one."""
    whole: int = 0
    reached: int = 0
    timed: bool = False

    def look(self, seconds: float) -> None:
        growth = growth_of(self.data_dir, self.folder)
        if growth is not None:
            self._follow(growth)
        elif self.move is None:
            self.timed = True
            click.echo(f"\r{_LABEL}, {seconds:.0f} s", nl=False, err=True)

    def fill(self) -> None:
        self._reach(self.whole)

    def leave(self) -> None:
        if self.timed and self.move is None:
            click.echo(err=True)

    def _follow(self, growth: Growth) -> None:
        if self.move is None:
            self.whole = growth.whole
            bar = self.stack.enter_context(click.progressbar(length=self.whole, label=_LABEL, file=sys.stderr))
            self.move = bar.update
        # What was written last is in no file yet, and only the node knows when the copy is safe on the disk.
        self._reach(min(growth.copied, self.whole - 1))

    def _reach(self, place: int) -> None:
        if self.move is not None and place > self.reached:
            self.move(place - self.reached)
            self.reached = place
