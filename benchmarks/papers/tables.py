"""Tables of the papers' experiments: as Markdown, and as flat rows of a result file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BENCHMARKS = Path(__file__).parents[1]
README = Path(__file__).with_name("README.md")


def significant(value: float, digits: int) -> str:
    """Write a number with so many significant digits."""
    if abs(value) < 1e-12:  # rounding
        return "0"
    if abs(value) < 1e-3:
        return f"{value:.{digits - 1}e}"
    return np.format_float_positional(value, digits, unique=False, fractional=False, trim="-")


@dataclass(frozen=True)
class Figure:
    """A figure over splits, beside the one that the paper prints."""

    values: Sequence[float]
    printed: str = ""
    digits: int = 3

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the splits."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def __str__(self) -> str:
        text = significant(self.mean, self.digits)
        if self.deviation is not None:
            text += f" ± {significant(self.deviation, self.digits - 2)}"
        return text + (f" ({self.printed})" if self.printed else "")


@dataclass(frozen=True)
class Table:
    """Rows of named values; `text` says what they are, and what the paper says of them."""

    name: str
    text: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def markdown(self) -> str:
        columns = [*self.rows[0]]
        lines = [_line(columns), "|" + "---|" * len(columns)]
        lines += [_line([_written(row[column]) for column in columns]) for row in self.rows]
        return "\n".join([f"**{self.name}.** {self.text}", "", *lines])

    def flat(self) -> list[dict[str, Any]]:
        return [{"table": self.name, **_flattened(row)} for row in self.rows]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _written(value: Any) -> str:
    return significant(value, 3) if isinstance(value, float) else str(value)


def _flattened(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for column, value in row.items():
        if not isinstance(value, Figure):
            flat[column] = _rounded(value) if isinstance(value, float) else value
            continue
        flat[column] = _rounded(value.mean)
        if value.deviation is not None:
            flat[f"{column} deviation"] = _rounded(value.deviation)
        if value.printed:
            flat[f"{column} printed"] = value.printed
    return flat


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def commit() -> str:
    """Return the commit of the checkout, with a plus where files differ from it."""
    command = ["git", "-C", str(BENCHMARKS), "describe", "--always", "--abbrev=8", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(paper: str, title: str, tables: Sequence[Table], repeats: int, version: str) -> None:
    """Replace a paper's section of the README, and its result file."""
    result = {
        "script": f"python -m benchmarks.papers {paper} --repeats {repeats}",
        "commit": version,
        "seeds": [*range(repeats)],
        "rows": [row for table in tables for row in table.flat()],
    }
    path = BENCHMARKS / "results" / f"papers-{paper}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    source = f"`{result['script']}`, commit {version}, seeds 0 to {repeats - 1}."
    body = "\n\n".join([source, *(table.markdown() for table in tables)])
    README.write_text(with_section(README.read_text(), title, body))


def with_section(text: str, title: str, body: str) -> str:
    """Text with the section of this title replaced, or added at its end."""
    head, *sections = text.split("\n## ")
    by_title = {section.partition("\n")[0]: section.rstrip("\n") for section in sections}
    by_title[title] = f"{title}\n\n{body}"
    return "\n\n## ".join([head.rstrip("\n"), *by_title.values()]) + "\n"
