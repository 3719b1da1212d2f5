"""Whether what a process holds stays as it is, or grows with what the process does.

What is under way lifts a figure for a moment and never lowers it, and a slow machine lifts it for longer. So only the
lowest values count, of the first third after the warm-up and of the last: a leak lifts those too, and load does not.

The databases grow, for a chain is never forgotten, and SQLite keeps what it has read and written of them in memory, up
to 64 MiB for each connection. So memory may grow by what they grow, once for the writer and once for the readers.
"""

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

MIB = 1 << 20
WARM_UP = 1 / 3
"""The share of the samples that is not looked at: caches fill, threads and connections are opened once."""
FEWEST = 24
"""Samples below which nothing is said: each third then has five of them."""
SLACK: Mapping[str, float] = {"memory": 6 * MIB, "descriptors": 12, "threads": 8, "delayed calls": 12}
"""How much more may be held in the last third than in the first one. Nodes keep up to 8 connections with each other."""
CACHES = 2
"""How often what is in the databases may be in memory."""

Sample = Mapping[str, float]
"""What is held: each figure of SLACK, and the size of the databases."""


@frozen
class Course:
    """How one figure went, after the warm-up."""

    figure: str
    first: float
    """The lowest of the first third."""
    last: float
    """The lowest of the last third."""
    highest: float
    allowed: float
    """By how much it may grow."""

    @property
    def grown(self) -> bool:
        """Whether there is more of it than there may be."""
        return self.last - self.first > self.allowed

    def __str__(self) -> str:
        first, last, highest, allowed = map(self._shown, (self.first, self.last, self.highest, self.allowed))
        return f"{self.figure:13} {first} → {last} (may grow by {allowed}), at most {highest}"

    def _shown(self, value: float) -> str:
        return f"{value / MIB:.1f} MiB" if self.figure == "memory" else f"{value:.0f}"


def courses(samples: Sequence[Sample]) -> list[Course]:
    """How each figure went; there must be FEWEST samples."""
    assert len(samples) >= FEWEST, f"{len(samples)} samples tell nothing; there must be {FEWEST}"
    steady = samples[int(len(samples) * WARM_UP) :]
    third = len(steady) // 3
    first, last = steady[:third], steady[-third:]
    cached = CACHES * (last[0]["databases"] - first[0]["databases"])
    return [
        Course(
            figure,
            _lowest(first, figure),
            _lowest(last, figure),
            max(_all(steady, figure)),
            slack + (cached if figure == "memory" else 0),
        )
        for figure, slack in SLACK.items()
    ]


def _all(samples: Iterable[Sample], figure: str) -> list[float]:
    return [sample[figure] for sample in samples]


def _lowest(samples: Iterable[Sample], figure: str) -> float:
    return min(_all(samples, figure))
