"""The page shell: sections of text, numbers, tables and figures in one self-contained file.

The file asks the network for nothing (and forbids it to the browser), reads well in light and dark,
on narrow screens and on paper, and is the same bytes for the same content. Its one script lets
readers sort tables and take them along as CSV; without it nothing is missing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from distfms.report import formatting

#: How numbers of a column are written.
_WRITERS: dict[str | None, Callable[[Any], str]] = {
    "percent": formatting.percent,
    "bytes": formatting.n_bytes,
    "seconds": formatting.seconds,
}
_LONG_TABLE = 16
_CELL_WIDTH = 60


@dataclass(frozen=True)
class Text:
    """Paragraphs, parted by empty lines; what stands between backticks is set as code.

    A note is set off from the text around it; code that is one of `codes` leads to its meaning.
    """

    text: str
    tone: Literal["plain", "note"] = "plain"
    codes: Sequence[str] = ()
    template = "text"

    def paragraphs(self) -> list[list[tuple[bool, str]]]:
        """Return each paragraph as runs of (whether code, text)."""
        parts = re.split(r"\n\s*\n", self.text)
        return [_runs(part) for part in parts if part.strip()]


def _runs(paragraph: str) -> list[tuple[bool, str]]:
    """Return the runs of a paragraph, of which every second is code."""
    runs = enumerate(paragraph.split("`"))
    return [(place % 2 == 1, text) for place, text in runs if text]


@dataclass(frozen=True)
class Code:
    """Lines to copy: commands, a spec."""

    text: str
    title: str = ""
    template = "code"


@dataclass(frozen=True)
class Choices:
    """What was chosen, in order: what it is → what it costs or how often; ended by what is left."""

    items: Sequence[tuple[str, str]]
    ending: str = ""
    template = "choices"


@dataclass(frozen=True)
class Figure:
    """A chart with its caption; `svg` is one element, as :mod:`distfms.report.plots` returns it."""

    svg: str
    caption: str
    template = "figure"


@dataclass(frozen=True)
class KeyValues:
    """Facts, one a line: label → value. Numbers are formatted, text is set as it stands.

    With `anchors`, links lead to the labels.
    """

    items: Mapping[str, Any]
    anchors: bool = False
    template = "key_values"

    def rows(self) -> list[tuple[str, str]]:
        """Return (label, text) of each fact."""
        return [(label, _plain(value)) for label, value in self.items.items()]


@dataclass(frozen=True)
class KeyNumber:
    """A number that a reader should see first, formatted: what it is, and how it was found."""

    value: str
    label: str
    note: str = ""


@dataclass(frozen=True)
class KeyNumbers:
    """A row of numbers in large type."""

    numbers: Sequence[KeyNumber]
    template = "key_numbers"


@dataclass(frozen=True)
class Cell:
    """A cell as the page shows it; ``full`` is the whole of a text or number that was cut."""

    text: str
    numeric: bool
    full: str = ""


@dataclass(frozen=True)
class Table:
    """A table; long ones scroll below a header that stays.

    Attributes
    ----------
    rows : sequence of mapping
        Title of a column → cell: text, a number, or None for what is missing. Columns that
        hold nothing are left out.
    caption : str
    kinds : mapping of str to str
        How to write the numbers of columns, by title: ``percent``, ``bytes`` or ``seconds``.
    emphasis : sequence of int
        Rows to set in bold.
    """

    rows: Sequence[Mapping[str, Any]]
    caption: str
    kinds: Mapping[str, str] = field(default_factory=dict)
    emphasis: Sequence[int] = ()
    template = "table"

    @property
    def is_long(self) -> bool:
        """Whether the table gets a window of its own to scroll in."""
        return len(self.rows) > _LONG_TABLE

    def columns(self) -> dict[str, list[Cell]]:
        """Return the formatted cells of each column, by its title."""
        columns = {}
        for title in dict.fromkeys(title for row in self.rows for title in row):
            values = [row.get(title) for row in self.rows]
            if any(value is not None for value in values):
                columns[title] = _column_cells(values, self.kinds.get(title))
        return columns


Block = Text | Code | Choices | Figure | KeyValues | KeyNumbers | Table


@dataclass(frozen=True)
class PageSection:
    """A heading with what stands below it; an empty title makes a section without heading."""

    title: str
    blocks: Sequence[Block] = ()


@dataclass(frozen=True)
class Page:
    """A report page: its title is the name of the job, its headline the answer in one sentence.

    What follows on a second line of the headline advises or warns.
    """

    title: str
    subtitle: str = ""
    headline: str = ""
    sections: Sequence[PageSection] = ()
    footer: str = ""

    def render(self) -> str:
        """Return the page as one HTML document, the same for the same content."""
        script = _environment().get_template("page.js").render()
        headline, _, advice = (self.headline or self.title).partition("\n")
        return (
            _environment()
            .get_template("page.html.j2")
            .render(
                title=self.title,
                subtitle=self.subtitle,
                headline=headline,
                advice=advice,
                footer=self.footer,
                sections=_numbered(self.sections),
                script=script,
                script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            )
        )


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("distfms.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _numbered(sections: Sequence[PageSection]) -> list[dict[str, Any]]:
    """Assign numbers to sections, tables and figures."""
    counter = Counter[str]()
    numbered = []
    for number, section in enumerate(sections):
        blocks = []
        for block in section.blocks:
            kind = block.template
            counter[kind] += 1
            blocks.append({"kind": kind, "content": block, "number": counter[kind]})
        numbered.append({"title": section.title, "anchor": f"section-{number}", "blocks": blocks})
    return numbered


def _column_cells(values: Sequence[Any], kind: str | None) -> list[Cell]:
    if not all(value is None or _is_number(value) for value in values):
        return [_text_cell(value) for value in values]
    write = _WRITERS.get(kind, formatting.number)
    cells = []
    for value in values:
        is_there = value is not None
        text = write(value) if is_there else formatting.MISSING
        cells.append(Cell(text, True, repr(value) if is_there else ""))
    return cells


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text_cell(value: Any) -> Cell:
    text = _plain(value)
    cut = formatting.shorten(text, _CELL_WIDTH)
    return Cell(cut, False, "" if cut == text else text)


def _plain(value: Any) -> str:
    if value is None:
        return formatting.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return formatting.number(value) if isinstance(value, int | float) else str(value)
