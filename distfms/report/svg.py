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
from typing import ParamSpec, Self

from distfms.report.formatting import number

#: Widths of a chart: on a page, and on a telephone, where text of the same size needs other room.
WIDE, NARROW = 820.0, 360.0

INK, MUTED, RULE, CARD = "#1c2330", "#5b6472", "#e1e4e8", "#ffffff"
#: Told apart by people with any of the common colour deficiencies, at least together with the
#: dashes and markers that :mod:`distfms.report.plots` gives each line.
SERIES = ("#0064a8", "#c2500a", "#00805e", "#a64c8a", "#b37700", "#3b8fc4", "#6b6b6b", "#7a5c3e")
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", CARD: "card"} | {
    colour: f"s{i}" for i, colour in enumerate(SERIES, start=1)
}

FONT_SIZE, NAME_SIZE = 11.5, 10.5
# Shares of the font size that characters take in common fonts without serifs.
_NARROW, _WIDE = frozenset(" !'()*,-./:;I[]fijlrt|\u00a0\u202f"), frozenset("@GMOQW%mw…–")

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Pair = tuple[float, float]
_Options = ParamSpec("_Options")


def at_both_widths(draw: Callable[_Options, str]) -> Callable[_Options, str]:
    """Draw a chart twice, for a page and for a telephone; the page shows one of them."""

    @wraps(draw)
    def both(*args: _Options.args, **options: _Options.kwargs) -> str:
        return "\n".join(draw(*args, **{**options, "width": w}) for w in (WIDE, NARROW))  # type: ignore[arg-type]

    return both


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
    shares = (
        0.3 if c in _NARROW else 0.9 if c in _WIDE else 1.0 if ord(c) > 0x2E7F else 0.6
        for c in text
    )
    return size * sum(shares)


def polyline(points: Iterable[Pair], closed: bool = False) -> str:
    """Return the data of a path along points, without what moves by less than can be seen."""
    written = [f"{amount(x)},{amount(y)}" for x, y in points]
    kept = [s for i, s in enumerate(written) if i == 0 or s != written[i - 1]]
    return "M" + "L".join(kept) + "Z" * closed if kept else ""


def stroke(data: str, colour: str, width: float, *, dash: str = "") -> str:
    """Return a path that is drawn as a line."""
    dashes = f"; stroke-dasharray: {dash}" if dash else ""
    return (
        f'<path d="{data}" style="fill: none; stroke: {ink(colour)}; stroke-width: {width:g}'
        f'{dashes}"/>'
    )


def filled(data: str, colour: str, more: str = "") -> str:
    """Return a path whose inside is filled."""
    return f'<path d="{data}" style="fill: {ink(colour)}{more}"/>'


def circle(at: Pair, radius: float) -> str:
    """Return the data of a path around a circle."""
    r = amount(radius)
    across = amount(2 * radius)
    start = f"M{amount(at[0] - radius)},{amount(at[1])}"
    return f"{start}a{r},{r} 0 1,0 {across},0a{r},{r} 0 1,0 -{across},0Z"


