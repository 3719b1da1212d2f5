"""Numbers of things, and durations, in words of a log and of a terminal."""

from typing import Final

_UNITS: Final = ((86_400, "days"), (3_600, "h"), (60, "min"))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun: ``1 block``, ``2,000 blocks``."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def duration(seconds: float) -> str:
    """Such as ``98 s``, ``12 min``, ``3.5 h`` or ``12 days``: two digits or more, rounded."""
    for size, name in _UNITS:
        if (number := seconds / size) >= 2:
            return f"{number:,.0f} {name}" if number >= 9.95 else f"{number:.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:,.0f} s"
