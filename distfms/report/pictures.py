"""Charts of cells: pictures, and correlations of things with each other. Each returns one SVG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distfms.report.formatting import number, shorten
from distfms.report.svg import (
    MUTED,
    NAME_SIZE,
    WIDE,
    at_both_widths,
    document,
    grid,
    label,
    tip,
    width_of,
)

_LARGEST_CELL, _READABLE_CELL = 44.0, 26.0


@at_both_widths
def picture_chart(
    pictures: Sequence[Sequence[float]],
    shape: tuple[int, int],
    labels: Sequence[str],
    *,
    title: str,
    width: float = WIDE,
) -> str:
    """Draw values of the pixels of pictures side by side, each with a scale of its own.

    Parameters
    ----------
    pictures : sequence of sequence of float
        Values of the pixels, row by row.
    shape : (int, int)
        Height and width in pixels.
    labels : sequence of str
        What the values of each picture are.
    title : str
        As for `line_chart`.

    Returns
    -------
    str
        SVG. Values of both signs have a scale with 0 in its middle.
    """
    across = min(width / len(pictures), 400.0)
    wide = across - 70.0
    tall = wide * shape[0] / shape[1]
    parts = list[str]()
    for place, (values, name) in enumerate(zip(pictures, labels, strict=True)):
        left, cells = 10.0 + across * place, np.reshape(np.asarray(values, dtype=float), shape)
        top = float(np.abs(cells).max()) or 1.0
        low = -top if (cells < 0).any() else 0.0
        parts += [
            grid(_shades(cells / top), left, 8.0, wide, tall),
            *_ramp(left + wide + 6.0, tall, top, low),
            label(left, tall + 24.0, name),
        ]
    return document(width, tall + 34.0, title, parts)


def _shades(shares: np.ndarray) -> list[list[str]]:
    """Return colours of shares in [−1, 1]: blue from 0 on, red below, white in between."""
    blue, red = np.array([8.0, 48.0, 107.0]), np.array([140.0, 20.0, 30.0])
    strength = np.rint(64.0 * np.abs(shares)[..., None] ** 0.8) / 64.0
    colours = 255.0 + strength * (np.where(shares[..., None] < 0, red, blue) - 255.0)
    numbers = np.rint(colours).astype(np.uint8)
    return [[f"#{bytes(cell).hex()}" for cell in row] for row in numbers]


@at_both_widths
def heat_map(
    values: Sequence[Sequence[float | None]],
    names: Sequence[str],
    *,
    title: str,
    width: float = WIDE,
) -> str:
    """Draw correlations of things with each other, None where there are none; see `line_chart`."""
    table = np.array(values, dtype=float)
    short = [shorten(name, 18 if width == WIDE else 12) for name in names]
    beside = max(map(width_of, short), default=0.0)
    left, n = 20.0 + beside, max(1, len(short))
    cell = min(_LARGEST_CELL, (width - left - 60.0) / n)
    side = cell * n
    shown = _shades(np.nan_to_num(table))
    parts = [grid(shown, left, 8.0, side, side)] if short else []
    for place, name in enumerate(short):
        middle = cell * (place + 0.5)
        parts.append(label(left - 6.0, 11.5 + middle, name, anchor="end"))
        parts.append(label(left + middle + 3.5, 14.0 + side, name, anchor="end", turned=True))
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            # The cells are the same on a dark page.
            colour = "#fafafa" if abs(value) > 0.5 else "#111111"
            x, y = left + cell * (column + 0.5), 11.0 + cell * (row + 0.5)
            if cell > _READABLE_CELL:
                text = f"{value:.2f}"
                parts.append(label(x, y, text, anchor="middle", size=9.5, colour=colour))
            parts.append(tip((x, y), f"{names[row]}, {names[column]}: {number(float(value), 3)}"))
    parts += _ramp(left + side + 10.0, side, 1.0, -1.0)
    return document(width, side + beside + 24.0, title, parts)


def _ramp(left: float, height: float, top: float, low: float) -> list[str]:
    """Return the scale of colours beside a picture."""
    shades = _shades(np.linspace(1.0, low / top, 64)[:, None])
    texts = ((16.0, top), (8.0 + height, low))
    return [
        grid(shades, left, 8.0, 8.0, height),
        *(
            label(left + 11.0, y, number(value, 2), size=NAME_SIZE, colour=MUTED)
            for y, value in texts
        ),
    ]
