"""Charts as inline SVG images: histograms, stacked histograms on one axis, and line charts.

Colours are the classes ``s0`` to ``s6`` of the page's style sheet, which defines them for light and for dark
screens. Charts can be read without seeing colours: each line and histogram is also named or numbered.
"""

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from pairsmith.tools.report.parts import shown_text

WIDTH, HEIGHT = 440, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 14, 10, 34
"""Margins around the plot area, in the units of the SVG's view box, as are all lengths here."""
_ROW = 24
"""Height of an empty chart."""
_DIGIT, _LINE = 8, 12
"""Width of a digit, and distance of two lines of text."""
_ASIDE = 3.0
"""Horizontal distance between the interval lines of two series."""
_RIDGE, _NAMED = 58, 18
"""Height of each stacked histogram, and of the line with its name."""
COLOURS = 7
"""Number of colours in the style sheet; the eighth series has the first colour again, with other dashes."""
_DASHES = ("", "6 3", "2 3", "9 3 2 3")

Point = tuple[float, float]


def histogram(
    edges: Sequence[float], counts: Sequence[int], x_label: str, *, integers: bool = False
) -> Markup:
    """A histogram with the columns ``counts``, one for each of n bins; ``edges`` are the n + 1 bin edges.

    With ``integers``, only whole numbers label the horizontal axis.
    """
    across, up = (edges[0], edges[-1]), (0, max(counts, default=0) or 1)
    parts = _axes(across, up, x_label, integers=integers, counts=True)
    parts += _columns(edges, counts, across, up, _TOP, HEIGHT - _BOTTOM, 0)
    return _image(parts, HEIGHT, f"Histogram: {x_label}")


def ridges(edges: Sequence[float], series: Mapping[str, Sequence[float]], x_label: str) -> Markup:
    """A histogram for each series, stacked on one horizontal axis, each with its name above it.

    ``series`` has, for each name, the heights of the n columns; ``edges`` are the n + 1 bin edges.
    """
    across = (edges[0], edges[-1])
    highest = max((value for numbers in series.values() for value in numbers), default=0) or 1
    parts = list[Markup]()
    for place, (name, values) in enumerate(series.items()):
        top = place * (_RIDGE + _NAMED)
        bottom = top + _NAMED + _RIDGE
        parts.append(_text(_LEFT, top + _NAMED - 5, "start", shown_text(name, 60)))
        parts += _columns(edges, values, across, (0, highest), top + _NAMED, bottom, place)
        line = Markup('<path d="M{},{} H{}" class="axis"/>')
        parts.append(line.format(_LEFT, bottom, WIDTH - _RIGHT))
    bottom = len(series) * (_RIDGE + _NAMED)
    parts += [*_below(across, bottom), _text((WIDTH + _LEFT) / 2, bottom + 30, "middle", x_label)]
    return _image(parts, bottom + 34, f"Histograms of {x_label}, one each for: {', '.join(series)}")


def lines(
    series: Mapping[str, Sequence[Point]], x_label: str, spans: Mapping[str, Sequence[Point]] | None = None
) -> Markup:
    """A line chart with one line for each series; several lines are numbered and listed in a legend.

    ``spans`` has, for each point of a series, the lower and upper end of a vertical line, such as a
    confidence interval.
    """
    points = [point for curve in series.values() for point in curve]
    if not points:
        return _image([], _ROW, "Nothing to draw")
    xs, ys = zip(*points, strict=True)
    ys += tuple(end for intervals in (spans or {}).values() for span in intervals for end in span)
    across, up = (min(xs), max(xs)), (min(ys), max(ys))
    parts = _axes(across, up, x_label, integers=all(float(x).is_integer() for x in xs))
    ends: dict[int, Point] = {}
    for place, (name, curve) in enumerate(series.items()):
        # Each series is moved a little sideways, or vertical lines would cover each other.
        aside = _ASIDE * (place - (len(series) - 1) / 2) if spans else 0.0
        at = [(_x(x, across) + aside, _y(y, up)) for x, y in curve]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(Markup('<polyline points="{}" {}/>').format(path, _stroke(place)))
        for (x, _), (low, high) in zip(at, (spans or {}).get(name, ()), strict=False):
            line = Markup('<path d="M{:.1f},{:.1f} V{:.1f}" class="line s{}"/>')
            parts.append(line.format(x, _y(low, up), _y(high, up), place % COLOURS))
        if len(curve) <= _MARKED:
            dot = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="3" class="area s{}"/>')
            parts += [dot.format(x, y, place % COLOURS) for x, y in at]
        if at:
            ends[place + 1] = at[-1]
    if len(series) > 1:  # not every reader can tell colours apart
        number = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}" class="name">{}</text>')
        for place, (x, y, anchor) in _number_spots(ends).items():
            parts.append(number.format(x, y, anchor, place))
    image = _image(parts, HEIGHT, f"Line chart by {x_label}: {', '.join(series)}")
    return image if len(series) < 2 else Markup("{}{}").format(_legend(list(series)), image)


