"""Small charts in SVG without text; the stylesheet colours them."""

from collections.abc import Sequence
from typing import Final

from twisted.web.template import Tag

from svcd.pages.html import tag

WIDTH: Final = 300
HEIGHT: Final = 80
_MIN_BAR: Final = 1


def bar_chart(values: Sequence[int], *, mark: int, top: int, label: str) -> Tag:
    """A bar chart, cut off at ``top``, with a line at ``mark``; ``label`` is the text for screen readers."""
    step = WIDTH / max(len(values), 1)
    drawn = []
    for index, value in enumerate(values):
        height = max(min(value, top) * HEIGHT / top, _MIN_BAR)
        drawn.append(f"M{index * step:.2f} {HEIGHT}v-{height:.2f}h{step * 0.72:.2f}v{height:.2f}z")
    y = HEIGHT - mark * HEIGHT / top
    line = tag("path", d=f"M0 {y:.2f}H{WIDTH}", class_="mark")
    return _svg(tag("path", d="".join(drawn), class_="bars"), line, label=label)


def line_chart(values: Sequence[int], *, label: str) -> Tag:
    """A line chart scaled from the least value to the greatest; equal values give a line at half height."""
    low, high = min(values), max(values)
    step = WIDTH / max(len(values) - 1, 1)
    room = HEIGHT - 8
    points = []
    for index, value in enumerate(values):
        # A difficulty may exceed the range of a float, so the ratio is computed in integers.
        part = 500 if high == low else (value - low) * 1000 // (high - low)
        points.append(f"{index * step:.2f} {4 + room - part * room / 1000:.2f}")
    line = "M" + "L".join(points)
    if len(points) == 1:
        line += f"H{WIDTH}"
    area = tag("path", d=f"{line}V{HEIGHT}H0z", class_="area")
    return _svg(area, tag("path", d=line, class_="line"), label=label)


def _svg(*shapes: Tag, label: str) -> Tag:
    box = f"0 0 {WIDTH} {HEIGHT}"
    return tag("svg", *shapes, viewBox=box, preserveAspectRatio="none", role="img", aria_label=label, class_="plot")