def tip(at: Pair, text: str) -> str:
    """Return a place that shows a text when it is pointed at."""
    where = f'cx="{amount(at[0])}" cy="{amount(at[1])}"'
    return f'<circle {where} r="7" fill="transparent"><title>{words(text)}</title></circle>'


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
        known = [
            max(-_LARGEST, min(v, _LARGEST))
            for v in values
            if math.isfinite(v) and (v > 1.0 / _LARGEST or not log)
        ] or [1.0 * log, 1.0]
        low, high = (math.log10(v) if log else v for v in (min(known), max(known)))
        whole = high - low > 1.0 and all(v == round(v) for v in known)
        size = max(abs(low), abs(high))
        wide = max(margin * (high - low), 1e-9 * size) if low < high else 0.05 * size
        wide = wide if wide > 1.0 / _LARGEST else 0.5
        low, high = (10.0**bound if log else bound for bound in (low - wide, high + wide))
        given = [
            own if limit is None else limit for own, limit in zip((low, high), limits, strict=True)
        ]
        if not given[0] < given[1]:
            given[1] = given[0] + 1.0
        return cls(given[0], given[1], log, whole=whole)

    def between(self, start: float, end: float) -> Scale:
        """Return the scale at these places."""
        return replace(self, start=start, end=end)

    def __call__(self, value: float) -> float:
        """Return the place of a number."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low)
        # What is far outside need not be written with hundreds of digits.
        return self.start + max(-1e3, min(share, 1e3)) * (self.end - self.start)

    def ticks(self, most: int) -> list[float]:
        """Return about `most` round numbers on the scale."""
        found = self._log_ticks(most) if self.log else None
        return found or [t for t in self._even_ticks(most) if t > 0 or not self.log]

    def _even_ticks(self, most: int) -> list[float]:
        rough = (self.high - self.low) / max(1, most)
        exponent = math.floor(math.log10(rough))
        step = next(m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * 10.0**exponent >= 0.999 * rough)
        unit = step * 10.0**exponent
        if self.whole and unit != round(unit):
            step, exponent, unit = (1.0, 0, 1.0) if unit < 1.0 else (5.0, 0, 5.0)
        first, last = math.ceil(self.low / unit - 1e-9), math.floor(self.high / unit + 1e-9)
        # As decimals, so that a tenth is the number nearest to it.
        return [float(f"{k * step:f}e{exponent}") for k in range(first, last + 1)]

    def _log_ticks(self, most: int) -> list[float] | None:
        """Return round numbers in even distances; None where there are too few."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps, stride in (
            ((1, 2, 5), 1),
            *(((1,), stride) for stride in (1, 2, 5, 10, 20, 50)),
        ):
            found = [float(f"{s}e{k}") for k in decades if k % stride == 0 for s in steps]
            found = [tick for tick in found if self.low <= tick <= self.high]
            if len(found) <= most:
                return found if self.high > 20.0 * self.low or len(found) > 2 else None
        return None


def tick_texts(ticks: Sequence[float], write: Write, digits: int) -> list[str]:
    """Write numbers with as many digits as tell them apart."""
    texts: list[str] = []
    for more in range(_MORE_DIGITS + 1):
        texts = [write(tick, digits + more) for tick in ticks]
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
        left = 28.0 + max(map(width_of, texts), default=0.0)
        return cls(
            x.between(left, width - 16.0 - beside),
            y.between(height - 38.0, top),
            titles,
            dict(zip(ticks, texts, strict=True)),
        )

    def at(self, x: float, y: float) -> Pair:
        """Return the place of a point."""
        return self.x(x), self.y(y)

    def clipped(self, parts: Sequence[str]) -> str:
        """Show of some parts what is inside the frame, as an SVG within the SVG."""
        x, y = amount(self.x.start), amount(self.y.end)
        wide, tall = amount(self.x.end - self.x.start), amount(self.y.start - self.y.end)
        where = f'x="{x}" y="{y}" width="{wide}" height="{tall}" viewBox="{x} {y} {wide} {tall}"'
        return "\n".join([f"<svg {where}>", *parts, "</svg>"])

    def draw(self) -> Iterator[str]:
        """Yield the grid, the axes and all that is written around them."""
        left, right, top, bottom = self.x.start, self.x.end, self.y.end, self.y.start
        yield from x_axis(self.x, self.titles[0], top, bottom, right)
        for tick, text in self.y_ticks.items():
            y = self.y(tick)
            yield stroke(polyline(((left, y), (right, y))), RULE, 0.8)
            yield _tick("y", label(left - 5.0, y + 3.5, text, anchor="end", colour=MUTED))
        middle = (top + bottom) / 2
        yield label(13.0, middle, self.titles[1], anchor="middle", colour=MUTED, turned=True)
        yield stroke(polyline(((left, top), (left, bottom), (right, bottom))), MUTED, 0.8)


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
    most = int((scale.end - scale.start) // 48)
    ticks = scale.ticks(most)
    texts = tick_texts(ticks, write, digits)
    while ticks and max(map(width_of, texts)) * len(ticks) > scale.end - scale.start and most > 2:
        most -= 1
        ticks = scale.ticks(most)
        texts = tick_texts(ticks, write, digits)
    for tick, text in zip(ticks, texts, strict=True):
        x = scale(tick)
        yield stroke(polyline(((x, top), (x, bottom))), RULE, 0.8)
        x = min(x, scale.end + 14.0 - width_of(text) / 2)  # within the chart
        yield _tick("x", label(x, bottom + 14.0, text, anchor="middle", colour=MUTED))
    middle = (scale.start + right) / 2
    yield label(middle, bottom + 30.0, title, anchor="middle", colour=MUTED)


def _tick(axis: str, text: str) -> str:
    return f'<g class="{axis}-tick">{text}</g>'
