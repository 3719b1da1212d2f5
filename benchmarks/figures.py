"""What a benchmark found: rows of figures against baselines, and the table that shows them."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

from attrs import asdict, field, frozen


@frozen
class Goal:
    """What is wanted of a row: its ``ratio`` or its ``figure`` is at least, or at most, ``bound``."""

    of: Literal["ratio", "figure"]
    relation: Literal[">=", "<="]
    bound: float


@frozen(kw_only=True)
class Row:
    """One line of the table; ``spread`` holds the least and the greatest ratio of all rounds."""

    name: str
    figure: float
    unit: str
    baseline: float | None = None
    baseline_is: str = ""
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    goal: Goal | None = None

    @property
    def verdict(self) -> str:
        """``ok``, ``short``, or nothing where nothing is wanted."""
        if self.goal is None:
            return ""
        value = self.ratio if self.goal.of == "ratio" else self.figure
        if value is None:
            raise ValueError(f"{self.name} has a goal for a {self.goal.of} that it does not have")
        met = value >= self.goal.bound if self.goal.relation == ">=" else value <= self.goal.bound
        return "ok" if met else "short"


@frozen
class Rounds:
    """Figures and baselines that were measured in turn, a pair in each round."""

    figures: list[float] = field(factory=list)
    baselines: list[float] = field(factory=list)

    def add(self, figure: float, baseline: float) -> None:
        """Note one round."""
        self.figures.append(figure)
        self.baselines.append(baseline)

    def row(self, name: str, *, unit: str, baseline_is: str, goal: Goal | None = None) -> Row:
        """The medians: of a noisy machine, the ratio within a round says more than either figure."""
        ratios = [figure / baseline for figure, baseline in zip(self.figures, self.baselines, strict=True)]
        return Row(
            name=name,
            figure=median(self.figures),
            unit=unit,
            baseline=median(self.baselines),
            baseline_is=baseline_is,
            ratio=median(ratios),
            spread=(min(ratios), max(ratios)),
            goal=goal,
        )


def percentile_99(values: Sequence[float]) -> float:
    """The 99th percentile; of a single value, which a quick run may have no more of, that value."""
    return quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def latency(name: str, busy: Sequence[float], idle: Sequence[float], *, baseline_is: str, goal: Goal) -> Row:
    """The 99th percentile of the seconds that answers took beside other work, against that without it."""
    return Row(
        name=name,
        figure=percentile_99(busy) * 1000,
        unit="ms",
        baseline=percentile_99(idle) * 1000,
        baseline_is=f"ms, {baseline_is}",
        ratio=percentile_99(busy) / percentile_99(idle),
        goal=goal,
    )


_HEADINGS = ("benchmark", "figure", "", "baseline", "", "ratio", "least..most", "wanted", "")


def table(rows: Iterable[Row]) -> str:
    """The rows as text, one line each under a line of headings."""
    lines = [_HEADINGS, *map(_cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return "\n".join(_line(line, widths) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    # Numbers to the right, words to the left.
    aligned = [
        cell.rjust(width) if column in (1, 3, 5) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    goal = row.goal
    return (
        row.name,
        _number(row.figure),
        row.unit,
        "" if row.baseline is None else _number(row.baseline),
        row.baseline_is,
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.spread is None else f"{row.spread[0]:.2f}..{row.spread[1]:.2f}",
        "" if goal is None else f"{goal.relation} {goal.bound:g}{'' if goal.of == 'ratio' else f' {row.unit}'}",
        row.verdict,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def save(rows: Iterable[Row], file: Path) -> None:
    """Write the rows as JSON, with their verdicts for whoever reads them."""
    shown = [{**asdict(row), "verdict": row.verdict} for row in rows]
    file.write_text(json.dumps(shown, indent=1) + "\n", encoding="utf-8")


def load(file: Path) -> list[Row]:
    """The rows that :func:`save` wrote."""
    rows = []
    for shown in json.loads(file.read_text("utf-8")):
        del shown["verdict"]
        goal, spread = shown.pop("goal"), shown.pop("spread")
        rows.append(Row(**shown, goal=goal and Goal(**goal), spread=spread and (spread[0], spread[1])))
    return rows
