"""Charts as inline SVG images: bars, histograms and lines."""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pairsmith.tools.report.parts import shown

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 34
_ROW = 24
_ASIDE = 3.0
"""Horizontal distance between the interval lines of two series."""
_NAME = 200
"""Width of the column with the names of the bars."""
COLOURS = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b7791f", "#97266d", "#4a5568")

Point = tuple[float, float]


def bars(values: Sequence[tuple[str, float]], unit: str = "") -> Markup:
    """A horizontal bar for each name; ``values`` are at least 0."""
    longest = max((value for _, value in values), default=0) or 1
    parts = []
    for place, (name, value) in enumerate(values):
        y, width = place * _ROW, (WIDTH - _NAME - 90) * value / longest
        text_y = y + _ROW * 0.68
        figure = f"{value:,g}" if value < 1e6 else f"{value:,.0f}"
        parts += [
            _text(_NAME - 8, text_y, "end", shown(name, 28)),
            _rectangle(_NAME, y + 3, f"{width:.1f}", _ROW - 6),
            Markup('<text x="{:.1f}" y="{}">{}{}</text>').format(_NAME + width + 6, text_y, figure, unit),
        ]
    return _image(parts, max(_ROW * len(values), _ROW))


def histogram(edges: Sequence[float], counts: Sequence[int], x_label: str) -> Markup:
    """A histogram of ``counts``, one for each bin; ``edges`` are the bin edges, one more than ``counts``."""
    across, up = (edges[0], edges[-1]), (0, max(counts, default=0) or 1)
    parts = _axes(across, up, x_label)
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x, y = _x(left, across), _y(count, up)
        width = max(_x(right, across) - x - 1, 0.5)
        parts.append(_rectangle(f"{x + 0.5:.1f}", f"{y:.1f}", f"{width:.1f}", f"{HEIGHT - _BOTTOM - y:.1f}"))
    return _image(parts, HEIGHT)


def lines(
    series: Mapping[str, Sequence[Point]], x_label: str, spans: Mapping[str, Sequence[Point]] | None = None
) -> Markup:
    """A line chart with one line for each series; several lines are numbered and listed in a legend.

    ``spans`` has for each point the two ends of a vertical line, such as an interval.
    """
    points = [point for each in series.values() for point in each]
    if not points:
        return _image([], _ROW)
    xs, ys = zip(*points, strict=True)
    ys += tuple(end for each in (spans or {}).values() for span in each for end in span)
    across, up = (min(xs), max(xs)), (min(ys), max(ys))
    parts = _axes(across, up, x_label)
    for place, (name, each) in enumerate(series.items()):
        colour = COLOURS[place % len(COLOURS)]
        # Moved aside, or vertical lines would cover each other.
        aside = _ASIDE * (place - (len(series) - 1) / 2) if spans else 0.0
        path = " ".join(f"{_x(x, across) + aside:.1f},{_y(y, up):.1f}" for x, y in each)
        parts.append(
            Markup('<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>').format(path, colour)
        )
        for (at, _), (low, high) in zip(each, (spans or {}).get(name, ()), strict=False):
            line = Markup('<path d="M{:.1f},{:.1f} V{:.1f}" stroke="{}"/>')
            parts.append(line.format(_x(at, across) + aside, _y(low, up), _y(high, up), colour))
        x, y = map(float, path.split(" ")[-1].split(","))
        if len(each) == 1:
            parts.append(Markup('<circle cx="{}" cy="{}" r="3" fill="{}"/>').format(x, y, colour))
        if len(series) > 1:  # colours repeat, and not every reader can tell them apart
            number = Markup('<text x="{:.1f}" y="{:.1f}" font-size="10" text-anchor="{}" fill="{}">{}</text>')
            beside, anchor = (-4, "end") if x > WIDTH - 2 * _RIGHT else (4, "start")  # where there is room
            parts.append(number.format(x + beside, y - 3, anchor, colour, place + 1))
    return _image(parts, HEIGHT) if len(series) < 2 else _with_legend(parts, list(series))


def _with_legend(parts: Sequence[Markup], names: Sequence[str]) -> Markup:
    """The chart below a legend that gives the number and name of each line in its colour."""
    found, x, y = list[Markup](), float(_LEFT), 14
    for place, name in enumerate(names):
        text = f"{place + 1} {shown(name, 40)}"
        wide = 7.0 * len(text) + 24
        if x + wide > WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + 16
        colour = COLOURS[place % len(COLOURS)]
        found.append(Markup('<text x="{:.0f}" y="{}" fill="{}">{}</text>').format(x, y, colour, text))
        x += wide
    below = Markup('<g transform="translate(0,{})">{}</g>').format(y + 8, Markup("").join(parts))
    return _image([*found, below], HEIGHT + y + 8)


def _axes(across: Point, up: Point, x_label: str) -> list[Markup]:
    bottom = HEIGHT - _BOTTOM
    frame = '<path d="M{},{} V{} H{}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
    parts = [
        Markup(frame).format(_LEFT, _TOP, bottom, WIDTH - _RIGHT),
        _text((WIDTH + _LEFT) / 2, HEIGHT - 4, "middle", x_label),
    ]
    for value in _ticks(*across):
        x = _x(value, across)
        anchor = "end" if x > WIDTH - 2 * _RIGHT else "middle"
        parts.append(_text(f"{x:.1f}", bottom + 14, anchor, f"{value:,g}"))
    for value in _ticks(*up):
        parts.append(_text(_LEFT - 6, f"{_y(value, up) + 4:.1f}", "end", f"{value:,g}"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """About three to eight round numbers from ``low`` to ``high``."""
    if high <= low:
        return [low]
    power = 10 ** math.floor(math.log10((high - low) / 3))
    step = power * next((factor for factor in (5, 2) if (high - low) / (power * factor) >= 3), 1)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    digits = 1 - math.floor(math.log10(step))
    return [round(place * step, max(0, digits)) for place in range(first, last + 1)] or [low]


def _x(value: float, across: Point) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * _share(value, *across)


def _y(value: float, up: Point) -> float:
    return HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * _share(value, *up)


def _share(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.5


def _text(x: float | str, y: float | str, anchor: str, text: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, text)


def _rectangle(x: float | str, y: float | str, width: float | str, height: float | str) -> Markup:
    drawn = Markup('<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>')
    return drawn.format(x, y, width, height, COLOURS[0])


def _image(parts: Sequence[Markup], height: float) -> Markup:
    return Markup('<svg viewBox="0 0 {} {}" role="img" font-size="12" fill="currentColor">{}</svg>').format(
        WIDTH, height, Markup("").join(parts)
    )