def _number_spots(ends: Mapping[int, Point]) -> dict[int, tuple[float, float, str]]:
    """Where the number of each line stands: position and ``text-anchor``, beside the line's last point.

    A number stands on the right of its point if there is room, else on the left. If another number is there
    already, it takes the other side, or the nearest free place above or below.
    """
    placed: dict[int, tuple[float, float, str]] = {}
    boxes: list[Point] = []
    for place, (x, y) in ends.items():
        wide = _DIGIT * len(str(place))
        sides = [(x + 6, "start", x + 6), (x - 6, "end", x - 6 - wide)]  # with the left edge of the number
        if x > WIDTH - 2 * _RIGHT:
            sides.reverse()
        moves = sorted(range(-len(ends), len(ends) + 1), key=abs)
        spots = [(at, y - 4 + _LINE * move, anchor, left) for move in moves for at, anchor, left in sides]
        inside = [
            spot for spot in spots if _TOP <= spot[1] <= HEIGHT - _BOTTOM and _LEFT <= spot[3] <= WIDTH - wide
        ]
        free = [
            spot
            for spot in inside
            if all(abs(spot[1] - high) >= _LINE or abs(spot[3] - left) >= 2 * _DIGIT for left, high in boxes)
        ]
        at, high, anchor, left = (free or inside or spots)[0]
        placed[place] = (at, high, anchor)
        boxes.append((left, high))
    return placed


_MARKED = 12
"""A line with at most this many points has a dot at each point."""


def _legend(names: Sequence[str]) -> Markup:
    """The legend: for each line a short piece of it, its number and its name."""
    piece = Markup('<svg viewBox="0 0 28 10" aria-hidden="true"><path d="M0,5 H28" {}/></svg>')
    item = Markup("<li>{}<span>{} {}</span></li>")
    entries = [
        item.format(piece.format(_stroke(place)), place + 1, shown_text(name, 40))
        for place, name in enumerate(names)
    ]
    return Markup('<ul class="legend">{}</ul>').format(Markup("").join(entries))


def _stroke(place: int) -> Markup:
    """The SVG attributes for the colour and the dashes of line number ``place``."""
    dashes = _DASHES[place % len(_DASHES)]
    dashed = Markup(' stroke-dasharray="{}"').format(dashes) if dashes else Markup("")
    return Markup('class="line s{}"{}').format(place % COLOURS, dashed)


def _columns(
    edges: Sequence[float],
    counts: Sequence[float],
    across: Point,
    up: Point,
    top: float,
    bottom: float,
    place: int,
) -> list[Markup]:
    """The columns of a histogram, drawn between the vertical positions ``top`` and ``bottom``.

    ``across`` and ``up`` are the ranges of the horizontal and the vertical axis.
    """
    parts = []
    drawn = Markup('<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" class="area s{}"/>')
    for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x, high = _x(left, across), (bottom - top) * _share(count, *up)
        width = max(_x(right, across) - x - 1, 0.5)
        parts.append(drawn.format(x + 0.5, bottom - high, width, high, place % COLOURS))
    return parts


def _axes(
    across: Point, up: Point, x_label: str, *, integers: bool = False, counts: bool = False
) -> list[Markup]:
    """The axes with their numbers.

    With ``integers``, only whole numbers label the horizontal axis; with ``counts``, the vertical one.
    """
    bottom = HEIGHT - _BOTTOM
    parts = [
        Markup('<path d="M{},{} V{} H{}" class="axis"/>').format(_LEFT, _TOP, bottom, WIDTH - _RIGHT),
        *_below(across, bottom, integers=integers),
        _text((WIDTH + _LEFT) / 2, HEIGHT - 4, "middle", x_label),
    ]
    for value in _ticks(*up):
        if counts and value != round(value):
            continue
        parts.append(_text(_LEFT - 6, f"{_y(value, up) + 4:.1f}", "end", f"{value:,g}"))
    return parts


def _below(across: Point, bottom: float, *, integers: bool = False) -> list[Markup]:
    """The numbers below the horizontal axis at the vertical position ``bottom``."""
    parts = []
    for value in _ticks(*across):
        if integers and value != round(value):
            continue
        x = _x(value, across)
        anchor = "end" if x > WIDTH - 2 * _RIGHT else "middle"
        parts.append(_text(f"{x:.1f}", bottom + 14, anchor, f"{value:,g}"))
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """About three to eight round numbers from ``low`` to ``high``, at equal distances."""
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


def _image(parts: Sequence[Markup], height: float, description: str) -> Markup:
    """The parts as one SVG image; screen readers read ``description`` aloud."""
    image = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>')
    return image.format(WIDTH, height, shown_text(description, 300), Markup("").join(parts))
