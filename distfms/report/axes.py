"""The axes of a chart: scales, their ticks, and the frame around what is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from distfms.report.formatting import number
from distfms.report.svg import MUTED, RULE, Pair, amount, label, polyline, stroke, width_of

#: Digits that the labels of ticks may have beyond the usual ones.
_MORE_DIGITS = 9
#: Scales go no further; differences of larger numbers may be infinite.
_LARGEST = 1e150

Write = Callable[[float, int], str]


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
        known = [
            max(-_LARGEST, min(v, _LARGEST))
            for v in values
            if math.isfinite(v) and (v > 1.0 / _LARGEST or not log)
        ] or [1.0 * log, 1.0]
        low, high = (math.log10(v) if log else v for v in (min(known), max(known)))
        size = max(abs(low), abs(high))
        wide = max(margin * (high - low), 1e-9 * size) if low < high else 0.05 * size
        wide = wide if wide > 1.0 / _LARGEST else 0.5
        low, high = (10.0**bound if log else bound for bound in (low - wide, high + wide))
        given = [
            own if limit is None else limit for own, limit in zip((low, high), limits, strict=True)
        ]
        if not given[0] < given[1]:
            given[1] = given[0] + 1.0
        return cls(given[0], given[1], log)

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
        """Return round numbers on the scale, at most about so many."""
        found = self._log_ticks(most) if self.log else None
        return found or [t for t in self._even_ticks(most) if t > 0 or not self.log]

    def _even_ticks(self, most: int) -> list[float]:
        rough = (self.high - self.low) / max(1, most)
        exponent = math.floor(math.log10(rough))
        step = next(m for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * 10.0**exponent >= 0.999 * rough)
        unit = step * 10.0**exponent
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


def tick_texts(
    ticks: Sequence[float], write: Callable[[float, int], str], digits: int
) -> list[str]:
    """Write numbers with as many digits as tell them apart."""
    texts: list[str] = []
    for more in range(_MORE_DIGITS + 1):
        texts = [write(tick, digits + more) for tick in ticks]
        if len(set(texts)) == len(texts):
            break
    return texts


@dataclass(frozen=True)
class Frame:
    """The two axes of a chart, with the ticks of y written; `edge` is where the chart ends."""

    x: Scale
    y: Scale
    titles: tuple[str, str]
    y_ticks: Mapping[float, str]
    edge: float

    @classmethod
    def of(
        cls,
        x: Scale,
        y: Scale,
        titles: tuple[str, str],
        writer: tuple[Write, int],
        *,
        top: float,
        size: Pair,
        beside: float = 0.0,
    ) -> Frame:
        """Leave room for what stands around the plot, and a width `beside` it on the right."""
        width, height = size
        ticks = y.ticks(7)
        texts = tick_texts(ticks, *writer)
        left = 28.0 + max(map(width_of, texts), default=0.0)
        return cls(
            x.between(left, width - 16.0 - beside),
            y.between(height - 38.0, top),
            titles,
            dict(zip(ticks, texts, strict=True)),
            width - 5.0,
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


def x_axis(scale: Scale, title: str, top: float, bottom: float, right: float) -> Iterator[str]:
    """Yield the grid along x, with the labels of the ticks and the title below."""
    most = int((scale.end - scale.start) // 48)
    ticks = scale.ticks(most)
    texts = tick_texts(ticks, number, 4)
    while ticks and max(map(width_of, texts)) * len(ticks) > scale.end - scale.start and most > 2:
        most -= 1
        ticks = scale.ticks(most)
        texts = tick_texts(ticks, number, 4)
    for tick, text in zip(ticks, texts, strict=True):
        x = scale(tick)
        yield stroke(polyline(((x, top), (x, bottom))), RULE, 0.8)
        x = min(x, scale.end + 14.0 - width_of(text) / 2)  # within the chart
        yield _tick("x", label(x, bottom + 14.0, text, anchor="middle", colour=MUTED))
    middle = (scale.start + right) / 2
    yield label(middle, bottom + 30.0, title, anchor="middle", colour=MUTED)


def _tick(axis: str, text: str) -> str:
    return f'<g class="{axis}-tick">{text}</g>'
