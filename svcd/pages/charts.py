"""Charts as SVG, drawn by the server: axes, a line at a mark, and the value of each block where it is pointed at.

A browser shows the values as tooltips; `static/charts.mjs` adds the keyboard (docs/pages.md "Every page").
Charts are text and not elements: a thousand elements would occupy the reactor's thread for 20 ms.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Final

from attrs import frozen

WIDTH: Final = 600
HEIGHT: Final = 100
_BAR: Final = 0.72
"""The width of a bar as a fraction of the distance to the next one."""
_MIN_BAR: Final = 1
_STEPS: Final = (2, 4, 6, 8, 10)
"""Where an axis may end, times a power of ten: half of it is a short number too."""
_SECONDS: Final = (10, 20, 40, 60, 120, 240, 480, 1_200, 2_400, 4_800, 14_400, 28_800, 86_400)


@frozen(kw_only=True)
class Series:
    """One value for each of some blocks, oldest first."""

    heading: str
    values: Sequence[int]
    readings: Sequence[str]
    """The text for each value, such as ``Block 12: 3 transfers``."""
    note: str
    """One sentence about all of them."""
    first: str
    last: str
    """The labels below the two ends of the axis."""


def round_top(maximum: int) -> int:
    """The end of an axis for values up to ``maximum``."""
    power: int = 10 ** (len(str(max(maximum, 1))) - 1)
    return next(step * power for step in (1, *_STEPS) if step * power >= max(maximum, 2))


def seconds_top(maximum: int) -> int:
    """The end of an axis for durations up to ``maximum`` seconds."""
    return next((end for end in _SECONDS if end >= maximum), -(-maximum // 172_800) * 172_800)


def bar_chart(series: Series, *, top: int, axis: Callable[[int], str], mark: int | None = None) -> str:
    """Bars from 0 to ``top``, where they are cut off, with a line at ``mark``; ``axis`` writes a value at the axis."""
    step = WIDTH / max(len(series.values), 1)
    drawn = []
    for index, value in enumerate(series.values):
        height = max(min(value, top) * HEIGHT / top, _MIN_BAR)
        bar = f"M{index * step:.6g} {HEIGHT}v-{height:.2f}h{step * _BAR:.6g}v{height:.2f}z"
        drawn.append(bar if value else "")
    shapes = [_path("bars", "".join(drawn))]
    if mark is not None:
        shapes.append(_path("mark", f"M0 {HEIGHT - mark * HEIGHT / top:.2f}H{WIDTH}"))
    return _figure(series, shapes, (axis(top), axis(top // 2), axis(0)), step)


def line_chart(series: Series, *, axis: Callable[[int], str]) -> str:
    """A line from the least value to the greatest; equal values give a line at half height."""
    low, high = min(series.values), max(series.values)
    step = WIDTH / len(series.values)
    points = []
    for index, value in enumerate(series.values):
        # A difficulty may exceed the range of a float, so the ratio is computed in integers.
        part = 500 if high == low else (value - low) * 1000 // (high - low)
        y = HEIGHT - part * HEIGHT / 1000
        points += [f"{index * step:.6g} {y:.2f}", f"{(index + 1) * step:.6g} {y:.2f}"]
    line = "M" + "L".join(points)
    shapes = [_path("below", f"{line}V{HEIGHT}H0z"), _path("line", line)]
    return _figure(series, shapes, ("", axis(low), "") if high == low else (axis(high), "", axis(low)), step)


def values_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """A table of numbers as HTML, which scrolls sideways where it is wider than its place, by keys too."""
    heads = "".join([f'<th class="number" scope="col">{escape(heading)}</th>' for heading in headings])
    body = "".join(
        ["<tr>" + "".join([f'<td class="number">{escape(text)}</td>' for text in row]) + "</tr>" for row in rows]
    )
    hidden = f'<caption class="visually-hidden">{escape(caption)}</caption>'
    table = f'<table class="values">{hidden}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}">{table}</div>'


def _figure(series: Series, shapes: Sequence[str], levels: Sequence[str], step: float) -> str:
    label, note = escape(f"{series.heading}: {series.note}"), escape(series.note)
    grid = _path("grid", f"M0 0H{WIDTH}M0 {HEIGHT // 2}H{WIDTH}M0 {HEIGHT}H{WIDTH}")
    spots = "".join(
        [
            f'<path class="spot" d="M{index * step:.6g} 0h{step:.6g}v{HEIGHT}h-{step:.6g}z">'
            f"<title>{escape(reading)}</title></path>"
            for index, reading in enumerate(series.readings)
        ]
    )
    plot = (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f"{grid}{''.join(shapes)}{spots}</svg>"
    )
    return (
        f'<figure class="card stack chart"><h3>{escape(series.heading)}</h3><div class="frame">'
        f'<div class="levels" aria-hidden="true">{_spans(levels)}</div>'
        f'<div data-chart="{escape(series.heading)}">{plot}</div>'
        f'<div class="ends" aria-hidden="true">{_spans((series.first, series.last))}</div></div>'
        f'<figcaption class="soft small">{note}</figcaption></figure>'
    )


def _path(kind: str, data: str) -> str:
    return f'<path class="{kind}" d="{data}"></path>'


def _spans(texts: Iterable[str]) -> str:
    return "".join([f"<span>{escape(text)}</span>" for text in texts])
