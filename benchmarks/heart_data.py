"""UCI heart disease with Turney's prices, as Parquet and a cost table for `distfms run`.

Reads the four ``processed.*.data`` files (303 + 294 + 123 + 200 patients) and the price lists
``heart-disease.{expense,group}``, and writes ``patients.parquet`` and ``costs.csv`` (group, cost).
A test that is cheaper once another test of its set was bought has the discounted price in the
table; what the first test of a set costs more is shared by the set and printed, for the spec's
``shared_costs``.

Run with ``python benchmarks/heart_data.py SOURCE_FOLDER OUT_FOLDER``.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pyarrow as pa

from distfms.data.files.write import write_table

TESTS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak"),
    *("slope", "ca", "thal"),
)
#: Codes without an order: kinds of chest pain, of resting ECG, of slope, of thallium scan.
CODES = ("cp", "restecg", "slope", "thal")
#: Nobody lives with these at 0: the hospitals wrote 0 for what they had not measured.
NEVER_ZERO = ("trestbps", "chol")


def read_patients(source: Path) -> pa.Table:
    """All patients: id, ``disease`` (1: a vessel is narrowed by half or more), thirteen tests."""
    columns: dict[str, list] = {name: [] for name in ("patient", "disease", *TESTS)}
    for file in sorted(source.glob("processed.*.data")):
        hospital = file.name.split(".")[1]
        with file.open(encoding="ascii", newline="") as lines:
            for number, row in enumerate(csv.reader(lines), start=1):
                *values, diagnosis = row
                columns["patient"].append(f"{hospital}-{number}")
                columns["disease"].append(int(float(diagnosis) > 0))
                for name, text in zip(TESTS, values, strict=True):
                    columns[name].append(_value(name, text))
    return pa.table(columns)


def _value(name: str, text: str) -> float | str | None:
    if text == "?" or (name in NEVER_ZERO and float(text) == 0):
        return None
    return f"{float(text):g}" if name in CODES else float(text)


def read_prices(source: Path) -> tuple[dict[str, float], dict[str, dict[str, object]]]:
    """Own and shared costs of the tests."""
    full, discounted = {}, {}
    for name, text in _entries(source / "heart-disease.expense"):
        full[name], discounted[name] = (float(price) for price in text.split(","))
    sets: dict[str, list[str]] = {}
    for name, text in _entries(source / "heart-disease.group"):
        sets.setdefault(text.rstrip("."), []).append(name)
    shared: dict[str, dict[str, object]] = {}
    for name, groups in sets.items():
        discounts = {full[group] - discounted[group] for group in groups}
        assert max(discounts) - min(discounts) < 1e-9 * max(full.values()), discounts
        full |= {group: discounted[group] for group in groups}
        shared[name] = {"groups": groups, "cost": max(discounts)}
    return full, shared


def _entries(file: Path) -> list[tuple[str, str]]:
    """Lines ``name: text``; the first line of the group file has no colon."""
    lines = file.read_text(encoding="ascii").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    return [(name.strip(), text.strip()) for name, _, text in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = read_patients(arguments.source)
    write_table(arguments.out / "patients.parquet", table)
    costs, shared = read_prices(arguments.source)
    with (arguments.out / "costs.csv").open("w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("group", "cost"))
        writer.writerows((name, f"{cost:.10g}") for name, cost in costs.items())
    print(f"{table.num_rows} patients, {len(costs)} tests in {arguments.out}. Shared costs:")
    for name, item in shared.items():
        print(f"  {name}: {{groups: {item['groups']}, cost: {item['cost']:.10g}}}")


if __name__ == "__main__":
    main()
