"""What charts are made of, as text of SVG: elements, scales and axes.

Every colour is a CSS variable of the page with the light palette as fallback, so one drawing serves
light, dark and print, and still shows when it stands alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from html import escape
from typing import Any, ParamSpec, Self

from distfms.report.formatting import number

#: Widths of a chart: on a page, and on a telephone, where text of the same size needs other room.
WIDE = 820.0
NARROW = 360.0

INK = "#1c2330"
MUTED = "#5b6472"
RULE = "#e1e4e8"
CARD = "#ffffff"
#: Told apart by people with any of the common colour deficiencies, at least together with the
#: dashes and markers that :mod:`distfms.report.plots` gives each line.
SERIES = ("#0064a8", "#c2500a", "#00805e", "#a64c8a", "#b37700", "#3b8fc4", "#6b6b6b", "#7a5c3e")
#: Dashes of the series, by style.
DASHES = ("", "9 3", "2.4 2.4", "10 3 2.4 3", "4.5 2.2", "13 4.5", "7 2 1.8 2 1.8 2", "1.5 4.5")
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", CARD: "card"} | {
    colour: f"s{i}" for i, colour in enumerate(SERIES, start=1)
}

FONT_SIZE = 11.5
NAME_SIZE = 10.5
_NARROW_CHARACTERS = frozenset(" !'()*,-./:;I[]fijlrt|\u00a0\u202f")
_WIDE_CHARACTERS = frozenset("@GMOQW%mw…–")

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Pair = tuple[float, float]
_Options = ParamSpec("_Options")


class Drawing(str):
    """A chart as SVG, and what it was drawn from, for others to draw it in their way."""

    content: tuple[Any, ...]
    options: dict[str, Any]


def at_both_widths(draw: Callable[_Options, str]) -> Callable[_Options, str]:
    """Draw a chart twice, for a page and for a telephone; the page shows one of them."""

    @wraps(draw)
    def draw_twice(*args: _Options.args, **options: _Options.kwargs) -> str:
        charts = []
        for width in (WIDE, NARROW):
            options["width"] = width
            charts.append(draw(*args, **options))
        drawing = Drawing("\n".join(charts))
        drawing.content = args
        drawing.options = options
        return drawing

    return draw_twice


# --- elements -----------------------------------------------------------------------------------


def ink(colour: str) -> str:
    """Return a colour of the page as its variable with the colour as fallback; others as is."""
    return f"var(--{_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour


def amount(value: float) -> str:
    """Write a length or coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def words(text: str) -> str:
    """Return text that may stand in SVG: markup escaped, characters that XML lacks replaced."""
    return escape(_NOT_XML.sub("\ufffd", text))


def label(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: float = FONT_SIZE,
    colour: str = INK,
    turned: bool = False,
) -> str:
    """Return text whose base line begins, ends or has its middle at a place."""
    turn = f' transform="rotate(-90 {amount(x)} {amount(y)})"' if turned else ""
    bare = "" if colour in _VARIABLES else "; stroke: none"  # on a cell, not on the page
    return (
        f'<text x="{amount(x)}" y="{amount(y)}"{turn} style="fill: {ink(colour)}; '
        f'font-size: {size}px; text-anchor: {anchor}{bare}">{words(text)}</text>'
    )


def width_of(text: str, size: float = FONT_SIZE) -> float:
    """Estimate the width of a text."""
    return size * sum(_width_of_character(character) for character in text)


def _width_of_character(character: str) -> float:
    """Return the share of the font size that it takes in common fonts without serifs."""
    if character in _NARROW_CHARACTERS:
        return 0.3
    if character in _WIDE_CHARACTERS:
        return 0.9
    return 1.0 if ord(character) > 0x2E7F else 0.6


def polyline(points: Iterable[Pair], closed: bool = False) -> str:
    """Return the data of a path along points, without what moves by less than can be seen."""
    places = list[str]()
    for x, y in points:
        place = f"{amount(x)},{amount(y)}"
        if not places or place != places[-1]:
            places.append(place)
    if not places:
        return ""
    data = "M" + "L".join(places)
    return f"{data}Z" if closed else data


def stroke(data: str, colour: str, width: float, *, dash: str = "") -> str:
    """Return a path that is drawn as a line."""
    dashes = f"; stroke-dasharray: {dash}" if dash else ""
    return (
        f'<path d="{data}" style="fill: none; stroke: {ink(colour)}; stroke-width: {width:g}'
        f'{dashes}"/>'
    )


def segment(start: Pair, end: Pair, colour: str, width: float, *, dash: str = "") -> str:
    """Return a straight line."""
    return stroke(polyline((start, end)), colour, width, dash=dash)


def filled(data: str, colour: str, style: str = "") -> str:
    """Return a path whose inside is filled."""
    return f'<path d="{data}" style="fill: {ink(colour)}{style}"/>'


def circle(centre: Pair, radius: float) -> str:
    """Return the data of a path around a circle."""
    x, y = centre
    r = amount(radius)
    across = amount(2 * radius)
    start = f"M{amount(x - radius)},{amount(y)}"
    return f"{start}a{r},{r} 0 1,0 {across},0a{r},{r} 0 1,0 -{across},0Z"


