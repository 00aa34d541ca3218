"""Names in charts: beside points or below them, where there is room, and above the plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

from distfms.report.formatting import shorten
from distfms.report.svg import DASHES, INK, MUTED, NAME_SIZE, Frame, Pair, label, segment, width_of

#: Distance of names below one another.
APART = 13.0
_CHARACTERS = 24


class Box(NamedTuple):
    """A rectangle of the chart; y grows downwards."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def around(cls, place: Pair, radius: float) -> Self:
        """Return the square around a circle."""
        x, y = place
        return cls(x - radius, y - radius, x + radius, y + radius)

    def overlaps(self, box: Box) -> bool:
        """Whether two rectangles have a part in common."""
        return self.x0 < box.x1 and box.x0 < self.x1 and self.y0 < box.y1 and box.y0 < self.y1

    def is_within(self, frame: Frame) -> bool:
        """Whether the rectangle is inside the plot."""
        if self.x0 < frame.x.start or self.x1 > frame.x.end:
            return False
        return frame.y.end <= self.y0 and self.y1 <= frame.y.start


def names_beside(
    frame: Frame, named: Sequence[tuple[str, Pair, float]], taken: Sequence[Box]
) -> Iterator[str]:
    """Yield names beside points where they cover no other name and nothing that is `taken`.

    `named` are names, places of points, and the distance of a name from its point.
    """
    covered = list(taken)
    for text, place, gap in named:
        name = shorten(text, _CHARACTERS)
        width = width_of(name, NAME_SIZE)
        for x, base in _places_beside(place, gap, width):
            box = Box(x, base - 8.0, x + width, base + 2.0)
            if box.is_within(frame) and not any(map(box.overlaps, covered)):
                covered.append(box)
                yield label(x, base, name, size=NAME_SIZE)
                break


def _places_beside(place: Pair, gap: float, width: float) -> list[Pair]:
    """Return where a name may begin: on the right of a point, on the left, above, below."""
    x, y = place
    centred = x - width / 2
    return [(x + gap, y + 3), (x - gap - width, y + 3), (centred, y - gap), (centred, y + gap + 8)]


def names_below(
    frame: Frame, named: Sequence[tuple[str, Pair]], chart_width: float
) -> Iterator[str]:
    """Yield names, each on a thin pole below its point, as far as there is room.

    From right to left: a name goes below those that it would run into, so that no pole crosses a
    name.
    """
    places = list[Pair]()
    for text, (x, top) in reversed(named):
        name = shorten(text, _CHARACTERS)
        end = x + 6.0 + width_of(name, NAME_SIZE)
        y = _first_free(top, end, places)
        if y < frame.y.start - 4.0 and end < chart_width:
            places.append((x, y))
            yield segment((x, top), (x, y), MUTED, 0.6)
            yield label(x + 3.0, y, name, size=NAME_SIZE)


def _first_free(top: float, end: float, places: Sequence[Pair]) -> float:
    """Return where a name is below its point, and below names that it would run into."""
    lowest = max((y for x, y in places if x < end), default=top)
    return max(top + 18.0, lowest + APART)


def named_mark(frame: Frame, name: str, value: float) -> str:
    """Return a vertical line with its label above the plot."""
    x = frame.x(value)
    top = frame.y.end
    line = segment((x, top), (x, frame.y.start), INK, 1.0, dash=DASHES[1])
    half = width_of(name, NAME_SIZE) / 2
    middle = max(min(x, frame.x.end + 11.0 - half), half + 5.0)
    return line + label(middle, top - 4.0, name, anchor="middle", size=NAME_SIZE)
