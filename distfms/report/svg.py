"""From matplotlib to SVG that lives inside a page: theme colours, real text, no global state.

Charts are drawn in the light palette; every colour of it becomes a CSS variable with that colour as
fallback, so one drawing serves light, dark and print, and still shows when it stands alone.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, RULE, CARD = "#1c2330", "#5b6472", "#e1e4e8", "#ffffff"
#: Told apart by people with any of the common colour deficiencies, at least together with the
#: dashes and markers that :mod:`distfms.report.plots` gives each line.
SERIES = ("#0064a8", "#c2500a", "#00805e", "#a64c8a", "#b37700", "#3b8fc4", "#6b6b6b", "#7a5c3e")

_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", CARD: "card"} | {
    colour: f"s{i}" for i, colour in enumerate(SERIES, start=1)
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "distfms",
    "text.parse_math": False,  # a dollar sign in a column's name is a dollar sign
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same layout on every machine
    "font.size": 10.5,
    "axes.unicode_minus": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "text.color": INK,
    "legend.frameon": False,
    "path.simplify": True,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Draw in the page's style, and leave matplotlib's settings as they were."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # a user's matplotlibrc must not change the page
        mpl.rcParams.update(_STYLE)
        # The reader's browser has the glyphs that DejaVu lacks.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, its size in units of the SVG (72 to the inch)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as MatplotlibFigure

    figure = MatplotlibFigure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_svg(figure: Figure, title: str, tips: Mapping[str, str] | None = None) -> str:
    """Return a figure that was drawn inside :func:`drawing` as one SVG element.

    ``title`` is read to those who cannot see the chart; ``tips`` are tooltips by the artist's gid.
    """
    buffer = io.StringIO()
    empty = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=empty)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r"\n\s*", "\n", svg)
    return _with_tips(_themed(_with_title(svg, title)), tips or {})


def _with_title(svg: str, title: str) -> str:
    """Replace the root's fixed size and add what assistive software reads."""
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{view_box.group()} role="img" aria-label="{escape(title)}" '
        f'style="stroke-linejoin: round; stroke-linecap: butt">\n<title>{escape(title)}</title>'
    )
    return root + svg[svg.index(">") + 1 :]


def _themed(svg: str) -> str:
    """Put variables of the page in place of colours and fonts, inside of tags only."""

    def in_tag(match: re.Match[str]) -> str:
        tag = re.sub(
            r"(?<=[ \"])(fill|stroke): (#[0-9a-f]{6})\b",
            lambda m: f"{m[1]}: {_variable(m[2])}",
            match.group(),
        )
        return re.sub(r"(font: [^;\"]*?px) [^;\"]+", r"\1 var(--sans, sans-serif)", tag)

    return re.sub(r"<[a-z][^>]*>", in_tag, svg)


def _variable(colour: str) -> str:
    return f"var(--{_VARIABLES[colour]}, {colour})" if colour in _VARIABLES else colour


def _with_tips(svg: str, tips: Mapping[str, str]) -> str:
    def opened(match: re.Match[str]) -> str:
        tip = tips.get(match[1])
        return match.group() if tip is None else f"{match.group()}<title>{escape(tip)}</title>"

    return re.sub(r'<g id="([^"]+)">', opened, svg)