def tip(centre: Pair, text: str) -> str:
    """Return a place that shows a text when it is pointed at."""
    x, y = centre
    place = f'cx="{amount(x)}" cy="{amount(y)}"'
    return f'<circle {place} r="7" fill="transparent"><title>{words(text)}</title></circle>'


#: Corners of the markers, by style in turn; a circle has none.
_MARKERS: tuple[list[Pair], ...] = (
    [],
    [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)],
    [(0.0, -1.1), (1.0, 0.7), (-1.0, 0.7)],
    [(0.0, -1.1), (1.1, 0.0), (0.0, 1.1), (-1.1, 0.0)],
)


def markers(places: Sequence[Pair], style: int) -> str:
    """Return the markers of a line as one path, of the colour and form of a style."""
    data = "".join(_marker(place, style) for place in places)
    edge = f"; stroke: {ink(CARD)}; stroke-width: 0.6"
    return filled(data, SERIES[style], edge) if data else ""


def _marker(place: Pair, style: int) -> str:
    corners = _MARKERS[style % len(_MARKERS)]
    if not corners:
        return circle(place, 2.6)
    x, y = place
    return polyline([(x + 3.0 * a, y + 3.0 * b) for a, b in corners], closed=True)


def document(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Return the whole SVG; its title is for those who cannot see it."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{"wide" if width == WIDE else "narrow"}" '
        f'viewBox="0 0 {amount(width)} {amount(height)}" '
        f'role="img" aria-label="{words(title)}" style="font-family: var(--sans, sans-serif); '
        f'stroke-linejoin: round">\n<title>{words(title)}</title>\n{body}\n</svg>'
    )


# --- axes -----------------------------------------------------------------------------------------

#: Digits that the labels of ticks may have beyond the usual ones.
_MORE_DIGITS = 9
#: Scales go no further; differences of larger numbers may be infinite.
_LARGEST = 1e150
#: Ticks of a logarithmic scale, from dense to sparse: first digits, and one of how many decades.
_LOG_TICKS: tuple[tuple[tuple[int, ...], int], ...] = (
    ((1, 2, 5), 1),
    ((1,), 1),
    ((1,), 2),
    ((1,), 5),
    ((1,), 10),
    ((1,), 20),
    ((1,), 50),
)

Write = Callable[[float, int], str]


