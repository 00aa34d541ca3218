"""What charts are made of, as text of SVG: elements, scales and axes.

Every colour is a CSS variable of the page with the light palette as fallback, so one drawing serves
light, dark and print, and still shows when it stands alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from typing import Any, Self

from distfms.report.formatting import number, percent

WIDTH = 820.0
INK = "var(--ink, #1c2330)"
MUTED = "var(--muted, #5b6472)"
RULE = "var(--rule, #e1e4e8)"
CARD = "var(--card, #ffffff)"
#: Told apart by people with any of the common colour deficiencies, at least together with `DASHES`.
_PALETTE = ("#0064a8", "#c2500a", "#00805e", "#a64c8a", "#b37700", "#3b8fc4", "#6b6b6b", "#7a5c3e")
SERIES = tuple(f"var(--s{place}, {colour})" for place, colour in enumerate(_PALETTE, start=1))
#: Dashes of the series, by style.
DASHES = ("", "9 3", "2.4 2.4", "10 3 2.4 3", "4.5 2.2", "13 4.5", "7 2 1.8 2 1.8 2", "1.5 4.5")

FONT_SIZE = 11.5
NAME_SIZE = 10.5
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Pair = tuple[float, float]


class Drawing(str):
    """A chart as SVG, the lines, points or bars that it was drawn from, and what their axes say."""

    items: Sequence[Any]
    axes: Mapping[str, Any]


# --- elements -----------------------------------------------------------------------------------


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
    style = f"fill: {colour}; font-size: {size}px; text-anchor: {anchor}"
    return f'<text x="{amount(x)}" y="{amount(y)}"{turn} style="{style}">{words(text)}</text>'


def width_of(text: str, size: float = FONT_SIZE) -> float:
    """Estimate the width of a text in common fonts without serifs."""
    return size * sum(1.0 if ord(character) > 0x2E7F else 0.6 for character in text)


def polyline(points: Iterable[Pair], closed: bool = False) -> str:
    """Return the data of a path along points, without what moves by less than can be seen."""
    places = [f"{amount(x)},{amount(y)}" for x, y in points]
    data = "L".join(place for place, _ in groupby(places))
    end = "Z" if closed else ""
    return f"M{data}{end}" if data else ""


def stroke(data: str, colour: str, width: float, dash: str = "") -> str:
    """Return a path that is drawn as a line."""
    style = f"fill: none; stroke: {colour}; stroke-width: {width:g}"
    dashes = f"; stroke-dasharray: {dash}" if dash else ""
    return f'<path d="{data}" style="{style}{dashes}"/>'


def segment(start: Pair, end: Pair, colour: str, width: float, dash: str = "") -> str:
    """Return a straight line."""
    return stroke(polyline((start, end)), colour, width, dash)


def filled(data: str, colour: str, style: str = "") -> str:
    """Return a path whose inside is filled."""
    return f'<path d="{data}" style="fill: {colour}{style}"/>'


def circle(centre: Pair, radius: float) -> str:
    """Return the data of a path around a circle."""
    x, y = centre
    r = amount(radius)
    across = amount(2 * radius)
    start = f"M{amount(x - radius)},{amount(y)}"
    return f"{start}a{r},{r} 0 1,0 {across},0a{r},{r} 0 1,0 -{across},0Z"


def document(
    items: Sequence[Any], height: float, parts: Iterable[str], *, title: str, **axes: Any
) -> Drawing:
    """Return the whole SVG; its title is for those who cannot see it."""
    body = "\n".join(part for part in parts if part)
    drawing = Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="0 0 {amount(WIDTH)} {amount(height)}" '
        f'role="img" aria-label="{words(title)}" style="font-family: var(--sans, sans-serif); '
        f'stroke-linejoin: round">\n<title>{words(title)}</title>\n{body}\n</svg>'
    )
    drawing.items = items
    drawing.axes = axes
    return drawing


# --- axes -----------------------------------------------------------------------------------------

#: Digits that the labels of ticks may have beyond the usual ones.
_MORE_DIGITS = 9
#: Scales go no further; differences of larger numbers may be infinite.
_LARGEST = 1e150
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """From numbers in [low, high] to places from `start` to `end`, evenly or by logarithm."""

    low: float
    high: float
    log: bool = False
    start: float = 0.0
    end: float = 1.0

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
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        largest = math.log10(_LARGEST) if log else _LARGEST
        numbers = [max(-largest, min(_even(v, log), largest)) for v in finite or [1.0]]
        low = min(numbers)
        high = max(numbers)
        size = max(abs(low), abs(high))
        room = max(margin * (high - low), 1e-9 * size) if low < high else 0.05 * size
        room = room if room > 1.0 / _LARGEST else 0.5
        bounds = [low - room, high + room]
        if log:
            bounds = [10.0**bound for bound in bounds]
        for side, limit in enumerate(limits):
            if limit is not None:
                bounds[side] = limit
        if not bounds[0] < bounds[1]:
            bounds[1] = bounds[0] + 1.0
        return cls(bounds[0], bounds[1], log)

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
        if self.log and self.high > 20.0 * self.low:
            return self._log_ticks(most)
        rough = (self.high - self.low) / max(1, most)
        exponent = math.floor(math.log10(rough))
        mantissa = next(m for m in _ROUND if m * 10.0**exponent >= 0.999 * rough)
        step = mantissa * 10.0**exponent
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # As decimals, so that a tenth is the number nearest to it.
        ticks = [float(f"{k * mantissa:f}e{exponent}") for k in range(first, last + 1)]
        return [tick for tick in ticks if tick > 0 or not self.log]

    def _log_ticks(self, most: int) -> list[float]:
        """Return powers of ten in even distances, with numbers between where there is room."""
        first = math.ceil(math.log10(self.low))
        last = math.floor(math.log10(self.high))
        stride = -(-(last - first + 1) // most)
        digits = (1, 2, 5) if 3 * (last - first + 2) <= most else (1,)
        ticks = []
        for decade in range(first - 1, last + 1, stride):
            ticks += [float(f"{digit}e{decade}") for digit in digits]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def _even(value: float, log: bool) -> float:
    """Return a number as it stands on an even scale."""
    return math.log10(value) if log else value


def tick_texts(ticks: Sequence[float], is_share: bool) -> list[str]:
    """Write numbers with as many digits as tell them apart."""
    write = percent if is_share else number
    digits = 0 if is_share else 4
    texts: list[str] = []
    for n_digits in range(digits, digits + _MORE_DIGITS + 1):
        texts = [write(tick, n_digits) for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    return texts


@dataclass(frozen=True)
class Frame:
    """The two axes of a chart."""

    x: Scale
    y: Scale

    @classmethod
    def of(cls, x: Scale, y: Scale, *, height: float, top: float, is_share: bool = False) -> Frame:
        """Leave room for what stands around the plot."""
        texts = tick_texts(y.ticks(7), is_share)
        room = 28.0 + max(map(width_of, texts), default=0.0)
        return cls(x.between(room, WIDTH - 16.0), y.between(height - 38.0, top))

    def at(self, x: float, y: float) -> Pair:
        """Return the place of a point."""
        return self.x(x), self.y(y)

    def clipped(self, parts: Sequence[str]) -> str:
        """Show of some parts what is inside the frame, as an SVG within the SVG."""
        x = amount(self.x.start)
        y = amount(self.y.end)
        width = amount(self.x.end - self.x.start)
        height = amount(self.y.start - self.y.end)
        place = f'x="{x}" y="{y}" width="{width}" height="{height}"'
        view = f'viewBox="{x} {y} {width} {height}"'
        return "\n".join([f"<svg {place} {view}>", *parts, "</svg>"])

    def draw(self, xlabel: str, ylabel: str, is_share: bool = False) -> Iterator[str]:
        """Yield the grid, the axes and all that is written around them."""
        start = self.x.start
        end = self.x.end
        top = self.y.end
        bottom = self.y.start
        yield from x_axis(self.x, xlabel, top, bottom)
        ticks = self.y.ticks(7)
        for tick, text in zip(ticks, tick_texts(ticks, is_share), strict=True):
            y = self.y(tick)
            written = label(start - 5.0, y + 3.5, text, anchor="end", colour=MUTED)
            yield segment((start, y), (end, y), RULE, 0.8)
            yield f'<g class="y-tick">{written}</g>'
        middle = (top + bottom) / 2
        yield label(13.0, middle, ylabel, anchor="middle", colour=MUTED, turned=True)
        corner = (start, bottom)
        edges = polyline(((start, top), corner, (end, bottom)))
        yield stroke(edges, MUTED, 0.8)


def x_axis(
    scale: Scale, title: str, top: float, bottom: float, is_share: bool = False
) -> Iterator[str]:
    """Yield the grid along x, with the labels of the ticks and the title below."""
    length = scale.end - scale.start
    most = max(int(length // 48), 1)
    while True:
        ticks = scale.ticks(most)
        texts = tick_texts(ticks, is_share)
        widest = max(map(width_of, texts), default=0.0)
        if most == 1 or widest * len(ticks) <= length:
            break
        most -= 1
    for tick, text in zip(ticks, texts, strict=True):
        x = scale(tick)
        yield segment((x, top), (x, bottom), RULE, 0.8)
        within_chart = min(x, WIDTH - 2.0 - width_of(text) / 2)
        written = label(within_chart, bottom + 14.0, text, anchor="middle", colour=MUTED)
        yield f'<g class="x-tick">{written}</g>'
    middle = (scale.start + scale.end) / 2
    yield label(middle, bottom + 30.0, title, anchor="middle", colour=MUTED)
