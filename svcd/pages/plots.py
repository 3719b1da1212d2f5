"""Small plots in SVG, without words and without styles of their own: the stylesheet colours them."""

from collections.abc import Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.pages.parts import tag

WIDTH: Final = 300
HEIGHT: Final = 80
_LEAST_BAR: Final = 1


def bars(values: Sequence[int], *, mark: int, top: int, says: str) -> Tag:
    """One bar for each value, cut off at ``top``, with a line across at ``mark``; ``says`` is for those who hear it."""
    step = WIDTH / max(len(values), 1)
    drawn = []
    for index, value in enumerate(values):
        height = max(min(value, top) * HEIGHT / top, _LEAST_BAR)
        drawn.append(f"M{index * step:.2f} {HEIGHT}v-{height:.2f}h{step * 0.72:.2f}v{height:.2f}z")
    y = HEIGHT - mark * HEIGHT / top
    line = tag("path", d=f"M0 {y:.2f}H{WIDTH}", class_="mark")
    return _plot(tag("path", d="".join(drawn), class_="bars"), line, says=says)


def curve(values: Sequence[int], *, says: str) -> Tag:
    """A line through the values, from the least to the greatest; a level one lies in the middle."""
    low, high = min(values), max(values)
    step = WIDTH / max(len(values) - 1, 1)
    room = HEIGHT - 8
    points = []
    for index, value in enumerate(values):
        # Difficulties are far beyond what a float can hold, and their ratios are not.
        part = 500 if high == low else (value - low) * 1000 // (high - low)
        points.append(f"{index * step:.2f} {4 + room - part * room / 1000:.2f}")
    line = "M" + "L".join(points)
    if len(points) == 1:
        line += f"H{WIDTH}"
    area = tag("path", d=f"{line}V{HEIGHT}H0z", class_="area")
    return _plot(area, tag("path", d=line, class_="line"), says=says)


def _plot(*shapes: Tag, says: str) -> Tag:
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *shapes, viewBox=box, preserveAspectRatio="none", role="img", aria_label=says, class_="plot")