@dataclass(frozen=True)
class Scale:
    """From numbers in [low, high] to places from `start` to `end`, evenly or by logarithm.

    Ticks are `whole` where all numbers are.
    """

    low: float
    high: float
    log: bool = False
    start: float = 0.0
    end: float = 1.0
    whole: bool = False

    @classmethod
    def over(
        cls,
        values: Iterable[float],
        *,
        margin: float,
        log: bool = False,
        limits: tuple[float | None, float | None] = (None, None),
    ) -> Self:
        """Cover values with a margin; a limit that is given stands instead."""
        numbers = _on_axis(values, log) or [1.0 if log else 0.0, 1.0]
        low = _even(min(numbers), log)
        high = _even(max(numbers), log)
        is_whole = high - low > 1.0 and all(value == round(value) for value in numbers)
        room = _room(low, high, margin)
        bounds = [low - room, high + room]
        if log:
            bounds = [10.0**bound for bound in bounds]
        for side, limit in enumerate(limits):
            if limit is not None:
                bounds[side] = limit
        if not bounds[0] < bounds[1]:
            bounds[1] = bounds[0] + 1.0
        return cls(bounds[0], bounds[1], log, whole=is_whole)

    def between(self, start: float, end: float) -> Scale:
        """Return the scale at these places."""
        return replace(self, start=start, end=end)

    def __call__(self, value: float) -> float:
        """Return the place of a number."""
        low = _even(self.low, self.log)
        high = _even(self.high, self.log)
        share = (_even(value, self.log) - low) / (high - low)
        # What is far outside need not be written with hundreds of digits.
        return self.start + max(-1e3, min(share, 1e3)) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Return about `most` round numbers on the scale."""
        if not self.log:
            return self._even_ticks(most)
        return self._log_ticks(most) or [tick for tick in self._even_ticks(most) if tick > 0]

    def _even_ticks(self, most: int) -> list[float]:
        mantissa, exponent = self._even_step(most)
        step = mantissa * 10.0**exponent
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # As decimals, so that a tenth is the number nearest to it.
        return [float(f"{k * mantissa:f}e{exponent}") for k in range(first, last + 1)]

    def _even_step(self, most: int) -> tuple[float, int]:
        """Return a round step that is gone about `most` times, and its power of ten."""
        rough = (self.high - self.low) / max(1, most)
        exponent = math.floor(math.log10(rough))
        unit = 10.0**exponent
        mantissa = next(m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * unit >= 0.999 * rough)
        step = mantissa * unit
        if self.whole and step != round(step):
            return (1.0, 0) if step < 1.0 else (5.0, 0)
        return mantissa, exponent

    def _log_ticks(self, most: int) -> list[float] | None:
        """Return round numbers in even distances; None where there are too few."""
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        for digits, stride in _LOG_TICKS:
            decades = [decade for decade in range(first, last + 1) if decade % stride == 0]
            ticks = [float(f"{digit}e{decade}") for decade in decades for digit in digits]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(ticks) <= most:
                is_enough = self.high > 20.0 * self.low or len(ticks) > 2
                return ticks if is_enough else None
        return None


def _on_axis(values: Iterable[float], log: bool) -> list[float]:
    """Return the numbers that have a place on an axis, within its largest numbers."""
    least = 1.0 / _LARGEST if log else -math.inf
    finite = [value for value in values if math.isfinite(value) and value > least]
    return [max(-_LARGEST, min(value, _LARGEST)) for value in finite]


def _even(value: float, log: bool) -> float:
    """Return a number as it stands on an even scale."""
    return math.log10(value) if log else value


def _room(low: float, high: float, margin: float) -> float:
    """Return what a scale has below and above its numbers."""
    size = max(abs(low), abs(high))
    room = 0.05 * size
    if low < high:
        room = max(margin * (high - low), 1e-9 * size)
    return room if room > 1.0 / _LARGEST else 0.5


def tick_texts(ticks: Sequence[float], write: Write, digits: int) -> list[str]:
    """Write numbers with as many digits as tell them apart."""
    texts: list[str] = []
    for n_digits in range(digits, digits + _MORE_DIGITS + 1):
        texts = [write(tick, n_digits) for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    return texts


@dataclass(frozen=True)
class Frame:
    """The two axes of a chart, with the ticks of y written."""

    x: Scale
    y: Scale
    titles: tuple[str, str]
    y_ticks: Mapping[float, str]

    @classmethod
    def of(
        cls,
        x: Scale,
        y: Scale,
        titles: tuple[str, str],
        *,
        size: Pair,
        top: float = 8.0,
        write: Write = number,
        digits: int = 4,
        beside: float = 0.0,
    ) -> Frame:
        """Leave room for what stands around the plot, and a width `beside` it on the right."""
        width, height = size
        ticks = y.ticks(7)
        texts = tick_texts(ticks, write, digits)
        room = 28.0 + max(map(width_of, texts), default=0.0)
        return cls(
            x.between(room, width - 16.0 - beside),
            y.between(height - 38.0, top),
            titles,
            dict(zip(ticks, texts, strict=True)),
        )

    def at(self, x: float, y: float) -> Pair:
        """Return the place of a point."""
        return self.x(x), self.y(y)

    def clipped(self, parts: Sequence[str]) -> str:
        """Show of some parts what is inside the frame, as an SVG within the SVG."""
        x = amount(self.x.start)
        y = amount(self.y.end)
        width = amount(self.x.end - self.x.start)
        height = amount(self.y.start - self.y.end)
        box = f'viewBox="{x} {y} {width} {height}"'
        place = f'x="{x}" y="{y}" width="{width}" height="{height}" {box}'
        return "\n".join([f"<svg {place}>", *parts, "</svg>"])

    def draw(self) -> Iterator[str]:
        """Yield the grid, the axes and all that is written around them."""
        start = self.x.start
        end = self.x.end
        top = self.y.end
        bottom = self.y.start
        yield from x_axis(self.x, self.titles[0], top, bottom, end)
        yield from self._y_grid()
        middle = (top + bottom) / 2
        yield label(13.0, middle, self.titles[1], anchor="middle", colour=MUTED, turned=True)
        corner = (start, bottom)
        yield stroke(polyline(((start, top), corner, (end, bottom))), MUTED, 0.8)

    def _y_grid(self) -> Iterator[str]:
        """Yield the grid along y, with the labels of the ticks."""
        start = self.x.start
        for tick, text in self.y_ticks.items():
            y = self.y(tick)
            yield segment((start, y), (self.x.end, y), RULE, 0.8)
            yield _tick("y", label(start - 5.0, y + 3.5, text, anchor="end", colour=MUTED))


def x_axis(
    scale: Scale,
    title: str,
    top: float,
    bottom: float,
    right: float,
    write: Write = number,
    digits: int = 4,
) -> Iterator[str]:
    """Yield the grid along x, with the labels of the ticks and the title below."""
    length = scale.end - scale.start
    most = int(length // 48)
    ticks = scale.ticks(most)
    texts = tick_texts(ticks, write, digits)
    while ticks and most > 2 and max(map(width_of, texts)) * len(ticks) > length:
        most -= 1
        ticks = scale.ticks(most)
        texts = tick_texts(ticks, write, digits)
    for tick, text in zip(ticks, texts, strict=True):
        x = scale(tick)
        yield segment((x, top), (x, bottom), RULE, 0.8)
        x = min(x, scale.end + 14.0 - width_of(text) / 2)  # within the chart
        yield _tick("x", label(x, bottom + 14.0, text, anchor="middle", colour=MUTED))
    middle = (scale.start + right) / 2
    yield label(middle, bottom + 30.0, title, anchor="middle", colour=MUTED)


def _tick(axis: str, text: str) -> str:
    return f'<g class="{axis}-tick">{text}</g>'
