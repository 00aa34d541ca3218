"""All four questions: ours by its defaults beside what else a user could take.

For each question, public tables, tables that scikit-learn ships and such by published recipes, few
of which chose anything of ours for that question (the README names them); random
splits, the same for everybody; losses on other rows, less is better. Prints a table for each
question, and writes a page with charts of paired differences to OUT/answers.html. What is measured
goes to OUT/answers.jsonl, a line for each split of a table; a run that was stopped goes on, and
lines of another distfms have to be removed by hand.

Run with ``OMP_NUM_THREADS=1 python -m benchmarks.answers [--questions …] [--splits 5] [--rows
2000]``, and the folder of public data in DISTFMS_REALDATA; without it their tables are left out.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.answers import few_attributes, landmarks, multiselection, sequences
from benchmarks.answers.page import (
    Line,
    Question,
    Splits,
    beside_peers,
    markdown,
    names_behind,
    page,
    summary,
)
from benchmarks.record import record

QUESTIONS: Mapping[str, tuple[Any, Question]] = {
    "multiselect": (
        multiselection,
        Question("How many judgments of each attribute to buy", "Unexplained share"),
    ),
    "few_attributes": (
        few_attributes,
        Question("What to learn from a few attributes of each row", "Unexplained share"),
    ),
    "landmarks": (
        landmarks,
        Question("Which rows to compare new rows with", "Unexplained share or wrong classes"),
    ),
    "sequence": (
        sequences,
        Question("In which order to compute groups", "Missing area under value against cost"),
    ),
}
#: Rows of a table in questions that refit many times.
MOST = {"landmarks": 1200, "sequence": 1000}


class Measured:
    """Losses and seconds by question, table, split and rows, kept in a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[tuple[Any, ...], dict[str, tuple[float, float]]] = {}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in map(json.loads, lines):
            self.cells[tuple(line["key"])] = line["ways"]

    def cell(self, name: str, table: str, split: int, rows: int) -> dict[str, tuple[float, float]]:
        key = (name, table, split, rows)
        if key not in self.cells:
            cells = QUESTIONS[name][0].cells(table, split, rows)
            self.cells[key] = {way: (error, spent) for way, error, spent in cells}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "ways": self.cells[key]}) + "\n")
        return self.cells[key]


def measure(
    measured: Measured, name: str, tables: Sequence[str], splits: int, rows: int
) -> dict[str, Splits]:
    """Return losses and seconds by table and split of a question."""
    most = min(rows, MOST.get(name, rows))
    by_table = {}
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # of peers that do not converge
        for table in tables:
            by_table[table] = [measured.cell(name, table, split, most) for split in range(splits)]
    return by_table


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", nargs="+", choices=QUESTIONS, default=[*QUESTIONS])
    parser.add_argument("--tables", nargs="+", help="only tables whose names begin so")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000, help="rows of a table at most")
    parser.add_argument("--record", action="store_true", help="write results and the README")
    parser.add_argument("--out", type=Path, default=Path("runs/answers"))
    args = parser.parse_args(given)
    args.out.mkdir(parents=True, exist_ok=True)
    measured = Measured(args.out / "answers.jsonl")
    answers: dict[Question, list[Line]] = {}
    for name in args.questions:
        module, question = QUESTIONS[name]
        tables = [t for t in module.tables() if t.startswith(tuple(args.tables or [""]))]
        start = time.process_time()
        by_table = measure(measured, name, tables, args.splits, args.rows)
        lines = [Line.of(table, of_splits) for table, of_splits in by_table.items()]
        answers[question] = lines
        print(f"\n{question.title} ({question.loss.lower()}):\n\n{markdown(lines)}\n", flush=True)
        print(f"{time.process_time() - start:.0f} s of a processor", flush=True)
        if args.record:
            most = min(args.rows, MOST.get(name, args.rows))
            record(
                f"answers-{name}",
                title=question.title,
                text=f"{question.loss} on rows that neither taught nor chose, of ours by its "
                f"defaults beside each peer; at most {most:,} rows of {len(by_table)} tables. "
                f"Behind the best peer of a table, picked with hindsight: {names_behind(lines)}.",
                script=f"python -m benchmarks.answers --questions {name}",
                seeds=range(args.splits),
                rows=beside_peers(by_table),
            )
    print("\n" + "\n".join(summary(answers)))
    subtitle = f"{args.splits} splits of at most {args.rows:,} rows, ours by its defaults"
    (args.out / "answers.html").write_text(page(answers, subtitle), encoding="utf-8")


if __name__ == "__main__":
    main()
