"""What charts are made of, as text of SVG.

Every colour is a CSS variable of the page with the light palette as fallback, so one drawing serves
light, dark and print, and still shows when it stands alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from html import escape
from typing import ParamSpec

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


def stroke(data: str, colour: str, width: float, *, dash: str = "", more: str = "") -> str:
    """Return a path that is drawn as a line."""
    dashes = f"; stroke-dasharray: {dash}" if dash else ""
    return (
        f'<path d="{data}" style="fill: none; stroke: {ink(colour)}; stroke-width: {width:g}'
        f'{dashes}{more}"/>'
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


def grid(colours: Sequence[Sequence[str]], x: float, y: float, wide: float, tall: float) -> str:
    """Return a picture of cells, one path for the cells of each colour."""
    places: dict[str, str] = {}
    for row, line in enumerate(colours):
        for column, colour in enumerate(line):
            places[colour] = places.get(colour, "") + f"M{column},{row}h1v1h-1z"
    scale = f"{wide / max(1, len(colours[0])):.4f} {tall / len(colours):.4f}"
    paths = "".join(f'<path fill="{colour}" d="{data}"/>' for colour, data in places.items())
    where = f"translate({amount(x)} {amount(y)}) scale({scale})"
    return f'<g transform="{where}" shape-rendering="crispEdges">{paths}</g>'


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
