"""What benchmarks measured, in ``results/NAME.json``, and the tables of README.md made of it.

A script that is given ``--record`` ends with `record`. ``python -m benchmarks.record`` writes the
sections of the README anew from all results but those of ``benchmarks.papers``, which has a README
of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.tables import commit, significant

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
README = FOLDER / "README.md"
#: Between these lines of the README are the tables.
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


def record(
    name: str, *, title: str, text: str, script: str, seeds: Sequence[int], rows: list[dict]
) -> None:
    """Write a result, and the README's tables with it.

    `rows` are flat: column → number or text; ratios with their ranges are texts of `ratio_text`.
    """
    result = {
        "title": title,
        "text": text,
        "script": script,
        "commit": commit(),
        "seeds": list(seeds),
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    content = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(f"{content}\n", encoding="utf-8")
    write_readme()


def ratio_text(middle: float, low: float, high: float) -> str:
    """Write a ratio with its range."""
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


def range_text(ratios: Iterable[float]) -> str:
    """Write the median of ratios of single rounds, with their range."""
    values = list(ratios)
    return ratio_text(float(np.median(values)), min(values), max(values))


def results() -> dict[str, dict[str, Any]]:
    """Return the results of the README by name."""
    paths = [path for path in sorted(RESULTS.glob("*.json")) if not path.stem.startswith("papers-")]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def section(result: dict[str, Any]) -> str:
    """Return the section of a result in Markdown."""
    columns = list(result["rows"][0])
    cells = [[_cell(row[column]) for column in columns] for row in result["rows"]]
    lines = [columns, ["---"] * len(columns), *cells]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    seeds = result["seeds"]
    source = f"`{result['script']}`, commit {result['commit']}"
    if seeds:
        source += f", seeds {seeds[0]} to {seeds[-1]}"
    return f"## {result['title']}\n\n{result['text']} ({source})\n\n{table}\n"


def _cell(value: Any) -> str:
    return significant(value, 3) if isinstance(value, float) else str(value)


def readme(text: str) -> str:
    """Return the text of a README with the tables of all results."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    sections = "\n".join(section(result) for result in results().values())
    return f"{head}{BEGIN}\n{sections}\n{END}{tail}"


def write_readme() -> None:
    """Write the tables of the README anew."""
    text = README.read_text(encoding="utf-8")
    README.write_text(readme(text), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
